//! Trees with more than one level, leaves that missed writes, removed vdevs, states.

use crate::common::{DISK, Disks, Shape, as_top, extent, guid, interior, leaf, root, write_columns};
use cenote_vdev::device::Device;
use cenote_vdev::device::memory::MemoryDevice;
use cenote_vdev::env::Random;
use cenote_vdev::geometry::{Draid, DraidParams};
use cenote_vdev::tree::{
    Aux, Birth, Extent, Fault, FaultKind, IndirectMapping, MapEntry, RangeSet, VdevError, VdevState, VdevTree,
};
use format::config::VdevNode;
use format::uberblock::ReflowInfo;
use format::{AllocOffset, Ashift, Asize, DeviceOffset, Dva, NvList, Psize, Txg, VdevGuid, VdevId};
use std::collections::HashMap;
use std::sync::Arc;

type Media = HashMap<VdevGuid, Arc<MemoryDevice>>;

fn media(guids: impl IntoIterator<Item = usize>) -> Media {
    guids.into_iter().map(|i| (guid(i), Arc::new(MemoryDevice::new(DISK)))).collect()
}

fn open(config: &VdevNode, media: &Media) -> Arc<VdevTree> {
    let devices: HashMap<VdevGuid, Arc<dyn Device>> =
        media.iter().map(|(guid, disk)| (*guid, Arc::clone(disk) as Arc<dyn Device>)).collect();
    VdevTree::open(config, &devices, ReflowInfo::default()).unwrap()
}

fn random(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Random::from_seed(seed).fill(&mut bytes);
    bytes
}

fn flagged(mut node: NvList, flag: &str) -> NvList {
    node.push(flag, 1u64);
    node
}

fn named(faults: &[Fault]) -> Vec<(VdevGuid, FaultKind)> {
    let mut all: Vec<_> = faults.iter().map(|fault| (fault.leaf, fault.kind)).collect();
    all.dedup();
    all
}

#[test]
fn a_replacement_that_is_not_resilvered_is_asked_last_and_not_blamed() {
    // raidz1 of 0, replacing(1, 3), 2; the block was written before 3 was attached.
    let replacing = interior("replacing", 1, 50, vec![leaf(0, guid(1)), leaf(1, guid(3))]);
    let shape = Shape::raidz(3, 1);
    let config = root(vec![shape.node(Ashift(9), vec![leaf(0, guid(0)), replacing, leaf(2, guid(2))])]);
    let disks = Disks::new(shape, Ashift(9));
    let at = extent(0, 8192, 100);
    let block = disks.write(&at, 1);
    let mut media: Media =
        disks.media.iter().enumerate().map(|(i, disk)| (guid(i), Arc::clone(disk))).collect();
    media.insert(guid(3), Arc::new(MemoryDevice::new(DISK)));
    let tree = open(&config, &media);
    tree.set_dtl(guid(3), std::iter::once(1..200).collect());
    for read in [tree.read(&at, &|data| data == block), tree.check_every_copy(&at, &|data| data == block)] {
        assert!(read.data.as_ref() == Ok(&block));
        assert_eq!(read.faults, []);
    }
    // Without the old device the stale new one must not be trusted, even if no check can tell.
    media.remove(&guid(1));
    let tree = open(&config, &media);
    tree.set_dtl(guid(3), std::iter::once(1..200).collect());
    let read = tree.read(&at, &|_| true);
    assert!(read.data.as_ref() == Ok(&block), "parity is better than a stale leaf");
    assert_eq!(named(&read.faults), [(guid(1), FaultKind::Missing)]);
}

