//! Intent logs on a disk in memory: committed changes are found when the pool is opened at the last txg, and
//! all blocks are freed in the end.
#![allow(missing_docs)]

use cenote_dmu::log::{IntentLog, LogData, Pending, Unclaim, check, claim, destroy, replay, walk_chain};
use cenote_dmu::{DmuError, KeyState, Store};
use cenote_dmu::{
    Ledger, Limits, LiveObject, LiveSet, NewObject, SetPolicy, SyncTx, Tx, TxError, Txgs, Work,
};
use format::objset::{ObjsetType, ZilHeader};
use format::zil::{Body, CloneRange, Record};
use format::{BlockId, BlockPtr, ObjType, ObjectId, Txg};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use zio::testing::{OpKind, SimDisk, memory_pool, memory_pool_and_allocator, pool_on};

struct Freeing<'a>(Arc<zio::Zio>, &'a dyn zio::AllocTx);

impl Ledger for Freeing<'_> {
    fn born(&mut self, _: &BlockPtr) {}

    fn killed(&mut self, bp: &BlockPtr) {
        self.0.free(bp, self.1).expect("what is killed was allocated");
    }
}

/// A set with its log and a thread that syncs.
struct World {
    store: Arc<Store>,
    txgs: Arc<Txgs>,
    set: Arc<LiveSet>,
    log: Arc<IntentLog>,
}

fn sync_once(txgs: &Arc<Txgs>, set: &Arc<LiveSet>, log: &IntentLog) {
    let tx = txgs.quiesce();
    log.sync(&tx);
    finish(txgs, set, log, tx);
}

/// Completes a sync.
fn finish(txgs: &Arc<Txgs>, set: &Arc<LiveSet>, log: &IntentLog, tx: SyncTx) {
    let zio = Arc::clone(set.store().zio());
    set.sync(&tx, &mut Freeing(zio, &tx)).expect("synced");
    let txg = zio::AllocTx::txg(&tx);
    txgs.finish(tx);
    log.synced(txg);
}

/// Runs `work` while another thread syncs on demand.
fn with_syncing(world: &World, work: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                if world.txgs.wait_for_work(Duration::from_millis(5)) == Work::Sync {
                    sync_once(&world.txgs, &world.set, &world.log);
                }
            }
        });
        work();
        stop.store(true, Ordering::Relaxed);
    });
}

impl World {
    fn new() -> World {
        World::on(memory_pool(1 << 30))
    }

    fn on(zio: Arc<zio::Zio>) -> World {
        let store = Store::new(zio, 16 << 20);
        // No txg is written without a request.
        let limits = Limits { timeout: Duration::from_secs(3600), ..Limits::default() };
        let txgs = Txgs::new(Txg(3), limits);
        let tx = txgs.begin().expect("open");
        let set = LiveSet::create(&store, txgs.meter(), 7, ObjsetType::Other, SetPolicy::dataset(), &tx);
        drop(tx);
        let log = IntentLog::new(&set, &txgs);
        World { store, txgs, set, log }
    }

    /// The pool as it is found after a crash: changes in memory are gone.
    fn after_crash(&self) -> World {
        let synced = self.txgs.synced_txg();
        let txgs = Txgs::new(synced, Limits::default());
        let (root, policy) = (self.set.root_bp(), SetPolicy::dataset());
        let set = LiveSet::open(&self.store, txgs.meter(), &root, 7, KeyState::None, policy).expect("opened");
        let log = IntentLog::new(&set, &txgs);
        World { store: Arc::clone(&self.store), txgs, set, log }
    }

    fn write(&self, object: &LiveObject, offset: u64, data: &[u8]) {
        let tx = self.txgs.begin().expect("open");
        object.write_at(offset, data, &tx).expect("written");
        let data = LogData::written(object, offset, data);
        self.log.push(&tx, Pending::Write { object: object.id(), offset, data, mtime: None });
    }
}

fn apply(world: &World) -> impl FnMut(&Record, Option<&[u8]>, &Tx) -> Result<(), DmuError> + '_ {
    move |record, _, tx| match &record.body {
        Body::Write { object, offset, data: Some(data), length, .. } => {
            world.set.object(*object)?.write_at(*offset, &data[..*length as usize], tx)
        }
        other => panic!("not logged here: {other:?}"),
    }
}

