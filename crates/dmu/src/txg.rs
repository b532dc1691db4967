//! Transaction groups: numbers, membership, throttle (docs/on-disk/10-overview.md, section 5).
//!
//! # What always holds
//! - A [`Tx`] belongs to the txg that was open when it began, and that txg is not written before the `Tx` is
//!   dropped.
//! - No `Tx` of T+1 exists while one of T does.
//! - [`Txgs::quiesce`] is called by one thread at a time, and [`Txgs::finish`] follows before the next.
//!
//! # Order
//! `begin` … drop (many threads) -> `quiesce` (closes the gate, waits for the holders, opens the next txg) ->
//! the txg is written -> `finish` (wakes the threads that wait for it, and throttled writers).

use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, lock};
use crate::{TxError, interrupt, panics};
use format::Txg;
use std::time::{Duration, Instant};
use zio::{AllocTx, Tunable};

/// Seconds after which a txg with changes is closed. While it has its default, the setting of each pool
/// applies (`Limits::timeout`).
pub static TXG_TIMEOUT: Tunable = Tunable::new("zfs_txg_timeout", 5, 1, 1 << 20);

/// Limits of dirty memory, and of the time between txgs.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of dirty buffers, exceeded at most by the additions of running transactions.
    pub dirty_max: u64,
    /// Share of `dirty_max`, in percent, at which the open txg is closed.
    pub sync_percent: u64,
    /// Share of `dirty_max`, in percent, at which writers are slowed.
    pub delay_percent: u64,
    /// Time after which a txg with changes is closed.
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

/// Bytes of dirty buffers by txg, and of the intent log blocks allocated with them.
#[derive(Debug)]
pub struct DirtyMeter {
    /// Indexed by the lowest bit of the txg: only two can be dirty.
    bytes: [AtomicU64; 2],
    /// Bytes of intent log blocks in the class of data blocks, by the txg that allocated them; counted until
    /// the next txg but one is on disk.
    logged: [AtomicU64; 4],
    /// Most bytes of such blocks.
    log_room: AtomicU64,
    /// The last txg that was changed while open: tells whether there are changes to write.
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

    /// Notes a change in this txg that takes so many bytes more until it is written.
    pub fn add(&self, txg: Txg, bytes: u64) {
        self.slot(txg).fetch_add(bytes, Ordering::Relaxed);
        self.changed.fetch_max(txg.0, Ordering::Relaxed);
    }

    /// Notes that dirty buffers were dropped before they were written.
    pub(crate) fn sub(&self, txg: Txg, bytes: u64) {
        let _ = self
            .slot(txg)
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| Some(now.saturating_sub(bytes)));
    }

    /// Bytes of all txgs.
    pub fn total(&self) -> u64 {
        self.bytes.iter().map(|slot| slot.load(Ordering::Relaxed)).sum()
    }

    /// Whether intent logs may take so many bytes more in the class of data blocks. If not, the changes must
    /// reach the disk with their txg, which needs the remaining space.
    pub(crate) fn may_log(&self, bytes: u64) -> bool {
        self.logged().saturating_add(bytes) <= self.log_room()
    }

    /// Notes that an intent log block was allocated in the class of data blocks.
    pub(crate) fn add_logged(&self, txg: Txg, bytes: u64) {
        self.logged_in(txg).fetch_add(bytes, Ordering::Relaxed);
    }

    /// Notes that this txg is on disk, and sets the bytes that intent logs may take in the class of data
    /// blocks beyond their present ones: `more` computes them from the number of those.
    pub fn set_log_room(&self, synced: Txg, more: impl FnOnce(u64) -> u64) {
        // Its log blocks are freed with the next txg.
        self.logged_in(Txg(synced.0.wrapping_sub(1))).store(0, Ordering::Relaxed);
        let logged = self.logged();
        self.log_room.store(logged.saturating_add(more(logged)), Ordering::Relaxed);
    }

    /// Most bytes that intent logs may have in the class of data blocks.
    pub fn log_room(&self) -> u64 {
        self.log_room.load(Ordering::Relaxed)
    }

    fn logged(&self) -> u64 {
        self.logged.iter().map(|slot| slot.load(Ordering::Relaxed)).fold(0, u64::saturating_add)
    }

    fn logged_in(&self, txg: Txg) -> &AtomicU64 {
        &self.logged[(txg.0 & 3) as usize]
    }

    /// Dirty bytes of one txg.
    pub fn of(&self, txg: Txg) -> u64 {
        self.slot(txg).load(Ordering::Relaxed)
    }

    fn clear(&self, txg: Txg) {
        self.slot(txg).store(0, Ordering::Relaxed);
    }
}

/// Next action of the sync thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Write the open txg.
    Sync,
    /// Stop: the pool is being closed.
    Stop,
    /// No request came within the time it was willing to wait.
    Idle,
}

#[derive(Debug)]
struct State {
    open: Txg,
    synced: Txg,
    /// Number of transactions of the open txg.
    holders: u64,
    /// No transaction may join: the remaining holders are waited for.
    quiescing: bool,
    syncing: bool,
    /// The newest txg that a thread waits for.
    wanted: Txg,
    failed: Option<TxError>,
    suspended: Option<Suspended>,
}

