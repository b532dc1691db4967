//! Reading ahead for those who walk through directories: what has been listed is looked at next, and perhaps read.
//!
//! Attributes of listed files and the first entries of listed directories are always brought in. The first blocks of
//! files are, as long as enough of those that were brought in before have been read: who only lists names pays for few.

use crate::fs::writable::Fs;
use crate::node::inode::Inode;
use crate::{DirPage, FileKind, Listed};
use format::ObjectId;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

/// Files whose contents are read ahead although nobody has read any.
const CREDIT: i32 = 64;
/// More than this is not learned.
const CREDIT_MAX: i32 = 512;
/// What a file that is read earns: as many more may be read ahead.
const EARNED: i32 = 2;
/// Larger first blocks are left to who reads them.
const BLOCK_MAX: u64 = 128 << 10;
/// Files that one thread looks at.
const TOGETHER: usize = 4;

/// How many contents may be read ahead.
#[derive(Debug)]
pub(crate) struct Foresight {
    credit: AtomicI32,
}

impl Default for Foresight {
    fn default() -> Foresight {
        Foresight { credit: AtomicI32::new(CREDIT) }
    }
}

impl Foresight {
    /// A file is read for the first time since it came into memory.
    pub(crate) fn earn(&self) {
        if self.credit.load(Ordering::Relaxed) < CREDIT_MAX {
            self.credit.fetch_add(EARNED, Ordering::Relaxed);
        }
    }

    /// Whether one more may be read ahead.
    fn spend(&self) -> bool {
        self.credit.load(Ordering::Relaxed) > 0 && self.credit.fetch_sub(1, Ordering::Relaxed) > 0
    }
}

impl Fs {
    /// These entries were listed: what they lead to is brought into memory by other threads, where there are some. Of a page
    /// whose first, middle and last file are in memory all are taken to be: directories are listed again and again.
    pub fn foresee(self: &Arc<Self>, page: &DirPage) {
        let store = self.set.store();
        let is_known = |entry: Listed| self.inodes.get(entry.id).is_some();
        let sample = [0, page.len() / 2, page.len().saturating_sub(1)];
        if !store.can_prefetch() || sample.into_iter().all(|at| page.get(at).is_none_or(is_known)) {
            return;
        }
        let unknown: Vec<(ObjectId, bool)> = page
            .iter()
            .map(|(_, entry)| entry)
            .filter(|entry| !is_known(*entry))
            .map(|entry| {
                let is_file = entry.kind_hint == Some(FileKind::Regular);
                (entry.id, !is_file || self.foresight.spend())
            })
            .collect();
        store.prefetch(unknown.chunks(TOGETHER).map(|chunk| {
            let (fs, chunk) = (Arc::clone(self), chunk.to_vec());
            let look = move || chunk.iter().for_each(|(id, contents)| fs.look_ahead(*id, *contents));
            Box::new(look) as Box<dyn FnOnce() + Send>
        }));
    }

    /// Whatever goes wrong is told to who asks for it.
    fn look_ahead(&self, id: ObjectId, contents: bool) {
        let Ok(inode) = self.inode(id) else { return };
        if contents && has_first_block(&inode) {
            inode.object.read_ahead(&[0]);
        }
    }
}

/// The first block of it is likely to be asked for.
fn has_first_block(inode: &Inode) -> bool {
    match inode.kind {
        FileKind::Directory => true,
        FileKind::Regular => inode.attrs().size > 0 && inode.object.block_size() <= BLOCK_MAX,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_only_lists_pays_for_few_files() {
        let foresight = Foresight::default();
        let ahead = (0..1000).filter(|_| foresight.spend()).count();
        assert_eq!(ahead, CREDIT as usize);
        foresight.earn();
        assert_eq!((0..10).filter(|_| foresight.spend()).count(), EARNED as usize);
        (0..10_000).for_each(|_| foresight.earn());
        assert!(foresight.credit.load(Ordering::Relaxed) <= CREDIT_MAX + EARNED);
    }
}
