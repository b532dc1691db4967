//! Samples from devices outside of the pool's blocks: labels and partition tables.

use crate::corpus::Corpus;
use format::DeviceOffset;
use format::label::{CONFIG_OFFSET, CONFIG_SIZE};
use testkit::Fixture;
use vdev::device::Device;
use vdev::device::file::{Access, FileDevice};

fn read(device: &dyn Device, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    device.read_at(&mut bytes, DeviceOffset(at)).expect("golden images are readable");
    bytes
}

/// The bytes without trailing zeros.
pub(crate) fn trimmed(mut bytes: Vec<u8>) -> Vec<u8> {
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    let len = bytes.len().next_multiple_of(8);
    bytes.resize(len, 0);
    bytes
}

pub(crate) fn collect(fixture: &Fixture, corpus: &mut Corpus) {
    let whole_disks = fixture.manifest().partition_table.is_some();
    for (i, image) in fixture.images().iter().enumerate() {
        let device = FileDevice::open(image, Access::Cached).expect("golden images can be opened");
        let special = format!("{}-{i}", fixture.name());
        if whole_disks {
            let mut table = vec![0];
            table.extend(read(&device, 512, 92));
            table.extend(read(&device, 1024, 9 * 128));
            corpus.add("vdev", "partition_tables", &special, table);
            continue;
        }
        let region = read(&device, CONFIG_OFFSET, CONFIG_SIZE - 40);
        let config = trimmed(region);
        corpus.add("format", "lists", &format!("label-{special}"), config.clone());
        let probe = vdev::label::probe(&device);
        let Some(newest) = probe.newest_uberblock() else { continue };
        let uberblock = read(&device, newest.offset.0, 1024);
        corpus.add("format", "uberblocks", &special, uberblock.clone());
        // Number of the label, uberblock slot, length of the configuration, then both.
        let mut label = vec![0, newest.slot as u8];
        label.extend((config.len() as u16).to_le_bytes());
        label.extend(&config);
        label.extend(trimmed(uberblock[..1024 - 40].to_vec()));
        corpus.add("vdev", "labels", &special, label);
    }
}