#[test]
fn two_versions_of_a_column_beyond_the_parity() {
    // Columns 0 and 1 have two leaves each; in each pair another one lies. Single parity alone would not
    // suffice.
    let pair =
        |id, one, two| interior("spare", id, 50 + id as u64, vec![leaf(0, guid(one)), leaf(1, guid(two))]);
    let shape = Shape::raidz(4, 1);
    let config = root(vec![
        shape.node(Ashift(9), vec![pair(0, 0, 4), pair(1, 1, 5), leaf(2, guid(2)), leaf(3, guid(3))]),
    ]);
    let disks = Disks::new(shape, Ashift(9));
    let at = extent(0, 6144, 100);
    let block = disks.write(&at, 1);
    let mut media: Media =
        disks.media.iter().enumerate().map(|(i, disk)| (guid(i), Arc::clone(disk))).collect();
    for (copy, of) in [(4, 0), (5, 1)] {
        let mut bytes = vec![0; 1 << 16];
        media[&guid(of)].read_at(&mut bytes, DeviceOffset(0x40_0000)).unwrap();
        let disk = MemoryDevice::new(DISK);
        disk.write_at(&bytes, DeviceOffset(0x40_0000)).unwrap();
        media.insert(guid(copy), Arc::new(disk));
    }
    for (first, second) in [(0, 1), (0, 5), (4, 1), (4, 5)] {
        for liar in [first, second] {
            media[&guid(liar)].write_at(&[0xEE; 4096], DeviceOffset(0x40_0000)).unwrap();
        }
        let tree = open(&config, &media);
        let scrub = tree.check_every_copy(&at, &|data| data == block);
        assert!(scrub.data.as_ref() == Ok(&block), "liars {first} and {second}");
        let mut expected = [(guid(first), FaultKind::Checksum), (guid(second), FaultKind::Checksum)];
        expected.sort();
        assert_eq!(named(&scrub.faults), expected);
        let read = tree.read(&at, &|data| data == block);
        assert!(read.data.as_ref() == Ok(&block), "liars {first} and {second}");
        for (liar, of) in [(first, [0, 4]), (second, [1, 5])] {
            let truth = if liar == of[0] { of[1] } else { of[0] };
            let mut bytes = vec![0; 1 << 16];
            media[&guid(truth)].read_at(&mut bytes, DeviceOffset(0x40_0000)).unwrap();
            media[&guid(liar)].write_at(&bytes, DeviceOffset(0x40_0000)).unwrap();
        }
    }
}

#[test]
fn mirrors_prefer_leaves_that_have_the_block() {
    let children = (0..3).map(|i| leaf(i, guid(i))).collect();
    let config = root(vec![Shape::Mirror(3).node(Ashift(9), children)]);
    let media = media(0..3);
    let block = random(4096, 9);
    media[&guid(2)].write_at(&block, DeviceOffset(0x40_0000)).unwrap();
    let tree = open(&config, &media);
    for stale in [0, 1] {
        tree.set_dtl(guid(stale), std::iter::once(40..60).collect());
    }
    let at = extent(0, 4096, 50);
    let read = tree.read(&at, &|_| true);
    assert!(read.data == Ok(block.clone()), "the only leaf that did not miss it");
    let read = tree.read(&at, &|data| data == block);
    assert_eq!(read.faults, []);
    // Born in another txg, all three should have it: the two that do not are found.
    let scrub = tree.check_every_copy(&extent(0, 4096, 60), &|data| data == block);
    assert_eq!(named(&scrub.faults), [(guid(0), FaultKind::Checksum), (guid(1), FaultKind::Checksum)]);
}

#[test]
fn leaves_out_of_service_are_the_last_resort() {
    for flag in ["offline", "faulted", "removed"] {
        let children = vec![flagged(leaf(0, guid(0)), flag), leaf(1, guid(1))];
        let config = root(vec![Shape::Mirror(2).node(Ashift(9), children)]);
        let media = media(0..2);
        let (old, new) = (random(512, 1), random(512, 2));
        media[&guid(0)].write_at(&old, DeviceOffset(0x40_0000)).unwrap();
        media[&guid(1)].write_at(&new, DeviceOffset(0x40_0000)).unwrap();
        let tree = open(&config, &media);
        for _ in 0..4 {
            assert!(tree.read(&extent(0, 512, 5), &|_| true).data == Ok(new.clone()), "{flag}");
        }
        let read = tree.read(&extent(0, 512, 5), &|data| data == old);
        assert!(read.data == Ok(old), "{flag}: better than nothing");
        assert_eq!(named(&read.faults), [(guid(1), FaultKind::Checksum)]);
    }
}

#[test]
fn resilvering_leaves_are_stale_for_what_is_older() {
    let mut child = leaf(0, guid(0));
    child.push("resilver_txg", 100u64);
    let config = root(vec![Shape::Mirror(2).node(Ashift(9), vec![child, leaf(1, guid(1))])]);
    let media = media(0..2);
    let block = random(512, 2);
    media[&guid(1)].write_at(&block, DeviceOffset(0x40_0000)).unwrap();
    let tree = open(&config, &media);
    assert_eq!(tree.check_every_copy(&extent(0, 512, 99), &|data| data == block).faults, []);
    assert_eq!(tree.check_every_copy(&extent(0, 512, 100), &|data| data == block).faults.len(), 1);
}

