//! Holders of data outside of the pool: for example a kernel with pages that programs have written through
//! memory maps and that are not written back yet.
//!
//! # What always holds
//! - A snapshot contains everything that programs had written when it was asked for: every verb that takes
//!   one first asks all registered holders.

use std::sync::{Arc, Mutex, Weak};
use vdev::sync::lock;

/// A holder of data of file systems.
pub trait Outside: Send + Sync {
    /// Writes everything that it holds of the file system with this full name to the pool. Does nothing for a
    /// file system that it does not know.
    ///
    /// # Errors
    /// The data that could not be written, in words.
    fn hand_over(&self, dataset: &str) -> Result<(), String>;
}

/// The holders that are registered with a pool.
#[derive(Default)]
pub(crate) struct Outsides(Mutex<Vec<Weak<dyn Outside>>>);

impl Outsides {
    /// Registers a holder until it is dropped. A second call changes nothing.
    pub(crate) fn add(&self, keeper: &Arc<dyn Outside>) {
        let keeper = Arc::downgrade(keeper);
        let mut all = lock(&self.0);
        all.retain(|other: &Weak<dyn Outside>| other.strong_count() > 0 && !Weak::ptr_eq(other, &keeper));
        all.push(keeper);
    }

    /// Asks every holder for its data of these file systems.
    pub(crate) fn hand_over<'n>(&self, datasets: impl IntoIterator<Item = &'n str>) -> Result<(), String> {
        // Asked without the lock: the answers come as writes.
        let keepers: Vec<Arc<dyn Outside>> = lock(&self.0).iter().filter_map(Weak::upgrade).collect();
        for dataset in datasets {
            keepers.iter().try_for_each(|keeper| keeper.hand_over(dataset))?;
        }
        Ok(())
    }
}
