//! A destroyed dataset so large that freeing it takes several txgs: the pool is exported in the middle,
//! checked, and continues after the next import.

use crate::support::{Files, judge};
use cenote_pool::LivePool;
use cenote_pool::{CreateSpec, Layout, Leave};
use dmu::{LiveSet, NewObject, SyncTx};
use dsl::DslError;
use dsl::create;
use dsl::create::NewHead;
use dsl::destroy::destroy;
use dsl::{Cost, free_lists};
use format::ObjType;
use format::objset::ObjsetType;
use std::sync::Arc;
use vdev::env::{Env, Random};

/// Blocks of each file, and the number of blocks that are freed in a txg.
const BLOCKS: u64 = 3000;
const FILES: u64 = 7;
const PER_TXG: u64 = 1500;

fn fill(set: &Arc<LiveSet>, tx: &SyncTx) -> Result<(), DslError> {
    let object = set.allocate(&NewObject::of(ObjType::MASTER_NODE), tx)?;
    Ok(object.create_zap(tx, 1, 0)?)
}

fn is_pending(pool: &LivePool) -> bool {
    pool.run(|ctx| free_lists::is_pending(ctx.m())).unwrap()
}

#[test]
fn destroying_goes_on_after_an_export() {
    free_lists::set_blocks_per_txg(PER_TXG);
    let files = Files::new(1, 128 << 20);
    let spec = CreateSpec::new("tank", vec![files.top(Layout::Single, 0..1)]);
    let pool = LivePool::create(spec, Env::system()).unwrap();
    pool.run(|ctx| create::create(ctx, NewHead::named("tank/a"), ObjsetType::Other, &mut fill).map(|_| ()))
        .unwrap();
    for n in 0..FILES {
        let head = pool.heads().open_by_name("tank/a").unwrap();
        let tx = head.begin(Cost::write(4 << 20, 128 << 10)).unwrap();
        let new = NewObject { indirect_shift: 12, ..NewObject::of(ObjType::PLAIN_FILE) }.with_block_size(512);
        let file = head.set.allocate(&new, &tx).unwrap();
        let mut noise = vec![0; (BLOCKS * 512) as usize];
        Random::from_seed(n).fill(&mut noise);
        file.write_at(0, &noise, &tx).unwrap();
        drop(tx);
        pool.sync().unwrap();
    }
    pool.run(|ctx| destroy(ctx, "tank/a")).unwrap();
    pool.export(Leave::Exported).unwrap();
    judge(&files, "tank");
    let mut rounds = 0;
    // Every import lasts for a few txgs only.
    loop {
        let pool = files.import("tank").unwrap();
        let left = is_pending(&pool);
        pool.export(Leave::Exported).unwrap();
        judge(&files, "tank");
        rounds += 1;
        assert!(rounds < 20);
        if !left {
            break;
        }
    }
    assert!(rounds > 1, "it was all over before the first export");
}
