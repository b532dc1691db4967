//! Bonus structures of the dataset layer: directories, datasets, bookmarks, lists of freed blocks
//! (docs/on-disk/22-mos-dsl.md, sections 2, 3, 4.2, 5, 8).
//!
//! # What always holds
//! - A structure shorter than its fixed part is an error; bytes after it are ignored.
//! - Object numbers of 0 mean "none" on disk and are `None` here.

mod encode;

use crate::blkptr::BLKPTR_SIZE;
use crate::units::{ObjectId, Txg};
use crate::{BlockPtr, DecodeError, Endian};

/// Bytes of a directory's bonus.
pub const DIR_PHYS_SIZE: usize = 256;
/// Bytes of a dataset's bonus.
pub const DATASET_PHYS_SIZE: usize = 320;
/// Bytes of a deadlist's bonus.
pub const DEADLIST_PHYS_SIZE: usize = 320;
/// Bytes of an entry of a bptree.
pub const BPTREE_ENTRY_SIZE: usize = 168;

/// Directory flag: [`DirPhys::breakdown`] is maintained.
pub const DIR_FLAG_USED_BREAKDOWN: u64 = 1;

/// Dataset flag: a receive or a destroy is in progress; the dataset cannot be mounted.
pub const DS_FLAG_INCONSISTENT: u64 = 1;
/// Dataset flag: a clone whose head cannot be promoted.
pub const DS_FLAG_NOPROMOTE: u64 = 2;
/// Dataset flag: `unique` is exact (always since version 26).
pub const DS_FLAG_UNIQUE_ACCURATE: u64 = 4;
/// Dataset flag: the snapshot is destroyed when its last hold or clone is gone.
pub const DS_FLAG_DEFER_DESTROY: u64 = 8;
/// Dataset flag: names are compared without regard to case.
pub const DS_FLAG_CASE_INSENSITIVE: u64 = 1 << 16;

fn object(id: u64) -> Option<ObjectId> {
    (id != 0).then_some(ObjectId(id))
}

fn number(id: Option<ObjectId>) -> u64 {
    id.map_or(0, u64::from)
}

/// Writes words at offset `at` into a bonus, which is extended to at least `size` bytes.
fn put_words(bytes: &mut Vec<u8>, size: usize, at: usize, words: &[u64]) {
    if bytes.len() < size {
        bytes.resize(size, 0);
    }
    let (_, from) = bytes.split_at_mut(at);
    for (place, word) in from.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
}

/// The parts of a directory's used space, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UsedBreakdown {
    /// Blocks of the head born after the origin.
    pub head: u64,
    /// Blocks that only snapshots of this directory reference.
    pub snap: u64,
    /// Bytes that the descendants of the directory use.
    pub child: u64,
    /// Reservations of children beyond their use.
    pub child_reservation: u64,
    /// Part of the refreservation beyond the head's unique space.
    pub ref_reservation: u64,
}

/// Bonus of a DSL directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirPhys {
    /// Time of creation in seconds since 1970; informational.
    pub creation_time: u64,
    /// Head dataset; `None` for `$MOS`, `$FREE`, `$LEAK`.
    pub head: Option<ObjectId>,
    /// Parent directory; `None` for the root.
    pub parent: Option<ObjectId>,
    /// Origin snapshot of a clone.
    pub origin: Option<ObjectId>,
    /// ZAP from names of children to their directories.
    pub children: Option<ObjectId>,
    /// Bytes charged to the directory, children and reservations included.
    pub used: u64,
    /// Bytes that its datasets use after compression.
    pub compressed: u64,
    /// Bytes that its datasets use before compression.
    pub uncompressed: u64,
    /// The property `quota` in bytes; 0 means no quota.
    pub quota: u64,
    /// The property `reservation` in bytes; 0 means no reservation.
    pub reserved: u64,
    /// The ZAP object of locally set properties.
    pub props: Option<ObjectId>,
    /// The ZAP object of permissions that `zfs allow` delegates.
    pub delegation: Option<ObjectId>,
    /// The bits `DIR_FLAG_…` of the directory.
    pub flags: u64,
    /// The parts of `used`: by snapshots, by children, by reservations.
    pub breakdown: UsedBreakdown,
    /// ZAP of the heads of clones of this directory's snapshots.
    pub clones: Option<ObjectId>,
}

