//! The new root block pointer of a pool, written into its labels.

use crate::Result;
use crate::image::Image;
use crate::seal::seal_region;
use format::label::{
    BOOT_ENV_OFFSET, BOOT_ENV_SIZE, CONFIG_OFFSET, CONFIG_SIZE, DEVICE_MIN, LABELS, RING_OFFSET, RING_SIZE,
    Trailer, label_offset, ring_slot_size, verifier,
};
use format::uberblock::{UBERBLOCK_SIZE, Uberblock};
use format::{Ashift, BlockPtr, DeviceOffset, Endian};
use std::sync::Arc;
use vdev::device::Device;
use vdev::scan::Leaf;

/// Writes a new root into every copy of the newest uberblock, in this byte order, and zeroes all other
/// uberblocks. With `all`, the trailers of configurations and boot environments are rewritten in this order
/// as well.
///
/// # Errors
/// Fails if a device cannot be read or written, or if an uberblock cannot be decoded.
pub(crate) fn reseal(image: &Image, root: &BlockPtr, order: Endian, all: bool) -> Result<()> {
    let newest = *image.pool.uberblock();
    for leaf in &image.found.leaves {
        if leaf.device.size() < DEVICE_MIN {
            continue;
        }
        reseal_rings(leaf, &newest, root, order)?;
        if all {
            for (at, size) in [(CONFIG_OFFSET, CONFIG_SIZE), (BOOT_ENV_OFFSET, BOOT_ENV_SIZE)] {
                for label in 0..LABELS {
                    let at = DeviceOffset(label_offset(label, leaf.device.size()).0 + at);
                    reorder_region(&leaf.device, at, size, order)?;
                }
            }
        }
    }
    Ok(())
}

fn reseal_rings(leaf: &Leaf, newest: &Uberblock, root: &BlockPtr, order: Endian) -> Result<()> {
    let device = &leaf.device;
    let ashift = leaf
        .probe
        .newest_config()
        .and_then(|config| config.vdev_tree.walk().find_map(|node| node.ashift))
        .unwrap_or(Ashift(9));
    let slot = ring_slot_size(ashift);
    let kept: Vec<DeviceOffset> = leaf
        .probe
        .uberblocks
        .iter()
        .filter(|found| found.uberblock.txg == newest.txg && found.uberblock.guid_sum == newest.guid_sum)
        .map(|found| found.offset)
        .collect();
    for label in 0..LABELS {
        let base = label_offset(label, device.size()).0 + RING_OFFSET;
        for i in 0..RING_SIZE / slot {
            let at = DeviceOffset(base + (i * slot) as u64);
            let mut region = vec![0; slot];
            if kept.contains(&at) {
                device.read_at(&mut region, at)?;
                put_root(&mut region, root, order)?;
                seal_region(&mut region, verifier(at), order);
            }
            device.write_at(&region, at)?;
        }
    }
    device.flush()?;
    Ok(())
}

/// Replaces the root of the uberblock at the start of `region`, and encodes it in this byte order.
fn put_root(region: &mut [u8], root: &BlockPtr, order: Endian) -> Result<()> {
    let old = Uberblock::decode(region)?.order;
    let words: Vec<u64> = old.all_words(&region[..UBERBLOCK_SIZE]).collect();
    let new = words.iter().enumerate().map(|(i, word)| match i.checked_sub(5) {
        Some(j) if j < 16 => root.words()[j],
        _ => *word,
    });
    let bytes: Vec<u8> = new.flat_map(|word| order.put_u64(word)).collect();
    region[..UBERBLOCK_SIZE].copy_from_slice(&bytes);
    Ok(())
}

/// Rewrites the trailer of a region in this byte order, if the region has a valid one.
fn reorder_region(device: &Arc<dyn Device>, at: DeviceOffset, size: usize, order: Endian) -> Result<()> {
    let mut region = vec![0; size];
    device.read_at(&mut region, at)?;
    if Trailer::decode(&region).is_ok() {
        seal_region(&mut region, verifier(at), order);
        device.write_at(&region, at)?;
    }
    Ok(())
}
