//! The state of one object in memory: its image as of the last sync, and its later changes.

use crate::object::raw::RawBlock;
use crate::prefetch::Streams;
use crate::sync::{Arc, Mutex, MutexGuard, lock};
use crate::zap::ZapState;
use format::blkptr::BLKPTR_SIZE;
use format::dnode::{CORE_SIZE, Dnode, FLAG_SPILL, SLOT_SIZE};
use format::units::SECTOR_SHIFT;
use format::{BlockId, BlockPtr, Endian, ObjType, ObjectId, Txg};
use std::collections::BTreeMap;
use zio::{RangeSet, StoredForm};

/// The fields of a dnode other than pointers and counters, in their newest state.
#[derive(Debug, Clone)]
pub(crate) struct Header {
    pub(crate) obj_type: ObjType,
    pub(crate) bonus_type: ObjType,
    pub(crate) indblkshift: u8,
    pub(crate) nblkptr: u8,
    pub(crate) checksum: u8,
    pub(crate) compress: u8,
    pub(crate) flags: u8,
    pub(crate) extra_slots: u8,
    pub(crate) datablkszsec: u16,
    pub(crate) maxblkid: u64,
    /// The valid bytes of the bonus.
    pub(crate) bonus: Vec<u8>,
    /// The bytes of the bonus area after them, if they are not zeros: where a bonus is encrypted, all of the area is.
    pub(crate) bonus_tail: Vec<u8>,
    /// The least height of the tree. A tree that has grown is higher.
    pub(crate) levels: u8,
    /// Whether the object has a spill block.
    pub(crate) has_spill: bool,
    pub(crate) core: [u8; CORE_SIZE],
}

impl Header {
    pub(crate) fn of(dnode: &Dnode) -> Header {
        let tail = dnode.bonus.get(usize::from(dnode.bonuslen)..).unwrap_or(&[]);
        Header {
            obj_type: dnode.obj_type,
            bonus_type: dnode.bonus_type,
            indblkshift: dnode.indblkshift,
            nblkptr: dnode.blkptrs.len() as u8,
            checksum: dnode.checksum,
            compress: dnode.compress,
            flags: dnode.flags,
            extra_slots: dnode.extra_slots,
            datablkszsec: dnode.datablkszsec,
            maxblkid: dnode.maxblkid.0,
            bonus: dnode.valid_bonus().to_vec(),
            bonus_tail: if tail.iter().all(|byte| *byte == 0) { Vec::new() } else { tail.to_vec() },
            levels: dnode.nlevels,
            has_spill: dnode.spill.is_some_and(|bp| !bp.is_hole()),
            core: dnode.core,
        }
    }

    pub(crate) fn block_size(&self) -> u64 {
        u64::from(self.datablkszsec) << SECTOR_SHIFT
    }

    /// Bytes that the bonus may have, with or without a spill pointer.
    pub(crate) fn bonus_capacity(&self, with_spill: bool) -> usize {
        let size = SLOT_SIZE * (usize::from(self.extra_slots) + 1);
        let area = size - CORE_SIZE - BLKPTR_SIZE * usize::from(self.nblkptr);
        area.saturating_sub(if with_spill { BLKPTR_SIZE } else { 0 })
    }

    /// Whether a bonus of this length fits, and with it a spill pointer: a small dnode of three pointers has no room for
    /// one.
    pub(crate) fn has_room(&self, bonus: usize, with_spill: bool) -> bool {
        bonus + if with_spill { BLKPTR_SIZE } else { 0 } <= self.bonus_capacity(false)
    }

