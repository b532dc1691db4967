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

/// The directory's [`DirPhys::breakdown`] is kept.
pub const DIR_FLAG_USED_BREAKDOWN: u64 = 1;

/// A receive or a destroy is under way: cannot be mounted.
pub const DS_FLAG_INCONSISTENT: u64 = 1;
/// Flag: a clone whose head cannot be promoted.
pub const DS_FLAG_NOPROMOTE: u64 = 2;
/// `unique` is right (always since version 26).
pub const DS_FLAG_UNIQUE_ACCURATE: u64 = 4;
/// Destroy the snapshot when its last hold and clone go.
pub const DS_FLAG_DEFER_DESTROY: u64 = 8;
/// Names are compared without case.
pub const DS_FLAG_CASE_INSENSITIVE: u64 = 1 << 16;

fn object(id: u64) -> Option<ObjectId> {
    (id != 0).then_some(ObjectId(id))
}

fn number(id: Option<ObjectId>) -> u64 {
    id.map_or(0, u64::from)
}

/// Writes words from `at` on into a bonus that has at least `size` bytes afterwards.
fn put_words(bytes: &mut Vec<u8>, size: usize, at: usize, words: &[u64]) {
    if bytes.len() < size {
        bytes.resize(size, 0);
    }
    let (_, from) = bytes.split_at_mut(at);
    for (place, word) in from.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
}

/// What a directory's space is charged to, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UsedBreakdown {
    /// Blocks of the head born after the origin.
    pub head: u64,
    /// Blocks that only snapshots of this directory hold.
    pub snap: u64,
    /// Bytes that the descendants of the directory use.
    pub child: u64,
    /// What children have reserved beyond their use.
    pub child_reservation: u64,
    /// What the refreservation adds to the head's unique space.
    pub ref_reservation: u64,
}

/// Bonus of a DSL directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirPhys {
    /// Time of creation in seconds since 1970; informational.
    pub creation_time: u64,
    /// Head dataset; none of `$MOS`, `$FREE`, `$LEAK`.
    pub head: Option<ObjectId>,
    /// Parent directory; none of the root.
    pub parent: Option<ObjectId>,
    /// The snapshot that this is a clone of.
    pub origin: Option<ObjectId>,
    /// ZAP: name of a child to its directory.
    pub children: Option<ObjectId>,
    /// Bytes charged here, children and reservations included.
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
    /// ZAP: heads of the clones of this directory's snapshots.
    pub clones: Option<ObjectId>,
}

impl DirPhys {
    /// Reads the bonus of a directory object. Pools before version 15 may have it without the
    /// breakdown and the clones; these are then 0 and none.
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

    /// Writes the fields into the bonus of a directory object, little-endian; bytes behind them stay.
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

    /// Whether `breakdown` is maintained in this pool and adds up to `used`.
    pub fn has_breakdown(&self) -> bool {
        self.flags & DIR_FLAG_USED_BREAKDOWN != 0
    }
}

/// Bonus of a DSL dataset: a head or a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetPhys {
    /// The directory that owns it.
    pub dir: ObjectId,
    /// The snapshot before; of the first one of a clone, its origin.
    pub prev_snap: Option<ObjectId>,
    /// Txg in which the previous snapshot was taken.
    pub prev_snap_txg: Txg,
    /// The next newer snapshot, or the head; none of a head.
    pub next_snap: Option<ObjectId>,
    /// ZAP: name of a snapshot to its dataset; none of a snapshot.
    pub snapshot_names: Option<ObjectId>,
    /// 0 of a head; of a snapshot, 1 and its clones.
    pub num_children: u64,
    /// Time of creation in seconds since 1970.
    pub creation_time: u64,
    /// Txg in which the dataset was created.
    pub creation_txg: Txg,
    /// Blocks of the previous snapshot that are not in this.
    pub deadlist: Option<ObjectId>,
    /// Bytes allocated to all blocks that the dataset references.
    pub referenced: u64,
    /// Bytes that the dataset references after compression.
    pub compressed: u64,
    /// Bytes that the dataset references before compression.
    pub uncompressed: u64,
    /// Bytes that nothing else holds.
    pub unique: u64,
    /// 56 bits that are unique among open datasets; may change.
    pub fsid_guid: u64,
    /// Random and permanent: what send and receive compare.
    pub guid: u64,
    /// The bits `DS_FLAG_…` of the dataset.
    pub flags: u64,
    /// The pointer to the object set.
    pub bp: BlockPtr,
    /// ZAP: the clones of this snapshot. Its successor in the same file system is not among them.
    pub next_clones: Option<ObjectId>,
    /// ZAP of a snapshot's own properties.
    pub props: Option<ObjectId>,
    /// ZAP: hold tag to time.
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

    /// Writes the fields into the bonus of a dataset object, little-endian; bytes behind them stay.
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

    /// Is a snapshot, not a head.
    pub fn is_snapshot(&self) -> bool {
        self.num_children != 0
    }
}

