//! Reading the four labels of a device: configurations and uberblocks (docs/on-disk/11-labels-config.md).
//!
//! # What always holds
//! - No bytes are decoded before their checksum is verified: a magic number alone proves nothing.
//! - Contents that two labels share are hashed once, but each label's own trailer is checked for its place.
//! - Labels are read independently; damage to one never hides another.
//! - Both byte orders are understood. The configuration itself is always big-endian.
//!
//! # Order
//! Configurations first, because the size of an uberblock slot follows from the ashift in them. A label
//! without a configuration uses the ashift of the others; if there is none at all, every slot size is tried.
//!
//! Tests: `tests/it/labels.rs` (golden pools), `tests/it/fuzz.rs`.

use crate::device::{Device, DeviceError};
use codec::checksum::{BodySum, verify_trailer};
use format::config::PoolConfig;
use format::label::{
    BOOT_ENV_OFFSET, BOOT_ENV_SIZE, CONFIG_NVLIST_MAX, CONFIG_OFFSET, CONFIG_SIZE, DEVICE_MIN, LABELS,
    RING_OFFSET, RING_SIZE, Trailer, label_offset, ring_slot_size, verifier,
};
use format::uberblock::Uberblock;
use format::{Ashift, DecodeError, DeviceOffset, Endian, NvList, Txg, VdevGuid};
use std::collections::HashMap;
use std::ops::Range;

/// Ashifts with different slot sizes.
const SLOT_ASHIFTS: [Ashift; 4] = [Ashift(10), Ashift(11), Ashift(12), Ashift(13)];

/// Why a label, or a part of it, is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LabelProblem {
    /// The device is too small to hold four labels.
    #[error("it has {size} bytes, and no leaf is smaller than 64 MiB: its end is missing")]
    TooSmall {
        /// Bytes of the whole device.
        size: u64,
    },
    /// The device could not be read there.
    #[error("label {label}: {cause}")]
    Read {
        /// Number of the label, 0 to 3.
        label: usize,
        /// The error of the decoder.
        cause: DeviceError,
    },
    /// There is no trailer: the label was never written or was overwritten.
    #[error("label {label}: no configuration")]
    Absent {
        /// Number of the label, 0 to 3.
        label: usize,
    },
    /// The configuration's checksum is wrong.
    #[error("label {label}: wrong checksum")]
    Checksum {
        /// Number of the label, 0 to 3.
        label: usize,
    },
    /// The configuration is malformed, though its checksum is right.
    #[error("label {label}: {cause}")]
    Config {
        /// Number of the label, 0 to 3.
        label: usize,
        /// The error of the decoder.
        cause: DecodeError,
    },
    /// An uberblock is malformed, though its checksum is right.
    #[error("label {label}, uberblock slot {slot}: {cause}")]
    Uberblock {
        /// Number of the label, 0 to 3.
        label: usize,
        /// Number of the slot in the ring of uberblocks.
        slot: usize,
        /// The error of the decoder.
        cause: DecodeError,
    },
}

/// A valid uberblock and its location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundUberblock {
    /// Number of the label, 0 to 3.
    pub label: usize,
    /// Number of the slot in the ring.
    pub slot: usize,
    /// First byte on the device.
    pub offset: DeviceOffset,
    /// The uberblock, with a verified checksum.
    pub uberblock: Uberblock,
}

/// A configuration and the label that holds it.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundConfig {
    /// Number of the label, 0 to 3.
    pub label: usize,
    /// The configuration; its list is in [`PoolConfig::raw`].
    pub config: PoolConfig,
}

/// The valid contents of the labels of a device.
#[derive(Debug, Clone, Default)]
pub struct Probe {
    /// Configurations with a right checksum, by label.
    pub configs: Vec<FoundConfig>,
    /// Valid uberblocks, by label and slot.
    pub uberblocks: Vec<FoundUberblock>,
    /// Parts that are absent or damaged.
    pub problems: Vec<LabelProblem>,
    /// Bytes of the whole device.
    pub(crate) device_size: u64,
}

impl Probe {
    /// Whether the device has no part of a ZFS label.
    pub fn is_empty(&self) -> bool {
        self.configs.is_empty() && self.uberblocks.is_empty()
    }

