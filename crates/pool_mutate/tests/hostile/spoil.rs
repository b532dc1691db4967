//! Changes blocks in memory after their checksums were verified.
//!
//! # What always holds
//! - A block is changed in the same way each time and by each thread that reads it in a run, as in a pool
//!   that was written that way.

pub(crate) use cenote_pool_mutate::mutate::{Target, plan};
use cenote_pool_mutate::mutate::{
    choose, mutate_contents, mutate_stream, mutate_words, next, pointers, targets, targets_stored_bytes,
};
use std::sync::atomic::{AtomicU64, Ordering};
use zio::testing::Stored;

/// MutatedImage blocks, by target.
pub(crate) static HITS: [AtomicU64; Target::ALL.len()] = [const { AtomicU64::new(0) }; Target::ALL.len()];

/// Installs mutators that change blocks by this seed.
pub(crate) fn start(seed: u64, (target, one_in): (Target, u64)) {
    zio::testing::set_mutator(Some(Box::new(move |bp, bytes| {
        let is_target = target == Target::Anything || targets(bp).contains(&target);
        if let (true, Some(mut state)) = (is_target, choose(seed, one_in, bp)) {
            HITS[target as usize].fetch_add(1, Ordering::Relaxed);
            mutate_contents(target, bp, bytes, &mut state);
        }
    })));
    zio::testing::set_stored_mutator(Some(Box::new(move |bp, what, bytes| {
        let is_target = match target {
            Target::Gangs => what == Stored::GangHeader,
            _ => what == Stored::Block && targets_stored_bytes(target, bp),
        };
        if let (true, Some(mut state)) = (is_target, choose(seed, one_in, bp)) {
            HITS[target as usize].fetch_add(1, Ordering::Relaxed);
            match target {
                Target::Gangs if next(&mut state).is_multiple_of(2) => {
                    pointers::in_block(bp, bytes, &mut state)
                }
                Target::Streams => mutate_stream(bytes, &mut state),
                _ => mutate_words(target, bytes, &mut state),
            }
        }
    })));
}

/// Removes the mutators.
pub(crate) fn stop() {
    zio::testing::set_mutator(None);
    zio::testing::set_stored_mutator(None);
}
