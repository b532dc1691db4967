//! Counts all referenced blocks of a pool, and compares their locations with the space maps.
//!
//! # What always holds
//! - A block is counted once, in the set in which it was born, no matter how many snapshots share it; further
//!   references to blocks shared by deduplication or cloning are counted separately.
//! - The reference count of each block in a block reference table or a dedup table is compared with the
//!   number of pointers found; a difference is reported. While a claimed intent log waits for replay, its
//!   records may hold references as well.
//! - A deduplicated block that is in no table is reported, unless its entry may have been pruned and only one
//!   pointer leads to it.
//! - Allocated blocks that are in no tree are counted as well: deferred frees, datasets and clones being
//!   destroyed, intent logs.
//!
//! Source: `docs/on-disk/15-space.md`, `22-mos-dsl.md`. Memory: some tens of bytes per block in a dedup table or
//! block reference table and, if leaks are searched for, per separate range of free space.

mod check;
mod counts;

pub use counts::{BlockCounts, BlockUse, SIZE_ROWS, Tally};

use crate::block_walk::{self, Walk};
use crate::error::Cause;
use crate::verify::plan::Plan;
use crate::{Error, Pool};
pub(super) use check::walks_of;
use check::{BlockLocation, Checker, Found};
use dmu::log::walk as zil;
use dmu::traverse::Bookmark;
use dmu::zap::{Zap, ZapKey};
use dmu::{KeyState, log};
use dsl::bpobj::Bpobj;
use dsl::deadlist::Deadlist;
use format::brt::extra_references;
use format::dsl::{BPTREE_ENTRY_SIZE, BptreeEntry, BptreePhys};
use format::names;
use format::zil::RecordKind;
use format::{AllocOffset, BlockPtr, Endian, ObjType, ObjectId, Txg, VdevId};
use pool::allocated::Allocated;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Range;
use std::sync::Mutex;

/// Number of unreadable destroyed datasets after which their list counts as damaged.
const PROBLEMS_MAX: usize = 10_000;
/// Maximum number of threads that check blocks.
const THREADS_MAX: usize = 16;
/// Maximum number of leaked ranges in the report.
const LEAKED_MAX: usize = 10_000;
/// Maximum number of blocks with a wrong reference count in the report.
const MISCOUNTED_MAX: usize = 1000;

/// Comparison of the space maps with the blocks that were found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Space {
    /// Bytes allocated by the space maps of all vdevs, without those that only a checkpoint holds.
    pub allocated: u64,
    /// Bytes of all blocks that were found, each counted once.
    pub found: u64,
    /// Allocated ranges without a block, as vdev and range of byte offsets, in order; the first ten thousand.
    pub leaked: Vec<(VdevId, Range<u64>)>,
    /// Blocks in ranges that are not allocated or that belong to another block; the first thousand.
    pub strays: Vec<BlockPtr>,
    /// Number of blocks of which `strays` lists the first.
    pub stray_count: u64,
    /// Blocks whose reference count in a table is wrong, by table and location; the first thousand.
    pub miscounted: Vec<Miscount>,
    /// Number of blocks of which `miscounted` lists the first.
    pub miscount_count: u64,
}

/// Kind of the table that counts references to a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CountedBy {
    /// A block reference table, which counts clones.
    CloneTable,
    /// A dedup table.
    DedupTable,
}

/// A block whose reference count in a table is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Miscount {
    /// Kind of the table.
    pub by: CountedBy,
    /// Top-level vdev of the block.
    pub vdev: VdevId,
    /// Offset of the block in the vdev.
    pub offset: AllocOffset,
    /// Reference count in the table, including the first reference. 0: the block is not in the table.
    pub counted: u64,
    /// Number of pointers found. 0: the block is free, or will leak.
    pub found: u64,
}

impl fmt::Display for Miscount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Miscount { by, vdev, offset, counted, found } = self;
        let kind = match by {
            CountedBy::CloneTable => "cloned",
            CountedBy::DedupTable => "deduplicated",
        };
        write!(
            f,
            "{kind} block, vdev {vdev}, offset 0x{:x}: {counted} references are counted, {found} were found",
            offset.0
        )
    }
}

