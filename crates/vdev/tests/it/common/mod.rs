//! A writer for tests: puts blocks on simulated disks as a pool of the given shape would.
#![allow(dead_code)] // each test file uses its own part

use cenote_vdev::VdevTree;
use cenote_vdev::device::Device;
use cenote_vdev::device::memory::MemoryDevice;
use cenote_vdev::device::sim::{Power, SimDisk};
use cenote_vdev::env::Random;
use cenote_vdev::geometry::{BlockMap, Draid, DraidParams, Expansion, Raidz, ReflowState};
use cenote_vdev::tree::Extent;
use codec::gf256;
use format::config::VdevNode;
use format::uberblock::ReflowInfo;
use format::{AllocOffset, Ashift, DeviceOffset, NvList, NvValue, Psize, Txg, VdevGuid, VdevId};
use std::collections::HashMap;
use std::sync::Arc;

/// Bytes of every disk.
pub(crate) const DISK: u64 = 256 << 20;

/// Shape of a top-level vdev.
#[derive(Debug, Clone)]
pub(crate) enum Shape {
    Leaf,
    Mirror(usize),
    Raidz { children: usize, nparity: u8, expansion: Expansion },
    Draid(DraidParams),
}

impl Shape {
    pub(crate) fn raidz(children: usize, nparity: u8) -> Shape {
        Shape::Raidz { children, nparity, expansion: Expansion::default() }
    }

    pub(crate) fn children(&self) -> usize {
        match self {
            Shape::Leaf => 1,
            Shape::Mirror(n) => *n,
            Shape::Raidz { children, .. } => *children,
            Shape::Draid(params) => params.children,
        }
    }

    pub(crate) fn nparity(&self) -> usize {
        match self {
            Shape::Leaf => 0,
            Shape::Mirror(n) => n - 1,
            Shape::Raidz { nparity, .. } => usize::from(*nparity),
            Shape::Draid(params) => usize::from(params.nparity),
        }
    }

    pub(crate) fn map(&self, ashift: Ashift, at: &Extent) -> Option<BlockMap> {
        match self {
            Shape::Leaf | Shape::Mirror(_) => None,
            Shape::Raidz { children, nparity, expansion } => {
                let raidz = Raidz::new(*children, *nparity, ashift, expansion.clone()).unwrap();
                Some(raidz.map(at.offset, at.psize, at.birth).unwrap())
            }
            Shape::Draid(params) => Some(Draid::new(*params).unwrap().map(at.offset, at.psize).unwrap()),
        }
    }
}

pub(crate) fn guid(i: usize) -> VdevGuid {
    VdevGuid(1000 + i as u64)
}

/// A leaf node.
pub(crate) fn leaf(id: usize, guid: VdevGuid) -> NvList {
    let mut list = NvList::new();
    list.push("type", "file");
    list.push("id", id as u64);
    list.push("guid", guid.0);
    list.push("path", format!("/disk{}", guid.0));
    list
}

/// An interior node.
pub(crate) fn interior(kind: &str, id: usize, guid: u64, children: Vec<NvList>) -> NvList {
    let mut list = NvList::new();
    list.push("type", kind);
    list.push("id", id as u64);
    list.push("guid", guid);
    list.push("children", NvValue::ListArray(children));
    list
}

/// A root above top-level vdevs.
pub(crate) fn root(tops: Vec<NvList>) -> VdevNode {
    VdevNode::from_nvlist(&interior("root", 0, 1, tops)).unwrap()
}

/// Adds the keys that only top-level vdevs have.
pub(crate) fn as_top(mut list: NvList, ashift: Ashift, asize: u64) -> NvList {
    list.push("ashift", u64::from(ashift.0));
    list.push("asize", asize);
    list
}

impl Shape {
    /// The configuration as top-level vdev 0, with these children.
    pub(crate) fn node(&self, ashift: Ashift, children: Vec<NvList>) -> NvList {
        let mut list = match self {
            Shape::Leaf => leaf(0, guid(0)),
            Shape::Mirror(_) => interior("mirror", 0, 2, children),
            Shape::Raidz { nparity, expansion, .. } => {
                let mut list = interior("raidz", 0, 2, children);
                list.push("nparity", u64::from(*nparity));
                if expansion.running.is_some() {
                    list.push("raidz_expanding", NvValue::Boolean);
                }
                if !expansion.txgs.is_empty() {
                    let txgs: Vec<u64> = expansion.txgs.iter().map(|txg| txg.0).collect();
                    list.push("raidz_expand_txgs", NvValue::Uint64Array(txgs));
                }
                list
            }
            Shape::Draid(params) => {
                let mut list = interior("draid", 0, 2, children);
                list.push("nparity", u64::from(params.nparity));
                list.push("draid_ndata", params.ndata as u64);
                list.push("draid_nspares", params.nspares as u64);
                list.push("draid_ngroups", params.ngroups);
                list
            }
        };
        list = as_top(list, ashift, 0);
        list
    }

    pub(crate) fn config(&self, ashift: Ashift) -> VdevNode {
        let children = (0..self.children()).map(|i| leaf(i, guid(i))).collect();
        root(vec![self.node(ashift, children)])
    }

