//! Verbs, failures and stale devices that coincide on the vdevs of one pool.

use super::churn;
use super::faults::{SIZE, create, import};
use cenote_pool::LivePool;
use cenote_pool::space::Class;
use cenote_pool::{CreateSpec, Layout, LeafSpec, Leave, Offline, TopSpec};
use format::scan::ScanFunc;
use format::{AllocOffset, DeviceOffset, Psize, Txg, VdevGuid, VdevId};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use vdev::device::memory::MemoryDevice;
use vdev::device::sim::{Rates, SimDisk};
use vdev::device::{Device, DeviceError};
use vdev::env::Env;
use vdev::label;
use vdev::scan::{Found, Leaf};
use vdev::tree::{Extent, VdevState};

type Interlude = Box<dyn FnOnce() + Send>;

/// A device that can be shut, and that runs a callback in the middle of a read.
#[derive(Default)]
struct Door {
    is_shut: AtomicBool,
    interlude: Mutex<Option<Interlude>>,
}

struct Behind {
    base: Arc<dyn Device>,
    door: Arc<Door>,
}

impl std::fmt::Debug for Behind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Behind({:?})", self.base)
    }
}

impl Behind {
    fn pass(&self) -> Result<(), DeviceError> {
        if self.door.is_shut.load(Ordering::SeqCst) { Err(DeviceError::Gone) } else { Ok(()) }
    }
}

impl Device for Behind {
    fn size(&self) -> u64 {
        self.base.size()
    }

    fn read_at(&self, buf: &mut [u8], at: DeviceOffset) -> Result<(), DeviceError> {
        let interlude = self.door.interlude.lock().unwrap().take();
        if let Some(others) = interlude {
            others();
        }
        self.pass()?;
        self.base.read_at(buf, at)
    }

    fn write_at(&self, buf: &[u8], at: DeviceOffset) -> Result<(), DeviceError> {
        self.pass()?;
        self.base.write_at(buf, at)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.pass()?;
        self.base.flush()
    }
}

fn top(layout: Layout, devices: &[(&str, Arc<dyn Device>)]) -> TopSpec {
    let leaves = devices.iter().map(|(name, device)| LeafSpec::file(format!("/{name}"), Arc::clone(device)));
    TopSpec { layout, class: Class::Normal, ashift: None, leaves: leaves.collect() }
}

fn found(devices: &[Arc<dyn Device>]) -> Found {
    let leaf = |(n, device): (usize, &Arc<dyn Device>)| Leaf {
        path: PathBuf::from(format!("/d{n}")),
        probe: label::probe(&**device),
        device: Arc::clone(device),
        partition: None,
    };
    Found::from(devices.iter().enumerate().map(leaf).collect::<Vec<_>>())
}

fn leaf(pool: &LivePool, top: usize, n: usize) -> VdevGuid {
    pool.config().vdev_tree.children[top].children[n].guid
}

/// A new disk with the contents of another.
fn copy_of(disk: &dyn Device, seed: u64) -> Arc<dyn Device> {
    let copy = SimDisk::new(disk.size(), seed);
    let mut bytes = vec![0; 1 << 20];
    for at in (0..disk.size()).step_by(bytes.len()).map(DeviceOffset) {
        disk.read_at(&mut bytes, at).unwrap();
        if bytes.iter().any(|byte| *byte != 0) {
            copy.write_at(&bytes, at).unwrap();
        }
    }
    copy.flush().unwrap();
    Arc::new(copy)
}

fn resilver(pool: &LivePool, leaf: VdevGuid) {
    pool.resilver_if_needed().unwrap();
    assert_eq!(pool.scan_progress().unwrap().phys.func, ScanFunc::Resilver);
    pool.scan_to_end().unwrap();
    assert!(pool.tree().dtl(leaf).is_empty(), "{:?}", pool.tree().dtl(leaf));
}

