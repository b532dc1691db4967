//! Written labels: equal to real ones, accepted by `zdb`, found again.
#![allow(clippy::disallowed_types)] // images are made here

use crate::common::{as_top, leaf};
use cenote_vdev::device::file::{Access, open_exclusive};
use cenote_vdev::device::memory::MemoryDevice;
use cenote_vdev::device::sim::{OpKind, SimDisk};
use cenote_vdev::device::{Device, DeviceError};
use cenote_vdev::gpt;
use cenote_vdev::label::{self, LabelProblem};
use cenote_vdev::label_write::{
    LabelWriteError, PackedConfig, clear, init, write_configs, write_uberblock, write_uberblocks,
};
use cenote_vdev::scan::Search;
use codec::checksum::verify_trailer;
use format::config::{PoolState, VdevNode};
use format::label::{
    BOOT_ENV_OFFSET, CONFIG_OFFSET, CONFIG_SIZE, LABEL_SIZE, LABELS, RING_OFFSET, RING_SIZE, label_offset,
    ring_slot_size, ring_slots, verifier,
};
use format::uberblock::{Mmp, Uberblock};
use format::{Ashift, BlockPtr, DeviceOffset, Endian, NvList, Txg, VdevGuid};
use testkit::Fixture;

const SIZE: u64 = (80 << 20) + 777;

fn config(txg: u64) -> NvList {
    let mut list = NvList::new();
    list.push("version", 5000u64);
    list.push("name", "tank");
    list.push("state", 0u64);
    list.push("txg", txg);
    list.push("pool_guid", 1234u64);
    list.push("top_guid", 77u64);
    list.push("guid", 77u64);
    list.push("vdev_children", 1u64);
    list.push("vdev_tree", as_top(leaf(0, VdevGuid(77)), Ashift(12), 75 << 20));
    list.push("features_for_read", NvList::new());
    list
}

fn packed(txg: u64) -> Result<PackedConfig, LabelWriteError> {
    PackedConfig::new(&config(txg))
}

/// Writes a configuration into one label.
fn write_config(
    device: &dyn Device,
    label: usize,
    config: &Result<PackedConfig, LabelWriteError>,
) -> Result<(), LabelWriteError> {
    write_configs(&[(device, config)], &[label]).remove(0)
}

fn uberblock(txg: u64) -> Uberblock {
    Uberblock {
        version: 5000,
        txg: Txg(txg),
        guid_sum: 1311,
        timestamp: 1_700_000_000 + txg,
        root: BlockPtr::from_words([0; 16]),
        software_version: 5000,
        mmp: Some(Mmp::default()),
        checkpoint_txg: Txg(0),
        reflow: Default::default(),
        order: Endian::Little,
    }
}

fn read(device: &dyn Device, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    device.read_at(&mut bytes, DeviceOffset(at)).unwrap();
    bytes
}

#[test]
fn labels_of_golden_pools_are_written_again_byte_for_byte() {
    let (mut configs, mut slots) = (0, 0);
    for fixture in Fixture::all() {
        for leaf in Search::in_paths([fixture.dir()]).run().leaves {
            let real = &*leaf.device;
            let ours = MemoryDevice::new(real.size());
            for found in &leaf.probe.configs {
                write_config(&ours, found.label, &PackedConfig::new(&found.config.raw)).unwrap();
                let at = label_offset(found.label, real.size()).0 + CONFIG_OFFSET;
                assert!(read(real, at, CONFIG_SIZE) == read(&ours, at, CONFIG_SIZE), "{}", fixture.name());
                configs += 1;
            }
            let trees = leaf.probe.configs.iter().map(|found| &found.config.vdev_tree);
            let Some(ashift) = trees.flat_map(VdevNode::walk).find_map(|node| node.ashift) else {
                continue;
            };
            for found in leaf.probe.uberblocks.iter().filter(|found| found.uberblock.order == Endian::Little)
            {
                write_uberblock(&ours, found.label, ashift, found.slot as u64, &found.uberblock).unwrap();
                let size = ring_slot_size(ashift);
                assert!(
                    read(real, found.offset.0, size) == read(&ours, found.offset.0, size),
                    "{} label {} slot {}",
                    fixture.name(),
                    found.label,
                    found.slot
                );
                slots += 1;
            }
        }
    }
    assert!(configs > 500 && slots > 5000, "{configs} configurations, {slots} uberblocks");
}

