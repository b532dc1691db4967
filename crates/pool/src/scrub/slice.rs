//! One slice of a scan: continuing the traversal at the last position, and checking blocks.

use crate::error::PoolError;
use crate::jobs::Budget;
use crate::live::LivePool;
use crate::scan::state::Failed;
use crate::scan::{Position, Run};
use crate::view::Pool;
use dmu::log;
use dmu::traverse::{Bookmark, Step, Visitor, WalkPosition, walk_from};
use dmu::{DmuError, ObjSet};
use dsl::{Dataset, Dir, DslError};
use format::dnode::Dnode;
use format::scan::ScanFunc;
use format::zil::{Body, block_seq};
use format::{BlockPtr, BpKind, ObjectId, Txg, VdevGuid};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;
use vdev::tree::{Priority, PriorityGuard};
use zio::{ReadPolicy, ZioError};

/// Number of blocks that are checked together, in the order of their addresses.
const BATCH: usize = 512;
/// Bytes of blocks that are checked together.
const BATCH_BYTES: u64 = 32 << 20;
/// Most errors of one slice that are logged with their places; all are counted.
const ERRORS_MAX: usize = 1000;
/// Level of intent log blocks in bookmarks.
const LOG_LEVEL: i64 = -2;
/// Number of parts of a scan.
const PASSES: u64 = 4;

/// A block to be checked.
#[derive(Clone, Copy)]
struct Check {
    at: Bookmark,
    bp: BlockPtr,
}

/// Result of one slice of the scan.
#[derive(Debug, Default)]
struct Outcome {
    examined: u64,
    issued: u64,
    errors: u64,
    failed: Vec<Failed>,
    is_incomplete: bool,
}

/// Checks the blocks of one dataset during its traversal.
struct Checker<'a> {
    pool: &'a LivePool,
    run: &'a Run,
    head: ObjectId,
    batch: Vec<Check>,
    batch_bytes: u64,
    outcome: &'a mut Outcome,
}

impl Checker<'_> {
    fn flush(&mut self) {
        let mut checks = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        let position = |check: &Check| check.bp.dvas().next().map(|dva| (dva.vdev, dva.offset));
        checks.sort_by_key(position);
        let zio = &self.pool.zio;
        let check = |check: &Check| {
            let _priority = PriorityGuard::begin(Priority::Scrub);
            match zio.check(&check.bp, &ReadPolicy::SCRUB).data {
                Ok(_) | Err(ZioError::Redacted { .. }) => None,
                Err(error) => Some(error),
            }
        };
        let errors = self.pool.env.map(&checks, check);
        for (check, error) in checks.iter().zip(errors).filter_map(|(check, error)| Some((check, error?))) {
            self.outcome.errors += 1;
            self.pool.tree().note_unreadable(check.bp.physical_birth());
            if self.outcome.failed.len() < ERRORS_MAX {
                let failed = Failed { head: self.head, at: check.at, birth: check.bp.logical_birth() };
                self.pool.post_damage(&failed, &error);
                self.outcome.failed.push(failed);
            }
        }
    }
}

/// Allocated bytes of a block.
fn size_of(bp: &BlockPtr) -> u64 {
    match bp.kind() {
        BpKind::Normal | BpKind::Gang => bp.dvas().map(|dva| dva.asize.0).sum(),
        BpKind::Embedded | BpKind::Hole | BpKind::Redacted => 0,
    }
}