#[test]
fn committed_writes_survive_a_crash() {
    let world = World::new();
    let object = {
        let tx = world.txgs.begin().expect("open");
        let new = NewObject::of(ObjType::PLAIN_FILE).with_block_size(4096);
        world.set.allocate(&new, &tx).expect("made")
    };
    sync_once(&world.txgs, &world.set, &world.log);
    let mut expected = vec![0_u8; 1 << 20];
    with_syncing(&world, || {
        world.write(&object, 0, b"first: starts the chain");
        world.log.commit(Some(object.id())).expect("durable");
        for i in 0..200_u64 {
            let (offset, len) = ((i * 7919) % 900_000, 1 + (i * 613) % 100_000);
            world.write(&object, offset, &vec![i as u8; len as usize]);
            if i % 3 == 0 {
                world.log.commit(Some(object.id())).expect("durable");
            }
        }
        world.log.commit(None).expect("durable");
    });
    object.read_at(0, &mut expected).expect("read");
    let synced = world.txgs.synced_txg();

    let after = world.after_crash();
    assert!(check(&after.set).expect("readable").records > 100);
    let tx = after.txgs.quiesce();
    assert_eq!(zio::AllocTx::txg(&tx), Txg(synced.0 + 1));
    let header = after.set.zil_header();
    assert_eq!(header.claim_txg, Txg(0));
    // The disk in memory remembers the allocations of the lost txg, so claiming would find them taken. The
    // changes of a claim in the header are checked all the same.
    claim(&after.set, Txg(synced.0 + 1), &tx, &mut |_| ()).expect("claimed");
    after.set.set_zil_header(
        ZilHeader {
            claim_txg: Txg(synced.0 + 1),
            claim_blk_seq: u64::MAX,
            claim_lr_seq: u64::MAX,
            flags: 1,
            ..header
        },
        &tx,
    );
    let zio = Arc::clone(after.store.zio());
    after.set.sync(&tx, &mut Freeing(zio, &tx)).expect("synced");
    after.txgs.finish(tx);
    let done = {
        let set = &after.set;
        let mut sync = || {
            sync_once(&after.txgs, set, &after.log);
            Ok(())
        };
        replay(&after.log, &mut sync, &mut apply(&after), &mut |_, _, _| ()).expect("replayed")
    };
    assert!(done.applied > 100 && done.stopped.is_none(), "{done:?}");
    let mut got = vec![1; expected.len()];
    after.set.object(object.id()).expect("there").read_at(0, &mut got).expect("read");
    assert!(got == expected);
    assert_eq!(after.set.zil_header(), ZilHeader::default());
}

/// Records were applied, and the pool was suspended before they were on disk. A second replay used to begin
/// where the earlier header said, and repeated all changes.
#[test]
fn a_replay_that_ended_on_the_way_goes_on_there() {
    let (world, object) = started();
    for byte in 1..6 {
        world.write(&object, 0, &[byte; 100]);
    }
    world.log.commit(None).expect("durable");
    let after = world.after_crash();
    let tx = after.txgs.quiesce();
    let claimed = ZilHeader {
        claim_txg: zio::AllocTx::txg(&tx),
        claim_blk_seq: u64::MAX,
        flags: 1,
        ..after.set.zil_header()
    };
    after.set.set_zil_header(claimed, &tx);
    finish(&after.txgs, &after.set, &after.log, tx);
    let suspended = TxError::Suspended { why: "a test".to_owned() };
    let outcome =
        replay(&after.log, &mut || Err(suspended.clone()), &mut apply(&after), &mut |_, _, _| ()).map(drop);
    outcome.expect_err("suspended");
    let mut sync = || {
        sync_once(&after.txgs, &after.set, &after.log);
        Ok(())
    };
    let mut again =
        |_: &Record, _: Option<&[u8]>, _: &Tx| Err(DmuError::NoObject { objset: 0, object: object.id() });
    let done = replay(&after.log, &mut sync, &mut again, &mut |_, _, _| ()).expect("replayed");
    assert!(done.applied == 0 && done.skipped == 5 && done.stopped.is_none(), "{done:?}");
    assert_eq!(after.set.zil_header(), ZilHeader::default());
}

