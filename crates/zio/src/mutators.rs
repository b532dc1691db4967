//! Mutators of tests: they change blocks that were verified, as in a pool that was made to do harm.
//!
//! They are of the process, because the block layer of a pool is made while the pool is being opened, and only test
//! builds have them (feature `testing`).

use format::BlockPtr;
use std::sync::RwLock;
use vdev::sync::{read, write};

/// Callback that changes the contents of a block that was read; gets the block's pointer.
pub type Mutator = Box<dyn Fn(&BlockPtr, &mut [u8]) + Send + Sync>;

static MUTATOR: RwLock<Option<Mutator>> = RwLock::new(None);

/// Applies `mutator` to every block after its verification from now on; `None` ends that.
pub fn set_mutator(mutator: Option<Mutator>) {
    *write(&MUTATOR) = mutator;
}

pub(crate) fn mutate(bp: &BlockPtr, mut plain: Vec<u8>) -> Vec<u8> {
    if let Some(mutator) = read(&MUTATOR).as_ref() {
        mutator(bp, &mut plain);
    }
    plain
}

/// Kind of bytes passed to a [`StoredMutator`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// The stored bytes of a block: compressed, encrypted.
    Block,
    /// The header of a gang block.
    GangHeader,
}

/// Callback that changes stored bytes; gets the pointer of the block. It simulates hostile compressed
/// streams, ciphertexts and gang headers with right checksums.
pub type StoredMutator = Box<dyn Fn(&BlockPtr, Stored, &mut [u8]) + Send + Sync>;

static STORED_MUTATOR: RwLock<Option<StoredMutator>> = RwLock::new(None);

/// Applies `mutator` to the stored bytes of every block after their verification from now on; `None` ends
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
