//! Pools that lose their devices during work, and get them back: `failmode`.

use super::faults::{SIZE, create, import};
use crate::support::{Files, judge};
use cenote_pool::LivePool;
use cenote_pool::PoolError;
use cenote_pool::{Layout, Leave};
use dmu::{LiveObject, LiveSet, NewObject, SyncTx, TxError};
use dsl::Cost;
use dsl::DslError;
use dsl::create::{NewHead, create as create_head};
use format::objset::ObjsetType;
use format::{DeviceOffset, ObjType};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use vdev::device::sim::{Fate, Power, SimDisk};
use vdev::env::Random;
use vdev::scan::{Found, Leaf};
use vdev::{Device, label};

const BLOCK: u64 = 16 << 10;
const BLOCKS: u64 = 256;

fn fill(set: &Arc<LiveSet>, tx: &SyncTx) -> Result<(), DslError> {
    let object = set.allocate(&NewObject::of(ObjType::MASTER_NODE), tx)?;
    Ok(object.create_zap(tx, 1, 0)?)
}

/// A pool with a dataset, and disks on one power supply.
struct World {
    disks: Vec<Arc<SimDisk>>,
    pool: Arc<LivePool>,
    file: u64,
}

fn devices(disks: &[Arc<SimDisk>]) -> Vec<Arc<dyn Device>> {
    disks.iter().map(|disk| Arc::clone(disk) as Arc<dyn Device>).collect()
}

impl World {
    fn new(layout: Layout, count: u64, seed: u64) -> World {
        let power = Power::new();
        let disks: Vec<Arc<SimDisk>> =
            (0..count).map(|n| Arc::new(SimDisk::powered(SIZE, seed + n, Arc::clone(&power)))).collect();
        let pool = create(layout, &devices(&disks), seed);
        pool.run(|ctx| create_head(ctx, NewHead::named("tank/a"), ObjsetType::Other, &mut fill).map(|_| ()))
            .unwrap();
        let head = pool.heads().open_by_name("tank/a").unwrap();
        let tx = head.begin(Cost::write(1 << 20, 128 << 10)).unwrap();
        let new = NewObject::of(ObjType::PLAIN_FILE).with_block_size(BLOCK);
        let file = head.set.allocate(&new, &tx).unwrap().id().0;
        drop(tx);
        pool.sync().unwrap();
        World { disks, pool, file }
    }

    fn object(&self) -> LiveObject {
        let head = self.pool.heads().open_by_name("tank/a").unwrap();
        head.set.object(format::ObjectId(self.file)).unwrap()
    }

    fn write(&self, block: u64, version: u64) -> Result<(), String> {
        let head = self.pool.heads().open_by_name("tank/a").map_err(|e| e.to_string())?;
        let tx = head.begin(Cost::write(1 << 20, 128 << 10)).map_err(|e| e.to_string())?;
        let object = head.set.object(format::ObjectId(self.file)).map_err(|e| e.to_string())?;
        object.write_at(block * BLOCK, &contents(block, version), &tx).map_err(|e| e.to_string())
    }

    fn wait_until_suspended(&self) {
        while self.pool.suspended().is_none() {
            std::thread::yield_now();
        }
    }
}

fn contents(block: u64, version: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK as usize];
    Random::from_seed(block << 32 | version).fill(&mut bytes);
    bytes
}

fn found(disks: &[Arc<SimDisk>]) -> Found {
    let leaf = |(n, device): (usize, Arc<dyn Device>)| Leaf {
        path: PathBuf::from(format!("/d{n}")),
        probe: label::probe(&*device),
        device,
        partition: None,
    };
    Found::from(devices(disks).into_iter().enumerate().map(leaf).collect::<Vec<_>>())
}

/// Checks that all written data are readable, in memory and after an export.
fn check(world: World, disks: &[Arc<SimDisk>], written: &BTreeMap<u64, u64>) {
    let compare = |object: &LiveObject| {
        for (block, version) in written {
            let mut bytes = vec![0; BLOCK as usize];
            object.read_at(block * BLOCK, &mut bytes).unwrap();
            assert!(bytes == contents(*block, *version), "block {block}, version {version}");
        }
    };
    compare(&world.object());
    world.pool.sync().unwrap();
    let World { pool, file, .. } = world;
    pool.export(Leave::Exported).unwrap();
    let pool = import(&devices(disks)).unwrap();
    let head = pool.heads().open_by_name("tank/a").unwrap();
    compare(&head.set.object(format::ObjectId(file)).unwrap());
    drop(head);
    pool.export(Leave::Exported).unwrap();
}

