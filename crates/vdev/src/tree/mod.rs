//! The tree of vdevs of one pool: which leaves hold a block, reading it when some of them are
//! missing, fail or lie, and writing it to all of them (docs/on-disk/14-vdevs.md).
//!
//! `zio` asks for an [`Extent`], a place on a top-level vdev, and says whether bytes are right.
//! Here candidates are made until one is: the sides of a mirror, the data columns of a RAID-Z, then
//! its parity, then every combination of at most as many suspected columns as there is parity, then
//! each stripe for itself; for removed vdevs, the copies of each segment. Whoever held wrong bytes
//! is then known and reported as a [`Fault`].
//!
//! # What always holds
//! - Bytes are returned only if `verify` accepted them.
//! - A block of more than 16 MiB is refused before any memory is taken for it.
//! - At most [`ATTEMPTS_MAX`] candidates of one block are given to `verify`, and fewer if the block
//!   is large ([`ATTEMPT_BYTES_MAX`] in all): a hostile image costs bounded time.
//! - A leaf that did not take a block has the block's txg in its DTL before the write returns.
//! - A leaf that is known not to have a block (its DTL says so, it is resilvering, or the
//!   configuration calls it offline or faulted) is asked last and not blamed.
//!
//! # Order
//! `open` with the tree of the labels, read the MOS, `open` again with the tree of the MOS, then
//! `set_indirect` for removed vdevs (newest first: its mapping may be needed to read the others) and
//! `set_dtl` for leaves. Then `write_many` and `flush` (`write.rs`), and once per txg `take_changed_dtls`
//! (`upkeep.rs`). No lock is held while a device is read or written; a flush holds one per leaf.
//!
//! Tests: `tests/redundancy.rs` (every combination of failed and lying leaves), `tests/tree.rs`,
//! `tests/writing.rs`.

mod copies;
mod health;
mod indirect;
mod leaf;
mod parity;
mod range_set;
mod search;
mod stats;
mod stripes;
mod upkeep;
mod write;

pub use health::{Aux, VdevState, VdevStatus};
pub use indirect::{Birth, IndirectMapping, MapEntry};
pub use leaf::SLOW_IO_MS;
pub use range_set::RangeSet;
pub use stats::{
    Doing, IoStats, LeafIo, OPS, Op, PRIORITIES, Priority, SIZE_BUCKETS, Sizes, TIME_BUCKETS, Times,
};
pub use upkeep::Mark;
pub use write::Write;

use crate::device::Device;
use crate::geometry::{Draid, DraidError, DraidParams, Expansion, Raidz, ReflowState};
use format::config::{VdevKind, VdevNode};
use format::uberblock::ReflowInfo;
use format::units::{LABEL_START, MAX_BLOCK};
use format::{AllocOffset, Ashift, Asize, DeviceOffset, Dva, Psize, Txg, VdevGuid, VdevId};
use leaf::{Leaf, Memory, Standing};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use upkeep::Losses;

/// Most candidates that are tried for one block.
pub const ATTEMPTS_MAX: usize = 5000;
/// Most bytes of candidates that are tried for one block.
pub const ATTEMPT_BYTES_MAX: u64 = 16 << 30;
/// Levels of the tree, and of removed vdevs that moved to removed vdevs.
const DEPTH_MAX: usize = 32;

