//! The life of a pool whose devices come from a source in memory, without any file.

use super::churn;
use cenote_pool::space::Class;
use cenote_pool::{
    AuxKind, AuxState, CreateSpec, ImportOptions, Layout, LeafSpec, Leave, LivePool, OpenOptions, Pool,
    TopSpec, Which, import as listing,
};
use format::VdevGuid;
use std::path::PathBuf;
use std::sync::Arc;
use vdev::device::file::Access;
use vdev::device::memory::MemoryDevice;
use vdev::device::sim::SimDisk;
use vdev::device::{Device, DeviceError, Holder};
use vdev::scan::{Found, Search};
use vdev::source::named::NamedDevices;
use vdev::source::{DeviceSource, Mode};
use vdev::tree::VdevState;
use vdev::{Devices, Env};

const SIZE: u64 = 96 << 20;

struct World {
    devices: NamedDevices,
    env: Env,
}

impl World {
    /// Devices `d0`, `d1`, ...: memory, and a simulated disk every other one.
    fn new(count: usize) -> World {
        let devices = NamedDevices::new();
        for n in 0..count {
            let device: Arc<dyn Device> = match n % 2 {
                0 => Arc::new(MemoryDevice::new(SIZE)),
                _ => Arc::new(SimDisk::new(SIZE, n as u64)),
            };
            devices.insert(path(n), device);
        }
        let env = Env::system().with_devices(Devices::new(devices.clone()));
        World { devices, env }
    }

    fn leaf(&self, n: usize) -> LeafSpec {
        let device = self.devices.open(&path(n), Mode::Exclusive, Access::Auto).unwrap();
        LeafSpec::file(path(n).to_str().unwrap(), device)
    }

    fn create(&self, layout: Layout, count: usize) -> Arc<LivePool> {
        let leaves = (0..count).map(|n| self.leaf(n)).collect();
        let top = TopSpec { layout, class: Class::Normal, ashift: None, leaves };
        LivePool::create(CreateSpec::new("tank", vec![top]), self.env.clone()).unwrap()
    }

    fn search(&self) -> Found {
        Search { env: self.env.clone(), ..Search::default() }.run()
    }

    fn import(&self) -> Arc<LivePool> {
        let which = Which::Name("tank".into());
        LivePool::import(&self.search(), &which, &ImportOptions::default(), self.env.clone()).unwrap()
    }

    fn holds(&self, n: usize) -> bool {
        self.devices.is_held(&path(n)).unwrap()
    }
}

fn path(n: usize) -> PathBuf {
    PathBuf::from(format!("/no/such/folder/d{n}"))
}

fn leaf(pool: &LivePool, n: usize) -> VdevGuid {
    pool.config().vdev_tree.children[0].children[n].guid
}

fn state(pool: &LivePool, leaf: VdevGuid) -> VdevState {
    pool.tree().status().find(leaf).unwrap().state
}

fn number(pool: &Pool) -> Option<u64> {
    pool.directory().number("org.cenote:sources").unwrap()
}

#[test]
fn a_pool_lives_in_memory_alone() {
    let world = World::new(4);
    let pool = world.create(Layout::Raidz(1), 4);
    pool.run(|ctx| ctx.m().set_entry("org.cenote:sources", 1)).unwrap();
    churn(&pool, 3);
    assert!((0..4).all(|n| world.holds(n)));
    let busy = world.devices.open(&path(0), Mode::Exclusive, Access::Auto).unwrap_err();
    assert_eq!(busy, DeviceError::Busy { holder: Some(Holder::SameSource) });
    pool.export(Leave::Exported).unwrap();
    assert!(!(0..4).any(|n| world.holds(n)));
    // Read, with and without one of its devices.
    let read = || {
        let pool = Pool::open(world.search(), &Which::Name("tank".into()), &OpenOptions::default()).unwrap();
        (number(&pool), pool.tree().status().state)
    };
    assert_eq!(read(), (Some(1), VdevState::Online));
    let away = world.devices.remove(&path(2)).unwrap();
    assert_eq!(read(), (Some(1), VdevState::Degraded));
    world.devices.insert(path(2), away);
    // No device reached the machine's own source.
    assert_eq!(listing::candidates(&Search::in_paths([path(0)]).run()).len(), 0);
    let pool = world.import();
    pool.run(|ctx| ctx.m().set_entry("org.cenote:sources", 2)).unwrap();
    pool.export(Leave::Exported).unwrap();
    assert_eq!(read(), (Some(2), VdevState::Online));
}

#[test]
fn devices_that_are_lost_are_reopened_by_their_names_in_the_source() {
    let world = World::new(2);
    let pool = world.create(Layout::Mirror, 2);
    churn(&pool, 3);
    let side = leaf(&pool, 1);
    // Its name no longer exists: the device is closed, and misses later writes.
    let away = world.devices.remove(&path(1)).unwrap();
    pool.reopen_devices(None).unwrap();
    churn(&pool, 3);
    assert_eq!(state(&pool, side), VdevState::Unavail);
    // It comes back under another name: a search finds it.
    world.devices.insert(path(7), away);
    pool.reopen_devices(None).unwrap();
    assert_eq!(state(&pool, side), VdevState::Unavail);
    pool.reopen_devices(Some(&world.search())).unwrap();
    assert_eq!(state(&pool, side), VdevState::Online);
    assert!(world.holds(7) && !pool.tree().dtl(side).is_empty());
    pool.resilver_if_needed().unwrap();
    pool.scan_to_end().unwrap();
    assert!(pool.tree().dtl(side).is_empty());
    pool.export(Leave::Exported).unwrap();
    // It alone has all data, at its present place.
    world.devices.remove(&path(0)).unwrap();
    let pool = world.import();
    assert_eq!(pool.tree().status().state, VdevState::Degraded);
    pool.export(Leave::Exported).unwrap();
}

#[test]
fn spares_are_found_at_their_names_in_the_source() {
    let world = World::new(3);
    let pool = world.create(Layout::Mirror, 2);
    pool.add_aux(AuxKind::Spare, vec![world.leaf(2)]).unwrap();
    assert!(world.holds(2));
    pool.export(Leave::Exported).unwrap();
    // The search covers the mirror only.
    let paths = vec![path(0), path(1)];
    let found = Search { paths, env: world.env.clone(), ..Search::default() }.run();
    assert_eq!(listing::candidates(&found)[0].spares[0].state, "AVAIL");
    let which = Which::Name("tank".into());
    let read = Pool::open(found.clone(), &which, &OpenOptions::default()).unwrap();
    assert_eq!(read.spares().unwrap()[0].state, AuxState::Available);
    drop(read);
    let pool = LivePool::import(&found, &which, &ImportOptions::default(), world.env.clone()).unwrap();
    assert!(world.holds(2));
    pool.export(Leave::Exported).unwrap();
    assert!(!world.holds(2));
}
