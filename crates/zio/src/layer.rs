//! The block layer of one pool: its vdevs, its allocator, and what reading and writing are told.
//!
//! What it does with them stands beside what it does it to: `read`, `heal`, `gang`, `write`, `free`, `log_blocks`,
//! `outage`.

use crate::Allocator;
use crate::outage::Outage;
use crate::quantum::Quantum;
use crate::space::{Space, Writer};
use codec::checksum::Salt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use vdev::VdevTree;

/// The block layer of one pool.
pub struct Zio {
    tree: RwLock<Arc<VdevTree>>,
    salt: OnceLock<Salt>,
    dynamic_gang: AtomicBool,
    quantum: RwLock<Quantum>,
    writer: OnceLock<Writer>,
    pub(crate) outage: OnceLock<Arc<dyn Outage>>,
}

impl Zio {
    /// The block layer over these vdevs.
    pub fn new(tree: Arc<VdevTree>) -> Zio {
        Zio {
            quantum: RwLock::new(Quantum::of_tree(&tree)),
            tree: RwLock::new(tree),
            salt: OnceLock::new(),
            dynamic_gang: AtomicBool::new(false),
            writer: OnceLock::new(),
            outage: OnceLock::new(),
        }
    }

    /// The present vdev tree.
    pub fn tree(&self) -> Arc<VdevTree> {
        Arc::clone(&self.tree.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the vdev tree, for example when a vdev was added; called before space is allocated on it.
    /// Running operations continue with the old tree. Resets the quantum, see `set_quantum`.
    pub fn set_tree(&self, tree: Arc<VdevTree>) {
        self.set_quantum(Quantum::of_tree(&tree));
        *self.tree.write().unwrap_or_else(PoisonError::into_inner) = tree;
    }

    /// Sets the sizes in which compressed blocks are stored: `Quantum::of` the vdevs for ordinary blocks.
    /// Without this call, all vdevs except log vdevs count as such.
    pub(crate) fn set_quantum(&self, quantum: Quantum) {
        *self.quantum.write().unwrap_or_else(PoisonError::into_inner) = quantum;
    }

    /// The sizes in which compressed blocks are stored.
    pub(crate) fn quantum(&self) -> Quantum {
        *self.quantum.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the pool writable: from now on blocks can be written, freed and claimed, and damage found by
    /// reads is repaired. Pointers passed to a [`Zio::check`] of every copy must then be in use. A second
    /// call has no effect.
    pub fn set_allocator(&self, allocator: Arc<Allocator>) {
        self.set_space(allocator);
    }

    pub(crate) fn set_space(&self, space: Arc<dyn Space>) {
        let _ = self.writer.set(Writer::new(space));
    }

    /// The writing half; `None` if the pool is open for reading only.
    pub(crate) fn writer(&self) -> Option<&Writer> {
        self.writer.get()
    }

    /// Sets the handler of failed writes; without one they are errors at once. A second call has no effect.
    pub fn set_outage(&self, outage: Arc<dyn Outage>) {
        let _ = self.outage.set(outage);
    }

    /// Sets the pool's salt, which is itself read from the pool. A second call has no effect.
    pub fn set_salt(&self, salt: Salt) {
        let _ = self.salt.set(salt);
    }

    /// The pool's checksum salt, if it is known.
    pub fn salt(&self) -> Option<&Salt> {
        self.salt.get()
    }

    /// Sets whether the feature `dynamic_gang_header` is active: gang headers may be larger than 512 bytes.
    pub fn set_dynamic_gang_headers(&self, active: bool) {
        self.dynamic_gang.store(active, Ordering::Relaxed);
    }

    pub(crate) fn dynamic_gang_headers(&self) -> bool {
        self.dynamic_gang.load(Ordering::Relaxed)
    }
}
