//! The files that `packaging/install.sh` installs.
// Tests do not run for a client, so they may use the process's own streams.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]
// Tests use `std` to make and damage files.
#![allow(clippy::disallowed_types, missing_docs)]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Installs into a folder, below a prefix.
fn install(options: &[&str], prefix: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("a folder");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/install.sh");
    let output = Command::new("/bin/sh")
        .arg(script)
        .args(options)
        .arg(env!("CARGO_BIN_EXE_cenote"))
        .env("DESTDIR", root.path())
        .env("PREFIX", prefix)
        .output()
        .expect("a shell");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    root
}

fn listed(root: &Path, prefix: &str) -> Vec<PathBuf> {
    let list = root.join(format!("{}/share/doc/cenote/files", &prefix[1..]));
    let text = std::fs::read_to_string(list).expect("a list");
    text.lines().map(|line| root.join(line.trim_start_matches('/'))).collect()
}

#[test]
fn every_name_is_there_and_works() {
    let root = install(&[], "/usr");
    let files = listed(root.path(), "/usr");
    assert!(files.iter().all(|file| file.exists()), "{files:?}");
    let output = Command::new(root.path().join("usr/sbin/zpool")).arg("version").output().expect("it runs");
    assert!(output.status.success());
    let unit = std::fs::read_to_string(root.path().join("usr/lib/systemd/system/cenoted.service"));
    assert!(unit.expect("there").contains("ExecStart=/usr/sbin/cenoted\n"));
}

/// Debuggers find the symbols below `/usr/lib/debug` by the name in `.gnu_debuglink`.
#[test]
fn debug_symbols_are_beside_the_program() {
    let Some(readelf) = testkit::need_tool("readelf") else { return };
    let root = install(&[], "/usr");
    let sections = |path: &str| {
        let output =
            Command::new(&readelf).arg("-SW").arg(root.path().join(path)).output().expect("it starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let program = sections("usr/bin/cenote");
    assert!(program.contains(".gnu_debuglink") && !program.contains(".symtab"), "{program}");
    assert!(sections("usr/lib/debug/usr/bin/cenote.debug").contains(".symtab"));
}

#[test]
fn the_names_of_other_tools_can_be_left_to_them() {
    let root = install(&["--without-names"], "/opt/cenote");
    let files = listed(root.path(), "/opt/cenote");
    let is_theirs = |file: &&PathBuf| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        name == "mount.zfs"
            || ["zpool", "zfs", "zdb", "zstream", "zstreamdump"]
                .contains(&name.split('.').next().unwrap_or_default())
    };
    assert_eq!(files.iter().find(is_theirs), None);
    let unit = std::fs::read_to_string(root.path().join("opt/cenote/lib/systemd/user/cenoted.service"));
    assert!(unit.expect("there").contains("ExecStart=/opt/cenote/sbin/cenoted\n"));
    assert!(root.path().join("sbin/mount.fuse.cenote").symlink_metadata().is_ok());
}

#[test]
fn systemd_takes_the_units() {
    if !testkit::need_file("/usr/bin/systemd-analyze") {
        return;
    }
    let root = install(&[], "/usr");
    // System programs that units name are looked up in the same root.
    std::fs::create_dir_all(root.path().join("bin")).unwrap();
    std::fs::copy("/bin/kill", root.path().join("bin/kill")).unwrap();
    let output = Command::new("systemd-analyze")
        .arg("verify")
        .arg(format!("--root={}", root.path().display()))
        .args(["cenoted.service", "cenoted.socket"])
        // The manual pages that the units name are looked up here.
        .env("MANPATH", root.path().join("usr/share/man"))
        .output()
        .expect("it starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !text.contains("cenoted"), "{text}");
}
