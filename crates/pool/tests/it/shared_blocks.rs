//! Golden pools whose blocks have several references, by dedup tables and by clones: datasets are destroyed
//! one after the other, and after each `zdb` finds every reference counted and no block lost.

use crate::support::{Files, judge};
use cenote_pool::Leave;
use dsl::destroy::{destroy, destroy_snapshots};

/// Destroys the snapshots of a dataset and then the dataset.
fn destroy_all(files: &Files, pool_name: &str, name: &str) {
    let pool = files.import(pool_name).unwrap();
    let head = pool.view().unwrap().dsl().dataset(name).unwrap();
    let snapshots: Vec<String> = head.snapshots().unwrap().iter().map(|s| s.name().to_owned()).collect();
    drop(head);
    let name = name.to_owned();
    pool.run(move |ctx| {
        if !snapshots.is_empty() {
            destroy_snapshots(ctx, &snapshots, false)?;
        }
        destroy(ctx, &name)
    })
    .unwrap();
    // Waiting blocks are freed with the next txgs.
    for _ in 0..3 {
        pool.sync().unwrap();
    }
    pool.export(Leave::Exported).unwrap();
    judge(files, pool_name);
}

fn children_go(fixture: &str) {
    let fixture = testkit::Fixture::open(fixture);
    let files = Files::copy_of(&fixture);
    let pool_name = fixture.manifest().pool.clone();
    let pool = files.import(&pool_name).unwrap();
    let dirs = pool.view().unwrap().dsl().dirs().unwrap();
    let names: Vec<String> = dirs.iter().skip(1).map(|dir| dir.name().to_owned()).collect();
    drop(dirs);
    pool.export(Leave::Exported).unwrap();
    judge(&files, &pool_name);
    for name in names.iter().rev() {
        println!("{name}");
        destroy_all(&files, &pool_name, name);
    }
}

#[test]
fn legacy_dedup_tables() {
    children_go("dedup-legacy");
}

#[test]
fn dedup_tables_with_logs() {
    children_go("dedup-fast");
}

#[test]
fn clones() {
    children_go("cloned");
}