/// Why a block could not be read from a vdev or written to it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VdevError {
    /// Too many of the leaves that hold the block are missing or fail.
    #[error("no usable copy")]
    NoCopies,
    /// There were bytes, but none that are right.
    #[error("wrong checksum in every copy and reconstruction")]
    WrongChecksum,
    /// The pool has no such vdev, or none that can hold data.
    #[error("no vdev {vdev}")]
    NoVdev {
        /// The top-level vdev.
        vdev: VdevId,
    },
    /// The place is not on the vdev.
    #[error("vdev {vdev}: {asize} bytes at {offset} are beyond its end")]
    OutOfRange {
        /// The top-level vdev.
        vdev: VdevId,
        /// First byte.
        offset: AllocOffset,
        /// Bytes.
        asize: Asize,
    },
    /// The place does not start with a sector (or a stripe of a dRAID).
    #[error("vdev {vdev}: offset {offset} is not aligned")]
    Misaligned {
        /// The top-level vdev.
        vdev: VdevId,
        /// First byte.
        offset: AllocOffset,
    },
    /// No block has this size.
    #[error("a block of {0} bytes")]
    Size(Psize),
    /// A removed vdev has no mapping for a place, or its mapping was not set.
    #[error("removed vdev {vdev}: no mapping at {offset}")]
    NoMapping {
        /// The removed vdev.
        vdev: VdevId,
        /// The place.
        offset: AllocOffset,
    },
    /// The mapping of a removed vdev cannot be right.
    #[error("mapping of removed vdev {vdev}: {why}")]
    BadMapping {
        /// The removed vdev.
        vdev: VdevId,
        /// What is wrong.
        why: &'static str,
    },
    /// The configuration describes a vdev that cannot be.
    #[error("vdev {guid}: {why}")]
    BadConfig {
        /// The vdev.
        guid: VdevGuid,
        /// What is wrong.
        why: &'static str,
    },
    /// Too few leaves took a block for it to be read back.
    #[error("vdev {vdev}: too few devices could be written")]
    NotWritten {
        /// The top-level vdev.
        vdev: VdevId,
    },
    /// Written blocks were lost while they were made durable.
    #[error("vdev {vdev}: too few devices could be flushed")]
    NotFlushed {
        /// The top-level vdev.
        vdev: VdevId,
    },
    /// Nothing can be written to a vdev of this kind.
    #[error("vdev {vdev} cannot be written: {why}")]
    CannotWrite {
        /// The top-level vdev.
        vdev: VdevId,
        /// What is in the way.
        why: &'static str,
    },
    /// A dRAID cannot be.
    #[error(transparent)]
    Draid(#[from] DraidError),
}

/// A block's place on a top-level vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The top-level vdev.
    pub vdev: VdevId,
    /// First byte.
    pub offset: AllocOffset,
    /// Bytes of the block.
    pub psize: Psize,
    /// Txg in which the bytes were written: decides about RAID-Z width and DTLs.
    pub birth: Txg,
}

/// What a leaf did wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultKind {
    /// Reading failed.
    Io,
    /// The bytes were wrong.
    Checksum,
    /// The leaf is not there, or the configuration took it out of service.
    Missing,
}

/// A leaf that failed to give right bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The leaf.
    pub leaf: VdevGuid,
    /// Where on the device.
    pub offset: DeviceOffset,
    /// What was wrong.
    pub kind: FaultKind,
}

/// Is told what leaves do wrong, as it is found, on the thread that found it: it must not wait for anything.
pub trait FaultListener: Send + Sync + std::fmt::Debug {
    /// A leaf failed or lied in reading or writing what is at `fault.offset`; `bytes`: of the whole block.
    fn fault(&self, tree: &VdevTree, op: Op, fault: &Fault, bytes: u64);
}

/// Who is told of faults, if anybody; the same for a tree and those that it is made into.
type Listener = Arc<OnceLock<Arc<dyn FaultListener>>>;

/// The outcome of reading a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    /// The bytes, accepted by `verify`.
    pub data: Result<Vec<u8>, VdevError>,
    /// Which leaves failed or lied, also if the data is there all the same.
    pub faults: Vec<Fault>,
}

/// How a block is to be read.
#[derive(Clone, Copy)]
struct How<'a> {
    /// Check every copy and all parity.
    every_copy: bool,
    verify: &'a dyn Fn(&[u8]) -> bool,
}

/// A vdev and what is below it.
#[derive(Debug)]
struct Vdev {
    body: Body,
}

#[derive(Debug)]
enum Body {
    Leaf(Box<Leaf>),
    /// Children that hold the same bytes: mirror, replacing, spare.
    Mirror(Vec<Vdev>),
    Raidz(Box<Raidz>, Vec<Vdev>),
    Draid(Box<Draid>, Vec<Vdev>),
    /// Spare space of a dRAID, used as a leaf.
    DistributedSpare(Box<DistributedSpare>),
    /// A removed vdev.
    Indirect,
    /// Nothing.
    Hole,
}

