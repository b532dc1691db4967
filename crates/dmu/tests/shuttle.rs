//! The hand-over of transaction groups, the cache and the commit of the intent log under random schedules of
//! their threads.
//!
//! `cargo test -p cenote-dmu --features shuttle --test shuttle`
#![allow(missing_docs)]

use cenote_dmu::Store;
use cenote_dmu::arc::{Arc as BlockCache, Key};
use cenote_dmu::log::{IntentLog, LogData, Pending, walk_chain};
use cenote_dmu::{Ledger, Limits, LiveSet, NewObject, SetPolicy, TxError, Txgs};
use format::objset::ObjsetType;
use format::zil::Body;
use format::{BlockPtr, Endian, ObjType, Txg};
use shuttle::sync::Mutex;
use shuttle::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use shuttle::thread;
use std::sync::Arc;
use zio::testing::memory_pool;
use zio::{AllocTx, Block};

/// Number of schedules tried in each test.
const SCHEDULES: usize = 300;

#[test]
fn changes_of_a_txg_come_before_those_of_the_next() {
    shuttle::check_random(
        || {
            let txgs = Txgs::new(Txg(0), Limits::default());
            // For each transaction, the newest closed txg that it saw.
            let closed = Arc::new(AtomicU64::new(0));
            let writers: Vec<_> = (0..3)
                .map(|_| {
                    let (txgs, closed) = (Arc::clone(&txgs), Arc::clone(&closed));
                    thread::spawn(move || {
                        for _ in 0..3 {
                            let tx = txgs.begin().expect("open");
                            let before = closed.load(Ordering::SeqCst);
                            assert!(before < tx.txg().0, "{} is closed, and {} changes", before, tx.txg());
                            thread::yield_now();
                            assert!(closed.load(Ordering::SeqCst) < tx.txg().0, "closed while it was held");
                        }
                    })
                })
                .collect();
            for _ in 0..3 {
                let tx = txgs.quiesce();
                closed.store(tx.txg().0, Ordering::SeqCst);
                thread::yield_now();
                txgs.finish(tx);
            }
            writers.into_iter().for_each(|writer| writer.join().expect("writer"));
        },
        SCHEDULES,
    );
}

#[test]
fn whoever_waits_for_a_txg_is_woken() {
    shuttle::check_random(
        || {
            let txgs = Txgs::new(Txg(0), Limits::default());
            let waiters: Vec<_> = (1..4)
                .map(|txg| {
                    let txgs = Arc::clone(&txgs);
                    thread::spawn(move || txgs.wait_synced(Txg(txg)))
                })
                .collect();
            for _ in 0..2 {
                let tx = txgs.quiesce();
                txgs.finish(tx);
            }
            txgs.fail(TxError::Closed);
            let results: Vec<_> = waiters.into_iter().map(|waiter| waiter.join().expect("waiter")).collect();
            assert!(results[2].is_err());
        },
        SCHEDULES,
    );
}

fn key(n: u64) -> Key {
    let words = std::array::from_fn(|i| match i {
        0 => 1,
        1 => n,
        10 => 5,
        _ => 0,
    });
    Key::of(&BlockPtr::from_words(words), false).expect("a block with an address")
}

/// A block is written twice in the same place, and a reader reads it in between.
#[test]
fn what_was_read_before_a_block_was_written_again_does_not_stay() {
    shuttle::check_random(
        || {
            let cache = Arc::new(BlockCache::new(16 * 10_000));
            let block = |byte| Block::new(vec![byte; 100], Endian::Little);
            cache.renew(None, key(1), block(1), true);
            let reader = {
                let cache = Arc::clone(&cache);
                thread::spawn(move || cache.insert(key(1), block(1)))
            };
            cache.renew(None, key(1), block(2), true);
            reader.join().expect("reader");
            assert_eq!(cache.get(&key(1)).expect("cached").bytes()[0], 2);
        },
        SCHEDULES,
    );
}

