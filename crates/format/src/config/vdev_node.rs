//! [`VdevNode`]: a vdev of a configuration, with its children.

use super::fields::{WHAT, owned, required, small};
use crate::names::config as key;
use crate::{Ashift, DecodeError, NvList, ObjectId, Txg, VdevGuid, VdevId};

/// Maximum depth of a vdev tree, root included. Real trees have at most five levels; lists in labels limit the
/// nesting too.
pub(crate) const VDEV_DEPTH_MAX: usize = 16;

/// The type of a vdev in a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VdevKind {
    /// The root of the tree.
    Root,
    /// All children hold the same contents.
    Mirror,
    /// A device and its replacement, during the resilver.
    Replacing,
    /// Columns of data and parity.
    Raidz,
    /// Columns of data and parity, spread over all children by a permutation.
    Draid,
    /// The spare space of a dRAID, used as a device.
    DistributedSpare,
    /// A leaf on a block device.
    Disk,
    /// A leaf on a regular file.
    File,
    /// A placeholder for a device that was not found.
    Missing,
    /// Slot of a top-level vdev that was removed without a mapping.
    Hole,
    /// A failed device and an active hot spare.
    Spare,
    /// A removed top-level vdev, whose contents are mapped to other vdevs.
    Indirect,
    /// A cache device (only in old configurations; newer ones have a separate list).
    L2cache,
    /// A log device (only in old configurations; newer ones have a flag).
    Log,
}

const KIND_NAMES: [(VdevKind, &str); 14] = [
    (VdevKind::Root, "root"),
    (VdevKind::Mirror, "mirror"),
    (VdevKind::Replacing, "replacing"),
    (VdevKind::Raidz, "raidz"),
    (VdevKind::Draid, "draid"),
    (VdevKind::DistributedSpare, "dspare"),
    (VdevKind::Disk, "disk"),
    (VdevKind::File, "file"),
    (VdevKind::Missing, "missing"),
    (VdevKind::Hole, "hole"),
    (VdevKind::Spare, "spare"),
    (VdevKind::Indirect, "indirect"),
    (VdevKind::L2cache, "l2cache"),
    (VdevKind::Log, "log"),
];

impl VdevKind {
    /// The type with this name in configurations.
    pub(crate) fn from_name(name: &str) -> Option<VdevKind> {
        KIND_NAMES.iter().find(|(_, text)| *text == name).map(|(kind, _)| *kind)
    }

    /// The name in the key `type` of configurations.
    pub fn name(self) -> &'static str {
        KIND_NAMES.iter().find(|(kind, _)| *kind == self).map_or("", |(_, text)| text)
    }

    /// True if the vdev is a device or file, not made of other vdevs.
    pub fn is_leaf(self) -> bool {
        matches!(
            self,
            VdevKind::Disk | VdevKind::File | VdevKind::Missing | VdevKind::Hole | VdevKind::DistributedSpare
        )
    }

    /// True if all children hold the same bytes at the same offsets.
    pub(crate) fn is_mirror_like(self) -> bool {
        matches!(self, VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare)
    }
}

/// The parameters of a dRAID besides children and parity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DraidShape {
    /// Number of data columns in a group.
    pub ndata: u8,
    /// Number of distributed spares, up to 100.
    pub nspares: u8,
    /// Number of redundancy groups in one permutation.
    pub ngroups: u32,
}

