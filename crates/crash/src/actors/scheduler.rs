//! A scheduler of threads: one thread runs at a time, and a seed decides which one is next.
//!
//! A thread yields at every operation of a device ([`ScheduledDisk`]) and between its steps ([`pause`]). It
//! also loses its turn when it sleeps on a lock of the engine, which [`Scheduler::conduct`] sees in `/proc`;
//! it stops again at its next yield, after the owner of the lock has woken it. So a thread can be held at any
//! of its operations for as long as other threads can run. The order depends only on the seed, except for the
//! short time that a woken thread takes to its next yield, during which two threads run.
//!
//! # What always holds
//! - Of the threads that have entered, one runs, apart from threads that were just woken.
//! - A turn is passed on only when every other thread is stopped or asleep, and only once: by the thread that
//!   has it, or by [`Scheduler::conduct`] when that thread sleeps, whichever comes first.
//! - Threads that have not entered are not delayed.
//!
//! # Policy
//! Each thread has a priority; the runnable thread with the highest priority runs. At random yields all
//! priorities are drawn anew. How often is drawn for each run: from every few operations to every hundred, so
//! that some runs interleave finely and others hold a thread for long.

use super::Failure;
use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use vdev::device::sim::SimDisk;
use vdev::device::{Device, DeviceError};
use vdev::env::Random;
use vdev::sync::lock;

/// Yields between two draws of the priorities, on average.
const SPANS: [u64; 4] = [3, 12, 40, 120];
/// An idle thread is chosen over a busy one once in this many draws.
const IDLE_SPANS: [u64; 4] = [4, 10, 25, 60];
/// `State::current` when no thread has the turn.
const NO_SEAT: usize = usize::MAX;
/// Time between two checks of threads that may sleep.
const CHECK_INTERVAL: Duration = Duration::from_micros(60);
/// Consecutive checks that must find a thread asleep before it counts as asleep; more for a thread that waits
/// for helper threads of its own.
const CHECKS: u32 = 2;
const CHECKS_WITH_HELPERS: u32 = 200;
/// All threads asleep for this long are taken for a deadlock.
const DEADLOCK_TIMEOUT: Duration = Duration::from_secs(30);

thread_local! {
    static SEAT: RefCell<Option<(Arc<Scheduler>, usize)>> = const { RefCell::new(None) };
}

/// State of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ThreadState {
    /// It has not entered yet.
    Absent,
    /// It is stopped and can run. `idle`: no other thread waits for its work.
    Yielded { idle: bool },
    /// It has the turn, was woken during the turn of another thread, or sleeps.
    Running,
    /// It has ended.
    Ended,
}

#[derive(Debug)]
struct Seat {
    thread: Option<Thread>,
    /// Thread id of the kernel.
    tid: u32,
    at: ThreadState,
    priority: u64,
    /// It waits for helper threads of its own.
    has_helpers: bool,
}

#[derive(Debug)]
struct State {
    seats: Vec<Seat>,
    current: usize,
    /// Number of times that the turn was passed on: a thread that would pass on an earlier turn is too late.
    passed: u64,
    random: Random,
    span: u64,
    idle_span: u64,
    failed: bool,
}

/// The scheduler of one run.
#[derive(Debug)]
pub(crate) struct Scheduler {
    state: Mutex<State>,
    /// Held while a turn is passed on. Locked before `state`.
    passing: Mutex<()>,
}

/// Yields, if the calling thread has entered a scheduler.
pub(crate) fn pause() {
    yield_now(false);
}

/// Yields with the lowest priority until priorities are drawn anew.
pub(crate) fn yield_to_all() {
    let seat = SEAT.with_borrow(Clone::clone);
    if let Some((scheduler, seat)) = seat {
        scheduler.lock().seats[seat].priority = 0;
        scheduler.yield_turn(seat, false);
    }
}

/// Yields as an idle thread: no other thread waits for its work.
pub(crate) fn pause_idle() {
    yield_now(true);
}

fn yield_now(idle: bool) {
    let seat = SEAT.with_borrow(Clone::clone);
    if let Some((scheduler, seat)) = seat {
        scheduler.yield_turn(seat, idle);
    }
}

/// Makes idle threads count as busy until their next yield, because another thread waits for their work.
pub(crate) fn wake_idle() {
    let seat = SEAT.with_borrow(Clone::clone);
    if let Some((scheduler, _)) = seat {
        for seat in
            scheduler.lock().seats.iter_mut().filter(|seat| seat.at == ThreadState::Yielded { idle: true })
        {
            seat.at = ThreadState::Yielded { idle: false };
        }
    }
}

