//! Writing the four labels of a device: configurations, uberblocks, labels of new leaves, removal
//! (docs/on-disk/11-labels-config.md, sections 1 and 4).
//!
//! # What always holds
//! - Each part is written with a trailer that also covers its place, so a misdirected or partial write is not
//!   valid.
//! - The first 8 KiB of a label are for a partition table or boot loader and are never written; the boot
//!   environment only by [`init`] and [`clear`].
//! - Only [`init`] and [`clear`] flush. Otherwise the caller orders writes and flushes so that a crash leaves
//!   a valid pool (docs/on-disk/10-overview.md, section 6).
//!
//! Tests: `tests/it/label_write.rs`.

use crate::device::aligned::AlignedBuf;
use crate::device::{Device, DeviceError, WriteRequest, flush_across, write_across};
use crate::label;
use codec::checksum::BodySum;
use format::config::PoolState;
use format::label::{
    BOOT_ENV_OFFSET, BOOT_ENV_SIZE, CONFIG_NVLIST_MAX, CONFIG_OFFSET, CONFIG_SIZE, DEVICE_MIN, LABEL_SIZE,
    LABELS, RING_OFFSET, RING_SIZE, TRAILER_SIZE, label_offset, ring_slot_size, ring_slots, slot_offset,
    verifier,
};
use format::uberblock::Uberblock;
use format::units::LABEL_START;
use format::{Ashift, DeviceOffset, Endian, NvList, Txg};
use std::borrow::Cow;
use std::io::IoSlice;

/// What follows the contents of a protected range, the largest of which is the ring.
static ZEROS: [u8; RING_SIZE] = [0; RING_SIZE];

/// Why labels could not be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LabelWriteError {
    /// The device is too small for four labels and data between them.
    #[error("{size} bytes are too few for a leaf")]
    TooSmall {
        /// Bytes of the whole device.
        size: u64,
    },
    /// The configuration does not fit into a label: the top-level vdev has too many leaves, or their paths
    /// are too long.
    #[error("a configuration of {len} bytes does not fit into a label")]
    TooLong {
        /// Bytes of the packed list.
        len: usize,
    },
    /// A label could not be written.
    #[error("label {label}: {cause}")]
    Write {
        /// Number of the label, 0 to 3.
        label: usize,
        /// The error of the device.
        #[source]
        cause: DeviceError,
    },
    /// The labels were written, but could not be flushed and may not be durable.
    #[error("labels: {cause}")]
    Flush {
        /// The error of the device.
        #[source]
        cause: DeviceError,
    },
}

/// A configuration as labels contain it, with the hash that the trailers of all labels have in common.
#[derive(Clone)]
pub struct PackedConfig {
    list: Vec<u8>,
    sum: BodySum,
}

impl PackedConfig {
    /// Packs a configuration.
    ///
    /// # Errors
    /// [`LabelWriteError::TooLong`].
    pub fn new(config: &NvList) -> Result<PackedConfig, LabelWriteError> {
        let list = config.encode_xdr();
        if list.len() > CONFIG_NVLIST_MAX {
            return Err(LabelWriteError::TooLong { len: list.len() });
        }
        let sum = BodySum::new(&[&list, zeros_after(&list, CONFIG_SIZE)]);
        Ok(PackedConfig { list, sum })
    }
}

/// Writes configurations, each to the given labels (0 to 3) of its device, on all devices at once. Returns the
/// results in the order of the devices: success if all labels of a device were written. A device whose configuration
/// could not be packed gets that error, and keeps its labels.
///
/// # Errors
/// [`LabelWriteError`]; each label is then the old one, the new one, or not valid.
pub fn write_configs(
    leaves: &[(&dyn Device, &Result<PackedConfig, LabelWriteError>)],
    labels: &[usize],
) -> Vec<Result<(), LabelWriteError>> {
    let mut images = Images::default();
    let mut outcomes = Vec::with_capacity(leaves.len());
    for (leaf, (device, config)) in leaves.iter().enumerate() {
        let config = check_size(*device).and_then(|()| config.as_ref().map_err(Clone::clone));
        outcomes.push(config.map(|PackedConfig { list, sum }| {
            let body = Body { contents: Cow::Borrowed(list), size: CONFIG_SIZE, sum: sum.clone() };
            images.push(leaf, *device, labels, CONFIG_OFFSET, body);
        }));
    }
    for (outcome, written) in outcomes.iter_mut().zip(images.write(leaves.len())) {
        *outcome = std::mem::replace(outcome, Ok(())).and(written);
    }
    outcomes
}

