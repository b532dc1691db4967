//! File systems whose blocks are damaged with valid checksums: changes may fail, but must neither panic nor
//! hang.
#![allow(missing_docs, unreachable_pub, dead_code)]

#[path = "../it/write/world.rs"]
mod world;

use cenote_zpl::{
    Allocate, Backing, Fs, FsOptions, NewAttrs, NewFile, RenameHow, WriteHow, XattrHow, XattrStorage,
};
use cenote_zpl::{FileKind, ZplError};
use dmu::LiveSet;
use dmu::Store;
use format::ObjectId;
use std::sync::{Arc, Mutex};
use vdev::env::Random;
use world::World;
use zio::testing::set_mutator;

fn fill(fs: &Arc<Fs>) -> Result<(), ZplError> {
    let dir = fs.create(fs.root(), b"dir", &NewFile::of(FileKind::Directory, 0o755))?.id;
    for i in 0..60 {
        let name = format!("file{i}");
        let id = fs.create(dir, name.as_bytes(), &NewFile::of(FileKind::Regular, 0o644))?.id;
        fs.write(id, 0, &vec![i as u8; 700 * i], &WriteHow::default())?;
        fs.set_xattr(id, b"user.a", &vec![1; 50 * i], XattrHow::Either)?;
    }
    fs.set_options(FsOptions { xattrs: XattrStorage::Directory, ..FsOptions::default() });
    for i in 0..20 {
        let name = format!("link{i}");
        let new = NewFile { target: b"target", ..NewFile::of(FileKind::Symlink, 0) };
        let id = fs.create(fs.root(), name.as_bytes(), &new)?.id;
        fs.set_xattr(id, b"user.b", b"value", XattrHow::Either)?;
    }
    let hold = fs.hold(fs.lookup(dir, b"file7")?.unwrap_or(dir))?;
    fs.unlink(dir, b"file7")?;
    std::mem::forget(hold);
    Ok(())
}

/// Runs one operation on random object numbers.
fn operate(fs: &Arc<Fs>, random: &mut Random) -> Result<(), ZplError> {
    let (a, b) = (ObjectId(random.below(150)), ObjectId(random.below(150)));
    let name = format!("file{}", random.below(60)).into_bytes();
    let other = format!("link{}", random.below(20)).into_bytes();
    match random.below(14) {
        0 => fs.create(a, &other, &NewFile::of(FileKind::Regular, 0o600)).map(drop),
        1 => fs.create(a, &name, &NewFile::of(FileKind::Directory, 0o700)).map(drop),
        2 => fs.unlink(a, &name),
        3 => fs.rmdir(a, &name),
        4 => fs.rename(a, &name, b, &other, RenameHow::Replace),
        5 => fs.rename(a, &name, b, &name, RenameHow::Exchange),
        6 => fs.link(b, a, &other).map(drop),
        7 => fs.write(a, random.below(100_000), &[1; 5000], &WriteHow::default()).map(drop),
        8 => fs.truncate(a, random.below(100_000), false),
        9 => fs.fallocate(a, random.below(100_000), 5000, Allocate::Zero { keep_size: false }),
        10 => fs.set_xattr(a, b"user.a", &[2; 300], XattrHow::Either),
        11 => fs.remove_xattr(a, b"user.b"),
        12 => {
            let new = NewAttrs { mode: Some(0o711), uid: Some(3), project: Some(4), ..NewAttrs::default() };
            fs.set_attrs(a, &new).map(drop)
        }
        _ => fs.read_dir(a, 0, 1000).map(drop),
    }
}

/// Damages one in `of` blocks as they are read.
fn damage(seed: u64, of: u64) {
    let bytes = Mutex::new(Random::from_seed(seed));
    set_mutator(Some(Box::new(move |_, block| {
        let mut random = bytes.lock().expect("whole");
        if block.is_empty() || !random.one_in(of) {
            return;
        }
        for _ in 0..=random.below(6) {
            // A change of a byte that is not 0 has more effect.
            let mut at = random.below(block.len() as u64) as usize;
            for _ in 0..200 {
                if block[at] != 0 {
                    break;
                }
                at = random.below(block.len() as u64) as usize;
            }
            block[at] = match random.below(3) {
                0 => 0xFF,
                1 => 0,
                _ => random.next() as u8,
            };
        }
    })));
}

/// Runs operations. Returns how many succeeded and how many failed.
fn attack(world: &World, seed: u64) -> [usize; 2] {
    // A new store has no blocks in its cache.
    let store = Store::new(Arc::clone(world.store.zio()), 1 << 20);
    let mut done = [0; 2];
    let is_early = seed.is_multiple_of(2);
    if is_early {
        damage(seed, 8);
    }
    let policy = (*world.home.set().policy()).clone();
    let root = world.home.set().root_bp();
    let opened = LiveSet::open(&store, world.home.txgs.meter(), &root, 7, dmu::KeyState::None, policy);
    if let Ok(set) = opened {
        let home = world::MemoryBacking { set, txgs: Arc::clone(&world.home.txgs) };
        if let Ok(fs) = Fs::open(Arc::new(home) as Arc<dyn Backing>, FsOptions::default(), &world.env) {
            damage(seed, 2);
            let _ = fs.drain(20);
            let mut random = Random::from_seed(seed);
            for _ in 0..60 {
                done[usize::from(operate(&fs, &mut random).is_err())] += 1;
            }
        }
    }
    set_mutator(None);
    // Freed memory counts as dirty until a txg is written.
    world.home.txgs.finish(world.home.txgs.quiesce());
    done
}

#[test]
fn damaged_file_systems_are_changed_without_a_panic() {
    let world = World::new(FsOptions::default());
    fill(&world.fs).expect("filled");
    world.sync();
    let seeds = std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(150);
    let mut done = [0; 2];
    for seed in 0..seeds {
        let named = Named(seed);
        let one = attack(&world, seed);
        (done[0], done[1]) = (done[0] + one[0], done[1] + one[1]);
        std::mem::forget(named);
    }
    assert!(done[0] > 0 && done[1] > 0, "{done:?}");
    println!("{done:?}");
}

/// Prints the seed that failed.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        eprintln!("seed {}", self.0);
    }
}