    /// The dnode with these pointers.
    pub(crate) fn dnode(&self, tree: TreeTop, used: u64, spill: Option<BlockPtr>) -> Dnode {
        let mut bonus = self.bonus.clone();
        bonus.extend_from_slice(&self.bonus_tail);
        bonus.resize(self.bonus_capacity(spill.is_some()), 0);
        let flags = self.flags & !FLAG_SPILL | if spill.is_some() { FLAG_SPILL } else { 0 };
        Dnode {
            obj_type: self.obj_type,
            indblkshift: self.indblkshift,
            nlevels: tree.nlevels,
            bonus_type: self.bonus_type,
            checksum: self.checksum,
            compress: self.compress,
            flags,
            datablkszsec: self.datablkszsec,
            bonuslen: self.bonus.len() as u16,
            extra_slots: self.extra_slots,
            maxblkid: BlockId(self.maxblkid),
            used_raw: used,
            blkptrs: tree.blkptrs,
            bonus,
            spill,
            order: Endian::Little,
            core: self.core,
        }
    }
}

/// The top of a block tree.
#[derive(Debug, Clone)]
pub(crate) struct TreeTop {
    pub(crate) nlevels: u8,
    pub(crate) blkptrs: Vec<BlockPtr>,
}

/// A changed data block.
#[derive(Debug, Clone)]
pub(crate) enum Leaf {
    /// New contents in memory.
    Data(Arc<Vec<u8>>),
    /// New contents in memory, with the form in which they are stored.
    Stored(Arc<Vec<u8>>, Arc<StoredForm>),
    /// New contents of an encrypted set, as they are stored.
    Raw(Arc<RawBlock>),
    /// Contents that are on the devices already, or a hole. Boxed: a map has room for several leaves in each
    /// of its nodes, and most objects have one block.
    Pointer(Box<BlockPtr>),
}

/// Bytes of memory that a pointer in an overlay takes.
pub(crate) const POINTER_COST: u64 = 192;

/// The change of the spill block.
#[derive(Debug, Clone, Default)]
pub(crate) enum Spill {
    /// It is unchanged.
    #[default]
    Keep,
    /// It was removed.
    Drop,
    /// It has new contents.
    Data(Arc<Vec<u8>>),
    /// It has new contents, in an encrypted set.
    Raw(Arc<RawBlock>),
}

/// The changes of one object in one txg.
#[derive(Debug, Clone, Default)]
pub(crate) struct Overlay {
    /// New contents by block; they take precedence over `freed`.
    pub(crate) blocks: BTreeMap<u64, Leaf>,
    /// Blocks that were freed; an end of `u64::MAX` means all existing ones.
    pub(crate) freed: RangeSet,
    pub(crate) spill: Spill,
    /// Whether the object was freed.
    pub(crate) is_freed: bool,
    /// The object got another shape: the tree on disk is freed, and a new one begun.
    pub(crate) is_reshaped: bool,
    /// Pointers that were put into the object and overwritten before they were part of its tree.
    pub(crate) displaced: Vec<BlockPtr>,
}

impl Overlay {
    fn heap_bytes(&self) -> u64 {
        let blocks = self.blocks.values().map(|leaf| match leaf {
            Leaf::Data(bytes) if Arc::strong_count(bytes) > 1 => 0,
            Leaf::Data(bytes) => bytes.len() as u64,
            Leaf::Stored(bytes, form) => (bytes.len() + form.bytes.len()) as u64,
            Leaf::Raw(raw) => raw.bytes.len() as u64,
            Leaf::Pointer(_) => POINTER_COST,
        });
        let spill = match &self.spill {
            Spill::Data(bytes) => bytes.len() as u64,
            Spill::Raw(raw) => raw.bytes.len() as u64,
            Spill::Keep | Spill::Drop => 0,
        };
        blocks.sum::<u64>() + spill
    }

    /// Replaces the contents of a block. Returns the bytes of the buffer that is no longer held.
    pub(crate) fn insert(&mut self, blkid: u64, leaf: Leaf) -> u64 {
        let old = self.blocks.insert(blkid, leaf);
        self.forget(old)
    }

    /// Removes the contents of a block. Returns the bytes of the buffer that is no longer held.
    pub(crate) fn remove(&mut self, blkid: u64) -> u64 {
        let old = self.blocks.remove(&blkid);
        self.forget(old)
    }

