//! Cancellation of a command: by a signal, or, if a daemon runs it, by its client or by the end of the
//! daemon.

use super::{LOOK_EVERY, current};
use admin::sync::lock;
use serve::Terminator;
use std::fmt;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Called with the number of cancellations so far.
type Watcher = Box<dyn FnMut(u32) + Send>;

/// The cancellation state of a command.
#[derive(Default)]
pub(crate) struct Cancel {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Number of cancellations by the client.
    times: u32,
    /// The daemon is ending; the reader of the output is still there.
    is_last: bool,
    /// The command has noticed the end of the daemon, and may be incomplete.
    is_cut: bool,
    watchers: Vec<Watcher>,
}

impl State {
    fn is_wanted(&self) -> bool {
        self.times == 0 && !self.is_last
    }
}

impl Cancel {
    /// Counts a cancellation by the client.
    pub(crate) fn ask(&self) {
        self.tell(|state| state.times = state.times.saturating_add(1));
    }

    /// Notes that the daemon is ending: long work is cancelled, other work continues.
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

    /// Whether the end of the daemon has cut the command short.
    pub(crate) fn is_cut(&self) -> bool {
        let state = self.state();
        state.times == 0 && state.is_last && state.is_cut
    }

    /// Whether the command is to continue. A caller that gets `false` ends the command.
    pub(crate) fn is_wanted(&self) -> bool {
        let mut state = self.state();
        state.is_cut |= !state.is_wanted();
        state.is_wanted()
    }

    /// Number of cancellations by the client.
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

    /// Waits for a time; `false` if the command was cancelled.
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
        // The data is consistent between any two statements.
        lock(&self.state)
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cancel").field(&self.times()).finish()
    }
}

/// Whether the command of this thread was cancelled: its client cancels or is gone, or the daemon ends. A
/// command in a process of its own is ended by signals instead.
pub(crate) fn is_cancelled() -> bool {
    current().is_some_and(|console| !console.cancel.is_wanted())
}

/// Waits for a time, for example between two samples; `false` if the command was cancelled.
pub(crate) fn sleep(time: Duration) -> bool {
    match current() {
        Some(console) => {
            let end = Instant::now() + time;
            loop {
                // The next write returns the error.
                let _ = console.send_ready();
                let left = end.saturating_duration_since(Instant::now());
                if !console.cancel.wait(left.min(LOOK_EVERY)) {
                    return false;
                }
                // A command whose reader is gone learns that from its next write, which must come soon.
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

/// Has `asked` called with the number of cancellations, by signals (which no longer end the process) or by
/// the client. Must be called before a command starts threads.
///
/// # Errors
/// The system has no more threads.
pub(crate) fn on_cancel(asked: impl FnMut(u32) + Send + 'static) -> io::Result<()> {
    match current() {
        Some(console) => {
            console.cancel.watch(Box::new(asked));
            Ok(())
        }
        None => Terminator::new()?.watch(asked),
    }
}

/// Ends the command if it was cancelled. For long work that can stop at this point and may write nothing for
/// a long time; also sends output that the client has not taken yet.
pub(crate) fn end_if_cancelled() {
    if let Some(console) = current() {
        let _ = console.send_ready();
    }
    if is_cancelled() {
        super::exit(130);
    }
}

/// Ends the command if its client has cancelled it or is gone. The end of the daemon does not end it: for work that
/// takes a bounded time; also sends output that the client has not taken yet.
pub(crate) fn end_without_client() {
    let Some(console) = current() else { return };
    let _ = console.send_ready();
    if console.cancel.times() > 0 {
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