/// A cache device of `holevdev` has a ring that only its initialisation has written.
#[test]
fn a_new_ring_is_equal_to_a_real_one() {
    let Ok(fixture) = Fixture::try_open("holevdev") else { return };
    let mut equal = 0;
    for leaf in Search::in_paths([fixture.dir()]).run().leaves {
        let real = &*leaf.device;
        for at in (0..LABELS).map(|label| label_offset(label, real.size()).0) {
            let ring = read(real, at + RING_OFFSET, RING_SIZE);
            if verify_trailer(&ring, verifier(DeviceOffset(at + RING_OFFSET))) != Ok(Some(Endian::Little)) {
                continue;
            }
            let ours = MemoryDevice::new(real.size());
            let config = &leaf.probe.newest_config().unwrap().raw;
            init(&ours, config, &Uberblock::decode(&ring).unwrap()).unwrap();
            let whole = LABEL_SIZE as usize;
            assert!(read(real, at, whole) == read(&ours, at, whole));
            equal += 1;
        }
    }
    assert!(equal > 0);
}

#[test]
fn a_new_leaf_has_labels_and_no_uberblock() {
    let device = MemoryDevice::new(SIZE);
    device.write_at(&vec![0xee; SIZE as usize], DeviceOffset(0)).unwrap();
    init(&device, &config(0), &uberblock(17)).unwrap();
    let probe = label::probe(&device);
    assert_eq!((probe.configs.len(), probe.uberblocks.len()), (4, 0));
    assert_eq!((probe.guid(), probe.problems), (Some(VdevGuid(77)), vec![]));
    assert!(label::looks_like_leaf(&device));
    for label in 0..LABELS {
        let (env, order) = label::boot_env(&device, label).unwrap().expect("a valid environment");
        assert_eq!((env.iter().all(|byte| *byte == 0), order), (true, Endian::Little));
        let base = label_offset(label, SIZE).0;
        assert!(read(&device, base, BOOT_ENV_OFFSET as usize).iter().all(|byte| *byte == 0xee));
        assert_eq!(Uberblock::decode(&read(&device, base + RING_OFFSET, 1024)).unwrap(), uberblock(0).at(17));
    }
    // No byte between the labels, or after the last, is written.
    let between = read(&device, 2 * LABEL_SIZE, (label_offset(2, SIZE).0 - 2 * LABEL_SIZE) as usize);
    assert!(between.iter().chain(&read(&device, SIZE - 777, 777)).all(|byte| *byte == 0xee));
}

trait At {
    fn at(self, txg: u64) -> Self;
}

impl At for Uberblock {
    /// With the time of this txg.
    fn at(self, txg: u64) -> Uberblock {
        Uberblock { timestamp: 1_700_000_000 + txg, ..self }
    }
}

#[test]
fn uberblocks_go_around_the_ring() {
    for ashift in [9, 11, 12, 13, 16].map(Ashift) {
        let devices = [MemoryDevice::new(SIZE), MemoryDevice::new(64 << 20)];
        let leaves: Vec<(&dyn Device, Ashift)> = devices.iter().map(|d| (d as &dyn Device, ashift)).collect();
        let mut list = config(5);
        list.set("vdev_tree", as_top(leaf(0, VdevGuid(77)), ashift, 59 << 20));
        devices.iter().for_each(|device| init(device, &list, &uberblock(0)).unwrap());
        for txg in 5..205 {
            assert_eq!(write_uberblocks(&leaves, &uberblock(txg)), [4, 4]);
        }
        for device in &devices {
            let probe = label::probe(device);
            assert_eq!(probe.newest_uberblock().unwrap().uberblock, uberblock(204));
            assert_eq!(probe.uberblocks.len(), 4 * ring_slots(ashift));
            assert_eq!(
                probe.uberblocks.iter().map(|found| found.uberblock.txg.0).min(),
                Some(205 - ring_slots(ashift) as u64)
            );
        }
    }
}

