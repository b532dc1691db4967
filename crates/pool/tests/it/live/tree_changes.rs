//! Two concurrent changes of the vdev tree: a device is opened again while vdevs are added, grow or are taken
//! offline. Both changes are in effect afterwards, whichever comes first.

use super::churn;
use super::faults::{SIZE, create};
use cenote_pool::space::Class;
use cenote_pool::{Grow, Layout, LeafSpec, Leave, LivePool, Offline, TopSpec};
use format::{DeviceOffset, VdevGuid};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use vdev::device::DeviceError;
use vdev::device::memory::MemoryDevice;
use vdev::device::sim::{Power, SimDisk};
use vdev::scan::{Found, Leaf};
use vdev::{Device, label};

type Interlude = Box<dyn FnOnce() + Send>;

/// A device that starts another change of the pool in the middle of the one that uses it.
struct Interrupted {
    base: Arc<dyn Device>,
    /// Present size of the device, and the size that the pool knows, in bytes.
    sizes: Mutex<(u64, u64)>,
    interlude: Mutex<Option<Interlude>>,
}

impl Interrupted {
    fn new(base: Arc<dyn Device>, size: u64) -> Arc<Interrupted> {
        Arc::new(Interrupted { base, sizes: Mutex::new((size, size)), interlude: Mutex::new(None) })
    }

    fn set(&self, interlude: impl FnOnce() + Send + 'static) {
        *self.interlude.lock().unwrap() = Some(Box::new(interlude));
    }

    fn play(&self) {
        let interlude = self.interlude.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(interlude) = interlude {
            interlude();
        }
    }
}

impl std::fmt::Debug for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Interrupted({:?})", self.base)
    }
}

impl Device for Interrupted {
    fn size(&self) -> u64 {
        self.sizes.lock().unwrap().1
    }

    fn size_now(&self) -> u64 {
        self.sizes.lock().unwrap().0
    }

    fn renew_size(&self) -> u64 {
        let mut sizes = self.sizes.lock().unwrap();
        sizes.1 = sizes.0;
        let size = sizes.1;
        drop(sizes);
        self.play();
        size
    }

    fn read_at(&self, buf: &mut [u8], at: DeviceOffset) -> Result<(), DeviceError> {
        self.play();
        self.base.read_at(buf, at)
    }

    fn write_at(&self, buf: &[u8], at: DeviceOffset) -> Result<(), DeviceError> {
        self.play();
        self.base.write_at(buf, at)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.base.flush()
    }
}

/// A mirror whose second side does not answer, and a new handle of that side.
struct World {
    pool: Arc<LivePool>,
    side: VdevGuid,
    back: Arc<dyn Device>,
}

impl World {
    fn new(seed: u64) -> World {
        let disk = Arc::new(SimDisk::new(SIZE, seed));
        let devices: [Arc<dyn Device>; 2] = [Arc::new(MemoryDevice::new(SIZE)), Arc::clone(&disk) as _];
        let pool = create(Layout::Mirror, &devices, seed);
        churn(&pool, 3);
        let side = pool.config().vdev_tree.children[0].children[1].guid;
        let back: Arc<dyn Device> = Arc::new(disk.power_on(seed, Power::new()));
        disk.vanish();
        World { pool, side, back }
    }

    fn found(back: &Arc<dyn Device>) -> Found {
        let (device, probe) = (Arc::clone(back), label::probe(&**back));
        let leaf = Leaf { path: PathBuf::from("/elsewhere"), probe, device, partition: None };
        Found::from(vec![leaf])
    }

    /// Opens the side again on a thread of its own, and returns when that is done, or waits for the change
    /// that is running.
    fn reopening(&self) -> (Interlude, Arc<Mutex<Option<std::thread::JoinHandle<()>>>>) {
        let thread = Arc::new(Mutex::new(None));
        let (slot, pool, back) = (Arc::clone(&thread), Arc::clone(&self.pool), Arc::clone(&self.back));
        let interlude = move || {
            let reopening =
                std::thread::spawn(move || pool.reopen_devices(Some(&World::found(&back))).unwrap());
            let start = Instant::now();
            while !reopening.is_finished() && start.elapsed() < Duration::from_millis(300) {
                std::thread::yield_now();
            }
            *slot.lock().unwrap() = Some(reopening);
        };
        (Box::new(interlude), thread)
    }

    /// Checks that the side is reached through its new handle.
    fn assert_is_back(&self) {
        let device = self.pool.tree().device(self.side).unwrap();
        assert!(Arc::ptr_eq(&device, &self.back), "the side is no longer in use by its new handle");
        churn(&self.pool, 2);
    }

    fn tops(&self) -> (usize, usize) {
        (self.pool.config().vdev_tree.children.len(), self.pool.tree().top_count())
    }
}

