//! The tour of the README, complete and ended early.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

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
        "$ zpool scrub -w safe",
        "with 0 errors",
        "OpenZFS imports it",
    ] {
        assert!(text.contains(expected), "no {expected:?} in\n{text}");
    }
}

/// Starts the tour with its scratch folder in this folder; returns after the first line with this beginning.
fn tour_until(line: &str, folder: &Path) -> (Child, impl BufRead) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
    command.arg("tour").env("TMPDIR", folder).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let mut text = String::new();
    while !text.starts_with(line) {
        text.clear();
        assert!(output.read_line(&mut text).expect("text") > 0, "no {line:?}");
    }
    (child, output)
}

/// Exit code and messages of a tour that has ended; checks that it left nothing behind.
fn ended(child: Child, folder: &Path) -> (Option<i32>, String) {
    let output = child.wait_with_output().expect("it ends");
    let left: Vec<_> =
        std::fs::read_dir(folder).expect("there").flatten().map(|entry| entry.path()).collect();
    assert_eq!(left, [""; 0].map(Path::new));
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("readable");
    assert!(!mounts.contains(&folder.display().to_string()), "{mounts}");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_reader_that_goes_away_ends_the_tour_in_silence() {
    let folder = tempfile::tempdir().expect("a folder");
    let (child, output) = tour_until("$ zpool import", folder.path());
    drop(output);
    assert_eq!(ended(child, folder.path()), (Some(141), String::new()));
}

#[test]
fn an_interrupted_tour_leaves_nothing_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let (child, mut output) = tour_until("$ zfs create testpool/myprojects/project1", folder.path());
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("told");
    // The remaining output is read, so that the tour does not wait for a reader.
    std::io::copy(&mut output, &mut std::io::sink()).expect("read");
    let (code, messages) = ended(child, folder.path());
    assert!(code == Some(130) && !messages.contains("tour"), "{code:?} {messages}");
}
