//! Node numbers: the nodes that a client knows, how often it was told of each, and the file that each one
//! stands for.
//!
//! # Numbers
//! A node is an object number in its low 48 bits and a slot above: 0 for the file system itself, else a
//! snapshot (`snapshots`, `pool_view`). After the contents of the file system were replaced (a rollback), a
//! client may still know another file with the same object number. The highest bit and the 15 bits above the
//! object number then tell the two apart.
//!
//! # What always holds
//! - While a client knows a node, the node stands for one file: an object in one generation. Nothing that the
//!   client remembers of the node, or sends about it late, is applied to another file.
//! - A client knows a node while it was told of it more often than it has forgotten it. It may forget a node
//!   while an answer that names the node is on its way, so both sides count.
//! - No lock is held while a file is read.
//!
//! Tests: here.

use admin::sync::lock;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};

const SHARDS: usize = 16;
/// Lowest bit of the slot in a node; the object number takes the bits below.
pub(crate) const SLOT_SHIFT: u32 = 48;
/// Mask of the object number in a node.
pub(crate) const OBJECT_MASK: u64 = (1 << SLOT_SHIFT) - 1;
/// Marks a node of a file whose object number belonged to another file that the client knew first.
const LATER: u64 = 1 << 63;
/// Most further files with the same object number that a client may know at a time.
const LATER_MAX: u64 = 1 << 15;
/// A table with more capacity than this is shrunk when it has become empty enough.
const ROOMY: usize = 1024;

/// The number of the object of a node.
pub(crate) fn object_of(node: u64) -> u64 {
    node & OBJECT_MASK
}

/// Whether a node is an additional one for its object number ([`LATER`]).
pub(crate) fn is_later(node: u64) -> bool {
    node & LATER != 0
}

/// A node that a client knows.
#[derive(Debug, Clone, Copy)]
struct Known {
    /// Generation of the file that the node stands for.
    generation: u64,
    /// How often the client was told of the node, less how often it has forgotten it.
    count: u32,
    /// Value of `turn` at which the node was last checked to stand for this file.
    seen: u32,
    /// The client may have cached contents of the file.
    is_cached: bool,
}

#[derive(Default)]
struct Shard {
    /// Nodes that the client knows, by number.
    known: HashMap<u64, Known>,
    /// Nodes of an object other than its own number.
    later: HashMap<u64, Vec<u64>>,
}

impl Shard {
    /// The node of a file, if the client knows the file.
    fn find(&self, object: u64, generation: u64) -> Option<u64> {
        let is_it = |node: &u64| self.known.get(node).is_some_and(|known| known.generation == generation);
        let later = self.later.get(&object).into_iter().flatten().copied();
        std::iter::once(object).chain(later).find(is_it)
    }

    fn remove(&mut self, node: u64) {
        self.known.remove(&node);
        if is_later(node)
            && let Entry::Occupied(mut nodes) = self.later.entry(object_of(node))
        {
            nodes.get_mut().retain(|other| *other != node);
            if nodes.get().is_empty() {
                nodes.remove();
            }
        }
        let known = &mut self.known;
        if known.capacity() > ROOMY && known.len() < known.capacity() / 4 {
            known.shrink_to_fit();
        }
    }
}

/// The nodes that a client knows.
#[derive(Default)]
pub(crate) struct NodeTable {
    shards: [Mutex<Shard>; SHARDS],
    /// How often the contents of the file system were replaced.
    turn: AtomicU32,
}

