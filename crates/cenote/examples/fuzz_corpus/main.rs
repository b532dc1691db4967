//! Generates the corpora of the fuzz targets: small structures from the golden pools, and hand-made ones that no
//! golden pool has. See `fuzz/README.md`.
//!
//! `cargo run -p cenote --example fuzz_corpus`
//!
//! # What always holds
//! - Only files whose names begin with `real-` and `made-` are removed and written; inputs found by fuzzing are
//!   kept.
//! - The same pools give the same files.

// Corpora are ordinary files of the source tree, not devices.
#![allow(clippy::disallowed_types)]

mod corpus;
mod devices;
mod made;
mod objects;
mod tiny_zap;

use cenote::{OpenOptions, Pool};
use corpus::Corpus;
use testkit::{Fixture, keys};

/// Small pools, each with a special property.
const FIXTURES: [&str; 33] = [
    "single",
    "snapshots",
    "dnodes",
    "encryption",
    "legacy",
    "version1",
    "version10",
    "properties",
    "posixacl",
    "fileflags",
    "redacted",
    "removed-vdev",
    "raidz-expanded",
    "raidz1",
    "dedup-fast",
    "dedup-legacy",
    "cloned",
    "compression",
    "embedded",
    "recordsize",
    "longname",
    "names",
    "partial-receive",
    "lost-block",
    "draid1",
    "classes",
    "zvol",
    "wholedisk",
    "zil",
    "zil-raidz",
    "zil-zvol",
    "zil-slog",
    "zil-encrypted",
];

fn main() {
    let mut corpus = Corpus::default();
    for name in FIXTURES {
        let fixture = Fixture::open(name);
        devices::collect(&fixture, &mut corpus);
        collect_pool(&fixture, &mut corpus);
    }
    // A large directory has fat ZAP leaves, which small pools lack.
    collect_pool(&Fixture::open("manyfiles"), &mut corpus);
    made::collect(&mut corpus);
    corpus.write();
}

fn collect_pool(fixture: &Fixture, corpus: &mut Corpus) {
    let options = fixture.images().into_iter().fold(OpenOptions::new(), OpenOptions::search);
    let pool = match Pool::open(&fixture.manifest().pool, &options) {
        Ok(pool) => pool,
        Err(error) => return eprintln!("{}: {error}", fixture.name()),
    };
    for dataset in &fixture.manifest().datasets {
        if let Some(material) = dataset.property("keyformat").and_then(keys::material) {
            // The first of several datasets with one key has loaded it.
            let _ = pool.load_key(&dataset.name, &material);
        }
    }
    objects::collect(fixture.name(), pool.spa().mos(), corpus);
    for dataset in pool.datasets().unwrap_or_default() {
        if let Ok(objset) = dataset.objset()
            && !objset.is_locked()
        {
            objects::collect(fixture.name(), &objset, corpus);
        }
        if let Ok(Some(token)) = dsl::resume::token_of(dataset.dsl()) {
            corpus.add("dsl", "tokens", fixture.name(), token.into_bytes());
        }
    }
}
