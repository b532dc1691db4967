//! The vdevs of a pool as a tree, and its queries that read no device.

use super::block::Fault;
use super::error::{VdevError, check_size};
use super::indirect_map::IndirectMapping;
use super::leaf::{Leaf, LeafState};
use super::range_set::RangeSet;
use super::stats::Op;
use crate::device::Device;
use crate::geometry::{Draid, Raidz, mirror_asize};
use crate::sync::{lock, read, write};
use format::config::VdevNode;
use format::uberblock::ReflowInfo;
use format::{Ashift, Asize, Dva, Psize, Txg, VdevGuid, VdevId};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock};

/// Most levels of the tree, and most removals that a removed vdev's data have moved through.
pub(super) const DEPTH_MAX: usize = 32;

/// Receives faults of leaves on the thread that finds them. Its calls must not block.
pub trait FaultListener: Send + Sync + std::fmt::Debug {
    /// Called when a leaf failed or returned wrong bytes at `fault.offset`; `bytes` is the size of the whole
    /// block.
    fn fault(&self, tree: &VdevTree, op: Op, fault: &Fault, bytes: u64);
}

/// The listener for faults, if one was set; shared by a tree and the trees that are rebuilt from it.
pub(super) type Listener = Arc<OnceLock<Arc<dyn FaultListener>>>;

/// Flushes that lost writes, numbered in the order in which they failed.
#[derive(Debug, Default)]
pub(super) struct Losses {
    pub(super) count: u64,
    /// Number of the last one that may have cost a vdev a block.
    pub(super) of_tops: BTreeMap<VdevId, u64>,
    /// Number of the last one of a leaf.
    pub(super) of_leaves: BTreeMap<u64, u64>,
}

/// A vdev and its children.
#[derive(Debug)]
pub(super) struct Vdev {
    pub(super) body: Body,
}

#[derive(Debug)]
pub(super) enum Body {
    Leaf(Box<Leaf>),
    /// Children that hold the same bytes: mirror, replacing, spare.
    Mirror(Vec<Vdev>),
    Raidz(Box<Raidz>, Vec<Vdev>),
    Draid(Box<Draid>, Vec<Vdev>),
    /// Spare space of a dRAID, used as a leaf.
    DistributedSpare(Box<DistributedSpare>),
    /// A removed vdev: its mapping leads to other vdevs.
    Indirect,
    /// A slot without a vdev.
    Hole,
}

/// Spare space of a dRAID in use.
#[derive(Debug)]
pub(super) struct DistributedSpare {
    /// Guid of the dRAID vdev that the spare is part of.
    pub(super) draid: VdevGuid,
    /// Number of the spare in it.
    pub(super) index: usize,
    pub(super) state: LeafState,
}

impl Vdev {
    pub(super) fn children(&self) -> &[Vdev] {
        match &self.body {
            Body::Mirror(children) | Body::Raidz(_, children) | Body::Draid(_, children) => children,
            _ => &[],
        }
    }

    pub(super) fn states<'a>(&'a self, out: &mut Vec<&'a LeafState>) {
        match &self.body {
            Body::Leaf(leaf) => out.push(&leaf.state),
            Body::DistributedSpare(spare) => out.push(&spare.state),
            _ => self.children().iter().for_each(|child| child.states(out)),
        }
    }

    pub(super) fn leaves<'a>(&'a self, out: &mut Vec<&'a Leaf>) {
        if let Body::Leaf(leaf) = &self.body {
            out.push(leaf);
        }
        for child in self.children() {
            child.leaves(out);
        }
    }
}

/// A top-level vdev and the space that block pointers can address on it.
#[derive(Debug)]
pub(super) struct Top {
    pub(super) id: VdevId,
    pub(super) vdev: Vdev,
    pub(super) ashift: Ashift,
    /// End of the space that block pointers can address, in bytes.
    pub(super) limit: u64,
    pub(super) indirect: RwLock<Option<Arc<IndirectMapping>>>,
}

/// The vdevs of a pool.
#[derive(Debug)]
pub struct VdevTree {
    pub(super) config: VdevNode,
    pub(super) tops: Vec<Top>,
    /// Index of the top-level dRAID with this guid.
    pub(super) draids: HashMap<VdevGuid, usize>,
    /// Progress of an expansion.
    pub(super) reflow: ReflowInfo,
    pub(super) losses: Arc<Mutex<Losses>>,
    pub(super) listener: Listener,
}

impl VdevTree {
    /// The configuration of the tree.
    pub fn config(&self) -> &VdevNode {
        &self.config
    }

    /// Number of top-level slots, holes included.
    pub fn top_count(&self) -> usize {
        self.tops.len()
    }

    /// The top-level vdevs by their numbers in DVAs, with their configuration.
    pub fn tops(&self) -> impl Iterator<Item = (VdevId, &VdevNode)> {
        self.tops.iter().map(|top| top.id).zip(&self.config.children)
    }

    /// The configuration of a top-level vdev.
    pub fn top(&self, vdev: VdevId) -> Option<&VdevNode> {
        self.config.children.get(vdev.0 as usize)
    }

