//! Golden pools with removed vdevs, changed here.

use crate::support::{Files, judge};
use cenote_pool::{ImportOptions, Leave};
use dsl::destroy::destroy_snapshots;
use testkit::Fixture;

#[test]
fn golden_pools_with_removed_vdevs_are_changed_and_stay_clean() {
    for name in ["removed-vdev", "removed-mirror"] {
        let fixture = Fixture::open(name);
        let pool_name = fixture.manifest().pool.clone();
        let files = Files::copy_of(&fixture);
        let pool = files.import_with(&pool_name, &ImportOptions::default()).unwrap();
        pool.start_scrub(false).unwrap();
        pool.scan_to_end().unwrap();
        pool.run(|ctx| ctx.m().set_entry("org.cenote:test", 1)).unwrap();
        pool.export(Leave::Exported).unwrap();
        judge(&files, &pool_name);

        let pool = files.import_with(&pool_name, &ImportOptions::default()).unwrap();
        let mut names = Vec::new();
        for dir in pool.view().unwrap().dsl().dirs().unwrap() {
            let Some(head) = dir.head().unwrap() else { continue };
            names.extend(head.snapshots().unwrap().iter().map(|snapshot| snapshot.name().to_owned()));
        }
        for name in &names {
            let name = name.clone();
            // Origins of clones stay.
            let _ = pool.run(move |ctx| destroy_snapshots(ctx, &[name], false));
        }
        for _ in 0..3 {
            pool.sync().unwrap();
        }
        pool.export(Leave::Exported).unwrap();
        judge(&files, &pool_name);
    }
}
