//! Directory loops and invalid names with valid checksums: copies end, report what they met, and stay below their
//! target.
#![allow(clippy::disallowed_types)] // The test looks at files of the host.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cenote::copy::{Archiver, Damaged, Extractor, HostTree, Observer, Problem, Summary, TarWriter, Trouble};
use cenote::{OpenOptions, Pool};
use tempfile::TempDir;
use testkit::{Fixture, need_tool};

/// First word of a micro ZAP's block (docs/on-disk/21-zap.md).
const MICRO: u64 = (1 << 63) + 3;
/// Size in bytes of its header and of each entry.
const ENTRY: usize = 64;
/// File type of a directory in the upper four bits of an entry; the object id is below.
const IS_DIR: u64 = 4;

/// Changes the value and name of each entry in micro ZAPs.
fn spoil_entries(change: fn(&mut u64, &mut [u8])) {
    zio::testing::set_mutator(Some(Box::new(move |bp, bytes| {
        let is_micro = bytes.get(..8).is_some_and(|word| word == MICRO.to_le_bytes());
        if bp.obj_type() != format::ObjType::DIRECTORY || !is_micro {
            return;
        }
        for entry in bytes.chunks_exact_mut(ENTRY).skip(1).filter(|entry| entry[14] != 0) {
            let (value, name) = entry.split_at_mut(14);
            let mut word = u64::from_le_bytes(value[..8].try_into().unwrap_or_default());
            change(&mut word, name);
            value[..8].copy_from_slice(&word.to_le_bytes());
        }
    })));
}

/// Counts the reported problems.
#[derive(Default)]
struct Told {
    misplaced: usize,
    bad_entries: usize,
    other: usize,
}

impl Observer for Told {
    fn problem(&mut self, _: &[u8], problem: &Problem) {
        match problem {
            Problem::Tree(Trouble::Misplaced) => self.misplaced += 1,
            Problem::Tree(Trouble::Entries { .. }) => self.bad_entries += 1,
            _ => self.other += 1,
        }
    }
}

/// Runs one test at a time, because the mutator is global to the process.
static TURN: Mutex<()> = Mutex::new(());

/// Holds the lock, and removes the mutator at the end.
struct Turn<'a>(#[allow(dead_code)] MutexGuard<'a, ()>);

impl Turn<'_> {
    fn take() -> Turn<'static> {
        Turn(TURN.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        zio::testing::set_mutator(None);
    }
}

/// A directory that contains only a directory `target`.
fn target() -> TempDir {
    let above = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(above.path().join("target")).expect("made");
    above
}

/// Names of the entries of a directory.
fn names_in(folder: &Path) -> Vec<OsString> {
    let listing = std::fs::read_dir(folder).expect("readable");
    let mut names: Vec<_> = listing.map(|e| e.expect("an entry").file_name()).collect();
    names.sort();
    names
}

/// Results of a copy and of an archive.
struct Copied {
    told: Told,
    summary: Summary,
    archived: Summary,
    archive: Vec<u8>,
}

/// Copies and archives a file system; the problems are those of the copy.
fn copy(to: &Path) -> Copied {
    let fixture = Fixture::open("single");
    let pool = Pool::open("t_single", &OpenOptions::new().search(fixture.dir())).expect("opens");
    let fs = pool.dataset("t_single/fs").and_then(|dataset| dataset.filesystem()).expect("a file system");
    let root = fs.node(fs.root()).expect("its root");
    let mut told = Told::default();
    let tree = HostTree::open(to, false).expect("a folder");
    let mut extractor = Extractor::new(tree, Damaged::LeaveOut, &mut told);
    extractor.copy(fs.filesystem(), &root, ("t_single/fs", b""), None, None);
    let summary = extractor.summary().clone();
    drop(extractor);
    let mut again = Told::default();
    let archive = Shared::default();
    let mut archiver = Archiver::new(TarWriter::new(archive.clone(), true), Damaged::LeaveOut, &mut again);
    archiver.add(&Arc::clone(&fs), &root, ("t_single/fs", b""), b"", None).expect("memory takes it");
    let archived = archiver.finish().expect("memory takes it");
    let archive = archive.0.lock().expect("whole").clone();
    Copied { told, summary, archived, archive }
}

