//! Parameters of the engine that can be changed while pools are open, for experiments and tests: the module
//! parameters of OpenZFS, under the same names. Each is defined where it is used; `admin::tunables` lists
//! them.
//!
//! # What always holds
//! - A value is within its range.
//! - A parameter belongs to the process, and all its pools read the current value at each use. OpenZFS has
//!   one value for the whole machine, and the tools that set it name no pool, so they could not set a value
//!   for each session. A read is one relaxed atomic load.

use std::sync::atomic::{AtomicU64, Ordering};

/// A parameter: an integer within a range.
#[derive(Debug)]
pub struct Tunable {
    /// Its name, which is also that of its file in `/sys/module/zfs/parameters`.
    pub name: &'static str,
    /// Its value until it is changed.
    pub default: u64,
    /// The smallest value that it may have.
    pub min: u64,
    /// The largest value that it may have.
    pub max: u64,
    value: AtomicU64,
}

impl Tunable {
    /// A parameter between `min` and `max` with this default.
    pub const fn new(name: &'static str, default: u64, min: u64, max: u64) -> Tunable {
        Tunable { name, default, min, max, value: AtomicU64::new(default) }
    }

    /// The present value of the parameter.
    pub fn get(&self) -> u64 {
        self.value.load(Ordering::Relaxed)
    }

    /// Whether its value is not zero.
    pub fn is_on(&self) -> bool {
        self.get() != 0
    }

    /// Sets the value. Returns false, and changes nothing, if it is out of range.
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