/// A commit fails to flush while its txg is being written, too late to be left out of the chain of that txg.
/// Changes acknowledged later must not be logged after the lost block.
#[test]
fn nothing_is_logged_behind_a_block_that_was_lost() {
    for seed in 0..12 {
        let disk = Arc::new(SimDisk::new(1 << 30, seed));
        let world = World::on(pool_on(Arc::clone(&disk) as Arc<_>).0);
        let tx = world.txgs.begin().expect("open");
        let object = world.set.allocate(&NewObject::of(ObjType::PLAIN_FILE), &tx).expect("made");
        drop(tx);
        sync_once(&world.txgs, &world.set, &world.log);
        with_syncing(&world, || {
            for text in ["starts the chain", "in the chain"] {
                world.write(&object, 0, text.as_bytes());
                world.log.commit(None).expect("durable");
            }
        });
        world.write(&object, 0, b"may be lost");
        let tx = world.txgs.quiesce();
        world.log.sync(&tx);
        disk.fail_nth(OpKind::Flush, 0);
        let before = disk.power().operations();
        std::thread::scope(|scope| {
            let commit = scope.spawn(|| world.log.commit(None));
            while disk.power().operations() < before + 2 {
                std::thread::yield_now(); // a write and a flush
            }
            let (zio, txg) = (Arc::clone(world.store.zio()), zio::AllocTx::txg(&tx));
            world.set.sync(&tx, &mut Freeing(zio, &tx)).expect("synced");
            world.txgs.finish(tx);
            world.log.synced(txg);
            commit.join().expect("no panic").expect("durable, with the txg");
        });
        let last = b"the last word";
        with_syncing(&world, || {
            world.write(&object, 0, last);
            world.log.commit(None).expect("durable");
        });

        let after = world.after_crash();
        let mut found = vec![0; last.len()];
        after.set.object(object.id()).expect("there").read_at(0, &mut found).expect("read");
        let logged = found == last || check(&after.set).expect("readable").records == 3;
        assert!(logged, "seed {seed}: {found:?} {:?}", check(&after.set));
    }
}

#[test]
fn many_committers_are_served_together() {
    let world = World::new();
    let objects: Vec<LiveObject> = (0..8)
        .map(|_| {
            let tx = world.txgs.begin().expect("open");
            world.set.allocate(&NewObject::of(ObjType::PLAIN_FILE), &tx).expect("made")
        })
        .collect();
    sync_once(&world.txgs, &world.set, &world.log);
    let all_wrote = std::sync::Barrier::new(objects.len());
    with_syncing(&world, || {
        world.write(&objects[0], 0, b"starts the chain");
        world.log.commit(None).expect("durable");
        std::thread::scope(|scope| {
            for object in &objects {
                let (world, all_wrote) = (&world, &all_wrote);
                scope.spawn(move || {
                    for i in 0..50_u8 {
                        world.write(object, 0, &[i; 100]);
                        world.log.order(object.id());
                    }
                    all_wrote.wait();
                    world.log.commit(Some(object.id())).expect("durable");
                });
            }
        });
    });
    let after = world.after_crash();
    let found = check(&after.set).expect("readable");
    assert!(found.records == 400 && found.blocks < 10, "{found:?}");
}

#[test]
fn a_disabled_log_records_nothing() {
    let world = World::new();
    world.log.set_enabled(false);
    let tx = world.txgs.begin().expect("open");
    world.log.push(
        &tx,
        Pending::Write { object: ObjectId(1), offset: 0, data: LogData::copied(&[0]), mtime: None },
    );
    drop(tx);
    world.log.commit(None).expect("nothing to do");
    assert_eq!(check(&world.set).expect("readable").blocks, 0);
}

/// A transaction of the txg in which the space of a test is prepared.
struct Before;

impl zio::AllocTx for Before {
    fn txg(&self) -> Txg {
        Txg(1)
    }
}

/// A pool whose free space is in pieces of `hole` bytes.
fn fragmented(hole: u64) -> Arc<zio::Zio> {
    let (zio, allocator) = memory_pool_and_allocator((64 << 20) + 0x48_0000);
    let psize = format::Psize(hole);
    let want = zio::Request { class: zio::AllocClass::Normal, psize, copies: 1, near: None };
    let mut all = Vec::new();
    while let Ok(dvas) = allocator.allocate(&want, &Before) {
        all.extend(dvas);
    }
    for dva in all.iter().filter(|dva| (dva.offset.0 / hole).is_multiple_of(2)) {
        allocator.free(dva, &Before).expect("allocated");
    }
    assert!(!allocator.take_changes(Txg(1)).is_empty());
    allocator.synced(Txg(3));
    zio
}

