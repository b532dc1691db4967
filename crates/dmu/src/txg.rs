//! Transaction groups: numbers, membership, throttle
//! (docs/on-disk/10-overview.md, section 5).
//!
//! # What always holds
//! - A [`Tx`] belongs to the txg that was open when it began, and that txg is not written before the
//!   `Tx` is dropped.
//! - No `Tx` of T+1 exists while one of T does.
//! - [`Txgs::quiesce`] is called by one thread at a time, and [`Txgs::finish`] follows before the next.
//!
//! # Order
//! `begin` … drop (many threads) -> `quiesce` (closes the gate, waits for the holders, opens the next
//! txg) -> the txg is written -> `finish` (wakes whoever waits for it, and throttled writers).

use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, lock};
use crate::{TxError, interrupt, panics};
use format::Txg;
use std::time::{Duration, Instant};
use zio::{AllocTx, Tunable};

/// Seconds after which a txg with changes is closed, where it is not what it was: then what was said for each pool
/// counts (`Limits::timeout`).
pub static TXG_TIMEOUT: Tunable = Tunable::new("zfs_txg_timeout", 5, 1, 1 << 20);

/// How much dirty memory there may be, and how often a txg is written.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of dirty buffers that are never exceeded by more than what the running transactions add.
    pub dirty_max: u64,
    /// From this share on, in percent of `dirty_max`, the open txg is closed.
    pub sync_percent: u64,
    /// From this share on writers are slowed.
    pub delay_percent: u64,
    /// A txg with changes is closed after this long.
    pub timeout: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { dirty_max: 256 << 20, sync_percent: 20, delay_percent: 60, timeout: Duration::from_secs(5) }
    }
}

impl Limits {
    fn timeout(&self) -> Duration {
        match TXG_TIMEOUT.get() {
            seconds if seconds == TXG_TIMEOUT.default => self.timeout,
            seconds => Duration::from_secs(seconds),
        }
    }
}

/// Bytes of dirty buffers, by txg; and of the intent logs that go with them.
#[derive(Debug)]
pub struct DirtyMeter {
    /// By the lowest bit of the txg: only two can be dirty.
    bytes: [AtomicU64; 2],
    /// Bytes of blocks of intent logs among other blocks, by the txg that allocated them: until the next but one is on disk.
    logged: [AtomicU64; 4],
    /// As many of them as there may be.
    log_room: AtomicU64,
    /// Of the open txg, the last that was seen to change: says whether there is anything to write.
    changed: AtomicU64,
}

impl Default for DirtyMeter {
    fn default() -> DirtyMeter {
        DirtyMeter {
            bytes: Default::default(),
            logged: Default::default(),
            log_room: AtomicU64::new(u64::MAX),
            changed: AtomicU64::default(),
        }
    }
}

impl DirtyMeter {
    fn slot(&self, txg: Txg) -> &AtomicU64 {
        &self.bytes[(txg.0 & 1) as usize]
    }

    /// Something of this txg changed, and takes so many bytes more until it is written.
    pub fn add(&self, txg: Txg, bytes: u64) {
        self.slot(txg).fetch_add(bytes, Ordering::Relaxed);
        self.changed.fetch_max(txg.0, Ordering::Relaxed);
    }

