//! Common parts of the tests of `cenote`'s verbs: running it, keys, and manifests.
#![allow(dead_code)] // Each test file uses a part.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use testkit::{Entry, Fixture};

/// A `cenote` command that looks for pools in one folder only.
pub(crate) fn cenote(devices: &Path, verb: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
    command.arg(verb).arg("-d").arg(devices).stdin(Stdio::null()).env("CENOTE_DIRECT", "1");
    command
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> (i32, Vec<u8>, String) {
    let Output { status, stdout, stderr } = command.output().expect("the command starts");
    (status.code().unwrap_or(-1), stdout, String::from_utf8_lossy(&stderr).into_owned())
}

/// Runs a command that must succeed without messages; returns its output.
pub(crate) fn good(command: &mut Command) -> Vec<u8> {
    let (code, out, err) = run(command);
    assert_eq!((code, err.as_str()), (0, ""), "{command:?}");
    out
}

/// The target `DATASET:/PATH`.
pub(crate) fn target(dataset: &str, path: &[u8]) -> OsString {
    let path = if path == b"." { b"" } else { path };
    OsString::from_vec([dataset.as_bytes(), b":/", path].concat())
}

/// `--key` arguments for all encryption roots of a fixture, and the folder with the keys.
pub(crate) fn keys(fixture: &Fixture) -> (tempfile::TempDir, Vec<OsString>) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut args = Vec::new();
    for dataset in &fixture.manifest().datasets {
        let is_root = dataset.property("encryptionroot") == Some(&dataset.name);
        let material = dataset.property("keyformat").and_then(testkit::keys::material);
        if let (true, Some(material)) = (is_root, material) {
            let file = folder.path().join(args.len().to_string());
            std::fs::write(&file, material).expect("a key file");
            args.push("--key".into());
            args.push(OsString::from(format!("{}={}", dataset.name, file.display())));
        }
    }
    (folder, args)
}

/// Files of each file system and snapshot that was mounted when the manifest was made.
pub(crate) fn by_dataset(fixture: &Fixture) -> BTreeMap<String, Vec<Entry>> {
    let mut all: BTreeMap<String, Vec<Entry>> = BTreeMap::new();
    for entry in fixture.entries() {
        all.entry(entry.ds.clone()).or_default().push(entry);
    }
    all
}

/// Whether the manifest describes the stored state: for some unclean pools it describes the state after a
/// replay.
pub(crate) fn is_as_stored(fixture: &Fixture) -> bool {
    !fixture.manifest().is_after_replay()
}

/// The path without the trailing slash of a directory; `.` for the root.
pub(crate) fn plain(path: &[u8]) -> Vec<u8> {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    if path.is_empty() { b".".to_vec() } else { path.to_vec() }
}

/// A path of the host: a folder and the bytes of a pool's path.
pub(crate) fn below(folder: &Path, path: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    folder.join(OsStr::from_bytes(path))
}
