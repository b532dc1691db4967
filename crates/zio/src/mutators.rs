//! Mutators of tests: they change blocks that were verified, as in a pool that was made to do harm.
//!
//! They are of the process, because the block layer of a pool is made while the pool is being opened, and only test
//! builds have them (feature `testing`).

use format::BlockPtr;
use std::sync::RwLock;
use vdev::sync::{read, write};

/// Changes the contents of a block that was read, given the pointer that led to it.
pub type Mutator = Box<dyn Fn(&BlockPtr, &mut [u8]) + Send + Sync>;

static MUTATOR: RwLock<Option<Mutator>> = RwLock::new(None);

/// From now on every block is changed by `mutator` after it was verified; `None` ends that.
pub fn set_mutator(mutator: Option<Mutator>) {
    *write(&MUTATOR) = mutator;
}

pub(crate) fn mutate(bp: &BlockPtr, mut plain: Vec<u8>) -> Vec<u8> {
    if let Some(mutator) = read(&MUTATOR).as_ref() {
        mutator(bp, &mut plain);
    }
    plain
}

/// What a [`StoredMutator`] is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// The bytes of a block: compressed, encrypted.
    Block,
    /// The header of a gang block.
    GangHeader,
}

/// Changes bytes as they are on disk, given the pointer that led to them: what a compressed stream, a ciphertext
/// or a gang header may be in a pool whose checksums are right.
pub type StoredMutator = Box<dyn Fn(&BlockPtr, Stored, &mut [u8]) + Send + Sync>;

static STORED_MUTATOR: RwLock<Option<StoredMutator>> = RwLock::new(None);

/// From now on the stored bytes of every block are changed by `mutator` after they were verified; `None` ends
/// that.
pub fn set_stored_mutator(mutator: Option<StoredMutator>) {
    *write(&STORED_MUTATOR) = mutator;
}

pub(crate) fn mutate_stored(bp: &BlockPtr, what: Stored, mut stored: Vec<u8>) -> Vec<u8> {
    if let Some(mutator) = read(&STORED_MUTATOR).as_ref() {
        mutator(bp, what, &mut stored);
    }
    stored
}
