//! A wish that long work ends soon.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whoever does long work looks here now and then, and ends it as if there were no more to do: nothing half
/// done is left under its name. Clones are the same wish. It cannot be taken back.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Work is to end.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// It was asked for.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