    /// The configuration with the highest txg; of equal ones that of the first label.
    pub fn newest_config(&self) -> Option<&PoolConfig> {
        self.config_at_most(Txg(u64::MAX))
    }

    /// The newest configuration that is not newer than `txg`; of equal ones that of the first label.
    pub fn config_at_most(&self, txg: Txg) -> Option<&PoolConfig> {
        let fitting = self.configs.iter().map(|found| &found.config).filter(|config| config.txg <= txg);
        fitting.rev().max_by_key(|config| config.txg)
    }

    /// Guid of the leaf, from its newest configuration.
    pub fn guid(&self) -> Option<VdevGuid> {
        self.newest_config()?.guid
    }

    /// The uberblock with the highest rank. It may be a leftover of an older pool: compare
    /// [`Uberblock::guid_sum`] where that matters.
    pub fn newest_uberblock(&self) -> Option<&FoundUberblock> {
        let synced = self.uberblocks.iter().filter(|found| found.uberblock.txg.0 != 0);
        synced.max_by_key(|found| found.uberblock.rank())
    }

    /// The configuration of one label.
    pub fn config_of_label(&self, label: usize) -> Option<&PoolConfig> {
        self.configs.iter().find(|found| found.label == label).map(|found| &found.config)
    }
}

/// Reads the four labels of a device.
pub fn probe(device: &dyn Device) -> Probe {
    let mut probe = probe_configs(device);
    if probe.device_size < DEVICE_MIN {
        return probe;
    }
    let ashift_of = |found: &FoundConfig| found.config.vdev_tree.walk().find_map(|node| node.ashift);
    let any = probe.configs.iter().find_map(ashift_of);
    let mut above = Region::default();
    for label in 0..LABELS {
        let own = probe.configs.iter().find(|found| found.label == label).and_then(ashift_of);
        match own.or(any) {
            Some(ashift) => read_ring(device, label, &[ashift], &mut above, &mut probe),
            None => read_ring(device, label, &SLOT_ASHIFTS, &mut above, &mut probe),
        }
    }
    probe
}

/// Reads the configurations of the four labels, without the uberblocks.
pub(crate) fn probe_configs(device: &dyn Device) -> Probe {
    let size = device.size();
    let mut probe = Probe { device_size: size, ..Probe::default() };
    if size < DEVICE_MIN {
        probe.problems.push(LabelProblem::TooSmall { size });
        return probe;
    }
    let mut above = Region::default();
    for label in 0..LABELS {
        match read_config(device, label, &mut above) {
            Ok(config) => probe.configs.push(FoundConfig { label, config }),
            Err(problem) => probe.problems.push(problem),
        }
    }
    probe
}

/// A part of the label that was read last: the next label usually has the same contents.
#[derive(Default)]
struct Region {
    bytes: Vec<u8>,
    /// Sums of the parts hashed so far, by first byte and length.
    sums: HashMap<(usize, usize), BodySum>,
}

impl Region {
    /// Reads the part of `size` bytes at `offset` of a label.
    fn read(device: &dyn Device, label: usize, offset: u64, size: usize) -> Result<Region, LabelProblem> {
        let at = DeviceOffset(label_offset(label, device.size()).0 + offset);
        let mut bytes = vec![0; size];
        device.read_at(&mut bytes, at).map_err(|cause| LabelProblem::Read { label, cause })?;
        Ok(Region { bytes, sums: HashMap::new() })
    }

    /// Whether a range ends in a trailer with the right checksum for its place.
    fn is_valid(&mut self, range: Range<usize>, at: DeviceOffset, above: &Region) -> bool {
        let Some((body, trailer)) = self.bytes.get(range.clone()).and_then(<[u8]>::split_last_chunk) else {
            return false;
        };
        if Trailer::decode(trailer).is_err() {
            return false;
        }
        let key = (range.start, range.len());
        let known = above
            .sums
            .get(&key)
            .filter(|_| above.bytes.get(range).and_then(|same| same.get(..body.len())) == Some(body));
        let sum = known.cloned().unwrap_or_else(|| BodySum::new(&[body]));
        let is_right = sum.verify(trailer, verifier(at)).is_some();
        self.sums.insert(key, sum);
        is_right
    }
}

