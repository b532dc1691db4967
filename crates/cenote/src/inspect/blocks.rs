//! Counting every block that anything in a pool refers to, and comparing the sum with what the space
//! maps say is allocated.
//!
//! # What always holds
//! - A block is counted once however many snapshots and clones share it: by birth in the trees, by
//!   place where deduplication or cloning shares it.
//! - What is allocated but in no tree is counted too: frees that wait for their turn, datasets and
//!   clones being destroyed, intent logs.
//!
//! Source: `docs/on-disk/15-space.md`, `22-mos-dsl.md`. Memory grows by some tens of bytes per block
//! shared by deduplication, and per data block of a pool in which blocks were cloned.

use crate::verify::plan::Plan;
use crate::{Error, Pool};
use dmu::traverse::{Bookmark, Step, Visitor, walk};
use dmu::{DmuError, KeyState, ObjSet, zil};
use dsl::bpobj::Bpobj;
use dsl::deadlist::Deadlist;
use format::dnode::Dnode;
use format::dsl::{BPTREE_ENTRY_SIZE, BptreeEntry, BptreePhys};
use format::{AllocOffset, BlockPtr, BpKind, Level, ObjType, ObjectId, Txg, VdevId};
use std::collections::{BTreeMap, HashSet};
use zio::ReadPolicy;

/// Frees that were put off to the next txg.
const DEFERRED: &str = "sync_bplist";
/// Blocks of destroyed snapshots, being freed.
const FREEING: &str = "free_bpobj";
/// Datasets being destroyed.
const DESTROYING: &str = "bptree_obj";
/// Destroyed clones.
const DELETED_CLONES: &str = "com.delphix:deleted_clones";
/// Unreadable blocks that are listed; all are counted.
const DAMAGED_MAX: usize = 10_000;

/// How many blocks, and how large.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlockCounts {
    /// Pointers to blocks.
    pub blocks: u64,
    /// Of those, gang blocks.
    pub gangs: u64,
    /// Bytes before compression.
    pub lsize: u64,
    /// Bytes after compression.
    pub psize: u64,
    /// Bytes allocated, copies and parity included.
    pub asize: u64,
    /// Blocks with two or more copies on one vdev.
    pub same_vdev: u64,
}

impl BlockCounts {
    /// Both together.
    #[must_use]
    pub fn plus(&self, other: &BlockCounts) -> BlockCounts {
        BlockCounts {
            blocks: self.blocks + other.blocks,
            gangs: self.gangs + other.gangs,
            lsize: self.lsize.saturating_add(other.lsize),
            psize: self.psize.saturating_add(other.psize),
            asize: self.asize.saturating_add(other.asize),
            same_vdev: self.same_vdev + other.same_vdev,
        }
    }

    fn add(&mut self, bp: &BlockPtr) {
        let asize: u64 = bp.dvas().map(|dva| dva.asize.0).sum();
        self.blocks += 1;
        self.gangs += u64::from(bp.kind() == BpKind::Gang);
        self.lsize = self.lsize.saturating_add(bp.lsize().0);
        self.psize = self.psize.saturating_add(bp.psize().0);
        self.asize = self.asize.saturating_add(asize);
        let vdevs: Vec<VdevId> = bp.dvas().map(|dva| dva.vdev).collect();
        let distinct: HashSet<VdevId> = vdevs.iter().copied().collect();
        self.same_vdev += u64::from(distinct.len() < vdevs.len());
    }
}

/// What the space maps say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Bytes allocated by the space maps of all vdevs, those that only a checkpoint holds left out.
    pub allocated: u64,
    /// Bytes of all blocks that were found.
    pub found: u64,
}

/// An unreadable block.
#[derive(Debug, Clone)]
pub struct Damaged {
    /// Its place.
    pub at: Bookmark,
    /// The pointer.
    pub bp: BlockPtr,
    /// Why it cannot be read.
    pub why: String,
}

