//! Notes of data that readers could not read, which a thread looks at again (`scrub::errors`).

use format::{BlockId, ObjectId, Txg};
use std::collections::{BTreeSet, HashSet};
use std::sync::Mutex;
use vdev::sync::lock;

/// Places that wait to be looked at again.
const NOTES_MAX: usize = 1000;
/// A place where something could not be read.
pub(crate) type UnreadableBlock = (ObjectId, ObjectId, BlockId);

/// Places that readers could not read.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// To be looked at again.
    pub(crate) places: Mutex<BTreeSet<UnreadableBlock>>,
    /// Places that are in the log already, with the births of blocks.
    pub(crate) logged: Mutex<HashSet<(UnreadableBlock, Txg)>>,
}

impl Notes {
    /// Forgets what stands in the log: it is another one now.
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
