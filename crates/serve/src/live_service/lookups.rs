//! What the kernel knows: which nodes, how often it was told of each, and which file each one stands for.
//!
//! # Numbers
//! A node is the number of an object. Where the kernel still knows another file that had this number, which happens when
//! the contents of the file system were replaced (a rollback), the highest bit and the 15 bits above the object tell the two
//! apart.
//!
//! # What always holds
//! - As long as the kernel knows a node it stands for one file: an object in one generation. What the kernel remembers of it
//!   and what it sends about it late is never taken for another file.
//! - The kernel knows a node as long as it was told of it more often than it has forgotten it. It may forget what it has
//!   just been told of again, as what it sends is long on its way: so this is counted on both sides.
//! - No lock is held while a file is looked at.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

const SHARDS: usize = 16;
/// The low bits of a node: the number of its object.
const OBJECT_BITS: u32 = 48;
const OBJECT_MASK: u64 = (1 << OBJECT_BITS) - 1;
/// Nodes of files whose number another file had first.
const LATER: u64 = 1 << 63;
/// Files with the same number that the kernel may know at a time.
const LATER_MAX: u64 = 1 << 15;
/// Tables with more room than this give back what they no longer need.
const ROOMY: usize = 1024;

/// The number of the object of a node.
pub(crate) fn object_of(node: u64) -> u64 {
    node & OBJECT_MASK
}

/// Whether a node is one of those that share the number of their object.
pub(crate) fn is_later(node: u64) -> bool {
    node & LATER != 0
}

/// What is known of a node.
#[derive(Debug, Clone, Copy)]
struct Told {
    generation: u64,
    /// How often the kernel was told, and has not forgotten.
    count: u32,
    /// When it was last seen that this still is the file: see [`Lookups::replaced`].
    seen: u32,
    /// The kernel may have pages of it.
    has_pages: bool,
}

#[derive(Default)]
struct Shard {
    told: HashMap<u64, Told>,
    /// By object: its nodes other than its own number.
    later: HashMap<u64, Vec<u64>>,
}

impl Shard {
    /// The node of a file that the kernel knows.
    fn find(&self, object: u64, generation: u64) -> Option<u64> {
        let is_it = |node: &u64| self.told.get(node).is_some_and(|told| told.generation == generation);
        let later = self.later.get(&object).into_iter().flatten().copied();
        std::iter::once(object).chain(later).find(is_it)
    }

    fn remove(&mut self, node: u64) {
        self.told.remove(&node);
        if is_later(node)
            && let Entry::Occupied(mut nodes) = self.later.entry(object_of(node))
        {
            nodes.get_mut().retain(|other| *other != node);
            if nodes.get().is_empty() {
                nodes.remove();
            }
        }
        let told = &mut self.told;
        if told.capacity() > ROOMY && told.len() < told.capacity() / 4 {
            told.shrink_to_fit();
        }
    }
}

/// The nodes that the kernel knows.
#[derive(Default)]
pub(crate) struct Lookups {
    shards: [Mutex<Shard>; SHARDS],
    /// How often the contents were replaced.
    turn: AtomicU32,
    /// By which it knows the mount itself: major and minor number of its device.
    device: OnceLock<(u32, u32)>,
}

impl Lookups {
    /// Says by which number the kernel knows the mount.
    pub(crate) fn set_device(&self, number: Option<(u32, u32)>) {
        if let Some(number) = number {
            let _ = self.device.set(number);
        }
    }

    /// The number of the mount's device, if it is known.
    pub(crate) fn device(&self) -> Option<(u32, u32)> {
        self.device.get().copied()
    }

