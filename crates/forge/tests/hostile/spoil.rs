//! Changes blocks on their way up, after their checksums were verified.
//!
//! # What always holds
//! - A block is changed the same way each time it is read in a run, whichever thread reads it: as in a
//!   pool that was written that way.

pub(crate) use cenote_forge::mutate::{Aim, plan};
use cenote_forge::mutate::{change, change_as, change_stream, chosen, is_stored_aim, kinds, next, pointers};
use std::sync::atomic::{AtomicU64, Ordering};
use zio::testing::Stored;

/// How often each kind was hit.
pub(crate) static HITS: [AtomicU64; Aim::ALL.len()] = [const { AtomicU64::new(0) }; Aim::ALL.len()];

/// From now on blocks are changed as this seed says.
pub(crate) fn start(seed: u64, (aim, one_in): (Aim, u64)) {
    zio::testing::set_mutator(Some(Box::new(move |bp, bytes| {
        let is_meant = aim == Aim::Anything || kinds(bp).contains(&aim);
        if let (true, Some(mut state)) = (is_meant, chosen(seed, one_in, bp)) {
            HITS[aim as usize].fetch_add(1, Ordering::Relaxed);
            change_as(aim, bp, bytes, &mut state);
        }
    })));
    zio::testing::set_stored_mutator(Some(Box::new(move |bp, what, bytes| {
        let is_meant = match aim {
            Aim::Gangs => what == Stored::GangHeader,
            _ => what == Stored::Block && is_stored_aim(aim, bp),
        };
        if let (true, Some(mut state)) = (is_meant, chosen(seed, one_in, bp)) {
            HITS[aim as usize].fetch_add(1, Ordering::Relaxed);
            match aim {
                Aim::Gangs if next(&mut state).is_multiple_of(2) => pointers::in_block(bp, bytes, &mut state),
                Aim::Streams => change_stream(bytes, &mut state),
                _ => change(aim, bytes, &mut state),
            }
        }
    })));
}

/// Blocks are what they are again.
pub(crate) fn stop() {
    zio::testing::set_mutator(None);
    zio::testing::set_stored_mutator(None);
}
