//! Directories that lead in circles, and names that are none, with right checksums: copies end, say
//! what they met, and keep beneath their target.
#![allow(clippy::disallowed_types)] // The test looks at files of the host.

use std::path::Path;
use std::sync::Arc;

use cenote::copy::archive::Archiver;
use cenote::copy::extract::Extractor;
use cenote::copy::host::{Damaged, HostTree};
use cenote::copy::tar::TarWriter;
use cenote::copy::walk::Trouble;
use cenote::copy::{Observer, Problem, Summary};
use cenote::{OpenOptions, Pool};
use testkit::Fixture;

/// First word of a small directory's block (docs/on-disk/21-zap.md).
const MICRO: u64 = (1 << 63) + 3;
/// Bytes of its header and of each entry.
const ENTRY: usize = 64;
/// Type of an entry in its upper four bits, and the object below.
const IS_DIR: u64 = 4;

/// Changes the value and the name of each entry of small directories.
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

/// Counts what is told.
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

/// Copies and archives a file system; what was told by the first.
fn copy(to: &Path) -> (Told, Summary) {
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
    let mut archiver = Archiver::new(TarWriter::new(Vec::new(), true), Damaged::LeaveOut, &mut again);
    archiver.add(&Arc::clone(&fs), &root, ("t_single/fs", b""), b"", None).expect("memory takes it");
    assert_eq!(archiver.finish().expect("memory takes it").dirs, summary.dirs);
    (told, summary)
}

/// One test: the mutator is the process's.
#[test]
fn hostile_directories() {
    let target = || {
        let above = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(above.path().join("target")).expect("made");
        above
    };
    let above = target();
    let (told, healthy) = copy(&above.path().join("target"));
    assert_eq!((told.misplaced, told.bad_entries), (0, 0));

    // Every directory of every directory is the root.
    spoil_entries(|value, _| {
        if *value >> 60 == IS_DIR {
            *value = IS_DIR << 60 | 34;
        }
    });
    let above = target();
    let (told, summary) = copy(&above.path().join("target"));
    assert!(told.misplaced > 0, "it is told");
    assert!(summary.files <= healthy.files && summary.dirs <= healthy.dirs);

    // Every entry of a directory leads to one and the same file or directory of it.
    spoil_entries(|value, _| *value = *value & !0xff | 64);
    let above = target();
    let (_, summary) = copy(&above.path().join("target"));
    assert!(summary.dirs <= healthy.dirs + 8);

    // Names that lead out.
    spoil_entries(|_, name| {
        let evil = b"../../escaped\0";
        name[..evil.len()].copy_from_slice(evil);
    });
    let above = target();
    let (told, _) = copy(&above.path().join("target"));
    assert!(told.bad_entries > 0, "they are told");
    let names: Vec<_> = std::fs::read_dir(above.path())
        .expect("readable")
        .map(|e| e.expect("an entry").file_name())
        .collect();
    assert_eq!(names, ["target"], "nothing is beside the target");
    zio::testing::set_mutator(None);
}
