//! States and counters of vdevs, as `zpool status` and `zpool iostat` show them.

use super::leaf::Leaf;
use super::node::{Body, Vdev, VdevTree};
use super::state::{Aux, VdevState};
use super::stats::{IoCounters, IoStats, Op};
use format::config::{DraidShape, VdevKind, VdevNode};
use format::{VdevGuid, VdevId};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A vdev and those below it, as `zpool status` shows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VdevStatus {
    /// Kind of the vdev: a leaf, or how it uses its children.
    pub kind: VdevKind,
    /// Index among the children of its parent.
    pub id: u32,
    /// Guid of the vdev in the configuration.
    pub guid: VdevGuid,
    /// State of the vdev, with the vdevs below taken into account.
    pub state: VdevState,
    /// The reason for the state.
    pub aux: Aux,
    /// Path of the device, or its last known path in the configuration.
    pub path: Option<PathBuf>,
    /// Whether the device is open.
    pub is_open: bool,
    /// The device was missing when the configuration was written.
    pub(crate) not_present: bool,
    /// Parity columns of a RAID-Z or dRAID; 0 for other kinds.
    pub nparity: u8,
    /// Shape of a dRAID; `None` for other kinds.
    pub draid: Option<DraidShape>,
    /// The vdev holds blocks of the intent log only.
    pub is_log: bool,
    /// A hot spare that stands in for another leaf.
    pub(crate) is_spare: bool,
    /// The partition table of the disk was written for the pool.
    pub whole_disk: bool,
    /// The vdev is being removed: its contents move to other vdevs.
    pub removing: bool,
    /// New blocks are not allocated on the vdev.
    pub non_allocating: bool,
    /// The leaf is being resilvered.
    pub(crate) is_resilvering: bool,
    /// Allocatable bytes that the devices offer; 0 if unknown.
    pub offered: u64,
    /// Bytes of a leaf's device; 0 without one.
    pub device_size: u64,
    /// Number of reads that failed since the pool was opened or its errors were cleared.
    pub read_errors: u64,
    /// Number of writes that failed, likewise.
    pub write_errors: u64,
    /// Number of reads that returned wrong bytes, likewise.
    pub checksum_errors: u64,
    /// Number of reads and writes that took longer than [`SLOW_IO_MS`](super::SLOW_IO_MS), likewise.
    pub slow_ios: u64,
    /// Number of reads since the pool was opened.
    pub reads: u64,
    /// Number of bytes of these reads.
    pub read_bytes: u64,
    /// Number of writes since the pool was opened.
    pub writes: u64,
    /// Number of bytes of these writes.
    pub write_bytes: u64,
    /// The children, in the order of the configuration.
    pub children: Vec<VdevStatus>,
}

impl VdevStatus {
    /// This vdev and all below, parents first.
    pub fn walk(&self) -> Vec<&VdevStatus> {
        let mut all = vec![self];
        for child in &self.children {
            all.extend(child.walk());
        }
        all
    }

    /// The vdev with this guid, here or below.
    pub fn find(&self, guid: VdevGuid) -> Option<&VdevStatus> {
        self.walk().into_iter().find(|vdev| vdev.guid == guid)
    }
}

/// I/O counters of a leaf, and their age.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeafIo {
    /// Time since the leaf was opened.
    pub age: Duration,
    /// Counters of the leaf since it was opened.
    pub stats: IoStats,
}

impl VdevTree {
    /// I/O counters of each leaf since it was opened. Those of the vdevs above are the sums of their leaves.
    pub fn io_stats(&self) -> HashMap<VdevGuid, LeafIo> {
        let mut leaves = Vec::new();
        self.tops.iter().for_each(|top| top.vdev.leaves(&mut leaves));
        let of = |counters: &IoCounters| LeafIo { age: counters.born.elapsed(), stats: counters.sample() };
        leaves.into_iter().map(|leaf| (leaf.guid, of(&leaf.memory().io))).collect()
    }
}

impl VdevTree {
    /// States and error counters of all vdevs.
    pub fn status(&self) -> VdevStatus {
        let mut root = blank(&self.config);
        for (top, node) in self.tops.iter().zip(&self.config.children) {
            let mut status = top.vdev.status(node, self);
            if matches!(top.vdev.body, Body::Indirect) && self.mapping_is_missing(top.id, node) {
                (status.state, status.aux) = (VdevState::Unavail, Aux::CorruptData);
            }
            root.children.push(status);
        }
        // A lost log device loses only data that are not yet in the pool proper, but still counts.
        (root.state, root.aux) = interior(&root.children, 0, false);
        root
    }

    /// Clears the error counters of all leaves.
    pub fn clear_errors(&self) {
        for top in &self.tops {
            let mut leaves = Vec::new();
            top.vdev.leaves(&mut leaves);
            for leaf in leaves {
                let c = leaf.counters();
                for count in [&c.read_errors, &c.write_errors, &c.checksum_errors, &c.slow_ios] {
                    count.store(0, Ordering::Relaxed);
                }
            }
        }
    }

