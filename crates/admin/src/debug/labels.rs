//! The labels of a device, valid or not: the data of `zdb -l`.

use format::config::PoolConfig;
use format::l2arc::{CacheHeader, HEADER_SIZE};
use format::label::{
    CONFIG_NVLIST_MAX, CONFIG_OFFSET, LABELS, RING_OFFSET, RING_SIZE, label_offset, ring_slot_size,
};
use format::nvlist::NvList;
use format::uberblock::Uberblock;
use format::units::LABEL_START;
use format::{Ashift, DeviceOffset};
use std::path::Path;
use vdev::device::file::{Access, FileDevice};
use vdev::label::{Probe, probe};
use vdev::{Device, DeviceError};

/// A slot of an uberblock ring.
#[derive(Debug, Clone, PartialEq)]
pub struct RingSlot {
    /// Index of the label, 0 to 3.
    pub label: usize,
    /// Index of the slot in the ring.
    pub slot: usize,
    /// Contents of the slot, if it can be decoded as an uberblock; its checksum may be wrong.
    pub uberblock: Option<Uberblock>,
    /// True if the checksum is right.
    pub is_verified: bool,
}

/// The labels of a device.
#[derive(Debug, Clone)]
pub struct Labels {
    /// The parts with a valid checksum.
    pub probe: Probe,
    /// All slots of all readable labels, by label and slot.
    pub ring: Vec<RingSlot>,
    /// Header of a cache device (L2ARC).
    pub cache: Option<CacheHeader>,
    /// Which labels could be read, whatever they contain.
    pub readable: [bool; LABELS],
    /// Configurations with a wrong checksum, by label. For display only.
    pub unsound: [Option<PoolConfig>; LABELS],
}

impl Labels {
    /// The configuration in a label, whether or not its checksum is right.
    pub fn config(&self, label: usize) -> Option<&PoolConfig> {
        let sound = self.probe.config_of_label(label);
        sound.or_else(|| self.unsound.get(label).and_then(Option::as_ref))
    }
}

/// The labels, uberblocks and cache header of a device or image file.
///
/// # Errors
/// The device cannot be opened or read.
pub fn labels(path: &Path) -> Result<Labels, DeviceError> {
    let device = FileDevice::open(path, Access::Auto)?;
    let probe = probe(&device);
    let mut labels = Labels {
        ring: Vec::new(),
        cache: None,
        readable: [false; LABELS],
        unsound: Default::default(),
        probe,
    };
    if device.size() < format::label::DEVICE_MIN {
        return Ok(labels);
    }
    let ashift = |config: &format::config::PoolConfig| config.vdev_tree.walk().find_map(|node| node.ashift);
    let any = labels.probe.configs.iter().find_map(|found| ashift(&found.config));
    for label in 0..LABELS {
        let own = labels.probe.config_of_label(label).and_then(ashift);
        let slots = read_ring(&device, label, own.or(any).unwrap_or(Ashift(10)), &labels.probe);
        if let Some(readable) = labels.readable.get_mut(label) {
            *readable = slots.is_some();
        }
        labels.ring.extend(slots.into_iter().flatten());
        if labels.probe.config_of_label(label).is_none()
            && let Some(unsound) = labels.unsound.get_mut(label)
        {
            *unsound = unsound_config(&device, label);
        }
    }
    let mut header = vec![0; HEADER_SIZE];
    if device.read_at(&mut header, DeviceOffset(LABEL_START)).is_ok() {
        labels.cache = CacheHeader::decode(&header).ok();
    }
    Ok(labels)
}

/// Decodes the configuration in a label without verifying its checksum.
fn unsound_config(device: &dyn Device, label: usize) -> Option<PoolConfig> {
    let mut packed = vec![0; CONFIG_NVLIST_MAX];
    let at = DeviceOffset(label_offset(label, device.size()).0 + CONFIG_OFFSET);
    device.read_at(&mut packed, at).ok()?;
    PoolConfig::from_nvlist(&NvList::decode(&packed).ok()?).ok()
}

fn read_ring(device: &dyn Device, label: usize, ashift: Ashift, probe: &Probe) -> Option<Vec<RingSlot>> {
    let mut ring = vec![0; RING_SIZE];
    let at = DeviceOffset(label_offset(label, device.size()).0 + RING_OFFSET);
    device.read_at(&mut ring, at).ok()?;
    let slots = ring.chunks_exact(ring_slot_size(ashift)).enumerate().map(|(slot, bytes)| RingSlot {
        label,
        slot,
        uberblock: Uberblock::decode(bytes).ok(),
        is_verified: probe.uberblocks.iter().any(|found| found.label == label && found.slot == slot),
    });
    Some(slots.collect())
}
