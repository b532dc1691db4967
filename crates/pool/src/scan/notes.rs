//! Notes of blocks that readers could not read, which a thread reads again (`scrub::errors`).

use format::{BlockId, ObjectId, Txg};
use std::collections::{BTreeSet, HashSet};
use std::sync::Mutex;
use vdev::sync::lock;

/// Most places that wait to be read again.
const NOTES_MAX: usize = 1000;
/// The place of an unreadable block: object set, object, block.
pub(crate) type UnreadableBlock = (ObjectId, ObjectId, BlockId);

/// Places that readers could not read.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Places to be read again.
    pub(crate) places: Mutex<BTreeSet<UnreadableBlock>>,
    /// Places that are in the log already, with the births of their blocks.
    pub(crate) logged: Mutex<HashSet<(UnreadableBlock, Txg)>>,
}

impl Notes {
    /// Clears the logged places, because the log was replaced.
    pub(crate) fn forget(&self) {
        lock(&self.logged).clear();
    }
}

impl dmu::Witness for Notes {
    fn unreadable(&self, objset: u64, object: ObjectId, blkid: BlockId) {
        let mut notes = lock(&self.places);
        if notes.len() < NOTES_MAX {
            notes.insert((ObjectId(objset), object, blkid));
        }
    }
}
