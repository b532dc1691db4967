//! For tests of the layers above: blocks that pass their checksums and are wrong all the same, as
//! in a pool that was made to do harm.
//!
//! Process-wide, because the block layer of a pool is made while the pool is being opened.

use format::BlockPtr;
use std::sync::{PoisonError, RwLock};

/// Changes the contents of a block that was read, given the pointer that led to it.
pub type Mutator = Box<dyn Fn(&BlockPtr, &mut [u8]) + Send + Sync>;

static MUTATOR: RwLock<Option<Mutator>> = RwLock::new(None);

/// From now on every block is changed by `mutator` after it was verified; `None` ends that.
pub fn set_mutator(mutator: Option<Mutator>) {
    *MUTATOR.write().unwrap_or_else(PoisonError::into_inner) = mutator;
}

pub(crate) fn mutate(bp: &BlockPtr, mut plain: Vec<u8>) -> Vec<u8> {
    if let Some(mutator) = MUTATOR.read().unwrap_or_else(PoisonError::into_inner).as_ref() {
        mutator(bp, &mut plain);
    }
    plain
}