/// Everything that [`blocks`] found.
#[derive(Debug, Clone, Default)]
pub struct BlockReport {
    /// All blocks.
    pub total: BlockCounts,
    /// By object type and level.
    pub by_type: BTreeMap<(ObjType, i64), BlockCounts>,
    /// Embedded pointers: no space, counted apart.
    pub embedded: u64,
    /// Further references to blocks already counted: bytes and number.
    pub shared: BlockCounts,
    /// Blocks of intent logs.
    pub log_blocks: u64,
    /// Unreadable blocks; at most [`DAMAGED_MAX`] are kept.
    pub damaged: Vec<Damaged>,
    /// Number of unreadable blocks.
    pub damaged_count: u64,
    /// Object sets and lists that could not be looked at.
    pub problems: Vec<String>,
    /// Sums to compare; absent if they were not asked for or something could not be looked at.
    pub space: Option<Space>,
}

/// How much to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// Only what is needed to find the blocks.
    Nothing,
    /// The checksums of metadata.
    Metadata,
    /// The checksums of everything, every copy.
    Everything,
}

/// Counts all blocks of the pool; `compare` with the space maps.
pub fn blocks(pool: &Pool, check: Check, compare: bool) -> Result<BlockReport, Error> {
    let cloned = !pool.spa().clone_tables()?.is_empty();
    let mut count = Count { pool, check, cloned, seen: HashSet::new(), report: BlockReport::default() };
    let plan = Plan::new(pool.spa(), &[]);
    for set in &plan.sets {
        match &set.objset {
            Ok(objset) => walk(objset, set.newer_than, &mut count),
            Err(_) if set.empty => continue,
            Err(why) => count.report.problems.push(format!("{}: {why}", set.name)),
        }
    }
    count.intent_logs(&plan);
    for list in [DEFERRED, FREEING] {
        if let Some(id) = pool.spa().directory().object(list)? {
            count.list(id)?;
        }
    }
    count.being_destroyed()?;
    count.deleted_clones()?;
    let mut report = count.report;
    if compare && report.problems.is_empty() {
        let spaces = pool.spa().vdev_spaces()?;
        let allocated = spaces.iter().map(|vdev| vdev.allocated.saturating_sub(vdev.checkpoint)).sum();
        report.space = Some(Space { allocated, found: report.total.asize });
    }
    Ok(report)
}

struct Count<'a> {
    pool: &'a Pool,
    check: Check,
    /// Blocks were cloned: any data block may be shared.
    cloned: bool,
    seen: HashSet<(VdevId, AllocOffset)>,
    report: BlockReport,
}

