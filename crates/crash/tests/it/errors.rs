//! Data that cannot be read: the error log, events, scrubs of errors, and scrubs of logs that wait to be
//! replayed.
#![allow(missing_docs)]

use crate::support::create;
use cenote_crash::disks::Disks;
use cenote_crash::run::{POOL, env, host, open_fs};
use format::scan::{ScanFunc, ScanState};
use format::{BlockId, BlockPtr, Level, ObjectId};
use pool::LivePool;
use pool::Which;
use pool::{ImportOptions, Leave};
use std::sync::Arc;
use std::time::Duration;
use vdev::Device;
use vdev::device::sim::Fate;
use zpl::FileKind;
use zpl::{HeadFs, NewFile, WriteHow};

fn import(disks: &Disks) -> Arc<LivePool> {
    let options = ImportOptions { host: host(), force: true, ..ImportOptions::default() };
    LivePool::import(&disks.found(), &Which::Name(POOL.to_owned()), &options, env(2)).expect("imported")
}

fn write(fs: &HeadFs, name: &[u8]) -> ObjectId {
    let made = fs.fs.create(fs.fs.root(), name, &NewFile::of(FileKind::Regular, 0o644)).expect("made");
    // Bytes that no compression makes smaller.
    let mut bytes = vec![0; 8192];
    vdev::env::Random::from_seed(name.len() as u64).fill(&mut bytes);
    fs.fs.write(made.id, 0, &bytes, &WriteHow::default()).expect("written");
    made.id
}

/// Flips bits in all copies of a block, or in those on one disk.
fn flip(disks: &Disks, bp: &BlockPtr, only: Option<usize>) {
    for dva in bp.dvas() {
        for (_, disk) in disks.disks().iter().enumerate().filter(|(i, _)| only.is_none_or(|only| only == *i))
        {
            disk.flip(dva.offset.on_device(), 64, 0x10);
        }
    }
}

fn errors(pool: &LivePool) -> Vec<(ObjectId, u64)> {
    let log = pool.view().expect("a view").error_log().expect("readable");
    log.iter().map(|entry| (entry.key.object, entry.key.block.0)).collect()
}

fn data_events() -> usize {
    let all = pool::events::EventRing::process().after(0).events;
    all.iter().filter(|event| event.class() == "ereport.fs.zfs.data").count()
}

/// A program reads wrong bytes; later they are right again.
#[test]
fn what_a_program_could_not_read_is_logged_until_it_is_right_again() {
    let disks = Disks::new(1, 3);
    let (pool, fs) = create(&disks, "single");
    let (file, other) = (write(&fs, b"f"), write(&fs, b"g"));
    drop(fs);
    pool.export(Leave::Exported).expect("exported");
    let pool = import(&disks);
    let fs = open_fs(&pool, 1).expect("opened");
    let bp = {
        let node = fs.fs.node(file).expect("there");
        let set = pool
            .view()
            .expect("a view")
            .dsl()
            .dataset_by_object(ObjectId(node.filesystem().objset().number()));
        let set = set.expect("there").open_objset().expect("opened");
        set.object(file).expect("there").block_ptr(Level(0), BlockId(0)).expect("there")
    };
    flip(&disks, &bp, None);
    let mut bytes = vec![0; 8192];
    assert!(fs.fs.node(file).expect("there").read_at(0, &mut bytes).is_err(), "wrong bytes");
    assert!(fs.fs.node(other).expect("there").read_at(0, &mut bytes).is_ok());
    pool.settle(Duration::from_secs(1));
    assert_eq!(errors(&pool), [(file, 0)]);
    assert_eq!(data_events(), 1);
    // The block is still wrong.
    pool.scrub_errors().expect("scrubbed");
    let told = |pool: &LivePool| pool.view().expect("a view").error_scrub().expect("readable").expect("one");
    assert_eq!((told(&pool).examined, told(&pool).errors), (1, 1));
    assert_eq!(errors(&pool), [(file, 0)]);
    disks.disks()[0].repair();
    pool.scrub_errors().expect("scrubbed");
    assert_eq!((told(&pool).func, told(&pool).state), (ScanFunc::ErrorScrub, ScanState::Finished));
    assert_eq!((told(&pool).examined, told(&pool).errors), (1, 0));
    assert_eq!(errors(&pool), []);
    assert!(fs.fs.node(file).expect("there").read_at(0, &mut bytes).is_ok());
    drop(fs);
    pool.export(Leave::Exported).expect("exported");
    cenote_crash::check::check_space(&disks).expect("nothing leaks");
}

/// A crash has left a log, which was claimed and not replayed yet.
#[test]
fn a_scrub_repairs_the_blocks_of_a_claimed_log() {
    let disks = Disks::new(2, 5);
    let (_pool, fs) = create(&disks, "mirror");
    let file = write(&fs, b"first");
    // The first commit of a chain waits for a txg instead.
    fs.fsync(file).expect("durable");
    let file = write(&fs, b"second");
    fs.fsync(file).expect("durable");
    let disks = disks.after_cut(Fate::Lost, 1);
    let pool = import(&disks);
    let view = pool.view().expect("a view");
    let set = view.dsl().dataset(POOL).expect("there").open_objset().expect("opened");
    let zil = set.phys().zil;
    assert!(zil.claim_txg != format::Txg(0) && !zil.log.is_hole(), "there is a claimed log");
    let at = zil.log.dvas().next().expect("a place").offset.on_device();
    flip(&disks, &zil.log, Some(0));
    pool.start_scrub(false).expect("begun");
    pool.scan_to_end().expect("done");
    let scan = pool.view().expect("a view").scan().expect("readable").expect("one");
    assert_eq!(scan.errors, 0);
    let copies = [0, 1].map(|i| {
        let mut bytes = vec![0; 512];
        disks.disks()[i].read_at(&mut bytes, at).expect("readable");
        bytes
    });
    assert!(copies[0] == copies[1], "the copy is as the other");
    let fs = open_fs(&pool, 1).expect("replayed");
    assert_eq!(fs.fs.lookup(fs.fs.root(), b"second").expect("readable"), Some(file));
}

/// A command is recorded in the history in the txg of the next sync.
#[test]
fn a_command_costs_no_txg_of_its_own() {
    let disks = Disks::new(1, 6);
    let (pool, _fs) = create(&disks, "single");
    let before = pool.txgs().synced_txg();
    let line = pool::Command { text: "zpool something".to_owned(), user: 0, hostname: String::new() };
    pool.record(line).expect("noted");
    assert_eq!(pool.txgs().synced_txg(), before);
    pool.settle(Duration::from_secs(1));
    let known = pool.view().expect("a view").history().expect("readable");
    let is_it = |text: Option<&str>| text == Some("zpool something");
    assert!(known.into_iter().flatten().any(|record| is_it(record.str("history command"))));
}