    fn forget(&mut self, leaf: Option<Leaf>) -> u64 {
        match leaf {
            // A buffer shared with a log record stays until that is dropped.
            Some(Leaf::Data(bytes)) if Arc::strong_count(&bytes) > 1 => 0,
            Some(Leaf::Data(bytes)) => bytes.len() as u64,
            Some(Leaf::Stored(bytes, form)) => (bytes.len() + form.bytes.len()) as u64,
            Some(Leaf::Raw(raw)) => raw.bytes.len() as u64,
            Some(Leaf::Pointer(bp)) => {
                if !bp.is_hole() && !bp.is_embedded() {
                    self.displaced.push(*bp);
                }
                POINTER_COST
            }
            None => 0,
        }
    }

    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.heap_bytes()
    }
}

/// An overlay that is being written, with the header at the end of its txg.
#[derive(Debug, Clone)]
pub(crate) struct Frozen {
    pub(crate) header: Header,
    pub(crate) overlay: Arc<Overlay>,
    /// Whether the object existed at the end of its txg.
    pub(crate) exists: bool,
}

/// The contents of a block according to the overlays.
pub(crate) enum Known {
    Data(Arc<Vec<u8>>),
    /// They are encrypted.
    Sealed,
    Pointer(BlockPtr),
    Hole,
    Unknown,
}

#[derive(Debug)]
pub(crate) struct Inner {
    /// The dnode on disk; `None`: the object is not on disk.
    pub(crate) synced: Option<Arc<Dnode>>,
    /// The newest header.
    pub(crate) header: Header,
    /// Whether the object exists in its newest state.
    pub(crate) exists: bool,
    /// Changes of `open_txg`, if `dirty`.
    pub(crate) open: Overlay,
    pub(crate) open_txg: Txg,
    pub(crate) dirty: bool,
    /// Changes of the previous txg, until they are on disk.
    pub(crate) syncing: Option<Frozen>,
    /// Counts changes that may affect a look-up, for caches above.
    pub(crate) version: u64,
    /// The dnode of reading handles, built on demand and dropped when the header changes.
    pub(crate) image: Option<Arc<Dnode>>,
}

impl Inner {
    /// Prepares for changes of `txg`: moves the changes of an earlier txg to `syncing`. Returns true if the
    /// object was clean in `txg` so far, and must be added to the list of dirty objects.
    pub(crate) fn touch(&mut self, txg: Txg) -> bool {
        self.version += 1;
        self.image = None;
        if self.dirty && self.open_txg == txg {
            return false;
        }
        if self.dirty {
            assert!(self.open_txg < txg, "a change of txg {txg} after one of {}", self.open_txg);
            self.freeze();
        }
        self.dirty = true;
        self.open_txg = txg;
        true
    }

    /// Passes the open overlay to the sync.
    pub(crate) fn freeze(&mut self) {
        assert!(self.syncing.is_none(), "two txgs of one object are syncing");
        let overlay = Arc::new(std::mem::take(&mut self.open));
        self.syncing = Some(Frozen { header: self.header.clone(), overlay, exists: self.exists });
        self.dirty = false;
    }

    /// The contents of a block according to the overlays.
    pub(crate) fn known(&self, blkid: u64) -> Known {
        let overlays = [Some(&self.open), self.syncing.as_ref().map(|frozen| &*frozen.overlay)];
        for overlay in overlays.into_iter().flatten() {
            match overlay.blocks.get(&blkid) {
                Some(Leaf::Data(bytes) | Leaf::Stored(bytes, _)) => {
                    return Known::Data(Arc::clone(bytes));
                }
                Some(Leaf::Raw(_)) => return Known::Sealed,
                Some(Leaf::Pointer(bp)) => return Known::Pointer(**bp),
                None if overlay.freed.contains(blkid) => return Known::Hole,
                None => {}
            }
        }
        Known::Unknown
    }

