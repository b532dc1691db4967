//! Writable object sets on a disk in memory: reads before, during and after a sync return the written data;
//! and the set reads the same when it is opened again.
#![allow(missing_docs)]

use cenote_dmu::zap::Zap;
use cenote_dmu::{KeyState, ObjSet, Store};
use cenote_dmu::{Ledger, Limits, LiveObject, LiveSet, NewObject, SetPolicy, Txgs};
use format::objset::ObjsetType;
use format::{BlockId, BlockPtr, ObjType, ObjectId, Txg};
use std::collections::BTreeMap;
use std::sync::Arc;
use zio::testing::memory_pool;

/// A ledger that frees killed blocks, and counts.
struct Freeing<'a> {
    zio: Arc<zio::Zio>,
    tx: &'a dyn zio::AllocTx,
    space: i64,
}

impl Ledger for Freeing<'_> {
    fn born(&mut self, bp: &BlockPtr) {
        self.space += self.zio.dsize(bp) as i64;
    }

    fn killed(&mut self, bp: &BlockPtr) {
        self.space -= self.zio.dsize(bp) as i64;
        self.zio.free(bp, self.tx).expect("what is killed was allocated");
    }
}

struct World {
    store: Arc<Store>,
    txgs: Arc<Txgs>,
    set: Arc<LiveSet>,
    space: i64,
}

impl World {
    fn new(kind: ObjsetType) -> World {
        let store = Store::new(memory_pool(2 << 30), 16 << 20);
        let txgs = Txgs::new(Txg(3), Limits::default());
        let tx = txgs.begin().expect("open");
        let policy = SetPolicy {
            user_accounting: true,
            object_accounting: true,
            project_accounting: true,
            ..SetPolicy::dataset()
        };
        let set = LiveSet::create(&store, txgs.meter(), 7, kind, policy, &tx);
        World { store, txgs: Arc::clone(&txgs), set, space: 0 }
    }

    fn sync(&mut self) -> BlockPtr {
        let tx = self.txgs.quiesce();
        let mut ledger = Freeing { zio: Arc::clone(self.store.zio()), tx: &tx, space: 0 };
        let bp = self.set.sync(&tx, &mut ledger).expect("synced");
        self.space += ledger.space;
        self.txgs.finish(tx);
        bp
    }

    /// The set as another process reads it from disk.
    fn reopened(&self) -> Arc<ObjSet> {
        let store = Store::new(Arc::clone(self.store.zio()), 1 << 20);
        ObjSet::open(&store, &self.set.root_bp(), 7, KeyState::None).expect("readable")
    }
}

fn random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    (0..len).map(|_| random(&mut state) as u8).collect()
}

#[test]
fn an_empty_set_can_be_opened() {
    let mut world = World::new(ObjsetType::Other);
    world.sync();
    let read = world.reopened();
    assert_eq!(read.kind(), ObjsetType::Other);
    assert!(read.next_object(ObjectId(0)).expect("walk").is_none());
    assert_eq!(read.root().fill(), 0);
}

#[test]
fn objects_come_and_go() {
    let mut world = World::new(ObjsetType::Other);
    let tx = world.txgs.begin().expect("open");
    let made: Vec<LiveObject> = (0..100_u64)
        .map(|i| {
            let new = NewObject { slots: 1 + (i % 3) as u8, ..NewObject::of(ObjType::PLAIN_FILE) }
                .with_bonus(ObjType::U64_METADATA, i.to_le_bytes().to_vec());
            world.set.allocate(&new, &tx).expect("made")
        })
        .collect();
    drop(tx);
    world.sync();
    assert_eq!(world.reopened().root().fill(), 100);
    let tx = world.txgs.begin().expect("open");
    for object in made.iter().step_by(2) {
        world.set.free(object.id(), &tx).expect("freed");
        assert!(world.set.object(object.id()).is_err());
    }
    drop(tx);
    world.sync();
    let read = world.reopened();
    assert_eq!(read.root().fill(), 50);
    for (i, object) in made.iter().enumerate() {
        match read.object(object.id()) {
            Ok(found) => assert_eq!((i % 2, found.bonus()), (1, &(i as u64).to_le_bytes()[..])),
            Err(_) => assert_eq!(i % 2, 0),
        }
    }
}

#[test]
fn what_was_freed_is_not_given_out_before_the_sync() {
    let mut world = World::new(ObjsetType::Other);
    let tx = world.txgs.begin().expect("open");
    let new = NewObject::of(ObjType::PLAIN_FILE);
    let first = world.set.allocate(&new, &tx).expect("made").id();
    drop(tx);
    world.sync();
    let tx = world.txgs.begin().expect("open");
    world.set.free(first, &tx).expect("freed");
    assert!(world.set.claim(first, &new, &tx).is_err());
    drop(tx);
    world.sync();
    let tx = world.txgs.begin().expect("open");
    assert_eq!(world.set.claim(first, &new, &tx).expect("free again").id(), first);
}

