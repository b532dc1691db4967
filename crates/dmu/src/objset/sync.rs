//! Writing the changes of an object set in a txg (docs/on-disk/20-dmu.md, section 6).
//!
//! # Order
//! data blocks of all changed objects, many at a time -> their indirect blocks, level by level -> space and
//! objects by owner -> blocks of dnodes and the indirect blocks above them -> the root block. Only then do
//! readers of the set see the new trees: until the last step they use the old ones, and the overlays.
//!
//! # What always holds
//! - A sync that fails changes nothing that readers see. Its txg is lost, and with it the pool's later
//!   changes.
//! - Memory beyond the dirty buffers is bounded: blocks are written in batches, and an indirect block is
//!   dropped when it is written.

use crate::DmuError;
use crate::object::cell::{Cell, Frozen, Header, Leaf, Spill, TreeTop};
use crate::object::raw::RawBlock;
use crate::object::tree::{TreeEdit, fill_of};
use crate::objset::accounting::Accounting;
use crate::objset::dnode_slots::DnodeSlots;
use crate::objset::live::{LiveSet, Root};
use crate::{Ledger, SetPolicy, SyncTx};
use format::dnode::{
    Dnode, FLAG_USED_BYTES, FLAG_USEROBJUSED_ACCOUNTED, FLAG_USERUSED_ACCOUNTED, SLOT_SIZE, SLOTS_PER_BLOCK,
};
use format::objset::ObjsetType;
use format::{BlockPtr, Endian, Level, ObjectId};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use zio::AllocTx;
use zio::{NewBlock, Seal};

/// Bytes of blocks in one batch: many windows of `zio`, which compresses one while it writes another.
const BATCH_BYTES: usize = 256 << 20;
/// Bytes of changed indirect blocks at which complete ones are written.
const INDIRECT_BYTES: usize = if cfg!(test) { 16 << 10 } else { 64 << 20 };
/// Most blocks in one batch.
const BATCH_BLOCKS: usize = 16 << 10;
/// Bytes of the root block of sets that count projects.
const ROOT_WITH_PROJECTS: usize = 4096;

/// A changed object in the sync.
struct Job {
    cell: Arc<Cell>,
    frozen: Frozen,
    old: Option<Arc<Dnode>>,
    edit: TreeEdit,
    spill: Option<BlockPtr>,
    /// The new dnode; `None`: the object was freed.
    new: Option<Dnode>,
}

/// Place of a written block.
#[derive(Clone, Copy)]
enum BlockPosition {
    Tree { level: u8, blkid: u64 },
    Spill,
}

impl LiveSet {
    /// Writes all changes of the txg. Returns the new root pointer; the old one if there were none. May be
    /// called again for the same txg: later passes write the changes since.
    ///
    /// # Errors
    /// [`DmuError`] if a block cannot be read or written: the txg is lost then.
    pub fn sync(self: &Arc<Self>, tx: &SyncTx, ledger: &mut dyn Ledger) -> Result<BlockPtr, DmuError> {
        let txg = tx.txg();
        if !self.is_dirty(txg) {
            return Ok(self.root_bp());
        }
        self.clean_root(txg);
        let mut sync = SetSync { set: self, tx, policy: self.policy() };
        let mut jobs = sync.collect(self.take_dirty(txg));
        sync.write_objects(&mut jobs)?;
        let mut owned = sync.account(&jobs)?;
        sync.write_objects(&mut owned)?;
        let root = sync.write_root(&jobs, &owned, ledger)?;
        let bp = root.bp;
        self.set_root(root);
        self.install(jobs.into_iter().chain(owned), txg, ledger);
        self.clean_root(txg);
        Ok(bp)
    }