#[test]
fn distributed_spare_serves_for_a_lost_child() {
    let params = DraidParams { children: 8, ndata: 2, nparity: 1, nspares: 2, ngroups: 2, ashift: Ashift(9) };
    let shape = Shape::Draid(params);
    let draid = Draid::new(params).unwrap();
    let lost = 3;
    let mut dspare = interior("dspare", 1, 77, vec![]);
    dspare.remove("children");
    dspare.push("top_guid", 2u64);
    dspare.push("spareid", 1u64);
    dspare.push("is_spare", 1u64);
    let children = (0..8).map(|i| match i {
        3 => interior("spare", 3, 60, vec![leaf(0, guid(lost)), dspare.clone()]),
        _ => leaf(i, guid(i)),
    });
    let config = root(vec![shape.node(Ashift(9), children.collect())]);
    let disks = Disks::new(shape, Ashift(9));
    let mut blocks = Vec::new();
    for i in 0..200u64 {
        let at = extent(i * 3 * 512 * 1000, 2048, 5);
        blocks.push((at, disks.write(&at, i)));
    }
    // The result of a rebuild onto the distributed spare.
    for (at, _) in &blocks {
        let map = disks.shape.map(Ashift(9), at).unwrap();
        for column in map.rows.iter().flat_map(|row| &row.columns).filter(|column| column.child == lost) {
            let place = column.at as u64;
            let spare = draid.spare_child(1, place).unwrap();
            assert_ne!(spare, lost);
            let mut bytes = vec![0; column.stored as usize];
            disks.media[lost].read_at(&mut bytes, DeviceOffset(0x40_0000 + place)).unwrap();
            disks.media[spare].write_at(&bytes, DeviceOffset(0x40_0000 + place)).unwrap();
        }
    }
    let mut media: Media =
        disks.media.iter().enumerate().map(|(i, disk)| (guid(i), Arc::clone(disk))).collect();
    media.remove(&guid(lost));
    let tree = open(&config, &media);
    for (at, block) in &blocks {
        // All data are intact: even with verification off, none is reconstructed or wrong.
        let read = tree.read(at, &|data| data == *block);
        assert!(read.data.as_ref() == Ok(block));
        assert_eq!(read.faults, [], "{at:?}");
        let scrub = tree.check_every_copy(at, &|data| data == *block);
        assert!(scrub.data.as_ref() == Ok(block));
        assert!(scrub.faults.iter().all(|f| (f.leaf, f.kind) == (guid(lost), FaultKind::Missing)), "{at:?}");
    }
    let status = tree.status();
    assert_eq!(status.children[0].children[3].state, VdevState::Degraded);
    assert_eq!(status.state, VdevState::Degraded);
}

#[test]
fn a_distributed_spare_that_is_not_rebuilt_is_not_believed_and_nobody_is_blamed() {
    let params = DraidParams { children: 8, ndata: 2, nparity: 1, nspares: 2, ngroups: 2, ashift: Ashift(9) };
    let shape = Shape::Draid(params);
    let mut dspare = leaf(1, VdevGuid(77));
    dspare.set("type", "dspare");
    dspare.push("top_guid", 2u64);
    dspare.push("spareid", 0u64);
    let children = (0..8).map(|i| match i {
        3 => interior("spare", 3, 60, vec![leaf(0, guid(3)), dspare.clone()]),
        _ => leaf(i, guid(i)),
    });
    let config = root(vec![shape.node(Ashift(9), children.collect())]);
    let disks = Disks::new(shape, Ashift(9));
    let mut media: Media =
        disks.media.iter().enumerate().map(|(i, disk)| (guid(i), Arc::clone(disk))).collect();
    media.remove(&guid(3));
    let tree = open(&config, &media);
    tree.set_dtl(VdevGuid(77), std::iter::once(1..200).collect());
    for i in 0..50u64 {
        let at = extent(i * 3 * 512 * 1000, 2048, 5);
        let block = disks.write(&at, i);
        // Without verification, only columns that are not read wrongly are right.
        let read = tree.read(&at, &|_| true);
        assert!(read.data.as_ref() == Ok(&block), "{at:?}");
        assert!(read.faults.iter().all(|f| f.kind == FaultKind::Missing && f.leaf == guid(3)), "{at:?}");
        let scrub = tree.check_every_copy(&at, &|data| data == block);
        assert!(scrub.faults.iter().all(|f| f.kind == FaultKind::Missing && f.leaf == guid(3)), "{at:?}");
    }
}

