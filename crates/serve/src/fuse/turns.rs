//! Who waits for requests: as few threads as suffice, the others sleep.
//!
//! The kernel gives each request to the thread that has waited longest. With many of them waiting, every request comes to
//! a thread that has done nothing for a while, whose stack and heap are in no cache of a processor: small requests
//! then cost twice as much. So two threads take turns, and more only while those do not suffice. More are started when
//! they are needed first, and end when nobody has needed them for a while: most mounts are idle.
//!
//! # What always holds
//! - If nobody waits for requests, each thread is at work or has been called, or there are as many as there may be: a
//!   request that takes long (it reads a disk) holds up nobody.
//! - When the mount is gone all threads end, those that sleep too.

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// So many wait if they suffice: while one is at work the other takes what comes.
const FEW: usize = 2;
/// Requests in a row that somebody was waiting for, after which one fewer waits.
const CALM: u32 = 256;
/// If nobody waits for requests again after fewer than these, one more will.
const OFTEN: u32 = 4;
/// A thread that nobody has called for so long ends, unless it is one of the few.
const REST: Duration = Duration::from_secs(10);

/// Shared by the threads of a mount.
#[derive(Debug)]
pub(super) struct Turns {
    state: Mutex<State>,
    called: Condvar,
    left: Condvar,
    rest: Duration,
}

#[derive(Debug)]
struct State {
    /// Threads that were started and have not ended,
    alive: usize,
    /// and as many as there may be.
    alive_max: usize,
    /// Threads that wait for a request.
    waiting: usize,
    /// Threads that sleep and have not been called.
    asleep: usize,
    /// Threads that were called and do not wait yet.
    called: usize,
    /// No more than these wait.
    enough: usize,
    /// Requests since nobody was waiting.
    calm: u32,
    is_over: bool,
    /// The first error that a thread ended with.
    error: Option<io::Error>,
}

/// The right to wait for a request. Handed on as soon as one has come.
#[derive(Debug)]
pub(super) struct Turn<'t>(&'t Turns);

impl Turns {
    /// For at most so many threads. Whoever makes it starts [`Turns::first`] of them.
    pub(super) fn new(alive_max: usize) -> Turns {
        let alive = alive_max.min(FEW);
        let (waiting, asleep, called, calm) = (0, 0, 0, 0);
        let (enough, is_over, error) = (FEW, false, None);
        let state = State { alive, alive_max, waiting, asleep, called, enough, calm, is_over, error };
        Turns { state: Mutex::new(state), called: Condvar::new(), left: Condvar::new(), rest: REST }
    }

    /// Threads to begin with.
    pub(super) fn first(&self) -> usize {
        self.lock().alive
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Numbers that are right between any two statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until the caller is needed. `None`: the mount is gone, or it was not needed for long.
    pub(super) fn take(&self) -> Option<Turn<'_>> {
        let mut state = self.lock();
        if state.waiting + state.called >= state.enough {
            state.asleep += 1;
            while state.called == 0 && !state.is_over {
                if state.alive <= FEW {
                    state = self.called.wait(state).unwrap_or_else(PoisonError::into_inner);
                    continue;
                }
                let woken = self.called.wait_timeout(state, self.rest);
                let (now, waited) = woken.unwrap_or_else(PoisonError::into_inner);
                state = now;
                if waited.timed_out() && state.called == 0 && !state.is_over {
                    state.asleep -= 1;
                    return None;
                }
            }
            state.called = state.called.saturating_sub(1);
        }
        self.wait_in(state)
    }

