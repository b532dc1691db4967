//! The end of a command that somebody asks for: by a signal, or, where a daemon runs it, by its client, or by whoever
//! ends the daemon.

use super::{LOOK_EVERY, current};
use serve::Terminator;
use std::fmt;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Called with how often the end has been asked for.
type Watcher = Box<dyn FnMut(u32) + Send>;

/// Whether a command is to end.
#[derive(Default)]
pub(crate) struct Cancel {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// How often its client has asked for that.
    times: u32,
    /// The daemon ends. Who reads the output is still there.
    is_last: bool,
    /// It has been told so, and may have left something undone.
    is_cut: bool,
    watchers: Vec<Watcher>,
}

impl State {
    fn is_wanted(&self) -> bool {
        self.times == 0 && !self.is_last
    }
}

impl Cancel {
    /// The client asks for the end, once more.
    pub(crate) fn ask(&self) {
        self.tell(|state| state.times = state.times.saturating_add(1));
    }

    /// The daemon ends: what takes long is to end, all else goes on.
    pub(crate) fn end(&self) {
        self.tell(|state| state.is_last = true);
    }

    fn tell(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        let times = state.times.max(1);
        state.is_cut |= !state.watchers.is_empty();
        state.watchers.iter_mut().for_each(|watcher| watcher(times));
        drop(state);
        self.changed.notify_all();
    }

    /// The end of the daemon has cut it short.
    pub(crate) fn is_cut(&self) -> bool {
        let state = self.state();
        state.times == 0 && state.is_last && state.is_cut
    }

    /// Whether it is to go on. One that asks ends if not.
    pub(crate) fn is_wanted(&self) -> bool {
        let mut state = self.state();
        state.is_cut |= !state.is_wanted();
        state.is_wanted()
    }

    /// How often the client has asked for the end.
    pub(crate) fn times(&self) -> u32 {
        self.state().times
    }

    fn watch(&self, mut watcher: Watcher) {
        let mut state = self.state();
        if !state.is_wanted() {
            state.is_cut = true;
            watcher(state.times.max(1));
        }
        state.watchers.push(watcher);
    }

    /// Waits that long; false if the end has been asked for.
    fn wait(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        let mut state = self.state();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if !state.is_wanted() || left.is_zero() {
                state.is_cut |= !state.is_wanted();
                return state.is_wanted();
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whole between any two statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cancel").field(&self.times()).finish()
    }
}

/// The client of this thread's command wants it to end, or is gone, or the daemon ends. A command of its own process is ended by
/// signals instead.
pub(crate) fn is_cancelled() -> bool {
    current().is_some_and(|console| !console.cancel.is_wanted())
}

/// Waits that long, between two samples for example; false if the command is to end instead.
pub(crate) fn sleep(time: Duration) -> bool {
    match current() {
        Some(console) => {
            let end = Instant::now() + time;
            loop {
                // What cannot be written is told to whoever writes next.
                let _ = console.send_ready();
                let left = end.saturating_duration_since(Instant::now());
                if !console.cancel.wait(left.min(LOOK_EVERY)) {
                    return false;
                }
                // One whose reader has gone away is told when it writes: soon.
                if left <= LOOK_EVERY || console.has_no_reader() {
                    return true;
                }
            }
        }
        None => {
            std::thread::sleep(time);
            true
        }
    }
}

/// Has `asked` called when the end of a command is asked for, by signals (which end the process no more) or by
/// the client, with how often that has happened. To be called before a command starts threads.
///
/// # Errors
/// There can be no more threads.
pub(crate) fn on_cancel(asked: impl FnMut(u32) + Send + 'static) -> io::Result<()> {
    match current() {
        Some(console) => {
            console.cancel.watch(Box::new(asked));
            Ok(())
        }
        None => Terminator::new()?.watch(asked),
    }
}

/// Ends the command if its client does not want it any more. For long work that holds nothing half done, and may write
/// nothing for long: what its client has not taken of its output goes there meanwhile.
pub(crate) fn end_if_cancelled() {
    if let Some(console) = current() {
        let _ = console.send_ready();
    }
    if is_cancelled() {
        super::exit(130);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn whoever_watches_is_told_also_when_it_comes_late() {
        let cancel = Cancel::default();
        let told = Arc::new(AtomicU32::new(0));
        let tell = |by: u32| {
            let told = Arc::clone(&told);
            Box::new(move |times| {
                told.fetch_add(times * by, Ordering::Relaxed);
            })
        };
        cancel.watch(tell(1));
        assert!(cancel.wait(Duration::ZERO));
        cancel.ask();
        cancel.watch(tell(10));
        cancel.ask();
        assert_eq!(told.load(Ordering::Relaxed), 1 + 10 + 2 + 20);
        assert!(!cancel.wait(Duration::from_secs(1000)));
    }
}
