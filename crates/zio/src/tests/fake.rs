//! A pool in memory: simulated disks, and an allocator that records every extent.

use crate::space::Space;
use crate::{AllocClass, AllocError, AllocTx, NewBlock, ReadPolicy, Request, WritePolicy, Zio, ZioError};
use codec::checksum::Salt;
use format::config::VdevNode;
use format::uberblock::ReflowInfo;
use format::{
    AllocOffset, BlockPtr, BpKind, ChecksumId, CompressionId, Dva, Level, NvList, NvValue, ObjType, Txg,
    VdevGuid, VdevId,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use vdev::VdevTree;
use vdev::device::Device;
use vdev::device::sim::SimDisk;
use vdev::env::{Env, Random};

/// Bytes of every disk.
pub(super) const DISK: u64 = 1 << 30;

/// A top-level vdev.
#[derive(Debug, Clone, Copy)]
pub(super) enum Top {
    Single,
    Mirror(usize),
    Raidz(usize, u64),
    /// Eight children, two of them spare, stripes of two and two.
    Draid,
    Log,
    /// A removed vdev of 16 MiB, whose mapping the test sets.
    Removed,
}

/// A transaction of tests.
pub(super) struct Tx(pub(super) u64);

impl AllocTx for Tx {
    fn txg(&self) -> Txg {
        Txg(self.0)
    }
}

/// State of the fake allocator.
#[derive(Default)]
pub(super) struct SpaceState {
    /// First byte that was never allocated, by vdev.
    next: BTreeMap<VdevId, u64>,
    /// Size of every extent in use, by place.
    taken: BTreeMap<(VdevId, u64), u64>,
    rotor: usize,
    /// Largest allocation in one piece; 0: no limit.
    pub(super) largest: u64,
    /// Number of further extents, after which there is no space.
    pub(super) budget: Option<usize>,
}

pub(super) struct FakeSpace {
    tree: Arc<VdevTree>,
    tops: Vec<(VdevId, AllocClass)>,
    pub(super) state: Mutex<SpaceState>,
}

pub(super) fn no_space(want: &Request) -> AllocError {
    let Request { class, psize, copies, .. } = *want;
    AllocError::NoSpace { class, psize, copies, largest: format::Psize(0) }
}

fn not_ours(dva: &Dva) -> AllocError {
    AllocError::NotAllocated { dva: *dva }
}

impl FakeSpace {
    pub(super) fn bytes_taken(&self) -> u64 {
        self.state.lock().unwrap().taken.values().sum()
    }
}

impl Space for FakeSpace {
    fn allocate(&self, want: &Request, tx: &dyn AllocTx) -> Result<Vec<Dva>, AllocError> {
        let mut state = self.state.lock().unwrap();
        if state.largest != 0 && want.psize.0 > state.largest {
            return Err(no_space(want));
        }
        let copies = usize::from(want.copies);
        if let Some(budget) = &mut state.budget {
            *budget = budget.checked_sub(copies).ok_or(no_space(want))?;
        }
        let is_log = |class| class == AllocClass::Log;
        let mut tops: Vec<VdevId> =
            self.tops.iter().filter(|top| is_log(top.1) == is_log(want.class)).map(|top| top.0).collect();
        if tops.is_empty() {
            tops = self.tops.iter().map(|top| top.0).collect();
        }
        let mut dvas = Vec::new();
        for _ in 0..copies {
            let vdev = tops[state.rotor % tops.len()];
            state.rotor += 1;
            let asize = self.tree.psize_to_asize(vdev, want.psize, tx.txg()).unwrap();
            let at = state.next.entry(vdev).or_default();
            let offset = AllocOffset(*at);
            *at += asize.0;
            state.taken.insert((vdev, offset.0), asize.0);
            dvas.push(Dva { vdev, offset, asize, gang: false });
        }
        Ok(dvas)
    }

    fn free(&self, extent: &Dva, _: &dyn AllocTx) -> Result<(), AllocError> {
        let mut state = self.state.lock().unwrap();
        match state.taken.remove(&(extent.vdev, extent.offset.0)) {
            Some(asize) if asize == extent.asize.0 && !extent.gang => Ok(()),
            _ => Err(not_ours(extent)),
        }
    }

    fn claim(&self, extent: &Dva, _: &dyn AllocTx) -> Result<(), AllocError> {
        let mut state = self.state.lock().unwrap();
        match state.taken.insert((extent.vdev, extent.offset.0), extent.asize.0) {
            None => Ok(()),
            Some(_) => Err(not_ours(extent)),
        }
    }

    fn check_allocated(&self, extent: &Dva) -> Result<(), AllocError> {
        let state = self.state.lock().unwrap();
        match state.taken.get(&(extent.vdev, extent.offset.0)) {
            Some(asize) if *asize == extent.asize.0 => Ok(()),
            _ => Err(not_ours(extent)),
        }
    }
}

/// A pool.
pub(super) struct Pool {
    pub(super) disks: Vec<Arc<SimDisk>>,
    pub(super) space: Arc<FakeSpace>,
    pub(super) zio: Zio,
    pub(super) env: Env,
}

fn node(kind: &str, id: usize, guid: usize) -> NvList {
    let mut list = NvList::new();
    list.push("type", kind);
    list.push("id", id as u64);
    list.push("guid", guid as u64);
    list
}

/// The configuration of the pool; its leaves have the guids from 1000 on.
fn config(tops: &[Top], ashift: u64) -> (VdevNode, usize) {
    let mut leaves = 0;
    let mut nodes = Vec::new();
    for (id, top) in tops.iter().enumerate() {
        let (kind, children, nparity) = match *top {
            Top::Single | Top::Log => ("file", 0, 0),
            Top::Removed => ("indirect", 0, 0),
            Top::Mirror(n) => ("mirror", n, 0),
            Top::Raidz(n, nparity) => ("raidz", n, nparity),
            Top::Draid => ("draid", 8, 2),
        };
        let mut list = if matches!(top, Top::Removed) {
            node(kind, id, 10 + id)
        } else if children == 0 {
            leaves += 1;
            node(kind, id, 999 + leaves)
        } else {
            let sides = (0..children).map(|i| node("file", i, 1000 + leaves + i)).collect();
            leaves += children;
            let mut list = node(kind, id, 10 + id);
            list.push("children", NvValue::ListArray(sides));
            list
        };
        if nparity > 0 {
            list.push("nparity", nparity);
        }
        if matches!(top, Top::Draid) {
            list.push("draid_ndata", 2u64);
            list.push("draid_nspares", 2u64);
            list.push("draid_ngroups", 3u64);
        }
        if matches!(top, Top::Log) {
            list.push("is_log", 1u64);
        }
        list.push("ashift", ashift);
        list.push("asize", if matches!(top, Top::Removed) { 1u64 << 24 } else { 0 });
        nodes.push(list);
    }
    let mut root = node("root", 0, 1);
    root.push("children", NvValue::ListArray(nodes));
    (VdevNode::from_nvlist(&root).unwrap(), leaves)
}

impl Pool {
    pub(super) fn new(tops: &[Top], ashift: u64) -> Pool {
        let (config, leaves) = config(tops, ashift);
        let disks: Vec<Arc<SimDisk>> = (0..leaves).map(|i| Arc::new(SimDisk::new(DISK, i as u64))).collect();
        let devices: HashMap<VdevGuid, Arc<dyn Device>> = (1000..)
            .map(VdevGuid)
            .zip(disks.iter().map(|disk| Arc::clone(disk) as Arc<dyn Device>))
            .collect();
        let tree = VdevTree::open(&config, &devices, ReflowInfo::default()).unwrap();
        let class = |top: &Top| if matches!(top, Top::Log) { AllocClass::Log } else { AllocClass::Normal };
        let space = Arc::new(FakeSpace {
            tree: Arc::clone(&tree),
            tops: tops
                .iter()
                .enumerate()
                .filter(|(_, top)| !matches!(top, Top::Removed))
                .map(|(i, top)| (VdevId(i as u32), class(top)))
                .collect(),
            state: Mutex::default(),
        });
        let zio = Zio::new(tree);
        zio.set_salt(Salt(std::array::from_fn(|i| i as u8 * 7)));
        zio.set_space(Arc::clone(&space) as Arc<dyn Space>);
        Pool { disks, space, zio, env: Env::system().with_workers(2) }
    }

    pub(super) fn write(&self, block: &NewBlock, txg: u64) -> Result<BlockPtr, ZioError> {
        self.zio.write(block, &Tx(txg), &self.env)
    }

    pub(super) fn read(&self, bp: &BlockPtr) -> Vec<u8> {
        self.zio.read(bp, &ReadPolicy::default()).unwrap().bytes().to_vec()
    }

    /// Number of extents in use.
    pub(super) fn taken(&self) -> usize {
        self.space.state.lock().unwrap().taken.len()
    }

    pub(super) fn set_largest(&self, psize: u64) {
        self.space.state.lock().unwrap().largest = psize;
    }

    /// Checks that a pointer is valid, and that its block reads back.
    pub(super) fn check(&self, bp: &BlockPtr, block: &NewBlock, txg: u64) {
        assert_eq!(bp.validate(), Ok(()), "{bp}");
        assert_eq!(bp.words()[8], if bp.is_embedded() { bp.words()[8] } else { 0 }, "{bp}");
        for dva in bp.dvas() {
            let psize = if dva.gang { format::Psize(512) } else { bp.psize() };
            assert_eq!(self.zio.tree().check(&dva, psize), Ok(()), "{bp}");
        }
        if bp.kind() != BpKind::Hole {
            assert_eq!((bp.obj_type(), bp.level()), (block.policy.obj_type, block.policy.tree_level), "{bp}");
            assert_eq!((bp.logical_birth(), bp.lsize().0), (Txg(txg), block.data.len() as u64), "{bp}");
            let read = self.zio.check(bp, &ReadPolicy::SCRUB);
            assert!(read.faults.is_empty() && read.data.is_ok(), "{bp}: {:?}", read.faults);
            assert!(self.read(bp) == **block.data, "{bp}");
        }
        if matches!(bp.kind(), BpKind::Normal | BpKind::Gang) {
            assert_eq!(bp.fill(), block.fill, "{bp}");
            assert_eq!(bp.physical_birth(), Txg(txg), "{bp}");
        }
    }
}

/// The ordinary policy of file data.
pub(super) fn policy() -> WritePolicy {
    WritePolicy {
        checksum: ChecksumId::Fletcher4,
        compression: CompressionId::Off,
        level: 0,
        copies: 1,
        gang_copies: 2,
        obj_type: ObjType::PLAIN_FILE,
        tree_level: Level(0),
        class: AllocClass::Normal,
        embed: false,
        hole_birth: true,
        small_blocks: 0,
        nopwrite: false,
    }
}

pub(super) fn block(data: Vec<u8>, policy: &WritePolicy) -> NewBlock {
    let (policy, old) = (policy.clone(), BlockPtr::HOLE);
    NewBlock { data: Arc::new(data), stored: None, seal: None, policy, old, in_place: false, fill: 1 }
}

pub(super) fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Random::from_seed(seed).fill(&mut bytes);
    bytes
}

/// Bytes that compress by about half.
pub(super) fn text(len: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::from_seed(seed);
    let words: Vec<Vec<u8>> =
        (0..32).map(|i| noise(3 + i % 9, seed.wrapping_mul(100).wrapping_add(i as u64))).collect();
    let mut bytes = Vec::with_capacity(len + 16);
    while bytes.len() < len {
        bytes.extend_from_slice(&words[random.below(32) as usize]);
        if random.one_in(4) {
            bytes.extend_from_slice(&random.next().to_le_bytes());
        }
    }
    bytes.truncate(len);
    bytes
}