#[test]
fn a_vdev_that_is_added_while_devices_are_opened_again_keeps_its_device() {
    let memories: Vec<Arc<dyn Device>> =
        (0..3).map(|_| Arc::new(MemoryDevice::new(SIZE)) as Arc<dyn Device>).collect();
    let doors: [Arc<Door>; 2] = Default::default();
    let behind = |n: usize| {
        Arc::new(Behind { base: Arc::clone(&memories[n]), door: Arc::clone(&doors[n]) }) as Arc<dyn Device>
    };
    let spec = CreateSpec::new("tank", vec![top(Layout::Mirror, &[("d0", behind(0)), ("d1", behind(1))])]);
    let pool = LivePool::create(spec, Env::simulated(31).0).unwrap();
    churn(&pool, 3);
    // Its handle fails from now on; another one works.
    doors[1].is_shut.store(true, Ordering::SeqCst);
    let found = found(&memories[1..2]);
    let (adding, new) = (Arc::clone(&pool), top(Layout::Single, &[("d2", Arc::clone(&memories[2]))]));
    *doors[0].interlude.lock().unwrap() = Some(Box::new(move || adding.add(vec![new]).unwrap()));
    pool.reopen_devices(Some(&found)).unwrap();
    let added = pool.config().vdev_tree.children[1].guid;
    assert!(pool.tree().device(added).is_some(), "{:?}", pool.tree().status());
    assert!(Arc::ptr_eq(&pool.tree().device(leaf(&pool, 0, 1)).unwrap(), &memories[1]));
    churn(&pool, 3);
    pool.export(Leave::Exported).unwrap();
    churn(&import(&memories).unwrap(), 1);
}

#[test]
fn of_two_sides_that_are_taken_offline_at_once_one_stays() {
    let ways = [
        Offline::Always,
        Offline::Temporarily,
        Offline::Faulted,
        Offline::FaultedTemporarily,
        Offline::Always,
    ];
    for (round, how) in ways.into_iter().cycle().take(20).enumerate() {
        let memories: [Arc<dyn Device>; 2] = [(); 2].map(|()| Arc::new(MemoryDevice::new(SIZE)) as _);
        let pool = create(Layout::Mirror, &memories, 40 + round as u64);
        pool.start();
        // While a txg is written, both wait for the next.
        let (go, wait) = mpsc::channel::<()>();
        let (holder, barrier) = (Arc::clone(&pool), Arc::new(Barrier::new(3)));
        let holder = std::thread::spawn(move || {
            holder.run(move |_| {
                let _ = wait.recv();
                Ok(())
            })
        });
        let sides = [0, 1].map(|n| {
            let (pool, barrier) = (Arc::clone(&pool), Arc::clone(&barrier));
            std::thread::spawn(move || {
                barrier.wait();
                pool.take_offline(leaf(&pool, 0, n), how).unwrap()
            })
        });
        barrier.wait();
        go.send(()).unwrap();
        holder.join().unwrap().unwrap();
        let out = sides.map(|side| side.join().unwrap());
        assert_eq!(out.iter().filter(|is_out| **is_out).count(), 1, "{round} {how:?}: {out:?}");
        churn(&pool, 1);
        pool.export(Leave::Exported).unwrap();
    }
}

#[test]
fn two_sides_that_fail_at_once_are_not_both_faulted() {
    let disks: [Arc<SimDisk>; 2] = [1, 2].map(|seed| Arc::new(SimDisk::new(SIZE, seed)));
    let devices = disks.each_ref().map(|disk| Arc::clone(disk) as Arc<dyn Device>);
    let pool = create(Layout::Mirror, &devices, 33);
    churn(&pool, 3);
    disks.iter().for_each(|disk| disk.set_rates(Rates { read_error: 1, ..Rates::default() }));
    let at = Extent { vdev: VdevId(0), offset: AllocOffset(0), psize: Psize(4096), birth: Txg(1) };
    for _ in 0..20 {
        assert!(pool.tree().read(&at, &|_| true).data.is_err());
    }
    disks.iter().for_each(|disk| disk.set_rates(Rates::default()));
    pool.run(|ctx| ctx.m().set_entry("org.cenote:n", 1)).unwrap();
    let sides = &pool.config().vdev_tree.children[0].children;
    let state = |n: usize| (sides[n].faulted, sides[n].degraded);
    assert_eq!([state(0), state(1)], [(true, false), (false, true)]);
    churn(&pool, 2);
    pool.export(Leave::Exported).unwrap();
}

