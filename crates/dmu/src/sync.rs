//! Locks and atomic numbers: those of the standard library, or those of `shuttle`, which tests every order in
//! which threads may run (`tests/shuttle.rs`).

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::{
    sync::{Condvar, Mutex, MutexGuard, RwLock, atomic},
    thread,
};
pub(crate) use std::sync::{Arc, PoisonError, Weak};
#[cfg(not(feature = "shuttle"))]
pub(crate) use std::{
    sync::{Condvar, Mutex, MutexGuard, RwLock, atomic},
    thread,
};
#[cfg(not(feature = "shuttle"))]
pub(crate) use zio::sync::{lock, read, write};

#[cfg(feature = "shuttle")]
pub(crate) use of_shuttle::{lock, read, write};

/// The same functions as in `vdev::sync`, for the locks of `shuttle`.
#[cfg(feature = "shuttle")]
mod of_shuttle {
    use super::{Mutex, MutexGuard, PoisonError, RwLock};
    use shuttle::sync::{RwLockReadGuard, RwLockWriteGuard};

    /// Locks a mutex, even if a thread has panicked while holding it.
    pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks for reading, even if a thread has panicked while holding the lock.
    pub(crate) fn read<T: ?Sized>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
        lock.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks for writing, even if a thread has panicked while holding the lock.
    pub(crate) fn write<T: ?Sized>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
        lock.write().unwrap_or_else(PoisonError::into_inner)
    }
}