    pub(crate) fn reflow(&self) -> ReflowInfo {
        match self {
            Shape::Raidz {
                expansion: Expansion { running: Some(ReflowState { offset, in_scratch }), .. },
                ..
            } => ReflowInfo { offset: *offset, state: if *in_scratch { 1 } else { 4 } },
            _ => ReflowInfo::default(),
        }
    }
}

/// Disks with blocks on them.
pub(crate) struct Disks {
    pub(crate) shape: Shape,
    pub(crate) ashift: Ashift,
    pub(crate) media: Vec<Arc<MemoryDevice>>,
}

impl Disks {
    pub(crate) fn new(shape: Shape, ashift: Ashift) -> Disks {
        let media = (0..shape.children()).map(|_| Arc::new(MemoryDevice::new(DISK))).collect();
        Disks { shape, ashift, media }
    }

    /// Random content of a block, written to all disks.
    pub(crate) fn write(&self, at: &Extent, seed: u64) -> Vec<u8> {
        let mut block = vec![0; at.psize.0 as usize];
        Random::from_seed(seed).fill(&mut block);
        match self.shape.map(self.ashift, at) {
            Some(map) => write_columns(&self.media, &map, &block),
            None => {
                for disk in &self.media {
                    disk.write_at(&block, at.offset.on_device()).unwrap();
                }
            }
        }
        block
    }

    /// The disks as simulated ones that can be made to fail; the media stay unchanged.
    pub(crate) fn simulated(&self) -> Vec<Arc<SimDisk>> {
        let over = |(i, disk): (usize, &Arc<MemoryDevice>)| {
            Arc::new(SimDisk::over(Arc::clone(disk) as Arc<dyn Device>, i as u64, Power::new()))
        };
        self.media.iter().enumerate().map(over).collect()
    }

    /// A tree over some of the disks.
    pub(crate) fn tree(&self, disks: &[Arc<SimDisk>], missing: &[usize]) -> Arc<VdevTree> {
        let there = disks.iter().enumerate().filter(|(i, _)| !missing.contains(i));
        let devices: HashMap<VdevGuid, Arc<dyn Device>> =
            there.map(|(i, disk)| (guid(i), Arc::clone(disk) as Arc<dyn Device>)).collect();
        VdevTree::open(&self.shape.config(self.ashift), &devices, self.shape.reflow()).unwrap()
    }

    /// Whether a block is lost without these children.
    pub(crate) fn are_too_many(&self, at: &Extent, lost: &[usize]) -> bool {
        let Some(map) = self.shape.map(self.ashift, at) else { return lost.len() >= self.media.len() };
        map.rows.iter().any(|row| {
            let parity = row.parity().iter().filter(|c| !lost.contains(&c.child)).count();
            row.data().iter().filter(|c| c.data > 0 && lost.contains(&c.child)).count() > parity
        })
    }

    /// The children that hold a part of a block.
    pub(crate) fn holders(&self, at: &Extent) -> Vec<usize> {
        let mut holders: Vec<usize> = match self.shape.map(self.ashift, at) {
            None => (0..self.media.len()).collect(),
            Some(map) => map
                .rows
                .iter()
                .flat_map(|row| row.parity().iter().chain(row.data().iter().filter(|c| c.data > 0)))
                .map(|column| column.child)
                .collect(),
        };
        holders.sort_unstable();
        holders.dedup();
        holders
    }
}

/// Writes the columns of a block, parity included.
pub(crate) fn write_columns(disks: &[Arc<MemoryDevice>], map: &BlockMap, block: &[u8]) {
    let mut padded = block.to_vec();
    padded.resize(map.size as usize, 0);
    for row in &map.rows {
        let data: Vec<&[u8]> =
            row.data().iter().map(|c| &padded[c.block_at as usize..(c.block_at + c.data) as usize]).collect();
        let mut parity = vec![vec![0; row.height() as usize]; row.nparity];
        let mut targets: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
        gf256::generate(&data, &mut targets).unwrap();
        let contents = parity.iter().map(Vec::as_slice).chain(data.iter().copied());
        for (column, bytes) in row.columns.iter().zip(contents) {
            if column.stored > 0 {
                let mut stored = bytes.to_vec();
                stored.resize(column.stored as usize, 0);
                let at = DeviceOffset((0x40_0000 + column.at) as u64);
                disks[column.child].write_at(&stored, at).unwrap();
            }
        }
    }
}

pub(crate) fn extent(offset: u64, psize: u64, birth: u64) -> Extent {
    Extent { vdev: VdevId(0), offset: AllocOffset(offset), psize: Psize(psize), birth: Txg(birth) }
}

/// All subsets of `0..n` with at most `most` members.
pub(crate) fn subsets(n: usize, most: usize) -> Vec<Vec<usize>> {
    (0..1u32 << n)
        .map(|bits| (0..n).filter(|i| bits >> i & 1 == 1).collect::<Vec<_>>())
        .filter(|set| set.len() <= most)
        .collect()
}
