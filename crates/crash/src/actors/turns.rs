//! Threads that take turns: one runs, the others stand still, and a seed decides who is next.
//!
//! A thread offers its turn at every operation of a device ([`TurnDisk`]) and between its steps ([`pause`]). It loses its
//! turn when it sleeps on a lock of the engine, which the conductor sees in `/proc`; it stands still again at its next
//! offer, after whoever had the lock has woken it. So a thread can be held at any of its operations for as long as the
//! others have something to do, and what they do meanwhile depends on the seed: but for the short time that a woken
//! thread takes to its next offer, during which two threads run.
//!
//! # What always holds
//! - Of threads that have entered, one runs, but for those just woken.
//! - A turn is passed on only when every other thread stands still or sleeps, and once: by the thread that has it, or by
//!   the conductor when that thread sleeps, whichever comes first.
//! - Threads that have not entered are not held up.
//!
//! # Whose turn it is
//! Each thread has a priority; the highest that can run does. At random offers all priorities are drawn anew. How often is
//! drawn for each run: from every few operations to a hundred, so that some runs mix finely and others hold a thread for long.

use super::Failure;
use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use vdev::device::sim::SimDisk;
use vdev::device::{Device, DeviceError};
use vdev::env::Random;

/// Offers between two draws of the priorities, on average.
const SPANS: [u64; 4] = [3, 12, 40, 120];
/// A thread that could begin something that nobody waits for does so once in so many offers.
const IDLE_SPANS: [u64; 4] = [4, 10, 25, 60];
/// The turn is that of no thread.
const NOBODY: usize = usize::MAX;
/// Between two looks at threads that may sleep.
const LOOK: Duration = Duration::from_micros(60);
/// Looks at which a thread must sleep until it counts as asleep; more for one that waits for helpers of its own.
const LOOKS: u32 = 2;
const LOOKS_FIRM: u32 = 200;
/// If all threads sleep for so long, they wait for each other.
const PATIENCE: Duration = Duration::from_secs(30);

thread_local! {
    static SEAT: RefCell<Option<(Arc<Turns>, usize)>> = const { RefCell::new(None) };
}

/// Where a thread is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// It has not come yet.
    Absent,
    /// It stands still. `idle`: it has nothing to do that somebody waits for.
    Offers { idle: bool },
    /// It has its turn, or was woken in somebody else's, or sleeps.
    Runs,
    /// It has ended.
    Gone,
}

#[derive(Debug)]
struct Seat {
    thread: Option<Thread>,
    /// Its number for the system.
    tid: u32,
    at: At,
    priority: u64,
    is_firm: bool,
}

#[derive(Debug)]
struct State {
    seats: Vec<Seat>,
    current: usize,
    /// Turns that were passed on: a thread that would pass on an earlier one is too late.
    passed: u64,
    random: Random,
    span: u64,
    idle_span: u64,
    failed: bool,
}

/// Who runs.
#[derive(Debug)]
pub struct Turns {
    state: Mutex<State>,
    /// Held while a turn is passed on. Before `state`.
    passing: Mutex<()>,
}

/// Offers the turn, if the calling thread takes turns.
pub fn pause() {
    offer(false);
}

/// The same behind all others, until priorities are drawn anew.
pub fn stand_back() {
    let seat = SEAT.with_borrow(Clone::clone);
    if let Some((turns, seat)) = seat {
        turns.lock().seats[seat].priority = 0;
        turns.offer(seat, false);
    }
}

/// The same of a thread that has nothing to do that somebody waits for.
pub fn idle() {
    offer(true);
}

fn offer(idle: bool) {
    let seat = SEAT.with_borrow(Clone::clone);
    if let Some((turns, seat)) = seat {
        turns.offer(seat, idle);
    }
}

/// Somebody waits for what threads that are idle could begin: they count as busy until their next offer.
pub fn urge() {
    let seat = SEAT.with_borrow(Clone::clone);
    if let Some((turns, _)) = seat {
        for seat in turns.lock().seats.iter_mut().filter(|seat| seat.at == At::Offers { idle: true }) {
            seat.at = At::Offers { idle: false };
        }
    }
}

/// Calls `work`, which waits for threads of its own: sleeping meanwhile does not at once cost the turn.
pub fn with_helpers<T>(work: impl FnOnce() -> T) -> T {
    let set = |firm: bool| {
        SEAT.with_borrow(|seat| {
            if let Some((turns, seat)) = seat {
                turns.lock().seats[*seat].is_firm = firm;
            }
        });
    };
    set(true);
    let result = work();
    set(false);
    result
}

/// Leaves when it is dropped.
struct Entered(Arc<Turns>, usize);

impl Drop for Entered {
    fn drop(&mut self) {
        SEAT.with_borrow_mut(|seat| *seat = None);
        self.0.leave_turn(self.1, At::Gone);
    }
}

/// What the system says of a thread: it sleeps.
fn sleeps(tid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
}

/// The number of the calling thread.
fn own_tid() -> u32 {
    let link = std::fs::read_link("/proc/thread-self").unwrap_or_default();
    link.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok()).unwrap_or(0)
}

