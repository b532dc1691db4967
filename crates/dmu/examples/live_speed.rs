//! Measures the cost of creating and removing small objects, in memory and in the sync, on a disk in memory.
//!
//! `cargo run --release -p cenote-dmu --example live_speed`
#![allow(missing_docs)]

use cenote_dmu::Store;
use cenote_dmu::{Ledger, Limits, LiveObject, LiveSet, NewObject, SetPolicy, Txgs};
use format::objset::ObjsetType;
use format::{BlockPtr, ObjType, Txg};
use std::sync::Arc;
use std::time::Instant;
use zio::testing::memory_pool;

const OBJECTS: u64 = 100_000;
const PER_DIRECTORY: u64 = 30;

struct Freeing<'a>(Arc<zio::Zio>, &'a dyn zio::AllocTx);

impl Ledger for Freeing<'_> {
    fn born(&mut self, _: &BlockPtr) {}

    fn killed(&mut self, bp: &BlockPtr) {
        self.0.free(bp, self.1).expect("what is killed was allocated");
    }
}

fn micros(start: Instant, count: u64) -> f64 {
    start.elapsed().as_secs_f64() * 1e6 / count as f64
}

fn main() {
    let store = Store::new(memory_pool(4 << 30), 256 << 20);
    let txgs = Txgs::new(Txg(3), Limits { dirty_max: 4 << 30, ..Limits::default() });
    let tx = txgs.begin().expect("open");
    let set = LiveSet::create(&store, txgs.meter(), 7, ObjsetType::Other, SetPolicy::dataset(), &tx);
    drop(tx);
    let data: Vec<u8> = (0..512_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let start = Instant::now();
    let mut files = Vec::new();
    let mut directory: Option<LiveObject> = None;
    for i in 0..OBJECTS {
        let tx = txgs.begin().expect("open");
        if i % PER_DIRECTORY == 0 {
            let new = NewObject::of(ObjType::DIRECTORY).with_bonus(ObjType::SA, vec![1; 176]);
            let made = set.allocate(&new, &tx).expect("made");
            made.create_zap(&tx, i | 1, 0).expect("created");
            directory = Some(made);
        }
        let new =
            NewObject::of(ObjType::PLAIN_FILE).with_bonus(ObjType::SA, vec![1; 176]).with_block_size(512);
        let file = set.allocate(&new, &tx).expect("made");
        file.write_at(0, &data, &tx).expect("written");
        let name = format!("file{i:06}");
        let directory = directory.as_ref().expect("made before the first file");
        directory.zap(&tx).expect("a ZAP").insert(name.as_bytes(), file.id().0).expect("new");
        directory.change_bonus(&tx, |bonus| bonus[20] = bonus[20].wrapping_add(1));
        files.push(file);
    }
    println!("create: {:.2} us each", micros(start, OBJECTS));
    let sync = |what: &str| {
        let start = Instant::now();
        let tx = txgs.quiesce();
        let zio = Arc::clone(store.zio());
        set.sync(&tx, &mut Freeing(zio, &tx)).expect("synced");
        txgs.finish(tx);
        println!("sync of {what}: {:.2} us each", micros(start, OBJECTS));
    };
    sync("creations");
    let start = Instant::now();
    for file in &files {
        let tx = txgs.begin().expect("open");
        set.free(file.id(), &tx).expect("freed");
    }
    println!("free: {:.2} us each", micros(start, OBJECTS));
    drop(files);
    sync("frees");
}
