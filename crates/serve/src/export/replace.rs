//! The contents of an export, which can be taken away and replaced while clients use it.
//!
//! # What always holds
//! - While the contents are taken away, calls wait as long as their callers do, and no part of the file
//!   system is in use, so it can be rolled back.
//! - After other contents were put in, calls about files are answered first, and calls about names only after
//!   the client has forgotten the old contents ([`Contents::entered`]).
//! - When the export has ended, every call is an error: no caller waits for ever.
//!
//! # Order
//! [`Contents::pause`] -> contents replaced or not -> [`Contents::resume`] with the new state -> if the
//! contents were replaced, [`Contents::entered`].

use super::error::{Answer, ExportError};
use super::live::LiveFs;
use admin::sync::{self, lock};
use cenote::{LivePool, interrupt};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock, RwLockReadGuard, TryLockError};
use std::time::Duration;

/// First and longest pause of a thread that waits until no call uses the contents.
const NAP_MIN: Duration = Duration::from_micros(50);
const NAP_MAX: Duration = Duration::from_millis(10);
/// Interval at which a waiting call checks whether it can continue.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// State of the contents of an export.
pub(super) enum State {
    /// The contents that the client knows.
    Serving(Box<LiveFs>),
    /// New contents, while the client is still forgetting the old ones: only calls about files are answered.
    Entering(Box<LiveFs>),
    /// The contents are taken away.
    Paused,
    /// The export has ended.
    Ended,
}

impl State {
    fn served(self) -> Option<LiveFs> {
        match self {
            State::Serving(live) | State::Entering(live) => Some(*live),
            State::Paused | State::Ended => None,
        }
    }

    fn get(&self) -> Option<&LiveFs> {
        match self {
            State::Serving(live) | State::Entering(live) => Some(live),
            State::Paused | State::Ended => None,
        }
    }
}

/// The subject of a call, which decides whether the call waits for a client that is forgetting old contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum About {
    /// Files that the client knows.
    Files,
    /// Names, and the files that they stand for.
    Names,
}

/// The contents of an export.
pub(super) struct Contents {
    state: RwLock<State>,
    /// A thread waits until no call uses the contents; no further call begins.
    is_wanted: AtomicBool,
    /// Guards no data: calls wait on it until the contents are back.
    changes: Mutex<()>,
    changed: Condvar,
    /// The pool that calls may wait for.
    pool: Arc<LivePool>,
}

impl Contents {
    pub(super) fn new(live: LiveFs) -> Contents {
        Contents {
            pool: Arc::clone(live.writer().pool()),
            state: RwLock::new(State::Serving(Box::new(live))),
            is_wanted: AtomicBool::new(false),
            changes: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Takes the contents away once no call uses them; calls that come meanwhile wait. `None`: the export has
    /// ended.
    ///
    /// # Errors
    /// [`ExportError::Interrupted`] if the caller no longer waits ([`cenote::interrupt`]); then nothing has
    /// changed.
    pub(super) fn pause(&self) -> Answer<Option<LiveFs>> {
        self.is_wanted.store(true, Ordering::Release);
        let mut nap = NAP_MIN;
        let paused = loop {
            let state = match self.state.try_write() {
                Ok(state) => Some(state),
                Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            };
            match state {
                Some(state) if matches!(*state, State::Ended) => break Ok(State::Ended),
                // Another thread has taken the contents, and will put them back.
                Some(mut state) if !matches!(*state, State::Paused) => {
                    break Ok(std::mem::replace(&mut *state, State::Paused));
                }
                _ => {}
            }
            if interrupt::ends(self.is_suspended()) {
                break Err(ExportError::Interrupted);
            }
            std::thread::sleep(nap);
            nap = (2 * nap).min(NAP_MAX);
        };
        self.is_wanted.store(false, Ordering::Release);
        self.wake();
        Ok(paused?.served())
    }

    fn is_suspended(&self) -> bool {
        self.pool.suspended().is_some()
    }

    /// The present state. `None`: the contents are being replaced, or are about to be.
    fn now(&self) -> Option<RwLockReadGuard<'_, State>> {
        if self.is_wanted.load(Ordering::Acquire) {
            return None;
        }
        match self.state.try_read() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Continues after a pause. Does nothing if the export has ended.
    pub(super) fn resume(&self, new: State) {
        {
            let mut state = sync::write(&self.state);
            if matches!(*state, State::Paused) {
                *state = new;
            }
        }
        self.wake();
    }

    /// Answers calls about names too: the client has forgotten the old contents.
    pub(super) fn entered(&self) {
        {
            let mut state = sync::write(&self.state);
            *state = match std::mem::replace(&mut *state, State::Paused) {
                State::Entering(live) => State::Serving(live),
                other => other,
            };
        }
        self.wake();
    }

    /// Ends the export; returns the contents if there were any.
    pub(super) fn end(&self) -> Option<LiveFs> {
        let old = {
            let mut state = sync::write(&self.state);
            std::mem::replace(&mut *state, State::Ended)
        };
        self.wake();
        old.served()
    }

    fn wake(&self) {
        let _waiters_look = lock(&self.changes);
        self.changed.notify_all();
    }

    /// Calls `ask` with the contents once they are there. The flag says whether the client is still
    /// forgetting old contents.
    pub(super) fn ask<T>(&self, about: About, ask: impl FnOnce(&LiveFs, bool) -> Answer<T>) -> Answer<T> {
        loop {
            match self.now().as_deref() {
                Some(State::Serving(live)) => return ask(live, false),
                Some(State::Entering(live)) if about == About::Files => return ask(live, true),
                Some(State::Ended) => return Err(ExportError::Ended),
                Some(State::Paused | State::Entering(_)) | None => {}
            }
            self.wait(about)?;
        }
    }

    fn waits(&self, about: About) -> bool {
        match self.now().as_deref() {
            Some(State::Paused) | None => true,
            Some(State::Entering(_)) => about == About::Names,
            Some(State::Serving(_) | State::Ended) => false,
        }
    }

    /// Waits until the contents can be used; an error if the caller no longer waits.
    fn wait(&self, about: About) -> Answer<()> {
        let mut changes = lock(&self.changes);
        while self.waits(about) {
            if interrupt::ends(self.is_suspended()) {
                return Err(ExportError::Interrupted);
            }
            // A thread that replaces the contents holds the lock for moments whose end is signalled to no
            // waiter.
            let waited = self.changed.wait_timeout(changes, LOOK_AGAIN);
            changes = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    /// Calls `tell` with the contents without waiting for them to come back. `false`: there are none.
    pub(super) fn tell(&self, tell: impl FnOnce(&LiveFs)) -> bool {
        let state = sync::read(&self.state);
        state.get().map(tell).is_some()
    }

    /// Calls `look` with the contents if there are any at this moment.
    pub(super) fn peek<T>(&self, look: impl FnOnce(&LiveFs) -> T) -> Option<T> {
        self.now()?.get().map(look)
    }
}