/// Calls `work`, which waits for helper threads of its own: the calling thread keeps its turn while it sleeps
/// briefly.
pub(crate) fn with_helpers<T>(work: impl FnOnce() -> T) -> T {
    let set = |has_helpers: bool| {
        SEAT.with_borrow(|seat| {
            if let Some((scheduler, seat)) = seat {
                scheduler.lock().seats[*seat].has_helpers = has_helpers;
            }
        });
    };
    set(true);
    let result = work();
    set(false);
    result
}

/// Membership of the calling thread; it leaves the scheduler when this is dropped.
struct Membership(Arc<Scheduler>, usize);

impl Drop for Membership {
    fn drop(&mut self) {
        SEAT.with_borrow_mut(|seat| *seat = None);
        self.0.leave_turn(self.1, ThreadState::Ended);
    }
}

/// True if `/proc` shows the thread as sleeping.
fn sleeps(tid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
}

/// Kernel thread id of the calling thread, 0 if it cannot be read.
fn own_tid() -> u32 {
    let link = std::fs::read_link("/proc/thread-self").unwrap_or_default();
    link.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok()).unwrap_or(0)
}

impl Scheduler {
    /// A scheduler of `threads` threads, whose order `seed` decides.
    pub(crate) fn new(threads: usize, seed: u64) -> Arc<Scheduler> {
        let mut random = Random::from_seed(seed);
        let pick = |random: &mut Random, of: &[u64; 4]| of[random.below(4) as usize];
        let (span, idle_span) = (pick(&mut random, &SPANS), pick(&mut random, &IDLE_SPANS));
        let seat = |_| Seat {
            thread: None,
            tid: 0,
            at: ThreadState::Absent,
            priority: random.next(),
            has_helpers: false,
        };
        let seats = (0..threads).map(seat).collect();
        let state = State { seats, current: NO_SEAT, passed: 0, random, span, idle_span, failed: false };
        Arc::new(Scheduler { state: Mutex::new(state), passing: Mutex::new(()) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Calls `work` while the calling thread takes part in the scheduler.
    pub(crate) fn enter<T>(self: &Arc<Scheduler>, seat: usize, work: impl FnOnce() -> T) -> T {
        {
            let mut state = self.lock();
            state.seats[seat].thread = Some(thread::current());
            state.seats[seat].tid = own_tid();
        }
        SEAT.with_borrow_mut(|own| *own = Some((Arc::clone(self), seat)));
        let _membership = Membership(Arc::clone(self), seat);
        self.yield_turn(seat, false);
        work()
    }

    fn yield_turn(&self, seat: usize, idle: bool) {
        self.leave_turn(seat, ThreadState::Yielded { idle });
        while matches!(self.lock().seats[seat].at, ThreadState::Yielded { .. }) {
            thread::park();
        }
    }

    /// Notes that a thread has stopped or ended, and passes its turn on if it has it.
    fn leave_turn(&self, seat: usize, at: ThreadState) {
        let turn = {
            let mut state = self.lock();
            state.seats[seat].at = at;
            (state.current == seat).then_some(state.passed)
        };
        if let Some(turn) = turn {
            self.pass_on(turn);
        }
    }

    /// True if all threads but one have ended.
    pub(crate) fn is_last(&self) -> bool {
        self.lock().seats.iter().filter(|seat| seat.at != ThreadState::Ended).count() <= 1
    }

    /// Waits until every thread is stopped or asleep, then lets one of them run. Does nothing if `turn` was
    /// passed on before.
    fn pass_on(&self, turn: u64) {
        let _one_at_a_time = lock(&self.passing);
        if self.lock().passed != turn {
            return;
        }
        self.settle();
        let mut state = self.lock();
        let chosen = state.choose();
        state.passed += 1;
        state.current = chosen.unwrap_or(NO_SEAT);
        if let Some(seat) = chosen {
            state.seats[seat].at = ThreadState::Running;
            if let Some(thread) = &state.seats[seat].thread {
                thread.unpark();
            }
        }
    }

    /// Waits until every thread is stopped, asleep or ended.
    fn settle(&self) {
        let mut checks = 0;
        loop {
            let (running, has_helpers): (Vec<u32>, bool) = {
                let state = self.lock();
                let running = || state.seats.iter().filter(|seat| seat.at == ThreadState::Running);
                (running().map(|seat| seat.tid).collect(), running().any(|seat| seat.has_helpers))
            };
            if running.is_empty() {
                return;
            }
            checks = if running.iter().all(|tid| sleeps(*tid)) { checks + 1 } else { 0 };
            if checks >= if has_helpers { CHECKS_WITH_HELPERS } else { CHECKS } {
                return;
            }
            thread::sleep(CHECK_INTERVAL);
        }
    }

    /// Runs all threads to their end. They must have been started.
    ///
    /// # Errors
    /// All threads wait for each other.
    pub(crate) fn conduct(&self) -> Result<(), Failure> {
        while self.lock().seats.iter().any(|seat| seat.at == ThreadState::Absent) {
            thread::sleep(CHECK_INTERVAL);
        }
        self.pass_on(0);
        let mut asleep_since: Option<Instant> = None;
        loop {
            thread::sleep(CHECK_INTERVAL * 4);
            let (turn, current) = {
                let state = self.lock();
                if state.seats.iter().all(|seat| seat.at == ThreadState::Ended) {
                    return Ok(());
                }
                (state.passed, state.seats.get(state.current).map(|seat| (seat.at, seat.tid)))
            };
            let is_asleep = current.is_none_or(|(at, tid)| at == ThreadState::Running && sleeps(tid));
            if !is_asleep {
                asleep_since = None;
                continue;
            }
            // The thread sleeps: another one gets the turn. `pass_on` checks again.
            self.settle();
            let is_stopped = |seat: &Seat| matches!(seat.at, ThreadState::Yielded { .. });
            let can_go_on = self.lock().seats.iter().any(is_stopped);
            if can_go_on {
                asleep_since = None;
                self.pass_on(turn);
            } else {
                let since = *asleep_since.get_or_insert_with(Instant::now);
                if since.elapsed() > DEADLOCK_TIMEOUT {
                    self.lock().failed = true;
                    return Err("all threads wait for each other".into());
                }
            }
        }
    }
}

impl State {
    fn choose(&mut self) -> Option<usize> {
        if self.random.one_in(self.span) {
            for seat in &mut self.seats {
                seat.priority = self.random.next();
            }
        }
        let with = |at: ThreadState, state: &State| -> Option<usize> {
            let all = state.seats.iter().enumerate().filter(|(_, seat)| seat.at == at);
            all.max_by_key(|(_, seat)| seat.priority).map(|(i, _)| i)
        };
        let idle = with(ThreadState::Yielded { idle: true }, self);
        let busy = with(ThreadState::Yielded { idle: false }, self);
        match (idle, busy) {
            (Some(idle), Some(_)) if self.random.one_in(self.idle_span) => Some(idle),
            (idle, busy) => busy.or(idle),
        }
    }
}

/// A simulated disk; the calling thread yields before each operation.
#[derive(Debug)]
pub(crate) struct ScheduledDisk(pub Arc<SimDisk>);

impl Device for ScheduledDisk {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn sector_sizes(&self) -> (u64, u64) {
        self.0.sector_sizes()
    }

    fn read_at(&self, buf: &mut [u8], at: format::DeviceOffset) -> Result<(), DeviceError> {
        pause();
        self.0.read_at(buf, at)
    }

    fn write_at(&self, buf: &[u8], at: format::DeviceOffset) -> Result<(), DeviceError> {
        pause();
        self.0.write_at(buf, at)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        pause();
        self.0.flush()
    }

    fn discard(&self, at: format::DeviceOffset, len: u64) -> Result<(), DeviceError> {
        pause();
        self.0.discard(at, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Condvar;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Threads that count, each in its own turns, one of which waits for another.
    fn run(seed: u64) -> Vec<usize> {
        let (scheduler, order) = (Scheduler::new(3, seed), Mutex::new(Vec::new()));
        let (done, changed, at_once) = (Mutex::new(false), Condvar::new(), AtomicU64::new(0));
        thread::scope(|scope| {
            let (scheduler, order, done, changed, at_once) = (&scheduler, &order, &done, &changed, &at_once);
            for seat in 0..3 {
                scope.spawn(move || {
                    scheduler.enter(seat, || {
                        if seat == 0 {
                            let ready = changed.wait_while(done.lock().unwrap(), |done| !*done);
                            drop(ready.unwrap());
                            pause();
                        }
                        for _ in 0..40 {
                            assert_eq!(at_once.fetch_add(1, Ordering::SeqCst), 0, "two run at once");
                            order.lock().unwrap().push(seat);
                            at_once.fetch_sub(1, Ordering::SeqCst);
                            pause();
                        }
                        *done.lock().unwrap() = true;
                        changed.notify_all();
                    });
                });
            }
            scheduler.conduct().unwrap();
        });
        order.into_inner().unwrap()
    }

    #[test]
    fn a_seed_decides_who_runs_and_sleepers_are_passed_over() {
        let first = run(1);
        assert_eq!(first.len(), 120);
        assert_eq!(first, run(1));
        assert_ne!(first, run(2));
    }
}
