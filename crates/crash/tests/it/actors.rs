//! A sample of cuts through runs of several threads. `cargo xtask crash --layout threads:LAYOUT` makes as
//! many as wanted.
#![allow(missing_docs)]

use cenote_crash::{Cuts, Series, cut_everywhere};

fn series(layout: &str, seed: u64) -> Series {
    let subject = layout.parse().expect("a layout");
    Series { subject, seed, steps: 40, one_in: 1, deep_one_in: 1, only: None, lying: false }
}

#[test]
fn single() {
    let mut all = Cuts::default();
    for seed in 0..2 {
        let done = cut_everywhere(series("threads:single", seed)).unwrap_or_else(|broken| panic!("{broken}"));
        all.add(&done);
    }
    assert!(all.cuts > 600 && all.images > 40, "{all:?}");
}

#[test]
fn mirror_with_log() {
    let series = Series { one_in: 7, ..series("threads:mirror+log", 3) };
    let done = cut_everywhere(series).unwrap_or_else(|broken| panic!("{broken}"));
    assert!(done.cuts > 100 && done.images > 15, "{done:?}");
}

#[test]
fn disks_that_only_say_that_they_flush_are_found_out() {
    let broken = cut_everywhere(Series { lying: true, ..series("threads:single", 4) });
    let broken = broken.expect_err("something is missing");
    assert!(broken.cut.is_some(), "{broken}");
}