/// Spare space of a dRAID in use.
#[derive(Debug)]
struct DistributedSpare {
    /// The dRAID.
    draid: VdevGuid,
    /// Number of the spare in it.
    index: usize,
    standing: Standing,
}

impl Vdev {
    fn children(&self) -> &[Vdev] {
        match &self.body {
            Body::Mirror(children) | Body::Raidz(_, children) | Body::Draid(_, children) => children,
            _ => &[],
        }
    }

    fn standings<'a>(&'a self, out: &mut Vec<&'a Standing>) {
        match &self.body {
            Body::Leaf(leaf) => out.push(&leaf.standing),
            Body::DistributedSpare(spare) => out.push(&spare.standing),
            _ => self.children().iter().for_each(|child| child.standings(out)),
        }
    }

    fn leaves<'a>(&'a self, out: &mut Vec<&'a Leaf>) {
        if let Body::Leaf(leaf) = &self.body {
            out.push(leaf);
        }
        for child in self.children() {
            child.leaves(out);
        }
    }
}

/// A top-level vdev.
#[derive(Debug)]
struct Top {
    id: VdevId,
    vdev: Vdev,
    ashift: Ashift,
    /// Bytes that block pointers may name.
    limit: u64,
    indirect: RwLock<Option<Arc<IndirectMapping>>>,
}

/// The vdevs of a pool.
#[derive(Debug)]
pub struct VdevTree {
    config: VdevNode,
    tops: Vec<Top>,
    /// Index of the top-level dRAID with this guid.
    draids: HashMap<VdevGuid, usize>,
    /// How far an expansion has come.
    reflow: ReflowInfo,
    losses: Arc<Mutex<Losses>>,
    listener: Listener,
}

impl VdevTree {
    /// Makes the tree of a root configuration from the devices that were found. A leaf without a
    /// device is missing; the states of [`VdevTree::status`] tell what that means. Fails only if
    /// the configuration describes something impossible.
    pub fn open(
        root: &VdevNode,
        devices: &HashMap<VdevGuid, Arc<dyn Device>>,
        reflow: ReflowInfo,
    ) -> Result<Arc<VdevTree>, VdevError> {
        VdevTree::build(
            root,
            &Builder {
                devices,
                reflow,
                memories: HashMap::new(),
                losses: Arc::default(),
                listener: Arc::default(),
            },
        )
    }

    fn build(root: &VdevNode, builder: &Builder<'_>) -> Result<Arc<VdevTree>, VdevError> {
        if root.kind != VdevKind::Root {
            return Err(VdevError::BadConfig { guid: root.guid, why: "not a root" });
        }
        let mut tops = Vec::with_capacity(root.children.len());
        let mut draids = HashMap::new();
        for (index, node) in root.children.iter().enumerate() {
            let id = VdevId(
                u32::try_from(index)
                    .map_err(|_| VdevError::BadConfig { guid: root.guid, why: "too many children" })?,
            );
            if node.kind == VdevKind::Draid {
                draids.insert(node.guid, index);
            }
            tops.push(builder.top(id, node)?);
        }
        let losses = Arc::clone(&builder.losses);
        let listener = Arc::clone(&builder.listener);
        let (config, reflow) = (root.clone(), builder.reflow);
        Ok(Arc::new(VdevTree { config, tops, draids, reflow, losses, listener }))
    }

    /// The configuration that the tree was made from.
    pub fn config(&self) -> &VdevNode {
        &self.config
    }

    /// Number of top-level slots, holes included.
    pub fn top_count(&self) -> usize {
        self.tops.len()
    }

    /// The top-level vdevs: what DVAs name, and their configuration.
    pub fn tops(&self) -> impl Iterator<Item = (VdevId, &VdevNode)> {
        self.tops.iter().map(|top| top.id).zip(&self.config.children)
    }

