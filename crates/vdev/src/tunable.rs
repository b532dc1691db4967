//! Numbers that say how the engine behaves and may be changed while it runs, for experiments and tests: what OpenZFS
//! calls module parameters, under the same names. Each lives where it is used; `cenote::admin::tunables` lists them.
//!
//! # What always holds
//! - A value is within its range, whoever sets it.
//! - They are of the process: all its pools follow them, from the next time that they look.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that may be changed.
#[derive(Debug)]
pub struct Tunable {
    /// Its name, as the file of it is called.
    pub name: &'static str,
    /// What it is before somebody changes it.
    pub default: u64,
    /// The least that it can be.
    pub min: u64,
    /// The most.
    pub max: u64,
    value: AtomicU64,
}

impl Tunable {
    /// A number between `min` and `max`.
    pub const fn new(name: &'static str, default: u64, min: u64, max: u64) -> Tunable {
        Tunable { name, default, min, max, value: AtomicU64::new(default) }
    }

    /// What it is now.
    pub fn get(&self) -> u64 {
        self.value.load(Ordering::Relaxed)
    }

    /// It is more than nothing.
    pub fn is_on(&self) -> bool {
        self.get() != 0
    }

    /// Changes it. False, and it stays what it is, if it cannot be that.
    #[must_use]
    pub fn set(&self, value: u64) -> bool {
        let is_possible = (self.min..=self.max).contains(&value);
        if is_possible {
            self.value.store(value, Ordering::Relaxed);
        }
        is_possible
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_within_their_range() {
        let tunable = Tunable::new("zfs_some", 5, 1, 10);
        assert!(tunable.set(10) && tunable.get() == 10);
        assert!(!tunable.set(0) && !tunable.set(11));
        assert_eq!(tunable.get(), 10);
    }
}
