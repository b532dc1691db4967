//! Writing blocks to every leaf that holds them.
//!
//! A block becomes *tasks*, ranges of single leaves: one per side of a mirror, one per column of a RAID-Z
//! row. The tasks of a whole batch are sorted, adjacent ones are joined to *runs* of up to 1 MiB, and all
//! runs go to all leaves at once. Data are never copied here: a run is a list of slices of the callers'
//! blocks, of computed parity and of zeros.
//!
//! # What always holds
//! - A write succeeds only if the block can be read back from the leaves that took it: one side of a mirror,
//!   all but `nparity` columns of each row.
//! - A leaf that did not take its part has the birth of the block in its DTL when the call returns. A leaf is
//!   marked as written (for `flush`) only after the device has reported the write as done. Until then the
//!   write is marked as in flight: a flush that fails meanwhile may have lost it.
//! - No byte outside the extents of the batch is written, except that the padding sectors of a block's space
//!   on a RAID-Z are overwritten if that joins two runs.
//! - Leaves that the configuration took out of service are not written.
//!
//! # Order
//! lay out (maps, parity) -> tasks -> runs -> devices -> failed runs again, task by task -> judge.

use super::block::{Extent, Fault, FaultKind, on_device};
use super::error::{VdevError, WriteObstacle, check_size};
use super::leaf::Leaf;
use super::node::{Body, DEPTH_MAX, Vdev, VdevTree};
use super::stats::{Done, Op, Priority};
use crate::device::aligned::AlignedBuf;
use crate::device::{Device, DeviceError, WriteRequest, write_across};
use crate::geometry::{BlockMap, Row};
use codec::gf256;
use format::{Asize, DeviceOffset, Txg, VdevGuid};
use std::io::IoSlice;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Most bytes of a run.
const RUN_MAX: usize = 1 << 20;
/// Most slices of a run.
const SLICES_MAX: usize = 512;
/// Second tries of tasks on one leaf that may fail in a batch before the others are given up untried.
const SECOND_TRIES_FAILED_MAX: u32 = 8;
/// Zeros for padding. Two of the largest sectors: more padding than a column ever has.
static ZEROS: [u8; 128 << 10] = [0; 128 << 10];

/// A block of a batch of writes.
#[derive(Debug, Clone, Copy)]
pub struct Write<'a> {
    /// Range of the block; its `birth` is the txg that writes it.
    pub at: Extent,
    /// The bytes of the block, `at.psize` in number.
    pub data: &'a [u8],
}

/// A range of one leaf and its new contents.
struct Task<'t, 'd> {
    leaf: &'t Leaf,
    at: DeviceOffset,
    data: &'d [u8],
    /// Bytes of zeros that follow the data.
    padding: usize,
    birth: Txg,
    /// A padding sector, written only if it joins two other tasks.
    is_filler: bool,
    is_done: bool,
}

impl Task<'_, '_> {
    fn len(&self) -> usize {
        self.data.len() + self.padding
    }

    fn end(&self) -> u64 {
        self.at.0 + self.len() as u64
    }

    fn slices(&self) -> impl Iterator<Item = IoSlice<'_>> {
        [self.data, &ZEROS[..self.padding]].into_iter().filter(|slice| !slice.is_empty()).map(IoSlice::new)
    }
}

/// Result of a batch.
pub(super) struct Written {
    /// For each block, whether it can be read back from the leaves that took it now.
    pub(super) results: Vec<Result<(), VdevError>>,
    /// Whether all leaves that were tried took their parts.
    pub(super) is_complete: bool,
}

/// The tasks that must succeed for a block to be readable.
enum Need {
    /// The task with this index.
    Task(usize),
    /// A part that no leaf took.
    Lost,
    Any(Vec<Need>),
    All(Vec<Need>),
    /// All entries of each list but the given number.
    Rows(Vec<(usize, Vec<Need>)>),
}

impl Need {
    fn is_met(&self, tasks: &[Task<'_, '_>]) -> bool {
        match self {
            Need::Task(index) => tasks.get(*index).is_some_and(|task| task.is_done),
            Need::Lost => false,
            Need::Any(needs) => needs.iter().any(|need| need.is_met(tasks)),
            Need::All(needs) => needs.iter().all(|need| need.is_met(tasks)),
            Need::Rows(rows) => rows.iter().all(|(spare, columns)| {
                columns.iter().filter(|column| !column.is_met(tasks)).count() <= *spare
            }),
        }
    }
}

