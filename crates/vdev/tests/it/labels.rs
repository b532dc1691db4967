//! Labels of golden pools, and their root blocks read through every layout.
#![allow(clippy::disallowed_types)] // images are made here

use cenote_vdev::Devices;
use cenote_vdev::VdevTree;
use cenote_vdev::device::file::Access;
use cenote_vdev::device::sim::{OpKind, Power, SimDisk};
use cenote_vdev::device::{Device, DeviceError};
use cenote_vdev::label::{self, LabelProblem, Probe};
use cenote_vdev::label_write;
use cenote_vdev::scan::{Found, Search};
use cenote_vdev::tree::{Extent, FaultKind, VdevError, VdevState};
use codec::checksum;
use format::config::{PoolState, VdevKind, VdevNode};
use format::uberblock::Uberblock;
use format::{DeviceOffset, NvList, NvValue, Txg, VdevGuid};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use testkit::Fixture;

fn scan(folder: &Path) -> Found {
    Search::in_paths([folder]).run()
}

/// The newest uberblock of all leaves, spares and caches left out.
fn newest(found: &Found) -> Uberblock {
    let all = found.leaves.iter().filter_map(|leaf| leaf.probe.newest_uberblock());
    all.max_by_key(|found| found.uberblock.rank()).expect("an uberblock").uberblock
}

/// The root configuration according to the labels.
fn config_of_labels(found: &Found, txg: Txg) -> VdevNode {
    let mut tops: BTreeMap<u64, (Txg, NvList)> = BTreeMap::new();
    let (mut slots, mut pool) = (0, 0);
    for config in found.leaves.iter().filter_map(|leaf| leaf.probe.config_at_most(txg)) {
        let Some(tree) = config.raw.list("vdev_tree").filter(|_| !config.is_aux()) else { continue };
        slots = slots.max(config.vdev_children.unwrap_or(1).into());
        pool = config.pool_guid.0;
        let id = tree.u64("id").unwrap_or(0);
        if tops.get(&id).is_none_or(|(known, _)| *known < config.txg) {
            tops.insert(id, (config.txg, tree.clone()));
        }
    }
    let missing = |id: u64| {
        let mut node = NvList::new();
        node.push("type", "missing");
        node.push("id", id);
        node.push("guid", 77 + id);
        node
    };
    let children = (0..slots).map(|id| tops.get(&id).map_or_else(|| missing(id), |(_, tree)| tree.clone()));
    let mut root = NvList::new();
    root.push("type", "root");
    root.push("guid", pool);
    root.push("children", NvValue::ListArray(children.collect()));
    VdevNode::from_nvlist(&root).expect("a root")
}

fn open(found: &Found) -> (Arc<VdevTree>, Uberblock) {
    let uberblock = newest(found);
    let config = config_of_labels(found, uberblock.txg);
    (VdevTree::open(&config, &found.devices(), uberblock.reflow).expect("a tree"), uberblock)
}

/// Reads the root block from each of its copies. Returns how many could be read, how many there are, and how
/// many leaves returned wrong bytes.
fn read_root(tree: &VdevTree, uberblock: &Uberblock) -> (usize, usize, usize) {
    let bp = uberblock.root;
    let verify = |data: &[u8]| checksum::verify(&bp, data, None).unwrap_or(false);
    let (mut good, mut all, mut lies) = (0, 0, 0);
    for dva in bp.dvas() {
        all += 1;
        let at = Extent { vdev: dva.vdev, offset: dva.offset, psize: bp.psize(), birth: bp.physical_birth() };
        let Ok(()) = tree.check(&dva, bp.psize()) else { continue };
        let read = tree.read(&at, &verify);
        let scrub = tree.check_every_copy(&at, &verify);
        if let Ok(data) = read.data {
            assert!(verify(&data) && scrub.data == Ok(data));
            assert_eq!(tree.psize_to_asize(dva.vdev, bp.psize(), bp.physical_birth()), Some(dva.asize));
            good += 1;
        }
        lies += scrub.faults.iter().filter(|fault| fault.kind == FaultKind::Checksum).count();
    }
    (good, all, lies)
}

#[test]
fn the_root_block_of_every_golden_pool_is_found_and_right() {
    for fixture in Fixture::all() {
        let found = scan(fixture.dir());
        let (tree, uberblock) = open(&found);
        // OpenZFS puts no copy of it on removed vdevs, whose mappings are in the MOS.
        let lies = if fixture.name() == "silent-disk" { 3 } else { 0 };
        let copies = if fixture.name() == "version1" { 1 } else { 3 };
        assert_eq!(read_root(&tree, &uberblock), (copies, copies, lies), "{}", fixture.name());
    }
}

