//! Test support: opening golden pools, loading their keys.
#![allow(dead_code)] // Not every test file uses everything.

use cenote_pool::{OpenOptions, Pool, PoolError, Which};
use dsl::keys::{CryptoKey, KeyFormat};
use std::sync::Arc;
use testkit::Fixture;
use vdev::scan::{Found, Search};

/// The devices of a golden pool.
pub(crate) fn found(fixture: &Fixture) -> Found {
    Search::in_paths([fixture.dir()]).run()
}

/// Opens a golden pool by the name in its manifest.
pub(crate) fn try_open(found: Found, fixture: &Fixture, opts: &OpenOptions) -> Result<Arc<Pool>, PoolError> {
    Pool::open(found, &Which::Name(fixture.manifest().pool.clone()), opts)
}

/// Opens a golden pool that must open.
pub(crate) fn open(fixture: &Fixture) -> Arc<Pool> {
    try_open(found(fixture), fixture, &OpenOptions::default())
        .unwrap_or_else(|error| panic!("{}: {error} ({error:?})", fixture.name()))
}

/// The devices of a golden pool without some images.
pub(crate) fn without(fixture: &Fixture, images: &[&str]) -> Found {
    let mut found = found(fixture);
    found.leaves.retain(|leaf| !images.iter().any(|image| leaf.path.ends_with(image)));
    found
}

/// Loads the keys of every encryption root.
pub(crate) fn load_keys(pool: &Pool) -> usize {
    let mut loaded = 0;
    for dir in pool.dsl().dirs().unwrap() {
        let Some(key) = CryptoKey::of(&dir).unwrap().filter(|key| key.root_dir == dir.id()) else { continue };
        let material = testkit::keys::material(key.format.map_or("", KeyFormat::name)).unwrap();
        pool.dsl().keyring().load(&dir, &material).unwrap();
        loaded += 1;
    }
    loaded
}