/// A vdev of a configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct VdevNode {
    /// The type of the vdev.
    pub kind: VdevKind,
    /// Index among its parent's children; DVAs contain that of a top-level vdev.
    pub id: u32,
    /// Guid; 0 only in a hole.
    pub guid: VdevGuid,
    /// Path at which the device was last seen.
    pub path: Option<String>,
    /// Device id given by the system.
    pub devid: Option<String>,
    /// Physical location of the device.
    pub phys_path: Option<String>,
    /// The sysfs path of its slot in an enclosure.
    pub(crate) enc_path: Option<String>,
    /// True if the partition table belongs to the pool.
    pub whole_disk: bool,
    /// Parity columns of raidz and dRAID; 0 elsewhere.
    pub nparity: u8,
    /// Binary logarithm of the sector size of a top-level vdev in bytes.
    pub ashift: Option<Ashift>,
    /// Allocatable bytes of a top-level vdev, 0 elsewhere.
    pub asize: u64,
    /// Minimum allocation in bytes, if recorded.
    pub(crate) min_alloc: Option<u64>,
    /// Object id of the array of the metaslabs' space maps; 0: no blocks
    /// are allocated on the vdev yet.
    pub metaslab_array: ObjectId,
    /// Binary logarithm of the size of a metaslab in bytes.
    pub metaslab_shift: u32,
    /// The vdev is a separate intent log device.
    pub is_log: bool,
    /// The leaf is an active hot spare.
    pub is_spare: bool,
    /// The vdev is being removed: its data is evacuated.
    pub removing: bool,
    /// True if no new blocks are allocated here.
    pub non_allocating: bool,
    /// An administrator took the leaf offline.
    pub offline: bool,
    /// The leaf is persistently faulted.
    pub faulted: bool,
    /// The leaf is persistently degraded.
    pub degraded: bool,
    /// The device was pulled from the machine.
    pub removed: bool,
    /// The spare is detached when the original device is resilvered.
    pub unspare: bool,
    /// The device was missing when the configuration was written.
    pub not_present: bool,
    /// The top-level slot is empty since its vdev was removed.
    pub(crate) is_hole: bool,
    /// Object id of the space map of missed txgs; 0: there is none.
    pub dtl: ObjectId,
    /// Txg in which it was added.
    pub create_txg: Txg,
    /// If not 0, a resilver is in progress since this txg; older contents are not reliable.
    pub resilver_txg: Txg,
    /// If not 0, a rebuild is in progress since this txg; older contents are not reliable.
    pub rebuild_txg: Txg,
    /// The resilver of this leaf starts after the running one.
    pub resilver_defer: bool,
    /// A raidz expansion is running.
    pub raidz_expanding: bool,
    /// For each finished raidz expansion, the first birth txg of blocks with the new width, ascending.
    pub expand_txgs: Vec<Txg>,
    /// The shape of a dRAID vdev.
    pub draid: Option<DraidShape>,
    /// Index of a distributed spare in its dRAID.
    pub spareid: Option<u32>,
    /// Guid of a distributed spare's dRAID; newer software writes it in every node.
    pub top_guid: Option<VdevGuid>,
    /// Object id of the mapping of a removed vdev; 0: there is none.
    pub indirect_object: ObjectId,
    /// Object id of the births of a removed vdev; 0: there is none.
    pub indirect_births: ObjectId,
    /// The vdev that was removed before this one.
    pub prev_indirect_vdev: Option<VdevId>,
    /// Object id of a top-level vdev's ZAP; 0: there is none.
    pub zap_top: ObjectId,
    /// Object id of a leaf's ZAP; 0: there is none.
    pub zap_leaf: ObjectId,
    /// Object id of the root's ZAP; 0: there is none.
    pub zap_root: ObjectId,
    /// Why a leaf is persistently faulted: `external` or `err_exceeded`.
    pub aux_state: Option<String>,
    /// Guid before a split, while the split is in progress.
    pub(crate) orig_guid: Option<VdevGuid>,
    /// Children, in order.
    pub children: Vec<VdevNode>,
}

impl VdevNode {
    /// A vdev of this type and guid, with default values in all other fields.
    pub fn new(kind: VdevKind, guid: VdevGuid) -> VdevNode {
        VdevNode {
            kind,
            id: 0,
            guid,
            path: None,
            devid: None,
            phys_path: None,
            enc_path: None,
            whole_disk: false,
            nparity: 0,
            ashift: None,
            asize: 0,
            min_alloc: None,
            metaslab_array: ObjectId(0),
            metaslab_shift: 0,
            is_log: false,
            is_spare: false,
            removing: false,
            non_allocating: false,
            offline: false,
            faulted: false,
            degraded: false,
            removed: false,
            unspare: false,
            not_present: false,
            is_hole: kind == VdevKind::Hole,
            dtl: ObjectId(0),
            create_txg: Txg(0),
            resilver_txg: Txg(0),
            rebuild_txg: Txg(0),
            resilver_defer: false,
            raidz_expanding: false,
            expand_txgs: Vec::new(),
            draid: None,
            spareid: None,
            top_guid: None,
            indirect_object: ObjectId(0),
            indirect_births: ObjectId(0),
            prev_indirect_vdev: None,
            zap_top: ObjectId(0),
            zap_leaf: ObjectId(0),
            zap_root: ObjectId(0),
            aux_state: None,
            orig_guid: None,
            children: Vec::new(),
        }
    }