#[test]
fn all_four_labels_of_an_exported_pool() {
    let found = scan(Fixture::open("raidz1").dir());
    assert_eq!(found.leaves.len(), 4);
    assert_eq!(found.problems, []);
    for leaf in &found.leaves {
        assert_eq!(leaf.probe.configs.len(), 4);
        let config = leaf.probe.newest_config().unwrap();
        assert_eq!((config.state, config.vdev_tree.kind), (PoolState::Exported, VdevKind::Raidz));
        assert_eq!(config.guid, leaf.probe.guid());
        for label in 1..4 {
            let count = |l| leaf.probe.uberblocks.iter().filter(|found| found.label == l).count();
            assert!(count(label) > 0 && count(label) == count(0));
        }
        let newest = leaf.probe.newest_uberblock().unwrap();
        let slots = format::label::ring_slots(config.vdev_tree.ashift.unwrap());
        assert_eq!(newest.slot, newest.uberblock.slot(slots));
        assert!(newest.uberblock.txg >= config.txg);
    }
}

#[test]
fn labels_at_one_end_are_enough() {
    for (name, lost) in [("labels-front", [0, 1]), ("labels-back", [2, 3])] {
        let found = scan(Fixture::open(name).dir());
        let [leaf] = found.leaves.as_slice() else { panic!("{name}: {} leaves", found.leaves.len()) };
        let expected = lost.map(|label| LabelProblem::Absent { label });
        assert_eq!(leaf.probe.problems, expected, "{name}");
        assert_eq!(found.problems.len(), 2);
        assert_eq!(leaf.probe.configs.len(), 2);
    }
}

#[test]
fn a_torn_uberblock_does_not_count() {
    let fixture = Fixture::open("uberblock-torn");
    println!("{}", fixture.text("damage.txt"));
    let found = scan(fixture.dir());
    let probe = &found.leaves[0].probe;
    let best = probe.newest_uberblock().unwrap().uberblock.txg;
    assert_eq!(probe.uberblocks.iter().filter(|found| found.uberblock.txg == best).count(), 4);
}

#[test]
fn whole_disks_are_opened_through_their_partition() {
    let found = scan(Fixture::open("wholedisk").dir());
    assert_eq!(found.leaves.len(), 2);
    assert!(found.leaves.iter().all(|leaf| leaf.partition.is_some() && leaf.probe.configs.len() == 4));
    let config = found.leaves[0].probe.newest_config().unwrap();
    assert!(config.vdev_tree.leaves().all(|leaf| leaf.whole_disk && leaf.kind == VdevKind::Disk));
}

/// Writes the root block of every pool to disks full of garbage: the result is, byte for byte and parity
/// included, equal to that of OpenZFS.
#[test]
fn the_root_block_of_every_golden_pool_is_written_as_it_was() {
    let mut shapes = BTreeSet::new();
    for fixture in Fixture::all() {
        let found = scan(fixture.dir());
        let (real, uberblock) = open(&found);
        let images = found.devices();
        let sims: BTreeMap<_, Arc<SimDisk>> = images
            .iter()
            .map(|(guid, image)| (guid.0, Arc::new(SimDisk::over(Arc::clone(image), guid.0, Power::new()))))
            .collect();
        let devices =
            images.keys().map(|guid| (*guid, Arc::clone(&sims[&guid.0]) as Arc<dyn Device>)).collect();
        let config = config_of_labels(&found, uberblock.txg);
        let ours = VdevTree::open(&config, &devices, uberblock.reflow).expect("a tree");
        sims.values().for_each(|sim| {
            sim.garble(DeviceOffset(0), u64::MAX);
            sim.record(true);
        });
        let bp = uberblock.root;
        let verify = |data: &[u8]| checksum::verify(&bp, data, None).unwrap_or(false);
        for dva in bp.dvas() {
            let (vdev, offset) = (dva.vdev, dva.offset);
            let at = Extent { vdev, offset, psize: bp.psize(), birth: bp.physical_birth() };
            let Ok(data) = real.read(&at, &verify).data else { continue };
            match ours.write(&at, &data) {
                Ok(()) => assert!(ours.read(&at, &verify).data.is_ok(), "{}", fixture.name()),
                Err(VdevError::CannotWrite { .. }) => continue,
                Err(error) => panic!("{}: {error}", fixture.name()),
            }
            shapes.insert(config.children[vdev.0 as usize].kind.name().to_owned());
        }
        // A disk whose contents were destroyed cannot be compared.
        for (guid, sim) in sims.iter().filter(|_| !["silent-disk", "heal-mirror"].contains(&fixture.name())) {
            for op in sim.take_record().into_iter().filter(|op| op.kind == OpKind::Write) {
                let mut expected = vec![0; op.len as usize];
                images[&VdevGuid(*guid)].read_at(&mut expected, op.at).unwrap();
                assert!(op.data == Some(expected), "{}: {} bytes at {}", fixture.name(), op.len, op.at);
            }
        }
    }
    for kind in ["file", "disk", "mirror", "raidz", "draid"] {
        assert!(shapes.contains(kind) || kind == "disk", "{kind} of {shapes:?}");
    }
}