impl NodeTable {
    fn shard(&self, object: u64) -> MutexGuard<'_, Shard> {
        // The data is consistent between any two statements.
        lock(&self.shards[object as usize % SHARDS])
    }

    /// Counts that the client is told of a file; returns the node of the file.
    pub(crate) fn acquire(&self, object: u64, generation: u64) -> u64 {
        let seen = self.turn.load(Ordering::Acquire);
        let mut shard = self.shard(object);
        // A node that the client knows stays: with two nodes the client would have two caches of one file.
        let node = shard.find(object, generation).unwrap_or_else(|| {
            let others = (1..LATER_MAX).map(|other| LATER | other << SLOT_SHIFT | object);
            let is_free = |node: &u64| !shard.known.contains_key(node);
            let node = std::iter::once(object).chain(others).find(is_free).unwrap_or(object);
            if is_later(node) {
                shard.later.entry(object).or_default().push(node);
            }
            node
        });
        let known = shard.known.entry(node).or_insert(Known { generation, count: 0, seen, is_cached: false });
        known.count = known.count.saturating_add(1);
        known.seen = seen;
        node
    }

    /// Counts that the client has forgotten a node `count` times. Returns the generation of the file if the
    /// client no longer knows it.
    pub(crate) fn forget(&self, node: u64, count: u64) -> Option<u64> {
        let mut shard = self.shard(object_of(node));
        let known = shard.known.get_mut(&node)?;
        known.count = known.count.saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
        let known = *known;
        if known.count > 0 {
            return None;
        }
        shard.remove(node);
        Some(known.generation)
    }

    /// The node of a file; `None` if the client does not know the file.
    pub(crate) fn node_of(&self, object: u64, generation: u64) -> Option<u64> {
        self.shard(object).find(object, generation)
    }

    /// Whether the client knows a file.
    pub(crate) fn knows(&self, object: u64, generation: u64) -> bool {
        self.node_of(object, generation).is_some()
    }

    /// Notes that the client reads contents of a file, and so caches them.
    pub(crate) fn note_cached(&self, node: u64) {
        if let Some(known) = self.shard(object_of(node)).known.get_mut(&node) {
            known.is_cached = true;
        }
    }

    /// Whether the client may have contents of a file in its cache.
    pub(crate) fn may_be_cached(&self, node: u64) -> bool {
        self.shard(object_of(node)).known.get(&node).is_some_and(|known| known.is_cached)
    }

    /// Notes that the contents of the file system were replaced: each node is checked again before its next
    /// use.
    pub(crate) fn replaced(&self) {
        self.turn.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether the file of a node is gone. `now` returns the present generation of the node's object.
    pub(crate) fn is_lost(&self, node: u64, now: impl FnOnce() -> Option<u64>) -> bool {
        let turn = self.turn.load(Ordering::Acquire);
        if turn == 0 {
            return false;
        }
        let Some(known) = self.shard(object_of(node)).known.get(&node).copied() else {
            return is_later(node);
        };
        if known.seen == turn {
            return false;
        }
        let is_same = now() == Some(known.generation);
        if is_same && let Some(known) = self.shard(object_of(node)).known.get_mut(&node) {
            known.seen = turn;
        }
        !is_same
    }

    /// All nodes that the client knows.
    pub(crate) fn nodes(&self) -> Vec<u64> {
        let of_shard = |shard: &Mutex<Shard>| -> Vec<u64> { lock(shard).known.keys().copied().collect() };
        self.shards.iter().flat_map(of_shard).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_known_until_it_was_forgotten_as_often_as_it_was_told_of() {
        let nodes = NodeTable::default();
        assert_eq!((nodes.acquire(7, 1), nodes.acquire(7, 1), nodes.acquire(7, 1)), (7, 7, 7));
        assert_eq!(nodes.forget(7, 2), None, "it was told of once more meanwhile");
        assert!(nodes.knows(7, 1) && !nodes.knows(7, 2) && !nodes.knows(8, 1));
        assert_eq!(nodes.forget(7, 1), Some(1));
        assert!(!nodes.knows(7, 1) && nodes.nodes().is_empty());
        assert_eq!(nodes.forget(7, 1), None);
        for object in 0..10_000 {
            nodes.acquire(object, 1);
        }
        assert_eq!(nodes.nodes().len(), 10_000);
        assert!((0..10_000).all(|object| nodes.forget(object, 1) == Some(1)));
        assert!(nodes.shards.iter().all(|shard| shard.lock().unwrap().known.capacity() <= ROOMY));
    }

    #[test]
    fn two_files_of_one_number_are_two_nodes_while_the_client_knows_both() {
        let nodes = NodeTable::default();
        let first = nodes.acquire(7, 100);
        assert!(!nodes.is_lost(first, || None), "nothing was replaced");
        nodes.replaced();
        let second = nodes.acquire(7, 200);
        assert_ne!(first, second);
        assert_eq!((object_of(first), object_of(second)), (7, 7));
        assert!(nodes.is_lost(first, || Some(200)));
        assert!(!nodes.is_lost(second, || unreachable!()), "told of since");
        assert_eq!((nodes.acquire(7, 200), nodes.acquire(7, 300)), (second, second + (1 << SLOT_SHIFT)));
        assert!(nodes.knows(7, 100) && nodes.knows(7, 300) && !nodes.knows(7, 400));
        assert_eq!(nodes.node_of(7, 200), Some(second));
        // A later rollback brings the first one back.
        nodes.replaced();
        assert!(!nodes.is_lost(first, || Some(100)) && nodes.is_lost(second, || Some(100)));
        assert_eq!(nodes.acquire(7, 100), first);
        assert_eq!(nodes.forget(first, 2), Some(100));
        assert_eq!(nodes.acquire(7, 400), 7, "its number is free");
        // A file that the kernel knows by another number keeps that number.
        assert_eq!((nodes.acquire(7, 300), nodes.acquire(7, 200)), (second + (1 << SLOT_SHIFT), second));
        assert_eq!(
            (nodes.forget(7, 1), nodes.acquire(7, 200), nodes.acquire(7, 500)),
            (Some(400), second, 7)
        );
        assert_eq!(nodes.forget(second, 9), Some(200));
        assert!(!nodes.knows(7, 200) && nodes.knows(7, 300) && nodes.knows(7, 500));
        assert!(nodes.is_lost(LATER | 99 << SLOT_SHIFT | 7, || Some(400)), "never told of");
    }
}
