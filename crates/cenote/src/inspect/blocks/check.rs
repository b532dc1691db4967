//! Counts each block and, if requested, reads it.
//!
//! # What always holds
//! - A block shared by deduplication or cloning is checked once, at its first pointer.
//! - If leaks are searched for, the extents of every block are removed from the allocated ranges; those of a shared
//!   block are removed once. Pointers share a block if they have the same location and physical birth.
//! - The pointers to each location in a block reference table, and each deduplicated pointer, are counted for
//!   comparison with the tables.

use super::{BlockUse, Check, CountedBy, Damaged, Miscount, Problem, Subject, Tally};
use crate::Pool;
use crate::block_walk::{BlockChecker, Walk};
use crate::error::Cause;
use crate::verify::plan::{Plan, Set};
use dmu::DmuError;
use dmu::traverse::Bookmark;
use format::dnode::Dnode;
use format::{AllocOffset, BlockPtr, ChecksumId, Level, Txg, VdevId};
use pool::allocated::Allocated;
use pool::dedup::{DedupCopies, DedupCounts};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use vdev::sync::lock;
use vdev::tree::VdevError;
use zio::{ReadPolicy, ZioError};

/// Maximum number of unreadable blocks in the report; all are counted.
const DAMAGED_MAX: usize = 10_000;
/// Maximum number of reported blocks whose space is not allocated to them; all are counted.
const STRAYS_MAX: usize = 1000;
/// Linux error numbers, by which `zdb` counts errors: a wrong checksum, and any other error.
const WRONG_CHECKSUM: i32 = 52;
const IO_ERROR: i32 = 5;

/// Location of a block.
pub(super) type BlockLocation = (VdevId, AllocOffset);

/// Blocks by place and birth: pointers that lead there, and their checksum.
type Unknown = HashMap<(BlockLocation, Txg), (u64, Option<ChecksumId>)>;

/// Counts blocks, and checks them.
pub(super) struct Checker<'a> {
    pub(super) pool: &'a Pool,
    pub(super) check: Check,
    /// Blocks that were cloned, and how many references beyond the first their tables count.
    pub(super) clones: HashMap<BlockLocation, u64>,
    /// Pointers to those that were met. `None`: there is one among them that another table counts.
    pub(super) references: Mutex<HashMap<BlockLocation, Option<u64>>>,
    /// References that dedup tables count.
    pub(super) dedup: DedupCounts,
    /// Deduplicated pointers to blocks that no dedup table contains, with their checksum algorithm.
    pub(super) unknown: Mutex<Unknown>,
    /// Copies of the blocks in dedup tables.
    pub(super) copies: DedupCopies,
    /// Binary logarithm of the metaslab size of each vdev.
    pub(super) shifts: HashMap<VdevId, u32>,
    /// Blocks of dedup tables and cloned blocks that were met, with the txg that wrote them, and how often.
    pub(super) seen: Mutex<HashMap<(BlockLocation, Txg), u64>>,
    /// Allocated ranges in which no block was found yet; `None` if leaks are not looked for.
    pub(super) allocated: Option<Allocated>,
}

/// Results of one thread, or of all threads.
#[derive(Default)]
pub(super) struct Found {
    pub(super) tally: Tally,
    pub(super) damaged: Vec<Damaged>,
    /// Number of unreadable blocks by error number.
    pub(super) errors: std::collections::BTreeMap<i32, u64>,
    pub(super) problems: Vec<Problem>,
    /// Blocks with an extent that is not allocated or belongs to another block, too: the first, and how many.
    pub(super) strays: (Vec<BlockPtr>, u64),
}

impl Found {
    fn stray(&mut self, bp: &BlockPtr) {
        self.strays.1 += 1;
        if self.strays.0.len() < STRAYS_MAX {
            self.strays.0.push(*bp);
        }
    }

    fn hit(&mut self, at: &Bookmark, bp: &BlockPtr, errno: i32, cause: Cause) {
        *self.errors.entry(errno).or_default() += 1;
        if self.damaged.len() < DAMAGED_MAX {
            self.damaged.push(Damaged { at: *at, bp: *bp, errno, cause });
        }
    }