#[test]
fn leaves_are_opened_for_writing_by_one_at_a_time() {
    for name in ["wholedisk", "mirror"] {
        let scratch = Fixture::open(name).scratch();
        let found = scan(scratch.dir());
        let first = found.open_exclusive(|_| true, Access::Auto, &Devices::system());
        assert_eq!(first.failures, []);
        let guids: BTreeSet<_> = found.devices().into_keys().collect();
        assert_eq!(first.devices.keys().copied().collect::<BTreeSet<_>>(), guids);
        for (guid, device) in &first.devices {
            assert!(!device.is_read_only());
            let place = device.size() - (3 << 20);
            device.write_at(&[7; 4096], DeviceOffset(place)).unwrap();
            let mut read = [0; 4096];
            found.devices()[guid].read_at(&mut read, DeviceOffset(place)).unwrap();
            assert_eq!(read, [7; 4096]);
        }
        let second = found.open_exclusive(|_| true, Access::Auto, &Devices::system());
        assert!(second.devices.is_empty());
        assert!(second.failures.iter().all(|(_, _, error)| error.is_busy()));
        drop(first);
        // The device is no longer the one that the search found.
        let gone = found.leaves[0].probe.guid().unwrap();
        label_write::clear(
            &**found.open_exclusive(|_| true, Access::Auto, &Devices::system()).devices.get(&gone).unwrap(),
        )
        .unwrap();
        let third =
            found.open_exclusive(|leaf| leaf.probe.guid() == Some(gone), Access::Cached, &Devices::system());
        assert!(third.failures.iter().any(|(guid, _, error)| (*guid, error) == (gone, &DeviceError::Gone)));
    }
}

/// A disk with an MBR whose partitions hold these files one after the other, 1 MiB apart.
fn partitioned(path: &Path, files: &[std::path::PathBuf]) {
    let mut disk = vec![0; 1 << 20];
    for (i, file) in files.iter().enumerate() {
        let contents = std::fs::read(file).unwrap();
        let (entry, start) = (446 + 16 * i, (disk.len() / 512) as u32);
        disk[entry + 4] = 0x83;
        disk[entry + 8..entry + 12].copy_from_slice(&start.to_le_bytes());
        disk[entry + 12..entry + 16].copy_from_slice(&((contents.len() / 512) as u32).to_le_bytes());
        disk.extend(contents);
        disk.resize(disk.len() + (1 << 20), 0);
    }
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    std::fs::write(path, disk).unwrap();
}

#[test]
fn every_partition_of_a_disk_is_looked_at_whatever_its_type() {
    let folder = tempfile::tempdir().unwrap();
    let mut images = Fixture::open("mirror").images();
    images.extend(Fixture::open("single").images());
    partitioned(&folder.path().join("disk"), &images);
    let found = scan(folder.path());
    assert_eq!(found.leaves.len(), 3);
    assert!(found.leaves.iter().all(|leaf| leaf.partition.is_some() && leaf.probe.configs.len() == 4));
    assert_eq!(found.problems, []);
}

#[test]
fn the_front_of_an_image_that_was_cut_off_is_a_problem() {
    let folder = tempfile::tempdir().unwrap();
    let images = Fixture::open("single").images();
    let whole = std::fs::read(&images[0]).unwrap();
    std::fs::write(folder.path().join("cut"), &whole[..10 << 20]).unwrap();
    partitioned(&folder.path().join("disk"), &images);
    std::fs::OpenOptions::new()
        .write(true)
        .open(folder.path().join("disk"))
        .unwrap()
        .set_len(40 << 20)
        .unwrap();
    let found = scan(folder.path());
    assert!(found.leaves.is_empty());
    let about: Vec<_> =
        found.problems.iter().map(|(path, why)| (path.file_name().unwrap(), why.to_string())).collect();
    assert_eq!(about.len(), 2, "{about:?}");
    assert!(about.iter().all(|(_, why)| why.ends_with("no leaf is smaller than 64 MiB: its end is missing")));
}

