//! The judges: the tools of the other implementation and the checkers of manual pages, and how a Debian 12
//! gets them.
//!
//! Only user-space tools are installed, never a kernel module: the tests of this project read and write pools
//! in ordinary files. `zfs-test` depends on the module, or on its sources; if neither is installed, an empty
//! package takes that place (`apt-get purge cenote-judges` removes it).

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::{Outcome, apt, must};

/// A tool that some tests need, and the parts that are not tested without it.
struct Judge {
    tool: &'static str,
    package: &'static str,
    settles: &'static str,
}

const JUDGES: [Judge; 7] = [
    Judge {
        tool: "zdb",
        package: "zfsutils-linux",
        settles: "comparisons of every block and object with zdb",
    },
    Judge { tool: "zstream", package: "zfsutils-linux", settles: "comparisons of send streams" },
    Judge { tool: "ztest", package: "zfs-test", settles: "pools made by random OpenZFS activity" },
    Judge { tool: "raidz_test", package: "zfs-test", settles: "RAID-Z arithmetic against OpenZFS's" },
    Judge { tool: "fusermount3", package: "fuse3", settles: "mounts" },
    Judge { tool: "mandoc", package: "mandoc", settles: "that manual pages are whole" },
    Judge { tool: "groff", package: "groff-base", settles: "the same, as `man` shows them" },
];

/// The distribution whose packages have the right versions.
const CODENAME: &str = "bookworm";
const SUITE: &str = "bookworm-backports";
const SOURCES_FILE: &str = "/etc/apt/sources.list.d/cenote-judges.sources";

/// `cargo xtask judges`.
pub(crate) fn run() -> Outcome {
    match set_up() {
        missing if missing.is_empty() => {
            println!("all judges are here");
            Ok(())
        }
        missing => Err(format!("missing: {}", missing.join(", "))),
    }
}

/// Installs missing tools where possible, warns of those that are still missing, and returns their names.
pub(crate) fn set_up() -> Vec<&'static str> {
    if packages().is_empty() {
        return Vec::new();
    }
    if let Err(reason) = install() {
        eprintln!("judges are not installed: {reason}");
    }
    let missing = missing();
    if !missing.is_empty() {
        announce(&missing);
    }
    missing.iter().map(|judge| judge.tool).collect()
}

fn missing() -> Vec<&'static Judge> {
    JUDGES.iter().filter(|judge| testkit::tool(judge.tool).is_none()).collect()
}

/// The packages to be installed.
fn packages() -> Vec<&'static str> {
    let mut packages: Vec<&str> = missing().iter().map(|judge| judge.package).collect();
    packages.dedup();
    packages
}

fn announce(missing: &[&Judge]) {
    let rule = "!".repeat(78);
    eprintln!("{rule}\nTESTS WILL BE SKIPPED, for want of:");
    for judge in missing {
        eprintln!("  {:<12} (package {}): {}", judge.tool, judge.package, judge.settles);
    }
    eprintln!("On Debian 12, `cargo xtask test` as root installs them (contrib of {SUITE}).\n{rule}");
}

fn install() -> Outcome {
    let os = fs::read_to_string("/etc/os-release").unwrap_or_default();
    if !os.lines().any(|line| line == format!("VERSION_CODENAME={CODENAME}")) {
        return Err("this is not Debian 12".to_owned());
    }
    if !is_root() {
        return Err("this needs root".to_owned());
    }
    enable_backports()?;
    // A foreign source that does not respond is no error; a missing package is.
    if let Err(reason) = must(apt_get().arg("update")) {
        eprintln!("{reason} (going on)");
    }
    stand_in_for_kernel_module()?;
    let packages = packages();
    println!("installing {}", packages.join(" "));
    // One by one, because some may be available although others are not.
    let results: Vec<Outcome> = packages.iter().map(|package| install_package(package)).collect();
    results.into_iter().collect()
}

fn install_package(package: &str) -> Outcome {
    let install =
        |words: &[&str]| must(apt_get().args(["install", "-y", "--no-install-recommends"]).args(words));
    if !package.starts_with("zfs") {
        return install(&[package]);
    }
    // Only the judge comes from that suite; its dependencies do only if those of the stable release do not
    // suffice.
    install(&[&format!("{package}/{SUITE}")]).or_else(|_| install(&["-t", SUITE, package]))
}

/// Control file of the package that replaces the kernel module.
const STAND_IN: &str = "\
Package: cenote-judges
Version: 1
Architecture: all
Maintainer: Cenote <cenote@localhost>
Provides: zfs-modules
Description: takes the place of the ZFS kernel module for zfs-test
 Tests of Cenote use ztest and raidz_test of zfs-test, which need no kernel module.
 This package is empty. Remove it before you install a real one.
";

/// Prevents apt from downloading and building the kernel module as a dependency of `zfs-test`.
fn stand_in_for_kernel_module() -> Outcome {
    let plan =
        apt_get().args(["install", "-s", "--no-install-recommends", &format!("zfs-test/{SUITE}")]).output();
    let plan = plan.map_err(|error| format!("apt-get: {error}"))?;
    let wants_module =
        String::from_utf8_lossy(&plan.stdout).lines().any(|line| line.starts_with("Inst zfs-dkms "));
    if !wants_module {
        return Ok(());
    }
    let folder = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
    let (tree, package) = (folder.path().join("tree"), folder.path().join("cenote-judges.deb"));
    let write = || {
        fs::create_dir_all(tree.join("DEBIAN"))?;
        fs::write(tree.join("DEBIAN/control"), STAND_IN)
    };
    write().map_err(|error| format!("{}: {error}", tree.display()))?;
    must(Command::new("dpkg-deb").args(["--build", "--root-owner-group"]).arg(&tree).arg(&package))?;
    must(Command::new("dpkg").arg("--install").arg(&package))
}

/// Adds the suite and component of the judges to the machine's own mirror.
fn enable_backports() -> Outcome {
    let sources = apt::sources(Path::new("/etc/apt"));
    if apt::offers(&sources, SUITE, "contrib") {
        return Ok(());
    }
    let debian = apt::of_distribution(&sources, CODENAME)
        .ok_or_else(|| format!("no source of this machine offers {CODENAME} main"))?;
    // `main` as well: judges depend on packages there, in the versions of that suite.
    let text = debian.rendered(SUITE, "main contrib");
    fs::write(
        SOURCES_FILE,
        format!("# Written by `cargo xtask test` of Cenote for its judges; delete at will.\n{text}"),
    )
    .map_err(|error| format!("{SOURCES_FILE}: {error}"))?;
    println!("{SUITE} enabled in {SOURCES_FILE}");
    Ok(())
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
    command.args([
        "-q",
        "-o",
        "DPkg::Lock::Timeout=300",
        "-o",
        "Acquire::Retries=3",
        "-o",
        "Dpkg::Use-Pty=0",
    ]);
    command
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    // The owner of this process's entry in /proc is its user.
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}
