//! Writing one transaction group (docs/on-disk/10-overview.md, sections 5.1 and 6).
//!
//! [`write_txg`] lists the steps; the other functions here implement them.
//!
//! # What always holds
//! - Sync tasks see every dataset change of their txg, written and accounted for.
//! - The passes end: from the second on blocks of this txg are overwritten in place, from the sixth on no
//!   block is compressed, so that soon no block changes its place.
//! - A txg without changes writes no block.
//! - Writes that a leaf misses before the flush of the data are in the DTLs of that same txg; writes that it
//!   misses later, when labels are flushed, are recorded in a txg of their own. A leaf that misses writes of
//!   that txg too waits for the next txg or until the pool is idle, so txgs do not run back to back for it.
//! - A task that failed has left the MOS unchanged; otherwise its txg is not written.
//! - After an error every block that the last uberblock references is intact.

use crate::directory::Directory;
use crate::error::{CommitFailure, CommitStep, PoolError, chain};
use crate::history::record as history;
use crate::labels::Commit;
use crate::leases::Leases;
use crate::live::{LivePool, PoolTask, State};
use crate::space;
use crate::{claim, config, dtl, leaf_service, leases, removal};
use dmu::{SyncTx, TxError};
use dsl::Space;
use dsl::bpobj::Bpobj;
use format::names;
use vdev::sync::lock;

use dsl::charge::charge_mos;
use dsl::{Caller, MosTx, Tally, TaskCtx, free_lists};
use format::bpobj::StoredBlock;
use format::uberblock::Uberblock;
use format::{BlockPtr, Txg};
use std::sync::Arc;
use zio::AllocTx;
use zio::alloc::AllocClass;

/// Number of passes that no correct sync exceeds.
const PASSES_MAX: u32 = 64;
/// Most repeated flushes of a txg after leaves have lost some of its writes.
const LOSSES_MAX: u32 = 8;
/// First pass whose frees are deferred to the next txg, in pools without log space maps.
const DEFER_PASS: u32 = 2;

/// Writes all changes of a txg. On success the txg is the state of the pool.
pub(crate) fn write_txg(pool: &LivePool, state: &mut State, tx: &SyncTx) -> Result<(), PoolError> {
    leaf_service::diagnose(pool, state);
    let mut sync = TxgSync::new(pool, state, tx);
    sync.claim_logs()?;
    sync.write_heads()?;
    sync.run_tasks()?;
    sync.free_waiting_blocks()?;
    sync.write_history()?;
    let (mut is_written, mut losses) = (false, 0);
    loop {
        sync.write_configuration()?;
        sync.write_space_maps()?;
        if !sync.is_mos_dirty() {
            if is_written && losses < LOSSES_MAX && sync.flush_has_lost()? {
                losses += 1;
                continue;
            }
            break;
        }
        is_written = true;
        sync.write_mos()?;
        sync.next_pass()?;
    }
    tracing::debug!(pool = pool.name, txg = tx.txg().0, passes = tx.pass() - 1, "written");
    if is_written || sync.state.is_forced {
        sync.commit()?;
    }
    sync.finish()
}

/// The sync of one txg.
struct TxgSync<'a> {
    pool: &'a LivePool,
    state: &'a mut State,
    tx: &'a SyncTx,
    ctx: TaskCtx<'a>,
}

impl<'a> TxgSync<'a> {
    fn new(pool: &'a LivePool, state: &'a mut State, tx: &'a SyncTx) -> TxgSync<'a> {
        let ctx = TaskCtx {
            mos: &pool.mos,
            tx,
            zio: &pool.zio,
            env: &pool.env,
            features: &pool.features,
            brt: &pool.brt,
            heads: &pool.heads,
            pool_name: &pool.name,
            caller: Caller::Root,
            notes: Vec::new(),
        };
        TxgSync { pool, state, tx, ctx }
    }

    fn m(&self) -> MosTx<'a> {
        self.ctx.m()
    }

    // ---- pass 1 ------------------------------------------------------------------------------

    fn claim_logs(&mut self) -> Result<(), PoolError> {
        let claims = std::mem::take(&mut self.state.claims);
        // After a rewind, the txg found on disk is older than the previous one.
        self.state.claimed = claim::run(self.pool, self.m(), &claims, self.state.uberblock.txg)?;
        if !claims.is_empty() {
            // The heads stay in use until the claimed blocks are accounted for.
            self.pool.heads.sync_all(&mut self.ctx)?;
        }
        Ok(())
    }

    fn write_heads(&mut self) -> Result<(), PoolError> {
        self.pool.brt.apply(self.m())?;
        self.pool.heads.sync_all(&mut self.ctx)?;
        Ok(())
    }

