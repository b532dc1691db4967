//! Streams of pools in big-endian order are those of the same pools in little-endian order, except for system
//! attributes, which have a byte order of their own.

#[path = "../../../cenote/tests/it/send/model.rs"]
#[allow(dead_code, reason = "no object set is read here")]
mod model;

use crate::contents;
use cenote::{OpenOptions, Pool};
use cenote_pool_mutate::image::{Backing, Image};
use cenote_pool_mutate::swap::{Which, swap};
use format::stream::RecordKind;
use model::{Model, count, frames};
use std::ops::ControlFlow;
use std::path::Path;
use stream::send::{Options, Source, send};
use testkit::Fixture;

fn open(fixture: &Fixture, folder: &Path) -> Pool {
    let pool = Pool::open(&fixture.manifest().pool, &OpenOptions::new().search(folder)).expect("open");
    contents::load_keys(&pool, fixture);
    pool
}

fn sent(pool: &Pool, name: &str, options: &Options) -> Vec<u8> {
    let dataset = pool.dataset(name).expect("there").dsl().clone();
    let set = dataset.open_objset().expect("open");
    let active = |f: &&format::feature::Feature| pool.spa().features().is_active(f.name);
    let pool_features = format::feature::FEATURES.iter().filter(active).map(|f| f.name).collect();
    let source = Source { dataset, set, from: None, pool_features };
    let options = Options { to_name: name.to_owned(), ..options.clone() };
    let mut bytes = Vec::new();
    let result = send(&source, &options, &mut bytes, &mut |_| ControlFlow::Continue(()));
    result.unwrap_or_else(|error| panic!("{name}: {error:?}"));
    bytes
}

#[test]
fn streams_do_not_show_the_order_of_the_pool() {
    let compressed = Options { compressed: true, embedded: true, large_blocks: true, ..Options::default() };
    for fixture in ["snapshots", "legacy", "version10", "longname"].map(Fixture::open) {
        let (original, swapped) = (fixture.scratch(), fixture.scratch());
        let paths = fixture.manifest().images.iter().map(|image| swapped.dir().join(&image.name)).collect();
        let image = Image::open(paths, &fixture.manifest().pool, Backing::Files).expect("open");
        swap(&image, Which::All).expect("rewritten");
        drop(image);
        let (little, big) = (open(&fixture, original.dir()), open(&fixture, swapped.dir()));
        for entry in fixture.manifest().datasets.iter().filter(|dataset| dataset.is_snapshot()) {
            for options in [&Options::default(), &compressed] {
                let [a, b] = [&little, &big].map(|pool| frames(&sent(pool, &entry.name, options)));
                let [of_little, of_big] = [&a, &b].map(|frames| {
                    let mut model = Model::default();
                    model.apply(frames);
                    model.without_attributes()
                });
                assert!(count(&b, RecordKind::Write) > 0, "{}", entry.name);
                of_big.assert_is(&of_little, &entry.name);
            }
        }
    }
}
