//! The disks of a run, and their contents after a power cut.

use format::DeviceOffset;
use pool::space::Class;
use pool::{CreateSpec, Layout as TopLayout, LeafSpec, TopSpec};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use vdev::device::sim::{Fate, Op, OpKind, Power, SimDisk};
use vdev::device::{Device, DeviceError};
use vdev::label;
use vdev::scan::{Found, Leaf};

/// Size of each disk in bytes: a little more than the minimum for a pool.
const DISK: u64 = 72 << 20;

/// The arrangement of the disks in the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    shape: Shape,
    has_log: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Single,
    Mirror,
    Raidz(u8),
    /// Several vdevs of so many sides each.
    Stripe(u8),
}

/// Vdevs of a stripe.
const STRIPE_TOPS: usize = 3;

impl Layout {
    /// Layouts of several vdevs, of which one can be removed.
    pub fn stripes() -> [Layout; 2] {
        [1, 2].map(|sides| Layout { shape: Shape::Stripe(sides), has_log: false })
    }

    /// All supported layouts, with and without a log device.
    pub fn all() -> Vec<Layout> {
        let shapes = [Shape::Single, Shape::Mirror, Shape::Raidz(1), Shape::Raidz(2), Shape::Raidz(3)];
        shapes
            .iter()
            .flat_map(|shape| [false, true].map(|has_log| Layout { shape: *shape, has_log }))
            .collect()
    }

    /// Number of disks that hold data.
    pub(crate) fn data_disks(self) -> usize {
        match self.shape {
            Shape::Single => 1,
            Shape::Mirror => 2,
            Shape::Raidz(parity) => usize::from(parity) + 2,
            Shape::Stripe(sides) => usize::from(sides) * STRIPE_TOPS,
        }
    }

    /// Number of disks, log devices included.
    pub fn disks(self) -> usize {
        self.data_disks() + usize::from(self.has_log)
    }

    /// Number of disks that can be lost without losing data.
    pub fn spare_disks(self) -> usize {
        match self.shape {
            Shape::Single => 0,
            Shape::Mirror => 1,
            Shape::Raidz(parity) => parity.into(),
            Shape::Stripe(sides) => usize::from(sides) - 1,
        }
    }
}

impl std::fmt::Display for Layout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.shape {
            Shape::Single => f.write_str("single")?,
            Shape::Mirror => f.write_str("mirror")?,
            Shape::Raidz(parity) => write!(f, "raidz{parity}")?,
            Shape::Stripe(1) => f.write_str("stripe")?,
            Shape::Stripe(_) => f.write_str("mirrors")?,
        }
        f.write_str(if self.has_log { "+log" } else { "" })
    }
}

impl FromStr for Layout {
    type Err = String;

    fn from_str(text: &str) -> Result<Layout, String> {
        let found =
            Layout::all().into_iter().chain(Layout::stripes()).find(|layout| layout.to_string() == text);
        found.ok_or_else(|| {
            let names: Vec<String> = Layout::all().iter().map(ToString::to_string).collect();
            format!("no layout '{text}'; there are {}", names.join(", "))
        })
    }
}

/// The disks of one machine.
#[derive(Clone)]
pub struct Disks {
    power: Arc<Power>,
    disks: Vec<Arc<SimDisk>>,
    /// The devices that pools get: the disks, or devices that wrap them.
    shown: Vec<Arc<dyn Device>>,
}

impl Disks {
    fn of(power: Arc<Power>, disks: Vec<Arc<SimDisk>>) -> Disks {
        let shown = disks.iter().map(|disk| Arc::clone(disk) as Arc<dyn Device>).collect();
        Disks { power, disks, shown }
    }

    /// Gives pools these devices in place of the disks from now on.
    pub(crate) fn show(&mut self, devices: Vec<Arc<dyn Device>>) {
        self.shown = devices;
    }

    /// Writes to one disk.
    pub(crate) fn write(&self, disk: usize, at: u64, bytes: &[u8]) {
        expect(&self.disks[disk].write_at(bytes, DeviceOffset(at)));
    }

    /// Flushes one disk.
    pub(crate) fn flush(&self, disk: usize) {
        expect(&self.disks[disk].flush());
    }

    /// Makes `count` empty disks.
    pub fn new(count: usize, seed: u64) -> Disks {
        let power = Power::new();
        let disk = |i: usize| Arc::new(SimDisk::powered(DISK, seed ^ (i as u64 + 1), Arc::clone(&power)));
        let disks = (0..count).map(disk).collect();
        Disks::of(power, disks)
    }

    /// Size of each disk in bytes.
    pub(crate) fn size(&self) -> u64 {
        DISK
    }