    /// Runs the tasks submitted while the txg was open, and writes the heads that they created or changed.
    fn run_tasks(&mut self) -> Result<(), PoolError> {
        let ready = self.pool.take_tasks(self.tx.txg());
        if ready.is_empty() {
            return Ok(());
        }
        let _steady = self.pool.heads.exclusive();
        for task in ready {
            let before = self.pool.mos.change_count();
            let done = (task.run)(&mut self.ctx, &mut PoolTask { pool: self.pool, state: self.state });
            match done {
                Err(why) if self.pool.mos.change_count() != before => {
                    return Err(PoolError::HalfDone { why });
                }
                _ => {}
            }
        }
        self.pool.heads.sync_all(&mut self.ctx)?;
        Ok(())
    }

    /// Frees some of the waiting blocks, of destroyed datasets and snapshots.
    fn free_waiting_blocks(&mut self) -> Result<(), PoolError> {
        let m = self.m();
        let mut budget = free_lists::Budget::per_txg();
        free_lists::background(m, &self.pool.brt, &mut budget)?;
        if budget.is_spent() {
            // The rest is freed in the next txg, which starts without waiting for another change.
            self.pool.txgs.kick();
        }
        self.pool.brt.flush(m)?;
        if removal::obsolete::drain_list(m, &self.pool.zio)? {
            self.pool.txgs.kick();
        }
        removal::condense::condense_some(self.pool, self.state, m)
    }

    /// Frees the blocks that earlier txgs have deferred.
    fn free_deferred(&self) -> Result<(), PoolError> {
        let m = self.m();
        let Some(list) = m.entry(names::directory::SYNC_BPLIST)? else { return Ok(()) };
        let mut freed = Ok(());
        let mut all = free_lists::Budget { blocks: u64::MAX };
        Bpobj::consume(m, list, &mut all, &mut |stored, _| {
            if freed.is_ok() {
                freed = self.pool.zio.free(&stored.bp, self.tx);
            }
            Ok(())
        })?;
        Ok(freed?)
    }

    fn write_history(&mut self) -> Result<(), PoolError> {
        let notes = std::mem::take(&mut self.ctx.notes);
        notes.iter().for_each(|note| history::announce(self.pool, note, self.tx.txg()));
        history::write_notes(self.m(), &notes, &self.pool.host.name)
    }

    // ---- every pass --------------------------------------------------------------------------

    /// Writes the DTLs and the configuration if they have changed.
    fn write_configuration(&mut self) -> Result<(), PoolError> {
        let m = self.m();
        if self.pool.features.take_label_change() {
            self.state.mark_all();
        }
        if dtl::write_changed(m, &self.pool.tree(), &mut self.state.config)? {
            self.state.mark_all();
        }
        if std::mem::take(&mut self.state.is_config_changed) {
            let features = self.pool.features.label_features();
            self.state.config.features_for_read = features.into_iter().map(str::to_owned).collect();
            self.state.config.txg = self.tx.txg();
            config::write(m, &self.state.config)?;
        }
        Ok(())
    }

    /// Writes space maps. In pass 1 some maps are first condensed: they then have the state before this txg,
    /// and its changes are appended.
    fn write_space_maps(&mut self) -> Result<(), PoolError> {
        let (m, pool, txg) = (self.m(), self.pool, self.tx.txg());
        let is_first = self.tx.pass() == 1;
        let flush_all = is_first && std::mem::take(&mut self.state.flush_all);
        let is_changed = flush_all || pool.allocator.has_changes(txg) || self.is_mos_dirty();
        if is_first && is_changed {
            pool.space.begin(m, &pool.allocator, flush_all)?;
            self.free_deferred()?;
        }
        pool.keep_for_checkpoint(m, self.state)?;
        removal::obsolete::write(m, &self.state.config.vdev_tree, pool.zio.take_obsolete())?;
        pool.space.write(m, &pool.allocator, &pool.allocator.take_changes(txg))
    }

    fn is_mos_dirty(&self) -> bool {
        self.pool.mos.is_dirty(self.tx.txg())
    }

    /// Writes the MOS. Its own space is charged to it, which changes it again, but no longer its size.
    fn write_mos(&mut self) -> Result<(), PoolError> {
        let mut tally = Tally::new(&self.pool.zio);
        self.pool.mos.sync(self.tx, &mut tally)?;
        self.free(&tally.killed)?;
        charge_mos(self.m(), tally.delta)?;
        Ok(())
    }