impl DirPhys {
    /// Decodes the bonus of a directory object. In pools before version 15 it may lack the breakdown and the
    /// clones, which are then 0 and `None`.
    ///
    /// # Errors
    /// [`DecodeError::Short`] if fewer bytes are given than the oldest form has.
    pub fn decode(bytes: &[u8], order: Endian) -> Result<DirPhys, DecodeError> {
        const WHAT: &str = "DSL directory";
        DecodeError::need(WHAT, DIR_PHYS_SIZE, bytes.len())?;
        let w: [u64; 19] = order.words(WHAT, bytes, 0)?;
        Ok(DirPhys {
            creation_time: w[0],
            head: object(w[1]),
            parent: object(w[2]),
            origin: object(w[3]),
            children: object(w[4]),
            used: w[5],
            compressed: w[6],
            uncompressed: w[7],
            quota: w[8],
            reserved: w[9],
            props: object(w[10]),
            delegation: object(w[11]),
            flags: w[12],
            breakdown: UsedBreakdown {
                head: w[13],
                snap: w[14],
                child: w[15],
                child_reservation: w[16],
                ref_reservation: w[17],
            },
            clones: object(w[18]),
        })
    }

    /// Writes the fields into the bonus of a directory object, little-endian; bytes after them are unchanged.
    pub fn encode_into(&self, bytes: &mut Vec<u8>) {
        let parts = &self.breakdown;
        let words = [
            self.creation_time,
            number(self.head),
            number(self.parent),
            number(self.origin),
            number(self.children),
            self.used,
            self.compressed,
            self.uncompressed,
            self.quota,
            self.reserved,
            number(self.props),
            number(self.delegation),
            self.flags,
            parts.head,
            parts.snap,
            parts.child,
            parts.child_reservation,
            parts.ref_reservation,
            number(self.clones),
        ];
        put_words(bytes, DIR_PHYS_SIZE, 0, &words);
    }

    /// True if `breakdown` is maintained in this pool and adds up to `used`.
    pub fn has_breakdown(&self) -> bool {
        self.flags & DIR_FLAG_USED_BREAKDOWN != 0
    }
}

/// Bonus of a DSL dataset: a head or a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetPhys {
    /// The directory that owns it.
    pub dir: ObjectId,
    /// The previous snapshot; for the first snapshot of a clone, its origin.
    pub prev_snap: Option<ObjectId>,
    /// Txg in which the previous snapshot was taken.
    pub prev_snap_txg: Txg,
    /// The next snapshot, or the head; `None` for a head.
    pub next_snap: Option<ObjectId>,
    /// ZAP from names of snapshots to their datasets; `None` for a snapshot.
    pub snapshot_names: Option<ObjectId>,
    /// 0 for a head; for a snapshot, 1 plus the number of its clones.
    pub num_children: u64,
    /// Time of creation in seconds since 1970.
    pub creation_time: u64,
    /// Txg in which the dataset was created.
    pub creation_txg: Txg,
    /// Deadlist: blocks of the previous snapshot that this dataset does not reference.
    pub deadlist: Option<ObjectId>,
    /// Bytes allocated to all blocks that the dataset references.
    pub referenced: u64,
    /// Bytes that the dataset references after compression.
    pub compressed: u64,
    /// Bytes that the dataset references before compression.
    pub uncompressed: u64,
    /// Bytes that no other dataset references.
    pub unique: u64,
    /// 56-bit id that is unique among open datasets; it may change.
    pub fsid_guid: u64,
    /// Random permanent guid, which send and receive compare.
    pub guid: u64,
    /// The bits `DS_FLAG_…` of the dataset.
    pub flags: u64,
    /// The pointer to the object set.
    pub bp: BlockPtr,
    /// ZAP of the clones of this snapshot, without its successor in the same file system.
    pub next_clones: Option<ObjectId>,
    /// ZAP of a snapshot's local properties.
    pub props: Option<ObjectId>,
    /// ZAP of holds, from tag to time.
    pub userrefs: Option<ObjectId>,
}

