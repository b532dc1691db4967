//! Processes that open the same pool at the same time: each is stopped between two of its steps while others
//! run completely.

use crate::support::{Files, judge};
use cenote_pool::LivePool;
use cenote_pool::space::Class;
use cenote_pool::{CreateSpec, ImportOptions, Layout, LeafSpec, Leave, TopSpec};
use cenote_pool::{OpenOptions, Pool, PoolError, Which};
use format::DeviceOffset;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use vdev::device::DeviceError;
use vdev::device::file::{Access, open_exclusive};
use vdev::device::partition::PartitionDevice;
use vdev::env::Env;
use vdev::scan::{Found, Search};
use vdev::source::system::SystemDevices;
use vdev::source::{DeviceId, DeviceSource, Listing, Mode};
use vdev::{Device, Devices};

const SIZE: u64 = 64 << 20;
const DEVICES: usize = 24;
/// Step 0 is between the search and the first device, step 1 before the first device is locked.
const FIRST_LOCKED: u64 = 2;

type Interlude = Box<dyn FnOnce() + Send>;

/// Counts the steps of a process: opening a device, a read, a write, a flush. At one of them the others run.
#[derive(Default)]
struct Steps {
    done: AtomicU64,
    stop_at: u64,
    interlude: Mutex<Option<Interlude>>,
}

impl Steps {
    fn stopping_at(stop_at: u64, interlude: impl FnOnce() + Send + 'static) -> Arc<Steps> {
        let interlude: Interlude = Box::new(interlude);
        Arc::new(Steps { stop_at, interlude: Mutex::new(Some(interlude)), ..Steps::default() })
    }

    fn step(&self) {
        if self.done.fetch_add(1, Ordering::SeqCst) == self.stop_at {
            let interlude = self.interlude.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(others) = interlude {
                others();
            }
        }
    }
}

impl std::fmt::Debug for Steps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Steps({:?} of {})", self.done, self.stop_at)
    }
}

/// A device of a process.
#[derive(Debug)]
struct Stepwise {
    base: Arc<dyn Device>,
    steps: Arc<Steps>,
}

impl Device for Stepwise {
    fn size(&self) -> u64 {
        self.base.size()
    }

    fn read_at(&self, buf: &mut [u8], at: DeviceOffset) -> Result<(), DeviceError> {
        self.steps.step();
        self.base.read_at(buf, at)
    }

    fn write_at(&self, buf: &[u8], at: DeviceOffset) -> Result<(), DeviceError> {
        self.steps.step();
        self.base.write_at(buf, at)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.steps.step();
        self.base.flush()
    }

    fn path(&self) -> Option<&Path> {
        self.base.path()
    }
}

#[derive(Debug)]
struct Stepper(Arc<Steps>);

impl DeviceSource for Stepper {
    fn open(&self, path: &Path, mode: Mode, access: Access) -> Result<Arc<dyn Device>, DeviceError> {
        self.0.step();
        Ok(Arc::new(Stepwise { base: SystemDevices.open(path, mode, access)?, steps: Arc::clone(&self.0) }))
    }

    fn list(&self, places: &[PathBuf]) -> Listing {
        SystemDevices.list(places)
    }

    fn identity(&self, path: &Path) -> Option<DeviceId> {
        SystemDevices.identity(path)
    }
}

/// What a command without a daemon does with the search result: opens the pool, changes something and exports
/// it.
fn command(found: &Found, name: &str, steps: &Arc<Steps>) -> Result<(), PoolError> {
    let name = format!("org.cenote:{name}");
    let env = Env::system().with_devices(Devices::new(Stepper(Arc::clone(steps))));
    steps.step();
    let opts = ImportOptions { access: Access::Cached, ..ImportOptions::default() };
    let pool = LivePool::import(found, &Which::Name("tank".into()), &opts, env)?;
    pool.run(move |ctx| ctx.m().set_entry(&name, 1))?;
    pool.export(Leave::Exported)
}

fn is_busy(outcome: &Result<(), PoolError>) -> bool {
    matches!(outcome, Err(PoolError::BadDevice { why, .. }) if why.to_string() == (DeviceError::Busy { holder: None }).to_string())
}

fn create(tops: Vec<TopSpec>) {
    LivePool::create(CreateSpec::new("tank", tops), Env::system()).unwrap().export(Leave::Exported).unwrap();
}

/// Number of the changes that are in the pool.
fn count(dir: &Path, names: &[&str]) -> usize {
    let found = Search::in_paths([dir]).run();
    let pool = Pool::open(found, &Which::Name("tank".into()), &OpenOptions::default()).unwrap();
    let number = |name: &str| pool.directory().number(&format!("org.cenote:{name}")).unwrap();
    names.iter().filter(|name| number(name) == Some(1)).count()
}

#[test]
fn whoever_read_a_pool_before_locking_it_reads_it_again() {
    let files = Files::new(1, SIZE);
    create(vec![files.top(Layout::Single, 0..1)]);
    let found = Search::in_paths([files.dir()]).run();
    command(&found, "a", &Arc::default()).unwrap();
    // It has searched for the pool before that.
    command(&found, "b", &Arc::default()).unwrap();
    assert_eq!(count(files.dir(), &["a", "b"]), 2);
    judge(&files, "tank");
}