    pub(super) fn find_top(&self, vdev: VdevId) -> Result<&Top, VdevError> {
        match self.tops.get(vdev.0 as usize) {
            Some(top) if !matches!(top.vdev.body, Body::Hole) => Ok(top),
            _ => Err(VdevError::NoVdev { vdev }),
        }
    }

    /// Like [`VdevTree::set_mapping`].
    pub fn set_indirect(&self, vdev: VdevId, mapping: IndirectMapping) {
        self.set_mapping(vdev, Arc::new(mapping));
    }

    /// Sets the mapping of a removed vdev, or of one that is being removed: the copies made so far.
    pub fn set_mapping(&self, vdev: VdevId, mapping: Arc<IndirectMapping>) {
        if let Some(top) = self.tops.get(vdev.0 as usize) {
            *write(&top.indirect) = Some(mapping);
        }
    }

    /// The mapping of a removed vdev, or of one that is being removed; `None` until it is set.
    pub fn indirect(&self, vdev: VdevId) -> Option<Arc<IndirectMapping>> {
        let top = self.tops.get(vdev.0 as usize)?;
        read(&top.indirect).clone()
    }

    /// Sets the txgs that a leaf missed: blocks born in these are read from it last.
    pub fn set_dtl(&self, leaf: VdevGuid, txgs: RangeSet) {
        let mut states = Vec::new();
        self.tops.iter().for_each(|top| top.vdev.states(&mut states));
        if let Some(state) = states.iter().find(|state| state.guid == leaf) {
            state.set_missed(txgs);
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

    pub(super) fn leaf(&self, guid: VdevGuid) -> Option<&Leaf> {
        let mut leaves = Vec::new();
        self.tops.iter().for_each(|top| top.vdev.leaves(&mut leaves));
        leaves.into_iter().find(|leaf| leaf.guid == guid)
    }

    /// Checks that a DVA is possible: the vdev exists, and the range is aligned and inside it. For a gang
    /// block `psize` is that of the header.
    ///
    /// # Errors
    /// [`VdevError`] with the reason.
    pub fn check(&self, dva: &Dva, psize: Psize) -> Result<(), VdevError> {
        let top = self.find_top(dva.vdev)?;
        check_size(psize)?;
        if !dva.offset.0.is_multiple_of(top.alignment()) {
            return Err(VdevError::Misaligned { vdev: dva.vdev, offset: dva.offset });
        }
        if top.limit == 0 && matches!(top.vdev.body, Body::Leaf(_)) {
            return Ok(()); // Its size is not known: no label of it was found.
        }
        let needed =
            psize.0.next_multiple_of(top.ashift.sector()).max(if dva.gang { 0 } else { dva.asize.0 });
        match dva.offset.0.checked_add(needed) {
            Some(end) if end <= top.limit => Ok(()),
            _ => Err(VdevError::OutOfRange { vdev: dva.vdev, offset: dva.offset, asize: Asize(needed) }),
        }
    }

    pub(super) fn losses(&self) -> MutexGuard<'_, Losses> {
        lock(&self.losses)
    }

    pub(super) fn all_leaf_states(&self) -> Vec<&LeafState> {
        let mut states = Vec::new();
        self.tops.iter().for_each(|top| top.vdev.states(&mut states));
        states
    }

    pub(super) fn state(&self, leaf: VdevGuid) -> Option<&LeafState> {
        self.all_leaf_states().into_iter().find(|state| state.guid == leaf)
    }

    /// Allocated bytes of a block on a top-level vdev. `None`: no such vdev, or the size overflows.
    pub fn psize_to_asize(&self, vdev: VdevId, psize: Psize, birth: Txg) -> Option<Asize> {
        let top = self.find_top(vdev).ok()?;
        top.vdev.asize_of(psize, birth, top.ashift)
    }

    /// Deflation of space on a vdev: the value of 512 allocated bytes, in bytes of a plain sector
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

    /// Alignment of allocations on a top-level vdev, in bytes: a sector, or a dRAID's stripe.
    pub fn alignment(&self, vdev: VdevId) -> Option<u64> {
        Some(self.find_top(vdev).ok()?.alignment())
    }
}

impl Top {
    pub(super) fn alignment(&self) -> u64 {
        match &self.vdev.body {
            Body::Draid(draid, _) => draid.group_width() as u64 * self.ashift.sector(),
            _ => self.ashift.sector(),
        }
    }
}

impl Vdev {
    pub(super) fn has_parity(&self) -> bool {
        matches!(self.body, Body::Raidz(..) | Body::Draid(..)) || self.children().iter().any(Vdev::has_parity)
    }

    pub(super) fn asize_of(&self, psize: Psize, birth: Txg, ashift: Ashift) -> Option<Asize> {
        match &self.body {
            Body::Raidz(raidz, _) => raidz.asize(psize, birth),
            Body::Draid(draid, _) => draid.asize(psize),
            Body::Mirror(children) => children
                .iter()
                .map(|child| child.asize_of(psize, birth, ashift))
                .collect::<Option<Vec<_>>>()?
                .into_iter()
                .max(),
            _ => mirror_asize(psize, ashift.sector()),
        }
    }

    /// Allocatable bytes of this vdev according to its open devices; 0 if none is open.
    pub(super) fn offered(&self) -> u64 {
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
