//! Blocks that are being read: a reader that needs one of them waits for it instead of reading it again.
//!
//! # What always holds
//! - A block that several readers need at once is read from its device once.
//! - The reader of a block reports the result to the waiting readers, also a failure; they then read it
//!   themselves.
//! - [`InFlight::enter`] never waits, so a reader may hold the right to read many blocks. It must give up all
//!   of them before it waits for blocks of others ([`Waiter::wait`]), so that no two readers wait for each
//!   other.

use crate::arc::Key;
use crate::sync::{Arc, Condvar, Mutex, PoisonError, lock};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use zio::Block;

const SHARDS: usize = 16;

/// The result of a read with waiting readers.
#[derive(Default)]
struct Slot {
    /// `None`: the read has not ended. Inside: the block, or `None` if the read failed.
    outcome: Mutex<Option<Option<Block>>>,
    ended: Condvar,
}

type Shard = Mutex<HashMap<Key, Option<Arc<Slot>>>>;

/// The blocks that are being read. A slot is created only when a reader waits.
pub(crate) struct InFlight {
    shards: [Shard; SHARDS],
    hasher: RandomState,
}

/// The thread that reads a block.
pub(crate) enum Turn<'r> {
    /// The caller reads it.
    Ours(Reader<'r>),
    /// Another thread reads it, and the caller may wait for that.
    Theirs(Waiter),
}

/// The right to read a block, and the duty to report the result.
pub(crate) struct Reader<'r> {
    shard: &'r Shard,
    key: Key,
    result: Option<Block>,
}

/// The read of a block by another thread.
pub(crate) struct Waiter(Arc<Slot>);

impl InFlight {
    pub(crate) fn new() -> InFlight {
        InFlight { shards: Default::default(), hasher: RandomState::new() }
    }

    /// Registers the caller as the reader of this block, unless another thread is.
    pub(crate) fn enter(&self, key: &Key) -> Turn<'_> {
        let shard = &self.shards[self.hasher.hash_one(key) as usize % SHARDS];
        let mut blocks = lock(shard);
        match blocks.get_mut(key) {
            None => {
                blocks.insert(*key, None);
                Turn::Ours(Reader { shard, key: *key, result: None })
            }
            Some(slot) => Turn::Theirs(Waiter(Arc::clone(slot.get_or_insert_with(Arc::default)))),
        }
    }
}

impl Waiter {
    /// Waits until the block is read. `None`: the read failed.
    pub(crate) fn wait(self) -> Option<Block> {
        let mut outcome = lock(&self.0.outcome);
        loop {
            if let Some(result) = &*outcome {
                return result.clone();
            }
            outcome = self.0.ended.wait(outcome).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Reader<'_> {
    pub(crate) fn key(&self) -> Key {
        self.key
    }

    /// Reports the block to the waiting readers, and gives up the right to read it.
    pub(crate) fn finish(mut self, block: &Block) {
        self.result = Some(block.clone());
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        let slot = lock(self.shard).remove(&self.key).flatten();
        if let Some(slot) = slot {
            *lock(&slot.outcome) = Some(self.result.take());
            slot.ended.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::Endian;

    #[test]
    fn readers_of_a_block_that_is_being_read_get_it_from_there() {
        const OTHERS: usize = 8;
        let in_flight = InFlight::new();
        let key = Key::for_test(5);
        let Turn::Ours(ours) = in_flight.enter(&key) else { panic!("no other reader is there") };
        let waiting = || {
            let slot = lock(ours.shard).get(&key).and_then(Option::as_ref).map(Arc::strong_count);
            slot.unwrap_or(0)
        };
        std::thread::scope(|scope| {
            let others: Vec<_> = (0..OTHERS)
                .map(|_| {
                    scope.spawn(|| match in_flight.enter(&key) {
                        Turn::Theirs(waiter) => {
                            waiter.wait().map_or(Vec::new(), |block| block.bytes().to_vec())
                        }
                        Turn::Ours(_) => Vec::new(),
                    })
                })
                .collect();
            while waiting() <= OTHERS {
                std::thread::yield_now();
            }
            ours.finish(&Block::new(vec![1], Endian::Little));
            assert!(others.into_iter().all(|other| other.join().expect("no panic") == [1]));
        });
        assert!(in_flight.shards.iter().all(|shard| lock(shard).is_empty()));
    }

    #[test]
    fn a_failure_is_reported_too() {
        let in_flight = InFlight::new();
        let key = Key::for_test(6);
        let Turn::Ours(ours) = in_flight.enter(&key) else { panic!("no other reader is there") };
        std::thread::scope(|scope| {
            let other = scope.spawn(|| match in_flight.enter(&key) {
                Turn::Theirs(waiter) => waiter.wait().is_none(),
                Turn::Ours(_) => true,
            });
            std::thread::yield_now();
            drop(ours);
            assert!(other.join().expect("no panic"));
        });
    }
}
