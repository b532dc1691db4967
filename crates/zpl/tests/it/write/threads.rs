//! Many threads in the same directories and files, while txgs are written: afterwards the file system is
//! consistent.

use super::world::World;
use cenote_zpl::{FileKind, Filesystem, ZplError};
use cenote_zpl::{Fs, FsOptions, NewAttrs, NewFile, RenameHow, WriteHow, XattrHow};
use format::ObjectId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vdev::env::Random;

const DIRS: u64 = 5;
const NAMES: u64 = 8;

/// Whether an error can be caused by another thread's concurrent change.
fn is_lost_race(error: &ZplError) -> bool {
    matches!(
        error,
        ZplError::Exists { .. }
            | ZplError::NotFound { .. }
            | ZplError::NotEmpty { .. }
            | ZplError::Stale { .. }
            | ZplError::WrongKind { .. }
            | ZplError::IntoItself { .. }
            | ZplError::NotPermitted { .. }
    )
}

fn step(fs: &Arc<Fs>, random: &mut Random) -> Result<(), ZplError> {
    let top = |random: &mut Random| format!("top{}", random.below(DIRS)).into_bytes();
    let find = |name: &[u8]| fs.lookup(fs.root(), name).map(|id| id.unwrap_or(fs.root()));
    let (from, to) = (find(&top(random))?, find(&top(random))?);
    let name = format!("n{}", random.below(NAMES)).into_bytes();
    let other = format!("n{}", random.below(NAMES)).into_bytes();
    match random.below(12) {
        0 => fs.create(from, &name, &NewFile::of(FileKind::Directory, 0o755)).map(drop)?,
        1 | 2 => fs.create(from, &name, &NewFile::of(FileKind::Regular, 0o644)).map(drop)?,
        3 => fs.unlink(from, &name)?,
        4 => fs.rmdir(from, &name)?,
        5 => fs.rename(from, &name, to, &other, RenameHow::Replace)?,
        6 => fs.rename(from, &name, to, &other, RenameHow::Exchange)?,
        7 => {
            // Into a directory below: no cycle may be made.
            if let Some(below) = fs.lookup(to, &other)? {
                fs.rename(from, &name, below, &other, RenameHow::Replace)?;
            }
        }
        8 => {
            if let Some(id) = fs.lookup(from, &name)? {
                fs.link(id, to, &other)?;
            }
        }
        9 => {
            if let Some(id) = fs.lookup(from, &name)? {
                fs.set_xattr(id, b"user.a", &vec![1; random.below(2000) as usize], XattrHow::Either)?;
                fs.set_attrs(id, &NewAttrs { mode: Some(0o700), ..NewAttrs::default() })?;
            }
        }
        _ => {
            if let Some(id) = fs.lookup(from, &name)? {
                let hold = fs.hold(id)?;
                let byte = random.below(256) as u8;
                fs.write(id, random.below(3) * 5000, &vec![byte; 5000], &WriteHow::default())?;
                let mut bytes = [0; 15_000];
                fs.read(id, 0, &mut bytes)?;
                // A write is seen whole or not at all.
                for part in bytes.chunks(5000) {
                    assert!(part.iter().all(|b| *b == part[0]), "half a write was read");
                }
                drop(hold);
            }
        }
    }
    Ok(())
}

fn check(read: &Arc<Filesystem>) {
    let mut names: BTreeMap<u64, u64> = BTreeMap::new();
    let mut todo = vec![read.root()];
    let mut seen = BTreeSet::from([read.root()]);
    while let Some(id) = todo.pop() {
        let dir = read.node(id).expect("a directory");
        let (mut entries, mut subdirs) = (0, 0);
        for entry in dir.entries().expect("readable") {
            let entry = entry.expect("readable");
            let node = read.node(entry.id).expect("a name leads somewhere");
            entries += 1;
            *names.entry(entry.id.0).or_default() += 1;
            if node.is_dir() {
                subdirs += 1;
                assert!(seen.insert(entry.id), "a directory with two names");
                assert_eq!(node.attrs().parent, id);
                todo.push(entry.id);
            }
        }
        assert_eq!((dir.attrs().size, dir.attrs().links), (entries + 2, subdirs + 2));
    }
    let mut at = ObjectId(1);
    while let Some(object) = read.objset().next_object(at).expect("walk") {
        at = ObjectId(object.id().0 + 1);
        let Ok(node) = read.node_of(object) else { continue };
        if node.is_dir() || node.attrs().is_xattr() {
            assert!(node.attrs().is_xattr() || seen.contains(&node.id()), "a lost directory");
            continue;
        }
        let links = names.get(&node.id().0).copied().unwrap_or(0);
        assert_eq!((node.attrs().links, links > 0), (links, true), "file {}", node.id());
    }
    assert!(read.unlinked().expect("set").is_empty());
}

#[test]
fn threads_do_not_tear_the_tree() {
    let world = Arc::new(World::new(FsOptions::default()));
    for i in 0..DIRS {
        let new = NewFile::of(FileKind::Directory, 0o755);
        world.fs.create(world.fs.root(), format!("top{i}").as_bytes(), &new).expect("made");
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|seed| {
                let fs = Arc::clone(&world.fs);
                scope.spawn(move || {
                    let mut random = Random::from_seed(seed);
                    for _ in 0..4000 {
                        match step(&fs, &mut random) {
                            Ok(()) => {}
                            Err(error) if is_lost_race(&error) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                })
            })
            .collect();
        let syncer = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                world.sync();
                std::thread::sleep(Duration::from_millis(3));
            }
        });
        let results: Vec<_> = workers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        stop.store(true, Ordering::Relaxed);
        syncer.join().expect("the syncing thread");
        assert!(results.iter().all(Result::is_ok), "a worker failed");
    });
    while !world.fs.drain(100).expect("drained") {}
    world.sync();
    check(&world.reopened());
}