    /// The dnode of the newest state, with the tree and the counters of the last sync.
    pub(crate) fn image(&mut self) -> Arc<Dnode> {
        if let Some(image) = &self.image {
            return Arc::clone(image);
        }
        let image = match &self.synced {
            Some(synced) if !self.dirty && self.syncing.is_none() => Arc::clone(synced),
            synced => {
                let top = synced.as_ref().map_or_else(
                    || TreeTop {
                        nlevels: 1,
                        blkptrs: vec![BlockPtr::HOLE; usize::from(self.header.nblkptr)],
                    },
                    |dnode| TreeTop { nlevels: dnode.nlevels, blkptrs: dnode.blkptrs.clone() },
                );
                let used = synced.as_ref().map_or(0, |dnode| dnode.used_bytes());
                let old_spill = synced.as_ref().and_then(|dnode| dnode.spill);
                // Only its presence matters; the object supplies the contents.
                let spill = self.header.has_spill.then(|| old_spill.unwrap_or(BlockPtr::HOLE));
                Arc::new(self.header.dnode(top, used, spill))
            }
        };
        self.image = Some(Arc::clone(&image));
        image
    }

    /// The spill block in its newest state: contents in memory, or the pointer.
    pub(crate) fn spill(&self) -> Known {
        let overlays = [Some(&self.open), self.syncing.as_ref().map(|frozen| &*frozen.overlay)];
        for overlay in overlays.into_iter().flatten() {
            match &overlay.spill {
                Spill::Data(bytes) => return Known::Data(Arc::clone(bytes)),
                Spill::Raw(_) => return Known::Sealed,
                Spill::Drop => return Known::Hole,
                Spill::Keep if overlay.is_freed => return Known::Hole,
                Spill::Keep => {}
            }
        }
        match self.synced.as_ref().and_then(|dnode| dnode.spill) {
            Some(bp) if !bp.is_hole() => Known::Pointer(bp),
            _ => Known::Hole,
        }
    }
}

/// One object in memory.
pub(crate) struct Cell {
    pub(crate) id: ObjectId,
    inner: Mutex<Inner>,
    /// State of a ZAP: the lock of its writers, and the index of a micro ZAP.
    pub(crate) zap: ZapState,
    /// Streams of reads that are followed, for read-ahead.
    pub(crate) streams: Mutex<Streams>,
}

impl Cell {
    /// The cell of an object on disk.
    pub(crate) fn on_disk(id: ObjectId, dnode: Dnode) -> Arc<Cell> {
        let header = Header::of(&dnode);
        Arc::new(Cell {
            id,
            inner: Mutex::new(Inner::new(Some(Arc::new(dnode)), header)),
            zap: ZapState::default(),
            streams: Mutex::default(),
        })
    }

    /// The cell of a new object.
    pub(crate) fn new(id: ObjectId, header: Header) -> Arc<Cell> {
        Arc::new(Cell {
            id,
            inner: Mutex::new(Inner::new(None, header)),
            zap: ZapState::default(),
            streams: Mutex::default(),
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }
}

impl Inner {
    fn new(synced: Option<Arc<Dnode>>, header: Header) -> Inner {
        Inner {
            synced,
            header,
            exists: true,
            open: Overlay::default(),
            open_txg: Txg(0),
            dirty: false,
            syncing: None,
            version: 0,
            image: None,
        }
    }

    /// Whether some data are only in memory.
    pub(crate) fn is_unwritten(&self) -> bool {
        let is_changed = |overlay: &Overlay| !overlay.blocks.is_empty() || !overlay.freed.is_empty();
        (self.dirty && is_changed(&self.open))
            || self.syncing.as_ref().is_some_and(|frozen| is_changed(&frozen.overlay))
    }

    /// Number of blocks that are newer than on disk; one that is newer in two txgs counts twice.
    pub(crate) fn dirty_blocks(&self) -> u64 {
        let syncing = self.syncing.as_ref().map_or(0, |frozen| frozen.overlay.blocks.len());
        (self.open.blocks.len() + syncing) as u64
    }

    /// Whether the cell can be dropped without losing a change.
    pub(crate) fn is_clean(&self) -> bool {
        !self.dirty && self.syncing.is_none()
    }
}