    pub(super) fn merge(&mut self, other: Found) {
        self.tally.merge(&other.tally);
        for (errno, n) in other.errors {
            *self.errors.entry(errno).or_default() += n;
        }
        let room = DAMAGED_MAX.saturating_sub(self.damaged.len());
        self.damaged.extend(other.damaged.into_iter().take(room));
        self.problems.extend(other.problems);
        let room = STRAYS_MAX.saturating_sub(self.strays.0.len());
        self.strays.0.extend(other.strays.0.into_iter().take(room));
        self.strays.1 += other.strays.1;
    }
}

/// A block to check.
pub(super) struct Job {
    at: Bookmark,
    bp: BlockPtr,
}

/// The object sets of a plan, and what is wrong with those that cannot be opened.
pub(in crate::inspect) fn walks_of(plan: &Plan) -> (Vec<Walk>, Vec<Problem>) {
    let problem = |set: &Set| {
        let cause = set.failed()?.clone();
        Some(Problem { subject: Subject::Dataset(set.name.clone()), cause })
    };
    (plan.walks(), plan.sets.iter().filter_map(problem).collect())
}

impl Checker<'_> {
    /// Counts a block that is not in an object set.
    pub(super) fn count_loose(&self, found: &mut Found, bp: &BlockPtr, used: BlockUse) {
        if !bp.is_hole() {
            self.count(found, bp, used, 0);
        }
    }

    fn shift(&self, vdev: VdevId) -> u32 {
        self.shifts.get(&vdev).copied().unwrap_or(u32::MAX)
    }

    /// Counts a block. Returns true at its first pointer. A shared block is counted with the copies in its table,
    /// whatever the pointer says.
    fn count(&self, found: &mut Found, bp: &BlockPtr, used: BlockUse, level: u8) -> bool {
        let bp = &self.copies.complete(bp);
        found.tally.add(bp, used, level, &|vdev| self.shift(vdev));
        let Some(place) = bp.dvas().next().map(|dva| (dva.vdev, dva.offset)).filter(|_| !bp.is_embedded())
        else {
            return true;
        };
        let key = (place, bp.physical_birth());
        let is_clone = !bp.is_dedup() && self.clones.contains_key(&place);
        let is_counted = self.dedup.has(bp);
        if self.clones.contains_key(&place) {
            let mut references = lock(&self.references);
            let met = references.entry(place).or_insert(Some(0));
            *met = met.map(|met| met + 1).filter(|_| !is_counted);
        } else if bp.is_dedup() && !is_counted {
            let mut unknown = lock(&self.unknown);
            unknown.entry(key).or_insert((0, bp.checksum_kind().ok())).0 += 1;
        }
        if !(bp.is_dedup() || is_clone) || self.note_met(key) {
            self.take(found, bp);
            return true;
        }
        let asize: u64 = bp.dvas().map(|dva| dva.asize.0).sum();
        let shared = if is_clone { &mut found.tally.cloned } else { &mut found.tally.deduped };
        *shared = (shared.0.saturating_add(asize), shared.1 + 1);
        false
    }

    /// A block of those that are remembered was met. True the first time.
    fn note_met(&self, key: (BlockLocation, Txg)) -> bool {
        let mut seen = lock(&self.seen);
        let met = seen.entry(key).or_insert(0);
        *met += 1;
        *met == 1
    }

    /// The blocks of which a table counts other references than were met, by table and place. `held`:
    /// references that intent logs may have to each.
    pub(super) fn miscounted(&self, held: &HashMap<BlockLocation, u64>) -> Vec<Miscount> {
        let mut wrong = self.miscounted_clones(held);
        wrong.extend(self.miscounted_dedup(held));
        wrong.sort_unstable();
        wrong
    }

    fn miscounted_dedup(&self, held: &HashMap<BlockLocation, u64>) -> Vec<Miscount> {
        let by = CountedBy::DedupTable;
        let (seen, unknown) = (lock(&self.seen), lock(&self.unknown));
        let known = self.dedup.iter().filter_map(|(vdev, offset, birth, counted)| {
            let found = seen.get(&((vdev, offset), birth)).copied().unwrap_or(0);
            let most = found.saturating_add(held.get(&(vdev, offset)).copied().unwrap_or(0));
            let is_right = (found..=most).contains(&counted);
            (!is_right).then_some(Miscount { by, vdev, offset, counted, found })
        });
        // The block is freed with the first of two pointers that no table counts.
        let unknown = unknown.iter().filter_map(|(((vdev, offset), _), (found, checksum))| {
            let may_lack = *found == 1 && checksum.is_none_or(|checksum| self.dedup.may_lack(checksum));
            (!may_lack).then_some(Miscount { by, vdev: *vdev, offset: *offset, counted: 0, found: *found })
        });
        known.chain(unknown).collect()
    }

    fn miscounted_clones(&self, held: &HashMap<BlockLocation, u64>) -> Vec<Miscount> {
        let by = CountedBy::CloneTable;
        let references = lock(&self.references);
        self.clones
            .iter()
            .filter_map(|(place, extra)| {
                let found = references.get(place).copied().unwrap_or(Some(0))?;
                // References of a log may be to blocks that are free, if the records were on disk when the log was
                // claimed.
                let least = found.saturating_sub(1);
                let most = least.saturating_add(held.get(place).copied().unwrap_or(0));
                let is_right = (least..=most).contains(extra) && (found > 0 || *extra > 0);
                let counted = extra.saturating_add(1);
                (!is_right).then_some(Miscount { by, vdev: place.0, offset: place.1, counted, found })
            })
            .collect()
    }

    /// Removes the extents of a block from the allocated ranges.
    fn take(&self, found: &mut Found, bp: &BlockPtr) {
        let Some(allocated) = &self.allocated else { return };
        // The pieces of an unreadable gang block appear as leaks; the block itself is reported as damaged.
        let Ok(places) = self.pool.store().zio().places(bp) else { return };
        if places.iter().filter(|extent| !allocated.take(extent)).count() > 0 {
            found.stray(bp);
        }
    }

    fn is_checked(&self, bp: &BlockPtr) -> bool {
        match self.check {
            Check::Nothing => false,
            Check::Metadata => bp.level() > Level(0) || bp.obj_type().is_metadata(),
            Check::Everything => true,
        }
    }
}