#[test]
fn the_cache_is_whole_whoever_uses_it() {
    shuttle::check_random(
        || {
            let cache = Arc::new(BlockCache::new(16 * 1000));
            let threads: Vec<_> = (0..3_u64)
                .map(|t| {
                    let cache = Arc::clone(&cache);
                    thread::spawn(move || {
                        for i in 0..6 {
                            let n = (t + i) % 5;
                            let block = Block::new(vec![n as u8; 100], Endian::Little);
                            match i % 3 {
                                0 => cache.insert(key(n), block),
                                1 => cache.renew(None, key(n), block, i % 2 == 0),
                                _ => {}
                            }
                            if let Some(found) = cache.get(&key(n)) {
                                assert!(found.bytes().iter().all(|b| u64::from(*b) == n));
                            }
                        }
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().expect("thread"));
            assert!(cache.bytes() <= 16 * 1000);
        },
        SCHEDULES,
    );
}

struct Freeing<'a>(Arc<zio::Zio>, &'a dyn AllocTx);

impl Ledger for Freeing<'_> {
    fn born(&mut self, _: &BlockPtr) {}

    fn killed(&mut self, bp: &BlockPtr) {
        self.0.free(bp, self.1).expect("what is killed was allocated");
    }
}

/// Committed changes are on disk in a txg, or in the log of the last one.
#[test]
fn a_commit_is_durable_when_it_returns() {
    shuttle::check_random(
        || {
            let store = Store::new(memory_pool(64 << 20), 1 << 20);
            let txgs = Txgs::new(Txg(3), Limits::default());
            let tx = txgs.begin().expect("open");
            let policy = SetPolicy::dataset();
            let set = LiveSet::create(&store, txgs.meter(), 7, ObjsetType::Other, policy, &tx);
            let objects: Vec<_> = (0..2)
                .map(|_| set.allocate(&NewObject::of(ObjType::PLAIN_FILE), &tx).expect("made"))
                .collect();
            drop(tx);
            let log = IntentLog::new(&set, &txgs);
            let stop = Arc::new(AtomicBool::new(false));
            let durable = Arc::new(Mutex::new(Vec::new()));
            let writers: Vec<_> = objects
                .iter()
                .map(|object| {
                    let (object, txgs, log) = (object.clone(), Arc::clone(&txgs), Arc::clone(&log));
                    let durable = Arc::clone(&durable);
                    thread::spawn(move || {
                        for i in 1..4_u8 {
                            let tx = txgs.begin().expect("open");
                            object.write_at(0, &[i; 8], &tx).expect("written");
                            let (id, txg) = (object.id(), tx.txg());
                            let data = LogData::written(&object, 0, &[i; 8]);
                            log.push(&tx, Pending::Write { object: id, offset: 0, data, mtime: None });
                            drop(tx);
                            log.commit(Some(id)).expect("durable");
                            let synced = txgs.synced_txg();
                            if synced < txg {
                                durable.lock().expect("whole").push((id, i, txg));
                            }
                        }
                    })
                })
                .collect();
            let syncer = {
                let (txgs, set, log, stop) =
                    (Arc::clone(&txgs), Arc::clone(&set), Arc::clone(&log), Arc::clone(&stop));
                thread::spawn(move || {
                    while !stop.load(Ordering::SeqCst) {
                        let tx = txgs.quiesce();
                        log.sync(&tx);
                        let zio = Arc::clone(set.store().zio());
                        set.sync(&tx, &mut Freeing(zio, &tx)).expect("synced");
                        let txg = tx.txg();
                        txgs.finish(tx);
                        log.synced(txg);
                        thread::yield_now();
                    }
                })
            };
            writers.into_iter().for_each(|writer| writer.join().expect("writer"));
            stop.store(true, Ordering::SeqCst);
            syncer.join().expect("syncer");
            let synced = txgs.synced_txg();
            let mut logged = Vec::new();
            let mut note = |raw: &format::zil::RawRecord<'_>| {
                if let Ok(Body::Write { object, data: Some(data), .. }) =
                    raw.decode().map(|record| record.body)
                {
                    logged.push((object, data[0]));
                }
                true
            };
            let header = set.zil_header();
            walk_chain(store.zio(), 7, &header, &mut |_| true, &mut note).expect("readable");
            for (object, value, txg) in durable.lock().expect("whole").iter() {
                let is_there = *txg <= synced || logged.contains(&(*object, *value));
                assert!(is_there, "{value} of object {object} in txg {txg} is lost, {synced} is on disk");
            }
        },
        SCHEDULES / 3,
    );
}
