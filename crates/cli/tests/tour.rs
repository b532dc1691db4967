//! The tour of the README, as a newcomer runs it.

use std::process::Command;

#[test]
fn the_tour_runs_to_its_end() {
    let output = Command::new(env!("CARGO_BIN_EXE_cenote")).arg("tour").output().expect("runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for expected in [
        "state: DEGRADED",
        "result: no errors",
        "Every byte is the same as before",
        "$ zpool create -m ",
        "$ zfs clone testpool/myprojects/project1@snap testpool/myprojects/clone_p1",
        "+\t",
        "$ zpool iostat -v testpool",
        "zfs send: not supported by this version of Cenote",
        "$ zpool scrub -w safe",
        "with 0 errors",
        "OpenZFS imports it",
    ] {
        assert!(text.contains(expected), "no {expected:?} in\n{text}");
    }
}