/// Random writes, truncations and holes in one object against a plain array, with syncs in between.
fn model_of_one_object(seed: u64, block: u64, span: u64) {
    let mut state = seed;
    let mut world = World::new(ObjsetType::Other);
    let tx = world.txgs.begin().expect("open");
    let new = NewObject { indirect_shift: 12, ..NewObject::of(ObjType::PLAIN_FILE) }.with_block_size(block);
    let object = world.set.allocate(&new, &tx).expect("made");
    drop(tx);
    let mut model = vec![0_u8; span as usize];
    for step in 0..400 {
        let offset = random(&mut state) % span;
        let len = (1 + random(&mut state) % (3 * block)).min(span - offset);
        let range = offset as usize..(offset + len) as usize;
        match random(&mut state) % 10 {
            0 => {
                world.sync();
            }
            1 | 2 => {
                let tx = world.txgs.begin().expect("open");
                let to_end = random(&mut state).is_multiple_of(2);
                object.free_range(offset, if to_end { u64::MAX } else { len }, &tx).expect("freed");
                if to_end { &mut model[offset as usize..] } else { &mut model[range] }.fill(0);
            }
            _ => {
                let tx = world.txgs.begin().expect("open");
                let data = noise(state, len as usize);
                object.write_at(offset, &data, &tx).expect("written");
                model[range].copy_from_slice(&data);
            }
        }
        let mut got = vec![1; span as usize];
        object.read_at(0, &mut got).expect("read");
        assert!(got == model, "seed {seed}, step {step}: live contents differ");
        check_holes(&object.read(), &model, block, &format!("seed {seed}, step {step}"));
    }
    world.sync();
    let read = world.reopened().object(object.id()).expect("there");
    let mut got = vec![1; span as usize];
    read.read_at(0, &mut got).expect("read");
    assert!(got == model, "seed {seed}: contents on disk differ");
    check_holes(&read, &model, block, &format!("seed {seed}, on disk"));
    assert_eq!(read.dnode().used_bytes(), tree_space(&read, &world), "seed {seed}: space of the object");
}

/// Checks that data are never reported as a hole.
fn check_holes(object: &cenote_dmu::Object, model: &[u8], block: u64, what: &str) {
    let mut at = 0;
    while (at as usize) < model.len() {
        let data =
            object.next_data(at).expect("searched").unwrap_or(model.len() as u64).min(model.len() as u64);
        assert!(model[at as usize..data as usize].iter().all(|b| *b == 0), "{what}: data at {at}..{data}");
        if data as usize >= model.len() {
            break;
        }
        let hole = object.next_hole(data).expect("searched");
        assert!(hole > data, "{what}: {data} is data and a hole");
        at = hole.max(data / block * block + block);
    }
}

/// Deflated bytes of all blocks below a dnode.
fn tree_space(object: &cenote_dmu::Object, world: &World) -> u64 {
    let zio = world.store.zio();
    let dnode = object.dnode();
    let mut sum = 0;
    for level in 0..dnode.nlevels {
        let span = dnode.epbs() * u32::from(level);
        for blkid in 0..=dnode.maxblkid.0.checked_shr(span).unwrap_or(0) {
            sum += zio.dsize(&object.block_ptr(format::Level(level), BlockId(blkid)).expect("pointer"));
        }
    }
    sum
}

#[test]
fn one_object_is_what_was_written() {
    for seed in 0..6 {
        model_of_one_object(seed, 512, 200_000);
        model_of_one_object(100 + seed, 4096, 600_000);
    }
}

#[test]
fn blocks_are_resized_while_there_is_one() {
    let mut world = World::new(ObjsetType::Other);
    let tx = world.txgs.begin().expect("open");
    let object = world.set.allocate(&NewObject::of(ObjType::PLAIN_FILE), &tx).expect("made");
    object.write_at(0, b"hello", &tx).expect("written");
    object.set_block_size(2048, &tx).expect("grown");
    object.write_at(1000, b"world", &tx).expect("written");
    drop(tx);
    world.sync();
    let tx = world.txgs.begin().expect("open");
    object.set_block_size(131_072, &tx).expect("grown");
    object.write_at(131_072, b"more", &tx).expect("written");
    assert!(object.set_block_size(4096, &tx).is_err());
    drop(tx);
    world.sync();
    let read = world.reopened().object(object.id()).expect("there");
    let mut got = [0; 1005];
    read.read_at(0, &mut got).expect("read");
    assert_eq!((&got[..5], &got[1000..], read.block_size()), (&b"hello"[..], &b"world"[..], 131_072));
}