/// The layout of a block on a vdev, with its parity.
enum Layout<'t> {
    /// The same bytes on all leaves below.
    Whole(&'t Vdev),
    /// Sides of a mirror, each with a layout of its own.
    Sides(Vec<Layout<'t>>),
    Columns {
        children: &'t [Vdev],
        map: BlockMap,
        /// The parity columns of all rows, one after the other.
        parity: AlignedBuf,
        /// Padding sectors of the block's space: child and offset of each.
        skipped: Vec<(usize, i64)>,
    },
}

impl<'t> Layout<'t> {
    fn new(vdev: &'t Vdev, write: &Write<'_>, depth: usize) -> Option<Layout<'t>> {
        if depth > DEPTH_MAX {
            return None;
        }
        let at = &write.at;
        Some(match &vdev.body {
            Body::Raidz(raidz, children) => {
                let map = raidz.map(at.offset, at.psize, at.birth)?;
                let skipped = raidz.skipped(at.offset, at.psize, at.birth);
                Layout::Columns { children, parity: parity(&map, write.data)?, map, skipped }
            }
            Body::Draid(draid, children) => {
                let map = draid.map(at.offset, at.psize)?;
                Layout::Columns { children, parity: parity(&map, write.data)?, map, skipped: Vec::new() }
            }
            Body::Mirror(sides) if vdev.has_parity() => {
                let sides = sides.iter().map(|side| Layout::new(side, write, depth + 1));
                Layout::Sides(sides.collect::<Option<_>>()?)
            }
            _ => Layout::Whole(vdev),
        })
    }
}

/// Computes the parity of all rows.
fn parity(map: &BlockMap, block: &[u8]) -> Option<AlignedBuf> {
    let parity_of = |row: &Row| row.nparity * row.height() as usize;
    let mut all = AlignedBuf::new(map.rows.iter().map(parity_of).sum());
    let mut rest = &mut *all;
    for row in &map.rows {
        let data: Vec<&[u8]> = row.data().iter().map(|c| data_of(block, c.block_at, c.data)).collect();
        let (here, behind) = rest.split_at_mut(parity_of(row));
        let mut columns: Vec<&mut [u8]> = here.chunks_exact_mut(row.height() as usize).collect();
        gf256::generate(&data, &mut columns).ok()?;
        rest = behind;
    }
    Some(all)
}

/// A part of a block that may reach beyond its end, into the padding of its last sector.
fn data_of(block: &[u8], start: u64, len: u64) -> &[u8] {
    let start = (start as usize).min(block.len());
    let end = (start + len as usize).min(block.len());
    block.get(start..end).unwrap_or_default()
}

/// The tasks of a batch.
struct Plan<'t, 'd, 's> {
    tasks: Vec<Task<'t, 'd>>,
    /// Selects the leaves that are written.
    select: &'s dyn Fn(&Leaf) -> bool,
    sector: usize,
}

