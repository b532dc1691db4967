//! The state of a pool that cannot be written, kept for `suspend`.

use crate::status::FailMode;
use format::VdevGuid;
use std::collections::HashMap;
use std::sync::{Condvar, Mutex, Weak};
use vdev::Device;
use vdev::sync::lock;

/// Called instead of ending the process. Its argument is the reason.
pub(crate) type PanicHook = dyn Fn(&str) + Send + Sync;

/// The state of an outage.
#[derive(Default)]
pub(crate) struct OutageState {
    pub(crate) mode: FailMode,
    pub(crate) is_attended: bool,
    /// Why the pool is suspended; `None`: it is not.
    pub(crate) suspended: Option<String>,
    pub(crate) is_given_up: bool,
    /// Why the pool takes no writes until it is imported again. `None`: it takes writes, or it was given up
    /// on request.
    pub(crate) stopped: Option<String>,
    /// Devices that were closed by the pool. A reader of an older tree may still hold one, with its lock.
    pub(crate) let_go: HashMap<VdevGuid, Weak<dyn Device>>,
    pub(crate) panic: Option<Box<PanicHook>>,
}

/// Whether and how the pool is suspended.
#[derive(Default)]
pub(crate) struct Outages {
    pub(crate) state: Mutex<OutageState>,
    pub(crate) changed: Condvar,
}

impl Outages {
    /// Property `failmode` if the pool is suspended or has stopped. `None`: it is neither.
    pub(crate) fn suspended(&self) -> Option<FailMode> {
        let state = lock(&self.state);
        state.suspended.as_ref().or(state.stopped.as_ref()).map(|_| state.mode)
    }

    /// Why the pool takes no writes even when devices come back. `None`: it may.
    pub(crate) fn stopped(&self) -> Option<String> {
        lock(&self.state).stopped.clone()
    }

    pub(crate) fn set_mode(&self, mode: FailMode) {
        lock(&self.state).mode = mode;
    }

    /// Wakes the threads that wait for a txg: one is on disk.
    pub(crate) fn note_txg(&self) {
        self.changed.notify_all();
    }

    /// Notes that no further txg will be on disk, and why. Returns whether that was new.
    pub(crate) fn note_last(&self, why: &str) -> bool {
        let mut state = lock(&self.state);
        let is_new = !std::mem::replace(&mut state.is_given_up, true);
        if is_new {
            state.stopped = Some(why.to_owned());
        }
        drop(state);
        self.changed.notify_all();
        is_new
    }
}
