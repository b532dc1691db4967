//! Labels with valid checksums and wrong contents: changed numbers and words in configurations, and changed
//! words in uberblocks, on top of the images of a golden pool.

use crate::work::{Depth, exercise_pool};
use cenote::Pool;
use cenote_pool_mutate::mutate::lists::{count, mutate_value};
use cenote_pool_mutate::mutate::next;
use codec::checksum::write_trailer;
use format::DeviceOffset;
use format::label::{CONFIG_OFFSET, CONFIG_SIZE, LABELS, label_offset, verifier};
use pool::{OpenOptions, Which};
use std::sync::Arc;
use testkit::Fixture;
use vdev::device::Device;
use vdev::device::overlay::OverlayDevice;
use vdev::scan::{Found, Leaf, Search};

/// Writes a region and its checksum into a label.
fn write(device: &dyn Device, at: DeviceOffset, mut region: Vec<u8>) {
    write_trailer(&mut region, verifier(at)).expect("a region of a label has room for a trailer");
    device.write_at(&region, at).expect("an overlay takes writes");
}

/// Changes one value of the leaf's configuration, and writes the result into all labels.
fn spoil_config(leaf: &Leaf, state: &mut u64, device: &dyn Device) {
    let Some(config) = leaf.probe.newest_config() else { return };
    let mut left = next(state) as usize % count(&config.raw).max(1);
    let packed = mutate_value(&config.raw, state, &mut left).encode_xdr();
    if packed.len() > CONFIG_SIZE - 40 {
        return;
    }
    for label in 0..LABELS {
        let mut region = packed.clone();
        region.resize(CONFIG_SIZE, 0);
        let base = label_offset(label, device.size()).0;
        write(device, DeviceOffset(base + CONFIG_OFFSET), region);
    }
}

/// Changes the newest uberblock of the leaf in every label that has it.
fn spoil_uberblock(leaf: &Leaf, state: &mut u64, device: &dyn Device) {
    let Some(newest) = leaf.probe.newest_uberblock() else { return };
    let pick = *state;
    for found in leaf.probe.uberblocks.iter().filter(|found| found.uberblock.txg == newest.uberblock.txg) {
        let mut bytes = vec![0; 1024];
        if device.read_at(&mut bytes, found.offset).is_err() {
            continue;
        }
        // The same words in each label.
        let mut state = pick;
        for _ in 0..=next(&mut state) % 2 {
            let at = 8 * (1 + next(&mut state) as usize % 40);
            match next(&mut state) % 3 {
                0 => bytes[at] ^= 1 << (next(&mut state) % 8),
                1 => bytes[at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes()),
                _ => bytes[at..at + 8].copy_from_slice(&(next(&mut state) % 300).to_le_bytes()),
            }
        }
        write(device, found.offset, bytes);
    }
    next(state);
}

/// Opens the pool with labels changed by a seed, and exercises it.
pub(crate) fn exercise_spoiled(fixture: &Fixture, seed: u64) -> Depth {
    let mut state = seed;
    let whole = Search::in_paths(fixture.images()).run();
    // One device, or all devices with the same change.
    let only =
        next(&mut state).is_multiple_of(2).then(|| next(&mut state) as usize % whole.leaves.len().max(1));
    let uberblock = next(&mut state).is_multiple_of(3);
    let mut found = Found::default();
    for (i, leaf) in whole.leaves.iter().enumerate() {
        if only.is_some_and(|only| only != i) {
            found.leaves.push(leaf.clone());
            continue;
        }
        let device: Arc<dyn Device> = Arc::new(OverlayDevice::new(Arc::clone(&leaf.device)));
        let mut same = state;
        if uberblock {
            spoil_uberblock(leaf, &mut same, &*device);
        } else {
            spoil_config(leaf, &mut same, &*device);
        }
        let probe = vdev::label::probe(&*device);
        found.leaves.push(Leaf { device, probe, ..leaf.clone() });
    }
    let _ = pool::import::candidates(&found);
    let name = Which::Name(fixture.manifest().pool.clone());
    let options = OpenOptions {
        cache_bytes: 8 << 20,
        allow_missing_tops: next(&mut state).is_multiple_of(2),
        allow_missing_logs: true,
        recover: next(&mut state).is_multiple_of(2),
        ..OpenOptions::default()
    };
    match pool::Pool::open(&found, &name, &options) {
        Ok(pool) => exercise_pool(&Pool::from(pool), fixture),
        Err(_) => Depth::default(),
    }
}