    /// Dirty buffers were dropped before they were written.
    pub fn sub(&self, txg: Txg, bytes: u64) {
        let _ = self
            .slot(txg)
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| Some(now.saturating_sub(bytes)));
    }

    /// Bytes in all.
    pub fn total(&self) -> u64 {
        self.bytes.iter().map(|slot| slot.load(Ordering::Relaxed)).sum()
    }

    /// Whether intent logs may take so many bytes more among other blocks. If not, what they would say is to be on disk by its
    /// txg, which needs the room that is left.
    pub(crate) fn may_log(&self, bytes: u64) -> bool {
        self.logged().saturating_add(bytes) <= self.log_room()
    }

    /// A block of an intent log was allocated among other blocks.
    pub(crate) fn add_logged(&self, txg: Txg, bytes: u64) {
        self.logged_in(txg).fetch_add(bytes, Ordering::Relaxed);
    }

    /// This txg is on disk, and intent logs may take so many bytes among other blocks beside those that they have,
    /// as `more` says when it is told how many those are.
    pub fn set_log_room(&self, synced: Txg, more: impl FnOnce(u64) -> u64) {
        // Its own blocks are freed with the next.
        self.logged_in(Txg(synced.0.wrapping_sub(1))).store(0, Ordering::Relaxed);
        let logged = self.logged();
        self.log_room.store(logged.saturating_add(more(logged)), Ordering::Relaxed);
    }

    /// How many bytes intent logs may have among other blocks.
    pub fn log_room(&self) -> u64 {
        self.log_room.load(Ordering::Relaxed)
    }

    fn logged(&self) -> u64 {
        self.logged.iter().map(|slot| slot.load(Ordering::Relaxed)).fold(0, u64::saturating_add)
    }

    fn logged_in(&self, txg: Txg) -> &AtomicU64 {
        &self.logged[(txg.0 & 3) as usize]
    }

    /// Bytes of one txg.
    pub fn of(&self, txg: Txg) -> u64 {
        self.slot(txg).load(Ordering::Relaxed)
    }

    fn clear(&self, txg: Txg) {
        self.slot(txg).store(0, Ordering::Relaxed);
    }
}

/// What the thread that syncs should do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Write the open txg.
    Sync,
    /// Stop: the pool is being closed.
    Stop,
    /// Nothing happened for as long as it wanted to wait.
    Idle,
}

#[derive(Debug)]
struct State {
    open: Txg,
    synced: Txg,
    /// Transactions of the open txg.
    holders: u64,
    /// Nobody may join: the holders are waited for.
    quiescing: bool,
    syncing: bool,
    /// Somebody waits for this txg to be on disk.
    wanted: Txg,
    failed: Option<TxError>,
    suspended: Option<Suspended>,
}

/// The txg that is being written waits for devices.
#[derive(Debug)]
struct Suspended {
    why: TxError,
    /// Who wants to change something waits too.
    waits: bool,
}

impl State {
    /// Why nothing may begin now, or be waited for.
    fn refusal(&self) -> Option<TxError> {
        let suspended = self.suspended.as_ref().filter(|suspended| !suspended.waits);
        self.failed.clone().or_else(|| suspended.map(|suspended| suspended.why.clone()))
    }
}

/// The transaction groups of a pool.
pub struct Txgs {
    state: Mutex<State>,
    /// A holder left, a txg was opened or finished, the pool failed.
    changed: Condvar,
    /// The syncing thread has something to do.
    work: Condvar,
    meter: Arc<DirtyMeter>,
    limits: Limits,
    /// Writes a txg where no thread does that.
    inline: Mutex<Option<Arc<Syncer>>>,
}

/// Writes the open txg on the caller's thread.
type Syncer = dyn Fn() -> Result<(), TxError> + Send + Sync;