impl BlockChecker for Checker<'_> {
    type Job = Job;
    type Found = Found;

    fn visit(
        &self,
        found: &mut Found,
        _: &Walk,
        at: &Bookmark,
        bp: &BlockPtr,
        _: Option<&Dnode>,
    ) -> Option<Job> {
        let level = u8::try_from(at.level.max(0)).unwrap_or(u8::MAX);
        let is_new = self.count(found, bp, BlockUse::of(bp.obj_type()), level);
        (is_new && !bp.is_embedded() && self.is_checked(bp)).then_some(Job { at: *at, bp: *bp })
    }

    /// Reads every copy of a block and verifies it.
    fn check(&self, found: &mut Found, job: Job) {
        if let Err(error) = self.pool.store().zio().check(&job.bp, &ReadPolicy::SCRUB).data {
            found.hit(&job.at, &job.bp, errno(&error), error.into());
        }
    }

    fn unreadable(&self, found: &mut Found, _: &Walk, at: &Bookmark, bp: &BlockPtr, error: Arc<DmuError>) {
        // A block without a good copy is reported by its check, if it is checked.
        let is_bad_copy = matches!(*error, DmuError::Zio { source: ZioError::Unreadable { .. }, .. });
        if !(is_bad_copy && self.is_checked(bp)) {
            let errno = if is_bad_copy { WRONG_CHECKSUM } else { IO_ERROR };
            found.hit(at, bp, errno, Cause::Object(error));
        }
    }
}

/// The error number by which `zdb` counts an error.
fn errno(error: &ZioError) -> i32 {
    match error {
        ZioError::Unreadable { source: VdevError::WrongChecksum, .. } | ZioError::Gang { .. } => {
            WRONG_CHECKSUM
        }
        _ => IO_ERROR,
    }
}