/// Makes all disks vanish after `after` operations, while a thread writes and syncs; they come back, with or
/// without their volatile caches.
fn lose_all(layout: Layout, count: u64, seed: u64, after: u64, loses_caches: bool) -> u64 {
    let mut resumed = 0;
    let mut world = World::new(layout, count, seed);
    world.pool.start();
    world.pool.attend();
    let (done, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
    let written = Mutex::new(BTreeMap::new());
    let mut disks = world.disks.clone();
    let power = Arc::clone(world.disks[0].power());
    if loses_caches {
        power.cut_after(after);
    } else {
        world.disks.iter().for_each(|disk| disk.vanish_after(after / count));
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random::from_seed(seed);
            for round in 0..12 {
                for _ in 0..20 {
                    let block = random.below(BLOCKS);
                    world.write(block, round).unwrap();
                    written.lock().unwrap().insert(block, round);
                }
                acknowledged.store(world.pool.sync().unwrap().0, Ordering::SeqCst);
            }
            done.store(true, Ordering::SeqCst);
        });
        while !done.load(Ordering::SeqCst) {
            if world.pool.suspended().is_none() {
                std::thread::yield_now();
                continue;
            }
            resumed += 1;
            assert_eq!(resumed, 1, "suspended again: {:?}", world.pool.suspended());
            // Every acknowledged txg is on disk.
            assert!(acknowledged.load(Ordering::SeqCst) <= world.pool.txgs().synced_txg().0);
            if loses_caches {
                let supply = Power::new();
                disks = disks
                    .iter()
                    .enumerate()
                    .map(|(n, disk)| {
                        Arc::new(disk.power_on_after(Fate::Lost, seed + n as u64, Arc::clone(&supply)))
                    })
                    .collect();
                world.pool.resume(Some(&found(&disks))).unwrap();
            } else {
                disks.iter().for_each(|disk| disk.come_back());
                world.pool.resume(None).unwrap();
            }
        }
    });
    world.disks.clone_from(&disks);
    let written = written.into_inner().unwrap();
    check(world, &disks, &written);
    if after.is_multiple_of(13) {
        judge_disks(&disks);
    }
    resumed
}

/// Runs `zdb` on these disks; it must find no errors.
fn judge_disks(disks: &[Arc<SimDisk>]) {
    let files = Files::new(disks.len(), SIZE);
    let mut bytes = vec![0; 1 << 20];
    for (n, disk) in disks.iter().enumerate() {
        let file = files.top(Layout::Single, n..n + 1).leaves.remove(0).device;
        for at in (0..SIZE).step_by(bytes.len()).map(DeviceOffset) {
            disk.read_at(&mut bytes, at).unwrap();
            if bytes.iter().any(|byte| *byte != 0) {
                file.write_at(&bytes, at).unwrap();
            }
        }
    }
    judge(&files, "tank");
}

#[test]
fn disks_vanish_and_nothing_is_lost() {
    for (layout, count) in [(Layout::Single, 1), (Layout::Mirror, 2), (Layout::Raidz(1), 3)] {
        let resumed: u64 =
            [1, 40, 90, 170, 260].map(|after| lose_all(layout, count, 7 + after, after, false)).iter().sum();
        assert!(resumed >= 5, "{layout:?}: {resumed} times");
    }
}

#[test]
fn disks_lose_their_power_and_nothing_is_lost() {
    for (layout, count) in [(Layout::Single, 1), (Layout::Mirror, 2), (Layout::Raidz(1), 3)] {
        let cuts = (1..300).step_by(18);
        let resumed: u64 = cuts.map(|after| lose_all(layout, count, 70 + after, after, true)).sum();
        assert!(resumed >= 16, "{layout:?}: {resumed} times");
    }
}

#[test]
fn failmode_continue_refuses_at_once_and_resumes() {
    let world = World::new(Layout::Mirror, 2, 5);
    world.pool.set_props(vec![("failmode".into(), "continue".into())]).unwrap();
    world.pool.start();
    world.pool.attend();
    world.write(1, 1).unwrap();
    world.pool.sync().unwrap();
    world.write(2, 2).unwrap();
    world.disks.iter().for_each(|disk| disk.vanish());
    let refused = world.pool.sync();
    assert!(matches!(refused, Err(PoolError::Tx(TxError::Suspended { .. }))), "{refused:?}");
    world.wait_until_suspended();
    assert!(world.write(3, 3).is_err());
    // Data in memory can be read.
    let mut bytes = vec![0; BLOCK as usize];
    world.object().read_at(2 * BLOCK, &mut bytes).unwrap();
    assert!(bytes == contents(2, 2));
    world.disks.iter().for_each(|disk| disk.come_back());
    world.pool.resume(None).unwrap();
    world.pool.sync().unwrap();
    world.write(4, 4).unwrap();
    let disks = world.disks.clone();
    check(world, &disks, &BTreeMap::from([(1, 1), (2, 2), (4, 4)]));
}

