//! Errors that the comparison of blocks with space maps and block reference tables must report, on damaged
//! pools.
#![allow(missing_docs)]

use crate::support::create;
use cenote::inspect::{Check, Space, blocks};
use cenote_crash::disks::Disks;
use cenote_crash::run::POOL;
use dmu::Tx;
use format::{BlockId, BlockPtr, Level, ObjectId};
use pool::Leave;
use pool::LivePool;
use pool::{OpenOptions, Pool, Which};
use std::sync::Arc;
use vdev::env::Random;
use zpl::FileKind;
use zpl::{FileRange, HeadFs, NewFile, PoolClones, WriteHow};

const BLOCK: u64 = 8192;

fn write(fs: &HeadFs, name: &str, seed: u64) -> ObjectId {
    let made = fs.fs.create(fs.fs.root(), name.as_bytes(), &NewFile::of(FileKind::Regular, 0o644));
    let made = made.expect("made").id;
    let mut bytes = vec![0; BLOCK as usize];
    Random::from_seed(seed).fill(&mut bytes);
    fs.fs.write(made, 0, &bytes, &WriteHow::default()).expect("written");
    made
}

fn pointer(fs: &HeadFs, file: ObjectId) -> BlockPtr {
    let object = fs.head().set.object(file).expect("there");
    object.read().block_ptr(Level(0), BlockId(0)).expect("there")
}

/// Writes txgs until freed blocks may be reused.
fn settle(pool: &Arc<LivePool>, fs: &HeadFs) {
    for i in 0..4 {
        write(fs, &format!("settle {i} {:?}", pool.txgs().open_txg()), 1);
        pool.sync().expect("synced");
    }
}

fn space(pool: Arc<LivePool>, fs: Arc<HeadFs>, disks: &Disks) -> Space {
    drop(fs);
    pool.export(Leave::Exported).expect("exported");
    let which = Which::Name(POOL.to_owned());
    let pool = Pool::open(disks.found(), &which, &OpenOptions::default()).expect("opened");
    let report = blocks(&cenote::Pool::from(pool), Check::Nothing, true).expect("counted");
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    report.space.expect("compared")
}

fn share(fs: &HeadFs, from: ObjectId, name: &str) {
    let to = fs.fs.create(fs.fs.root(), name.as_bytes(), &NewFile::of(FileKind::Regular, 0o644));
    let (from, to) = (FileRange { id: from, offset: 0 }, FileRange { id: to.expect("made").id, offset: 0 });
    let table = PoolClones::new(fs.head().clones());
    assert_eq!(fs.fs.clone_range(&fs.fs, from, to, BLOCK, &table).expect("shared"), BLOCK);
}

/// A claim that was dropped twice, or never, leaves such a count.
#[test]
fn a_reference_count_in_free_space_is_told() {
    let disks = Disks::new(1, 3);
    let (pool, fs) = create(&disks, "single");
    let file = write(&fs, "f", 2);
    pool.sync().expect("synced");
    let bp = pointer(&fs, file);
    fs.fs.unlink(fs.fs.root(), b"f").expect("removed");
    settle(&pool, &fs);
    let tx: Tx = pool.txgs().begin().expect("begun");
    assert!(pool.brt().add_claim(&bp, dmu::AllocTx::txg(&tx)));
    drop(tx);
    settle(&pool, &fs);
    let space = space(pool, fs, &disks);
    let counts: Vec<_> = space.miscounted.iter().map(|m| (m.offset, m.counted, m.found)).collect();
    assert_eq!(counts, [(bp.dvas().next().expect("a place").offset, 2, 0)]);
    assert!(!space.matches());
}

#[test]
fn a_reference_too_many_is_told_and_right_counts_are_not() {
    for extra in [false, true] {
        let disks = Disks::new(1, 4);
        let (pool, fs) = create(&disks, "single");
        let file = write(&fs, "f", 2);
        pool.sync().expect("synced");
        share(&fs, file, "g");
        share(&fs, file, "h");
        pool.sync().expect("synced");
        if extra {
            let tx: Tx = pool.txgs().begin().expect("begun");
            assert!(pool.brt().add_claim(&pointer(&fs, file), dmu::AllocTx::txg(&tx)));
            drop(tx);
        }
        settle(&pool, &fs);
        let space = space(pool, fs, &disks);
        let counts: Vec<_> = space.miscounted.iter().map(|m| (m.counted, m.found)).collect();
        assert_eq!(counts, if extra { vec![(4, 3)] } else { vec![] });
        assert_eq!(space.matches(), !extra, "{space}");
    }
}

/// Both owners count as references, which hid that they are two blocks.
#[test]
fn a_cloned_block_that_is_owned_twice_is_told() {
    let disks = Disks::new(1, 5);
    let (pool, fs) = create(&disks, "single");
    let file = write(&fs, "f", 2);
    let other = write(&fs, "h", 3);
    pool.sync().expect("synced");
    share(&fs, file, "g");
    pool.sync().expect("synced");
    let bp = pointer(&fs, file);
    let older = bp.with_word(9, bp.physical_birth().0 - 1);
    let tx: Tx = pool.txgs().begin().expect("begun");
    let object = fs.head().set.object(other).expect("there");
    object.assign_block(BlockId(0), older.cloned_in(dmu::AllocTx::txg(&tx)), &tx);
    drop(tx);
    settle(&pool, &fs);
    let space = space(pool, fs, &disks);
    assert!(space.stray_count == 1 && !space.matches(), "{space}");
}
