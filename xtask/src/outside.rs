//! Judges outside of the project: a kernel with OpenZFS, and OpenZFS's test suite.
//!
//! Both are found through environment variables or in `../shared`, a folder beside the checkout.

use std::path::PathBuf;
use std::process::Command;

use crate::{Outcome, must, root};

/// Script for the guest: the kernel's work on our pools.
const GUEST: &str = "xtask/src/guest/peer.sh";
/// Script for the guest: the kernel's replay of logs.
const GUEST_LOGS: &str = "xtask/src/guest/logs.sh";
/// Pools with logs. They are replayed one at a time, so that a kernel panic affects only one of them.
const LOGS: [&str; 5] =
    ["records", "clones", "clones-claimed-there", "clones-replayed-here", "clones-claimed-here"];
/// Layouts that the kernel gets: those of `cenote-interop` with enough space for its changes.
const LAYOUTS: [&str; 19] = [
    "single",
    "stripe",
    "mirror",
    "mirrors",
    "raidz1",
    "raidz2",
    "raidz3",
    "raidz1s",
    "log",
    "mirrored-log",
    "special",
    "special-log",
    "dedup-class",
    "all-classes",
    "sectors-1k",
    "sectors-16k",
    "sectors-64k",
    "clones",
    "clones-log",
];

/// `cargo xtask kernel-peer`: a kernel with OpenZFS works on our pools. After `--`, passes the arguments to
/// the peer's `run.sh`.
pub(crate) fn kernel_peer(arguments: &[String]) -> Outcome {
    let run = outside("CENOTE_KERNEL_PEER", "kernel-peer", "run.sh")?;
    if let Some((first, rest)) = arguments.split_first()
        && first == "--"
    {
        return must(Command::new(run).args(rest));
    }
    if arguments == ["--logs"] {
        return logs(&run);
    }
    let (seed, layouts) = match arguments {
        [flag, seed, layouts @ ..] if flag == "--seed" => (seed.as_str(), layouts),
        layouts => ("1", layouts),
    };
    let layouts: Vec<&str> =
        if layouts.is_empty() { LAYOUTS.to_vec() } else { layouts.iter().map(String::as_str).collect() };
    if let Some(unknown) = layouts.iter().find(|layout| !LAYOUTS.contains(layout)) {
        return Err(format!("no layout '{unknown}'; there are {}", LAYOUTS.join(", ")));
    }
    must(&mut crate::cargo(&["build", "--quiet", "--package", "cenote-interop", "--bin", "cenote-peer"]))?;
    let folder = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
    let peer = |verb: &str| {
        let mut command = Command::new(root().join("target/debug/cenote-peer"));
        command.arg(verb).arg(folder.path()).args(["--seed", seed]);
        for layout in &layouts {
            command.args(["--layout", layout]);
        }
        must(&mut command)
    };
    println!("pools are made");
    peer("make")?;
    println!("the kernel works on them");
    let share = format!("out={}", folder.path().display());
    let script = root().join(GUEST);
    must(Command::new(run).args(["--live", "--mem", "3000", "--share", &share]).arg(script).args(&layouts))?;
    println!("what it has left is looked at");
    peer("check")
}

/// `cargo xtask kernel-peer --logs`: the kernel claims and replays logs that we leave. The result must be the
/// same as that of our own replay.
fn logs(run: &std::path::Path) -> Outcome {
    must(&mut crate::cargo(&["build", "--quiet", "--package", "cenote-crash", "--bin", "cenote-logs"]))?;
    let folder = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
    let ours =
        |verb: &str| must(Command::new(root().join("target/debug/cenote-logs")).arg(verb).arg(folder.path()));
    ours("make")?;
    let share = format!("out={}", folder.path().display());
    let mut outcome = Ok(());
    for case in LOGS {
        let mut command = Command::new(run);
        command
            .args(["--live", "--timeout", "300", "--share", &share])
            .arg(root().join(GUEST_LOGS))
            .arg(case);
        outcome = must(&mut command).map_err(|why| format!("{case}: {why}")).and(outcome);
    }
    ours("check").and(outcome)
}

/// A file in a folder beside the checkout, or in the folder that a variable names.
pub(crate) fn outside(variable: &str, folder: &str, file: &str) -> Result<PathBuf, String> {
    let beside = || root().join("../shared").join(folder);
    let folder = std::env::var_os(variable).map_or_else(beside, PathBuf::from);
    let path = folder.join(file);
    match path.is_file() {
        true => Ok(path),
        false => {
            Err(format!("needs {} (or {variable}=FOLDER); it is not part of the project", path.display()))
        }
    }
}