impl DatasetPhys {
    /// Reads the bonus of a dataset object.
    ///
    /// # Errors
    /// [`DecodeError::Short`] if fewer than 320 bytes are given.
    pub fn decode(bytes: &[u8], order: Endian) -> Result<DatasetPhys, DecodeError> {
        const WHAT: &str = "DSL dataset";
        DecodeError::need(WHAT, DATASET_PHYS_SIZE, bytes.len())?;
        let w: [u64; 16] = order.words(WHAT, bytes, 0)?;
        let tail: [u64; 3] = order.words(WHAT, bytes, 256)?;
        let bp = bytes.get(128..128 + BLKPTR_SIZE).unwrap_or(&[]);
        Ok(DatasetPhys {
            dir: ObjectId(w[0]),
            prev_snap: object(w[1]),
            prev_snap_txg: Txg(w[2]),
            next_snap: object(w[3]),
            snapshot_names: object(w[4]),
            num_children: w[5],
            creation_time: w[6],
            creation_txg: Txg(w[7]),
            deadlist: object(w[8]),
            referenced: w[9],
            compressed: w[10],
            uncompressed: w[11],
            unique: w[12],
            fsid_guid: w[13],
            guid: w[14],
            flags: w[15],
            bp: BlockPtr::decode(bp, order)?,
            next_clones: object(tail[0]),
            props: object(tail[1]),
            userrefs: object(tail[2]),
        })
    }

    /// Writes the fields into the bonus of a dataset object, little-endian; bytes after them are unchanged.
    pub fn encode_into(&self, bytes: &mut Vec<u8>) {
        let words = [
            self.dir.0,
            number(self.prev_snap),
            self.prev_snap_txg.0,
            number(self.next_snap),
            number(self.snapshot_names),
            self.num_children,
            self.creation_time,
            self.creation_txg.0,
            number(self.deadlist),
            self.referenced,
            self.compressed,
            self.uncompressed,
            self.unique,
            self.fsid_guid,
            self.guid,
            self.flags,
        ];
        put_words(bytes, DATASET_PHYS_SIZE, 0, &words);
        put_words(bytes, DATASET_PHYS_SIZE, 128, self.bp.words());
        let tail = [number(self.next_clones), number(self.props), number(self.userrefs)];
        put_words(bytes, DATASET_PHYS_SIZE, 256, &tail);
    }

    /// True for a snapshot, false for a head.
    pub fn is_snapshot(&self) -> bool {
        self.num_children != 0
    }
}

/// Bookmark flag: the freed-before-next sizes are maintained.
pub const BOOKMARK_FLAG_HAS_FBN: u64 = 1;
/// Bookmark flag: the snapshot of the bookmark still exists.
pub const BOOKMARK_FLAG_SNAPSHOT_EXISTS: u64 = 2;

/// A bookmark, as stored in its ZAP entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BookmarkPhys {
    /// Guid of the snapshot that it was created from.
    pub guid: u64,
    /// Txg in which the bookmarked snapshot was taken.
    pub creation_txg: Txg,
    /// Creation time of that snapshot, in seconds since 1970.
    pub creation_time: u64,
    /// Further fields of the second form.
    pub v2: Option<BookmarkV2>,
}

/// Further fields of a bookmark of the second form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BookmarkV2 {
    /// The object of the redaction list, for a redaction bookmark.
    pub redaction: Option<ObjectId>,
    /// The bits `BOOKMARK_FLAG_…` of the bookmark.
    pub flags: u64,
    /// Bytes that the snapshot references.
    pub referenced: u64,
    /// Bytes after compression that were freed since the bookmark.
    pub compressed: u64,
    /// Bytes before compression that were freed since the bookmark.
    pub uncompressed: u64,
    /// Bytes of the snapshot freed before the next snapshot: taken, compressed, uncompressed.
    pub freed_before_next: [u64; 3],
    /// Id of the snapshot's IVs; 0: there is none.
    pub ivset_guid: u64,
}

impl BookmarkPhys {
    /// Decodes the words of a ZAP entry: 3 (first form) or at least 8; missing words count as 0.
    ///
    /// # Errors
    /// [`DecodeError::Field`] if there are neither 3 nor at least 8 words.
    pub fn from_words(words: &[u64]) -> Result<BookmarkPhys, DecodeError> {
        let &[guid, creation_txg, creation_time, ref rest @ ..] = words else {
            return Err(DecodeError::field("bookmark", "words", words.len() as u64));
        };
        let at = |i: usize| rest.get(i).copied().unwrap_or(0);
        let v2 = (!rest.is_empty()).then(|| BookmarkV2 {
            redaction: object(at(0)),
            flags: at(1),
            referenced: at(2),
            compressed: at(3),
            uncompressed: at(4),
            freed_before_next: [at(5), at(6), at(7)],
            ivset_guid: at(8),
        });
        Ok(BookmarkPhys { guid, creation_txg: Txg(creation_txg), creation_time, v2 })
    }
}

