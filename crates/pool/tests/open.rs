//! Golden pools open, and show what the manifests say.

use cenote_pool::{OpenOptions, Pool, Which};
use std::sync::Arc;
use testkit::Fixture;
use vdev::scan::Search;

fn open(fixture: &Fixture) -> Arc<Pool> {
    let found = Search::in_paths([fixture.dir()]).run();
    let which = Which::Name(fixture.manifest().pool.clone());
    Pool::open(found, &which, &OpenOptions::default()).unwrap_or_else(|e| panic!("{}: {e:?}", fixture.name()))
}

#[test]
fn single_opens() {
    let fixture = Fixture::open("single");
    let pool = open(&fixture);
    for (name, value) in pool.properties().unwrap() {
        println!(
            "{name} = {} | {}",
            cenote_pool::props::exact(&name, value.as_ref()),
            fixture.manifest().pool_properties.get(&name).map_or("?", |p| &p.value)
        );
    }
    for dir in pool.dsl().dirs().unwrap() {
        println!("{dir:?}");
    }
}
