//! Whoever keeps data of the pool's file systems outside of it: a kernel with pages that programs have written through
//! their maps, and that it has not handed over yet.
//!
//! # What always holds
//! - A snapshot contains what programs had written when it was asked for, whoever takes it and on whatever road: verbs
//!   that take one ask everybody who is registered here first.

use crate::live::{LivePool, lock};
use std::sync::{Arc, Weak};

/// Keeps data of file systems.
pub trait Outside: Send + Sync {
    /// Hands over what it keeps of the file system with this full name; of others it knows nothing.
    ///
    /// # Errors
    /// What could not be written, in words.
    fn hand_over(&self, dataset: &str) -> Result<(), String>;
}

impl LivePool {
    /// Somebody keeps data from now on, until it is dropped. To be said before the first of it; saying it again changes
    /// nothing.
    pub fn add_outside(&self, keeper: &Arc<dyn Outside>) {
        let keeper = Arc::downgrade(keeper);
        let mut all = lock(&self.outside);
        all.retain(|other: &Weak<dyn Outside>| other.strong_count() > 0 && !Weak::ptr_eq(other, &keeper));
        all.push(keeper);
    }

    /// Everything that anybody keeps of these file systems is in the pool when this returns, as far as it was kept when
    /// it was called. The caller holds no transaction.
    ///
    /// # Errors
    /// What could not be written, in words.
    pub fn hand_over<'n>(&self, datasets: impl IntoIterator<Item = &'n str>) -> Result<(), String> {
        // Asked without the lock: the answers come as writes.
        let keepers: Vec<Arc<dyn Outside>> = lock(&self.outside).iter().filter_map(Weak::upgrade).collect();
        for dataset in datasets {
            keepers.iter().try_for_each(|keeper| keeper.hand_over(dataset))?;
        }
        Ok(())
    }
}