#[test]
fn multihost_keeps_the_last_slot_free() {
    let device = MemoryDevice::new(SIZE);
    let mmp = Some(Mmp { delay_ns: 1_000_000, config: 0 });
    for txg in 1..100 {
        write_uberblocks(&[(&device, Ashift(12))], &Uberblock { mmp, ..uberblock(txg) });
    }
    assert!(label::probe(&device).uberblocks.iter().all(|found| found.slot < 31));
}

#[test]
fn configurations_of_many_leaves_at_once() {
    let devices: Vec<MemoryDevice> = (0..40).map(|_| MemoryDevice::new(64 << 20)).collect();
    let config = packed(9);
    let leaves: Vec<(&dyn Device, &Result<PackedConfig, LabelWriteError>)> =
        devices.iter().map(|d| (d as &dyn Device, &config)).collect();
    assert_eq!(write_configs(&leaves, &[0, 2]), vec![Ok(()); 40]);
    for device in &devices {
        let labels: Vec<usize> = label::probe(device).configs.iter().map(|found| found.label).collect();
        assert_eq!(labels, [0, 2]);
    }
}

#[test]
fn what_cannot_be_written() {
    let small = MemoryDevice::new((64 << 20) - 1);
    let too_small = Err(LabelWriteError::TooSmall { size: (64 << 20) - 1 });
    assert_eq!(write_config(&small, 0, &packed(1)), too_small);
    assert_eq!(write_uberblock(&small, 0, Ashift(9), 0, &uberblock(1)), too_small);
    assert_eq!(init(&small, &config(1), &uberblock(1)), too_small);
    assert_eq!(clear(&small), too_small);
    assert_eq!(write_uberblocks(&[(&small, Ashift(9))], &uberblock(1)), [0]);

    let mut long = config(1);
    long.push("comment", "x".repeat(CONFIG_SIZE));
    let device = MemoryDevice::new(SIZE);
    assert!(matches!(init(&device, &long, &uberblock(1)), Err(LabelWriteError::TooLong { .. })));
    assert!(label::probe(&device).is_empty());
    let (long, right) = (PackedConfig::new(&long), packed(2));
    let results = write_configs(&[(&device, &long), (&small, &right), (&device, &right)], &[1]);
    assert!(
        matches!(results.as_slice(), [Err(LabelWriteError::TooLong { .. }), small, Ok(())] if *small == too_small)
    );

    let disk = SimDisk::new(SIZE, 1);
    disk.fail_nth(OpKind::Write, 5);
    assert!(matches!(init(&disk, &config(1), &uberblock(1)), Err(LabelWriteError::Write { label: 1, .. })));
    disk.fail_nth(OpKind::Flush, 0);
    assert!(matches!(init(&disk, &config(1), &uberblock(1)), Err(LabelWriteError::Flush { .. })));
    disk.vanish();
    let gone = LabelWriteError::Write { label: 2, cause: DeviceError::Gone };
    assert_eq!(write_config(&disk, 2, &packed(1)), Err(gone));
}

#[test]
fn a_torn_label_is_not_valid() {
    let disk = SimDisk::new(SIZE, 1);
    init(&disk, &config(0), &uberblock(0)).unwrap();
    disk.tear_next_write(1);
    write_config(&disk, 0, &packed(8)).unwrap();
    let probe = label::probe(&disk);
    assert_eq!(probe.problems, [LabelProblem::Checksum { label: 0 }]);
    assert_eq!(probe.configs.len(), 3);
    disk.misdirect_next_write(DeviceOffset(label_offset(2, SIZE).0 + CONFIG_OFFSET));
    write_config(&disk, 0, &packed(8)).unwrap();
    assert_eq!(label::probe(&disk).configs.len(), 2, "neither where it belongs nor where it came to lie");
}

