//! Writing what a txg changed in an object set
//! (docs/on-disk/20-dmu.md, section 6).
//!
//! # Order
//! data blocks of all changed objects, many at a time -> their indirect blocks, level by level -> space
//! and objects by owner -> blocks of dnodes and the indirect blocks above them -> the root block. Only
//! then do readers of the set see the new trees: until the last step they use the old ones, and the
//! overlays.
//!
//! # What always holds
//! - A sync that fails has changed nothing that readers see. Its txg can only be given up with the pool.
//! - Memory beyond the dirty buffers is bounded: blocks are written in batches, and an indirect block is
//!   dropped when it is written.

use super::accounting::Accounting;
use super::cell::{Cell, Frozen, Header, Leaf, Spill, TreeTop};
use super::set::{LiveSet, Root};
use super::tree::{TreeEdit, fill_of};
use super::{SetPolicy, SyncTx};
use crate::DmuError;
use format::dnode::{
    Dnode, FLAG_USED_BYTES, FLAG_USEROBJUSED_ACCOUNTED, FLAG_USERUSED_ACCOUNTED, SLOT_SIZE, SLOTS_PER_BLOCK,
};
use format::ids::SwapClass;
use format::objset::ObjsetType;
use format::{BlockPtr, Endian, Level, ObjectId};
use std::collections::BTreeMap;
use std::sync::Arc;
use zio::AllocTx;
use zio::write::NewBlock;

/// Bytes of blocks that are written in one batch.
const BATCH_BYTES: usize = 32 << 20;
/// Blocks that are written in one batch.
const BATCH_BLOCKS: usize = 16 << 10;
/// Bytes of the root block of sets that count projects.
const ROOT_WITH_PROJECTS: usize = 4096;

/// Is told of every block that the sync of a set made or unmade: space is accounted for, and freed, there.
pub trait Ledger {
    /// A block is new.
    fn born(&mut self, bp: &BlockPtr);
    /// Nothing in the set refers to a block any more.
    fn killed(&mut self, bp: &BlockPtr);
}

/// A changed object on its way to disk.
struct Job {
    cell: Arc<Cell>,
    frozen: Frozen,
    old: Option<Arc<Dnode>>,
    edit: TreeEdit,
    spill: Option<BlockPtr>,
    /// The result; `None`: the object is gone.
    new: Option<Dnode>,
}

/// Where a written block belongs.
#[derive(Clone, Copy)]
enum Place {
    Tree { level: u8, blkid: u64 },
    Spill,
}

impl LiveSet {
    /// Writes everything that the txg changed. Returns the new root pointer; the old one if nothing did.
    /// May be called again for the same txg: later passes write what was changed since.
    ///
    /// # Errors
    /// If something cannot be read or written. The txg is lost then.
    pub fn sync(self: &Arc<Self>, tx: &SyncTx, ledger: &mut dyn Ledger) -> Result<BlockPtr, DmuError> {
        let txg = tx.txg();
        if !self.is_dirty(txg) {
            return Ok(self.root_bp());
        }
        self.clean_root(txg);
        let mut sync = SetSync { set: self, tx, policy: self.policy() };
        let mut jobs = sync.collect(self.take_dirty(txg))?;
        sync.write_objects(&mut jobs)?;
        let mut owned = sync.account(&jobs)?;
        sync.write_objects(&mut owned)?;
        let root = sync.write_root(&jobs, &owned, ledger)?;
        let bp = root.bp;
        self.set_root(root);
        jobs.append(&mut owned);
        self.install(jobs, txg, ledger);
        self.clean_root(txg);
        Ok(bp)
    }