    /// The configuration of a top-level vdev.
    pub fn top(&self, vdev: VdevId) -> Option<&VdevNode> {
        self.config.children.get(vdev.0 as usize)
    }

    fn find_top(&self, vdev: VdevId) -> Result<&Top, VdevError> {
        match self.tops.get(vdev.0 as usize) {
            Some(top) if !matches!(top.vdev.body, Body::Hole) => Ok(top),
            _ => Err(VdevError::NoVdev { vdev }),
        }
    }

    /// Gives the mapping of a removed vdev. Ignored for others.
    pub fn set_indirect(&self, vdev: VdevId, mapping: IndirectMapping) {
        self.set_mapping(vdev, Arc::new(mapping));
    }

    fn set_mapping(&self, vdev: VdevId, mapping: Arc<IndirectMapping>) {
        if let Some(top) = self.tops.get(vdev.0 as usize) {
            *top.indirect.write().unwrap_or_else(PoisonError::into_inner) = Some(mapping);
        }
    }

    /// The mapping of a removed vdev, once it was set.
    pub fn indirect(&self, vdev: VdevId) -> Option<Arc<IndirectMapping>> {
        let top = self.tops.get(vdev.0 as usize)?;
        top.indirect.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tells which txgs a leaf missed: blocks born in these are read from it last.
    pub fn set_dtl(&self, leaf: VdevGuid, txgs: RangeSet) {
        let mut standings = Vec::new();
        self.tops.iter().for_each(|top| top.vdev.standings(&mut standings));
        if let Some(standing) = standings.iter().find(|standing| standing.guid == leaf) {
            standing.set_missed(txgs);
        }
    }

    /// The device of a leaf, if it is open.
    pub fn device(&self, leaf: VdevGuid) -> Option<Arc<dyn Device>> {
        self.leaf(leaf)?.device().cloned()
    }

    /// Guids of all leaves, in the order of the tree.
    pub fn leaf_guids(&self) -> Vec<VdevGuid> {
        let mut leaves = Vec::new();
        self.tops.iter().for_each(|top| top.vdev.leaves(&mut leaves));
        leaves.iter().map(|leaf| leaf.guid).collect()
    }

    fn leaf(&self, guid: VdevGuid) -> Option<&Leaf> {
        let mut leaves = Vec::new();
        self.tops.iter().for_each(|top| top.vdev.leaves(&mut leaves));
        leaves.into_iter().find(|leaf| leaf.guid == guid)
    }

    /// Whether a DVA can be right: the vdev is there, the place is aligned and on it. Of a gang
    /// block `psize` is that of the header.
    pub fn check(&self, dva: &Dva, psize: Psize) -> Result<(), VdevError> {
        let top = self.find_top(dva.vdev)?;
        check_size(psize)?;
        if !dva.offset.0.is_multiple_of(top.alignment()) {
            return Err(VdevError::Misaligned { vdev: dva.vdev, offset: dva.offset });
        }
        if top.limit == 0 && matches!(top.vdev.body, Body::Leaf(_)) {
            return Ok(()); // Nobody knows how large it was: no label of it was found.
        }
        let needed =
            psize.0.next_multiple_of(top.ashift.sector()).max(if dva.gang { 0 } else { dva.asize.0 });
        match dva.offset.0.checked_add(needed) {
            Some(end) if end <= top.limit => Ok(()),
            _ => Err(VdevError::OutOfRange { vdev: dva.vdev, offset: dva.offset, asize: Asize(needed) }),
        }
    }

    /// Reads a block: the healthiest copy first, others and reconstructions until `verify` accepts.
    pub fn read(&self, at: &Extent, verify: &dyn Fn(&[u8]) -> bool) -> Read {
        self.run(at, How { every_copy: false, verify })
    }

    /// Reads every copy of a block and recomputes its parity, as a scrub does. Every leaf with
    /// wrong bytes is reported; the data is there if any copy or reconstruction is right.
    pub fn check_every_copy(&self, at: &Extent, verify: &dyn Fn(&[u8]) -> bool) -> Read {
        let _scrub = Doing::begin(Priority::Scrub);
        self.run(at, How { every_copy: true, verify })
    }

    /// As [`VdevTree::read`], for places where wrong bytes are expected (the end of a log chain):
    /// nothing is reported and no checksum error is counted.
    pub fn read_quietly(&self, at: &Extent, verify: &dyn Fn(&[u8]) -> bool) -> Result<Vec<u8>, VdevError> {
        self.read_extent(at, How { every_copy: false, verify }, 0).data
    }

    /// As [`VdevTree::read`], of a block whose space may be another's by now. Wrong bytes are no fault of a leaf then, and are
    /// neither counted nor reported; `is_reused` is asked only where there are some.
    pub fn read_perhaps_reused(
        &self,
        at: &Extent,
        verify: &dyn Fn(&[u8]) -> bool,
        is_reused: &dyn Fn() -> bool,
    ) -> Read {
        let is_told = |fault: &Fault| fault.kind != FaultKind::Checksum || !is_reused();
        self.run_telling(at, How { every_copy: false, verify }, is_told)
    }

    fn run(&self, at: &Extent, how: How<'_>) -> Read {
        self.run_telling(at, how, |_| true)
    }

    /// Reads; the faults for which this holds are counted and reported.
    fn run_telling(&self, at: &Extent, how: How<'_>, is_told: impl Fn(&Fault) -> bool) -> Read {
        let mut read = self.read_extent(at, how, 0);
        read.faults.sort_by_key(|fault| (fault.leaf.0, fault.offset.0, fault.kind));
        read.faults.dedup();
        let told: Vec<Fault> = read.faults.iter().copied().filter(is_told).collect();
        self.count(&told);
        self.tell(Op::Read, &told, at.psize.0);
        read
    }

    /// Tells somebody of all faults from now on. A second call changes nothing.
    pub fn set_listener(&self, listener: Arc<dyn FaultListener>) {
        let _ = self.listener.set(listener);
    }

    fn tell(&self, op: Op, faults: &[Fault], bytes: u64) {
        let Some(listener) = self.listener.get() else { return };
        for fault in faults.iter().filter(|fault| fault.kind != FaultKind::Missing) {
            listener.fault(self, op, fault, bytes);
        }
    }

    /// Adds faults to the leaves' counters.
    fn count(&self, faults: &[Fault]) {
        for fault in faults {
            if fault.kind == FaultKind::Missing {
                continue; // not the leaf's doing, and in a degraded pool every other read has one
            }
            let Some(leaf) = self.leaf(fault.leaf) else { continue };
            let counter = match fault.kind {
                FaultKind::Checksum => &leaf.counters().checksum_errors,
                _ => &leaf.counters().read_errors,
            };
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn read_extent(&self, at: &Extent, how: How<'_>, depth: usize) -> Read {
        let failed = |error| Read { data: Err(error), faults: Vec::new() };
        let top = match check_size(at.psize).and_then(|()| self.find_top(at.vdev)) {
            Ok(top) => top,
            Err(error) => return failed(error),
        };
        match &top.vdev.body {
            Body::Indirect => self.read_indirect(at, how, depth),
            _ => self.read_vdev(&top.vdev, at, how, depth),
        }
    }

    /// Reads a block that is on `vdev`, itself or a child of a mirror.
    fn read_vdev(&self, vdev: &Vdev, at: &Extent, how: How<'_>, depth: usize) -> Read {
        if depth > DEPTH_MAX {
            return Read { data: Err(VdevError::NoCopies), faults: Vec::new() };
        }
        let map = match &vdev.body {
            Body::Raidz(raidz, _) => raidz.map(at.offset, at.psize, at.birth),
            Body::Draid(draid, _) => draid.map(at.offset, at.psize),
            Body::Mirror(children) if children.iter().any(Vdev::has_parity) => {
                return self.read_sides(children, at, how, depth);
            }
            _ => return self.read_copies(vdev, at, how),
        };
        match map {
            Some(map) => self.read_columns(vdev.children(), &map, at, how),
            None => {
                let error = VdevError::Misaligned { vdev: at.vdev, offset: at.offset };
                Read { data: Err(error), faults: Vec::new() }
            }
        }
    }

    /// Space that a block takes on a top-level vdev. `None`: no such vdev, or the size overflows.
    pub fn psize_to_asize(&self, vdev: VdevId, psize: Psize, birth: Txg) -> Option<Asize> {
        let top = self.find_top(vdev).ok()?;
        top.vdev.asize_of(psize, birth, top.ashift)
    }

    /// By how much 512 bytes of space on a vdev are worth less than a plain sector, in 512ths
    /// (docs/on-disk/15-space.md, section 9). 512 for unknown vdevs.
    pub fn deflate_ratio(&self, vdev: VdevId) -> u64 {
        let block = Psize(1 << 17);
        let asize = self.psize_to_asize(vdev, block, Txg(0));
        asize.and_then(|asize| block.0.checked_div(asize.0 >> 9)).unwrap_or(512)
    }

    /// log2 of the sector of a top-level vdev.
    pub fn ashift(&self, vdev: VdevId) -> Option<Ashift> {
        self.find_top(vdev).ok().map(|top| top.ashift)
    }

    /// Bytes of the smallest allocation on a top-level vdev.
    pub fn min_alloc(&self, vdev: VdevId) -> Option<u64> {
        let top = self.find_top(vdev).ok()?;
        Some(match &top.vdev.body {
            Body::Draid(draid, _) => draid.min_alloc(),
            _ => top.ashift.sector(),
        })
    }

    /// What allocations on a top-level vdev start at multiples of: a sector, or a dRAID's stripe.
    pub fn alignment(&self, vdev: VdevId) -> Option<u64> {
        Some(self.find_top(vdev).ok()?.alignment())
    }
}

impl Top {
    fn alignment(&self) -> u64 {
        match &self.vdev.body {
            Body::Draid(draid, _) => draid.group_width() as u64 * self.ashift.sector(),
            _ => self.ashift.sector(),
        }
    }
}

impl Vdev {
    fn has_parity(&self) -> bool {
        matches!(self.body, Body::Raidz(..) | Body::Draid(..)) || self.children().iter().any(Vdev::has_parity)
    }

    fn asize_of(&self, psize: Psize, birth: Txg, ashift: Ashift) -> Option<Asize> {
        match &self.body {
            Body::Raidz(raidz, _) => raidz.asize(psize, birth),
            Body::Draid(draid, _) => draid.asize(psize),
            Body::Mirror(children) => children
                .iter()
                .map(|child| child.asize_of(psize, birth, ashift))
                .collect::<Option<Vec<_>>>()?
                .into_iter()
                .max(),
            _ => crate::geometry::mirror_asize(psize, ashift.sector()),
        }
    }

    /// Allocatable bytes of this vdev by what its open devices offer; 0 if none tells.
    fn offered(&self) -> u64 {
        let smallest = |children: &[Vdev]| {
            children.iter().map(Vdev::offered).filter(|asize| *asize > 0).min().unwrap_or(0)
        };
        match &self.body {
            Body::Leaf(leaf) => leaf.usable(),
            Body::Mirror(children) => smallest(children),
            Body::Raidz(raidz, children) => smallest(children).saturating_mul(raidz.children() as u64),
            Body::Draid(draid, children) => draid.top_asize(smallest(children)),
            Body::DistributedSpare(_) | Body::Indirect | Body::Hole => 0,
        }
    }
}

fn check_size(psize: Psize) -> Result<(), VdevError> {
    if (1..=MAX_BLOCK).contains(&psize.0) { Ok(()) } else { Err(VdevError::Size(psize)) }
}

/// Makes vdevs from their configuration.
struct Builder<'a> {
    devices: &'a HashMap<VdevGuid, Arc<dyn Device>>,
    reflow: ReflowInfo,
    /// What is remembered of leaves of an earlier tree.
    memories: HashMap<VdevGuid, Arc<Memory>>,
    /// And of its flushes.
    losses: Arc<Mutex<Losses>>,
    listener: Listener,
}

impl Builder<'_> {
    fn memory(&self, node: &VdevNode) -> Arc<Memory> {
        self.memories.get(&node.guid).cloned().unwrap_or_default()
    }

    fn top(&self, id: VdevId, node: &VdevNode) -> Result<Top, VdevError> {
        let ashift = node.ashift.unwrap_or(Ashift(9));
        let vdev = self.vdev(node, ashift, node.asize, 0)?;
        // Labels may be older than the vdev's last growth; what the devices offer is then more.
        let limit = node.asize.max(vdev.offered());
        Ok(Top { id, vdev, ashift, limit, indirect: RwLock::default() })
    }

    /// `needed` is the allocatable space that the vdev above relies on.
    fn vdev(&self, node: &VdevNode, ashift: Ashift, needed: u64, depth: usize) -> Result<Vdev, VdevError> {
        let bad = |why| VdevError::BadConfig { guid: node.guid, why };
        if depth > DEPTH_MAX {
            return Err(bad("too deep"));
        }
        let needed = needed_of_child(node, needed);
        let children = || -> Result<Vec<Vdev>, VdevError> {
            node.children.iter().map(|child| self.vdev(child, ashift, needed, depth + 1)).collect()
        };
        let body = match node.kind {
            VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare => Body::Mirror(children()?),
            VdevKind::Raidz => {
                let raidz = Raidz::new(node.children.len(), node.nparity, ashift, self.expansion(node));
                Body::Raidz(Box::new(raidz.ok_or(bad("impossible RAID-Z"))?), children()?)
            }
            VdevKind::Draid => Body::Draid(Box::new(draid(node, ashift)?), children()?),
            VdevKind::DistributedSpare => Body::DistributedSpare(Box::new(DistributedSpare {
                draid: node.top_guid.ok_or(bad("distributed spare of nothing"))?,
                index: node.spareid.ok_or(bad("distributed spare without a number"))? as usize,
                standing: Standing::new(node, Some(u64::MAX), 0, self.memory(node)),
            })),
            VdevKind::Indirect => Body::Indirect,
            VdevKind::Hole => Body::Hole,
            VdevKind::Disk | VdevKind::File | VdevKind::Missing | VdevKind::L2cache | VdevKind::Log => {
                let device = self.devices.get(&node.guid).cloned();
                Body::Leaf(Box::new(Leaf::new(node, device, needed, self.memory(node))))
            }
            VdevKind::Root => return Err(bad("a root below the root")),
        };
        Ok(Vdev { body })
    }

    fn expansion(&self, node: &VdevNode) -> Expansion {
        let running = node.raidz_expanding.then_some(ReflowState {
            offset: self.reflow.offset,
            in_scratch: self.reflow.state == ReflowInfo::SCRATCH_VALID,
        });
        Expansion { txgs: node.expand_txgs.clone(), running }
    }
}

fn draid(node: &VdevNode, ashift: Ashift) -> Result<Draid, VdevError> {
    let why = "dRAID without a shape";
    let shape = node.draid.ok_or(VdevError::BadConfig { guid: node.guid, why })?;
    Ok(Draid::new(DraidParams {
        children: node.children.len(),
        ndata: usize::from(shape.ndata),
        nparity: node.nparity,
        nspares: usize::from(shape.nspares),
        ngroups: u64::from(shape.ngroups),
        ashift,
    })?)
}

/// Allocatable bytes that each child of a vdev must have if the vdev itself is to have `needed`.
fn needed_of_child(node: &VdevNode, needed: u64) -> u64 {
    let columns = match node.kind {
        VdevKind::Raidz => node.children.len().saturating_sub(usize::from(node.raidz_expanding)),
        VdevKind::Draid => {
            let spares = node.draid.map_or(0, |shape| usize::from(shape.nspares));
            node.children.len().saturating_sub(spares)
        }
        _ => return needed,
    };
    needed.checked_div(columns as u64).unwrap_or(0)
}

/// The device byte of a byte of a leaf's allocatable space, which may be negative: the boot area.
fn on_device(at: i64) -> Option<DeviceOffset> {
    LABEL_START.checked_add_signed(at).map(DeviceOffset)
}