    /// Number of writes, flushes and discards so far, of all disks.
    pub(crate) fn operations(&self) -> u64 {
        self.power.operations()
    }

    /// The simulated disks in the order of their indexes.
    pub fn disks(&self) -> &[Arc<SimDisk>] {
        &self.disks
    }

    /// Records all operations of the disks from now on.
    pub fn record(&self) {
        self.disks.iter().for_each(|disk| disk.record(true));
    }

    /// Takes the recorded operations, in order: index of the disk, and operation.
    pub fn take_record(&self) -> Vec<(usize, Op)> {
        let of_disk = |(i, disk): (usize, &Arc<SimDisk>)| {
            let ops = disk.take_record().into_iter().filter(|op| op.kind != OpKind::Read);
            ops.map(move |op| (i, op)).collect::<Vec<_>>()
        };
        let mut all: Vec<(usize, Op)> = self.disks.iter().enumerate().flat_map(of_disk).collect();
        all.sort_by_key(|(_, op)| op.order);
        all
    }

    /// Repeats a recorded operation completely.
    pub fn apply(&self, disk: usize, op: &Op) {
        self.apply_half(disk, op);
        self.apply_rest(disk, op);
    }

    /// Repeats a recorded operation as far as it gets if the power goes off meanwhile: a write is in the
    /// cache of the disk, a flush has had no effect yet.
    pub fn apply_half(&self, disk: usize, op: &Op) {
        if let (OpKind::Write, Some(disk), Some(data)) = (op.kind, self.disks.get(disk), &op.data) {
            expect(&disk.write_at(data, op.at));
        }
    }

    /// Completes an operation that [`Disks::apply_half`] has begun.
    pub(crate) fn apply_rest(&self, disk: usize, op: &Op) {
        let Some(disk) = self.disks.get(disk) else { return };
        match op.kind {
            OpKind::Flush => expect(&disk.flush()),
            OpKind::Discard => expect(&disk.discard(op.at, op.len)),
            OpKind::Write | OpKind::Read => {}
        }
    }

    /// The disks after a power cut at this moment; these disks stay as they are.
    pub fn after_cut(&self, fate: Fate, seed: u64) -> Disks {
        let power = Power::new();
        let on = |(i, disk): (usize, &Arc<SimDisk>)| {
            Arc::new(disk.power_on_after(fate, seed ^ (i as u64 + 1), Arc::clone(&power)))
        };
        let disks = self.disks.iter().enumerate().map(on).collect();
        Disks::of(power, disks)
    }

    /// One of the disks as a leaf of a new vdev.
    pub(crate) fn leaf(&self, i: usize) -> LeafSpec {
        LeafSpec::file(format!("/disks/{i}"), Arc::clone(&self.shown[i]))
    }

    /// Specification of a pool on these disks.
    pub(crate) fn spec(&self, name: &str, how: Layout) -> CreateSpec {
        let data = how.data_disks();
        let (layout, count) = match how.shape {
            Shape::Single => (TopLayout::Single, 1),
            Shape::Mirror => (TopLayout::Mirror, 1),
            Shape::Raidz(parity) => (TopLayout::Raidz(parity), 1),
            Shape::Stripe(1) => (TopLayout::Single, STRIPE_TOPS),
            Shape::Stripe(_) => (TopLayout::Mirror, STRIPE_TOPS),
        };
        let width = data / count;
        let top = |n: usize| {
            let leaves = (n * width..(n + 1) * width).map(|i| self.leaf(i)).collect();
            TopSpec { layout, class: Class::Normal, ashift: None, leaves }
        };
        let mut tops: Vec<TopSpec> = (0..count).map(top).collect();
        if how.has_log {
            let leaves = vec![self.leaf(data)];
            tops.push(TopSpec { layout: TopLayout::Single, class: Class::Log, ashift: None, leaves });
        }
        CreateSpec::new(name, tops)
    }

    /// The result of a search for pools on these disks.
    pub fn found(&self) -> Found {
        self.found_without(&[])
    }

    /// [`Disks::found`] without some disks.
    pub(crate) fn found_without(&self, missing: &[usize]) -> Found {
        let present = self.shown.iter().enumerate().filter(|(i, _)| !missing.contains(i));
        let leaf = |(i, disk): (usize, &Arc<dyn Device>)| Leaf {
            path: PathBuf::from(format!("/disks/{i}")),
            device: Arc::clone(disk),
            probe: label::probe(&**disk),
            partition: None,
        };
        Found::from(present.map(leaf).collect::<Vec<_>>())
    }
}

fn expect(done: &Result<(), DeviceError>) {
    assert!(done.is_ok(), "a disk without faults fails: {done:?}");
}