/// Bonus of a redaction list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedactionListPhys {
    /// Object id of the last object that was visited; all ones if complete.
    pub(crate) last_object: u64,
    /// Last block of that object; all ones if complete.
    pub(crate) last_block: u64,
    /// Number of entries in the object's data, 32 bytes each.
    pub num_entries: u64,
    /// Guids of the redaction snapshots; in the spill block if there are many.
    pub snapshots: Vec<u64>,
    /// Number of redaction snapshots.
    pub(crate) num_snapshots: u64,
}

impl RedactionListPhys {
    /// Reads the bonus (or spill) of a redaction list.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    pub fn decode(bytes: &[u8], order: Endian) -> Result<RedactionListPhys, DecodeError> {
        let [last_object, last_block, num_entries, num_snapshots] =
            order.words("redaction list", bytes, 0)?;
        let snapshots = order
            .all_words(bytes.get(32..).unwrap_or(&[]))
            .take(usize::try_from(num_snapshots).unwrap_or(usize::MAX))
            .collect();
        Ok(RedactionListPhys { last_object, last_block, num_entries, snapshots, num_snapshots })
    }

    /// The structure of a complete list, in little-endian order.
    pub fn encode_complete(num_entries: u64, snapshots: &[u64]) -> Vec<u8> {
        let head = [u64::MAX, u64::MAX, num_entries, snapshots.len() as u64];
        head.iter().chain(snapshots).flat_map(|word| word.to_le_bytes()).collect()
    }
}

/// Bonus of a bpobj: a list of block pointers and of further bpobjs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BpobjPhys {
    /// Number of pointers in the object's own data.
    pub num_blkptrs: u64,
    /// Bytes allocated to all listed blocks, sub-objects included.
    pub bytes: u64,
    /// Bytes of the listed blocks after compression.
    pub comp: u64,
    /// Bytes of the listed blocks before compression.
    pub uncomp: u64,
    /// Object id of the array of sub-objects.
    pub subobjs: Option<ObjectId>,
    /// Number of object numbers in `subobjs`.
    pub num_subobjs: u64,
    /// In a livelist: number of entries that are frees.
    pub num_freed: u64,
}

impl BpobjPhys {
    /// Reads the bonus of a bpobj: 16, 32, 48 or 56 bytes, by the age of the pool.
    ///
    /// # Errors
    /// [`DecodeError::Short`] if fewer than 16 bytes are given.
    pub fn decode(bytes: &[u8], order: Endian) -> Result<BpobjPhys, DecodeError> {
        DecodeError::need("bpobj", 16, bytes.len())?;
        let at = |i: usize| order.get_u64(bytes, 8 * i).unwrap_or(0);
        Ok(BpobjPhys {
            num_blkptrs: at(0),
            bytes: at(1),
            comp: at(2),
            uncomp: at(3),
            subobjs: object(at(4)),
            num_subobjs: at(5),
            num_freed: at(6),
        })
    }
}

/// Bonus of a deadlist ZAP: sums over its bpobjs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeadlistPhys {
    /// Bytes allocated to the listed blocks.
    pub used: u64,
    /// Bytes of the listed blocks after compression.
    pub comp: u64,
    /// Bytes of the listed blocks before compression.
    pub uncomp: u64,
}

impl DeadlistPhys {
    /// Reads the bonus of a deadlist.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    pub fn decode(bytes: &[u8], order: Endian) -> Result<DeadlistPhys, DecodeError> {
        DecodeError::need("deadlist", DEADLIST_PHYS_SIZE, bytes.len())?;
        let [used, comp, uncomp] = order.words("deadlist", bytes, 0)?;
        Ok(DeadlistPhys { used, comp, uncomp })
    }
}

/// Bonus of a bptree: the destroyed datasets whose blocks are being freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BptreePhys {
    /// Index of the first entry that is not freed yet.
    pub begin: u64,
    /// Index after the last entry.
    pub end: u64,
    /// Bytes still to be freed.
    pub bytes: u64,
    /// Bytes of the blocks below the entries after compression.
    pub comp: u64,
    /// Bytes of the blocks below the entries before compression.
    pub uncomp: u64,
}

