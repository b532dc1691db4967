//! Locks and atomic numbers: those of the standard library, or, to test every order in which threads
//! may run, those of `shuttle` (`tests/shuttle.rs`).

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
