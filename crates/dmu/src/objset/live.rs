//! Writable object sets.

use crate::object::cell::Cell;
use crate::object::disk_tree::DiskTree;
use crate::objset::dnode_slots::DnodeSlots;
use crate::objset::image::SetImage;
use crate::objset::numbers::Numbers;
use crate::objset::raw::RawState;
use crate::set_blocks::{KeyState, SetBlocks};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, MutexGuard, RwLock, Weak, lock, read, write};
use crate::{DirtyMeter, DmuError, SetPolicy, Store};
use format::dnode::{CORE_SIZE, Dnode, FLAG_USED_BYTES, SLOT_SIZE, SLOTS_PER_BLOCK};
use format::objset::{ObjsetPhys, ObjsetType, ZilHeader};
use format::{BlockId, BlockPtr, Endian, ObjType, ObjectId, Txg};
use std::collections::{BTreeSet, HashMap};
use zio::AllocTx;

const SHARDS: usize = 16;
/// Clean objects that a shard keeps in memory.
const SHARD_KEEPS: usize = 512;
/// Bytes of memory of a changed object besides its blocks: its dnode in the old, present and syncing state,
/// its attributes as often, and the maps of changes. Measured with files of 512 bytes.
const OBJECT_COST: u64 = 3 << 10;
/// Bytes of the root block of a new set.
const OBJSET_SIZE: usize = 4096;
/// Bytes of a block of dnodes.
const DNODE_BLOCK: u64 = (SLOT_SIZE * SLOTS_PER_BLOCK) as u64;
/// Height of the tree of dnodes of a new dataset: enough for all object numbers.
const DATASET_META_LEVELS: u8 = 6;
/// The root of the set on disk.
#[derive(Clone)]
pub(crate) struct Root {
    pub(crate) bp: BlockPtr,
    pub(crate) phys: ObjsetPhys,
    /// The meta-dnode, shared with its readers.
    pub(crate) meta: Arc<Dnode>,
}

/// A writable object set: objects are created, changed and freed in transactions, and written by
/// [`LiveSet::sync`].
pub struct LiveSet {
    /// Reads blocks as they are on disk.
    blocks: Arc<SetBlocks>,
    pub(crate) meter: Arc<DirtyMeter>,
    kind: ObjsetType,
    policy: RwLock<Arc<SetPolicy>>,
    root: RwLock<Arc<Root>>,
    /// Number of roots so far: data of an older root may be out of date.
    generation: AtomicU64,
    table: [Mutex<HashMap<u64, Arc<Cell>>>; SHARDS],
    /// Numbers of objects that are not on disk yet, in order.
    pub(super) fresh: Mutex<BTreeSet<u64>>,
    pub(super) numbers: Mutex<Numbers>,
    /// Objects changed in a txg, indexed by its lowest bit.
    dirty: [Mutex<Vec<Arc<Cell>>>; 2],
    /// The last txg with changes, indexed by its lowest bit.
    dirty_txg: [AtomicU64; 2],
    /// The newest of them, whether or not it is on disk.
    newest: AtomicU64,
    /// Number of changes of objects.
    changes: AtomicU64,
    zil: Mutex<ZilHeader>,
    flags: AtomicU64,
    /// Its state on disk when the oldest view was made.
    image: Mutex<Weak<SetImage>>,
    /// State of a raw receive; `None`: there is none.
    pub(super) raw: Mutex<Option<RawState>>,
}