    /// Gives what belongs to a top-level vdev, whatever stands in its slot, to another vdev: space, sectors, class
    /// and ZAP.
    pub fn hand_over_slot(&mut self, to: &mut VdevNode) {
        (to.ashift, to.asize, to.min_alloc) = (self.ashift.take(), self.asize, self.min_alloc.take());
        (to.metaslab_array, to.metaslab_shift) = (self.metaslab_array, self.metaslab_shift);
        (to.is_log, to.removing, to.non_allocating) = (self.is_log, self.removing, self.non_allocating);
        to.zap_top = self.zap_top;
        (self.asize, self.metaslab_array, self.metaslab_shift) = (0, ObjectId(0), 0);
        (self.is_log, self.removing, self.non_allocating) = (false, false, false);
        self.zap_top = ObjectId(0);
    }

    /// Decodes and checks a tree. Its top may be a root, a top-level vdev, or an entry of the lists of spares and
    /// cache devices.
    ///
    /// # Errors
    /// [`DecodeError::Missing`] or [`DecodeError::Field`] names the key that is absent or out of range;
    /// [`DecodeError::Invalid`] if vdevs contradict each other.
    pub fn from_nvlist(list: &NvList) -> Result<VdevNode, DecodeError> {
        let tree = VdevNode::read(list, 1)?;
        let mut guids: Vec<u64> = tree.walk().map(|node| node.guid.0).filter(|guid| *guid != 0).collect();
        guids.sort_unstable();
        match guids.windows(2).find(|pair| pair.first() == pair.last()) {
            Some(twice) => {
                Err(DecodeError::field(WHAT, "guid of two vdevs", twice.first().copied().unwrap_or(0)))
            }
            None => Ok(tree),
        }
    }

    /// Makes a leaf from the label of a spare or cache device, which has no tree. Its path decides whether it
    /// counts as a disk or a file.
    ///
    /// # Errors
    /// As [`VdevNode::from_nvlist`].
    pub(super) fn from_aux_label(list: &NvList) -> Result<VdevNode, DecodeError> {
        let is_disk = list.string_bytes(key::PATH).is_some_and(|path| path.starts_with(b"/dev/"));
        let mut leaf = list.clone();
        leaf.set(key::TYPE, if is_disk { "disk" } else { "file" });
        VdevNode::read(&leaf, 1)
    }

    fn read(list: &NvList, depth: usize) -> Result<VdevNode, DecodeError> {
        if depth > VDEV_DEPTH_MAX {
            return Err(DecodeError::field(WHAT, "depth", depth as u64));
        }
        let kind = list.str(key::TYPE).and_then(VdevKind::from_name);
        let kind = kind.ok_or(DecodeError::invalid(WHAT, "vdev of no known type"))?;
        let node = VdevNode::read_fields(list, kind, read_children(list, depth)?)?;
        node.check()?;
        Ok(node)
    }