    /// Makes the new trees visible to readers.
    fn install(&self, jobs: impl Iterator<Item = Job>, txg: format::Txg, ledger: &mut dyn Ledger) {
        let mut done = Vec::with_capacity(jobs.size_hint().0);
        for job in jobs {
            job.edit.tell(ledger);
            for bp in &job.frozen.overlay.displaced {
                ledger.born(bp);
                ledger.killed(bp);
            }
            let mut inner = job.cell.lock();
            let flags = job.new.as_ref().map_or(0, |dnode| dnode.flags);
            inner.header.flags |= flags & !format::dnode::FLAG_SPILL;
            inner.synced = job.new.map(Arc::new);
            inner.syncing = None;
            inner.image = None;
            inner.version += 1;
            drop(inner);
            done.push(job.cell.id);
        }
        self.synced(txg, &done);
    }
}

/// The sync of one set in one pass.
struct SetSync<'a> {
    set: &'a Arc<LiveSet>,
    tx: &'a SyncTx,
    policy: Arc<SetPolicy>,
}

impl SetSync<'_> {
    /// Freezes the overlays of the changed objects, in the order of their numbers, so that consecutive
    /// objects become neighbours on disk.
    fn collect(&self, mut cells: Vec<Arc<Cell>>) -> Vec<Job> {
        cells.sort_by_key(|cell| cell.id);
        cells.dedup_by_key(|cell| cell.id.0);
        let mut jobs = Vec::with_capacity(cells.len());
        for cell in cells {
            let mut inner = cell.lock();
            if inner.dirty && inner.open_txg == self.tx.txg() {
                inner.freeze();
            }
            let (Some(frozen), old) = (inner.syncing.clone(), inner.synced.clone()) else { continue };
            drop(inner);
            let edit = TreeEdit::new(cell.id, &frozen.header, top_of(old.as_deref(), &frozen.header));
            let spill = old.as_ref().and_then(|dnode| dnode.spill).filter(|bp| !bp.is_hole());
            jobs.push(Job { cell, frozen, old, edit, spill, new: None });
        }
        jobs
    }

    /// Frees the blocks that the changes of an object free, and grows its tree as needed.
    fn begin(&mut self, jobs: &mut [Job], at: usize) -> Result<(), DmuError> {
        let job = &mut jobs[at];
        if !job.frozen.exists {
            if let Some(old) = &job.old {
                // The object may have got another shape before it was freed.
                job.edit = TreeEdit::new(job.cell.id, &Header::of(old), job.edit.top().clone());
            }
            job.edit.free_all(self.set)?;
            if let Some(old) = job.spill.take() {
                job.edit.replaced(self.set, &old, &BlockPtr::HOLE);
            }
            return Ok(());
        }
        let overlay = Arc::clone(&job.frozen.overlay);
        let mut on_disk = job.old.as_ref().map_or(0, |dnode| dnode.maxblkid.0);
        if overlay.is_reshaped
            && let Some(old) = &job.old
        {
            let (old, new) = (Header::of(old), &job.frozen.header);
            job.edit.start_over(self.set, &old, new, self.tx.txg().0)?;
            on_disk = 0;
        }
        job.edit.grow(job.frozen.header.maxblkid.max(on_disk));
        job.edit.raise(job.frozen.header.levels);
        if let (Some(old), Spill::Drop) = (job.spill, &overlay.spill) {
            job.edit.replaced(self.set, &old, &BlockPtr::HOLE);
            job.spill = None;
        }
        for range in overlay.freed.iter() {
            jobs[at].edit.free(self.set, &range, &overlay.blocks, self.tx.txg().0)?;
            if jobs[at].edit.held() >= INDIRECT_BYTES {
                self.write_indirect(jobs, at..at + 1, &|_, _| u64::MAX)?;
            }
        }
        Ok(())
    }

    /// Writes the blocks of these objects and makes their dnodes.
    fn write_objects(&mut self, jobs: &mut [Job]) -> Result<(), DmuError> {
        self.write_leaves(jobs)?;
        self.write_indirect(jobs, 0..jobs.len(), &|_, _| u64::MAX)?;
        for job in jobs {
            job.new = self.finish(job);
        }
        Ok(())
    }

    fn write_leaves(&mut self, jobs: &mut [Job]) -> Result<(), DmuError> {
        let mut batch = Batch::default();
        // The first object that is not completely written, and the bytes of indirect blocks held since.
        let (mut first, mut held) = (0, 0);
        for at in 0..jobs.len() {
            self.begin(jobs, at)?;
            held += jobs[at].edit.held();
            if !jobs[at].frozen.exists {
                continue;
            }
            let overlay = Arc::clone(&jobs[at].frozen.overlay);
            for (blkid, leaf) in &overlay.blocks {
                held -= jobs[at].edit.held();
                let old = jobs[at].edit.pointer(self.set, 0, *blkid)?;
                match leaf {
                    Leaf::Pointer(bp) => jobs[at].edit.place(self.set, 0, *blkid, bp)?,
                    Leaf::Raw(raw) => {
                        let policy =
                            self.policy.of_block(&jobs[at].frozen.header, Level(0), false, self.tx.pass());
                        let block = self.raw_block(raw, policy, old);
                        batch.push(at, BlockPosition::Tree { level: 0, blkid: *blkid }, block);
                    }
                    Leaf::Data(_) | Leaf::Stored(..) if self.policy.encrypted => return Err(self.locked()),
                    Leaf::Data(data) | Leaf::Stored(data, _) => {
                        let policy =
                            self.policy.of_block(&jobs[at].frozen.header, Level(0), false, self.tx.pass());
                        let mut block = self.new_block(Arc::clone(data), policy, old, 1);
                        if let Leaf::Stored(_, form) = leaf {
                            block.stored = Some(Arc::clone(form));
                        }
                        batch.push(at, BlockPosition::Tree { level: 0, blkid: *blkid }, block);
                    }
                }
                held += jobs[at].edit.held();
                if batch.is_full() || held >= INDIRECT_BYTES {
                    self.flush(jobs, &mut batch)?;
                    // For the current object, the blocks below the next one are complete.
                    let complete = complete_before(&jobs[at].frozen.header, *blkid);
                    self.write_indirect(jobs, first..at + 1, &|level, job| {
                        if job < at { u64::MAX } else { complete(level) }
                    })?;
                    first = at;
                    held = jobs[at].edit.held();
                }
            }
            let policy = self.policy.of_block(&jobs[at].frozen.header, Level(0), true, self.tx.pass());
            let old = jobs[at].spill.unwrap_or(BlockPtr::HOLE);
            let block = match &overlay.spill {
                Spill::Keep | Spill::Drop => continue,
                Spill::Raw(raw) => self.raw_block(raw, policy, old),
                Spill::Data(_) if self.policy.encrypted => return Err(self.locked()),
                Spill::Data(data) => self.new_block(Arc::clone(data), policy, old, 1),
            };
            batch.push(at, BlockPosition::Spill, block);
        }
        self.flush(jobs, &mut batch)
    }

    /// Writes the changed indirect blocks of some objects, on each level those below a limit.
    fn write_indirect(
        &mut self,
        jobs: &mut [Job],
        range: Range<usize>,
        limit: &dyn Fn(u8, usize) -> u64,
    ) -> Result<(), DmuError> {
        let levels = jobs[range.clone()].iter().map(|job| job.edit.indirect_levels().end).max();
        for level in 1..levels.unwrap_or(1) {
            self.write_level(jobs, range.clone(), level, &|job| limit(level, job))?;
        }
        Ok(())
    }

    /// Writes the changed indirect blocks of one level, for each object those below a limit.
    fn write_level(
        &mut self,
        jobs: &mut [Job],
        range: Range<usize>,
        level: u8,
        limit: &dyn Fn(usize) -> u64,
    ) -> Result<(), DmuError> {
        let mut batch = Batch::default();
        for at in range {
            if !jobs[at].edit.indirect_levels().contains(&level) {
                continue;
            }
            for (blkid, mut bytes) in jobs[at].edit.take_level(level, limit(at)) {
                let old = jobs[at].edit.pointer(self.set, level, blkid)?;
                let (fill, is_empty) = fill_of(&bytes);
                if is_empty {
                    bytes.fill(0);
                }
                let policy =
                    self.policy.of_block(&jobs[at].frozen.header, Level(level), false, self.tx.pass());
                let mut block = self.new_block(Arc::new(bytes), policy, old, fill);
                block.seal = self.policy.encrypted.then_some(Seal::Indirect);
                batch.push(at, BlockPosition::Tree { level, blkid }, block);
                if batch.is_full() {
                    self.flush(jobs, &mut batch)?;
                }
            }
        }
        self.flush(jobs, &mut batch)
    }

    fn new_block(&self, data: Arc<Vec<u8>>, policy: zio::WritePolicy, old: BlockPtr, fill: u64) -> NewBlock {
        // Only the MOS is written in several passes, and its blocks have no other references.
        let in_place = self.policy.is_mos
            && self.tx.pass() > 1
            && !old.is_hole()
            && old.logical_birth() == self.tx.txg();
        NewBlock { data, stored: None, seal: None, policy, old, in_place, fill }
    }

    fn raw_block(&self, raw: &RawBlock, policy: zio::WritePolicy, old: BlockPtr) -> NewBlock {
        let seal = Some(Seal::Raw(raw.form));
        NewBlock { seal, ..self.new_block(Arc::clone(&raw.bytes), policy, old, 1) }
    }

    fn locked(&self) -> DmuError {
        self.set.locked()
    }

    /// Writes a batch, and stores the pointers in their places.
    fn flush(&self, jobs: &mut [Job], batch: &mut Batch) -> Result<(), DmuError> {
        let written = self.set.store().write_many(&batch.blocks, self.tx);
        for ((at, place), result) in batch.places.iter().zip(written) {
            let job = &mut jobs[*at];
            let bp = result.map_err(|source| DmuError::Zio {
                objset: self.set.number(),
                object: job.cell.id,
                source,
            })?;
            match *place {
                BlockPosition::Tree { level, blkid } => job.edit.place(self.set, level, blkid, &bp)?,
                BlockPosition::Spill => {
                    let old = job.spill.replace(bp).unwrap_or(BlockPtr::HOLE);
                    job.edit.replaced(self.set, &old, &bp);
                }
            }
        }
        *batch = Batch::default();
        Ok(())
    }

    /// The new dnode of an object.
    fn finish(&self, job: &Job) -> Option<Dnode> {
        if !job.frozen.exists {
            return None;
        }
        let used = job.old.as_ref().map_or(0, |dnode| dnode.used_bytes());
        let used = used.saturating_add_signed(job.edit.used);
        let mut dnode = job.frozen.header.dnode(job.edit.top().clone(), used, job.spill);
        if used > 0 || dnode.flags & FLAG_USED_BYTES != 0 {
            dnode.flags |= FLAG_USED_BYTES;
        }
        if self.set.kind() == ObjsetType::Zfs && job.cell.id.0 < ObjectId::LIMIT {
            dnode.flags |= if self.policy.user_accounting { FLAG_USERUSED_ACCOUNTED } else { 0 };
            dnode.flags |= if self.policy.object_accounting { FLAG_USEROBJUSED_ACCOUNTED } else { 0 };
        }
        Some(dnode)
    }

    /// Sums the changes by owner, and updates the accounting objects.
    fn account(&self, jobs: &[Job]) -> Result<Vec<Job>, DmuError> {
        if self.set.kind() != ObjsetType::Zfs || !self.policy.user_accounting {
            return Ok(Vec::new());
        }
        let mut accounting = Accounting::default();
        for job in jobs {
            accounting.note(job.old.as_deref(), job.new.as_ref());
        }
        accounting.apply(self.set, self.tx)?;
        Ok(self.collect(self.set.take_dirty(self.tx.txg())))
    }

    /// Writes the blocks of dnodes and the root.
    fn write_root(&mut self, jobs: &[Job], owned: &[Job], ledger: &mut dyn Ledger) -> Result<Root, DmuError> {
        let old = self.set.root();
        let mut meta = self.meta_job(&old);
        self.write_dnodes(jobs, &old, &mut meta)?;
        self.write_indirect(&mut meta, 0..1, &|_, _| u64::MAX)?;
        let dnode = self.finish_meta(&meta[0]);
        let mut phys = old.phys.clone();
        phys.meta_dnode = dnode;
        phys.zil = self.set.zil_header();
        phys.flags = self.set.flags();
        phys.order = Endian::Little;
        if self.policy.project_accounting {
            phys.size = ROOT_WITH_PROJECTS;
        }
        for job in owned {
            let slot = match job.cell.id {
                ObjectId::USER_USED => 0,
                ObjectId::GROUP_USED => 1,
                _ => 2,
            };
            phys.accounting[slot] = job.new.clone();
        }
        if let Some(raw) = self.set.raw_set() {
            (phys.portable_mac, phys.local_mac) = (raw.portable_mac, [0; 32]);
        }
        let fill = phys.meta_dnode.blkptrs.iter().map(BlockPtr::fill).sum();
        let mut block =
            self.new_block(Arc::new(phys.encode()), self.policy.of_root(self.tx.pass()), old.bp, fill);
        block.seal = self.policy.encrypted.then_some(Seal::Root);
        let bp = self.set.store().write_many(std::slice::from_ref(&block), self.tx).remove(0);
        let bp =
            bp.map_err(|source| DmuError::Zio { objset: self.set.number(), object: ObjectId(0), source })?;
        meta[0].edit.replaced(self.set, &old.bp, &bp);
        meta[0].edit.tell(ledger);
        Ok(Root { bp, meta: Arc::new(phys.meta_dnode.clone()), phys })
    }

    /// The dnode array as an object to be written. Always one job.
    fn meta_job(&self, root: &Root) -> Vec<Job> {
        let meta = match self.set.raw_set() {
            Some(raw) => Arc::new(raw.shaped(&root.meta)),
            None => Arc::clone(&root.meta),
        };
        let header = Header::of(&meta);
        let mut edit = TreeEdit::new(ObjectId(0), &header, top_of(Some(&meta), &header));
        if let Some(raw) = self.set.raw_set() {
            edit.grow(raw.max_block);
            edit.raise(raw.levels);
        }
        let frozen = Frozen { header: header.clone(), overlay: Arc::default(), exists: true };
        let cell = Cell::new(ObjectId(0), header);
        vec![Job { cell, frozen, old: Some(meta), edit, spill: None, new: None }]
    }

    fn finish_meta(&self, meta: &Job) -> Dnode {
        let used = meta.old.as_ref().map_or(0, |dnode| dnode.used_bytes());
        let used = used.saturating_add_signed(meta.edit.used);
        let mut dnode = meta.frozen.header.dnode(meta.edit.top().clone(), used, None);
        dnode.flags |= FLAG_USED_BYTES;
        dnode
    }

    /// Stores new dnodes in their blocks, and writes these.
    fn write_dnodes(&mut self, jobs: &[Job], old: &Root, meta: &mut [Job]) -> Result<(), DmuError> {
        let mut blocks: BTreeMap<u64, Vec<&Job>> = BTreeMap::new();
        for job in jobs.iter().filter(|job| job.old.is_some() || job.new.is_some()) {
            blocks.entry(job.cell.id.0 / SLOTS_PER_BLOCK as u64).or_default().push(job);
        }
        let Some(last) = blocks.keys().next_back().copied() else { return Ok(()) };
        let maxblkid = meta[0].frozen.header.maxblkid.max(last);
        meta[0].frozen.header.maxblkid = maxblkid;
        meta[0].edit.grow(maxblkid);
        let mut batch = Batch::default();
        for (blkid, changed) in blocks {
            let bytes = self.dnode_block(old, blkid, &changed)?;
            let fill = count_dnodes(&bytes);
            let old_bp = meta[0].edit.pointer(self.set, 0, blkid)?;
            let policy = self.policy.of_block(&meta[0].frozen.header, Level(0), false, self.tx.pass());
            let seal = match self.policy.encrypted {
                true => Some(self.set.dnode_seal(blkid, &bytes, &old_bp)?),
                false => None,
            };
            let block = NewBlock { seal, ..self.new_block(Arc::new(bytes), policy, old_bp, fill) };
            batch.push(0, BlockPosition::Tree { level: 0, blkid }, block);
            if batch.is_full() || meta[0].edit.held() >= INDIRECT_BYTES {
                self.flush(meta, &mut batch)?;
                let complete = complete_before(&meta[0].frozen.header, blkid);
                self.write_indirect(meta, 0..1, &|level, _| complete(level))?;
            }
        }
        self.flush(meta, &mut batch)
    }

    /// Builds a block of dnodes with the changed ones.
    fn dnode_block(&self, old: &Root, blkid: u64, changed: &[&Job]) -> Result<Vec<u8>, DmuError> {
        let size = SLOT_SIZE * SLOTS_PER_BLOCK;
        let block = if blkid > old.meta.maxblkid.0 { None } else { self.set.dnode_block(old, blkid)? };
        let mut bytes = match block {
            Some(block) if block.order() == Endian::Big => {
                let object = ObjectId(blkid * SLOTS_PER_BLOCK as u64);
                let foreign = DmuError::ForeignOrder { objset: self.set.number(), object };
                dnodes_in_little_order(block.bytes()).ok_or(foreign)?
            }
            Some(block) => block.bytes().to_vec(),
            None => vec![0; size],
        };
        bytes.resize(size, 0);
        for job in changed {
            let slot = (job.cell.id.0 % SLOTS_PER_BLOCK as u64) as usize;
            if let Some(old) = &job.old {
                bytes[slot * SLOT_SIZE..(slot + old.slots()) * SLOT_SIZE].fill(0);
            }
        }
        for job in changed {
            let slot = (job.cell.id.0 % SLOTS_PER_BLOCK as u64) as usize;
            if let Some(new) = &job.new {
                bytes[slot * SLOT_SIZE..(slot + new.slots()) * SLOT_SIZE].copy_from_slice(&new.encode());
            }
        }
        Ok(bytes)
    }
}

