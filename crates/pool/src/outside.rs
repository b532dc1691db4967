//! Holders of file system data outside of the pool: for example a kernel with dirty pages of memory maps.
//!
//! # What always holds
//! - A snapshot contains all data that programs had written when it was requested: every verb that takes a
//!   snapshot first asks all registered holders to write theirs.

use std::sync::{Arc, Mutex, Weak};
use vdev::sync::lock;

/// The error of a holder that could not write its data.
pub type NotHandedOver = Box<dyn std::error::Error + Send + Sync>;

/// A holder of file system data outside of the pool.
pub trait Outside: Send + Sync {
    /// Writes all data that the holder has of the file system with this full name to the pool. Does nothing
    /// for a file system that the holder does not know.
    ///
    /// # Errors
    /// Why data could not be written.
    fn hand_over(&self, dataset: &str) -> Result<(), NotHandedOver>;
}

/// The holders that are registered with a pool.
#[derive(Default)]
pub(crate) struct Outsides(Mutex<Vec<Weak<dyn Outside>>>);

impl Outsides {
    /// Registers a holder until it is dropped. A second call has no effect.
    pub(crate) fn add(&self, keeper: &Arc<dyn Outside>) {
        let keeper = Arc::downgrade(keeper);
        let mut all = lock(&self.0);
        all.retain(|other: &Weak<dyn Outside>| other.strong_count() > 0 && !Weak::ptr_eq(other, &keeper));
        all.push(keeper);
    }

    /// Makes every holder write its data of these file systems.
    pub(crate) fn hand_over<'n>(
        &self,
        datasets: impl IntoIterator<Item = &'n str>,
    ) -> Result<(), NotHandedOver> {
        // Called without the lock, because the holders answer with writes.
        let keepers: Vec<Arc<dyn Outside>> = lock(&self.0).iter().filter_map(Weak::upgrade).collect();
        for dataset in datasets {
            keepers.iter().try_for_each(|keeper| keeper.hand_over(dataset))?;
        }
        Ok(())
    }
}