impl Checker<'_> {
    /// Checks the log of a head if it is claimed and not yet replayed. An unclaimed log is skipped: its
    /// records only matter after a crash, which claims it.
    fn log(&mut self, objset: &ObjSet) {
        let header = objset.phys().zil;
        if header.log.is_hole() || header.claim_txg == Txg(0) {
            return;
        }
        let (zio, number) = (Arc::clone(&self.pool.zio), objset.number());
        let (mut blocks, mut data) = (Vec::new(), Vec::new());
        let at = |object, blkid| Bookmark { objset: number, object, level: LOG_LEVEL, blkid };
        let walked = log::walk_chain(
            &zio,
            number,
            &header,
            &mut |bp| {
                blocks.push(*bp);
                true
            },
            &mut |record| {
                if let Ok(Body::Write { object, offset, bp, .. }) = record.decode().map(|record| record.body)
                    && bp.logical_birth() >= header.claim_txg
                {
                    data.push((at(object, offset / bp.lsize().0.max(1)), bp));
                }
                true
            },
        );
        self.outcome.is_incomplete |= walked.is_err();
        // The last block was allocated, but may never have been written.
        let is_written = |bp: &BlockPtr| matches!(zio.read_log_block(bp, None), Ok(Some(_)));
        blocks.pop_if(|last| !is_written(last));
        for bp in &blocks {
            self.block(&at(ObjectId(0), block_seq(bp)), bp, None);
        }
        for (at, bp) in &data {
            self.block(at, bp, None);
        }
    }
}

impl Visitor for Checker<'_> {
    fn block(&mut self, at: &Bookmark, bp: &BlockPtr, _: Option<&Dnode>) -> Step {
        let bytes = size_of(bp);
        // Blocks written since the scan began are on all leaves. A clone may be young while its block is old.
        if bytes == 0 || bp.physical_birth() > self.run.phys.max_txg {
            return if matches!(bp.kind(), BpKind::Redacted) { Step::Over } else { Step::Into };
        }
        self.outcome.examined += bytes;
        if self.run.phys.func == ScanFunc::Resilver && !self.pool.zio.is_lacking(bp) {
            return Step::Into;
        }
        self.outcome.issued += bytes;
        self.batch.push(Check { at: *at, bp: *bp });
        self.batch_bytes += bytes;
        if self.batch.len() >= BATCH || self.batch_bytes >= BATCH_BYTES {
            self.flush();
        }
        Step::Into
    }

    fn unreadable(&mut self, at: &Bookmark, bp: &BlockPtr, error: DmuError) -> Step {
        // A scrub checks the block itself, too, and reports it there. The blocks below are skipped.
        self.outcome.is_incomplete = true;
        let is_told = self.run.phys.func == ScanFunc::Scrub
            && matches!(error, DmuError::Zio { source: ZioError::Unreadable { .. }, .. });
        if !is_told {
            self.outcome.errors += 1;
            self.outcome.failed.push(Failed { head: self.head, at: *at, birth: bp.logical_birth() });
        }
        Step::Into
    }
}

/// Shares a checker with the closure that ends the traversal.
struct Shared<'c, 'a>(&'c RefCell<Checker<'a>>);

impl Visitor for Shared<'_, '_> {
    fn block(&mut self, at: &Bookmark, bp: &BlockPtr, dnode: Option<&Dnode>) -> Step {
        self.0.borrow_mut().block(at, bp, dnode)
    }

    fn unreadable(&mut self, at: &Bookmark, bp: &BlockPtr, error: DmuError) -> Step {
        self.0.borrow_mut().unreadable(at, bp, error)
    }
}

/// A dataset to traverse, or the MOS.
struct Target {
    objset: Arc<ObjSet>,
    head: ObjectId,
    newer_than: Txg,
}

impl LivePool {
    /// Runs one slice. Returns true when the scan has visited all blocks.
    pub(crate) fn scan_slice(&self, run: &mut Run, budget: Budget) -> Result<bool, PoolError> {
        let gate = self.jobs.gate();
        let _reading = gate.enter(|| self.txgs.synced_txg());
        let view = self.view()?;
        let before = self.tree().repaired_bytes();
        let mut outcome = Outcome::default();
        let walked = self.walk_targets(&view, run, budget, &mut outcome);
        if self.jobs.is_closing() || self.suspended().is_some() {
            // Reads may have failed because of that: the slice is repeated.
            return Ok(false);
        }
        let (is_done, position, targets) = walked;
        (run.position, run.targets) = (position, targets);
        run.phys.examined = run.phys.examined.saturating_add(outcome.examined);
        run.phys.errors = run.phys.errors.saturating_add(outcome.errors);
        run.phys.skipped = run.phys.skipped.saturating_add(outcome.examined - outcome.issued);
        let repaired = self.tree().repaired_bytes().saturating_sub(before);
        run.phys.processed = run.phys.processed.saturating_add(repaired);
        run.issued = run.issued.saturating_add(outcome.issued);
        run.pass_examined = run.pass_examined.saturating_add(outcome.examined);
        run.pass_issued = run.pass_issued.saturating_add(outcome.issued);
        run.is_incomplete |= outcome.is_incomplete;
        run.errors.extend(outcome.failed);
        self.drop_who_left(run);
        Ok(is_done)
    }