#[test]
fn mirror_of_raidz() {
    let shape = Shape::raidz(3, 1);
    let side = |id: usize, first: usize| {
        let mut list =
            interior("raidz", id, 40 + id as u64, (0..3).map(|i| leaf(i, guid(first + i))).collect());
        list.push("nparity", 1u64);
        list
    };
    let config = root(vec![as_top(interior("mirror", 0, 2, vec![side(0, 0), side(1, 3)]), Ashift(9), 0)]);
    let at = extent(0, 4096, 5);
    let disks = Disks::new(shape.clone(), Ashift(9));
    let block = disks.write(&at, 1);
    let mut media: Media =
        disks.media.iter().enumerate().map(|(i, disk)| (guid(i), Arc::clone(disk))).collect();
    let twin = Disks::new(shape, Ashift(9));
    twin.write(&at, 1);
    media.extend(twin.media.iter().enumerate().map(|(i, disk)| (guid(3 + i), Arc::clone(disk))));
    media.remove(&guid(0));
    media.remove(&guid(1));
    let tree = open(&config, &media);
    let read = tree.read(&at, &|data| data == block);
    assert!(read.data == Ok(block));
    assert_eq!(tree.psize_to_asize(VdevId(0), Psize(4096), Txg(5)), Some(Asize(6144)));
}

#[test]
fn each_leaf_of_a_raidz_below_a_mirror_needs_only_its_share() {
    let sides = (0..2).map(|side| {
        let mut list =
            interior("raidz", side, 40 + side as u64, (0..4).map(|i| leaf(i, guid(4 * side + i))).collect());
        list.push("nparity", 1u64);
        list
    });
    let usable = DISK - 0x48_0000;
    let config = root(vec![as_top(interior("mirror", 0, 2, sides.collect()), Ashift(9), 4 * usable)]);
    let mut media = media(0..8);
    assert_eq!(open(&config, &media).status().state, VdevState::Online);
    media.insert(guid(6), Arc::new(MemoryDevice::new(DISK - (1 << 20))));
    let status = open(&config, &media).status();
    let leaf = status.find(guid(6)).unwrap();
    assert_eq!((leaf.state, leaf.aux), (VdevState::Unavail, Aux::TooSmall));
}

#[test]
fn what_was_on_a_vdev_without_any_label_is_missing_not_out_of_range() {
    let mut missing = NvList::new();
    missing.push("type", "missing");
    missing.push("id", 0u64);
    missing.push("guid", 77u64);
    let config = root(vec![missing]);
    let tree = open(&config, &Media::new());
    let dva = Dva { vdev: VdevId(0), offset: AllocOffset(1 << 30), asize: Asize(512), gang: false };
    assert_eq!(tree.check(&dva, Psize(512)), Ok(()));
    let read = tree.read(&extent(1 << 30, 512, 5), &|_| true);
    assert_eq!(read.data, Err(VdevError::NoCopies));
    assert_eq!(named(&read.faults), [(VdevGuid(77), FaultKind::Missing)]);
}

/// Tops: 0 a mirror, 1 a leaf, 2 removed onto 0 and 1, 3 removed onto 2 and 0.
fn with_removed() -> (VdevNode, Media) {
    let removed = |id: usize| {
        let mut list = interior("indirect", id, 80 + id as u64, vec![]);
        list.remove("children");
        list.push("com.delphix:indirect_object", 99u64);
        as_top(list, Ashift(9), 1 << 30)
    };
    let mirror = interior("mirror", 0, 2, vec![leaf(0, guid(0)), leaf(1, guid(1))]);
    let tops =
        vec![as_top(mirror, Ashift(9), 0), as_top(leaf(1, guid(2)), Ashift(9), 0), removed(2), removed(3)];
    (root(tops), media(0..3))
}

fn entry(src: u64, len: u64, vdev: u32, offset: u64) -> MapEntry {
    let dst = Dva { vdev: VdevId(vdev), offset: AllocOffset(offset), asize: Asize(len), gang: false };
    MapEntry { src: AllocOffset(src), len, dst }
}