#[test]
fn a_stale_copy_in_the_place_of_a_leaf_that_fails_gets_what_it_lacks() {
    let disks: [Arc<SimDisk>; 2] = [1, 2].map(|seed| Arc::new(SimDisk::new(SIZE, seed)));
    let devices = disks.each_ref().map(|disk| Arc::clone(disk) as Arc<dyn Device>);
    let pool = create(Layout::Mirror, &devices, 34);
    churn(&pool, 3);
    let side = leaf(&pool, 0, 1);
    let (copy, copied) = (copy_of(&*disks[1], 9), pool.txgs().synced_txg());
    churn(&pool, 3);
    let newest = pool.txgs().synced_txg();
    // Its handle is still held, and fails.
    disks[1].vanish();
    pool.reopen_devices(Some(&found(&[Arc::clone(&copy)]))).unwrap();
    assert_eq!(pool.tree().status().find(side).unwrap().state, VdevState::Online);
    let missed = pool.tree().dtl(side);
    assert!(!missed.contains(copied.0), "{missed:?}");
    assert!((copied.0 + 1..=newest.0).all(|txg| missed.contains(txg)), "{missed:?}");
    resilver(&pool, side);
    pool.export(Leave::Exported).unwrap();
    let alone = import(&[copy]).unwrap();
    alone.view().unwrap().properties().unwrap();
}

#[test]
fn a_stale_copy_of_a_leaf_is_known_at_import() {
    for (layout, count) in [(Layout::Mirror, 2), (Layout::Raidz(1), 3)] {
        let disks: Vec<Arc<SimDisk>> = (0..count).map(|seed| Arc::new(SimDisk::new(SIZE, seed))).collect();
        let mut devices: Vec<Arc<dyn Device>> = disks.iter().map(|disk| Arc::clone(disk) as _).collect();
        let pool = create(layout, &devices, 35);
        churn(&pool, 3);
        pool.export(Leave::Exported).unwrap();
        let copy = copy_of(&*devices[1], 9);
        let pool = import(&devices).unwrap();
        let copied = pool.txgs().synced_txg();
        churn(&pool, 3);
        let side = leaf(&pool, 0, 1);
        assert!(pool.tree().dtl(side).is_empty());
        pool.export(Leave::Exported).unwrap();
        devices[1] = copy;
        let pool = import(&devices).unwrap();
        let missed = pool.tree().dtl(side);
        assert!(missed.contains(copied.0 + 1) && missed.contains(copied.0 + 3), "{missed:?}");
        assert!(!missed.contains(copied.0 - 3), "{missed:?}");
        assert!(pool.view().unwrap().is_resilver_due());
        for other in (0..count as usize).filter(|n| *n != 1) {
            assert!(pool.tree().dtl(leaf(&pool, 0, other)).is_empty());
        }
        resilver(&pool, side);
        pool.export(Leave::Exported).unwrap();
        // It has all data, also with one of the others missing.
        let alone = import(&devices[1..]).unwrap();
        alone.view().unwrap().properties().unwrap();
    }
}

#[test]
fn leaves_that_have_everything_lack_nothing_after_an_import() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    let devices: Vec<Arc<dyn Device>> =
        names.iter().map(|_| Arc::new(MemoryDevice::new(SIZE)) as _).collect();
    let pairs: Vec<(&str, Arc<dyn Device>)> = names.into_iter().zip(devices.iter().cloned()).collect();
    let tops = pairs.chunks(2).map(|pair| top(Layout::Mirror, pair)).collect();
    LivePool::create(CreateSpec::new("tank", tops), Env::simulated(36).0)
        .unwrap()
        .export(Leave::Exported)
        .unwrap();
    for is_exported in [true, false, true] {
        let pool = import(&devices).unwrap();
        for leaf in pool.tree().leaf_guids() {
            assert!(pool.tree().dtl(leaf).is_empty(), "{:?}", pool.tree().dtl(leaf));
        }
        // Only some vdevs get the uberblock of a txg.
        churn(&pool, 9);
        match is_exported {
            true => pool.export(Leave::Exported).unwrap(),
            false => drop(pool),
        }
    }
}