impl LiveSet {
    /// Creates a set in memory; the next sync of the txg of `tx` writes it, even if it is empty.
    pub fn create(
        store: &Arc<Store>,
        meter: &Arc<DirtyMeter>,
        number: u64,
        kind: ObjsetType,
        policy: SetPolicy,
        tx: &dyn AllocTx,
    ) -> Arc<LiveSet> {
        let levels = if policy.is_mos { 1 } else { DATASET_META_LEVELS };
        let flags = u64::from(policy.user_accounting)
            | u64::from(policy.object_accounting) << 1
            | u64::from(policy.project_accounting) << 2;
        let phys = ObjsetPhys {
            meta_dnode: empty_dnode(ObjType::DNODE, DNODE_BLOCK, levels),
            zil: ZilHeader::default(),
            kind,
            flags: if kind == ObjsetType::Zfs { flags } else { 0 },
            portable_mac: [0; 32],
            local_mac: [0; 32],
            accounting: [None, None, None],
            size: OBJSET_SIZE,
            order: Endian::Little,
        };
        let blocks = SetBlocks { store: Arc::clone(store), number, key: KeyState::None, lease: None };
        let set = LiveSet::new(blocks, meter, BlockPtr::HOLE, phys, policy);
        set.mark_root(tx.txg());
        set
    }

    /// Opens the set with this root for writing. `key` decrypts its blocks.
    ///
    /// # Errors
    /// [`DmuError::Empty`] if the set was never written; otherwise the error of reading its root block.
    pub fn open(
        store: &Arc<Store>,
        meter: &Arc<DirtyMeter>,
        root: &BlockPtr,
        number: u64,
        key: KeyState,
        policy: SetPolicy,
    ) -> Result<Arc<LiveSet>, DmuError> {
        let blocks = SetBlocks { store: Arc::clone(store), number, key, lease: None };
        let phys = blocks.read_root(root)?;
        Ok(LiveSet::new(blocks, meter, *root, phys, policy))
    }

    fn new(
        blocks: SetBlocks,
        meter: &Arc<DirtyMeter>,
        bp: BlockPtr,
        phys: ObjsetPhys,
        policy: SetPolicy,
    ) -> Arc<LiveSet> {
        let last_block = phys.meta_dnode.maxblkid.0;
        Arc::new(LiveSet {
            blocks: Arc::new(blocks),
            meter: Arc::clone(meter),
            kind: phys.kind,
            policy: RwLock::new(Arc::new(policy)),
            table: Default::default(),
            fresh: Mutex::default(),
            numbers: Mutex::new(Numbers::new(last_block)),
            dirty: Default::default(),
            dirty_txg: Default::default(),
            newest: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            zil: Mutex::new(phys.zil),
            flags: AtomicU64::new(phys.flags),
            root: RwLock::new(Arc::new(Root { bp, meta: Arc::new(phys.meta_dnode.clone()), phys })),
            generation: AtomicU64::new(0),
            image: Mutex::default(),
            raw: Mutex::default(),
        })
    }

    /// Number of the dataset's object in the MOS; 0 for the MOS.
    pub fn number(&self) -> u64 {
        self.blocks.number
    }

    /// The source of its blocks.
    pub(crate) fn blocks(&self) -> &Arc<SetBlocks> {
        &self.blocks
    }

    /// Kind of the set's contents.
    pub fn kind(&self) -> ObjsetType {
        self.kind
    }

    /// The store of its blocks.
    pub fn store(&self) -> &Arc<Store> {
        &self.blocks.store
    }

    /// The write policy of its blocks.
    pub fn policy(&self) -> Arc<SetPolicy> {
        Arc::clone(&read(&self.policy))
    }

    /// Sets the write policy, effective from the next sync.
    pub fn set_policy(&self, policy: SetPolicy) {
        *write(&self.policy) = Arc::new(policy);
    }

    /// The pointer to its root block as of the last sync.
    pub fn root_bp(&self) -> BlockPtr {
        self.root().bp
    }

    /// Number of objects on disk as of the last sync.
    pub fn object_count(&self) -> u64 {
        self.root().bp.fill()
    }

    pub(crate) fn root(&self) -> Arc<Root> {
        Arc::clone(&read(&self.root))
    }