fn set_mappings(tree: &VdevTree) {
    let older =
        vec![entry(0, 8192, 0, 1 << 20), entry(8192, 4096, 1, 2 << 20), entry(16384, 4096, 0, 3 << 20)];
    let births = vec![
        Birth { end: AllocOffset(8192), txg: Txg(70) },
        Birth { end: AllocOffset(1 << 20), txg: Txg(71) },
    ];
    tree.set_indirect(VdevId(2), IndirectMapping::new(VdevId(2), older, births).unwrap());
    // The first entry leads onto the removed vdev 2, across the border of its entries.
    let newer = vec![entry(512, 4096, 2, 6144), entry(4608, 512, 0, 5 << 20)];
    tree.set_indirect(VdevId(3), IndirectMapping::new(VdevId(3), newer, Vec::new()).unwrap());
}

#[test]
fn removed_vdevs_are_read_through_their_mappings() {
    let (config, media) = with_removed();
    let tree = open(&config, &media);
    assert_eq!(tree.status().children[2].state, VdevState::Unavail, "no mapping yet");
    let at = |vdev, offset, psize| Extent { vdev: VdevId(vdev), ..extent(offset, psize, 5) };
    assert_eq!(
        tree.read(&at(2, 0, 512), &|_| true).data,
        Err(VdevError::NoMapping { vdev: VdevId(2), offset: AllocOffset(0) })
    );
    set_mappings(&tree);
    assert_eq!(tree.status().state, VdevState::Online);
    let block = random(4096 + 512, 3);
    // Blocks 512..5120 of vdev 3: 2048 bytes on the mirror, 2048 on leaf 2, 512 on the mirror.
    let write = |disk: usize, place: u64, part: std::ops::Range<usize>| {
        media[&guid(disk)].write_at(&block[part], DeviceOffset(0x40_0000 + place)).unwrap();
    };
    for side in [0, 1] {
        write(side, (1 << 20) + 6144, 0..2048);
        write(side, 5 << 20, 4096..4608);
    }
    write(2, 2 << 20, 2048..4096);
    let whole = at(3, 512, 4608);
    let read = tree.check_every_copy(&whole, &|data| data == block);
    assert!(read.data.as_ref() == Ok(&block));
    assert_eq!(read.faults, []);
    assert!(tree.read(&at(2, 6144, 512), &|data| data == &block[..512]).data.is_ok());
    // Each side of the mirror is wrong in another segment: only a combination is right.
    media[&guid(0)].write_at(&[1; 512], DeviceOffset(0x40_0000 + (1 << 20) + 6144)).unwrap();
    media[&guid(1)].write_at(&[1; 512], DeviceOffset(0x40_0000 + (5 << 20))).unwrap();
    let read = tree.read(&whole, &|data| data == block);
    assert!(read.data.as_ref() == Ok(&block));
    assert_eq!(named(&read.faults), [(guid(0), FaultKind::Checksum), (guid(1), FaultKind::Checksum)]);
    // A hole of the mapping, and a range after its end.
    for (offset, psize) in [(12288, 512), (8192, 8192), (1 << 21, 512)] {
        let failed = tree.read(&at(2, offset, psize), &|_| true).data;
        assert!(matches!(failed, Err(VdevError::NoMapping { .. })), "{offset}");
    }
    let mapping = tree.indirect(VdevId(2)).unwrap();
    assert_eq!(mapping.birth(AllocOffset(8191)), Some(Txg(70)));
    assert_eq!(mapping.birth(AllocOffset(8192)), Some(Txg(71)));
    assert_eq!(mapping.birth(AllocOffset(1 << 20)), None);
}

#[test]
fn mappings_in_a_circle_end() {
    let (config, media) = with_removed();
    let tree = open(&config, &media);
    let circle =
        |from, to| IndirectMapping::new(VdevId(from), vec![entry(0, 4096, to, 0)], Vec::new()).unwrap();
    tree.set_indirect(VdevId(2), circle(2, 3));
    tree.set_indirect(VdevId(3), circle(3, 2));
    let read = tree.read(&Extent { vdev: VdevId(2), ..extent(0, 512, 5) }, &|_| true);
    assert!(matches!(read.data, Err(VdevError::BadMapping { .. })));
}

