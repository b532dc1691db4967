//! Pools with intent logs that were not replayed. They open at their last whole txg, and the records
//! that wait for replay are those that OpenZFS lists (`zil.txt`). Their manifests describe the state
//! after the replay, so contents are not compared here, only read.

use crate::compare::{Open, chain, open};
use cenote::inspect::zil;
use cenote::{Dataset, Pool};
use std::collections::BTreeMap;
use testkit::Fixture;

/// Records in the order of the log: type, txg, number.
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

/// Without the key the records are counted all the same: their headers are in clear.
#[test]
fn of_encrypted_datasets_without_the_key() {
    let fixture = Fixture::open("zil-encrypted");
    let options = fixture.images().into_iter().fold(cenote::OpenOptions::new(), cenote::OpenOptions::search);
    let pool = Pool::open(&fixture.manifest().pool, &options).expect("opens");
    compare(&pool, &expected(&fixture));
}