#[test]
fn a_cleared_device_is_no_leaf() {
    let device = MemoryDevice::new(SIZE);
    device.write_at(&vec![0xee; SIZE as usize], DeviceOffset(0)).unwrap();
    let before = read(&device, LABEL_SIZE * 2, 8 << 20);
    init(&device, &config(0), &uberblock(0)).unwrap();
    write_uberblocks(&[(&device, Ashift(12))], &uberblock(5));
    clear(&device).unwrap();
    let probe = label::probe(&device);
    assert!(probe.is_empty() && !label::looks_like_leaf(&device));
    assert_eq!(label::boot_env(&device, 0), Ok(None));
    assert!(read(&device, LABEL_SIZE * 2, 8 << 20) == before);
    // The header of a cache device is cleared too.
    let mut list = NvList::new();
    list.push("version", 5000u64);
    list.push("state", PoolState::L2cache as u64);
    list.push("guid", 5u64);
    list.push("path", "/cache");
    init(&device, &list, &uberblock(0)).unwrap();
    clear(&device).unwrap();
    assert!(read(&device, 4 << 20, 65536).iter().all(|byte| *byte == 0));
}

#[test]
fn zdb_accepts_labels() {
    let Some(zdb) = testkit::need_tool("zdb") else { return };
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("leaf");
    std::fs::File::create(&path).unwrap().set_len(SIZE).unwrap();
    let run = |option: &str| {
        let output = testkit::hurried(&zdb).arg(option).arg(&path).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    {
        let device = open_exclusive(&path, Access::Auto).unwrap();
        init(&*device, &config(0), &uberblock(0)).unwrap();
        write_uberblocks(&[(&*device, Ashift(12))], &uberblock(44));
        assert_eq!(write_configs(&[(&*device, &packed(44))], &[0, 2]), [Ok(())]);
        device.flush().unwrap();
    }
    let (ok, text) = run("-lll");
    assert!(ok, "{text}");
    // Labels 0 and 2 are equal, and 1 and 3 are.
    for line in ["name: 'tank'", "txg: 44", "txg: 0", "guid: 77", "labels = 0 2", "labels = 1 3"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let (ok, text) = run("-lu");
    assert!(ok && text.contains("txg = 44") && text.contains("labels = 0 1 2 3"), "{text}");
    {
        let device = open_exclusive(&path, Access::Auto).unwrap();
        clear(&*device).unwrap();
    }
    let (ok, text) = run("-l");
    assert!(!ok, "{text}");
    for label in 0..LABELS {
        assert!(text.contains(&format!("failed to unpack label {label}")), "{text}");
    }
}

/// The table that OpenZFS made, given its identifiers.
#[test]
fn partition_tables_are_equal_to_real_ones() {
    let fixture = Fixture::open("wholedisk");
    for image in fixture.images() {
        let real = std::fs::read(&image).unwrap();
        let entry = |index: usize| &real[1024 + index * 128..][..128];
        let guid = |bytes: &[u8]| <[u8; 16]>::try_from(bytes).unwrap();
        let name: String =
            entry(0)[56..].chunks(2).map(|unit| char::from(unit[0])).filter(|c| *c != '\0').collect();
        let identity = gpt::Identity {
            disk: guid(&real[512 + 56..][..16]),
            zfs: guid(&entry(0)[16..32]),
            reserved: guid(&entry(8)[16..32]),
            name: u64::from_str_radix(name.strip_prefix("zfs-").unwrap(), 16).unwrap(),
        };
        let ours = MemoryDevice::new(real.len() as u64);
        gpt::write(&ours, &identity).unwrap();
        let (front, back) = (34 * 512, real.len() - 33 * 512);
        assert!(read(&ours, 0, front) == real[..front], "{}", image.display());
        assert!(read(&ours, back as u64, 33 * 512) == real[back..], "{}", image.display());
        let partitions = gpt::partitions(&MemoryDevice::from_bytes(&real)).unwrap();
        assert_eq!(gpt::partitions(&ours).unwrap(), partitions);
    }
}