impl Txgs {
    /// The groups after `synced`, which is on disk.
    pub fn new(synced: Txg, limits: Limits) -> Arc<Txgs> {
        Arc::new(Txgs {
            state: Mutex::new(State {
                open: Txg(synced.0 + 1),
                synced,
                holders: 0,
                quiescing: false,
                syncing: false,
                wanted: Txg(0),
                failed: None,
                suspended: None,
            }),
            changed: Condvar::new(),
            work: Condvar::new(),
            meter: Arc::default(),
            limits,
            inline: Mutex::new(None),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every critical section below leaves the state whole at each step.
        lock(&self.state)
    }

    /// There is no thread that syncs: whoever has to wait for a txg calls `syncer` instead, which writes the
    /// open one. `None`: there is a thread.
    pub fn set_inline(&self, syncer: Option<Arc<dyn Fn() -> Result<(), TxError> + Send + Sync>>) {
        *lock(&self.inline) = syncer;
    }

    fn inline(&self) -> Option<Arc<Syncer>> {
        lock(&self.inline).clone()
    }

    /// Bytes of dirty buffers at which changes wait.
    pub fn dirty_max(&self) -> u64 {
        self.limits.dirty_max
    }

    /// The meter of dirty memory: every writable object set gets it.
    pub fn meter(&self) -> &Arc<DirtyMeter> {
        &self.meter
    }

    /// The limits that it was made with.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The txg that a transaction would join now.
    pub fn open_txg(&self) -> Txg {
        self.state().open
    }

    /// The last txg that is on disk.
    pub fn synced_txg(&self) -> Txg {
        self.state().synced
    }

    /// Joins the open txg. Waits while one is closing, and while there is too much dirty memory; the wait
    /// grows smoothly as memory fills, so that writers are slowed to the speed of the devices.
    ///
    /// # Errors
    /// If the pool is suspended or closed, or nobody waits any longer ([`crate::interrupt`]).
    pub fn begin(self: &Arc<Self>) -> Result<Tx, TxError> {
        self.slow_down();
        let mut state = self.state();
        loop {
            if let Some(error) = state.refusal() {
                return Err(error);
            }
            let full = self.meter.total() >= self.limits.dirty_max;
            if !state.quiescing && !full && state.suspended.is_none() {
                state.holders += 1;
                let txg = state.open;
                drop(state);
                interrupt::note_change();
                return Ok(Tx { txg, txgs: Arc::clone(self) });
            }
            if interrupt::ends(state.suspended.is_some()) {
                return Err(TxError::Interrupted);
            }
            if full && !state.syncing {
                if let Some(sync) = self.inline() {
                    drop(state);
                    sync()?;
                    state = self.state();
                    continue;
                }
                state.wanted = state.wanted.max(state.open);
                self.work.notify_one();
            }
            state = interrupt::wait(&self.changed, state);
        }
    }

    /// Joins the open txg although memory is scarce: for changes that must not wait for a sync, because
    /// they belong to one that has begun or because they free space.
    pub fn begin_now(self: &Arc<Self>) -> Result<Tx, TxError> {
        let mut state = self.state();
        loop {
            if let Some(error) = state.refusal() {
                return Err(error);
            }
            if !state.quiescing && state.suspended.is_none() {
                state.holders += 1;
                return Ok(Tx { txg: state.open, txgs: Arc::clone(self) });
            }
            if interrupt::ends(state.suspended.is_some()) {
                return Err(TxError::Interrupted);
            }
            state = interrupt::wait(&self.changed, state);
        }
    }

    /// Sleeps for a time that grows from nothing, at the share where delays begin, towards 20 ms at the
    /// limit.
    fn slow_down(&self) {
        let (dirty, max) = (self.meter.total(), self.limits.dirty_max);
        if dirty * 100 >= max * self.limits.sync_percent {
            self.work.notify_one();
        }
        let from = max / 100 * self.limits.delay_percent;
        if dirty <= from || dirty >= max {
            return;
        }
        let (over, left) = (dirty - from, max - dirty);
        let micros = (over * 20 / left.max(1)).min(20_000);
        if micros > 0 {
            std::thread::sleep(Duration::from_micros(micros));
        }
    }

    fn leave(&self) {
        let mut state = self.state();
        state.holders -= 1;
        if state.holders == 0 && state.quiescing {
            self.changed.notify_all();
        }
    }

    /// Asks for a sync of the open txg; does not wait.
    pub fn kick(&self) {
        let mut state = self.state();
        state.wanted = state.wanted.max(state.open);
        self.work.notify_one();
    }

    /// Waits until a txg is on disk, asking for it to be written. Must not be called while holding a
    /// [`Tx`] of it, and needs another thread that syncs.
    pub fn wait_synced(&self, txg: Txg) -> Result<(), TxError> {
        if let Some(sync) = self.inline() {
            while self.synced_txg() < txg {
                sync()?;
            }
            return Ok(());
        }
        let mut state = self.state();
        while state.synced < txg {
            if let Some(error) = state.refusal() {
                return Err(error);
            }
            if state.wanted < txg {
                state.wanted = txg;
                self.work.notify_one();
            }
            if interrupt::ends(state.suspended.is_some()) {
                return Err(TxError::Interrupted);
            }
            state = interrupt::wait(&self.changed, state);
        }
        Ok(())
    }

    /// For the thread that syncs: waits until the open txg should be written. `idle` bounds the wait.
    pub fn wait_for_work(&self, idle: Duration) -> Work {
        let started = Instant::now();
        let mut state = self.state();
        loop {
            if state.failed.is_some() {
                return Work::Stop;
            }
            let waited = started.elapsed();
            let is_changed = self.meter.changed.load(Ordering::Relaxed) >= state.open.0;
            let is_full = self.meter.of(state.open) * 100 >= self.limits.dirty_max * self.limits.sync_percent;
            if state.wanted >= state.open || is_full || (is_changed && waited >= self.limits.timeout()) {
                return Work::Sync;
            }
            let until = if is_changed { self.limits.timeout().min(idle) } else { idle };
            if waited >= until.max(Duration::from_millis(1)) {
                return Work::Idle;
            }
            let rest = until.saturating_sub(waited).max(Duration::from_millis(1));
            state = self.work.wait_timeout(state, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Closes the open txg: waits for its holders and opens the next one. The caller writes what it gets
    /// and then calls [`Txgs::finish`].
    pub fn quiesce(self: &Arc<Self>) -> SyncTx {
        let mut state = self.state();
        while state.syncing || state.quiescing {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.quiescing = true;
        while state.holders > 0 {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let txg = state.open;
        state.open = Txg(txg.0 + 1);
        state.quiescing = false;
        state.syncing = true;
        self.changed.notify_all();
        SyncTx { txg, pass: AtomicU32::new(1) }
    }

    /// The txg is on disk.
    #[allow(clippy::needless_pass_by_value)] // there is nothing left to write in this txg
    pub fn finish(&self, tx: SyncTx) {
        self.meter.clear(tx.txg);
        let mut state = self.state();
        state.synced = tx.txg;
        state.syncing = false;
        self.changed.notify_all();
    }

    /// The txg that is being written waits for devices. Until [`Txgs::resume`] nothing begins: whoever wants
    /// to, or waits for a txg, waits if `waits`, and else gets this error.
    pub fn suspend(&self, why: TxError, waits: bool) {
        self.state().suspended = Some(Suspended { why, waits });
        self.changed.notify_all();
    }

    /// Why nothing more is written.
    pub fn failure(&self) -> Option<TxError> {
        self.state().failed.clone()
    }

    /// Whether the txg that is being written waits for devices.
    pub fn is_suspended(&self) -> bool {
        self.state().suspended.is_some()
    }

    /// The devices are back.
    pub fn resume(&self) {
        self.state().suspended = None;
        self.changed.notify_all();
    }

    /// The txg could not be written, or the pool is closed: whoever waits gets this error, and nothing
    /// more begins.
    pub fn fail(&self, error: TxError) {
        let mut state = self.state();
        state.failed.get_or_insert(error);
        state.syncing = false;
        self.changed.notify_all();
        self.work.notify_all();
    }
}

impl std::fmt::Debug for Txgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Txgs({} open, {} on disk)", self.open_txg(), self.synced_txg())
    }
}

/// Membership of an open txg: whoever holds one may change objects. Leaves when dropped. A thread holds
/// at most one: a second could wait for a gate that the first keeps shut. If it panics meanwhile, nothing more is written.
#[derive(Debug)]
pub struct Tx {
    txg: Txg,
    txgs: Arc<Txgs>,
}

impl Tx {
    /// Joins the same txg once more, without waiting: this one keeps it open. For whoever is given a
    /// transaction and calls what begins one, as the replay of a log does.
    pub fn again(&self) -> Tx {
        self.txgs.state().holders += 1;
        Tx { txg: self.txg, txgs: Arc::clone(&self.txgs) }
    }

    /// A crash from now on leaves what was born in `birth` where it is. Blocks of a txg are written, and can be
    /// read, before that is so.
    pub fn is_on_disk(&self, birth: Txg) -> bool {
        birth <= self.txgs.synced_txg()
    }
}

impl AllocTx for Tx {
    fn txg(&self) -> Txg {
        self.txg
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        if panics::is_panicking() {
            // What it was changing is half changed.
            self.txgs.fail(TxError::Suspended { why: "a change ended in a panic".to_owned() });
        }
        self.txgs.leave();
    }
}

/// The txg that is being written: what changes in syncing context belongs to it.
#[derive(Debug)]
pub struct SyncTx {
    txg: Txg,
    pass: AtomicU32,
}

impl SyncTx {
    /// Begins the next pass.
    pub fn next_pass(&self) -> u32 {
        self.pass.fetch_add(1, Ordering::Relaxed) + 1
    }
}

impl AllocTx for SyncTx {
    fn txg(&self) -> Txg {
        self.txg
    }

    fn pass(&self) -> u32 {
        self.pass.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_belongs_to_the_open_txg() {
        let txgs = Txgs::new(Txg(9), Limits::default());
        let tx = txgs.begin().expect("open");
        assert_eq!(tx.txg(), Txg(10));
        drop(tx);
        let sync = txgs.quiesce();
        assert_eq!((sync.txg(), txgs.open_txg()), (Txg(10), Txg(11)));
        txgs.finish(sync);
        assert_eq!(txgs.synced_txg(), Txg(10));
    }

    #[test]
    fn quiescing_waits_for_holders_and_keeps_newcomers_out() {
        let txgs = Txgs::new(Txg(0), Limits::default());
        let tx = txgs.begin().expect("open");
        let other = Arc::clone(&txgs);
        let syncer = std::thread::spawn(move || {
            let sync = other.quiesce();
            let txg = sync.txg();
            other.finish(sync);
            txg
        });
        while !txgs.state().quiescing {
            std::thread::yield_now();
        }
        let other = Arc::clone(&txgs);
        let newcomer = std::thread::spawn(move || other.begin().expect("open").txg());
        drop(tx);
        assert_eq!(syncer.join().expect("syncer"), Txg(1));
        assert_eq!(newcomer.join().expect("newcomer"), Txg(2));
    }

    #[test]
    fn a_full_meter_stops_writers_until_the_txg_is_written() {
        let limits = Limits { dirty_max: 1000, ..Limits::default() };
        let txgs = Txgs::new(Txg(0), limits);
        txgs.meter().add(Txg(1), 2000);
        let other = Arc::clone(&txgs);
        let writer = std::thread::spawn(move || other.begin().expect("open").txg());
        assert_eq!(txgs.wait_for_work(Duration::from_secs(60)), Work::Sync);
        let sync = txgs.quiesce();
        txgs.finish(sync);
        assert_eq!(writer.join().expect("writer"), Txg(2));
    }

    #[test]
    fn a_suspended_pool_lets_wait_or_refuses() {
        let txgs = Txgs::new(Txg(0), Limits::default());
        let why = TxError::Suspended { why: "gone".to_owned() };
        let sync = txgs.quiesce();
        txgs.suspend(why.clone(), false);
        assert_eq!(txgs.begin().err(), Some(why.clone()));
        assert_eq!(txgs.begin_now().err(), Some(why.clone()));
        assert_eq!(txgs.wait_synced(Txg(1)), Err(why.clone()));
        txgs.suspend(why, true);
        let (writer, waiter) = (Arc::clone(&txgs), Arc::clone(&txgs));
        let writer = std::thread::spawn(move || writer.begin().map(|tx| tx.txg()));
        let waiter = std::thread::spawn(move || waiter.wait_synced(Txg(1)));
        txgs.resume();
        txgs.finish(sync);
        assert_eq!(writer.join().expect("writer"), Ok(Txg(2)));
        assert_eq!(waiter.join().expect("waiter"), Ok(()));
    }

    #[test]
    fn a_failed_pool_lets_nobody_wait() {
        let txgs = Txgs::new(Txg(0), Limits::default());
        let other = Arc::clone(&txgs);
        let waiter = std::thread::spawn(move || other.wait_synced(Txg(1)));
        txgs.fail(TxError::Closed);
        assert_eq!(waiter.join().expect("waiter"), Err(TxError::Closed));
        assert_eq!(txgs.begin().err(), Some(TxError::Closed));
    }
}
