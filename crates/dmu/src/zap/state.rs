//! What the writers of a ZAP share.

use super::micro_index::MicroIndex;
use crate::sync::{Mutex, MutexGuard};

/// State shared by the writers of a ZAP: their lock, and the index of a micro ZAP.
#[derive(Debug, Default)]
pub struct ZapState {
    index: Mutex<Option<MicroIndex>>,
}

impl ZapState {
    /// Forgets the index. Code that changes a ZAP's first block by other means than [`ZapMut`](super::ZapMut) calls
    /// this: after a rollback, a receive, or when the object's number is used again.
    pub(crate) fn clear(&self) {
        *self.lock() = None;
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Option<MicroIndex>> {
        self.index.lock().unwrap_or_else(|poisoned| {
            // A thread that panicked may have left the index out of date.
            let mut index = poisoned.into_inner();
            *index = None;
            index
        })
    }
}