    fn shard(&self, object: u64) -> MutexGuard<'_, Shard> {
        // What these guard is whole between any two statements.
        self.shards[object as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernel is told of a file: its node.
    pub(crate) fn tell(&self, object: u64, generation: u64) -> u64 {
        let seen = self.turn.load(Ordering::Acquire);
        let mut shard = self.shard(object);
        // One that it knows stays what it is: with two nodes the kernel would have two caches of one file.
        let node = shard.find(object, generation).unwrap_or_else(|| {
            let others = (1..LATER_MAX).map(|other| LATER | other << OBJECT_BITS | object);
            let is_free = |node: &u64| !shard.told.contains_key(node);
            let node = std::iter::once(object).chain(others).find(is_free).unwrap_or(object);
            if is_later(node) {
                shard.later.entry(object).or_default().push(node);
            }
            node
        });
        let told = shard.told.entry(node).or_insert(Told { generation, count: 0, seen, has_pages: false });
        told.count = told.count.saturating_add(1);
        told.seen = seen;
        node
    }

    /// The kernel has forgotten a node so often: the generation of the file if it no longer knows it.
    pub(crate) fn forget(&self, node: u64, count: u64) -> Option<u64> {
        let mut shard = self.shard(object_of(node));
        let told = shard.told.get_mut(&node)?;
        told.count = told.count.saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
        let told = *told;
        if told.count > 0 {
            return None;
        }
        shard.remove(node);
        Some(told.generation)
    }

    /// The node by which the kernel knows a file.
    pub(crate) fn node_of(&self, object: u64, generation: u64) -> Option<u64> {
        self.shard(object).find(object, generation)
    }

    /// Whether the kernel knows a file.
    pub(crate) fn knows(&self, object: u64, generation: u64) -> bool {
        self.node_of(object, generation).is_some()
    }

    /// The kernel reads pages of a file, which it will keep.
    pub(crate) fn keeps_pages(&self, node: u64) {
        if let Some(told) = self.shard(object_of(node)).told.get_mut(&node) {
            told.has_pages = true;
        }
    }

    /// Whether it may have kept some.
    pub(crate) fn has_pages(&self, node: u64) -> bool {
        self.shard(object_of(node)).told.get(&node).is_some_and(|told| told.has_pages)
    }

    /// The contents of the file system are others: of each node it is looked anew whether its file is still there.
    pub(crate) fn replaced(&self) {
        self.turn.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether the file of a node is no more; `now` tells the generation in which its object is now.
    pub(crate) fn is_lost(&self, node: u64, now: impl FnOnce() -> Option<u64>) -> bool {
        let turn = self.turn.load(Ordering::Acquire);
        if turn == 0 {
            return false;
        }
        let Some(told) = self.shard(object_of(node)).told.get(&node).copied() else { return is_later(node) };
        if told.seen == turn {
            return false;
        }
        let is_same = now() == Some(told.generation);
        if is_same && let Some(told) = self.shard(object_of(node)).told.get_mut(&node) {
            told.seen = turn;
        }
        !is_same
    }

    /// All nodes that the kernel knows.
    pub(crate) fn nodes(&self) -> Vec<u64> {
        let lock = |shard: &Mutex<Shard>| -> Vec<u64> {
            shard.lock().unwrap_or_else(PoisonError::into_inner).told.keys().copied().collect()
        };
        self.shards.iter().flat_map(lock).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_known_until_it_was_forgotten_as_often_as_it_was_told_of() {
        let known = Lookups::default();
        assert_eq!((known.tell(7, 1), known.tell(7, 1), known.tell(7, 1)), (7, 7, 7));
        assert_eq!(known.forget(7, 2), None, "it was told of once more meanwhile");
        assert!(known.knows(7, 1) && !known.knows(7, 2) && !known.knows(8, 1));
        assert_eq!(known.forget(7, 1), Some(1));
        assert!(!known.knows(7, 1) && known.nodes().is_empty());
        assert_eq!(known.forget(7, 1), None);
        for object in 0..10_000 {
            known.tell(object, 1);
        }
        assert_eq!(known.nodes().len(), 10_000);
        assert!((0..10_000).all(|object| known.forget(object, 1) == Some(1)));
        assert!(known.shards.iter().all(|shard| shard.lock().unwrap().told.capacity() <= ROOMY));
    }

    #[test]
    fn two_files_of_one_number_are_two_nodes_while_the_kernel_knows_both() {
        let known = Lookups::default();
        let first = known.tell(7, 100);
        assert!(!known.is_lost(first, || None), "nothing was replaced");
        known.replaced();
        let second = known.tell(7, 200);
        assert_ne!(first, second);
        assert_eq!((object_of(first), object_of(second)), (7, 7));
        assert!(known.is_lost(first, || Some(200)));
        assert!(!known.is_lost(second, || unreachable!()), "told of since");
        assert_eq!((known.tell(7, 200), known.tell(7, 300)), (second, second + (1 << OBJECT_BITS)));
        assert!(known.knows(7, 100) && known.knows(7, 300) && !known.knows(7, 400));
        assert_eq!(known.node_of(7, 200), Some(second));
        // A later rollback brings the first one back.
        known.replaced();
        assert!(!known.is_lost(first, || Some(100)) && known.is_lost(second, || Some(100)));
        assert_eq!(known.tell(7, 100), first);
        assert_eq!(known.forget(first, 2), Some(100));
        assert_eq!(known.tell(7, 400), 7, "its number is free");
        // A file that the kernel knows by another number keeps that one.
        assert_eq!((known.tell(7, 300), known.tell(7, 200)), (second + (1 << OBJECT_BITS), second));
        assert_eq!((known.forget(7, 1), known.tell(7, 200), known.tell(7, 500)), (Some(400), second, 7));
        assert_eq!(known.forget(second, 9), Some(200));
        assert!(!known.knows(7, 200) && known.knows(7, 300) && known.knows(7, 500));
        assert!(known.is_lost(LATER | 99 << OBJECT_BITS | 7, || Some(400)), "never told of");
    }
}