impl Turns {
    /// For so many threads.
    pub fn new(threads: usize, seed: u64) -> Arc<Turns> {
        let mut random = Random::from_seed(seed);
        let pick = |random: &mut Random, of: &[u64; 4]| of[random.below(4) as usize];
        let (span, idle_span) = (pick(&mut random, &SPANS), pick(&mut random, &IDLE_SPANS));
        let seat = |_| Seat { thread: None, tid: 0, at: At::Absent, priority: random.next(), is_firm: false };
        let seats = (0..threads).map(seat).collect();
        let state = State { seats, current: NOBODY, passed: 0, random, span, idle_span, failed: false };
        Arc::new(Turns { state: Mutex::new(state), passing: Mutex::new(()) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The calling thread takes turns, while `work` is called.
    pub fn enter<T>(self: &Arc<Turns>, seat: usize, work: impl FnOnce() -> T) -> T {
        {
            let mut state = self.lock();
            state.seats[seat].thread = Some(thread::current());
            state.seats[seat].tid = own_tid();
        }
        SEAT.with_borrow_mut(|own| *own = Some((Arc::clone(self), seat)));
        let _entered = Entered(Arc::clone(self), seat);
        self.offer(seat, false);
        work()
    }

    fn offer(&self, seat: usize, idle: bool) {
        self.leave_turn(seat, At::Offers { idle });
        while matches!(self.lock().seats[seat].at, At::Offers { .. }) {
            thread::park();
        }
    }

    /// A thread stands still or has gone; its turn, if it has it, is passed on.
    fn leave_turn(&self, seat: usize, at: At) {
        let turn = {
            let mut state = self.lock();
            state.seats[seat].at = at;
            (state.current == seat).then_some(state.passed)
        };
        if let Some(turn) = turn {
            self.pass_on(turn);
        }
    }

    /// Whether nobody else is left.
    pub fn is_last(&self) -> bool {
        self.lock().seats.iter().filter(|seat| seat.at != At::Gone).count() <= 1
    }

    /// Waits until every thread stands still or sleeps, and lets one of them run, if this turn was not passed on before.
    fn pass_on(&self, turn: u64) {
        let _one_at_a_time = self.passing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.lock().passed != turn {
            return;
        }
        self.settle();
        let mut state = self.lock();
        let chosen = state.choose();
        state.passed += 1;
        state.current = chosen.unwrap_or(NOBODY);
        if let Some(seat) = chosen {
            state.seats[seat].at = At::Runs;
            if let Some(thread) = &state.seats[seat].thread {
                thread.unpark();
            }
        }
    }

    /// Waits until every thread stands still, sleeps or is gone.
    fn settle(&self) {
        let mut looks = 0;
        loop {
            let (running, is_firm): (Vec<u32>, bool) = {
                let state = self.lock();
                let running = || state.seats.iter().filter(|seat| seat.at == At::Runs);
                (running().map(|seat| seat.tid).collect(), running().any(|seat| seat.is_firm))
            };
            if running.is_empty() {
                return;
            }
            looks = if running.iter().all(|tid| sleeps(*tid)) { looks + 1 } else { 0 };
            if looks >= if is_firm { LOOKS_FIRM } else { LOOKS } {
                return;
            }
            thread::sleep(LOOK);
        }
    }

    /// Lets all threads run to their end. They must have been started.
    ///
    /// # Errors
    /// They wait for each other, and never will end.
    pub fn conduct(&self) -> Result<(), Failure> {
        while self.lock().seats.iter().any(|seat| seat.at == At::Absent) {
            thread::sleep(LOOK);
        }
        self.pass_on(0);
        let mut asleep_since: Option<Instant> = None;
        loop {
            thread::sleep(LOOK * 4);
            let (turn, current) = {
                let state = self.lock();
                if state.seats.iter().all(|seat| seat.at == At::Gone) {
                    return Ok(());
                }
                (state.passed, state.seats.get(state.current).map(|seat| (seat.at, seat.tid)))
            };
            let is_asleep = current.is_none_or(|(at, tid)| at == At::Runs && sleeps(tid));
            if !is_asleep {
                asleep_since = None;
                continue;
            }
            // It sleeps: somebody else's turn. `pass_on` looks again.
            self.settle();
            let offers = |seat: &Seat| matches!(seat.at, At::Offers { .. });
            let can_go_on = self.lock().seats.iter().any(offers);
            if can_go_on {
                asleep_since = None;
                self.pass_on(turn);
            } else {
                let since = *asleep_since.get_or_insert_with(Instant::now);
                if since.elapsed() > PATIENCE {
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
        let with = |at: At, state: &State| -> Option<usize> {
            let all = state.seats.iter().enumerate().filter(|(_, seat)| seat.at == at);
            all.max_by_key(|(_, seat)| seat.priority).map(|(i, _)| i)
        };
        let idle = with(At::Offers { idle: true }, self);
        let busy = with(At::Offers { idle: false }, self);
        match (idle, busy) {
            (Some(idle), Some(_)) if self.random.one_in(self.idle_span) => Some(idle),
            (idle, busy) => busy.or(idle),
        }
    }
}

/// A disk at each of whose operations the turn is offered.
#[derive(Debug)]
pub struct TurnDisk(pub Arc<SimDisk>);

impl Device for TurnDisk {
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
        let (turns, order) = (Turns::new(3, seed), Mutex::new(Vec::new()));
        let (done, changed, at_once) = (Mutex::new(false), Condvar::new(), AtomicU64::new(0));
        thread::scope(|scope| {
            let (turns, order, done, changed, at_once) = (&turns, &order, &done, &changed, &at_once);
            for seat in 0..3 {
                scope.spawn(move || {
                    turns.enter(seat, || {
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
            turns.conduct().unwrap();
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