/// If no large log block fits, small ones do; a record that fits in none waits for its txg.
#[test]
fn a_log_finds_its_way_through_free_space_in_pieces() {
    let world = World::on(fragmented(4096));
    let tx = world.txgs.begin().expect("open");
    let object = world.set.allocate(&NewObject::of(ObjType::PLAIN_FILE), &tx).expect("made");
    drop(tx);
    sync_once(&world.txgs, &world.set, &world.log);
    with_syncing(&world, || {
        world.write(&object, 0, b"starts the chain");
        world.log.commit(None).expect("durable");
        for round in 0..3_u64 {
            let before = world.txgs.synced_txg();
            for i in 0..12 {
                world.write(&object, i * 1000, &[round as u8; 1000]);
            }
            world.log.commit(None).expect("durable");
            assert_eq!(world.txgs.synced_txg(), before, "the log is enough");
        }
        let before = world.txgs.synced_txg();
        world.write(&object, 0, &[9; 60_000]);
        world.log.commit(None).expect("durable, with the txg");
        assert!(world.txgs.synced_txg() > before);
        for byte in 10..13 {
            world.write(&object, 0, &[byte; 1000]);
            world.log.commit(None).expect("durable");
        }
    });
    let after = world.after_crash();
    let mut found = vec![0; 60_000];
    after.set.object(object.id()).expect("there").read_at(0, &mut found).expect("read");
    assert!(found[1000..].iter().all(|byte| *byte == 9));
    assert_eq!(check(&after.set).expect("readable").records, 2, "all but that which started the chain");
}

/// The txg is written instead, in the remaining space.
#[test]
fn a_log_takes_no_room_that_a_txg_needs() {
    let (world, object) = started();
    with_syncing(&world, || {
        world.txgs.meter().set_log_room(world.txgs.synced_txg(), |_| 64 << 10);
        let (before, mut rounds) = (world.txgs.synced_txg(), 0);
        while world.txgs.synced_txg() == before && rounds < 100 {
            world.write(&object, 0, &[rounds; 4096]);
            world.log.commit(Some(object.id())).expect("durable");
            rounds += 1;
        }
        assert!((2..20).contains(&rounds), "{rounds}");
    });
    let after = world.after_crash();
    let mut found = [0; 4096];
    after.set.object(object.id()).expect("there").read_at(0, &mut found).expect("read");
    assert!(found[0] > 0);
}

/// The records in the log of a set.
fn logged(set: &Arc<LiveSet>) -> Vec<Body> {
    let mut found = Vec::new();
    let mut note = |raw: &format::zil::RawRecord<'_>| {
        found.push(raw.decode().expect("our own record").body);
        true
    };
    let header = set.zil_header();
    walk_chain(set.store().zio(), set.number(), &header, &mut |_| true, &mut note).expect("readable");
    found
}

/// A pool with a chain that was begun, and an empty file.
fn started() -> (World, LiveObject) {
    let world = World::new();
    let tx = world.txgs.begin().expect("open");
    let new = NewObject::of(ObjType::PLAIN_FILE).with_block_size(4096);
    let object = world.set.allocate(&new, &tx).expect("made");
    drop(tx);
    with_syncing(&world, || {
        world.write(&object, 0, b"starts the chain");
        world.log.commit(None).expect("durable");
    });
    (world, object)
}

/// The records of a failed commit used to be lost, and the next commit succeeded.
#[test]
fn a_commit_that_failed_stays_failed_until_its_txg_is_on_disk() {
    let (world, object) = started();
    let other = {
        let tx = world.txgs.begin().expect("open");
        world.set.allocate(&NewObject::of(ObjType::PLAIN_FILE), &tx).expect("made")
    };
    world.write(&object, 0, b"must not be lost");
    let suspended = TxError::Suspended { why: "a test".to_owned() };
    world.txgs.suspend(suspended.clone(), false);
    for whose in [Some(object.id()), Some(object.id()), None, Some(other.id()), Some(object.id())] {
        assert_eq!(world.log.commit(whose), Err(suspended.clone()));
    }
    world.txgs.resume();
    let before = world.txgs.synced_txg();
    with_syncing(&world, || {
        world.log.commit(Some(object.id())).expect("durable, with the txg");
        assert!(world.txgs.synced_txg() > before);
        world.write(&object, 0, b"more");
        world.log.commit(Some(object.id())).expect("durable");
    });
    // The head of a new chain is on disk before the chain counts.
    world.write(&object, 0, b"in the chain");
    let synced = world.txgs.synced_txg();
    world.log.commit(Some(object.id())).expect("durable");
    assert_eq!(world.txgs.synced_txg(), synced);
    assert_eq!(logged(&world.after_crash().set).len(), 1);
}

