//! Streams of golden pools' snapshots: a receiver in memory has what the pool has, and OpenZFS's `zstream` finds them
//! whole.

mod model;

use crate::golden::compare::{Open, open};
use cenote::Pool;
use dmu::KeyState;
use format::stream::{Record, RecordKind, feature};
use model::{Model, count, frames};
use std::io::Write as _;
use std::ops::ControlFlow;
use std::process::{Command, Stdio};
use stream::send::{From, Options, SendError, Sent, Source, estimate, send};
use stream::{Frame, survey};
use testkit::Fixture;

const SMALL: u64 = 128 << 10;

fn pool_of(fixture: &str) -> Pool {
    open(&Fixture::open(fixture), &Open::default())
}

fn from(dataset: &dsl::Dataset, is_origin: bool) -> From {
    From {
        guid: dataset.phys().guid,
        txg: dataset.phys().creation_txg,
        is_origin,
        redact_snaps: dataset.redact_snaps().expect("readable"),
        redaction: None,
        ivset_guid: dataset.ivset_guid().expect("readable"),
    }
}

fn source(pool: &Pool, name: &str, start: Option<From>) -> Source {
    let dataset = pool.dataset(name).expect("there").dsl().clone();
    let set = dataset.open_objset().expect("open");
    let active = |f: &&format::feature::Feature| pool.spa().features().is_active(f.name);
    let pool_features = format::feature::FEATURES.iter().filter(active).map(|f| f.name).collect();
    Source { dataset, set, from: start, pool_features }
}

fn named(name: &str) -> Options {
    Options { to_name: name.to_owned(), ..Options::default() }
}

fn try_send(source: &Source, options: &Options) -> Result<(Vec<u8>, Sent), SendError> {
    let mut bytes = Vec::new();
    let sent = send(source, options, &mut bytes, &mut |_| ControlFlow::Continue(()))?;
    assert_eq!(sent.bytes, bytes.len() as u64);
    Ok((bytes, sent))
}

/// The records of a stream, which is whole, of the estimated size, and accepted by `zstream`.
fn sent(source: &Source, options: &Options) -> Vec<Frame> {
    let name = &options.to_name;
    let (bytes, told) = try_send(source, options).unwrap_or_else(|error| panic!("{name}: {error:?}"));
    assert_eq!(estimate(source, options).expect("estimated"), told.bytes, "{name}");
    let found = survey(&bytes[..]).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(found.substreams.len(), 1, "{name}");
    judge(&bytes, name);
    frames(&bytes)
}

/// `zstream dump` finds no wrong checksum, and as many records.
fn judge(bytes: &[u8], name: &str) {
    let Some(zstream) = testkit::tool("zstream") else { return };
    let mut child = Command::new(zstream)
        .arg("dump")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut input = child.stdin.take().expect("a pipe");
    let output = std::thread::scope(|threads| {
        threads.spawn(move || input.write_all(bytes).expect("read"));
        child.wait_with_output().expect("ends")
    });
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && output.stderr.is_empty(), "{name}: {output:?}");
    assert!(!told.contains("ncorrect checksum"), "{name}: {told}");
    assert!(told.contains(&format!("Total stream length = {} ", bytes.len())), "{name}: {told}");
}

/// Ways to send that a receiver reads alike.
fn ways() -> [(Options, u64); 4] {
    let large = Options { large_blocks: true, ..Options::default() };
    [
        (Options::default(), SMALL),
        (large.clone(), u64::MAX),
        (Options { embedded: true, compressed: true, ..large }, u64::MAX),
        (Options { embedded: true, compressed: true, ..Options::default() }, SMALL),
    ]
}

/// Sends every snapshot of a pool, in full and as an increment from each earlier one, and the origin's too.
fn check_all(fixture: &str) {
    let pool = pool_of(fixture);
    let fixture = Fixture::open(fixture);
    let mut checked = 0;
    for entry in fixture.manifest().datasets.iter().filter(|dataset| dataset.is_snapshot()) {
        let name = &entry.name;
        let full = source(&pool, name, None);
        let mut earlier = Vec::new();
        let mut at = full.dataset.previous().expect("readable");
        while let Some(snapshot) = at {
            at = snapshot.previous().expect("readable");
            earlier.push(snapshot);
        }
        for (way, block_max) in ways() {
            let options = Options { to_name: name.clone(), ..way };
            let expected = Model::read(&full.set, block_max);
            let mut model = Model::default();
            model.apply(&sent(&full, &options));
            model.assert_is(&expected, name);
            for snapshot in earlier.iter().take(3) {
                let is_origin = snapshot.dir().id() != full.dataset.dir().id();
                let start = from(snapshot, is_origin);
                let increment = Source { from: Some(start), ..full.clone() };
                let mut model = Model::read(&snapshot.open_objset().expect("open"), block_max);
                model.apply(&sent(&increment, &options));
                model.assert_is(&expected, &format!("{} to {name}", snapshot.name()));
            }
            checked += 1;
        }
    }
    assert!(checked > 0);
}

macro_rules! pools {
    ($($test:ident = $fixture:literal;)*) => { $(#[test] fn $test() { check_all($fixture); })* };
}

pools! {
    all_of_snapshots = "snapshots";
    all_of_holes = "holes";
    all_of_recordsize = "recordsize";
    all_of_encryption = "encryption";
    all_of_legacy = "legacy";
    all_of_version10 = "version10";
    all_of_zvol = "zvol";
    all_of_longname = "longname";
    all_of_gang = "gang";
    all_of_cloned = "cloned";
    all_of_dedup = "dedup-legacy";
}
