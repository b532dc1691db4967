//! Images with blocks changed and resealed up to the uberblocks, in memory.

use crate::work::{Depth, exercise_pool};
use cenote::Pool;
use cenote_pool_mutate::image::{Backing, Image};
use cenote_pool_mutate::mutate::{Outcome, Target, mutate};
use pool::{OpenOptions, Which};
use testkit::Fixture;
use vdev::scan::{Found, Leaf};

/// Bytes of block cache.
const CACHE: usize = 48 << 20;

/// The devices of a golden pool after [`mutate`].
pub(crate) struct MutatedImage {
    found: Found,
    pub(crate) outcome: Outcome,
}

impl MutatedImage {
    pub(crate) fn new(fixture: &Fixture, seed: u64, plan: (Target, u64)) -> MutatedImage {
        let image = Image::open(fixture.images(), &fixture.manifest().pool, Backing::Memory)
            .unwrap_or_else(|error| panic!("{}: {error}", fixture.name()));
        let outcome = mutate(&image, seed, plan)
            .unwrap_or_else(|error| panic!("{} seed {seed} {plan:?}: {error}", fixture.name()));
        let mut found = Found::default();
        for leaf in &image.found.leaves {
            let probe = vdev::label::probe(&*leaf.device);
            found.leaves.push(Leaf { probe, ..leaf.clone() });
        }
        MutatedImage { found, outcome }
    }

    /// Opens the pool and exercises it.
    pub(crate) fn exercise(&self, fixture: &Fixture) -> Depth {
        let name = Which::Name(fixture.manifest().pool.clone());
        let options = OpenOptions { cache_bytes: CACHE, allow_missing_logs: true, ..OpenOptions::default() };
        match pool::Pool::open(&self.found, &name, &options) {
            Ok(pool) => exercise_pool(&Pool::from(pool), fixture),
            Err(_) => Depth::default(),
        }
    }
}
