//! Sizes that file systems report to `stat` and `statfs` (docs/on-disk/23-zpl.md, section 7).

use crate::fs::writable::Fs;
use crate::space::QuotaOf;
use crate::{Attrs, FileKind, SpaceKind, ZplError};
use format::ObjectId;

/// Largest number of objects in an object set.
const OBJECTS_MAX: u64 = 1 << 48;
/// Fewest bytes that a file takes.
const FILE_MIN: u64 = 512;
/// The unit of space in `statfs`, independent of the record size: programs use either of the two block sizes
/// of `statfs` for it.
const UNIT: u64 = 4096;

/// Sizes of a file system as `statfs` reports them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FsStats {
    /// Bytes of the unit of `blocks` and `blocks_free`.
    pub block_size: u64,
    /// Number of units in all.
    pub blocks: u64,
    /// Number of units that are available.
    pub blocks_free: u64,
    /// Number of files in all, existing and possible.
    pub files: u64,
    /// Number of files that may still be created.
    pub files_free: u64,
    /// Longest name, in bytes.
    pub name_max: u64,
}

/// Values of `stat` for a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Attributes of the file as of the look-up.
    pub attrs: Attrs,
    /// Space taken, its dnode included, in units of 512 bytes, as of the last sync.
    pub blocks_512: u64,
    /// Block size in bytes.
    pub block_size: u64,
    /// Whether a regular file has unwritten data: its allocated space is not known before the next sync.
    pub is_unwritten: bool,
}

impl Fs {
    /// Values of `stat` for a file. Decodes no bytes, because `stat` is the most frequent operation.
    ///
    /// # Errors
    /// [`ZplError::Stale`] if there is no such file.
    pub fn stat(&self, id: ObjectId) -> Result<Stat, ZplError> {
        let inode = self.inode(id)?;
        let (taken, attrs) = (inode.object.taken(), inode.attrs());
        let is_unwritten = inode.kind == FileKind::Regular && taken.is_unwritten;
        // Programs take a file with fewer blocks than bytes for a sparse one: unwritten data count as
        // incompressible, but at most as the size of the file.
        let more = if is_unwritten { taken.dirty.min(attrs.size.saturating_sub(taken.used)) } else { 0 };
        Ok(Stat {
            attrs,
            // As in `Node::blocks_512`.
            blocks_512: (taken.used.saturating_add(more).saturating_add(256) / 512)
                .saturating_add(taken.slots.into()),
            block_size: taken.block_size,
            is_unwritten,
        })
    }

    /// The size of the file system from that of its dataset: bytes referenced, and bytes available. `at` is
    /// the file of the query: if its directory passes its project on, the project's limits apply.
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
