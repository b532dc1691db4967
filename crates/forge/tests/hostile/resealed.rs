//! Images whose blocks were changed and sealed again up to the uberblocks, in memory.

use crate::work::{Depth, use_pool};
use cenote::Pool;
use cenote_forge::image::{Backing, Image};
use cenote_forge::mutate::{Aim, Outcome, mutate};
use pool::{OpenOptions, Which};
use testkit::Fixture;
use vdev::scan::{Found, Leaf};

/// Bytes of block cache.
const CACHE: usize = 48 << 20;

/// The devices of a golden pool after a change.
pub(crate) struct Changed {
    found: Found,
    pub(crate) outcome: Outcome,
}

impl Changed {
    pub(crate) fn new(fixture: &Fixture, seed: u64, plan: (Aim, u64)) -> Changed {
        let image = Image::open(fixture.images(), &fixture.manifest().pool, Backing::Memory)
            .unwrap_or_else(|error| panic!("{}: {error}", fixture.name()));
        let outcome = mutate(&image, seed, plan)
            .unwrap_or_else(|error| panic!("{} seed {seed} {plan:?}: {error}", fixture.name()));
        let mut found = Found::default();
        for leaf in &image.found.leaves {
            let probe = vdev::label::probe(&*leaf.device);
            found.leaves.push(Leaf { probe, ..leaf.clone() });
        }
        Changed { found, outcome }
    }

    /// Opens it and asks for everything.
    pub(crate) fn use_it(&self, fixture: &Fixture) -> Depth {
        let name = Which::Name(fixture.manifest().pool.clone());
        let options = OpenOptions { cache_bytes: CACHE, allow_missing_logs: true, ..OpenOptions::default() };
        match pool::Pool::open(&self.found, &name, &options) {
            Ok(pool) => use_pool(&Pool::from(pool), fixture),
            Err(_) => Depth::default(),
        }
    }
}
