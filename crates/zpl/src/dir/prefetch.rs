//! Directory prefetch: listed files are usually looked at next, and perhaps read.
//!
//! Attributes of listed files and the first entries of listed directories are always brought in. The first
//! blocks of files are, as long as enough of those that were brought in before have been read: a program that
//! only lists names causes few reads.

use crate::fs::writable::Fs;
use crate::node::inode::Inode;
use crate::{DirPage, FileKind, Listed};
use format::ObjectId;
use std::sync::Arc;

/// Larger first blocks are read on demand.
const BLOCK_MAX: u64 = 128 << 10;
/// Files that one thread looks at.
const TOGETHER: usize = 4;

impl Fs {
    /// These entries were listed: what they lead to is brought into memory by other threads, where there are
    /// some. Of a page whose first, middle and last file are in memory all are taken to be: directories are
    /// listed again and again.
    pub fn prefetch_listed(self: &Arc<Self>, page: &DirPage) {
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
                (entry.id, !is_file || self.prefetch_credit.spend())
            })
            .collect();
        store.prefetch(unknown.chunks(TOGETHER).map(|chunk| {
            let (fs, chunk) = (Arc::clone(self), chunk.to_vec());
            let look = move || chunk.iter().for_each(|(id, contents)| fs.look_ahead(*id, *contents));
            Box::new(look) as Box<dyn FnOnce() + Send>
        }));
    }

    /// Errors are left to the operation that needs the file.
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