    /// The first turn of a thread that was started because [`Turn::pass`] said so.
    pub(super) fn join(&self) -> Option<Turn<'_>> {
        let mut state = self.lock();
        state.called = state.called.saturating_sub(1);
        self.wait_in(state)
    }

    fn wait_in<'t>(&'t self, mut state: MutexGuard<'t, State>) -> Option<Turn<'t>> {
        if state.is_over {
            return None;
        }
        state.waiting += 1;
        Some(Turn(self))
    }

    /// The mount is gone.
    pub(super) fn end(&self) {
        self.lock().is_over = true;
        self.called.notify_all();
    }

    /// A thread ends, as one that was to be started and could not be does.
    pub(super) fn leave(&self, result: io::Result<()>, was_started: bool) {
        let mut state = self.lock();
        state.alive -= 1;
        if !was_started {
            state.called = state.called.saturating_sub(1);
        } else if let Err(error) = result {
            state.error.get_or_insert(error);
        }
        if state.alive == 0 {
            self.left.notify_all();
        }
    }

    /// Returns when all threads have ended; the first error that one ended with.
    pub(super) fn wait(&self) -> io::Result<()> {
        let mut state = self.lock();
        while state.alive > 0 {
            state = self.left.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.error.take().map_or(Ok(()), Err)
    }

    /// Somebody who waited does no longer. Whether one more thread is to be started.
    fn hand_on(&self) -> bool {
        let mut state = self.lock();
        state.waiting -= 1;
        if state.waiting + state.called > 0 {
            state.calm += 1;
            if state.calm == CALM {
                state.calm = 0;
                state.enough = (state.enough - 1).max(FEW);
            }
            return false;
        }
        // One who is just coming back from work is no reason for more.
        let is_often = state.calm < OFTEN;
        state.calm = 0;
        let can_start = state.asleep == 0 && state.alive < state.alive_max && !state.is_over;
        if state.asleep == 0 && !can_start {
            return false;
        }
        state.enough += usize::from(is_often);
        state.called += 1;
        if can_start {
            state.alive += 1;
            return true;
        }
        state.asleep -= 1;
        drop(state);
        self.called.notify_one();
        false
    }
}

impl Turn<'_> {
    /// A request has come. Whether one more thread is to be started, which begins with [`Turns::join`].
    #[must_use]
    pub(super) fn pass(self) -> bool {
        let turns = self.0;
        std::mem::forget(self);
        turns.hand_on()
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // The mount is gone or broken: who cannot be called needs not be started either.
        if self.0.hand_on() {
            self.0.leave(Ok(()), false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// As many threads as there may be.
    fn all_started(threads: usize) -> Turns {
        let turns = Turns::new(threads);
        turns.lock().alive = threads;
        turns
    }

    /// Whether a thread waits or is at work, and what makes it go on.
    type Report = (bool, mpsc::Sender<()>);

    fn work(turns: &Turns, tell: &mpsc::Sender<Report>) {
        let stop = |waits| {
            let (go, gone) = mpsc::channel();
            // If nobody listens any more it goes on.
            let _ = tell.send((waits, go));
            let _ = gone.recv();
        };
        while let Some(turn) = turns.take() {
            stop(true);
            drop(turn);
            stop(false);
        }
    }

    #[test]
    fn nobody_sleeps_while_nobody_waits_for_requests() {
        let turns = all_started(5);
        let (tell, told) = mpsc::channel();
        std::thread::scope(|scope| {
            for _ in 0..5 {
                let (tell, turns) = (tell.clone(), &turns);
                scope.spawn(move || work(turns, &tell));
            }
            drop(tell);
            // Each who waits gets a request: in the end all five are at work.
            let mut at_work = Vec::new();
            while at_work.len() < 5 {
                match told.recv().unwrap() {
                    (true, request) => request.send(()).unwrap(),
                    (false, done) => at_work.push(done),
                }
            }
            turns.end();
            drop((at_work, told));
        });
    }

    #[test]
    fn two_are_enough_in_the_end() {
        let turns = all_started(9);
        turns.lock().enough = 9;
        let _other = turns.take().unwrap();
        for _ in 0..CALM * 9 {
            drop(turns.take().unwrap());
        }
        assert_eq!(turns.lock().enough, FEW);
        turns.end();
        assert!(turns.take().is_none());
    }

    #[test]
    fn a_thread_is_started_when_nobody_waits_and_nobody_sleeps() {
        let turns = Turns::new(4);
        assert_eq!(turns.first(), FEW);
        let (one, two) = (turns.take().unwrap(), turns.take().unwrap());
        assert!(!one.pass(), "another one waits");
        assert!(two.pass(), "all are at work");
        let three = turns.join().unwrap();
        assert!(three.pass());
        let four = turns.join().unwrap();
        assert!(!four.pass(), "there are as many as there may be");
        assert_eq!(turns.lock().alive, 4);
    }

    #[test]
    fn who_is_not_needed_ends() {
        let mut turns = all_started(5);
        turns.rest = Duration::ZERO;
        let _waiting = (turns.take().unwrap(), turns.take().unwrap());
        for alive in (FEW..5).rev() {
            assert!(turns.take().is_none());
            turns.leave(Ok(()), true);
            assert_eq!(turns.lock().alive, alive);
        }
        assert_eq!(turns.lock().asleep, 0);
    }

    #[test]
    fn who_waits_for_the_end_is_told_of_the_first_error() {
        let turns = all_started(2);
        turns.leave(Err(io::ErrorKind::BrokenPipe.into()), true);
        turns.leave(Err(io::ErrorKind::NotFound.into()), true);
        assert_eq!(turns.wait().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
