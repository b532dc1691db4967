//! The wish of a client, or of the daemon, that a command ends.

use admin::sync::lock;
use std::sync::{Arc, Mutex, MutexGuard};

/// Why a command is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// Its client wants that, or is gone.
    Client,
    /// The daemon ends, and the command with it.
    Daemon,
}

/// Told of the end that is asked for.
#[derive(Clone, Default)]
pub struct Cancelled(Arc<Mutex<CancelState>>);

#[derive(Default)]
struct CancelState {
    past: Vec<Ends>,
    watcher: Option<Box<dyn FnMut(Ends) + Send>>,
}

/// Most times that are remembered for a watcher that comes later.
const PAST_MAX: usize = 4;

impl Cancelled {
    /// Calls `watcher` each time that the end is asked for, also for the times that are past.
    pub fn watch(&self, mut watcher: impl FnMut(Ends) + Send + 'static) {
        let mut state = self.state();
        state.past.iter().for_each(|why| watcher(*why));
        state.watcher = Some(Box::new(watcher));
    }

    pub(super) fn ask(&self, why: Ends) {
        let mut state = self.state();
        if state.past.len() < PAST_MAX {
            state.past.push(why);
        }
        if let Some(watcher) = &mut state.watcher {
            watcher(why);
        }
    }

    fn state(&self) -> MutexGuard<'_, CancelState> {
        // Whole between any two statements.
        lock(&self.0)
    }
}