    /// Traverses dataset after dataset until the budget is spent. Returns whether all are done, and the
    /// position.
    fn walk_targets(
        &self,
        view: &Arc<Pool>,
        run: &Run,
        budget: Budget,
        outcome: &mut Outcome,
    ) -> (bool, Position, Option<VecDeque<(Txg, ObjectId)>>) {
        let (mut position, mut targets) = (run.position, run.targets.clone());
        let deadline = self.env.clock().monotonic() + budget.time;
        let left = Cell::new(budget.bytes);
        while position.pass < PASSES {
            let list = targets.get_or_insert_with(|| match list(view, position.pass, run.phys.max_txg) {
                Ok(mut list) => {
                    list.retain(|target| *target >= position.at);
                    list
                }
                Err(error) => {
                    tracing::warn!(pool = self.name, %error, "datasets cannot be listed");
                    outcome.is_incomplete = true;
                    VecDeque::new()
                }
            });
            let Some(next) = list.front().copied() else {
                position = Position { pass: position.pass + 1, ..Position::default() };
                targets = None;
                continue;
            };
            if next != position.at {
                (position.at, position.place) = (next, WalkPosition::START);
            }
            if self.jobs.gate().is_wanted() || left.get() == 0 || self.env.clock().monotonic() > deadline {
                return (false, position, targets);
            }
            let target = match open_target(view, position.pass, next, run) {
                Ok(target) => target,
                Err(error) => {
                    tracing::warn!(pool = self.name, dataset = next.1.0, %error, "a dataset cannot be walked");
                    outcome.is_incomplete = true;
                    outcome.errors += 1;
                    None
                }
            };
            let stopped = target
                .and_then(|target| self.walk_one(&target, run, position.place, deadline, &left, outcome));
            match stopped {
                Some(place) => {
                    position.place = place;
                    return (false, position, targets);
                }
                None => {
                    list.pop_front();
                    // What comes next is not before this one, should the list be made anew.
                    (position.at, position.place) = ((next.0, ObjectId(next.1.0 + 1)), WalkPosition::START);
                }
            }
        }
        (true, position, None)
    }

    fn walk_one(
        &self,
        target: &Target,
        run: &Run,
        from: WalkPosition,
        deadline: Duration,
        left: &Cell<u64>,
        outcome: &mut Outcome,
    ) -> Option<WalkPosition> {
        let issued = outcome.issued;
        let checker = RefCell::new(Checker {
            pool: self,
            run,
            head: target.head,
            batch: Vec::new(),
            batch_bytes: 0,
            outcome,
        });
        if from == WalkPosition::START && target.head.0 == target.objset.number() {
            checker.borrow_mut().log(&target.objset);
        }
        let gate = self.jobs.gate();
        let mut visited = 0_u64;
        let mut until = |place: &WalkPosition| {
            visited += 1;
            // At least one step is made in any case.
            let is_spent = checker.borrow().outcome.issued.saturating_sub(issued) >= left.get();
            *place > from
                && (is_spent
                    || gate.is_wanted()
                    || (visited.is_multiple_of(64) && self.env.clock().monotonic() > deadline))
        };
        let stopped = walk_from(&target.objset, target.newer_than, from, &mut Shared(&checker), &mut until);
        let mut checker = checker.into_inner();
        checker.flush();
        left.set(left.get().saturating_sub(checker.outcome.issued - issued));
        stopped
    }