impl<'t, 'd> Plan<'t, 'd, '_> {
    /// The tasks of one block.
    fn block(&mut self, layout: &'d Layout<'t>, write: &Write<'d>) -> Need {
        let birth = write.at.birth;
        match layout {
            Layout::Whole(vdev) => {
                let at = i64::try_from(write.at.offset.0).unwrap_or(i64::MAX);
                let padding = write.data.len().next_multiple_of(self.sector) - write.data.len();
                self.place(vdev, at, write.data, padding, birth)
            }
            Layout::Sides(sides) => Need::Any(sides.iter().map(|side| self.block(side, write)).collect()),
            Layout::Columns { children, map, parity, skipped } => {
                let mut parity = &**parity;
                let mut rows = Vec::with_capacity(map.rows.len());
                for row in &map.rows {
                    let (here, behind) = parity.split_at(row.nparity * row.height() as usize);
                    parity = behind;
                    rows.push((row.nparity, self.row(children, row, here, write)));
                }
                self.fillers(children, skipped, birth);
                Need::Rows(rows)
            }
        }
    }

    fn row(&mut self, children: &'t [Vdev], row: &Row, parity: &'d [u8], write: &Write<'d>) -> Vec<Need> {
        let mut parity = parity.chunks_exact(row.height() as usize);
        let mut needs = Vec::with_capacity(row.columns.len());
        for (index, column) in row.columns.iter().enumerate().filter(|(_, column)| column.stored > 0) {
            let data = if index < row.nparity {
                parity.next().unwrap_or_default()
            } else {
                data_of(write.data, column.block_at, column.data)
            };
            let padding = column.stored as usize - data.len();
            needs.push(match children.get(column.child) {
                Some(child) => self.place(child, column.at, data, padding, write.at.birth),
                None => Need::Lost,
            });
        }
        needs
    }

    /// Adds tasks of zeros for the padding sectors of a block's space.
    fn fillers(&mut self, children: &'t [Vdev], skipped: &[(usize, i64)], birth: Txg) {
        let first = self.tasks.len();
        for (child, at) in skipped {
            if let Some(child) = children.get(*child) {
                self.place(child, *at, &[], self.sector, birth);
            }
        }
        self.tasks.iter_mut().skip(first).for_each(|task| task.is_filler = true);
    }

    /// Adds the tasks for all leaves below a vdev that is a leaf or has only mirrors below it.
    fn place(&mut self, vdev: &'t Vdev, at: i64, data: &'d [u8], padding: usize, birth: Txg) -> Need {
        match &vdev.body {
            Body::Leaf(leaf) => self.leaf(leaf, at, data, padding, birth),
            Body::Mirror(sides) => {
                Need::Any(sides.iter().map(|side| self.place(side, at, data, padding, birth)).collect())
            }
            _ => Need::Lost,
        }
    }

    fn leaf(&mut self, leaf: &'t Leaf, at: i64, data: &'d [u8], padding: usize, birth: Txg) -> Need {
        if !(self.select)(leaf) {
            return Need::Lost;
        }
        assert!(padding <= ZEROS.len(), "no column is padded by more than two sectors");
        let len = (data.len() + padding) as u64;
        let place = on_device(at).filter(|at| leaf.in_service().is_some() && leaf.covers(*at, len));
        let Some(at) = place else {
            leaf.memory().miss(birth);
            return Need::Lost;
        };
        let mut whole = Task { leaf, at, data, padding, birth, is_filler: false, is_done: false };
        let mut needs = Vec::new();
        while whole.data.len() > RUN_MAX {
            let (front, rest) = whole.data.split_at(RUN_MAX);
            needs.push(Need::Task(self.tasks.len()));
            self.tasks.push(Task { data: front, padding: 0, ..whole });
            whole = Task { data: rest, at: DeviceOffset(whole.at.0 + RUN_MAX as u64), ..whole };
        }
        let last = Need::Task(self.tasks.len());
        self.tasks.push(whole);
        if needs.is_empty() {
            return last;
        }
        needs.push(last);
        Need::All(needs)
    }
}

/// Joins adjacent tasks of a leaf into runs. Keeps padding sectors only between others.
fn join(tasks: &[Task<'_, '_>]) -> Vec<Vec<usize>> {
    let mut order: Vec<(usize, &Task<'_, '_>)> = tasks.iter().enumerate().collect();
    order.sort_by_key(|(_, task)| (task.leaf.guid.0, task.at.0));
    let mut runs: Vec<Vec<usize>> = Vec::new();
    let mut fillers: Vec<usize> = Vec::new();
    let (mut leaf, mut start, mut end) = (None, 0, 0);
    for (index, task) in order {
        let follows = leaf == Some(task.leaf.guid) && task.at.0 == end;
        if follows && task.is_filler {
            fillers.push(index);
            end = task.end();
            continue;
        }
        let fits = task.end().saturating_sub(start) <= RUN_MAX as u64;
        match runs.last_mut() {
            Some(run) if follows && fits && (run.len() + fillers.len() + 1) * 2 <= SLICES_MAX => {
                run.append(&mut fillers);
                run.push(index);
            }
            _ if task.is_filler => continue,
            _ => {
                runs.push(vec![index]);
                (leaf, start) = (Some(task.leaf.guid), task.at.0);
            }
        }
        fillers.clear();
        end = task.end();
    }
    runs
}