    /// Readers see the new trees from here on.
    fn install(&self, jobs: Vec<Job>, txg: format::Txg, ledger: &mut dyn Ledger) {
        let mut done = Vec::with_capacity(jobs.len());
        for job in jobs {
            job.edit.killed.iter().for_each(|bp| ledger.killed(bp));
            job.edit.born.iter().for_each(|bp| ledger.born(bp));
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
    /// Closes the overlays of the changed objects. In order of their numbers, so that neighbours in number
    /// become neighbours on disk.
    fn collect(&self, mut cells: Vec<Arc<Cell>>) -> Result<Vec<Job>, DmuError> {
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
            let mut edit = TreeEdit::new(cell.id, &frozen.header, top_of(old.as_deref(), &frozen.header));
            let spill = old.as_ref().and_then(|dnode| dnode.spill).filter(|bp| !bp.is_hole());
            let mut job = Job {
                cell,
                old,
                spill,
                new: None,
                edit: TreeEdit::new(ObjectId(0), &frozen.header, top_of(None, &frozen.header)),
                frozen,
            };
            if job.frozen.exists {
                edit.grow(
                    job.frozen.header.maxblkid.max(job.old.as_ref().map_or(0, |dnode| dnode.maxblkid.0)),
                );
                let overlay = Arc::clone(&job.frozen.overlay);
                for range in overlay.freed.iter() {
                    edit.free(self.set, &range, &overlay.blocks, self.tx.txg().0)?;
                }
                if let (Some(old), Spill::Drop) = (job.spill, &overlay.spill) {
                    edit.replaced(self.set, &old, &BlockPtr::HOLE);
                    job.spill = None;
                }
            } else {
                edit.free_all(self.set)?;
                if let Some(old) = job.spill.take() {
                    edit.replaced(self.set, &old, &BlockPtr::HOLE);
                }
            }
            job.edit = edit;
            jobs.push(job);
        }
        Ok(jobs)
    }

    /// Writes the blocks of these objects and makes their dnodes.
    fn write_objects(&mut self, jobs: &mut [Job]) -> Result<(), DmuError> {
        self.write_leaves(jobs)?;
        let levels = jobs.iter().map(|job| job.edit.indirect_levels().end).max().unwrap_or(1);
        for level in 1..levels {
            self.write_level(jobs, level, &|_| u64::MAX)?;
        }
        for job in jobs {
            job.new = self.finish(job);
        }
        Ok(())
    }

    fn write_leaves(&mut self, jobs: &mut [Job]) -> Result<(), DmuError> {
        let mut batch = Batch::default();
        for at in 0..jobs.len() {
            if !jobs[at].frozen.exists {
                continue;
            }
            let overlay = Arc::clone(&jobs[at].frozen.overlay);
            for (blkid, leaf) in &overlay.blocks {
                let old = jobs[at].edit.pointer(self.set, 0, *blkid)?;
                match leaf {
                    Leaf::Pointer(bp) => jobs[at].edit.place(self.set, 0, *blkid, bp)?,
                    Leaf::Data(data) => {
                        let policy =
                            self.policy.of_block(&jobs[at].frozen.header, Level(0), false, self.tx.pass());
                        let block = self.new_block(Arc::clone(data), policy, old, 1);
                        batch.push(at, Place::Tree { level: 0, blkid: *blkid }, block);
                    }
                }
                if batch.is_full() {
                    self.flush(jobs, &mut batch)?;
                    // Of the object at hand, what lies below the next block is complete.
                    let epbs = u32::from(jobs[at].frozen.header.indblkshift) - 7;
                    let limit = blkid.checked_shr(epbs).unwrap_or(0);
                    self.write_level(jobs, 1, &|job| match job.cmp(&at) {
                        std::cmp::Ordering::Less => u64::MAX,
                        std::cmp::Ordering::Equal => limit,
                        std::cmp::Ordering::Greater => 0,
                    })?;
                }
            }
            if let Spill::Data(data) = &overlay.spill {
                let policy = self.policy.of_block(&jobs[at].frozen.header, Level(0), true, self.tx.pass());
                let old = jobs[at].spill.unwrap_or(BlockPtr::HOLE);
                let block = self.new_block(Arc::clone(data), policy, old, 1);
                batch.push(at, Place::Spill, block);
            }
        }
        self.flush(jobs, &mut batch)
    }

    /// Writes the changed indirect blocks of a level, of each object those below a limit.
    fn write_level(
        &mut self,
        jobs: &mut [Job],
        level: u8,
        limit: &dyn Fn(usize) -> u64,
    ) -> Result<(), DmuError> {
        let mut batch = Batch::default();
        for at in 0..jobs.len() {
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
                let block = self.new_block(Arc::new(bytes), policy, old, fill);
                batch.push(at, Place::Tree { level, blkid }, block);
                if batch.is_full() {
                    self.flush(jobs, &mut batch)?;
                }
            }
        }
        self.flush(jobs, &mut batch)
    }

    fn new_block(
        &self,
        data: Arc<Vec<u8>>,
        policy: zio::write::WritePolicy,
        old: BlockPtr,
        fill: u64,
    ) -> NewBlock {
        // Only the MOS is written in several passes, and nothing else refers to its blocks.
        let in_place = self.policy.is_mos
            && self.tx.pass() > 1
            && !old.is_hole()
            && old.logical_birth() == self.tx.txg();
        NewBlock { data, policy, old, in_place, fill }
    }

    /// Writes a batch, and puts the pointers where they belong.
    fn flush(&self, jobs: &mut [Job], batch: &mut Batch) -> Result<(), DmuError> {
        let written = self.set.store.write_many(&batch.blocks, self.tx);
        for ((at, place), result) in batch.places.iter().zip(written) {
            let job = &mut jobs[*at];
            let bp = result.map_err(|source| DmuError::Zio {
                objset: self.set.number(),
                object: job.cell.id,
                source,
            })?;
            match *place {
                Place::Tree { level, blkid } => job.edit.place(self.set, level, blkid, &bp)?,
                Place::Spill => {
                    let old = job.spill.replace(bp).unwrap_or(BlockPtr::HOLE);
                    job.edit.replaced(self.set, &old, &bp);
                }
            }
        }
        *batch = Batch::default();
        Ok(())
    }