    fn read_fields(list: &NvList, kind: VdevKind, children: Vec<VdevNode>) -> Result<VdevNode, DecodeError> {
        let number = |key: &str| list.u64(key).unwrap_or(0);
        let flag = |key: &str| number(key) != 0;
        let object = |key: &str| ObjectId(number(key));
        Ok(VdevNode {
            kind,
            id: small(key::ID, number(key::ID))?,
            guid: VdevGuid(number(key::GUID)),
            path: owned(list, key::PATH),
            devid: owned(list, key::DEVID),
            phys_path: owned(list, key::PHYS_PATH),
            enc_path: owned(list, key::ENC_PATH),
            whole_disk: flag(key::WHOLE_DISK),
            nparity: read_parity(list, kind)?,
            ashift: read_ashift(number(key::ASHIFT))?,
            asize: number(key::ASIZE),
            min_alloc: list.u64(key::MIN_ALLOC),
            metaslab_array: object(key::METASLAB_ARRAY),
            metaslab_shift: read_metaslab_shift(number(key::METASLAB_SHIFT))?,
            is_log: flag(key::IS_LOG),
            is_spare: flag(key::IS_SPARE),
            removing: flag(key::REMOVING),
            non_allocating: flag(key::NON_ALLOCATING),
            offline: flag(key::OFFLINE),
            faulted: flag(key::FAULTED),
            degraded: flag(key::DEGRADED),
            removed: flag(key::REMOVED),
            unspare: flag(key::UNSPARE),
            not_present: flag(key::NOT_PRESENT),
            is_hole: flag(key::IS_HOLE),
            dtl: object(key::DTL),
            create_txg: Txg(number(key::CREATE_TXG)),
            resilver_txg: Txg(number(key::RESILVER_TXG)),
            rebuild_txg: Txg(number(key::REBUILD_TXG)),
            resilver_defer: list.flag(key::RESILVER_DEFER),
            raidz_expanding: list.flag(key::RAIDZ_EXPANDING),
            expand_txgs: list.u64s(key::RAIDZ_EXPAND_TXGS).unwrap_or(&[]).iter().map(|t| Txg(*t)).collect(),
            draid: if kind == VdevKind::Draid { Some(read_draid(list)?) } else { None },
            spareid: list.u64(key::SPAREID).map(|n| small(key::SPAREID, n)).transpose()?,
            top_guid: list.u64(key::TOP_GUID).map(VdevGuid),
            indirect_object: object(key::INDIRECT_OBJECT),
            indirect_births: object(key::INDIRECT_BIRTHS),
            prev_indirect_vdev: read_previous(list)?,
            zap_top: object(key::VDEV_ZAP_TOP),
            zap_leaf: object(key::VDEV_ZAP_LEAF),
            zap_root: object(key::VDEV_ZAP_ROOT),
            aux_state: owned(list, key::AUX_STATE),
            orig_guid: list.u64(key::ORIG_GUID).map(VdevGuid),
            children,
        })
    }

    fn check(&self) -> Result<(), DecodeError> {
        if self.guid.0 == 0 && self.kind != VdevKind::Hole {
            return Err(DecodeError::field(WHAT, key::GUID, 0u64));
        }
        if self.kind.is_leaf() && !self.children.is_empty() {
            return Err(DecodeError::invalid(WHAT, "a leaf has children"));
        }
        if self.kind.is_mirror_like() && self.children.is_empty() {
            return Err(DecodeError::invalid(WHAT, "a mirror has no children"));
        }
        for (index, child) in self.children.iter().enumerate() {
            if child.id as usize != index {
                return Err(DecodeError::field(WHAT, "id of a vdev at another place", child.id));
            }
        }
        match self.kind {
            VdevKind::Raidz => self.check_raidz(),
            VdevKind::Draid => self.check_draid(),
            _ => Ok(()),
        }
    }

    fn check_raidz(&self) -> Result<(), DecodeError> {
        // The width before all expansions must be sufficient for a data column.
        let grown = self.expand_txgs.len() + usize::from(self.raidz_expanding);
        if self.children.len() > 255 || self.children.len() <= usize::from(self.nparity) + grown {
            return Err(DecodeError::field(WHAT, "children of a raidz", self.children.len() as u64));
        }
        if self.expand_txgs.windows(2).any(|pair| pair.first() >= pair.last()) {
            return Err(DecodeError::invalid(WHAT, "raidz_expand_txgs do not ascend"));
        }
        Ok(())
    }