/// For each level, the number of the first indirect block that may still change when all data blocks before
/// `blkid` are written.
fn complete_before(header: &Header, blkid: u64) -> impl Fn(u8) -> u64 + use<> {
    let epbs = u32::from(header.indblkshift) - 7;
    move |level| blkid.checked_shr(epbs * u32::from(level)).unwrap_or(0)
}

/// Number of objects in a block of dnodes.
fn count_dnodes(block: &[u8]) -> u64 {
    let slots = DnodeSlots::new(block);
    slots.filter(|(_, bytes)| bytes.first().is_some_and(|kind| *kind != 0)).count() as u64
}

/// Converts a block of big-endian dnodes to little-endian order; `None` if the structure of a bonus is
/// unknown.
fn dnodes_in_little_order(block: &[u8]) -> Option<Vec<u8>> {
    let mut out = vec![0; block.len()];
    for (slot, bytes) in DnodeSlots::new(block) {
        let Some(dnode) = Dnode::decode(bytes, Endian::Big).ok()? else { continue };
        let dnode = dnode.into_little()?;
        let encoded = dnode.encode();
        out.get_mut(slot * SLOT_SIZE..slot * SLOT_SIZE + encoded.len())?.copy_from_slice(&encoded);
    }
    Some(out)
}

fn top_of(old: Option<&Dnode>, header: &Header) -> TreeTop {
    match old {
        Some(old) => TreeTop { nlevels: old.nlevels, blkptrs: old.blkptrs.clone() },
        None => TreeTop { nlevels: 1, blkptrs: vec![BlockPtr::HOLE; usize::from(header.nblkptr)] },
    }
}

