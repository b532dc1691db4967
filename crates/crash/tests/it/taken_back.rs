//! Runs of several threads that meet in the ways in which data was lost before. Each test failed when the
//! mend of its defect was taken back (the documentation of `actors` says which, and how often). Here the
//! threads must meet, and nothing may be found.
#![allow(missing_docs)]

use cenote_crash::actors::history::Coverage;
use cenote_crash::{Cuts, Series, cut_everywhere};

/// Seeds that are tried after the first ones, until threads have met: in which order woken threads go on is
/// not up to the seed.
const FURTHER: std::ops::Range<u64> = 100..112;

/// Cuts what these runs did, and further ones, until threads `met`.
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

/// The blocks of a snapshot that is destroyed while its files are copied were shared and freed.
#[test]
fn a_snapshot_is_destroyed_while_it_is_copied() {
    run([2, 7], |met| met.copied_and_destroyed > 0);
}

/// A clone of blocks whose txg is being written was logged: a cut before that txg's uberblock took that
/// record, and all later ones of its dataset. Such clones are refused.
#[test]
fn what_is_being_written_is_cloned() {
    run([8, 2], |met| met.cloned_while_synced[1] > 0);
}

/// The record of a clone came into the log when its txg was closed, and was claimed although that txg was on
/// disk, with references to blocks that were free.
#[test]
fn an_fsync_comes_while_the_txg_of_a_clone_is_written() {
    run([3, 5], |met| met.beside_clones[1] > 0);
}

/// A large write was read again when its record was written: of a file that had been cut since, zeros that
/// nobody wrote.
#[test]
fn a_file_is_cut_before_the_record_of_its_large_write_is_written() {
    run([4, 10], |met| met.beside_cuts > 0);
}