    fn check_draid(&self) -> Result<(), DecodeError> {
        let Some(shape) = self.draid else { return Ok(()) };
        let bad = |field, value: u64| Err(DecodeError::field(WHAT, field, value));
        let children = self.children.len();
        if !(2..=255).contains(&children) {
            return bad("children of a draid", children as u64);
        }
        let width = usize::from(shape.ndata) + usize::from(self.nparity);
        let disks = children.saturating_sub(usize::from(shape.nspares));
        if shape.ndata == 0 || width > disks {
            return bad(key::DRAID_NDATA, shape.ndata.into());
        }
        if shape.nspares > 100 {
            return bad(key::DRAID_NSPARES, shape.nspares.into());
        }
        if shape.ngroups == 0 || !(u64::from(shape.ngroups) * width as u64).is_multiple_of(disks as u64) {
            return bad(key::DRAID_NGROUPS, shape.ngroups.into());
        }
        Ok(())
    }

    /// This node and its descendants, parents first.
    pub fn walk(&self) -> impl Iterator<Item = &VdevNode> {
        let mut stack = vec![self];
        std::iter::from_fn(move || {
            let node = stack.pop()?;
            stack.extend(node.children.iter().rev());
            Some(node)
        })
    }

    /// The leaves, in order, including holes and placeholders.
    pub fn leaves(&self) -> impl Iterator<Item = &VdevNode> {
        self.walk().filter(|node| node.children.is_empty())
    }

    /// The node with this guid.
    pub fn find(&self, guid: VdevGuid) -> Option<&VdevNode> {
        self.walk().find(|node| node.guid == guid)
    }

    /// Sum of the guids of this node and its descendants; an uberblock records that of the root.
    pub fn guid_sum(&self) -> u64 {
        self.walk().fold(0, |sum, node| sum.wrapping_add(node.guid.0))
    }

    /// Number of metaslabs of a top-level vdev.
    pub fn metaslabs(&self) -> u64 {
        if self.metaslab_shift == 0 { 0 } else { self.asize >> self.metaslab_shift }
    }
}

fn read_children(list: &NvList, depth: usize) -> Result<Vec<VdevNode>, DecodeError> {
    list.lists(key::CHILDREN).unwrap_or(&[]).iter().map(|child| VdevNode::read(child, depth + 1)).collect()
}

fn read_ashift(value: u64) -> Result<Option<Ashift>, DecodeError> {
    match value {
        0 => Ok(None),
        9..=16 => Ok(Some(Ashift(value as u8))),
        _ => Err(DecodeError::field(WHAT, key::ASHIFT, value)),
    }
}

fn read_metaslab_shift(value: u64) -> Result<u32, DecodeError> {
    match value {
        0 | 9..=63 => Ok(value as u32),
        _ => Err(DecodeError::field(WHAT, key::METASLAB_SHIFT, value)),
    }
}

fn read_parity(list: &NvList, kind: VdevKind) -> Result<u8, DecodeError> {
    if !matches!(kind, VdevKind::Raidz | VdevKind::Draid) {
        return Ok(0);
    }
    // Early pools had single parity only and did not record it.
    let parity = list.u64(key::NPARITY).unwrap_or(1);
    if (1..=3).contains(&parity) {
        Ok(parity as u8)
    } else {
        Err(DecodeError::field(WHAT, key::NPARITY, parity))
    }
}

fn read_draid(list: &NvList) -> Result<DraidShape, DecodeError> {
    if let Some(n) = list.u64(key::DRAID_NCHILDREN) {
        // Failed here: failure domains are a later format with another computation of addresses.
        return Err(DecodeError::field(WHAT, key::DRAID_NCHILDREN, n));
    }
    let byte = |key: &'static str| {
        let value = required(list.u64(key), key)?;
        u8::try_from(value).map_err(|_| DecodeError::field(WHAT, key, value))
    };
    Ok(DraidShape {
        ndata: byte(key::DRAID_NDATA)?,
        nspares: byte(key::DRAID_NSPARES)?,
        ngroups: small(key::DRAID_NGROUPS, required(list.u64(key::DRAID_NGROUPS), key::DRAID_NGROUPS)?)?,
    })
}

fn read_previous(list: &NvList) -> Result<Option<VdevId>, DecodeError> {
    match list.u64(key::PREV_INDIRECT_VDEV) {
        None | Some(u64::MAX) => Ok(None),
        Some(id) => Ok(Some(VdevId(small("prev_indirect_vdev", id)?))),
    }
}