    /// Frees blocks of the MOS, now or in the next txg. A free changes space maps, so without log space maps
    /// the passes might not end.
    fn free(&self, blocks: &[BlockPtr]) -> Result<(), PoolError> {
        let m = self.m();
        if self.tx.pass() < DEFER_PASS || m.features.is_active("log_spacemap") {
            for bp in blocks {
                self.pool.zio.free(bp, self.tx)?;
            }
            return Ok(());
        }
        let stored: Vec<StoredBlock> = blocks.iter().filter_map(|bp| StoredBlock::new(bp, false)).collect();
        if let (Some(list), false) = (m.entry(names::directory::SYNC_BPLIST)?, stored.is_empty()) {
            let space = blocks.iter().fold(Space::default(), |sum, bp| sum.plus(m.space_of(bp)));
            Bpobj::append(m, list, &stored, space)?;
        }
        Ok(())
    }

    fn next_pass(&self) -> Result<(), PoolError> {
        let pass = self.tx.next_pass();
        assert!(pass <= PASSES_MAX, "a txg is still changing after {PASSES_MAX} passes");
        Ok(())
    }

    /// Flushes the blocks written so far. Returns true if a leaf has lost some of them: its DTL must then be
    /// in this txg, because the leaf must not be trusted after a crash.
    fn flush_has_lost(&self) -> Result<bool, PoolError> {
        let failed = |cause| PoolError::Commit {
            txg: self.tx.txg(),
            step: CommitStep::Flush,
            why: CommitFailure::Flush(cause),
        };
        self.pool.zio.flush_written().map_err(failed)?;
        Ok(self.pool.tree().take_has_lost())
    }

    // ---- the end -----------------------------------------------------------------------------

    /// Commits the txg.
    fn commit(&mut self) -> Result<(), PoolError> {
        self.pool.mmp_check()?;
        let uberblock = self.uberblock();
        let commit = Commit {
            zio: &self.pool.zio,
            config: &self.state.config,
            uberblock: &uberblock,
            dirty: &self.state.dirty,
            skip: &[],
            turn: self.pool.env.random(),
            waits: &|error| self.pool.wait_out(&chain(error)),
        };
        commit.run()?;
        self.state.uberblock = uberblock;
        self.state.dirty.clear();
        self.state.is_forced = false;
        Ok(())
    }

    fn uberblock(&self) -> Uberblock {
        let old = &self.state.uberblock;
        Uberblock {
            version: self.state.config.version,
            txg: self.tx.txg(),
            guid_sum: self.state.config.vdev_tree.guid_sum(),
            timestamp: self.pool.env.clock().wall().as_secs(),
            root: self.pool.mos.root_bp(),
            software_version: config::VERSION,
            mmp: Some(self.pool.mmp.words_of_txg()),
            checkpoint_txg: Txg(0),
            reflow: old.reflow,
            order: format::Endian::Little,
        }
    }

    /// Makes space reusable that was freed two txgs ago, and publishes the free space.
    fn finish(&mut self) -> Result<(), PoolError> {
        let txg = self.tx.txg();
        self.pool.jobs.gate().pass(txg);
        self.pool.reuse_freed(txg);
        self.pool.renew_tree(self.state)?;
        self.pool.announce_space()?;
        self.pool.announce_free(txg);
        self.pool.heads.finish_txg(txg)?;
        let has_lost = self.pool.tree().take_has_lost();
        if self.state.losses.note(has_lost) {
            self.pool.txgs.kick();
        }
        Ok(())
    }
}

impl LivePool {
    /// Makes callers that wait for a txg write it themselves.
    pub(crate) fn sync_inline(self: &Arc<Self>) {
        let pool = Arc::downgrade(self);
        self.txgs.set_inline(Some(Arc::new(move || {
            let pool = pool.upgrade().ok_or(TxError::Closed)?;
            match pool.sync_here() {
                Ok(_) => Ok(()),
                Err(PoolError::Tx(error)) => Err(error),
                Err(error) => Err(TxError::Suspended { why: error.to_string() }),
            }
        })));
    }

    /// Writes one txg on the calling thread: for a pool whose caller has its own sync thread.
    ///
    /// # Errors
    /// [`PoolError::Tx`] if the txg could not be written: the pool is suspended then.
    pub fn sync_here(&self) -> Result<Txg, PoolError> {
        let mut state = lock(&self.state);
        if let Some(error) = &state.stopped {
            return Err(error.clone().into());
        }
        let tx = self.txgs.quiesce();
        if let Some(error) = self.txgs.failure() {
            state.stopped = Some(error.clone());
            drop(state);
            self.note_failure();
            return Err(error.into());
        }
        let _insist = zio::Insist::begin();
        self.finish(&mut state, tx)
    }