#[test]
fn a_block_that_grows_in_steps_keeps_its_bytes() {
    let mut world = World::new(ObjsetType::Other);
    let tx = world.txgs.begin().expect("open");
    let object = world.set.allocate(&NewObject::of(ObjType::PLAIN_FILE), &tx).expect("made");
    drop(tx);
    let (mut model, mut held) = (Vec::new(), Vec::new());
    for round in 0..4_u8 {
        let tx = world.txgs.begin().expect("open");
        for step in 0..40_u8 {
            let at = model.len();
            model.extend([round * 40 + step; 512]);
            object.set_block_size(model.len() as u64, &tx).expect("grown");
            object.write_at(at as u64, &model[at..], &tx).expect("written");
            if step % 16 == 3 {
                // A reader that holds the block keeps its old contents.
                held.push((object.block(BlockId(0)).expect("read").expect("data"), model.clone()));
            }
        }
        drop(tx);
        world.sync();
    }
    let tx = world.txgs.begin().expect("open");
    object.write_at(0, &[7], &tx).expect("written");
    model[0] = 7;
    model.truncate(20 * 512);
    object.set_block_size(model.len() as u64, &tx).expect("shrunk");
    drop(tx);
    world.sync();
    for (block, then) in held {
        assert_eq!(block.bytes(), then);
    }
    let read = world.reopened().object(object.id()).expect("there");
    let mut got = vec![0; model.len()];
    read.read_at(0, &mut got).expect("read");
    assert_eq!((got, read.block_size()), (model.clone(), model.len() as u64));
}

#[test]
fn zaps_grow_through_transactions() {
    let mut world = World::new(ObjsetType::Other);
    let tx = world.txgs.begin().expect("open");
    let object = world.set.allocate(&NewObject::of(ObjType::ZAP_METADATA), &tx).expect("made");
    object.create_zap(&tx, 12_345, 0).expect("created");
    drop(tx);
    let mut model = BTreeMap::new();
    for round in 0..10_u64 {
        let tx = world.txgs.begin().expect("open");
        let zap = object.zap(&tx).expect("a ZAP");
        for i in 0..500 {
            let name = format!("name {}", round * 500 + i);
            zap.insert(name.as_bytes(), i).expect("new");
            model.insert(name.into_bytes(), i);
        }
        drop(zap);
        drop(tx);
        if round % 2 == 0 {
            world.sync();
        }
    }
    world.sync();
    let read = Zap::open(&world.reopened().object(object.id()).expect("there")).expect("a ZAP");
    let found: BTreeMap<Vec<u8>, u64> = read
        .entries()
        .map(|entry| entry.map(|entry| (entry.name().to_vec(), entry.u64().unwrap_or(0))))
        .collect::<Result<_, _>>()
        .expect("whole");
    assert_eq!(found, model);
}

#[test]
fn all_space_comes_back() {
    let mut world = World::new(ObjsetType::Other);
    world.sync();
    let tx = world.txgs.begin().expect("open");
    let objects: Vec<LiveObject> = (0..50_u64)
        .map(|i| {
            let object = world
                .set
                .allocate(&NewObject::of(ObjType::PLAIN_FILE).with_block_size(4096), &tx)
                .expect("made");
            object.write_at(i * 40_960, &noise(i, 100_000), &tx).expect("written");
            object
        })
        .collect();
    drop(tx);
    world.sync();
    assert!(world.space > 5_000_000);
    let tx = world.txgs.begin().expect("open");
    for object in &objects {
        world.set.free(object.id(), &tx).expect("freed");
    }
    drop(tx);
    world.sync();
    // Only the root is left: all blocks of dnodes are holes.
    assert!(world.space <= 4096 * 2, "{} bytes", world.space);
}

#[test]
fn readers_see_one_state_while_a_sync_runs() {
    let mut world = World::new(ObjsetType::Other);
    let tx = world.txgs.begin().expect("open");
    let object =
        world.set.allocate(&NewObject::of(ObjType::PLAIN_FILE).with_block_size(4096), &tx).expect("made");
    object.write_at(0, &vec![0; 400_000], &tx).expect("written");
    drop(tx);
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let reader = {
        let (object, stop) = (object.clone(), Arc::clone(&stop));
        std::thread::spawn(move || {
            let mut buf = vec![0; 4096];
            let mut last = [0_u8; 97];
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                for (block, last) in last.iter_mut().enumerate() {
                    object.read_at(block as u64 * 4096, &mut buf).expect("read");
                    assert!(buf.iter().all(|b| *b == buf[0]), "half of a write");
                    assert!(buf[0] >= *last, "an older state");
                    *last = buf[0];
                }
            }
        })
    };
    for round in 1..100_u8 {
        let tx = world.txgs.begin().expect("open");
        for block in 0..97 {
            object.write_at(block * 4096, &[round; 4096], &tx).expect("written");
        }
        drop(tx);
        world.sync();
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    reader.join().expect("reader");
}
