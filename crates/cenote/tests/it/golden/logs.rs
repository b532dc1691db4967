//! Pools with intent logs that were not replayed. They open as of their last whole txg, and the records that wait
//! for replay are those that OpenZFS lists (`zil.txt`). Their manifests describe the state after the replay, so
//! contents are read but not compared.

use super::compare::{Open, chain, open};
use cenote::inspect::{Check, blocks};
use cenote::{Dataset, Pool};
use dmu::log::walk as zil;
use dmu::log::walk_chain;
use format::zil::{Body, block_seq};
use format::{BlockPtr, Txg};
use pool::ImportOptions;
use pool::LivePool;
use std::collections::BTreeMap;
use std::sync::Arc;
use testkit::Fixture;

/// Records in the order of the log: type, txg, sequence number.
type Log = Vec<(String, u64, u64)>;

fn expected(fixture: &Fixture) -> BTreeMap<String, Log> {
    let mut logs: BTreeMap<String, Log> = BTreeMap::new();
    let mut dataset = String::new();
    for line in fixture.text("zil.txt").lines() {
        if let Some(rest) = line.strip_prefix("Dataset ") {
            dataset = rest.split(" [").next().unwrap_or_default().to_owned();
        }
        let words: Vec<&str> = line.split([' ', ',', '\t']).filter(|word| !word.is_empty()).collect();
        if let [kind, "len", _, "txg", txg, "seq", seq] = words[..] {
            let number = |text: &str| text.parse().expect("a number");
            logs.entry(dataset.clone()).or_default().push((kind.to_owned(), number(txg), number(seq)));
        }
    }
    assert!(!logs.is_empty(), "no records in zil.txt");
    logs
}

fn found(dataset: &Dataset) -> Log {
    let mut log = Log::new();
    let objset = dataset.objset().unwrap_or_else(|error| panic!("{}", chain(&error)));
    let mut visit = |_: &format::BlockPtr, records: format::zil::Records<'_>| {
        for record in records {
            let record = record.expect("a record");
            let kind = record.kind().expect("a known type");
            if !objset.is_locked() {
                record.decode().expect("a record that can be read");
            }
            log.push((kind.name().to_owned(), record.txg.0, record.seq));
        }
        true
    };
    zil::walk(&objset, &mut visit).expect("a log that can be read");
    log
}

fn compare(pool: &Pool, expected: &BTreeMap<String, Log>) {
    for dataset in pool.datasets().expect("datasets") {
        let none = Log::new();
        let log =
            if dataset.dsl().is_snapshot() { &none } else { expected.get(dataset.name()).unwrap_or(&none) };
        if !dataset.dsl().is_snapshot() {
            assert_eq!(&found(&dataset), log, "{}", dataset.name());
        }
    }
}

fn check(name: &str) {
    let fixture = Fixture::open(name);
    let pool = open(&fixture, &Open::default());
    compare(&pool, &expected(&fixture));
    let report = cenote::verify::verify(&pool, &cenote::verify::Options::default(), &());
    assert!(report.damage.is_empty(), "{:?}", report.damage);
}

#[test]
fn on_the_pools_own_disk() {
    check("zil");
}

#[test]
fn on_raidz() {
    check("zil-raidz");
}

#[test]
fn on_a_log_device() {
    check("zil-slog");
}

#[test]
fn of_a_volume() {
    check("zil-zvol");
}

#[test]
fn of_encrypted_datasets() {
    check("zil-encrypted");
}

/// Records are counted without the key too, because their headers are not encrypted.
#[test]
fn of_encrypted_datasets_without_the_key() {
    let fixture = Fixture::open("zil-encrypted");
    let options = fixture.images().into_iter().fold(cenote::OpenOptions::new(), cenote::OpenOptions::search);
    let pool = Pool::open(&fixture.manifest().pool, &options).expect("opens");
    compare(&pool, &expected(&fixture));
}

/// A device that was missing when the log was claimed may have later records.
#[test]
fn what_follows_the_end_of_a_claim_is_no_part_of_the_log() {
    let fixture = Fixture::open("zil");
    let folder = tempfile::tempdir().expect("a folder");
    for image in fixture.images() {
        let copy = folder.path().join(image.file_name().expect("a file"));
        let args: [&std::ffi::OsStr; 3] = ["--sparse=always".as_ref(), image.as_ref(), copy.as_ref()];
        assert!(std::process::Command::new("cp").args(args).status().expect("it runs").success());
        assert!(
            std::process::Command::new("chmod").arg("u+w").arg(&copy).status().expect("it runs").success()
        );
    }
    let name = &fixture.manifest().pool;
    let space = || {
        let pool = Pool::open(name, &cenote::OpenOptions::new().search(folder.path())).expect("opens");
        let report = blocks(&pool, Check::Nothing, true).expect("counted");
        report.space.unwrap_or_else(|| panic!("{:?}", report.problems))
    };
    let open = || {
        let found = vdev::scan::Search::in_paths([folder.path()]).run();
        let which = pool::Which::Name(name.clone());
        LivePool::import(&found, &which, &ImportOptions::default(), vdev::Env::system()).expect("opens")
    };
    // The log is claimed but not replayed.
    drop(open());
    assert!(space().matches(), "{}", space());
    let live = open();
    let zio = Arc::clone(live.store().zio());
    let mut cut = 0;
    let datasets =
        Pool::open(name, &cenote::OpenOptions::new().search(folder.path())).expect("opens").datasets();
    for dataset in datasets.expect("datasets").iter().filter(|dataset| !dataset.dsl().is_snapshot()) {
        let header = dataset.objset().expect("opens").phys().zil;
        let (mut all, mut last, mut end) = (Vec::new(), 0, None);
        let inside = std::cell::Cell::new(0);
        if header.claim_txg == Txg(0) || header.log.is_hole() {
            continue;
        }
        let mut data = Vec::new();
        walk_chain(
            &zio,
            dataset.dsl().id().0,
            &header,
            &mut |bp| {
                inside.set(inside.get() + 1);
                end.get_or_insert(block_seq(bp));
                all.push(*bp);
                true
            },
            &mut |record| {
                match record.decode().map(|record| record.body) {
                    _ if inside.get() == 1 => last = record.seq,
                    Ok(Body::Write { bp, .. }) if bp.logical_birth() >= header.claim_txg => data.push(bp),
                    _ => {}
                }
                true
            },
        )
        .expect("readable");
        if all.len() < 3 {
            continue;
        }
        cut += 1;
        let head = live.heads().open_by_name(dataset.name()).expect("opens");
        let header =
            format::objset::ZilHeader { claim_blk_seq: end.expect("blocks"), claim_lr_seq: last, ..header };
        let beyond: Vec<BlockPtr> = all.into_iter().skip(1).chain(data).collect();
        let set = Arc::clone(&head.set);
        live.run(move |ctx| {
            set.set_zil_header(header, ctx.tx);
            beyond
                .iter()
                .filter(|bp| !bp.is_hole() && !bp.is_embedded())
                .try_for_each(|bp| ctx.zio.free(bp, ctx.tx))?;
            Ok(())
        })
        .expect("written");
    }
    assert!(cut > 0, "no log of several blocks");
    drop(live);
    assert!(space().matches(), "{}", space());
}