    /// Drops leaves that changed since the scan began, because they may lack data.
    fn drop_who_left(&self, run: &mut Run) {
        let tree = self.tree();
        let status = tree.status();
        run.served.retain(|leaf, known| {
            let is_same = tree.device(*leaf).is_some_and(|now| Weak::ptr_eq(&Arc::downgrade(&now), known));
            let in_service =
                status.find(*leaf).is_some_and(|leaf| leaf.state >= vdev::tree::VdevState::Degraded);
            is_same && in_service
        });
    }

    /// The leaves that are in service now.
    pub(crate) fn leaves_in_service(&self) -> HashMap<VdevGuid, Weak<dyn vdev::Device>> {
        crate::scan::in_service(&self.tree())
    }
}

/// The datasets of a part, in its order.
fn list(view: &Arc<Pool>, pass: u64, max_txg: Txg) -> Result<VecDeque<(Txg, ObjectId)>, DslError> {
    if pass == 0 {
        return Ok(VecDeque::from([(Txg(0), ObjectId(0))]));
    }
    let mut all = Vec::new();
    let mut seen = HashSet::new();
    let mut dirs: Vec<Dir> = vec![view.dsl().root()?];
    while let Some(dir) = dirs.pop() {
        if !seen.insert(dir.id()) {
            continue; // A damaged pool may have loops.
        }
        dirs.extend(dir.children()?);
        dirs.extend(dir.hidden_children()?);
        let Some(head) = dir.head()? else { continue };
        if pass == 2 {
            all.push((Txg(0), head.id()));
            continue;
        }
        for snapshot in head.snapshots()? {
            let phys = snapshot.phys();
            let is_old = phys.creation_txg <= max_txg;
            if is_old == (pass == 1) && phys.prev_snap_txg < max_txg {
                all.push((phys.creation_txg, snapshot.id()));
            }
        }
    }
    all.sort_unstable();
    Ok(all.into())
}

/// Opens a dataset of the list. `None`: it has no blocks to visit, or it was destroyed.
fn open_target(
    view: &Arc<Pool>,
    pass: u64,
    (txg, id): (Txg, ObjectId),
    run: &Run,
) -> Result<Option<Target>, DslError> {
    let phys = &run.phys;
    if pass == 0 {
        let newer_than = phys.min_txg;
        return Ok(Some(Target { objset: Arc::clone(view.mos()), head: ObjectId(0), newer_than }));
    }
    let dataset = match view.dsl().dataset_by_object(id) {
        Ok(dataset) => dataset,
        // Destroyed meanwhile.
        Err(_)
            if view
                .mos()
                .object(id)
                .map_or(true, |object| object.dnode().bonus_type != format::ObjType::DSL_DATASET) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    // Its object number was reused.
    if dataset.is_snapshot() == (pass == 2) || (pass != 2 && dataset.phys().creation_txg != txg) {
        return Ok(None);
    }
    let newer_than = older_end(view, &dataset, pass, phys.max_txg)?.max(phys.min_txg);
    if newer_than >= phys.max_txg {
        return Ok(None);
    }
    let head = dataset.dir().head()?.map_or(id, |head| head.id());
    match dataset.open_objset() {
        Ok(objset) => Ok(Some(Target { objset, head, newer_than })),
        Err(DslError::Dmu(DmuError::Empty { .. })) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The txg up to which the previous snapshot has the blocks. A head is traversed as if it had no snapshots
/// younger than the scan.
fn older_end(view: &Arc<Pool>, dataset: &Dataset, pass: u64, max_txg: Txg) -> Result<Txg, DslError> {
    let mut newer_than = dataset.phys().prev_snap_txg;
    let mut before = dataset.phys().prev_snap;
    let mut last = newer_than;
    while pass == 2 && newer_than >= max_txg {
        let Some(id) = before else { break };
        let snapshot = view.dsl().dataset_by_object(id)?;
        (newer_than, before) = (snapshot.phys().prev_snap_txg, snapshot.phys().prev_snap);
        if newer_than >= last {
            break; // A damaged chain.
        }
        last = newer_than;
    }
    Ok(newer_than)
}
