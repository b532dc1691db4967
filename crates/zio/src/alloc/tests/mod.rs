//! Tests of the whole allocator, over vdevs without devices and a disk that is a set of free ranges.

mod model;
mod placement;
mod threads;

use super::{AllocClass, AllocError, Allocator, MetaslabHint, Request, SpaceSource, TopSpace};
use crate::AllocTx;
use format::config::VdevNode;
use format::uberblock::ReflowInfo;
use format::{AllocOffset, Ashift, Asize, Dva, NvList, NvValue, Psize, Txg, VdevGuid, VdevId};
use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::sync::{Arc, Mutex};
use vdev::device::Device;
use vdev::device::memory::MemoryDevice;
use vdev::tree::{RangeSet, VdevTree};

/// A stand-in for a transaction.
pub(super) struct Tx(pub(super) u64);

impl AllocTx for Tx {
    fn txg(&self) -> Txg {
        Txg(self.0)
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Shape {
    Single,
    Mirror(u64),
    Raidz(u64, u64),
    /// Children, data, parity, spares, groups.
    Draid(u64, u64, u64, u64, u64),
}

/// A top-level vdev of a test.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spec {
    pub(super) shape: Shape,
    pub(super) class: AllocClass,
    pub(super) ashift: u8,
    pub(super) shift: u32,
    pub(super) metaslabs: u64,
    /// Children without a device.
    pub(super) missing: u64,
}

impl Spec {
    pub(super) fn new(shape: Shape, ashift: u8, shift: u32, metaslabs: u64) -> Spec {
        Spec { shape, class: AllocClass::Normal, ashift, shift, metaslabs, missing: 0 }
    }

    pub(super) fn of(self, class: AllocClass) -> Spec {
        Spec { class, ..self }
    }

    pub(super) fn asize(&self) -> u64 {
        self.metaslabs << self.shift
    }

    fn children(&self) -> u64 {
        match self.shape {
            Shape::Single => 0,
            Shape::Mirror(n) | Shape::Raidz(n, _) | Shape::Draid(n, ..) => n,
        }
    }

    fn node(&self, id: u64) -> NvList {
        let mut list = NvList::new();
        list.push("id", id);
        list.push("guid", 100 * (id + 1));
        list.push("ashift", u64::from(self.ashift));
        list.push("asize", self.asize());
        let kind = match self.shape {
            Shape::Single => "file",
            Shape::Mirror(_) => "mirror",
            Shape::Raidz(_, nparity) => {
                list.push("nparity", nparity);
                "raidz"
            }
            Shape::Draid(_, ndata, nparity, nspares, ngroups) => {
                list.push("nparity", nparity);
                list.push("draid_ndata", ndata);
                list.push("draid_nspares", nspares);
                list.push("draid_ngroups", ngroups);
                "draid"
            }
        };
        list.push("type", kind);
        let child = |i| {
            let mut leaf = NvList::new();
            leaf.push("type", "file");
            leaf.push("id", i);
            leaf.push("guid", 100 * (id + 1) + 1 + i);
            leaf
        };
        if self.children() > 0 {
            list.push("children", NvValue::ListArray((0..self.children()).map(child).collect()));
        }
        list
    }

    fn guids(&self, id: u64) -> impl Iterator<Item = VdevGuid> {
        let first = 100 * (id + 1) + u64::from(self.children() > 0);
        (first + self.missing..first + self.children().max(1)).map(VdevGuid)
    }

    fn hints(&self, used: bool) -> Vec<MetaslabHint> {
        let hint = match used {
            false => MetaslabHint { never_used: true, ..MetaslabHint::default() },
            true => MetaslabHint::default(),
        };
        vec![hint; self.metaslabs as usize]
    }
}

/// The simulated disk: the free space of each metaslab, as of the txg being written and of the last one.
#[derive(Default)]
pub(super) struct Disk {
    pub(super) working: Mutex<BTreeMap<(VdevId, u64), RangeSet>>,
    pub(super) synced: Mutex<BTreeMap<(VdevId, u64), RangeSet>>,
    pub(super) loads: Mutex<Vec<(VdevId, u64)>>,
    /// Metaslabs that cannot be read.
    pub(super) broken: Mutex<Vec<(VdevId, u64)>>,
}

impl SpaceSource for Disk {
    fn free_space(&self, vdev: VdevId, metaslab: u64) -> Result<RangeSet, Box<dyn Error + Send + Sync>> {
        self.loads.lock().unwrap().push((vdev, metaslab));
        if self.broken.lock().unwrap().contains(&(vdev, metaslab)) {
            return Err("broken".into());
        }
        Ok(self.synced.lock().unwrap().get(&(vdev, metaslab)).cloned().unwrap_or_default())
    }
}

pub(super) fn tree(specs: &[Spec]) -> Arc<VdevTree> {
    let nodes = specs.iter().enumerate().map(|(id, spec)| spec.node(id as u64)).collect();
    let mut root = NvList::new();
    root.push("type", "root");
    root.push("id", 0_u64);
    root.push("guid", 1_u64);
    root.push("children", NvValue::ListArray(nodes));
    let root = VdevNode::from_nvlist(&root).expect("a configuration");
    let mut devices: HashMap<VdevGuid, Arc<dyn Device>> = HashMap::new();
    for (id, spec) in specs.iter().enumerate() {
        for guid in spec.guids(id as u64) {
            let device = MemoryDevice::new(spec.asize() + (64 << 20));
            devices.insert(guid, Arc::new(device));
        }
    }
    VdevTree::open(&root, &devices, ReflowInfo::default()).expect("a tree")
}

pub(super) fn top_space(id: usize, spec: &Spec, hints: Vec<MetaslabHint>) -> TopSpace {
    TopSpace {
        vdev: VdevId(id as u32),
        class: spec.class,
        ashift: Ashift(spec.ashift),
        metaslab_shift: spec.shift,
        asize: spec.asize(),
        allocating: true,
        metaslabs: hints,
    }
}

pub(super) struct Lab {
    pub(super) specs: Vec<Spec>,
    pub(super) tree: Arc<VdevTree>,
    pub(super) disk: Arc<Disk>,
    pub(super) alloc: Allocator,
}

impl Lab {
    /// Creates vdevs that were never written.
    pub(super) fn new(specs: &[Spec]) -> Lab {
        Lab::with_hints(specs, |spec| spec.hints(false))
    }

