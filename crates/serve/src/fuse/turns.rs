//! Who waits for requests: as few threads as suffice, the others sleep.
//!
//! The kernel gives each request to the thread that has waited longest. With many of them waiting, every request comes to
//! a thread that has done nothing for a while, whose stack and heap are in no cache of a processor: small requests
//! then cost twice as much. So two threads take turns, and more only while those do not suffice.
//!
//! # What always holds
//! - If nobody waits for requests, each thread is at work or has been called: a request that takes long (it reads a
//!   disk) holds up nobody.
//! - When the mount is gone all threads end, those that sleep too.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// So many wait if they suffice: while one is at work the other takes what comes.
const FEW: usize = 2;
/// Requests in a row that somebody was waiting for, after which one fewer waits.
const CALM: u32 = 256;
/// If nobody waits for requests again after fewer than these, one more will.
const OFTEN: u32 = 4;

/// Shared by the threads of a mount.
#[derive(Debug)]
pub(super) struct Turns {
    state: Mutex<State>,
    called: Condvar,
}

#[derive(Debug)]
struct State {
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
}

impl Default for Turns {
    fn default() -> Turns {
        let state = State { waiting: 0, asleep: 0, called: 0, enough: FEW, calm: 0, is_over: false };
        Turns { state: Mutex::new(state), called: Condvar::new() }
    }
}

/// The right to wait for a request. Dropped as soon as one has come.
#[derive(Debug)]
pub(super) struct Turn<'t>(&'t Turns);

impl Turns {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Numbers that are right between any two statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until the caller is needed. `None`: the mount is gone.
    pub(super) fn take(&self) -> Option<Turn<'_>> {
        let mut state = self.lock();
        if state.waiting + state.called >= state.enough {
            state.asleep += 1;
            while state.called == 0 && !state.is_over {
                state = self.called.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.called = state.called.saturating_sub(1);
        }
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
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.waiting -= 1;
        if state.waiting + state.called > 0 {
            state.calm += 1;
            if state.calm == CALM {
                state.calm = 0;
                state.enough = (state.enough - 1).max(FEW);
            }
            return;
        }
        // One who is just coming back from work is no reason for more.
        let is_often = state.calm < OFTEN;
        state.calm = 0;
        if state.asleep > 0 {
            state.enough += usize::from(is_often);
            state.asleep -= 1;
            state.called += 1;
            drop(state);
            self.0.called.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

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
        let turns = Turns::default();
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
        let turns = Turns::default();
        turns.lock().enough = 9;
        let _other = turns.take().unwrap();
        for _ in 0..CALM * 9 {
            drop(turns.take().unwrap());
        }
        assert_eq!(turns.lock().enough, FEW);
        turns.end();
        assert!(turns.take().is_none());
    }
}