/// State of a pool whose syncing txg waits for devices.
#[derive(Debug)]
struct Suspended {
    why: TxError,
    /// Threads that want to make changes wait, too.
    waits: bool,
}

impl State {
    /// Why no transaction may begin or be waited for now; `None`: it may.
    fn refusal(&self) -> Option<TxError> {
        let suspended = self.suspended.as_ref().filter(|suspended| !suspended.waits);
        self.failed.clone().or_else(|| suspended.map(|suspended| suspended.why.clone()))
    }
}

/// The transaction groups of a pool.
pub struct Txgs {
    state: Mutex<State>,
    /// Notified when a holder leaves, a txg is opened or finished, or the pool fails.
    changed: Condvar,
    /// Notified when the sync thread has work.
    work: Condvar,
    meter: Arc<DirtyMeter>,
    limits: Limits,
    /// Writes a txg if there is no sync thread.
    inline: Mutex<Option<Arc<Syncer>>>,
}

/// Writes the open txg on the caller's thread.
type Syncer = dyn Fn() -> Result<(), TxError> + Send + Sync;

impl Txgs {
    /// The transaction groups after `synced`, which is on disk.
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
        // Every critical section below leaves the state consistent at each step.
        lock(&self.state)
    }

    /// Sets the function that writes the open txg, for pools without a sync thread: a caller that has to wait
    /// for a txg calls it. `None`: there is a sync thread.
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

    /// The meter of dirty memory, shared by all writable object sets of the pool.
    pub fn meter(&self) -> &Arc<DirtyMeter> {
        &self.meter
    }

    /// The open txg, which a new transaction would join.
    pub fn open_txg(&self) -> Txg {
        self.state().open
    }

    /// The newest txg that is on disk.
    pub fn synced_txg(&self) -> Txg {
        self.state().synced
    }

    /// Joins the open txg. Waits while one is closing, and while there is too much dirty memory; the wait
    /// grows smoothly as memory fills, so that writers are slowed to the speed of the devices.
    ///
    /// # Errors
    /// [`TxError`] if the pool is suspended or closed, or the caller was interrupted ([`crate::interrupt`]).
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

    /// Joins the open txg although memory is scarce: for changes that must not wait for a sync, because they
    /// continue one that has begun or because they free space.
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

    /// Sleeps for a time that grows from 0, at the share where delays begin, towards 20 ms at the limit.
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

    /// Requests a sync of the open txg, without waiting.
    pub fn kick(&self) {
        let mut state = self.state();
        state.wanted = state.wanted.max(state.open);
        self.work.notify_one();
    }

    /// Requests that a txg be written, and waits until it is on disk. Must not be called while holding a
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

    /// For the sync thread: waits until the open txg should be written. `idle` bounds the wait.
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

    /// Closes the open txg: waits for its holders and opens the next one. The caller writes the closed txg
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

    /// Notes that the txg is on disk.
    #[allow(clippy::needless_pass_by_value)] // there is nothing left to write in this txg
    pub fn finish(&self, tx: SyncTx) {
        self.meter.clear(tx.txg);
        let mut state = self.state();
        state.synced = tx.txg;
        state.syncing = false;
        self.changed.notify_all();
    }

    /// Notes that the syncing txg waits for devices. Until [`Txgs::resume`], threads that begin a transaction
    /// or wait for a txg wait if `waits`, and otherwise get this error.
    pub fn suspend(&self, why: TxError, waits: bool) {
        self.state().suspended = Some(Suspended { why, waits });
        self.changed.notify_all();
    }

    /// Why the pool takes no more writes; `None`: it does.
    pub fn failure(&self) -> Option<TxError> {
        self.state().failed.clone()
    }

    /// Whether the syncing txg waits for devices.
    pub fn is_suspended(&self) -> bool {
        self.state().suspended.is_some()
    }

    /// Notes that the devices are back.
    pub fn resume(&self) {
        self.state().suspended = None;
        self.changed.notify_all();
    }

    /// Notes that the txg could not be written, or that the pool is closed: waiting threads get this error,
    /// and no transaction begins any more.
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

/// Membership of an open txg: its holder may change objects. Ends when dropped. A thread holds at most one: a
/// second could wait for a gate that the first keeps shut. If it panics meanwhile, no further txg is written.
#[derive(Debug)]
pub struct Tx {
    txg: Txg,
    txgs: Arc<Txgs>,
}

impl Tx {
    /// Joins the same txg once more, without waiting, because this membership keeps it open. For code that
    /// has a transaction and calls a function that begins one, as the replay of a log does.
    pub fn again(&self) -> Tx {
        self.txgs.state().holders += 1;
        Tx { txg: self.txg, txgs: Arc::clone(&self.txgs) }
    }

    /// Whether a crash from now on keeps blocks born in `birth`. Blocks of a txg are written, and can be
    /// read, before that.
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
            // The objects that it was changing are inconsistent.
            self.txgs.fail(TxError::Suspended { why: "a change ended in a panic".to_owned() });
        }
        self.txgs.leave();
    }
}

/// The syncing txg: changes in syncing context belong to it.
#[derive(Debug)]
pub struct SyncTx {
    txg: Txg,
    pass: AtomicU32,
}

impl SyncTx {
    /// Begins the next pass, and returns its number.
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
