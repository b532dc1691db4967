//! Directory prefetch: programs usually look at the files that they have listed, and may read them.
//!
//! The attributes of listed files and the first entries of listed directories are always read ahead. The
//! first blocks of files are read ahead as long as enough of the earlier ones have been used, so a program
//! that only lists names causes few reads.

use crate::fs::writable::Fs;
use crate::node::inode::Inode;
use crate::{DirPage, FileKind, Listed};
use format::ObjectId;
use std::sync::Arc;

/// Largest first block that is read ahead, in bytes.
const BLOCK_MAX: u64 = 128 << 10;
/// Number of files in one prefetch job.
const TOGETHER: usize = 4;

impl Fs {
    /// Reads the listed files into memory on other threads, if there are any. If the first, middle and last
    /// file of a page are in memory, all are assumed to be, because directories are often listed repeatedly.
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

    /// Reads one file ahead. Errors are left to the operation that needs the file.
    fn look_ahead(&self, id: ObjectId, contents: bool) {
        let Ok(inode) = self.inode(id) else { return };
        if contents && has_first_block(&inode) {
            inode.object.read_ahead(&[0]);
        }
    }
}

/// Whether the first block of the file is likely to be read.
fn has_first_block(inode: &Inode) -> bool {
    match inode.kind {
        FileKind::Directory => true,
        FileKind::Regular => inode.attrs().size > 0 && inode.object.block_size() <= BLOCK_MAX,
        _ => false,
    }
}