    /// The dnode that an object has now.
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

    /// Sums what changed by owner, and changes the accounting objects.
    fn account(&self, jobs: &[Job]) -> Result<Vec<Job>, DmuError> {
        if self.set.kind() != ObjsetType::Zfs || !self.policy.user_accounting {
            return Ok(Vec::new());
        }
        let mut accounting = Accounting::default();
        for job in jobs {
            accounting.note(job.old.as_deref(), job.new.as_ref());
        }
        accounting.apply(self.set, self.tx)?;
        self.collect(self.set.take_dirty(self.tx.txg()))
    }

    /// Writes the blocks of dnodes and the root.
    fn write_root(&mut self, jobs: &[Job], owned: &[Job], ledger: &mut dyn Ledger) -> Result<Root, DmuError> {
        let old = self.set.root();
        let mut meta = self.meta_job(&old);
        self.write_dnodes(jobs, &old, &mut meta)?;
        let levels = meta[0].edit.indirect_levels();
        for level in levels {
            self.write_level(&mut meta, level, &|_| u64::MAX)?;
        }
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
        let fill = phys.meta_dnode.blkptrs.iter().map(BlockPtr::fill).sum();
        let block =
            self.new_block(Arc::new(phys.encode()), self.policy.of_root(self.tx.pass()), old.bp, fill);
        let bp = self.set.store.write_many(std::slice::from_ref(&block), self.tx).remove(0);
        let bp =
            bp.map_err(|source| DmuError::Zio { objset: self.set.number(), object: ObjectId(0), source })?;
        meta[0].edit.replaced(self.set, &old.bp, &bp);
        meta[0].edit.killed.iter().for_each(|bp| ledger.killed(bp));
        meta[0].edit.born.iter().for_each(|bp| ledger.born(bp));
        Ok(Root { bp, meta: Arc::new(phys.meta_dnode.clone()), phys })
    }

    /// The array of dnodes as an object to be written. It is always one job.
    fn meta_job(&self, root: &Root) -> Vec<Job> {
        let header = Header::of(&root.meta);
        let edit = TreeEdit::new(ObjectId(0), &header, top_of(Some(&root.meta), &header));
        let frozen = Frozen { header: header.clone(), overlay: Arc::default(), exists: true };
        let cell = Cell::new(ObjectId(0), header);
        vec![Job { cell, frozen, old: Some(Arc::clone(&root.meta)), edit, spill: None, new: None }]
    }

    fn finish_meta(&self, meta: &Job) -> Dnode {
        let used = meta.old.as_ref().map_or(0, |dnode| dnode.used_bytes());
        let used = used.saturating_add_signed(meta.edit.used);
        let mut dnode = meta.frozen.header.dnode(meta.edit.top().clone(), used, None);
        dnode.flags |= FLAG_USED_BYTES;
        dnode
    }

    /// Puts new dnodes into their blocks, and writes these.
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
            let block = self.new_block(Arc::new(bytes), policy, old_bp, fill);
            batch.push(0, Place::Tree { level: 0, blkid }, block);
            if batch.is_full() {
                self.flush(meta, &mut batch)?;
            }
        }
        self.flush(meta, &mut batch)
    }

    /// A block of dnodes with the changed ones in it.
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

/// Objects in a block of dnodes.
fn count_dnodes(block: &[u8]) -> u64 {
    let slots = crate::objset::DnodeSlots::new(block);
    slots.filter(|(_, bytes)| bytes.first().is_some_and(|kind| *kind != 0)).count() as u64
}

/// A block of big-endian dnodes in the order that everything is written in; `None` if one has a bonus that
/// is not plain words or bytes.
fn dnodes_in_little_order(block: &[u8]) -> Option<Vec<u8>> {
    let mut out = vec![0; block.len()];
    for (slot, bytes) in crate::objset::DnodeSlots::new(block) {
        let Some(mut dnode) = Dnode::decode(bytes, Endian::Big).ok()? else { continue };
        match dnode.bonus_type.swap_class() {
            SwapClass::U8 => {}
            SwapClass::U64 => dnode.bonus.chunks_exact_mut(8).for_each(<[u8]>::reverse),
            _ => return None,
        }
        dnode.order = Endian::Little;
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

/// Blocks that are written together.
#[derive(Default)]
struct Batch {
    blocks: Vec<NewBlock>,
    places: Vec<(usize, Place)>,
    bytes: usize,
}

impl Batch {
    fn push(&mut self, job: usize, place: Place, block: NewBlock) {
        self.bytes += block.data.len();
        self.blocks.push(block);
        self.places.push((job, place));
    }

    fn is_full(&self) -> bool {
        self.bytes >= BATCH_BYTES || self.blocks.len() >= BATCH_BLOCKS
    }
}