#[test]
fn devices_that_were_added_between_the_search_and_the_lock_are_found() {
    let files = Files::new(2, SIZE);
    create(vec![files.top(Layout::Single, 0..1)]);
    let found = Search::in_paths([files.dir()]).run();
    let pool = files.import("tank").unwrap();
    pool.add(vec![files.top(Layout::Single, 1..2)]).unwrap();
    pool.export(Leave::Exported).unwrap();
    command(&found, "a", &Arc::default()).unwrap();
    assert_eq!(count(files.dir(), &["a"]), 1);
    let pool = files.import("tank").unwrap();
    assert_eq!(pool.config().vdev_tree.children.len(), 2);
    pool.export(Leave::Exported).unwrap();
    judge(&files, "tank");
}

/// The image of a disk with two partitions: no two handles of it can be open for writing.
#[test]
fn a_partition_that_was_added_since_the_search_is_not_busy_because_of_its_disk() {
    const PART: u64 = 128 << 20;
    let files = Files::new(1, 300 << 20);
    let path = files.dir().join("d0");
    let disk = open_exclusive(&path, Access::Cached).unwrap();
    let start = |n: u64| DeviceOffset((1 << 20) + n * PART);
    let mut table = [0; 512];
    for n in 0..2 {
        let entry = &mut table[446 + 16 * n as usize..][..16];
        entry[4] = 0xbf;
        entry[8..12].copy_from_slice(&((start(n).0 / 512) as u32).to_le_bytes());
        entry[12..].copy_from_slice(&((PART / 512) as u32).to_le_bytes());
    }
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    disk.write_at(&table, DeviceOffset(0)).unwrap();
    let part = |n: u64| {
        let window = PartitionDevice::new(Arc::clone(&disk), start(n), PART).unwrap();
        let leaves = vec![LeafSpec::file(path.display().to_string(), Arc::new(window))];
        TopSpec { layout: Layout::Single, class: Class::Normal, ashift: None, leaves }
    };
    let pool = LivePool::create(CreateSpec::new("tank", vec![part(0)]), Env::system()).unwrap();
    let found = Search::in_paths([files.dir()]).run();
    pool.add(vec![part(1)]).unwrap();
    pool.export(Leave::Exported).unwrap();
    drop(disk);
    command(&found, "a", &Arc::default()).unwrap();
    assert_eq!(count(files.dir(), &["a"]), 1);
}

#[test]
fn two_and_three_processes_race_for_a_pool_of_24_devices_paused_between_any_two_steps() {
    let files = Files::new(DEVICES, SIZE);
    create((0..DEVICES / 4).map(|n| files.top(Layout::Raidz(1), 4 * n..4 * n + 4)).collect());
    // The same devices under names that sort in reverse.
    let reversed = tempfile::tempdir().unwrap();
    for (n, leaf) in Search::in_paths([files.dir()]).run().leaves.iter().enumerate() {
        let link = reversed.path().join(format!("d{:02}", DEVICES - n));
        std::os::unix::fs::symlink(&leaf.path, link).unwrap();
    }
    let search =
        |is_reversed: bool| Search::in_paths([if is_reversed { reversed.path() } else { files.dir() }]).run();
    let steps = Arc::<Steps>::default();
    command(&search(false), "alone", &steps).unwrap();
    let all = steps.done.load(Ordering::SeqCst);

    // Two processes: the second runs completely while the first is stopped.
    for at in [0, 1, 2, 3, 13, DEVICES as u64, DEVICES as u64 + 1, all / 2, all - 2] {
        let names = [format!("{at} first"), format!("{at} second")];
        let (found, second) = (search(at % 2 == 1), Arc::new(Mutex::new(None)));
        let (slot, name) = (Arc::clone(&second), names[1].clone());
        let steps = Steps::stopping_at(at, move || {
            *slot.lock().unwrap() = Some(command(&found, &name, &Arc::default()));
        });
        command(&search(false), &names[0], &steps).unwrap();
        let second = second.lock().unwrap().take().unwrap();
        let expected = if at < FIRST_LOCKED { 2 } else { 1 };
        assert!(if at < FIRST_LOCKED { second.is_ok() } else { is_busy(&second) }, "step {at}: {second:?}");
        assert_eq!(count(files.dir(), &names.each_ref().map(String::as_str)), expected, "step {at}");
    }

    // Three processes: the second is stopped too, and the third runs completely.
    for (first_at, second_at) in [(0, 0), (0, 1), (1, 1), (1, 2), (0, 14), (1, all / 2)] {
        let names = ["first", "second", "third"].map(|who| format!("{first_at} {second_at} {who}"));
        let (second_name, third_name) = (names[1].clone(), names[2].clone());
        let found = [search(true), search(false)];
        let outcomes = Arc::new(Mutex::new([None, None]));
        let slots = Arc::clone(&outcomes);
        let steps = Steps::stopping_at(first_at, move || {
            let [second, third] = found;
            let slot = Arc::clone(&slots);
            let steps = Steps::stopping_at(second_at, move || {
                let outcome = command(&third, &third_name, &Arc::default());
                slot.lock().unwrap()[1] = Some(outcome);
            });
            let outcome = command(&second, &second_name, &steps);
            slots.lock().unwrap()[0] = Some(outcome);
        });
        command(&search(false), &names[0], &steps).unwrap();
        let [second, third] = std::mem::take(&mut *outcomes.lock().unwrap()).map(Option::unwrap);
        assert!(second.is_ok(), "{first_at}, {second_at}: {second:?}");
        let is_early = second_at < FIRST_LOCKED;
        assert!(if is_early { third.is_ok() } else { is_busy(&third) }, "{first_at}, {second_at}: {third:?}");
        let expected = if is_early { 3 } else { 2 };
        assert_eq!(
            count(files.dir(), &names.each_ref().map(String::as_str)),
            expected,
            "{first_at}, {second_at}"
        );
    }
    judge(&files, "tank");
}