    /// Clears the error counters of some leaves.
    pub fn clear_errors_of(&self, guids: &[VdevGuid]) {
        for leaf in guids.iter().filter_map(|guid| self.leaf(*guid)) {
            let c = leaf.counters();
            for count in [&c.read_errors, &c.write_errors, &c.checksum_errors, &c.slow_ios] {
                count.store(0, Ordering::Relaxed);
            }
        }
    }

    fn mapping_is_missing(&self, id: VdevId, node: &VdevNode) -> bool {
        node.indirect_object.0 != 0 && self.indirect(id).is_none()
    }
}

impl Vdev {
    fn status(&self, node: &VdevNode, tree: &VdevTree) -> VdevStatus {
        let mut status = blank(node);
        status.children = self
            .children()
            .iter()
            .zip(&node.children)
            .map(|(child, node)| child.status(node, tree))
            .collect();
        status.offered = self.offered();
        let of_children = &status.children;
        (status.state, status.aux) = match &self.body {
            Body::Leaf(leaf) => (leaf.state.state, leaf.state.aux),
            Body::Mirror(children) => interior(of_children, children.len().saturating_sub(1), true),
            Body::Raidz(raidz, _) => interior(of_children, raidz.nparity(), false),
            Body::Draid(draid, _) => interior(of_children, usize::from(draid.params().nparity), false),
            Body::DistributedSpare(spare) if !tree.draids.contains_key(&spare.draid) => {
                (VdevState::Unavail, Aux::OpenFailed)
            }
            Body::DistributedSpare(spare) => (spare.state.state, spare.state.aux),
            Body::Indirect | Body::Hole => (VdevState::Online, Aux::None),
        };
        if let Body::Leaf(leaf) = &self.body {
            leaf_numbers(&mut status, leaf);
        }
        status
    }
}

/// A status with the facts of the configuration alone.
fn blank(node: &VdevNode) -> VdevStatus {
    VdevStatus {
        kind: node.kind,
        id: node.id,
        guid: node.guid,
        state: VdevState::Online,
        aux: Aux::None,
        path: node.path.as_ref().map(PathBuf::from),
        is_open: false,
        not_present: node.not_present,
        nparity: node.nparity,
        draid: node.draid,
        is_log: node.is_log,
        is_spare: node.is_spare,
        whole_disk: node.whole_disk,
        removing: node.removing,
        non_allocating: node.non_allocating,
        is_resilvering: node.resilver_txg.0 != 0 || node.rebuild_txg.0 != 0,
        offered: 0,
        device_size: 0,
        read_errors: 0,
        write_errors: 0,
        checksum_errors: 0,
        slow_ios: 0,
        reads: 0,
        read_bytes: 0,
        writes: 0,
        write_bytes: 0,
        children: Vec::new(),
    }
}

fn leaf_numbers(status: &mut VdevStatus, leaf: &Leaf) {
    let c = leaf.counters();
    status.is_open = leaf.device().is_some();
    status.device_size = leaf.device().map_or(0, |device| device.size());
    if let Some(path) = leaf.path().filter(|path| !is_former(status, path)) {
        status.path = Some(Path::to_path_buf(path));
    }
    status.read_errors = c.read_errors.load(Ordering::Relaxed);
    status.write_errors = c.write_errors.load(Ordering::Relaxed);
    status.checksum_errors = c.checksum_errors.load(Ordering::Relaxed);
    status.slow_ios = c.slow_ios.load(Ordering::Relaxed);
    (status.reads, status.read_bytes) = leaf.memory().io.count(Op::Read);
    (status.writes, status.write_bytes) = leaf.memory().io.count(Op::Write);
}

/// Whether a leaf was at this path before the device that replaces it: the configuration then calls it `PATH/old`.
fn is_former(status: &VdevStatus, path: &Path) -> bool {
    status.path.as_ref().is_some_and(|known| *known == path.join("old"))
}

/// State of a vdev that works as long as at most `spare` of its children do not. A pool works without its
/// logs.
fn interior(children: &[VdevStatus], spare: usize, is_mirror: bool) -> (VdevState, Aux) {
    let is_lost = |child: &&VdevStatus| child.state < VdevState::Degraded && !child.is_log;
    let lost = children.iter().filter(is_lost).count();
    let is_weak = |child: &VdevStatus| child.state == VdevState::Degraded || child.is_log;
    let degraded = children.iter().any(|child| child.state < VdevState::Online && is_weak(child));
    if lost > spare {
        let offline = |child: &VdevStatus| child.state == VdevState::Offline;
        if is_mirror && !children.is_empty() && children.iter().all(offline) {
            return (VdevState::Offline, Aux::ChildrenOffline);
        }
        return (VdevState::Unavail, Aux::NoReplicas);
    }
    (if lost > 0 || degraded { VdevState::Degraded } else { VdevState::Online }, Aux::None)
}