/// Checks that a leaf can still be read and written: reads the boot environment of a label and writes it back
/// unchanged. Success on one label is enough.
///
/// # Errors
/// The last error, if no label succeeds.
pub fn test_leaf(device: &dyn Device) -> Result<(), DeviceError> {
    let mut outcome = Err(DeviceError::Gone);
    for label in 0..LABELS {
        let at = DeviceOffset(label_offset(label, device.size()).0 + BOOT_ENV_OFFSET);
        let mut bytes = AlignedBuf::new(BOOT_ENV_SIZE);
        outcome = device.read_at(&mut bytes, at).and_then(|()| device.write_at(&bytes, at));
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

/// Writes an uberblock into a slot of the ring of one label (0 to 3). `ashift` is that of the leaf's
/// top-level vdev; [`Uberblock::slot`] gives the number of the slot.
///
/// # Errors
/// [`LabelWriteError`]; the slot is then the old one, the new one, or not valid.
pub fn write_uberblock(
    device: &dyn Device,
    label: usize,
    ashift: Ashift,
    slot: u64,
    uberblock: &Uberblock,
) -> Result<(), LabelWriteError> {
    check_size(device)?;
    assert!(slot < ring_slots(ashift) as u64, "a ring has no slot {slot}");
    let mut images = Images::default();
    images.push_slot(0, device, &[label], ashift, slot as usize, uberblock);
    images.write(1).pop().unwrap_or(Ok(()))
}

/// Writes an uberblock into its slot in all four labels of all given leaves at once. Returns for each leaf
/// the number of labels written: one is enough to find the uberblock.
pub fn write_uberblocks(leaves: &[(&dyn Device, Ashift)], uberblock: &Uberblock) -> Vec<usize> {
    let mut images = Images::default();
    for (leaf, (device, ashift)) in leaves.iter().enumerate() {
        if check_size(*device).is_ok() {
            let slot = uberblock.slot(ring_slots(*ashift));
            images.push_slot(leaf, *device, &ALL_LABELS, *ashift, slot, uberblock);
        }
    }
    let mut taken = vec![0; leaves.len()];
    for (image, result) in images.issue() {
        if let Some(taken) = taken.get_mut(image.leaf).filter(|_| result.is_ok()) {
            *taken += 1;
        }
    }
    taken
}

/// Creates the labels at the end of a device that has grown, except for their configuration, which the pool
/// writes. Boot environment and uberblocks are copied from the first label, and overwrite the contents of
/// their new place. Flushes.
///
/// # Errors
/// [`LabelWriteError`] if the device is too small, or a write or flush fails.
pub fn follow_growth(device: &dyn Device, ashift: Ashift) -> Result<(), LabelWriteError> {
    check_size(device)?;
    let boot_env = label::boot_env(device, 0).ok().flatten();
    // A boot environment in the other byte order is not copied: none is better than a wrong one.
    let boot_env = boot_env.filter(|(_, order)| *order == Endian::Little).map(|(bytes, _)| bytes);
    let known = label::probe(device).uberblocks;
    let mut images = Images::default();
    let boot_env = Body::new(boot_env.unwrap_or_default(), BOOT_ENV_SIZE);
    images.push(0, device, &END_LABELS, BOOT_ENV_OFFSET, boot_env);
    // One range with one trailer: no slot of it is valid.
    images.push(0, device, &END_LABELS, RING_OFFSET, Body::new(Vec::new(), RING_SIZE));
    images.write(1).pop().unwrap_or(Ok(()))?;
    let mut slots = Images::default();
    for found in known.iter().filter(|found| found.label == 0 && found.slot < ring_slots(ashift)) {
        slots.push_slot(0, device, &END_LABELS, ashift, found.slot, &found.uberblock);
    }
    slots.write(1).pop().unwrap_or(Ok(()))?;
    flush(device)
}

/// Makes a device a new leaf: writes the configuration, an empty boot environment and a ring with only a
/// template, the `template` uberblock with txg 0, to all four labels, and flushes. The uberblocks of an
/// earlier pool are overwritten.
///
/// # Errors
/// [`LabelWriteError`] if the configuration does not fit, the device is too small, or a write or flush fails.
pub fn init(device: &dyn Device, config: &NvList, template: &Uberblock) -> Result<(), LabelWriteError> {
    check_size(device)?;
    let PackedConfig { list, sum } = PackedConfig::new(config)?;
    let template = Uberblock { txg: Txg(0), order: Endian::Little, ..*template }.encode();
    let mut images = Images::default();
    images.push(0, device, &ALL_LABELS, BOOT_ENV_OFFSET, Body::new(Vec::new(), BOOT_ENV_SIZE));
    let config = Body { contents: list.into(), size: CONFIG_SIZE, sum };
    images.push(0, device, &ALL_LABELS, CONFIG_OFFSET, config);
    // One range with one trailer: no slot of it is valid.
    images.push(0, device, &ALL_LABELS, RING_OFFSET, Body::new(template.to_vec(), RING_SIZE));
    images.write(1).pop().unwrap_or(Ok(()))?;
    flush(device)
}

/// Removes the labels of a device: overwrites them, and the header of a cache device, with zeros, and
/// flushes. Labels without a valid configuration are left alone: they may be other data by now.
///
/// # Errors
/// [`LabelWriteError`]: the first failure; the other labels are cleared nevertheless.
pub fn clear(device: &dyn Device) -> Result<(), LabelWriteError> {
    check_size(device)?;
    let probe = label::probe(device);
    let is_cache = probe.newest_config().is_some_and(|config| config.state == PoolState::L2cache);
    let zeros = vec![0; (LABEL_SIZE - BOOT_ENV_OFFSET) as usize];
    let mut first_error = Ok(());
    for label in (0..LABELS).filter(|label| probe.config_of_label(*label).is_some()) {
        let at = DeviceOffset(label_offset(label, device.size()).0 + BOOT_ENV_OFFSET);
        let result = device.write_at(&zeros, at).map_err(|cause| LabelWriteError::Write { label, cause });
        first_error = first_error.and(result);
    }
    // Behind the second label.
    if is_cache && probe.config_of_label(1).is_some() {
        let header = zeros.get(..CACHE_HEADER_SIZE).unwrap_or(&zeros);
        let result = device.write_at(header, DeviceOffset(LABEL_START));
        first_error = first_error.and(result.map_err(|cause| LabelWriteError::Write { label: 0, cause }));
    }
    first_error?;
    flush(device)
}

/// Bytes of the header of a cache device, at the start of the allocatable space. Its size is the smallest
/// allocation of the device: this covers all.
const CACHE_HEADER_SIZE: usize = 64 << 10;

fn flush(device: &dyn Device) -> Result<(), LabelWriteError> {
    let flushed = flush_across(&[device]).pop().unwrap_or(Ok(()));
    flushed.map_err(|cause| LabelWriteError::Flush { cause })
}

fn check_size(device: &dyn Device) -> Result<(), LabelWriteError> {
    let size = device.size();
    if size < DEVICE_MIN { Err(LabelWriteError::TooSmall { size }) } else { Ok(()) }
}

/// The zeros between the contents of a range of `size` bytes and its trailer.
fn zeros_after(contents: &[u8], size: usize) -> &'static [u8] {
    let room = size - TRAILER_SIZE;
    assert!(contents.len() <= room, "every range of a label has room for its trailer");
    &ZEROS[..room - contents.len()]
}

/// A protected range without its trailer: contents, then zeros.
struct Body<'d> {
    contents: Cow<'d, [u8]>,
    /// Bytes of the range, with the trailer.
    size: usize,
    sum: BodySum,
}