impl Space {
    /// True if the allocated extents are exactly those of the blocks found, and all reference counts are
    /// right.
    #[must_use]
    pub fn matches(&self) -> bool {
        self.allocated == self.found
            && self.leaked.is_empty()
            && self.stray_count == 0
            && self.miscount_count == 0
    }
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes are allocated, {} were found", self.allocated, self.found)?;
        if let Some((vdev, range)) = self.leaked.first() {
            let more = self.leaked.len() - 1;
            write!(
                f,
                "; leaked: vdev {vdev}, bytes {} to {}, and {more} more ranges",
                range.start, range.end
            )?;
        }
        if let Some(bp) = self.strays.first() {
            let more = self.stray_count - 1;
            write!(f, "; not allocated, or part of two blocks: {bp}, and {more} more blocks")?;
        }
        if let Some(miscount) = self.miscounted.first() {
            let more = self.miscount_count - 1;
            write!(f, "; {miscount}, and {more} more blocks")?;
        }
        Ok(())
    }
}

/// A block that cannot be read.
#[derive(Debug, Clone)]
pub struct Damaged {
    /// Object set, object, level and index of the block.
    pub at: Bookmark,
    /// Pointer to the block.
    pub bp: BlockPtr,
    /// Linux error number; 52 for a wrong checksum.
    pub errno: i32,
    /// The error.
    pub cause: Cause,
}

/// What a [`Problem`] is about.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Subject {
    /// The pool's own structures.
    Pool,
    /// The space maps.
    SpaceMaps,
    /// A dataset or snapshot, by its full name.
    Dataset(String),
    /// A destroyed dataset whose blocks are being freed.
    Destroyed,
    /// A block that leads to others.
    Block(Bookmark),
}

/// An object set, list or table that could not be read, so that a count is incomplete.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{}{cause}", match subject {
    Subject::Pool => String::new(),
    Subject::SpaceMaps => "space maps: ".to_owned(),
    Subject::Dataset(name) => format!("{name}: "),
    Subject::Destroyed => "a destroyed dataset: ".to_owned(),
    Subject::Block(at) => format!("{at}: "),
})]
pub struct Problem {
    /// What could not be read.
    pub subject: Subject,
    /// Why.
    pub cause: Cause,
}

/// Result of [`blocks`].
#[derive(Debug, Clone, Default)]
pub struct BlockReport {
    /// Counts by use, level and size.
    pub tally: Tally,
    /// Unreadable blocks, by location; the first ten thousand.
    pub damaged: Vec<Damaged>,
    /// Number of unreadable blocks by error number of Linux.
    pub errors: BTreeMap<i32, u64>,
    /// Errors of object sets and lists that could not be read.
    pub problems: Vec<Problem>,
    /// Comparison with the space maps. `None`: not asked for, or something could not be read.
    pub space: Option<Space>,
}

/// Which blocks [`blocks`] reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// Only the blocks that contain block pointers.
    Nothing,
    /// Every copy of metadata.
    Metadata,
    /// Every copy of metadata and data.
    Everything,
}