/// An archive in memory.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("whole").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Names in an archive, as the host's tar reads them.
fn names_of_archive(archive: &[u8]) -> Option<Vec<String>> {
    let tar = need_tool("tar")?;
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), archive).expect("written");
    let output = Command::new(tar).args(["--quoting-style=escape", "-tPf"]).arg(file.path()).output();
    let text = String::from_utf8(output.expect("tar runs").stdout).expect("escaped");
    Some(text.lines().map(str::to_owned).collect())
}

/// Gives this name to every entry of every directory.
fn rename_all(evil: &'static [u8]) {
    static EVIL: Mutex<&[u8]> = Mutex::new(b"");
    *EVIL.lock().expect("whole") = evil;
    spoil_entries(|_, name| {
        let evil = *EVIL.lock().expect("whole");
        name.fill(0);
        name[..evil.len()].copy_from_slice(evil);
    });
}

#[test]
fn directories_in_circles_end() {
    let _turn = Turn::take();
    let above = target();
    let Copied { told, summary: healthy, archived, .. } = copy(&above.path().join("target"));
    assert_eq!((told.misplaced, told.bad_entries), (0, 0));
    assert_eq!(archived.dirs, healthy.dirs);

    // Every directory entry leads to the root.
    spoil_entries(|value, _| {
        if *value >> 60 == IS_DIR {
            *value = IS_DIR << 60 | 34;
        }
    });
    let above = target();
    let Copied { told, summary, archived, .. } = copy(&above.path().join("target"));
    assert!(told.misplaced > 0, "it is told");
    assert!(summary.files <= healthy.files && summary.dirs <= healthy.dirs);
    assert_eq!(archived.dirs, summary.dirs);

    // All entries of a directory lead to the same file or directory.
    spoil_entries(|value, _| *value = *value & !0xff | 64);
    let above = target();
    let Copied { summary, .. } = copy(&above.path().join("target"));
    assert!(summary.dirs <= healthy.dirs + 8);
}

#[test]
fn names_that_are_none_are_told_and_lead_nowhere() {
    let _turn = Turn::take();
    let longest = &[b'/'; 49];
    for evil in
        [b"../../escaped".as_slice(), b"..", b".", b"/tmp/escaped", b"a/../../escaped", b"a/b", longest]
    {
        rename_all(evil);
        let above = target();
        let Copied { told, archive, .. } = copy(&above.path().join("target"));
        let shown = evil.escape_ascii();
        assert!(told.bad_entries > 0, "{shown} is told");
        assert_eq!(names_in(above.path()), ["target"], "{shown}: nothing is beside the target");
        // Fat ZAPs are not changed and keep their names.
        let made = names_in(&above.path().join("target"));
        assert!(made.iter().all(|name| !name.as_bytes().contains(&b'/')), "{shown}: {made:?}");
        for name in names_of_archive(&archive).unwrap_or_default() {
            let leads_out = name.starts_with('/') || name.split('/').any(|part| part == "..");
            assert!(!leads_out, "{shown}: {name} in the archive");
        }
    }
}

#[test]
fn one_name_for_everything_keeps_beneath_the_target() {
    let _turn = Turn::take();
    // Files, directories and symbolic links have one name: what is created first must not be written through.
    rename_all(b"same");
    let above = target();
    let Copied { summary, .. } = copy(&above.path().join("target"));
    assert_eq!(names_in(above.path()), ["target"]);
    assert_eq!(names_in(&above.path().join("target")), ["same"]);
    assert!(summary.dirs > 0 || summary.files > 0);
}

#[test]
fn links_that_are_there_already_are_not_written_through() {
    let _turn = Turn::take();
    let clean = target();
    copy(&clean.path().join("target"));
    let all = names_in(&clean.path().join("target"));
    assert!(all.len() > 5);
    // The name leads out of the target: to an existing directory, or to a file that does not exist.
    for to in ["outside", "outside/new"] {
        let above = target();
        let outside = above.path().join("outside");
        std::fs::create_dir(&outside).expect("made");
        for name in &all {
            symlink(above.path().join(to), above.path().join("target").join(name)).expect("a link");
        }
        let Copied { told, .. } = copy(&above.path().join("target"));
        assert_eq!(names_in(&outside), Vec::<OsString>::new(), "{to}");
        assert_eq!(names_in(above.path()), ["outside", "target"]);
        // Directories cannot be created where the links are; files replace them.
        assert!(told.other > 0, "{to}: it is told");
    }
}
