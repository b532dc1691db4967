//! `cenote stream ls`, `cat`, `cp`, `tar`, `find`, `diff` and `join`: the files of golden streams are what OpenZFS's
//! receive made of them.
#![allow(clippy::disallowed_types)] // It changes files with streams.

use crate::zstream::fed;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use testkit::{Entry, EntryKind};

const CHAIN: [&str; 3] = ["incr-b-c", "full", "incr-a-b"];

/// A folder with the golden chain, in which commands run.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        let folder = Folder(tempfile::tempdir().expect("a folder"));
        CHAIN.iter().for_each(|name| folder.write(name, &testkit::stream(name)));
        folder
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path().join(name), bytes).expect("written");
    }

    fn command(&self) -> Command {
        let mut command = Command::new(testkit::cenote());
        command.arg("stream").current_dir(self.path()).env("TZ", "UTC");
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command().args(words).stdin(Stdio::null()).output().expect("runs")
    }

    /// What a command prints that succeeds.
    fn told(&self, words: &[&str]) -> Vec<u8> {
        let output = self.run(words);
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
        output.stdout
    }

    /// What a verb prints of the chain.
    fn of_chain(&self, verb: &[&str], targets: &[&str]) -> Vec<u8> {
        self.told(&[verb, &CHAIN, targets].concat())
    }

    /// The message of a command that fails.
    fn refused(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {}", text(&output.stdout));
        text(&output.stderr)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The entries of a dataset, by path.
fn entries(dataset: &str) -> BTreeMap<String, Entry> {
    let all = testkit::received().1.filter(|entry| entry.ds == dataset);
    all.filter_map(|entry| Some((String::from_utf8(entry.path.clone()).ok()?, entry))).collect()
}

#[test]
fn files_of_every_snapshot_are_listed_and_read() {
    let folder = Folder::new();
    for snapshot in ["a", "b", "c"] {
        let expected = entries(&format!("dst/full@{snapshot}"));
        let found = folder.of_chain(&["find", "-q", "-print0"], &[&format!("@{snapshot}:/")]);
        let start = format!("src/fs@{snapshot}:/");
        let mut found: Vec<String> = found.split(|byte| *byte == 0).map(text).collect();
        found.retain(|path| *path != start && !path.is_empty());
        let mut found: Vec<&str> = found.iter().filter_map(|path| path.strip_prefix(&start)).collect();
        found.sort_unstable();
        let named: Vec<&str> = expected.keys().map(String::as_str).filter(|path| *path != ".").collect();
        assert!(named.iter().all(|path| found.contains(path)), "{snapshot}: {found:?}");
        let files =
            expected.values().filter(|entry| entry.kind == EntryKind::File && !entry.hashes_segments());
        for file in files.filter(|file| file.sha256.is_some()).step_by(9).take(8) {
            let bytes =
                folder.of_chain(&["cat", "-q"], &[&format!("src/fs@{snapshot}:/{}", file.path_lossy())]);
            assert_eq!(Some(testkit::sha256(&bytes)), file.sha256, "{}", file.path_lossy());
        }
    }
    let listed = text(&folder.of_chain(&["ls", "-q"], &[]));
    let newest = entries("dst/full@c");
    let top = newest.keys().filter(|path| !path.contains('/') && !path.starts_with('.'));
    assert!(top.clone().count() > 0 && top.clone().all(|name| listed.lines().any(|line| line == name)));
    assert!(folder.path().join("incr-b-c.idx").exists());

    let changes = text(&folder.of_chain(&["diff", "-q", "-F"], &["@a", "@b"]));
    assert!(changes.lines().any(|line| line.starts_with("+\tF\t/")), "{changes}");
    assert!(changes.lines().any(|line| line.starts_with("M\t/\t/")), "{changes}");
}

#[test]
fn copies_and_archives_are_written() {
    let folder = Folder::new();
    fs::create_dir(folder.path().join("out")).expect("made");
    // Large attributes are told, where the file system here has no room for them.
    let copied = folder.run(&[&["cp", "-q", "-r", "--no-owner"], &CHAIN[..], &["@b:/", "out"]].concat());
    let told = text(&copied.stderr);
    assert!(
        told.lines().all(|line| line.contains("attributes") || line.contains("not everything")),
        "{told}"
    );
    folder.of_chain(&["tar", "-q", "-f", "b.tar"], &["@b:/"]);
    let listed = Command::new("tar").arg("-tf").arg(folder.path().join("b.tar")).output().expect("runs");
    let listed = text(&listed.stdout);
    let expected = entries("dst/full@b");
    let files = expected.values().filter(|entry| entry.kind == EntryKind::File && !entry.hashes_segments());
    for file in files.filter(|file| file.sha256.is_some() && file.path.is_ascii()).take(50) {
        let name = file.path_lossy();
        let bytes = fs::read(folder.path().join("out").join(&name)).expect("copied");
        assert_eq!(Some(testkit::sha256(&bytes)), file.sha256, "{name}");
        // `tar` escapes some names.
        let is_plain = name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
        assert!(!is_plain || listed.lines().any(|line| line == name), "{name}");
    }
}

#[test]
fn standard_input_and_compressed_streams() {
    let folder = Folder::new();
    let output = fed(&mut folder.command(), &["ls", "-q", "-", "@a:/"], &testkit::stream("full"));
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(output.stdout, folder.told(&["ls", "-q", "full", "@a:/"]));
    for (tool, ending) in [("gzip", "gz"), ("zstd", "zst")] {
        let packed = Command::new(tool).arg("-c").arg(folder.path().join("full")).output();
        let Ok(packed) = packed else { continue };
        let name = format!("packed.{ending}");
        folder.write(&name, &packed.stdout);
        assert_eq!(output.stdout, folder.told(&["ls", "-q", &name, "@a:/"]), "{tool}");
        assert!(text(&folder.told(&["verify", "-q", &name])).contains(": whole: 1 snapshot"));
    }
}

#[test]
fn a_volume_is_read_as_an_image() {
    let folder = Folder::new();
    ["zvol-full", "zvol-incr"].iter().for_each(|name| folder.write(name, &testkit::stream(name)));
    let (datasets, _) = testkit::received();
    let expected = datasets.into_iter().find(|dataset| dataset.name == "dst/vol").expect("an answer");
    let image = |target: &[&str]| folder.told(&[&["cat", "-q", "zvol-incr", "zvol-full"], target].concat());
    let newest = image(&[]);
    assert_eq!(Some(newest.len() as u64), expected.volume_bytes);
    assert_eq!(Some(testkit::sha256(&newest)), expected.volume_sha256);
    assert!(image(&["@r2"]) == newest && image(&["@r1"]) != newest);
}

#[test]
fn what_does_not_fit_is_refused() {
    let folder = Folder::new();
    let told = folder.refused(&["ls", "-q", "incr-b-c", "full"]);
    assert!(told.contains("incr-b-c: src/fs@c starts from the snapshot with guid "), "{told}");
    let told = folder.refused(&["ls", "-q", "full", "@nosuch:/"]);
    assert!(told.contains("no snapshot '@nosuch' in the streams"), "{told}");
    let told = folder.refused(&["ls", "-q", "@a:/"]);
    assert!(told.contains("no FILE with a stream"), "{told}");
    let mut damaged = testkit::stream("full");
    let at = damaged.len() / 2;
    damaged[at] ^= 1;
    folder.write("damaged", &damaged);
    let told = folder.refused(&["ls", "-q", "damaged"]);
    assert!(told.contains("damaged: ") && told.contains("checksum mismatch at byte"), "{told}");
    let told = folder.refused(&["cat", "-q", "full", "@a:/nosuch"]);
    assert!(told.contains("No such file or directory"), "{told}");

    // A stream that is damaged behind the back of its index: an error where it is read, and other files are right.
    folder.told(&["ls", "-q", "full"]);
    let path = folder.path().join("full");
    let changed = fs::metadata(&path).and_then(|meta| meta.modified()).expect("there");
    folder.write("full", &damaged);
    fs::File::options().write(true).open(&path).and_then(|file| file.set_modified(changed)).expect("set");
    let output = folder.run(&["tar", "-q", "-f", "all.tar", "full"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("checksum"), "{}", text(&output.stderr));
    assert_ne!(folder.told(&["ls", "-q", "full"]), b"");
}

#[test]
fn a_chain_is_joined_into_one_full_stream() {
    let folder = Folder::new();
    for snapshot in ["b", "c"] {
        folder.of_chain(&["join", "-q", "-f", "joined"], &[&format!("@{snapshot}")]);
        let told = text(&folder.told(&["verify", "-q", "joined"]));
        assert!(told.starts_with("joined: whole: 1 snapshot"), "{told}");
        let listed = |words: &[&str]| text(&folder.told(&[&["find", "-q"], words].concat()));
        let target = format!("@{snapshot}:/");
        let of_chain = text(&folder.of_chain(&["find", "-q"], &[&target]));
        assert_eq!(listed(&["joined", &target]), of_chain);
        let file = entries(&format!("dst/full@{snapshot}"));
        let files = file.values().filter(|file| file.kind == EntryKind::File && !file.hashes_segments());
        for file in files.filter(|file| file.sha256.is_some()).step_by(9).take(8) {
            let bytes = folder.told(&["cat", "-q", "joined", &format!("@{snapshot}:/{}", file.path_lossy())]);
            assert_eq!(Some(testkit::sha256(&bytes)), file.sha256, "{}", file.path_lossy());
        }
    }
}
