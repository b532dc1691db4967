//! What file systems report of their size (docs/on-disk/23-zpl.md, section 7).

use crate::fs::writable::Fs;
use crate::space::QuotaOf;
use crate::{Attrs, FileKind, SpaceKind, ZplError};
use format::ObjectId;

/// Objects that an object set can have.
const OBJECTS_MAX: u64 = 1 << 48;
/// Bytes that a file takes at least.
const FILE_MIN: u64 = 512;
/// The unit of space in reports, whatever the size of records: programs take both numbers that `statfs` has
/// for it.
const UNIT: u64 = 4096;

/// Sizes of a file system as `statfs` reports them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FsStats {
    /// Bytes of the unit of the next two.
    pub block_size: u64,
    /// Number of units in all.
    pub blocks: u64,
    /// Units that may still be taken.
    pub blocks_free: u64,
    /// Number of files in all, existing and possible.
    pub files: u64,
    /// Files that may still be made.
    pub files_free: u64,
    /// Bytes of the longest name.
    pub name_max: u64,
}

/// What `stat` tells of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Attributes of the file as of the look-up.
    pub attrs: Attrs,
    /// Space taken, its dnode included, in units of 512 bytes, as of the last sync.
    pub blocks_512: u64,
    /// Block size in bytes.
    pub block_size: u64,
    /// Of a regular file: the space that it takes is not known before the next sync.
    pub is_unwritten: bool,
}

impl Fs {
    /// What `stat` tells of a file. Nothing is decoded for it: it is asked for more often than anything else.
    ///
    /// # Errors
    /// [`ZplError::Stale`] if there is none.
    pub fn stat(&self, id: ObjectId) -> Result<Stat, ZplError> {
        let inode = self.inode(id)?;
        let (taken, attrs) = (inode.object.taken(), inode.attrs());
        let is_unwritten = inode.kind == FileKind::Regular && taken.is_unwritten;
        // Programs take a file with fewer blocks than bytes for one with holes: what is still to be written
        // counts as if it could not be compressed, but the file for no more than its bytes.
        let more = if is_unwritten { taken.dirty.min(attrs.size.saturating_sub(taken.used)) } else { 0 };
        Ok(Stat {
            attrs,
            // As of `Node::blocks_512`.
            blocks_512: (taken.used.saturating_add(more).saturating_add(256) / 512)
                .saturating_add(taken.slots.into()),
            block_size: taken.block_size,
            is_unwritten,
        })
    }

    /// The size of the file system, as its dataset reports it: bytes referenced, and bytes available. `at` is
    /// the file that is asked about: where a directory passes its project on, the project's limits count.
    ///
    /// # Errors
    /// [`ZplError::Stale`] if there is no such file; or an object of the file system cannot be read.
    pub fn stats(&self, referenced: u64, available: u64, at: ObjectId) -> Result<FsStats, ZplError> {
        let attrs = self.attrs(at)?;
        let (mut referenced, mut available) = (referenced, available);
        let used_objects = self.set.object_count();
        let mut files_free = (OBJECTS_MAX - used_objects.min(OBJECTS_MAX)).min(available / FILE_MIN);
        let mut files = files_free + used_objects;
        if attrs.flags & format::znode::FLAG_PROJINHERIT != 0 {
            let of = |of| -> Result<Option<(u64, u64)>, ZplError> {
                let limit = self.quotas.limit(SpaceKind::Project, of, attrs.projid);
                Ok(match limit {
                    0 => None,
                    limit => Some((limit, self.used(SpaceKind::Project, of, attrs.projid)?)),
                })
            };
            if let Some((limit, used)) = of(QuotaOf::Space)? {
                referenced = used;
                available = available.min(limit.saturating_sub(used));
            }
            if let Some((limit, used)) = of(QuotaOf::Objects)? {
                files_free = files_free.min(limit.saturating_sub(used));
                files = files_free + used;
            }
        }
        Ok(FsStats {
            block_size: UNIT,
            blocks: referenced.div_ceil(UNIT).saturating_add(available / UNIT),
            blocks_free: available / UNIT,
            files,
            files_free,
            name_max: self.name_max() as u64,
        })
    }
}