fn single(device: Arc<dyn Device>) -> Vec<TopSpec> {
    let leaves = vec![LeafSpec::file("/added", device)];
    vec![TopSpec { layout: Layout::Single, class: Class::Normal, ashift: None, leaves }]
}

#[test]
fn a_device_that_is_opened_again_while_a_vdev_is_added_stays_open() {
    let world = World::new(61);
    let (interlude, thread) = world.reopening();
    let device = Interrupted::new(Arc::new(MemoryDevice::new(SIZE)), SIZE);
    device.set(interlude);
    world.pool.add(single(device)).unwrap();
    thread.lock().unwrap().take().expect("it was begun").join().unwrap();
    assert_eq!(world.tops(), (2, 2));
    world.assert_is_back();
    world.pool.export(Leave::Exported).unwrap();
}

#[test]
fn a_vdev_that_is_added_while_a_device_is_opened_again_stays() {
    let mut world = World::new(62);
    let back = Interrupted::new(Arc::clone(&world.back), SIZE);
    let pool = Arc::clone(&world.pool);
    let found = World::found(&world.back);
    back.set(move || {
        // Both changes run while the label of the device to be opened again is read.
        let added = std::thread::spawn(move || pool.add(single(Arc::new(MemoryDevice::new(SIZE)))));
        added.join().unwrap().unwrap();
    });
    let device: Arc<dyn Device> = back;
    world.back = Arc::clone(&device);
    let leaves: Vec<Leaf> =
        found.leaves.into_iter().map(|leaf| Leaf { device: Arc::clone(&device), ..leaf }).collect();
    world.pool.reopen_devices(Some(&Found::from(leaves))).unwrap();
    assert_eq!(world.tops(), (2, 2));
    world.assert_is_back();
    world.pool.export(Leave::Exported).unwrap();
}

#[test]
fn a_device_that_is_opened_again_while_another_vdev_grows_stays_open() {
    const LARGE: u64 = 4 * SIZE;
    let world = World::new(63);
    let device = Interrupted::new(Arc::new(MemoryDevice::new(LARGE)), SIZE);
    world.pool.add(single(Arc::clone(&device) as _)).unwrap();
    churn(&world.pool, 2);
    let leaf = world.pool.config().vdev_tree.children[1].guid;
    device.sizes.lock().unwrap().0 = LARGE;
    let (interlude, thread) = world.reopening();
    device.set(interlude);
    let grown = world.pool.grow(Grow::With(leaf)).unwrap();
    thread.lock().unwrap().take().expect("it was begun").join().unwrap();
    assert!(grown >= LARGE / 2, "{grown}");
    let size = |tree: &format::config::VdevNode| tree.children[1].asize;
    assert_eq!(size(&world.pool.config().vdev_tree), size(world.pool.tree().config()));
    world.assert_is_back();
    world.pool.export(Leave::Exported).unwrap();
}

#[test]
fn changes_of_one_txg_are_all_in_the_tree() {
    let world = World::new(64);
    world.pool.reopen_devices(Some(&World::found(&world.back))).unwrap();
    churn(&world.pool, 2);
    world.pool.scan_to_end().unwrap();
    world.pool.resilver_if_needed().unwrap();
    world.pool.scan_to_end().unwrap();
    world.pool.start();
    // A leaf goes offline temporarily, and so without a label, while vdevs are added.
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(world.pool.take_offline(world.side, Offline::Temporarily).unwrap()));
        for _ in 0..2 {
            scope.spawn(|| world.pool.add(single(Arc::new(MemoryDevice::new(SIZE)))).unwrap());
        }
    });
    assert_eq!(world.tops(), (3, 3));
    let status = world.pool.tree().status();
    assert_eq!(status.find(world.side).unwrap().state, vdev::tree::VdevState::Offline);
    world.pool.export(Leave::Exported).unwrap();
}

/// The tree has a new vdev before the txg that describes it is on disk.
#[test]
fn the_space_is_told_while_vdevs_are_added() {
    let world = World::new(63);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let mut answers = 0;
            while !is_done.load(Ordering::Relaxed) {
                let view = world.pool.view().unwrap();
                assert_eq!(view.vdev_spaces().unwrap().len(), view.config().vdev_tree.children.len());
                assert!(view.space().unwrap().size > 0);
                answers += 1;
            }
            answers
        });
        for _ in 0..20 {
            world.pool.add(single(Arc::new(MemoryDevice::new(SIZE)))).unwrap();
        }
        is_done.store(true, Ordering::Relaxed);
        assert!(asking.join().unwrap() > 20);
    });
    world.pool.export(Leave::Exported).unwrap();
}