/// The configuration in one of the front labels of a device that is too small for a leaf, such as a truncated
/// image.
pub(crate) fn front_config(device: &dyn Device) -> Option<PoolConfig> {
    (0..2).find_map(|label| read_config(device, label, &mut Region::default()).ok())
}

/// Whether a device may be a leaf: a quick look for the trailer of a configuration at its labels.
pub fn looks_like_leaf(device: &dyn Device) -> bool {
    if device.size() < DEVICE_MIN {
        return false;
    }
    let mut end = vec![0; 512];
    (0..LABELS).any(|label| {
        let base = label_offset(label, device.size()).0;
        // The trailer of the configuration and that of the last slot of the ring.
        [CONFIG_OFFSET + CONFIG_SIZE as u64, RING_OFFSET + RING_SIZE as u64].iter().any(|region_end| {
            let at = DeviceOffset(base + region_end - end.len() as u64);
            device.read_at(&mut end, at).is_ok() && Trailer::decode(&end).is_ok()
        })
    })
}

/// Reads the configuration of one label into `above`, which holds that of the previous label.
fn read_config(device: &dyn Device, label: usize, above: &mut Region) -> Result<PoolConfig, LabelProblem> {
    let at = DeviceOffset(label_offset(label, device.size()).0 + CONFIG_OFFSET);
    let mut region = Region::read(device, label, CONFIG_OFFSET, CONFIG_SIZE)?;
    if Trailer::decode(&region.bytes).is_err() {
        return Err(LabelProblem::Absent { label });
    }
    let is_valid = region.is_valid(0..CONFIG_SIZE, at, above);
    *above = region;
    if !is_valid {
        return Err(LabelProblem::Checksum { label });
    }
    let packed = above.bytes.get(..CONFIG_NVLIST_MAX).unwrap_or(&above.bytes);
    let list = NvList::decode(packed).map_err(|cause| LabelProblem::Config { label, cause })?;
    PoolConfig::from_nvlist(&list).map_err(|cause| LabelProblem::Config { label, cause })
}

/// Reads the valid uberblocks of one label's ring into `above`, which holds that of the previous label.
fn read_ring(device: &dyn Device, label: usize, ashifts: &[Ashift], above: &mut Region, probe: &mut Probe) {
    let at = label_offset(label, device.size()).0 + RING_OFFSET;
    let mut ring = match Region::read(device, label, RING_OFFSET, RING_SIZE) {
        Ok(ring) => ring,
        Err(problem) => return probe.problems.push(problem),
    };
    for ashift in ashifts {
        let slot_size = ring_slot_size(*ashift);
        for slot in 0..RING_SIZE / slot_size {
            let start = slot * slot_size;
            let offset = DeviceOffset(at + start as u64);
            if !ring.is_valid(start..start + slot_size, offset, above) {
                continue;
            }
            match Uberblock::decode(ring.bytes.get(start..).unwrap_or_default()) {
                Ok(uberblock) => {
                    probe.uberblocks.push(FoundUberblock { label, slot, offset, uberblock });
                }
                Err(cause) => probe.problems.push(LabelProblem::Uberblock { label, slot, cause }),
            }
        }
    }
    *above = ring;
}

/// The boot environment in a label: its payload without the trailer, and the byte order of its writer. `None`
/// if there is none or its checksum is wrong.
///
/// # Errors
/// [`DeviceError`] if the device cannot be read there.
pub fn boot_env(device: &dyn Device, label: usize) -> Result<Option<(Vec<u8>, Endian)>, DeviceError> {
    let at = DeviceOffset(label_offset(label, device.size()).0 + BOOT_ENV_OFFSET);
    let mut region = vec![0; BOOT_ENV_SIZE];
    device.read_at(&mut region, at)?;
    let order = verify_trailer(&region, verifier(at)).ok().flatten();
    region.truncate(BOOT_ENV_SIZE - format::label::TRAILER_SIZE);
    Ok(order.map(|order| (region, order)))
}
