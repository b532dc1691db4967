//! Logs that wait to be replayed, as `cargo xtask kernel-peer --logs` gives them to OpenZFS.
#![allow(missing_docs)]

use cenote_crash::logs::{Case, check, make};

/// Our own replay of these logs works, and gives the same result each time.
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