impl Count<'_> {
    /// Counts a pointer, unless its block was counted before.
    fn add(&mut self, at: &Bookmark, bp: &BlockPtr) {
        if matches!(bp.kind(), BpKind::Embedded | BpKind::Redacted) {
            self.report.embedded += 1;
            return;
        }
        let may_be_shared =
            bp.is_dedup() || (self.cloned && !bp.obj_type().is_metadata() && bp.level() == Level(0));
        let place = bp.dvas().next().map(|dva| (dva.vdev, dva.offset));
        if may_be_shared && place.is_some_and(|place| !self.seen.insert(place)) {
            self.report.shared.add(bp);
            return;
        }
        self.report.total.add(bp);
        self.report.by_type.entry((bp.obj_type(), at.level)).or_default().add(bp);
        self.verify(at, bp);
    }

    fn verify(&mut self, at: &Bookmark, bp: &BlockPtr) {
        let is_metadata = bp.obj_type().is_metadata() || bp.level() > Level(0);
        let wanted = match self.check {
            Check::Nothing => false,
            Check::Metadata => is_metadata,
            Check::Everything => true,
        };
        if wanted {
            let zio = self.pool.store().zio();
            if let Err(error) = zio.check(bp, &ReadPolicy { key: None, every_copy: true }).data {
                self.damaged(at, bp, &error);
            }
        }
    }

    fn damaged(&mut self, at: &Bookmark, bp: &BlockPtr, error: &dyn std::error::Error) {
        self.report.damaged_count += 1;
        if self.report.damaged.len() < DAMAGED_MAX {
            self.report.damaged.push(Damaged { at: *at, bp: *bp, why: crate::verify::plan::chain(error) });
        }
    }

    /// The logs of the heads. Blocks newer than the last txg are not in the space maps, unless an
    /// import has claimed them.
    fn intent_logs(&mut self, plan: &Plan) {
        let last = self.pool.spa().txg();
        for set in plan.sets.iter().filter(|set| set.id != 0 && !set.name.contains('@')) {
            let Ok(objset) = &set.objset else { continue };
            let claimed = objset.phys().zil.claim_txg;
            let mut found = Vec::new();
            let end = zil::walk(objset, &mut |bp, records| {
                found.push(*bp);
                let claims = records.flatten().filter_map(|record| record.pointers().ok()).flatten();
                found.extend(claims.filter(|bp| claimed != Txg(0) && bp.logical_birth() >= claimed));
                true
            });
            match end {
                Ok(end) => found.extend(end),
                Err(error) => self.report.problems.push(format!("{}: {error}", set.name)),
            }
            for bp in found {
                let is_allocated = claimed != Txg(0) || bp.logical_birth() <= last;
                if is_allocated && bp.validate().is_ok() && !bp.is_hole() {
                    self.report.log_blocks += 1;
                    self.report.total.add(&bp);
                    self.report.by_type.entry((bp.obj_type(), 0)).or_default().add(&bp);
                }
            }
        }
    }

    /// The blocks of a list of pointers.
    fn list(&mut self, id: ObjectId) -> Result<(), Error> {
        let bpobj = Bpobj::open(self.pool.mos(), id)?;
        let at = Bookmark { objset: 0, object: id, level: 0, blkid: 0 };
        bpobj.for_each(&mut |bp, _| {
            // A list keeps no checksum, so there is nothing to verify.
            if !bp.is_embedded() && !bp.is_hole() {
                self.report.total.add(bp);
                self.report.by_type.entry((bp.obj_type(), at.level)).or_default().add(bp);
            }
            Ok(())
        })?;
        Ok(())
    }

    /// Datasets whose blocks are freed in the background.
    fn being_destroyed(&mut self) -> Result<(), Error> {
        let Some(id) = self.pool.spa().directory().object(DESTROYING)? else { return Ok(()) };
        let object = self.pool.mos().object(id)?;
        let phys = BptreePhys::decode(object.bonus(), object.order())
            .map_err(|_| object.corrupt("the header of the tree of destroyed datasets"))?;
        for index in phys.begin..phys.end {
            let mut raw = [0; BPTREE_ENTRY_SIZE];
            object.read_at(index.saturating_mul(BPTREE_ENTRY_SIZE as u64), &mut raw)?;
            let entry = BptreeEntry::decode(&raw, object.order())
                .map_err(|_| object.corrupt("an entry of the tree of destroyed datasets"))?;
            let key = if entry.bp.uses_crypt() { KeyState::Locked } else { KeyState::None };
            match ObjSet::open(self.pool.store(), &entry.bp, 0, key) {
                Ok(objset) => walk(&objset, entry.birth, self),
                Err(error) => self.report.problems.push(format!("a destroyed dataset: {error}")),
            }
        }
        Ok(())
    }

    /// Destroyed clones, whose blocks are in lists of what they wrote and let go.
    fn deleted_clones(&mut self) -> Result<(), Error> {
        let Some((_, lists)) = self.pool.spa().directory().zap(DELETED_CLONES)? else { return Ok(()) };
        for entry in lists.entries() {
            let Some(id) = entry?.u64() else { continue };
            let list = Deadlist::open(self.pool.mos(), ObjectId(id))?;
            let mut live: BTreeMap<[u64; 2], (BlockPtr, i64)> = BTreeMap::new();
            list.for_each(&mut |bp, freed| {
                if let Some(dva) = bp.dvas().next() {
                    live.entry(dva.to_words()).or_insert((*bp, 0)).1 += if freed { -1 } else { 1 };
                }
                Ok(())
            })?;
            for (bp, _) in live.into_values().filter(|(_, n)| *n > 0) {
                self.report.total.add(&bp);
                self.report.by_type.entry((bp.obj_type(), 0)).or_default().add(&bp);
            }
        }
        Ok(())
    }
}

impl Visitor for Count<'_> {
    fn block(&mut self, at: &Bookmark, bp: &BlockPtr, _: Option<&Dnode>) -> Step {
        self.add(at, bp);
        Step::Into
    }

    fn unreadable(&mut self, at: &Bookmark, bp: &BlockPtr, error: DmuError) -> Step {
        // A block whose checksum was looked at on its own is in the list already.
        let listed = self.report.damaged.last().is_some_and(|last| last.at == *at);
        if !listed {
            self.damaged(at, bp, &error);
        }
        self.report.problems.push(format!("{at}: what is below could not be counted"));
        Step::Into
    }
}
