//! Logs that are left for replay, as `cargo xtask kernel-peer --logs` gives them to OpenZFS.
#![allow(missing_docs)]

use cenote_crash::logs::{Case, check, make};

/// What the kernel is given can be replayed by us, and gives the same each time.
#[test]
fn logs_for_others_are_replayed_here() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, case) in Case::ALL {
        let dir = folder.path().join(name);
        make(&dir, case).unwrap_or_else(|why| panic!("{name}: {why}"));
        if case == Case::ClonesReplayedHere {
            check(&dir, case).unwrap_or_else(|why| panic!("{name}: {why}"));
        }
    }
}
