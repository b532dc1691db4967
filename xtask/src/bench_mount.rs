//! `cargo xtask bench mount`: our mounts beside the kernel's file systems and beside empty FUSE file systems.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{Outcome, cargo, must, root};

/// A program that is measured or measures, and the Debian package that it is in.
const PROGRAMS: [(&str, &str); 5] = [
    ("mkfs.ext4", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("mkfs.btrfs", "btrfs-progs"),
    ("fio", "fio"),
    ("bonnie++", "bonnie++"),
];
/// Packages that are unpacked, not installed: zfs-fuse would take the place of OpenZFS's tools, the judges.
const UNPACKED: [&str; 2] = ["zfs-fuse", "libfuse2"];

/// Builds, gets what is missing, and measures. `arguments` are handed on; `--dir DIR` among them is the folder whose disk
/// matters.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    must(&mut cargo(&["build", "--release", "--package", "cenote-bench", "--package", "cenote-cli"]))?;
    for (program, package) in PROGRAMS {
        if !is_there(program)
            && must(&mut apt_get(&["install", "-y", "--no-install-recommends", package])).is_err()
        {
            println!("{program} is not here (Debian: apt install {package}): what needs it is left out");
        }
    }
    let tools = root().join("target/bench-tools");
    if !tools.join("sbin/zfs-fuse").is_file()
        && let Err(reason) = unpack(&tools)
    {
        println!("zfs-fuse could not be fetched and is left out: {reason}");
    }
    let (own, rest): (Vec<&String>, Vec<&String>) = match arguments.iter().position(|word| word == "--dir") {
        Some(at) => arguments.iter().partition(|word| {
            arguments.get(at..at + 2).is_some_and(|pair| pair.iter().any(|own| std::ptr::eq(own, *word)))
        }),
        None => (Vec::new(), arguments.iter().collect()),
    };
    let dir = own.get(1).map_or_else(|| root().join("target"), |dir| PathBuf::from(dir.as_str()));
    let mut bench = Command::new(root().join("target/release/cenote-bench"));
    bench.arg("--dir").arg(dir).arg("mount").arg("--program").arg(root().join("target/release/cenote"));
    must(bench.arg("--zfs-fuse").arg(tools).args(rest))
}

/// Fetches packages and unpacks them into a folder.
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