impl Body<'_> {
    fn new(contents: Vec<u8>, size: usize) -> Body<'static> {
        let sum = BodySum::new(&[&contents, zeros_after(&contents, size)]);
        Body { contents: contents.into(), size, sum }
    }
}

/// Protected ranges to be written.
#[derive(Default)]
struct Images<'d> {
    bodies: Vec<Body<'d>>,
    images: Vec<Image<'d>>,
}

struct Image<'d> {
    /// Index of the device in the caller's list.
    leaf: usize,
    device: &'d dyn Device,
    label: usize,
    at: DeviceOffset,
    /// Index in [`Images::bodies`] of the contents before the trailer.
    body: usize,
    trailer: [u8; TRAILER_SIZE],
}

const ALL_LABELS: [usize; LABELS] = [0, 1, 2, 3];
/// The labels at the end of a device.
const END_LABELS: [usize; 2] = [2, 3];

impl<'d> Images<'d> {
    /// Adds a range at `offset` of these labels.
    fn push(&mut self, leaf: usize, device: &'d dyn Device, labels: &[usize], offset: u64, body: Body<'d>) {
        for label in labels.iter().copied() {
            assert!(label < LABELS, "a leaf has no label {label}");
            let at = DeviceOffset(label_offset(label, device.size()).0 + offset);
            let trailer = body.sum.trailer(verifier(at));
            self.images.push(Image { leaf, device, label, at, body: self.bodies.len(), trailer });
        }
        self.bodies.push(body);
    }

    fn push_slot(
        &mut self,
        leaf: usize,
        device: &'d dyn Device,
        labels: &[usize],
        ashift: Ashift,
        slot: usize,
        uberblock: &Uberblock,
    ) {
        let bytes = Uberblock { order: Endian::Little, ..*uberblock }.encode();
        let offset = slot_offset(0, slot, ashift, device.size()).0;
        self.push(leaf, device, labels, offset, Body::new(bytes.to_vec(), ring_slot_size(ashift)));
    }

    /// Writes all images in one batch.
    fn issue(&self) -> Vec<(&Image<'d>, Result<(), DeviceError>)> {
        let mut batch: Vec<(&dyn Device, WriteRequest<'_>)> = self
            .images
            .iter()
            .map(|image| {
                let Body { contents, size, .. } = &self.bodies[image.body];
                let zeros = zeros_after(contents, *size);
                let parts = [&contents[..], zeros, &image.trailer].map(IoSlice::new).to_vec();
                (image.device, WriteRequest::new(image.at, parts))
            })
            .collect();
        write_across(&mut batch);
        let results: Vec<_> = batch.into_iter().map(|(_, request)| request.result).collect();
        self.images.iter().zip(results).collect()
    }

    /// Writes all images at once. Returns a result for each of `leaves` devices.
    fn write(&self, leaves: usize) -> Vec<Result<(), LabelWriteError>> {
        let mut outcomes = vec![Ok(()); leaves];
        for (image, result) in self.issue() {
            if let (Err(cause), Some(outcome)) = (result, outcomes.get_mut(image.leaf)) {
                *outcome = Err(LabelWriteError::Write { label: image.label, cause });
            }
        }
        outcomes
    }
}