    /// Wakes the threads that wait for devices if the pool takes no more writes.
    pub(crate) fn note_failure(&self) {
        if let Some(TxError::Suspended { why }) = self.txgs.failure() {
            self.note_stopped(&why);
        }
    }

    /// Writes a closed txg.
    pub(crate) fn finish(&self, state: &mut State, tx: SyncTx) -> Result<Txg, PoolError> {
        let txg = tx.txg();
        let fuse = Fuse(self);
        // If the write panics, no later txg may build on its partial changes.
        state.stopped = Some(Fuse::blown());
        let now = || self.env.clock().monotonic();
        let writing = self.txg_history.begin(txg, self.txgs.meter().of(txg), now(), &self.tree());
        match write_txg(self, state, &tx) {
            Ok(()) => {
                state.stopped = None;
                drop(fuse);
                self.txg_history.end(&writing, now(), &self.tree());
                self.publish(state);
                self.txgs.finish(tx);
                self.outages.note_txg();
                Ok(txg)
            }
            Err(error) => {
                let error = chain(&error);
                tracing::error!(pool = self.name, txg = txg.0, error, "the txg was not written");
                self.note_stopped(&error);
                let error = TxError::Suspended { why: error };
                state.stopped = Some(error.clone());
                self.txgs.fail(error.clone());
                Err(error.into())
            }
        }
    }

    /// Writes a txg for the work that waits until the pool is idle. Called after a pause without changes.
    pub(crate) fn when_idle(&self) {
        if std::mem::take(&mut lock(&self.state).losses.are_waiting) {
            self.txgs.kick();
        }
    }

    /// Takes the tasks of this txg, in the order of submission.
    fn take_tasks(&self, txg: Txg) -> Vec<crate::live::Task> {
        let mut waiting = lock(&self.tasks);
        let (mut ready, mut later) = (Vec::new(), Vec::new());
        let mut is_taken = false;
        for task in waiting.drain(..) {
            let is_ready = task.txg <= txg && !(task.is_alone && is_taken);
            is_taken |= is_ready && task.is_alone;
            if is_ready { ready.push(task) } else { later.push(task) }
        }
        *waiting = later;
        ready
    }

    /// After a txg is on disk: makes earlier frees reusable, as far as no view holds them.
    pub(crate) fn reuse_freed(&self, txg: Txg) {
        let totals = self.allocator.totals(AllocClass::Normal);
        let is_old = |leases: &Leases| leases.oldest().0 < txg.0.saturating_sub(2);
        let is_short = totals.size.saturating_sub(totals.allocated) < totals.size / leases::SHORT;
        if is_old(&self.leases) && (is_short || totals.deferred > totals.size / leases::SHARE) {
            tracing::debug!(pool = self.name, "old views of the pool hold back too much, and lapse");
            self.leases.lapse();
        }
        self.allocator.synced_for(txg, self.leases.oldest());
        self.leases.note_holding_back(is_old(&self.leases));
    }

    /// Reports the allocatable bytes after this txg to the heads.
    pub(crate) fn announce_free(&self, synced: Txg) {
        let totals = self.allocator.totals(AllocClass::Normal);
        let taken = totals.deflated_allocated.saturating_add(totals.deflated_deferred);
        // The free space of a vdev that is being removed is not used any more.
        let leaving = self.removals.running().and_then(|phys| phys.vdev).map_or(0, |vdev| {
            let own = self.allocator.vdev_totals(vdev);
            own.deflated_size.saturating_sub(own.deflated_allocated)
        });
        let taken = taken.saturating_add(leaving);
        self.heads.set_free(synced, totals.deflated_size.saturating_sub(taken));
    }

    /// Reports the size of the pool to the heads.
    pub(crate) fn announce_space(&self) -> Result<(), PoolError> {
        let view = self.mos.view();
        let directory = Directory::open(&view)?;
        let mut room = space::root_space(&view, &directory, &self.tree())?;
        let deferred = match self.leases.is_holding_back() {
            true => 0,
            false => self.allocator.totals(AllocClass::Normal).deflated_deferred,
        };
        room.size = room.size.saturating_sub(deferred);
        self.heads.set_pool_space(room);
        self.heads.set_returning(deferred);
        Ok(())
    }
}

/// Guard that ends all waiting if the sync thread panics.
pub(crate) struct Fuse<'a>(&'a LivePool);

impl Fuse<'_> {
    const WHY: &'static str = "writing a txg ended in a panic";

    pub(crate) fn blown() -> TxError {
        TxError::Suspended { why: Fuse::WHY.to_owned() }
    }
}

impl Drop for Fuse<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.note_stopped(Fuse::WHY);
            self.0.txgs.fail(Fuse::blown());
        }
    }
}
