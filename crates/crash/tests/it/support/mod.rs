//! Setup for tests of single defects.

use cenote_crash::disks::Disks;
use cenote_crash::run;
use cenote_crash::run::{env, open_fs};
use pool::LivePool;
use std::sync::Arc;
use zpl::HeadFs;

/// Makes a pool of this layout; returns it with its root file system.
pub(crate) fn create(disks: &Disks, layout: &str) -> (Arc<LivePool>, Arc<HeadFs>) {
    let pool = run::create(disks, layout.parse().expect("a layout"), env(1)).expect("made");
    let fs = open_fs(&pool, 1).expect("opened");
    pool.sync().expect("synced");
    (pool, fs)
}