#[test]
fn impossible_mappings_are_refused() {
    for entries in [
        vec![entry(0, 0, 0, 0)],
        vec![entry(0, 1024, 0, 0), entry(512, 512, 0, 4096)],
        vec![entry(1024, 512, 0, 0), entry(0, 512, 0, 4096)],
        vec![entry(u64::MAX - 100, 512, 0, 0)],
        vec![entry(0, 512, 0, u64::MAX - 100)],
        vec![entry(0, 512, 2, 0)],
    ] {
        assert!(IndirectMapping::new(VdevId(2), entries, Vec::new()).is_err());
    }
    let births = vec![Birth { end: AllocOffset(512), txg: Txg(1) }; 2];
    assert!(IndirectMapping::new(VdevId(2), Vec::new(), births).is_err());
}

#[test]
fn addresses_are_checked() {
    let (config, media) = with_removed();
    let tree = open(&config, &media);
    let dva = |vdev, offset, asize, gang| Dva {
        vdev: VdevId(vdev),
        offset: AllocOffset(offset),
        asize: Asize(asize),
        gang,
    };
    let usable = DISK - 0x48_0000;
    assert_eq!(tree.check(&dva(0, 0, 512, false), Psize(512)), Ok(()));
    assert_eq!(tree.check(&dva(0, usable - 512, 512, false), Psize(512)), Ok(()));
    assert!(matches!(tree.check(&dva(0, usable, 512, false), Psize(512)), Err(VdevError::OutOfRange { .. })));
    assert!(matches!(
        tree.check(&dva(0, usable - 512, 512, false), Psize(1024)),
        Err(VdevError::OutOfRange { .. })
    ));
    assert!(matches!(
        tree.check(&dva(0, u64::MAX - 511, 512, false), Psize(512)),
        Err(VdevError::OutOfRange { .. })
    ));
    assert!(matches!(tree.check(&dva(0, 100, 512, false), Psize(512)), Err(VdevError::Misaligned { .. })));
    assert!(matches!(tree.check(&dva(9, 0, 512, false), Psize(512)), Err(VdevError::NoVdev { .. })));
    assert!(matches!(tree.check(&dva(0, 0, 512, false), Psize((16 << 20) + 1)), Err(VdevError::Size(_))));
    assert_eq!(tree.check(&dva(0, usable - 512, 1 << 20, true), Psize(512)), Ok(()), "a gang's total");
    // Reading does not rely on the check.
    for offset in [usable, u64::MAX - 511, u64::MAX, 1 << 63] {
        assert!(tree.read(&extent(offset, 512, 5), &|_| true).data.is_err(), "{offset}");
    }
    assert!(tree.read(&extent(0, 1 << 40, 5), &|_| true).data == Err(VdevError::Size(Psize(1 << 40))));
}

#[test]
fn numbers_of_a_top_level_vdev() {
    let disks = Disks::new(Shape::raidz(4, 1), Ashift(9));
    let tree = disks.tree(&disks.simulated(), &[]);
    assert_eq!(tree.deflate_ratio(VdevId(0)), 383);
    assert_eq!((tree.min_alloc(VdevId(0)), tree.ashift(VdevId(0))), (Some(512), Some(Ashift(9))));
    let params =
        DraidParams { children: 11, ndata: 4, nparity: 2, nspares: 2, ngroups: 3, ashift: Ashift(12) };
    let disks = Disks::new(Shape::Draid(params), Ashift(12));
    let tree = disks.tree(&disks.simulated(), &[]);
    assert_eq!((tree.deflate_ratio(VdevId(0)), tree.min_alloc(VdevId(0))), (341, Some(16384)));
    assert_eq!(tree.alignment(VdevId(0)), Some(24576));
    assert_eq!((tree.deflate_ratio(VdevId(7)), tree.min_alloc(VdevId(7))), (512, None));
}