#[test]
fn spares_and_caches_are_found() {
    let found = scan(Fixture::open("classes").dir());
    let state = |wanted| {
        let states = found.leaves.iter().filter_map(|leaf| leaf.probe.newest_config());
        states.filter(|config| config.state == wanted).count()
    };
    assert_eq!((state(PoolState::Spare), state(PoolState::L2cache)), (1, 1));
    assert_eq!(found.leaves.len(), 7);
}

#[test]
fn states_of_damaged_golden_pools() {
    for (name, pool, missing) in [
        ("raidz1", VdevState::Online, 0),
        ("missing-disk", VdevState::Degraded, 2),
        ("spare-in-use", VdevState::Degraded, 0),
        ("degraded", VdevState::Degraded, 0),
    ] {
        let (tree, _) = open(&scan(Fixture::open(name).dir()));
        let status = tree.status();
        assert_eq!(status.state, pool, "{name}");
        let lost = status.walk().iter().filter(|vdev| vdev.state == VdevState::Unavail).count();
        assert_eq!(lost, missing, "{name}");
    }
    let (tree, _) = open(&scan(Fixture::open("degraded").dir()));
    let offline = tree.status().walk().iter().filter(|vdev| vdev.state == VdevState::Offline).count();
    assert_eq!(offline, 1);
}

#[test]
fn golden_pools_degraded_by_hand() {
    for (name, without) in [
        ("raidz1", vec![1]),
        ("raidz2", vec![0, 3]),
        ("raidz3", vec![1, 2, 5]),
        ("draid1", vec![4]),
        ("raidz-expanded", vec![3]),
        ("raidz-expanding", vec![0, 4]),
        ("mirror", vec![1]),
    ] {
        let fixture = Fixture::open(name);
        let images = fixture.images();
        let left = images.iter().enumerate().filter(|(i, _)| !without.contains(i)).map(|(_, path)| path);
        let found = Search::in_paths(left).run();
        let (tree, uberblock) = open(&found);
        assert_eq!(tree.status().state, VdevState::Degraded, "{name}");
        assert_eq!(read_root(&tree, &uberblock), (3, 3, 0), "{name}");
    }
}

#[test]
fn what_is_not_a_pool_is_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("note"), "hello").unwrap();
    let big = std::fs::File::create(folder.path().join("zeros")).unwrap();
    big.set_len(100 << 20).unwrap();
    std::fs::create_dir(folder.path().join("folder")).unwrap();
    std::os::unix::fs::symlink("/nowhere", folder.path().join("dangling")).unwrap();
    let found = scan(folder.path());
    assert!(found.leaves.is_empty());
    assert_eq!(found.problems, []);
    let found = Search::in_paths([folder.path().join("none")]).run();
    assert_eq!(found.problems.len(), 1);
}

#[test]
fn small_and_empty_devices_have_no_labels() {
    for size in [0, 1, 512, 1 << 20, (64 << 20) - 1, 64 << 20] {
        let probe: Probe = label::probe(&cenote_vdev::device::memory::MemoryDevice::new(size));
        assert!(probe.is_empty());
    }
}

#[test]
fn labels_of_the_other_byte_order() {
    // A label whose trailers were written by a big-endian machine.
    let fixture = Fixture::open("single");
    let found = scan(fixture.dir());
    let leaf = &found.leaves[0];
    let swapped = cenote_vdev::device::overlay::OverlayDevice::new(Arc::clone(&leaf.device));
    let newest = leaf.probe.newest_uberblock().unwrap();
    let ashift = leaf.probe.newest_config().unwrap().vdev_tree.ashift.unwrap();
    let mut slot = vec![0; format::label::ring_slot_size(ashift)];
    swapped.read_at(&mut slot, newest.offset).unwrap();
    // An uberblock and its trailer consist of 64-bit words.
    for word in slot.chunks_exact_mut(8) {
        word.reverse();
    }
    let end = slot.len() - 32;
    let words = |v: [u64; 4]| v.map(u64::to_be_bytes).concat();
    slot[end..].copy_from_slice(&words([newest.offset.0, 0, 0, 0]));
    let sum = checksum::compute(format::ChecksumId::Sha256, &slot, format::Endian::Little, None).unwrap();
    slot[end..].copy_from_slice(&words(sum.0));
    swapped.write_at(&slot, newest.offset).unwrap();
    let probe = label::probe(&swapped);
    let again = probe.uberblocks.iter().find(|found| found.offset == newest.offset).expect("still valid");
    assert_eq!(again.uberblock.order, format::Endian::Big);
    assert_eq!(Uberblock { order: format::Endian::Little, ..again.uberblock }, newest.uberblock);
}