/// Writes all tasks, each to its leaf.
fn issue(tasks: &mut [Task<'_, '_>], is_repair: bool, called: Instant) {
    let runs = join(tasks);
    let mut batch: Vec<(&dyn Device, WriteRequest<'_>)> = Vec::with_capacity(runs.len());
    for run in &runs {
        let members = || run.iter().filter_map(|index| tasks.get(*index));
        let Some(first) = members().next() else { continue };
        let Some(device) = first.leaf.in_service() else { continue };
        batch.push((&**device, WriteRequest::new(first.at, members().flat_map(Task::slices).collect())));
    }
    assert_eq!(batch.len(), runs.len(), "tasks are made for leaves with a device only");
    let priority = Priority::of_write();
    count_begun(tasks, &runs, priority);
    let in_flight = births(tasks, &runs);
    in_flight.iter().for_each(|(leaf, birth)| leaf.memory().unflushed().begin(*birth));
    let start = Instant::now();
    let queued = start.saturating_duration_since(called);
    write_across(&mut batch);
    let took = start.elapsed();
    let results: Vec<_> = batch.into_iter().map(|(_, request)| request.result).collect();
    let mut budget = RetryBudget { leaf: None, left: 0 };
    for (run, result) in runs.iter().zip(results) {
        let mut len = 0;
        for index in run {
            let Some(task) = tasks.get_mut(*index) else { continue };
            len += task.len() as u64;
            task.is_done = match &result {
                Ok(()) => true,
                Err(_) if task.is_filler => false,
                Err(error) => task.retry(error, &mut budget),
            };
        }
        let members = || run.iter().filter_map(|index| tasks.get(*index));
        let Some(leaf) = members().next().map(|task| task.leaf) else { continue };
        let (op, is_joined) = (Op::Write, run.len() > 1);
        leaf.note_done(Done { op, priority, bytes: len, queued, took, is_joined });
        let mut unflushed = leaf.memory().unflushed();
        if is_repair {
            let done: u64 = members().filter(|task| task.is_done).map(|task| task.len() as u64).sum();
            leaf.counters().repaired_bytes.fetch_add(done, Ordering::Relaxed);
        }
        let births = if is_repair { &mut unflushed.repaired } else { &mut unflushed.written };
        for birth in members().filter(|task| task.is_done).map(|task| task.birth.0) {
            if !births.contains(birth) {
                births.insert(birth..birth.saturating_add(1));
            }
        }
    }
    in_flight.iter().for_each(|(leaf, birth)| leaf.memory().unflushed().end(*birth));
}

/// The written leaves, each with the births of its blocks. Runs are in the order of leaves, so a leaf occurs
/// a few times at most.
fn births<'t>(tasks: &[Task<'t, '_>], runs: &[Vec<usize>]) -> Vec<(&'t Leaf, Txg)> {
    let written = runs.iter().flatten().filter_map(|index| tasks.get(*index));
    let mut births: Vec<(&Leaf, Txg)> = written.map(|task| (task.leaf, task.birth)).collect();
    births.dedup_by_key(|(leaf, birth)| (leaf.guid, *birth));
    births
}

/// Marks the births that are about to be written to the leaves as in flight.
fn count_begun(tasks: &[Task<'_, '_>], runs: &[Vec<usize>], priority: Priority) {
    for run in runs {
        let members = || run.iter().filter_map(|index| tasks.get(*index));
        if let Some(first) = members().next() {
            first.leaf.memory().io.begin(priority);
        }
        if run.len() > 1 {
            members().for_each(|task| task.leaf.memory().io.individual(priority, task.len() as u64));
        }
    }
}

/// Number of second tries that may still fail on the leaf at hand. A broken disk can take half a minute for
/// each, and the txg is in its DTL after the first failure anyway.
struct RetryBudget {
    leaf: Option<VdevGuid>,
    left: u32,
}

impl Task<'_, '_> {
    /// Writes the task again, alone, after its run has failed. Returns whether it succeeded; a failure is
    /// counted against the leaf.
    fn retry(&self, error: &DeviceError, budget: &mut RetryBudget) -> bool {
        if budget.leaf != Some(self.leaf.guid) {
            *budget = RetryBudget { leaf: Some(self.leaf.guid), left: SECOND_TRIES_FAILED_MAX };
        }
        let is_hopeless = matches!(error, DeviceError::Gone | DeviceError::PowerOff | DeviceError::ReadOnly);
        if matches!(error, DeviceError::Gone) {
            self.leaf.memory().was_gone.store(true, Ordering::Release);
        }
        let slices: Vec<_> = self.slices().collect();
        let device = self.leaf.in_service().filter(|_| !is_hopeless && budget.left > 0);
        if device.is_some_and(|device| device.write_parts(&slices, self.at).is_ok()) {
            return true;
        }
        budget.left = budget.left.saturating_sub(1);
        self.leaf.counters().write_errors.fetch_add(1, Ordering::Relaxed);
        if self.leaf.memory().miss(self.birth) {
            tracing::warn!(leaf = %self.leaf.guid, at = %self.at, txg = %self.birth, %error, "write failed");
        }
        false
    }
}