/// Bookmark flag: freed-before-next counts are kept.
pub const BOOKMARK_FLAG_HAS_FBN: u64 = 1;
/// Bookmark flag: the snapshot it was made of still exists.
pub const BOOKMARK_FLAG_SNAPSHOT_EXISTS: u64 = 2;

/// A bookmark, as its ZAP entry holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BookmarkPhys {
    /// Guid of the snapshot it was made of.
    pub guid: u64,
    /// Txg in which the bookmarked snapshot was taken.
    pub creation_txg: Txg,
    /// Creation time of that, seconds since 1970.
    pub creation_time: u64,
    /// What only the second form has.
    pub v2: Option<BookmarkV2>,
}

/// The second half of a bookmark of the second form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BookmarkV2 {
    /// The object of the redaction list, for a redaction bookmark.
    pub redaction: Option<ObjectId>,
    /// The bits `BOOKMARK_FLAG_…` of the bookmark.
    pub flags: u64,
    /// Of the snapshot, in bytes.
    pub referenced: u64,
    /// Bytes after compression that were freed since the bookmark.
    pub compressed: u64,
    /// Bytes before compression that were freed since the bookmark.
    pub uncompressed: u64,
    /// Bytes of the snapshot freed before the next snapshot: taken, compressed, uncompressed.
    pub freed_before_next: [u64; 3],
    /// Identity of the IVs of the snapshot; 0: none.
    pub ivset_guid: u64,
}

impl BookmarkPhys {
    /// From the words of the ZAP entry: 3 (first form) or at least 8; missing ones count as 0.
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
    /// Last object that was looked at; all ones when complete.
    pub(crate) last_object: u64,
    /// Last block of it; all ones when complete.
    pub(crate) last_block: u64,
    /// Entries in the object's data, 32 bytes each.
    pub(crate) num_entries: u64,
    /// Guids of the snapshots that it redacts with respect to; in the spill block if there are many.
    pub snapshots: Vec<u64>,
    /// How many there should be.
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
}

/// Bonus of a bpobj: an array of block pointers, and of further bpobjs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BpobjPhys {
    /// Pointers in the object's own data.
    pub num_blkptrs: u64,
    /// Bytes taken by all, those of the sub-objects included.
    pub bytes: u64,
    /// Bytes of the listed blocks after compression.
    pub comp: u64,
    /// Bytes of the listed blocks before compression.
    pub uncomp: u64,
    /// Object with the numbers of the sub-objects.
    pub subobjs: Option<ObjectId>,
    /// Number of object numbers in `subobjs`.
    pub num_subobjs: u64,
    /// Of a livelist: entries that stand for a free.
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

/// Bonus of a deadlist ZAP: totals of its bpobjs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeadlistPhys {
    /// Bytes that the listed blocks take on the devices.
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

/// Bonus of a bptree: destroyed datasets whose blocks are being freed.
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
    /// Only blocks born after this are freed; all ones: nothing.
    pub birth: Txg,
    /// Resume point: object set, object, level, block; zeros when not started.
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
            // Offset 144 is the nineteenth word.
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