/// One commit takes the records of all threads, and the device is gone: the threads waiting behind it used to
/// succeed.
#[test]
fn everybody_behind_a_commit_that_fails_gets_its_error() {
    let disk = Arc::new(SimDisk::new(1 << 30, 1));
    let world = World::on(pool_on(Arc::clone(&disk) as Arc<_>).0);
    let tx = world.txgs.begin().expect("open");
    let new = NewObject::of(ObjType::PLAIN_FILE).with_block_size(4096);
    let objects = [(); 6].map(|()| world.set.allocate(&new, &tx).expect("made"));
    drop(tx);
    with_syncing(&world, || {
        world.write(&objects[0], 0, b"starts the chain");
        world.log.commit(None).expect("durable");
    });
    let suspended = TxError::Suspended { why: "a test".to_owned() };
    for round in 1..20_u8 {
        // The first commit takes the records of all of them.
        for object in &objects {
            world.write(object, 0, &[round; 100]);
            world.log.order(object.id());
        }
        disk.vanish();
        let all_came = std::sync::Barrier::new(objects.len() + 1);
        std::thread::scope(|scope| {
            let commits = objects.each_ref().map(|object| {
                let (world, all_came) = (&world, &all_came);
                scope.spawn(move || {
                    all_came.wait();
                    world.log.commit(Some(object.id()))
                })
            });
            all_came.wait();
            // The log cannot be written, and the first commit waits for the txg.
            while world.txgs.wait_for_work(Duration::from_millis(5)) != Work::Sync {}
            world.txgs.suspend(suspended.clone(), false);
            for commit in commits {
                assert_eq!(commit.join().expect("ended"), Err(suspended.clone()), "round {round}");
            }
        });
        // The return of the device is not enough.
        disk.come_back();
        for object in &objects {
            assert_eq!(world.log.commit(Some(object.id())), Err(suspended.clone()));
        }
        let before = world.txgs.synced_txg();
        world.txgs.resume();
        with_syncing(&world, || {
            world.log.commit(Some(objects[5].id())).expect("durable, with the txg");
            assert!(world.txgs.synced_txg() > before);
            world.write(&objects[0], 0, b"starts the next chain");
            world.log.commit(None).expect("durable");
        });
    }
}

/// Threads behind a committer that panicked used to wait for ever.
#[test]
fn a_committer_that_panics_lets_others_go_on() {
    let world = World::new();
    let tx = world.txgs.begin().expect("open");
    let object = world.set.allocate(&NewObject::of(ObjType::PLAIN_FILE), &tx).expect("made");
    drop(tx);
    world.write(&object, 0, b"must not be lost");
    world.txgs.set_inline(Some(Arc::new(|| panic!("a test"))));
    let commit = std::panic::AssertUnwindSafe(|| world.log.commit(Some(object.id())));
    assert!(std::panic::catch_unwind(commit).is_err(), "it waits for the head of the chain");
    world.txgs.set_inline(None);
    let before = world.txgs.synced_txg();
    with_syncing(&world, || world.log.commit(None).expect("durable, with the txg"));
    assert!(world.txgs.synced_txg() > before);
}

/// The data of larger writes used to be read again when their records were written, and then had later
/// changes: zeros of a truncated file.
#[test]
fn a_record_says_what_was_written() {
    let (world, object) = started();
    let first: Vec<u8> = (0..100_000_u32).map(|i| (i % 251) as u8).collect();
    world.write(&object, 1000, &first);
    world.log.order(object.id());
    let tx = world.txgs.begin().expect("open");
    object.write_at(5000, &[1; 100], &tx).expect("within a block");
    object.write_at(8192, &[2; 8192], &tx).expect("whole blocks");
    object.free_range(20_000, u64::MAX, &tx).expect("cut");
    drop(tx);
    world.log.commit(None).expect("durable");
    let mut found = vec![0; first.len()];
    for body in logged(&world.after_crash().set) {
        let Body::Write { offset, data: Some(data), length, .. } = body else { panic!("{body:?}") };
        let at = (offset - 1000) as usize;
        found[at..at + length as usize].copy_from_slice(&data[..length as usize]);
    }
    assert!(found == first);
}