impl VdevTree {
    /// Writes blocks, each to all leaves that hold it (mirror sides, RAID-Z columns and parity), padded with
    /// zeros to the sector. Results in the order of `writes`: success if enough leaves took the block that it
    /// can be read back. A leaf that failed or is missing has the block's birth in its DTL afterwards and,
    /// unless it is missing, a write error counted.
    ///
    /// The extents must not overlap. No block is durable before [`VdevTree::flush`].
    pub fn write_many(&self, writes: &[Write<'_>]) -> Vec<Result<(), VdevError>> {
        self.write_to(writes, &|_| true, false).results
    }

    /// Writes one block; see [`VdevTree::write_many`].
    ///
    /// # Errors
    /// [`VdevError`] if too few leaves took the block for it to be read back.
    pub fn write(&self, at: &Extent, data: &[u8]) -> Result<(), VdevError> {
        let mut results = self.write_many(&[Write { at: *at, data }]);
        results.pop().unwrap_or(Err(VdevError::NotWritten { vdev: at.vdev }))
    }

    /// Writes blocks to those of their leaves that `select` names.
    pub(super) fn write_to(
        &self,
        writes: &[Write<'_>],
        select: &dyn Fn(&Leaf) -> bool,
        is_repair: bool,
    ) -> Written {
        let called = Instant::now();
        let layouts: Vec<_> = writes.iter().map(|write| self.lay_out(write)).collect();
        let mut plan = Plan { tasks: Vec::with_capacity(writes.len()), select, sector: 512 };
        let mut needs = Vec::with_capacity(writes.len());
        for (write, layout) in writes.iter().zip(&layouts) {
            needs.push(layout.as_ref().map_err(Clone::clone).map(|(layout, sector)| {
                plan.sector = *sector;
                plan.block(layout, write)
            }));
        }
        let mut tasks = plan.tasks;
        issue(&mut tasks, is_repair, called);
        for task in tasks.iter().filter(|task| !task.is_done && !task.is_filler) {
            let fault = Fault { leaf: task.leaf.guid, offset: task.at, kind: FaultKind::Io };
            self.tell(Op::Write, &[fault], task.len() as u64);
            if is_repair {
                task.leaf.memory().note_unrepaired(task.birth);
            }
        }
        let judge = |(write, need): (&Write<'_>, Result<Need, VdevError>)| {
            need.and_then(|need| {
                need.is_met(&tasks).then_some(()).ok_or(VdevError::NotWritten { vdev: write.at.vdev })
            })
        };
        let results = writes.iter().zip(needs).map(judge).collect();
        Written { results, is_complete: tasks.iter().all(|task| task.is_done || task.is_filler) }
    }

    /// The layout of a block that can be written, and the sector of its vdev.
    fn lay_out(&self, write: &Write<'_>) -> Result<(Layout<'_>, usize), VdevError> {
        let at = &write.at;
        assert_eq!(write.data.len() as u64, at.psize.0, "an extent is as long as the block that goes there");
        check_size(at.psize)?;
        let top = self.find_top(at.vdev)?;
        if let Some(obstacle) = top.vdev.obstacle() {
            return Err(VdevError::CannotWrite { vdev: at.vdev, obstacle });
        }
        let misaligned = VdevError::Misaligned { vdev: at.vdev, offset: at.offset };
        if !at.offset.0.is_multiple_of(top.alignment()) {
            return Err(misaligned);
        }
        let asize = top.vdev.asize_of(at.psize, at.birth, top.ashift).unwrap_or(Asize(u64::MAX));
        // The end of a vdev without any device is unknown; no device can be written there anyway.
        let is_beyond = at.offset.0.checked_add(asize.0).is_none_or(|end| end > top.limit);
        if is_beyond && top.limit != 0 {
            return Err(VdevError::OutOfRange { vdev: at.vdev, offset: at.offset, asize });
        }
        let layout = Layout::new(&top.vdev, write, 0).ok_or(misaligned)?;
        Ok((layout, top.ashift.sector() as usize))
    }
}

impl Vdev {
    /// Why the vdev cannot be written; `None`: it can.
    fn obstacle(&self) -> Option<WriteObstacle> {
        match &self.body {
            Body::Raidz(raidz, _) if raidz.is_expanding() => Some(WriteObstacle::Expanding),
            Body::DistributedSpare(_) => Some(WriteObstacle::DistributedSpare),
            Body::Indirect => Some(WriteObstacle::Removed),
            Body::Hole => Some(WriteObstacle::Hole),
            _ => self.children().iter().find_map(Vdev::obstacle),
        }
    }
}