/// Counts all blocks of the pool. With `compare`, also compares them with the space maps.
///
/// # Errors
/// The meta object set cannot be read. Other errors are part of the report.
pub fn blocks(pool: &Pool, check: Check, compare: bool) -> Result<BlockReport, Error> {
    let plan = Plan::new(pool.spa(), &[]);
    let (mut walks, mut problems) = walks_of(&plan);
    walks.extend(being_destroyed(pool, &mut problems)?);
    let tops = pool.vdevs().tops();
    let allocated = if compare { read_maps(pool, &mut problems) } else { None };
    let checker = Checker {
        pool,
        check,
        clones: cloned_blocks(pool)?,
        references: Mutex::default(),
        dedup: pool.spa().dedup_counts()?,
        unknown: Mutex::default(),
        copies: pool.spa().dedup_copies()?,
        shifts: tops.map(|(vdev, node)| (vdev, node.metaslab_shift)).collect(),
        seen: Mutex::default(),
        allocated,
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    let mut found = Found::default();
    block_walk::run(&checker, &walks, threads).into_iter().for_each(|one| found.merge(one));
    found.damaged.sort_by_key(|damaged| damaged.at);
    let held = intent_logs(pool, &plan, &checker, &mut found, &mut problems);
    for name in [names::directory::SYNC_BPLIST, names::directory::FREE_BPOBJ] {
        if let Some(id) = pool.spa().directory().object(name)? {
            count_list(pool, id, &checker, &mut found)?;
        }
    }
    deleted_clones(pool, &checker, &mut found)?;
    problems.append(&mut found.problems);
    let Found { tally, damaged, errors, strays: (strays, stray_count), .. } = found;
    let mut report = BlockReport { tally, damaged, errors, problems, space: None };
    let mut miscounted = checker.miscounted(&held);
    if let Some(left) = checker.allocated.filter(|_| report.problems.is_empty()) {
        let spaces = pool.spa().vdev_spaces()?;
        let allocated = spaces.iter().map(|vdev| vdev.allocated.saturating_sub(vdev.checkpoint)).sum();
        let tally = &report.tally;
        let found = tally.total().asize.saturating_sub(tally.deduped.0).saturating_sub(tally.cloned.0);
        let leaked = left.left().take(LEAKED_MAX).collect();
        let miscount_count = miscounted.len() as u64;
        miscounted.truncate(MISCOUNTED_MAX);
        report.space =
            Some(Space { allocated, found, leaked, strays, stray_count, miscounted, miscount_count });
    }
    Ok(report)
}

/// What the space maps say; `None`: they contradict themselves or cannot be read.
fn read_maps(pool: &Pool, problems: &mut Vec<Problem>) -> Option<Allocated> {
    let allocated = pool.spa().allocated();
    allocated
        .map_err(|error| {
            problems.push(Problem { subject: Subject::SpaceMaps, cause: Error::from(error).into() })
        })
        .ok()
}

/// The blocks that the block reference tables know, and how many references beyond the first each has.
fn cloned_blocks(pool: &Pool) -> Result<HashMap<BlockLocation, u64>, Error> {
    let mut clones = HashMap::new();
    for table in pool.spa().clone_tables()? {
        if table.phys.entries == ObjectId(0) {
            continue;
        }
        let entries = pool.mos().object(table.phys.entries)?;
        for entry in Zap::open(&entries)?.entries() {
            let entry = entry?;
            if let ZapKey::Words(words) = &entry.key
                && let Some(offset) = words.first()
            {
                let extra = extra_references(entry.int_size, &entry.value, table.phys.array_order)
                    .map_err(|_| entries.corrupt("a count of references"))?;
                clones.insert((table.vdev, AllocOffset(*offset)), extra);
            }
        }
    }
    Ok(clones)
}

/// Counts the blocks of the heads' intent logs. Blocks newer than the last txg are not in the space maps, unless an
/// import has claimed them. A chain may continue after the end of a claim, on a device that was missing at that
/// time; those blocks do not belong to the log. Returns the references that records of claimed logs may have to
/// cloned blocks.
fn intent_logs(
    pool: &Pool,
    plan: &Plan,
    checker: &Checker<'_>,
    found: &mut Found,
    problems: &mut Vec<Problem>,
) -> HashMap<BlockLocation, u64> {
    let mut held = HashMap::new();
    let last = pool.spa().txg();
    for set in plan.sets.iter().filter(|set| set.id != 0 && !set.name.contains('@')) {
        let Some(objset) = set.objset() else { continue };
        let header = objset.phys().zil;
        let claimed = header.claim_txg;
        let limits = log::Limits::of(&header);
        let mut blocks = Vec::new();
        let end = zil::walk(objset, &mut |bp, records| {
            if !limits.has_block(bp) {
                return false;
            }
            blocks.push(*bp);
            for record in records.flatten().filter(|record| claimed != Txg(0) && limits.has_record(record)) {
                let Ok(pointers) = record.pointers() else { continue };
                if record.txtype == RecordKind::CloneRange as u64 {
                    for place in pointers.iter().filter_map(place_of) {
                        *held.entry(place).or_default() += 1;
                    }
                } else {
                    blocks.extend(pointers.into_iter().filter(|bp| bp.logical_birth() >= claimed));
                }
            }
            true
        });
        match end {
            Ok(end) => blocks.extend(end.filter(|bp| limits.has_block(bp))),
            Err(error) => {
                problems.push(Problem { subject: Subject::Dataset(set.name.clone()), cause: error.into() })
            }
        }
        for bp in blocks {
            let is_allocated = claimed != Txg(0) || bp.logical_birth() <= last;
            if is_allocated && bp.validate().is_ok() && !bp.is_embedded() {
                checker.count_loose(found, &bp, BlockUse::Object(ObjType::INTENT_LOG));
            }
        }
    }
    held
}

/// Where a block is, if it is on a vdev.
fn place_of(bp: &BlockPtr) -> Option<BlockLocation> {
    let first = if bp.is_hole() || bp.is_embedded() { None } else { bp.dvas().next() };
    first.map(|dva| (dva.vdev, dva.offset))
}

/// Counts the blocks in a list of pointers. The list has no checksums, so they cannot be verified.
fn count_list(pool: &Pool, id: ObjectId, checker: &Checker<'_>, found: &mut Found) -> Result<(), Error> {
    Bpobj::open(pool.mos(), id)?.for_each(&mut |bp, _| {
        checker.count_loose(found, bp, BlockUse::DeferredFree);
        Ok(())
    })?;
    Ok(())
}

/// Datasets whose blocks are freed in the background.
fn being_destroyed(pool: &Pool, problems: &mut Vec<Problem>) -> Result<Vec<Walk>, Error> {
    let Some(id) = pool.spa().directory().object(names::directory::BPTREE_OBJ)? else {
        return Ok(Vec::new());
    };
    let object = pool.mos().object(id)?;
    let phys = BptreePhys::decode(object.bonus(), object.order())
        .map_err(|_| object.corrupt("the header of the tree of destroyed datasets"))?;
    let room = object.logical_end() / BPTREE_ENTRY_SIZE as u64;
    let mut walks = Vec::new();
    for index in phys.begin..phys.end.min(room) {
        let mut raw = [0; BPTREE_ENTRY_SIZE];
        object.read_numbers(index.saturating_mul(BPTREE_ENTRY_SIZE as u64), 8, &mut raw)?;
        let entry = BptreeEntry::decode(&raw, Endian::Little)
            .map_err(|_| object.corrupt("an entry of the tree of destroyed datasets"))?;
        // A sparse object can have any number of entries: the first invalid entry ends the list.
        if entry.bp.is_hole() || problems.len() >= PROBLEMS_MAX {
            return Err(object.corrupt("an entry of the tree of destroyed datasets").into());
        }
        let key = if entry.bp.uses_crypt() { KeyState::Locked } else { KeyState::None };
        match pool.mos().open_other(&entry.bp, 0, key) {
            Ok(objset) => walks.push(Walk { set: usize::MAX, objset, newer_than: entry.birth }),
            Err(error) => problems.push(Problem { subject: Subject::Destroyed, cause: error.into() }),
        }
    }
    Ok(walks)
}

/// Counts the blocks of destroyed clones, from their lists of blocks written and freed.
fn deleted_clones(pool: &Pool, checker: &Checker<'_>, found: &mut Found) -> Result<(), Error> {
    let Some((_, lists)) = pool.spa().directory().zap(names::directory::DELETED_CLONES)? else {
        return Ok(());
    };
    for entry in lists.entries() {
        let Some(id) = entry?.u64() else { continue };
        let list = Deadlist::open(pool.mos(), ObjectId(id))?;
        let mut live: BTreeMap<[u64; 2], (BlockPtr, i64)> = BTreeMap::new();
        list.for_each(&mut |bp, freed| {
            if let Some(dva) = bp.dvas().next() {
                live.entry(dva.to_words()).or_insert((*bp, 0)).1 += if freed { -1 } else { 1 };
            }
            Ok(())
        })?;
        // Files of a clone may share a block: each pointer has its own entry.
        for (bp, n) in live.into_values() {
            (0..n).for_each(|_| checker.count_loose(found, &bp, BlockUse::DeferredFree));
        }
    }
    Ok(())
}