/// A batch of blocks to be written.
#[derive(Default)]
struct Batch {
    blocks: Vec<NewBlock>,
    places: Vec<(usize, BlockPosition)>,
    bytes: usize,
}

impl Batch {
    fn push(&mut self, job: usize, place: BlockPosition, block: NewBlock) {
        self.bytes += block.data.len();
        self.blocks.push(block);
        self.places.push((job, place));
    }

    fn is_full(&self) -> bool {
        self.bytes >= BATCH_BYTES || self.blocks.len() >= BATCH_BLOCKS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KeyState, ObjSet, Store};
    use crate::{Limits, NewObject, Txgs};
    use format::{BlockId, ObjType, Txg};
    use std::collections::BTreeSet;
    use zio::testing::memory_pool;

    /// A ledger that collects the addresses of all blocks of a set, and frees killed ones.
    struct Blocks<'a> {
        live: &'a mut BTreeSet<[u64; 2]>,
        set: &'a LiveSet,
        tx: &'a SyncTx,
    }

    fn place(bp: &BlockPtr) -> [u64; 2] {
        [bp.words()[0], bp.words()[1]]
    }

    impl Ledger for Blocks<'_> {
        fn born(&mut self, bp: &BlockPtr) {
            assert!(bp.is_embedded() || self.live.insert(place(bp)), "a block that is there already");
        }

        fn killed(&mut self, bp: &BlockPtr) {
            if !bp.is_embedded() {
                assert!(self.live.remove(&place(bp)), "a block that is not there");
                self.set.store().zio().free(bp, self.tx).expect("it was allocated");
            }
        }
    }

    /// Far more indirect blocks change in a txg than are held in memory (four in tests).
    #[test]
    fn indirect_blocks_are_written_as_soon_as_many_have_changed() {
        for seed in 1..=3_u64 {
            let mut state = seed;
            let mut below = |n: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % n
            };
            let store = Store::new(memory_pool(1 << 30), 4 << 20);
            let txgs = Txgs::new(Txg(3), Limits::default());
            let tx = txgs.begin().expect("open");
            let policy = SetPolicy { embed: false, ..SetPolicy::dataset() };
            let set = LiveSet::create(&store, txgs.meter(), 7, ObjsetType::Other, policy, &tx);
            let new = NewObject { indirect_shift: 12, ..NewObject::of(ObjType::PLAIN_FILE) };
            let objects: Vec<_> = (0..4).map(|_| set.allocate(&new, &tx).expect("made")).collect();
            drop(tx);
            let mut live = BTreeSet::new();
            let mut model: BTreeMap<(usize, u64), u8> = BTreeMap::new();
            for round in 1..=6 {
                let tx = txgs.begin().expect("open");
                for _ in 0..60 {
                    let (at, blkid) = (below(4) as usize, below(40_000));
                    if below(4) == 0 {
                        let end = blkid + 1 + below(3_000);
                        objects[at].free_range(blkid * 512, (end - blkid) * 512, &tx).expect("freed");
                        model.retain(|(object, block), _| *object != at || !(blkid..end).contains(block));
                    } else {
                        objects[at].put_block(BlockId(blkid), vec![round; 512], &tx).expect("written");
                        model.insert((at, blkid), round);
                    }
                }
                drop(tx);
                let tx = txgs.quiesce();
                set.sync(&tx, &mut Blocks { live: &mut live, set: &set, tx: &tx }).expect("synced");
                txgs.finish(tx);
                let read = ObjSet::open(&store, &set.root_bp(), 7, KeyState::None).expect("readable");
                for (at, object) in objects.iter().enumerate() {
                    let object = read.object(object.id()).expect("there");
                    let (mut found, mut from) = (BTreeMap::new(), 0);
                    while let Some(offset) = object.next_data(from).expect("readable") {
                        let block = object.block(BlockId(offset / 512)).expect("read").expect("data");
                        assert!(block.bytes().iter().all(|byte| *byte == block.bytes()[0]));
                        found.insert((at, offset / 512), block.bytes()[0]);
                        from = offset + 512;
                    }
                    let wanted = model.range((at, 0)..(at + 1, 0)).map(|(k, v)| (*k, *v)).collect();
                    assert_eq!(found, wanted, "seed {seed}, round {round}");
                }
            }
        }
    }
}