impl BptreePhys {
    /// Reads the bonus of a bptree.
    ///
    /// # Errors
    /// [`DecodeError::Short`]; [`DecodeError::Field`] if the first entry lies beyond the last.
    pub fn decode(bytes: &[u8], order: Endian) -> Result<BptreePhys, DecodeError> {
        let [begin, end, bytes, comp, uncomp] = order.words("bptree", bytes, 0)?;
        if begin > end {
            return Err(DecodeError::field("bptree", "begin", begin));
        }
        Ok(BptreePhys { begin, end, bytes, comp, uncomp })
    }
}

/// An entry of a bptree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BptreeEntry {
    /// The root pointer of the destroyed object set.
    pub bp: BlockPtr,
    /// Only blocks born after this txg are freed; all ones: none.
    pub birth: Txg,
    /// Resume position: object set, object, level, block; zeros if not started.
    pub bookmark: [u64; 4],
}

impl BptreeEntry {
    /// Decodes one entry of the tree.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    pub fn decode(bytes: &[u8], order: Endian) -> Result<BptreeEntry, DecodeError> {
        Ok(BptreeEntry {
            bp: BlockPtr::decode(bytes, order)?,
            birth: Txg(order.u64("bptree entry", bytes, 128)?),
            bookmark: order.words("bptree entry", bytes, 136)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(len: usize, order: Endian) -> Vec<u8> {
        (1..=len as u64 / 8).flat_map(|i| order.put_u64(i)).collect()
    }

    #[test]
    fn fields_are_where_the_document_says_in_both_orders() {
        for order in [Endian::Little, Endian::Big] {
            let dir = DirPhys::decode(&numbered(256, order), order).unwrap();
            // Offset 144 is word 18.
            assert_eq!((dir.clones, dir.used, dir.breakdown.head), (Some(ObjectId(19)), 6, 14));
            let ds = DatasetPhys::decode(&numbered(320, order), order).unwrap();
            assert_eq!((ds.guid, ds.flags, ds.bp.words()[0]), (15, 16, 17));
            assert_eq!((ds.next_clones, ds.userrefs), (Some(ObjectId(33)), Some(ObjectId(35))));
            assert!(ds.is_snapshot());
        }
    }

    #[test]
    fn what_is_written_is_what_was_read_and_the_rest_stays() {
        let bytes = numbered(256, Endian::Little);
        let dir = DirPhys::decode(&bytes, Endian::Little).unwrap();
        let mut again: Vec<u8> = bytes.iter().map(|_| 0xff).collect();
        dir.encode_into(&mut again);
        assert_eq!(again[..152], bytes[..152]);
        assert_eq!(again[152..], [0xff; 104]);
        let bytes = numbered(320, Endian::Little);
        let ds = DatasetPhys::decode(&bytes, Endian::Little).unwrap();
        let mut again = Vec::new();
        ds.encode_into(&mut again);
        assert_eq!(again[..280], bytes[..280]);
        assert_eq!(again[280..], [0; 40]);
    }

    #[test]
    fn bookmarks_of_both_forms() {
        let old = BookmarkPhys::from_words(&[7, 8, 9]).unwrap();
        assert_eq!((old.guid, old.creation_txg, old.creation_time, old.v2), (7, Txg(8), 9, None));
        let new = BookmarkPhys::from_words(&[1, 2, 3, 0, 3, 4, 5, 6, 7, 8, 9, 10]).unwrap();
        let v2 = new.v2.unwrap();
        assert_eq!((v2.redaction, v2.flags, v2.referenced), (None, 3, 4));
        assert_eq!((v2.freed_before_next, v2.ivset_guid), ([7, 8, 9], 10));
        assert!(BookmarkPhys::from_words(&[1, 2]).is_err());
    }

    #[test]
    fn old_bpobjs_are_short() {
        let old = BpobjPhys::decode(&numbered(16, Endian::Little), Endian::Little).unwrap();
        assert_eq!((old.num_blkptrs, old.bytes, old.comp, old.subobjs), (1, 2, 0, None));
        assert!(BpobjPhys::decode(&[0; 8], Endian::Little).is_err());
    }
}