#[test]
fn states_as_openzfs_shows_them() {
    let state = |shape: &Shape, missing: &[usize]| {
        let disks = Disks::new(shape.clone(), Ashift(9));
        let status = disks.tree(&disks.simulated(), missing).status();
        let top = &status.children[0];
        (status.state, status.aux, top.state, top.aux)
    };
    use VdevState::{Degraded, Online, Unavail};
    let (none, lost) = (Aux::None, Aux::NoReplicas);
    assert_eq!(state(&Shape::raidz(3, 1), &[]), (Online, none, Online, none));
    assert_eq!(state(&Shape::raidz(3, 1), &[1]), (Degraded, none, Degraded, none));
    assert_eq!(state(&Shape::raidz(3, 1), &[1, 2]), (Unavail, lost, Unavail, lost));
    assert_eq!(state(&Shape::Mirror(2), &[0]), (Degraded, none, Degraded, none));
    assert_eq!(state(&Shape::Mirror(2), &[0, 1]), (Unavail, lost, Unavail, lost));
    assert_eq!(state(&Shape::Leaf, &[0]), (Unavail, lost, Unavail, Aux::OpenFailed));

    let disks = Disks::new(Shape::raidz(3, 1), Ashift(9));
    let leaf_status = disks.tree(&disks.simulated(), &[1]).status().find(guid(1)).unwrap().clone();
    assert_eq!((leaf_status.state, leaf_status.aux.words()), (Unavail, "cannot open"));
    assert_eq!(leaf_status.path.unwrap().to_str(), Some("/disk1001"));
}

#[test]
fn flags_of_the_configuration_make_states() {
    let check = |flags: &[&str], aux_state: Option<&str>, expected: (VdevState, Aux)| {
        let mut child = flags.iter().fold(leaf(0, guid(0)), |node, flag| flagged(node, flag));
        if let Some(aux) = aux_state {
            child.push("aux_state", aux);
        }
        let config = root(vec![Shape::Mirror(2).node(Ashift(9), vec![child, leaf(1, guid(1))])]);
        let status = open(&config, &media(0..2)).status();
        let leaf = status.find(guid(0)).unwrap();
        assert_eq!((leaf.state, leaf.aux), expected, "{flags:?}");
        status.state
    };
    use VdevState::{Degraded, Faulted, Offline, Removed};
    assert_eq!(check(&["offline"], None, (Offline, Aux::None)), Degraded);
    assert_eq!(check(&["removed"], None, (Removed, Aux::None)), Degraded);
    assert_eq!(check(&["faulted"], Some("external"), (Faulted, Aux::External)), Degraded);
    assert_eq!(check(&["faulted"], Some("err_exceeded"), (Faulted, Aux::ErrExceeded)), Degraded);
    assert_eq!(check(&["degraded"], None, (Degraded, Aux::ErrExceeded)), Degraded);
}

#[test]
fn a_device_smaller_than_its_vdev_does_not_count() {
    let children = (0..2).map(|i| leaf(i, guid(i))).collect();
    let mirror = interior("mirror", 0, 2, children);
    let config = root(vec![as_top(mirror, Ashift(9), DISK - 0x48_0000)]);
    let mut media = media(0..2);
    media.insert(guid(0), Arc::new(MemoryDevice::new(DISK / 2)));
    let status = open(&config, &media).status();
    let leaf = status.find(guid(0)).unwrap();
    assert_eq!((leaf.state, leaf.aux), (VdevState::Unavail, Aux::TooSmall));
    assert_eq!(status.state, VdevState::Degraded);
}

#[test]
fn holes_have_no_data() {
    let mut hole = NvList::new();
    hole.push("type", "hole");
    hole.push("id", 1u64);
    hole.push("guid", 0u64);
    hole.push("is_hole", 1u64);
    let config = root(vec![as_top(leaf(0, guid(0)), Ashift(9), 0), hole]);
    let tree = open(&config, &media(0..1));
    assert_eq!(tree.top_count(), 2);
    let at = Extent { vdev: VdevId(1), ..extent(0, 512, 5) };
    assert_eq!(tree.read(&at, &|_| true).data, Err(VdevError::NoVdev { vdev: VdevId(1) }));
    assert_eq!(tree.status().state, VdevState::Online);
}

#[test]
fn range_sets_come_from_ranges() {
    let set: RangeSet = [5..7, 6..9, 20..21].into_iter().collect();
    assert_eq!(set.iter().collect::<Vec<_>>(), [5..9, 20..21]);
}

#[test]
fn write_columns_is_used_by_both_files() {
    // Checks the test helper: parity of a block read back column by column.
    let disks = Disks::new(Shape::raidz(3, 1), Ashift(9));
    let map = disks.shape.map(Ashift(9), &extent(0, 1024, 5)).unwrap();
    write_columns(&disks.media, &map, &[[1; 512], [2; 512]].concat());
    let mut parity = [0; 512];
    disks.media[0].read_at(&mut parity, DeviceOffset(0x40_0000)).unwrap();
    assert_eq!(parity, [3; 512]);
}
