//! `cargo xtask bench mount` and `bench stream`: compares our mounts with the kernel's file systems and with empty FUSE
//! file systems, and our streams with other ways to copy.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{Outcome, cargo, must, root};

/// Programs that are measured or that measure, and their Debian packages.
const PROGRAMS: [(&str, &str); 5] = [
    ("mkfs.ext4", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("mkfs.btrfs", "btrfs-progs"),
    ("fio", "fio"),
    ("bonnie++", "bonnie++"),
];
/// Other ways to copy, and their packages.
const COPIERS: [(&str, &str); 3] = [("tar", "tar"), ("rsync", "rsync"), ("mkfs.btrfs", "btrfs-progs")];
/// Packages that are unpacked and not installed: an installed zfs-fuse would replace OpenZFS's tools, the
/// judges.
const UNPACKED: [&str; 2] = ["zfs-fuse", "libfuse2"];

/// Builds, gets missing programs, and measures. `arguments` are passed on, except for `--dir DIR`, the folder
/// on the disk to measure, and `--no-build`, which uses the present programs.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    let tools = root().join("target/bench-tools");
    let fetched = || {
        install(&PROGRAMS);
        unpacked(&tools);
    };
    measure("mount", arguments, fetched, &["--zfs-fuse".as_ref(), tools.as_os_str()])
}

/// `cargo xtask bench stream`: compares sent and received snapshots with other ways to copy. The arguments are as those
/// of [`run`].
pub(crate) fn stream(arguments: &[String]) -> Outcome {
    measure("stream", arguments, || install(&COPIERS), &[])
}

/// Builds the programs, calls `fetch`, and measures `what`, with `more` arguments.
fn measure(what: &str, arguments: &[String], fetch: impl FnOnce(), more: &[&OsStr]) -> Outcome {
    let (dir, builds, rest) = own(arguments);
    let asks_for_help = rest.iter().any(|word| *word == "--help" || *word == "-h");
    let programs = root().join("target/release");
    if builds && !(asks_for_help && programs.join("cenote-bench").is_file()) {
        must(&mut cargo(&["build", "--release", "--package", "cenote-bench", "--package", "cenote-cli"]))?;
    }
    if !asks_for_help {
        fetch();
    }
    let mut bench = Command::new(programs.join("cenote-bench"));
    bench.arg("--dir").arg(dir.map_or_else(|| root().join("target"), PathBuf::from)).arg(what);
    bench.arg("--program").arg(programs.join("cenote")).args(more);
    if !rest.iter().any(|word| word.starts_with("--out")) {
        bench.arg("--out").arg(root().join("target/bench"));
    }
    // Replaces this process, so that a signal to it ends the measurement, which then cleans up.
    let error = bench.args(rest).exec();
    Err(format!("{}: {error}", bench.get_program().to_string_lossy()))
}

/// Splits off the arguments for this task: the folder, and whether to build. Returns them with the rest.
fn own(arguments: &[String]) -> (Option<&str>, bool, Vec<&str>) {
    let (mut dir, mut builds, mut rest) = (None, true, Vec::new());
    let mut words = arguments.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "--dir" => dir = words.next(),
            "--no-build" => builds = false,
            _ => match word.strip_prefix("--dir=") {
                Some(named) => dir = Some(named),
                None => rest.push(word),
            },
        }
    }
    (dir, builds, rest)
}

/// Gets missing programs, as far as they are available.
fn install(programs: &[(&str, &str)]) {
    for (program, package) in programs {
        if !is_there(program)
            && must(apt_get(&["install", "-y", "--no-install-recommends"]).arg(package)).is_err()
        {
            println!("{program} is not here (Debian: apt install {package}): what needs it is left out");
        }
    }
}

/// Gets zfs-fuse into a folder, if it is available.
fn unpacked(tools: &Path) {
    if !tools.join("sbin/zfs-fuse").is_file()
        && let Err(reason) = unpack(tools)
    {
        println!("zfs-fuse could not be fetched and is left out: {reason}");
    }
}

/// Downloads packages and unpacks them into a folder.
fn unpack(folder: &Path) -> Outcome {
    let fetched = tempfile::tempdir().map_err(|error| error.to_string())?;
    must(apt_get(&["download"]).args(UNPACKED).current_dir(fetched.path()))?;
    let packages = std::fs::read_dir(fetched.path()).map_err(|error| error.to_string())?;
    for package in packages.flatten() {
        must(Command::new("dpkg-deb").arg("--extract").arg(package.path()).arg(folder))?;
    }
    Ok(())
}

fn apt_get(words: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
    command.args(["-q", "-o", "DPkg::Lock::Timeout=300"]).args(words);
    command
}

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_ours_is_handed_on() {
        let words = ["--quick", "--dir", "/d", "--only", "tree", "--no-build"].map(str::to_owned);
        assert_eq!(own(&words), (Some("/d"), false, vec!["--quick", "--only", "tree"]));
        assert_eq!(own(&["--dir=/e".to_owned()]), (Some("/e"), true, Vec::new()));
    }
}
