//! Disks that rot, lie and die while they are written to.
#![allow(missing_docs)]

use cenote_crash::disks::Layout;
use cenote_crash::faults::{Fault, run_with_faults};

fn sample(layout: &str) {
    let layout: Layout = layout.parse().expect("a layout");
    for fault in Fault::ALL {
        for seed in 0..6 {
            let done = run_with_faults(layout, seed, 120, fault);
            done.unwrap_or_else(|why| panic!("{layout}, {fault:?}, seed {seed}: {why}"));
        }
    }
}

#[test]
fn mirror() {
    sample("mirror");
}

#[test]
fn raidz2() {
    sample("raidz2");
}