#[test]
fn a_suspended_pool_that_is_given_up_lets_nobody_wait() {
    for by_export in [false, true] {
        let world = World::new(Layout::Single, 1, 6);
        world.pool.start();
        world.pool.attend();
        world.write(1, 1).unwrap();
        let synced = world.pool.sync().unwrap();
        world.disks[0].vanish();
        let pool = Arc::clone(&world.pool);
        let waiter = std::thread::spawn(move || pool.run(|ctx| ctx.m().set_entry("org.cenote:lost", 1)));
        world.wait_until_suspended();
        match by_export {
            true => assert!(Arc::clone(&world.pool).export(Leave::Exported).is_err()),
            false => world.pool.give_up(),
        }
        let outcome = waiter.join().unwrap();
        assert!(matches!(outcome, Err(PoolError::Tx(_))), "{outcome:?}");
        assert!(world.pool.resume(None).is_err());
        world.disks[0].come_back();
        let disks = world.disks.clone();
        drop(world);
        let pool = import(&devices(&disks)).unwrap();
        assert!(pool.txgs().synced_txg() > synced);
        assert_eq!(pool.view().unwrap().directory().number("org.cenote:lost").unwrap(), None);
    }
}

#[test]
fn failmode_panic_calls_the_hook() {
    let world = World::new(Layout::Single, 1, 8);
    world.pool.set_props(vec![("failmode".into(), "panic".into())]).unwrap();
    let said = Arc::new(Mutex::new(String::new()));
    let slot = Arc::clone(&said);
    world.pool.set_panic_hook(move |message| slot.lock().unwrap().push_str(message));
    world.write(1, 1).unwrap();
    world.disks[0].vanish();
    assert!(world.pool.sync().is_err());
    assert!(said.lock().unwrap().contains("Pool 'tank' has encountered an uncorrectable I/O failure"));
}

#[test]
fn without_anybody_who_attends_nobody_waits() {
    let world = World::new(Layout::Single, 1, 9);
    world.pool.start();
    world.write(1, 1).unwrap();
    world.disks[0].vanish();
    assert!(matches!(world.pool.sync(), Err(PoolError::Tx(TxError::Suspended { .. }))));
}

#[test]
fn whoever_waits_for_a_suspended_pool_can_give_that_up() {
    use dmu::interrupt::Interrupt;
    let world = World::new(Layout::Single, 1, 10);
    world.pool.start();
    world.pool.attend();
    world.write(1, 1).unwrap();
    world.disks[0].vanish();
    world.pool.txgs().kick();
    world.wait_until_suspended();
    // A file system's transaction and fsync, and a command's change of the pool.
    let requests = [0, 1].map(|_| Interrupt::new(0, |_| false));
    let command = Interrupt::of_command();
    let during = |interrupt: &Arc<Interrupt>, wait: fn(&LivePool) -> Result<(), TxError>| {
        let (interrupt, pool) = (Arc::clone(interrupt), Arc::clone(&world.pool));
        std::thread::spawn(move || interrupt.during(|| wait(&pool)))
    };
    let waiting = [
        during(&requests[0], |pool| pool.txgs().begin().map(drop)),
        during(&requests[1], |pool| pool.txgs().wait_synced(pool.txgs().open_txg())),
        during(&command, |pool| match pool.run(|ctx| ctx.m().set_entry("org.cenote:lost", 1)) {
            Err(PoolError::Tx(error)) => Err(error),
            other => panic!("{other:?}"),
        }),
    ];
    requests.iter().chain([&command]).for_each(|interrupt| interrupt.signal());
    for waiting in waiting {
        assert_eq!(waiting.join().unwrap(), Err(TxError::Interrupted));
    }
    assert!(requests.iter().all(|interrupt| interrupt.has_ended()));
    // A request that was interrupted before it began does not run later either.
    world.disks[0].come_back();
    world.pool.resume(None).unwrap();
    world.pool.sync().unwrap();
    assert_eq!(world.pool.view().unwrap().directory().number("org.cenote:lost").unwrap(), None);
    Arc::clone(&world.pool).export(Leave::Exported).unwrap();
}

#[test]
fn a_change_that_panics_stops_its_pool_and_is_never_written() {
    let world = World::new(Layout::Single, 1, 11);
    world.pool.start();
    world.pool.attend();
    world.pool.run(|ctx| ctx.m().set_entry("org.cenote:kept", 1)).unwrap();
    let pool = Arc::clone(&world.pool);
    let change = move || {
        let _tx = pool.txgs().begin().unwrap();
        panic!("in the middle of a change");
    };
    assert!(std::thread::spawn(change).join().is_err());
    assert!(matches!(world.pool.sync(), Err(PoolError::Tx(TxError::Suspended { .. }))));
    assert!(world.write(1, 1).is_err());
    while !world.pool.is_given_up() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let disks = world.disks.clone();
    drop(world);
    let pool = import(&devices(&disks)).unwrap();
    assert_eq!(pool.view().unwrap().directory().number("org.cenote:kept").unwrap(), Some(1));
}
