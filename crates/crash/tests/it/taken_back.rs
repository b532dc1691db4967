//! Runs of several threads that meet in the ways in which data was lost before. Each test failed when the fix
//! of its defect was reverted (the documentation of `actors` says which, and how often). Here the threads
//! must meet, and no failure may be found.
#![allow(missing_docs)]

use cenote_crash::actors::history::Coverage;
use cenote_crash::{Cuts, Series, cut_everywhere};

/// Seeds that are tried after the first ones until threads have met: the seed does not decide the order in
/// which woken threads continue.
const FURTHER: std::ops::Range<u64> = 100..112;

/// Cuts the power in these runs, and in further ones until threads have `met`.
fn run(seeds: [u64; 2], met: fn(&Coverage) -> bool) {
    let mut all = Cuts::default();
    for seed in seeds.into_iter().chain(FURTHER) {
        if FURTHER.contains(&seed) && met(&all.coverage) {
            break;
        }
        let subject = "threads:single".parse().expect("a layout");
        let series = Series { subject, seed, steps: 90, one_in: 3, deep_one_in: 1, only: None, lying: false };
        all.add(&cut_everywhere(series).unwrap_or_else(|broken| panic!("{broken}")));
    }
    assert!(met(&all.coverage) && all.cuts > 300 && all.images > 30, "{all:?}");
}

/// The blocks of a snapshot that was destroyed while its files were copied were shared and freed.
#[test]
fn a_snapshot_is_destroyed_while_it_is_copied() {
    run([2, 7], |met| met.copied_and_destroyed > 0);
}

/// A clone of blocks whose txg was being written was logged: a cut before that txg's uberblock lost that
/// record, and all later ones of its dataset. Such clones are refused now.
#[test]
fn what_is_being_written_is_cloned() {
    run([8, 2], |met| met.cloned_while_synced[1] > 0);
}

/// The record of a clone was logged when its txg was closed, and was claimed although that txg was on disk,
/// with references to free blocks.
#[test]
fn an_fsync_comes_while_the_txg_of_a_clone_is_written() {
    run([3, 5], |met| met.beside_clones[1] > 0);
}

/// A large write was read again when its record was written: if the file had been truncated since, as zeros
/// that no program wrote.
#[test]
fn a_file_is_cut_before_the_record_of_its_large_write_is_written() {
    run([4, 10], |met| met.beside_cuts > 0);
}