    pub(crate) fn set_root(&self, root: Root) {
        *write(&self.root) = Arc::new(root);
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// The header of the intent log, in its newest state.
    pub fn zil_header(&self) -> ZilHeader {
        *lock(&self.zil)
    }

    /// Sets the header of the intent log.
    pub fn set_zil_header(&self, header: ZilHeader, tx: &dyn AllocTx) {
        *lock(&self.zil) = header;
        self.mark_root(tx.txg());
    }

    /// Flags of the object set: `format::objset::FLAG_…`.
    pub fn flags(&self) -> u64 {
        self.flags.load(Ordering::Relaxed)
    }

    /// Makes the set one whose objects are not accounted for.
    pub(super) fn clear_flags(&self) {
        self.flags.store(0, Ordering::Relaxed);
    }

    /// Makes the next sync of this txg write the root, whether or not an object changed.
    pub(crate) fn mark_root(&self, txg: Txg) {
        self.dirty_txg[(txg.0 & 1) as usize].fetch_max(txg.0, Ordering::AcqRel);
        self.newest.fetch_max(txg.0, Ordering::AcqRel);
        self.meter.add(txg, 0);
    }

    /// The last txg with changes since the set was opened; 0: none. It may be on disk.
    pub fn newest_change(&self) -> Txg {
        Txg(self.newest.load(Ordering::Acquire))
    }

    /// Whether a sync of this txg has changes to write.
    pub fn is_dirty(&self, txg: Txg) -> bool {
        self.dirty_txg[(txg.0 & 1) as usize].load(Ordering::Acquire) == txg.0
    }

    /// Number of changes of its objects since the set was opened: tells whether there was a change between
    /// two moments.
    pub fn change_count(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Notes a change of an object in `txg`, the first or a later one.
    pub(crate) fn note_change(&self, cell: &Arc<Cell>, txg: Txg, is_first: bool) {
        self.changes.fetch_add(1, Ordering::Relaxed);
        if !is_first {
            return;
        }
        lock(&self.dirty[(txg.0 & 1) as usize]).push(Arc::clone(cell));
        self.mark_root(txg);
        self.meter.add(txg, OBJECT_COST);
    }

    /// Takes the list of objects that a sync of `txg` has to write.
    pub(crate) fn take_dirty(&self, txg: Txg) -> Vec<Arc<Cell>> {
        std::mem::take(&mut *lock(&self.dirty[(txg.0 & 1) as usize]))
    }

    pub(crate) fn clean_root(&self, txg: Txg) {
        let _ = self.dirty_txg[(txg.0 & 1) as usize].compare_exchange(
            txg.0,
            0,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
    }

    /// The set as it is on disk, the same for all views that exist at one time.
    pub(super) fn image(&self) -> Arc<SetImage> {
        let mut cached = lock(&self.image);
        if let Some(image) = cached.upgrade() {
            return image;
        }
        let image = Arc::new(self.newest_image());
        *cached = Arc::downgrade(&image);
        image
    }

    /// The set as the last sync has left it.
    pub(super) fn newest_image(&self) -> SetImage {
        let root = self.root();
        SetImage::new(Arc::clone(&self.blocks), root.bp, root.phys.clone())
    }

    pub(super) fn shard(&self, id: u64) -> MutexGuard<'_, HashMap<u64, Arc<Cell>>> {
        lock(&self.table[(id / 4) as usize % SHARDS])
    }

    pub(super) fn no_object(&self, id: ObjectId) -> DmuError {
        DmuError::NoObject { objset: self.number(), object: id }
    }

    pub(super) fn cell(&self, id: ObjectId) -> Result<Arc<Cell>, DmuError> {
        loop {
            if let Some(cell) = self.shard(id.0).get(&id.0) {
                return Ok(Arc::clone(cell));
            }
            let generation = self.generation.load(Ordering::Acquire);
            let dnode = self.read_dnode(id)?.ok_or_else(|| self.no_object(id))?;
            let mut shard = self.shard(id.0);
            // Otherwise another thread may have changed, written and dropped it since.
            if self.generation.load(Ordering::Acquire) == generation {
                let cell = shard.entry(id.0).or_insert_with(|| Cell::on_disk(id, dnode));
                return Ok(Arc::clone(cell));
            }
        }
    }

    /// Reads the dnode on disk.
    fn read_dnode(&self, id: ObjectId) -> Result<Option<Dnode>, DmuError> {
        let root = self.root();
        if let Some(dnode) = root.phys.accounting_dnode(id) {
            return Ok(Some(dnode.clone()));
        }
        if id.0 == 0 || id.0 >= ObjectId::LIMIT {
            return Ok(None);
        }
        let Some(block) = self.dnode_block(&root, id.0 / SLOTS_PER_BLOCK as u64)? else { return Ok(None) };
        let wanted = (id.0 % SLOTS_PER_BLOCK as u64) as usize;
        let Some((_, bytes)) = DnodeSlots::new(block.bytes()).find(|(slot, _)| *slot == wanted) else {
            return Ok(None);
        };
        let decoded = Dnode::decode(bytes, block.order());
        let dnode =
            decoded.map_err(|source| DmuError::Decode { objset: self.number(), object: id, source })?;
        // The state in memory, and all that is written, is little-endian.
        let foreign = DmuError::ForeignOrder { objset: self.number(), object: id };
        dnode.map(|dnode| dnode.into_little().ok_or(foreign)).transpose()
    }

    pub(crate) fn dnode_block(&self, root: &Root, block: u64) -> Result<Option<zio::Block>, DmuError> {
        let tree = DiskTree::new(Arc::clone(&self.blocks), ObjectId(0), Arc::clone(&root.meta));
        tree.block(BlockId(block)).inspect_err(|error| self.store().tell(error, BlockId(block)))
    }

    /// The slots of a block of dnodes that are in use on disk, as a bit set.
    pub(super) fn used_slots(&self, block: u64) -> Result<u32, DmuError> {
        let root = self.root();
        if block > root.meta.maxblkid.0 {
            return Ok(0);
        }
        let Some(block) = self.dnode_block(&root, block)? else { return Ok(0) };
        let mut used = 0;
        for (slot, bytes) in DnodeSlots::new(block.bytes()) {
            if bytes.first().is_some_and(|kind| *kind != 0) {
                for slot in slot..(slot + Dnode::slots_at(bytes)).min(SLOTS_PER_BLOCK) {
                    used |= 1 << slot;
                }
            }
        }
        Ok(used)
    }

    /// Called after a sync: updates the free numbers, and drops objects without users.
    pub(crate) fn synced(&self, txg: Txg, done: &[ObjectId]) {
        lock(&self.numbers).synced(txg);
        {
            let mut fresh = lock(&self.fresh);
            if !fresh.is_empty() {
                for id in done {
                    fresh.remove(&id.0);
                }
            }
        }
        for shard in &self.table {
            let mut shard = lock(shard);
            let is_crowded = shard.len() > SHARD_KEEPS;
            shard.retain(|_, cell| {
                if Arc::strong_count(cell) > 1 {
                    return true;
                }
                let inner = cell.lock();
                !inner.is_clean() || (inner.exists && !is_crowded)
            });
        }
    }
}

impl std::fmt::Debug for LiveSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LiveSet({:?} {})", self.kind, self.number())
    }
}

fn empty_dnode(obj_type: ObjType, block_size: u64, nlevels: u8) -> Dnode {
    Dnode {
        obj_type,
        indblkshift: 17,
        nlevels,
        bonus_type: ObjType::NONE,
        checksum: 0,
        compress: 0,
        flags: FLAG_USED_BYTES,
        datablkszsec: (block_size / 512) as u16,
        bonuslen: 0,
        extra_slots: 0,
        maxblkid: BlockId(0),
        used_raw: 0,
        blkptrs: vec![BlockPtr::HOLE; 3],
        bonus: vec![0; 64],
        spill: None,
        order: Endian::Little,
        core: [0; CORE_SIZE],
    }
}