    pub(super) fn with_hints(specs: &[Spec], hints: impl Fn(&Spec) -> Vec<MetaslabHint>) -> Lab {
        let disk = Disk::default();
        let tree = tree(specs);
        for (id, spec) in specs.iter().enumerate() {
            let unit = tree.alignment(VdevId(id as u32)).unwrap();
            for metaslab in 0..spec.metaslabs {
                let start = (metaslab << spec.shift).next_multiple_of(unit);
                let end = ((metaslab + 1) << spec.shift) - start;
                let range = start..start + end - end % unit;
                let free: RangeSet = [range].into_iter().collect();
                disk.synced.lock().unwrap().insert((VdevId(id as u32), metaslab), free);
            }
        }
        *disk.working.lock().unwrap() = disk.synced.lock().unwrap().clone();
        let disk = Arc::new(disk);
        let tops = specs.iter().enumerate().map(|(id, spec)| top_space(id, spec, hints(spec))).collect();
        let alloc = Allocator::new(Arc::clone(&tree), tops, Arc::clone(&disk) as Arc<dyn SpaceSource>);
        Lab { specs: specs.to_vec(), tree, disk, alloc }
    }

    /// Opens the same pool again, without deferred space.
    pub(super) fn reopen(&mut self, used: bool) {
        let tops = self.specs.iter().enumerate().map(|(id, spec)| top_space(id, spec, spec.hints(used)));
        let source = Arc::clone(&self.disk) as Arc<dyn SpaceSource>;
        self.alloc = Allocator::new(Arc::clone(&self.tree), tops.collect(), source);
    }

    pub(super) fn allocate(&self, psize: u64, copies: u8, txg: u64) -> Result<Vec<Dva>, AllocError> {
        self.alloc.allocate(&normal(psize, copies), &Tx(txg))
    }

    /// Allocates one copy of a block that must fit.
    pub(super) fn one(&self, psize: u64, txg: u64) -> Dva {
        self.allocate(psize, 1, txg).expect("room")[0]
    }

    /// Runs one pass: applies the changes to the disk, which checks them.
    pub(super) fn pass(&self, txg: u64, what: &str) -> bool {
        let mut working = self.disk.working.lock().unwrap();
        let changes = self.alloc.take_changes(Txg(txg));
        for change in &changes {
            let free = working.get_mut(&(change.vdev, change.metaslab)).expect("a metaslab");
            for range in change.allocs.iter() {
                assert!(is_within(free, &range), "{what}: {range:?} of {} is allocated twice", change.vdev);
                free.remove(range);
            }
            for range in change.frees.iter() {
                let mut without = free.clone();
                without.remove(range.clone());
                assert_eq!(without, *free, "{what}: {range:?} of {} is freed twice", change.vdev);
                free.insert(range);
            }
        }
        !changes.is_empty()
    }

    /// Runs the rest of a txg.
    pub(super) fn sync(&self, txg: u64, what: &str) {
        self.pass(txg, what);
        *self.disk.synced.lock().unwrap() = self.disk.working.lock().unwrap().clone();
        self.alloc.synced(Txg(txg));
    }

    /// The free space of a metaslab on disk.
    pub(super) fn on_disk(&self, vdev: u32, metaslab: u64) -> RangeSet {
        self.disk.working.lock().unwrap()[&(VdevId(vdev), metaslab)].clone()
    }
}

pub(super) fn is_within(set: &RangeSet, range: &std::ops::Range<u64>) -> bool {
    let mut whole = set.clone();
    whole.insert(range.clone());
    whole == *set
}

pub(super) fn normal(psize: u64, copies: u8) -> Request {
    Request { class: AllocClass::Normal, psize: Psize(psize), copies, near: None }
}

pub(super) fn dva(vdev: u32, offset: u64, asize: u64) -> Dva {
    Dva { vdev: VdevId(vdev), offset: AllocOffset(offset), asize: Asize(asize), gang: false }
}