/// Overwritten data that only records hold count as dirty; otherwise a program that overwrites a file fills
/// the memory.
#[test]
fn what_only_records_hold_counts_as_dirty() {
    let (world, object) = started();
    let of_open = || world.txgs.meter().of(world.txgs.open_txg());
    world.write(&object, 0, &[1; 64 << 10]);
    let once = of_open();
    assert!((64 << 10..80 << 10).contains(&once), "the block is shared: {once}");
    for i in 0..10 {
        world.write(&object, 0, &[i; 64 << 10]);
    }
    assert!(of_open() >= 11 * (64 << 10), "{}", of_open());
}

/// Writes noise that fits into no pointer, and syncs. Returns the pointer of its block.
fn pointer_on_disk(world: &World, object: &LiveObject, blkid: u64) -> BlockPtr {
    let noise = (0..4096_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8);
    world.write(object, blkid * 4096, &noise.collect::<Vec<_>>());
    sync_once(&world.txgs, &world.set, &world.log);
    object.pointer_on_disk(BlockId(blkid)).expect("readable").expect("written")
}

fn push_clone(world: &World, object: &LiveObject, bp: BlockPtr) {
    let clone =
        CloneRange { object: object.id(), offset: 0, length: 4096, block_size: 4096, pointers: vec![bp] };
    world.log.push(&world.txgs.begin().expect("open"), Pending::Body(Body::CloneRange(clone)));
}

/// A log whose head is before changes that are on disk, as OpenZFS may leave it. Records whose txg is on disk
/// are counted with the blocks that they reference, and only the count is decremented when the log is freed,
/// because freed blocks may belong to another file by then. Blocks that newer records clone must be
/// allocated.
#[test]
fn a_clone_that_is_on_disk_is_counted_and_frees_nothing() {
    let (world, object) = started();
    let (kept, free) = (pointer_on_disk(&world, &object, 1), pointer_on_disk(&world, &object, 2));
    pointer_on_disk(&world, &object, 2);
    push_clone(&world, &object, kept);
    push_clone(&world, &object, free);
    world.log.commit(None).expect("durable");
    // The head stays unchanged.
    let tx = world.txgs.quiesce();
    finish(&world.txgs, &world.set, &world.log, tx);
    for bp in [kept, free, kept] {
        push_clone(&world, &object, bp);
    }
    world.log.commit(None).expect("durable");

    let after = world.after_crash();
    assert_eq!(logged(&after.set).len(), 5);
    let first = Txg(after.txgs.synced_txg().0 + 1);
    let tx = after.txgs.quiesce();
    let mut references = Vec::new();
    let claimed = claim(&after.set, first, &tx, &mut |bp| references.push(*bp));
    assert_eq!(claimed.expect("claimed").records, 3, "free space cannot be cloned");
    assert_eq!(references, [kept, free, kept]);
    let mut dropped = Vec::new();
    destroy(&after.set, &tx, &mut |bp, how| dropped.push((*bp, how))).expect("freed");
    let expected = [(kept, Unclaim::CountOnly), (free, Unclaim::CountOnly), (kept, Unclaim::Pointer)];
    assert_eq!(dropped, expected);
}

/// A commit while a txg with clones is written: their records used to be in the chain when it was on disk,
/// and were claimed again. Now it waits for the txg, and writes the newer records.
#[test]
fn a_clone_is_logged_only_while_its_txg_is_open() {
    let (world, object) = started();
    let kept = pointer_on_disk(&world, &object, 1);
    push_clone(&world, &object, kept);
    world.log.order(object.id());
    let closed = world.txgs.quiesce();
    world.write(&object, 0, b"newer");
    world.log.sync(&closed);
    let txg = zio::AllocTx::txg(&closed);
    std::thread::scope(|scope| {
        let commit = scope.spawn(|| {
            world.log.commit(None).expect("durable");
            world.txgs.synced_txg()
        });
        finish(&world.txgs, &world.set, &world.log, closed);
        assert_eq!(commit.join().expect("ended"), txg);
    });
    let after = world.after_crash();
    let found = logged(&after.set);
    assert!(matches!(&found[..], [Body::Write { .. }]), "{found:?}");
}
