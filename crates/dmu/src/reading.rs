//! Blocks that are being read: whoever wants one of them waits for it instead of reading it again.
//!
//! # What always holds
//! - A block that several want at once is read from its device once.
//! - Whoever reads a block tells the others, also of a failure; they then read for themselves.

use crate::arc::Key;
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use zio::Block;

const SHARDS: usize = 16;

/// The result of somebody's read.
#[derive(Default)]
struct Slot {
    /// `None`: not there yet.
    done: Mutex<Option<Option<Block>>>,
    told: Condvar,
}

type Shard = Mutex<HashMap<Key, Option<Arc<Slot>>>>;

/// The blocks that are being read. A slot is only made when somebody waits.
pub(crate) struct Reading {
    shards: [Shard; SHARDS],
    hasher: RandomState,
}

/// Who reads a block.
pub(crate) enum Turn<'r> {
    /// The caller.
    Ours(Ours<'r>),
    /// Somebody else did meanwhile: the block, if that went well.
    Theirs(Option<Block>),
}

/// The right to read a block, and the duty to tell.
pub(crate) struct Ours<'r> {
    shard: &'r Shard,
    key: Key,
    result: Option<Block>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Single inserts and removals.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Reading {
    pub(crate) fn new() -> Reading {
        Reading { shards: Default::default(), hasher: RandomState::new() }
    }

    /// Waits if somebody reads this block; otherwise the caller does.
    pub(crate) fn enter(&self, key: &Key) -> Turn<'_> {
        let shard = &self.shards[self.hasher.hash_one(key) as usize % SHARDS];
        let slot = {
            let mut blocks = lock(shard);
            match blocks.get_mut(key) {
                None => {
                    blocks.insert(*key, None);
                    return Turn::Ours(Ours { shard, key: *key, result: None });
                }
                Some(slot) => Arc::clone(slot.get_or_insert_with(Arc::default)),
            }
        };
        let mut done = lock(&slot.done);
        loop {
            if let Some(result) = &*done {
                return Turn::Theirs(result.clone());
            }
            done = slot.told.wait(done).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Ours<'_> {
    /// It was read.
    pub(crate) fn read(&mut self, block: &Block) {
        self.result = Some(block.clone());
    }
}

impl Drop for Ours<'_> {
    fn drop(&mut self) {
        let slot = lock(self.shard).remove(&self.key).flatten();
        if let Some(slot) = slot {
            *lock(&slot.done) = Some(self.result.take());
            slot.told.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::Endian;

    #[test]
    fn whoever_wants_a_block_that_is_being_read_gets_it_from_there() {
        const OTHERS: usize = 8;
        let reading = Reading::new();
        let key = Key::for_test(5);
        let Turn::Ours(mut ours) = reading.enter(&key) else { panic!("nobody else is there") };
        let waiting = || {
            let slot = lock(ours.shard).get(&key).and_then(Option::as_ref).map(Arc::strong_count);
            slot.unwrap_or(0)
        };
        std::thread::scope(|scope| {
            let others: Vec<_> = (0..OTHERS)
                .map(|_| {
                    scope.spawn(|| match reading.enter(&key) {
                        Turn::Theirs(Some(block)) => block.bytes().to_vec(),
                        _ => Vec::new(),
                    })
                })
                .collect();
            while waiting() <= OTHERS {
                std::thread::yield_now();
            }
            ours.read(&Block::new(vec![1], Endian::Little));
            drop(ours);
            assert!(others.into_iter().all(|other| other.join().expect("no panic") == [1]));
        });
        assert!(reading.shards.iter().all(|shard| lock(shard).is_empty()));
    }

    #[test]
    fn a_failure_is_told_too() {
        let reading = Reading::new();
        let key = Key::for_test(6);
        let Turn::Ours(ours) = reading.enter(&key) else { panic!("nobody else is there") };
        std::thread::scope(|scope| {
            let other = scope.spawn(|| matches!(reading.enter(&key), Turn::Theirs(None) | Turn::Ours(_)));
            std::thread::yield_now();
            drop(ours);
            assert!(other.join().expect("no panic"));
        });
    }
}
