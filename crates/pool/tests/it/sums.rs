//! The sums that the dataset layer keeps, recomputed from the blocks of golden pools: OpenZFS meets the
//! demands of `dsl`'s own test checks.
#![allow(missing_docs)]

use crate::check;
use crate::common;
use testkit::Fixture;

/// Excluded are pools in which one block has two references (cloned, deduplicated), pools with a removed
/// vdev, and pools that are older than these sums.
const FIXTURES: &str = "snapshots properties embedded holes compat-2.0 redacted raidz1 zil zvol";

#[test]
fn golden_pools_add_up() {
    let wanted = std::env::var("CENOTE_FIXTURES").unwrap_or_else(|_| FIXTURES.to_owned());
    for name in wanted.split_whitespace() {
        let fixture = Fixture::open(name);
        let pool = common::open(&fixture);
        common::load_keys(&pool);
        println!("{name}");
        check::check(pool.dsl().clone());
    }
}
