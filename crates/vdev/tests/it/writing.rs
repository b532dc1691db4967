//! Writing to every layout: reading back with every set of lost leaves that it must survive, leaves that fail
//! meanwhile, DTLs, flushing and repairing.

use crate::common::{DISK, Disks, Shape, as_top, extent, guid, interior, leaf, root, subsets};
use cenote_vdev::VdevTree;
use cenote_vdev::device::sim::{OpKind, Rates, SimDisk};
use cenote_vdev::device::{Device, DeviceError};
use cenote_vdev::env::Random;
use cenote_vdev::geometry::{DraidParams, Expansion, ReflowState};
use cenote_vdev::tree::{Extent, FaultKind, RangeSet, VdevError, Write};
use format::uberblock::ReflowInfo;
use format::{AllocOffset, Ashift, DeviceOffset, Psize, Txg, VdevGuid, VdevId};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};

fn expanded(children: usize, nparity: u8, txgs: &[u64]) -> Shape {
    let txgs = txgs.iter().map(|txg| Txg(*txg)).collect();
    Shape::Raidz { children, nparity, expansion: Expansion { txgs, running: None } }
}

fn shapes() -> Vec<(Shape, Ashift)> {
    let draid = DraidParams { children: 6, ndata: 3, nparity: 2, nspares: 1, ngroups: 1, ashift: Ashift(12) };
    vec![
        (Shape::Leaf, Ashift(9)),
        (Shape::Leaf, Ashift(12)),
        (Shape::Mirror(2), Ashift(12)),
        (Shape::Mirror(3), Ashift(9)),
        (Shape::raidz(2, 1), Ashift(12)),
        (Shape::raidz(3, 1), Ashift(9)),
        (Shape::raidz(5, 1), Ashift(12)),
        (Shape::raidz(4, 2), Ashift(9)),
        (Shape::raidz(6, 2), Ashift(12)),
        (Shape::raidz(5, 3), Ashift(9)),
        (expanded(5, 1, &[50]), Ashift(9)),
        (expanded(6, 2, &[50, 200]), Ashift(12)),
        (Shape::Draid(draid), Ashift(12)),
    ]
}

fn content(at: &Extent, seed: u64) -> Vec<u8> {
    let mut block = vec![0; at.psize.0 as usize];
    Random::from_seed(seed).fill(&mut block);
    block
}

/// Sizes from one byte to several rows, at all rotations of the columns.
fn extents(tree: &VdevTree, ashift: Ashift, birth: u64) -> Vec<Extent> {
    let (sector, step) = (ashift.sector(), tree.alignment(VdevId(0)).unwrap());
    let mut place = 0;
    let mut all = Vec::new();
    for size in
        [1, 300, sector, sector + 1, 2 * sector, 3 * sector, 7 * sector - 5, 16 * sector, 131_072, 100_001]
    {
        for gap in [0, 1, 2, 5] {
            let at = extent(place + gap * step, size, birth);
            let asize = tree.psize_to_asize(VdevId(0), at.psize, at.birth).unwrap().0;
            place = (at.offset.0 + asize).next_multiple_of(step);
            all.push(at);
        }
    }
    // At the place where single parity swaps its columns, and a block larger than a run.
    let swapped = (((3 << 20) / step) * step).max(place.next_multiple_of(step));
    all.push(extent(swapped, 5 * sector, birth));
    all.push(extent((8 << 20) / step * step, 3 << 20, birth));
    all
}

fn write_all(tree: &VdevTree, extents: &[Extent]) -> Vec<Result<(), VdevError>> {
    let blocks: Vec<Vec<u8>> = extents.iter().map(|at| content(at, at.offset.0)).collect();
    let writes: Vec<Write<'_>> =
        extents.iter().zip(&blocks).map(|(at, data)| Write { at: *at, data }).collect();
    tree.write_many(&writes)
}

fn reads_back(tree: &VdevTree, at: &Extent) -> bool {
    let block = content(at, at.offset.0);
    tree.read(at, &|data| data == block).data.is_ok()
}

fn set(txgs: &[u64]) -> RangeSet {
    txgs.iter().map(|txg| *txg..*txg + 1).collect()
}

#[test]
fn what_is_written_is_what_the_layout_says() {
    for (shape, ashift) in shapes() {
        let (ours, theirs) = (Disks::new(shape.clone(), ashift), Disks::new(shape.clone(), ashift));
        let sims = ours.simulated();
        let tree = ours.tree(&sims, &[]);
        let extents = extents(&tree, ashift, 100);
        assert!(write_all(&tree, &extents).iter().all(Result::is_ok), "{shape:?}");
        for at in &extents {
            theirs.write(at, at.offset.0);
        }
        for (ours, theirs) in sims.iter().zip(&theirs.media) {
            let (mut one, mut two) = (vec![0; 24 << 20], vec![0; 24 << 20]);
            ours.read_at(&mut one, DeviceOffset(0)).unwrap();
            theirs.read_at(&mut two, DeviceOffset(0)).unwrap();
            assert!(one == two, "{shape:?} {ashift:?}");
        }
        for at in &extents {
            let block = content(at, at.offset.0);
            let scrub = tree.check_every_copy(at, &|data| data == block);
            assert!(scrub.data.is_ok() && scrub.faults.is_empty(), "{shape:?} {at:?}: {:?}", scrub.faults);
        }
        assert_eq!(tree.take_changed_dtls(), []);
        // Neighbours were joined: fewer writes than columns.
        let writes = tree.status().walk().iter().map(|vdev| vdev.writes).max().unwrap();
        assert!(writes < extents.len() as u64, "{shape:?}: {writes}");
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Trouble {
    Missing,
    Fails,
    Gone,
}

/// Every set of troubled leaves up to the redundancy, and one leaf more.
#[test]
fn a_block_is_written_as_long_as_it_can_be_read() {
    for (shape, ashift) in shapes() {
        for at in [extent(0, 1, 100), extent(180 << 12, 20_000, 100), extent(60 << 14, 131_072, 100)] {
            let disks = Disks::new(shape.clone(), ashift);
            for lost in subsets(shape.children(), shape.nparity() + 1) {
                for trouble in [Trouble::Missing, Trouble::Fails, Trouble::Gone] {
                    one_write(&disks, &at, &lost, trouble);
                }
            }
        }
    }
}

fn one_write(disks: &Disks, at: &Extent, lost: &[usize], trouble: Trouble) {
    let what = format!("{:?} {at:?} without {lost:?}, {trouble:?}", disks.shape);
    let sims = disks.simulated();
    let tree = disks.tree(&sims, if trouble == Trouble::Missing { lost } else { &[] });
    for i in lost {
        match trouble {
            Trouble::Missing => {}
            Trouble::Fails => sims[*i].set_rates(Rates { write_error: 1, ..Rates::default() }),
            Trouble::Gone => sims[*i].vanish(),
        }
    }
    let holders = disks.holders(at);
    let hit: Vec<usize> = lost.iter().copied().filter(|i| holders.contains(i)).collect();
    let result = tree.write(at, &content(at, at.offset.0));
    let most = if disks.shape.nparity() == 0 { 0 } else { disks.shape.nparity() };
    // A dRAID's empty columns are written too, and count as much as others.
    let padded = matches!(disks.shape, Shape::Draid(_));
    let expected = match disks.shape.map(disks.ashift, at) {
        None => hit.len() <= most,
        Some(map) => map.rows.iter().all(|row| {
            row.columns.iter().filter(|c| c.stored > 0 && lost.contains(&c.child)).count() <= row.nparity
        }),
    };
    assert_eq!(result.is_ok(), expected, "{what}: {result:?}");
    for i in 0..sims.len() {
        let missed = lost.contains(&i) && (hit.contains(&i) || (padded && tree.dtl(guid(i)) == set(&[100])));
        assert_eq!(tree.dtl(guid(i)), if missed { set(&[100]) } else { RangeSet::new() }, "{what}");
        let errors = tree.status().find(guid(i)).unwrap().write_errors;
        assert_eq!(errors > 0, missed && trouble != Trouble::Missing, "{what}");
    }
    let changed = tree.take_changed_dtls();
    assert!(hit.iter().all(|i| changed.contains(&guid(*i))), "{what}");
    assert_eq!(tree.take_changed_dtls(), [], "{what}");
    if expected {
        // Another tree has no memory of the failures; the troubled disks return what they have.
        sims.iter().for_each(|sim| sim.come_back());
        assert!(reads_back(&tree, at), "{what}");
        let fresh = disks.tree(&sims, lost);
        assert!(reads_back(&fresh, at), "{what}");
    }
}

#[test]
fn a_write_that_fails_once_is_tried_again() {
    let disks = Disks::new(Shape::raidz(4, 1), Ashift(12));
    let sims = disks.simulated();
    let tree = disks.tree(&sims, &[]);
    sims[2].fail_nth(OpKind::Write, 0);
    let extents: Vec<Extent> = (0..8).map(|i| extent(i * 8 * 4096, 20_000, 9)).collect();
    assert!(write_all(&tree, &extents).iter().all(Result::is_ok));
    assert_eq!((tree.dtl(guid(2)), tree.status().find(guid(2)).unwrap().write_errors), (RangeSet::new(), 0));
    for at in &extents {
        let block = content(at, at.offset.0);
        assert!(tree.check_every_copy(at, &|data| data == block).faults.is_empty());
    }
}

/// A run of many blocks fails: the few that cannot be written are found, with a bounded number of tries.
#[test]
fn a_broken_leaf_is_given_up_after_some_tries() {
    let disks = Disks::new(Shape::Mirror(2), Ashift(9));
    for (errors, tries) in [(3, 41), (1 << 40, 9)] {
        let sims = disks.simulated();
        let tree = disks.tree(&sims, &[]);
        (0..errors.min(50)).for_each(|n| sims[1].fail_nth(OpKind::Write, n));
        sims[1].record(false);
        let extents: Vec<Extent> = (0..40).map(|i| extent(i * 512, 512, 3)).collect();
        assert!(write_all(&tree, &extents).iter().all(Result::is_ok));
        assert_eq!(sims[1].take_record().len(), tries);
        assert_eq!(tree.dtl(guid(1)), set(&[3]));
        let wrong = extents.iter().filter(|at| {
            let block = content(at, at.offset.0);
            let mut read = vec![0; 512];
            sims[1].read_at(&mut read, at.offset.on_device()).unwrap();
            read != block
        });
        assert!(if tries == 41 { wrong.count() <= 2 } else { wrong.count() >= 20 });
        assert!(extents.iter().all(|at| reads_back(&tree, at)));
    }
}

#[test]
fn fillers_do_not_touch_neighbours() {
    // One sector of data and one of parity: with double parity three sectors of space, so no padding; two
    // sectors of data take four, with two of padding.
    let disks = Disks::new(Shape::raidz(5, 2), Ashift(9));
    let sims = disks.simulated();
    let tree = disks.tree(&sims, &[]);
    let all: Vec<Extent> = (0..200).map(|i| extent(i * 6 * 512, 1024, 3)).collect();
    let odd: Vec<Extent> = all.iter().skip(1).step_by(2).copied().collect();
    let even: Vec<Extent> = all.iter().step_by(2).copied().collect();
    assert!(write_all(&tree, &odd).iter().all(Result::is_ok));
    assert!(write_all(&tree, &even).iter().all(Result::is_ok));
    assert!(all.iter().all(|at| reads_back(&tree, at)));
    // All at once: each disk gets one write.
    sims.iter().for_each(|sim| sim.record(false));
    assert!(write_all(&tree, &all).iter().all(Result::is_ok));
    assert_eq!(sims.iter().map(|sim| sim.take_record().len()).collect::<Vec<_>>(), [1; 5]);
    assert!(all.iter().all(|at| reads_back(&tree, at)));
}

#[test]
fn a_leaf_that_cannot_flush_has_missed_it_all() {
    for shape in [Shape::Mirror(2), Shape::raidz(4, 1)] {
        let disks = Disks::new(shape, Ashift(12));
        let sims = disks.simulated();
        let tree = disks.tree(&sims, &[]);
        let since = tree.mark();
        assert!(
            write_all(&tree, &[extent(0, 50_000, 5), extent(1 << 20, 50_000, 6)]).iter().all(Result::is_ok)
        );
        sims[1].fail_nth(OpKind::Flush, 0);
        assert_eq!(tree.flush(&[VdevId(0)], since), Ok(()));
        assert_eq!(tree.dtl(guid(1)), set(&[5, 6]));
        assert_eq!(tree.take_changed_dtls(), [guid(1)]);
        assert!(sims.iter().all(|sim| sim.unflushed() == 0));
        // No births are unflushed: devices are not asked again.
        sims.iter().for_each(|sim| sim.fail_nth(OpKind::Flush, 0));
        assert_eq!(tree.flush(&[VdevId(0)], since), Ok(()));
        assert_eq!(tree.dtl(guid(0)), RangeSet::new());
        // Now all fail.
        assert!(write_all(&tree, &[extent(2 << 20, 50_000, 7)]).iter().all(Result::is_ok));
        assert_eq!(tree.flush(&[VdevId(0)], since), Err(VdevError::NotFlushed { vdev: VdevId(0) }));
    }
}

#[test]
fn one_leaf_did_not_take_it_and_the_other_cannot_keep_it() {
    let disks = Disks::new(Shape::Mirror(2), Ashift(12));
    let sims = disks.simulated();
    let tree = disks.tree(&sims, &[]);
    let since = tree.mark();
    sims[0].set_rates(Rates { write_error: 1, ..Rates::default() });
    assert_eq!(tree.write(&extent(0, 4096, 5), &[1; 4096]), Ok(()));
    sims[1].fail_nth(OpKind::Flush, 0);
    assert_eq!(tree.flush(&[VdevId(0)], since), Err(VdevError::NotFlushed { vdev: VdevId(0) }));
    assert_eq!(tree.flush(&[VdevId(7)], since), Err(VdevError::NoVdev { vdev: VdevId(7) }));
    assert_eq!(tree.flush_leaves(&[guid(0), guid(9)]), [Ok(()), Err(DeviceError::Gone)]);
}

/// A device reports a loss once. All writers whose blocks were in its cache have to learn of it.
#[test]
fn a_flush_that_failed_is_known_to_all_who_had_written() {
    let disks = Disks::new(Shape::Leaf, Ashift(12));
    let sims = disks.simulated();
    let tree = disks.tree(&sims, &[]);
    let top = [VdevId(0)];
    let not_flushed = Err(VdevError::NotFlushed { vdev: VdevId(0) });
    let write = |number: u64| {
        let since = tree.mark();
        assert_eq!(write_all(&tree, &[extent(number << 20, 4096, 5)]), [Ok(())]);
        since
    };
    let (one, two) = (write(1), write(2));
    sims[0].fail_nth(OpKind::Flush, 0);
    assert_eq!((tree.flush(&top, two), tree.flush(&top, one)), (not_flushed.clone(), not_flushed.clone()));
    assert_eq!(tree.flush(&top, one), not_flushed, "it does not get better");
    let three = write(3);
    assert_eq!(tree.flush(&top, three), Ok(()), "what was written since is there");
    // A flush of labels also flushes all blocks.
    let four = write(4);
    sims[0].fail_nth(OpKind::Flush, 0);
    assert!(tree.flush_leaves(&[guid(0)])[0].is_err());
    assert_eq!((tree.flush(&top, four), tree.flush(&top, tree.mark())), (not_flushed, Ok(())));

    // Another leaf has the block: this leaf missed it, without further effect.
    let disks = Disks::new(Shape::Mirror(2), Ashift(12));
    let sims = disks.simulated();
    let tree = disks.tree(&sims, &[]);
    let since = tree.mark();
    assert_eq!(write_all(&tree, &[extent(0, 4096, 5)]), [Ok(())]);
    sims[1].fail_nth(OpKind::Flush, 0);
    assert!(tree.flush_leaves(&[guid(1)])[0].is_err());
    assert_eq!((tree.dtl(guid(1)), tree.flush(&top, since)), (set(&[5]), Ok(())));
}

#[test]
fn wrong_leaves_are_repaired_and_others_left_alone() {
    for (shape, ashift) in shapes().into_iter().filter(|(shape, _)| shape.nparity() > 0) {
        let disks = Disks::new(shape.clone(), ashift);
        let at = extent(60 << 14, 100_000, 4);
        let sims = disks.simulated();
        let tree = disks.tree(&sims, &[]);
        let since = tree.mark();
        let block = content(&at, at.offset.0);
        assert_eq!(tree.write(&at, &block), Ok(()));
        assert_eq!(tree.flush(&[VdevId(0)], since), Ok(()));
        let wrong = disks.holders(&at)[0];
        sims[wrong].garble(DeviceOffset(0), DISK);
        let verify = |data: &[u8]| data == block;
        let read = tree.check_every_copy(&at, &verify);
        assert!(read.faults.iter().all(|f| f.leaf == guid(wrong) && f.kind == FaultKind::Checksum));
        assert!(!read.faults.is_empty(), "{shape:?}");
        sims.iter().for_each(|sim| sim.record(false));
        tree.repair(&at, &read.data.unwrap(), &read.faults);
        assert_eq!(tree.check_every_copy(&at, &verify).faults, [], "{shape:?}");
        for (i, sim) in sims.iter().enumerate() {
            let wrote = sim.take_record().iter().any(|op| op.kind == OpKind::Write);
            assert_eq!(wrote, i == wrong, "{shape:?}");
        }
        assert_eq!(tree.dtl(guid(wrong)), RangeSet::new());
    }
}

#[test]
fn a_stale_leaf_gets_what_it_missed() {
    let disks = Disks::new(Shape::raidz(4, 1), Ashift(12));
    let sims = disks.simulated();
    let (before, after) = (extent(0, 30_000, 5), extent(1 << 20, 30_000, 6));
    let degraded = disks.tree(&sims, &[1]);
    assert!(write_all(&degraded, &[before, after]).iter().all(Result::is_ok));
    let missed = degraded.dtl(guid(1));
    assert_eq!(missed, set(&[5, 6]));
    let tree = disks.tree(&sims, &[]);
    tree.set_dtl(guid(1), missed);
    let since = tree.mark();
    assert_eq!(tree.take_changed_dtls(), [], "what is on disk is no change");
    for at in [before, after] {
        assert!(reads_back(&tree, &at));
        tree.resilver(&at, &content(&at, at.offset.0)).unwrap();
    }
    sims[1].fail_nth(OpKind::Write, 0);
    sims[1].fail_nth(OpKind::Write, 1);
    let error = tree.resilver(&before, &content(&before, before.offset.0)).unwrap_err();
    assert_eq!(error, VdevError::NotWritten { vdev: VdevId(0) });
    tree.resilver(&before, &content(&before, before.offset.0)).unwrap();
    // Blocks lost from the cache are missing, whichever thread flushed.
    sims[1].fail_nth(OpKind::Flush, 0);
    assert_eq!(tree.flush(&[VdevId(0)], since), Ok(()));
    assert_eq!(tree.clear_dtl(guid(1), 0..7, since), Err(DeviceError::NotWritten));
    assert_eq!(tree.dtl(guid(1)), set(&[5, 6]));
    // A new run, for which the failed write above no longer counts.
    tree.begin_repairs();
    let since = tree.mark();
    for at in [before, after] {
        tree.resilver(&at, &content(&at, at.offset.0)).unwrap();
    }
    sims[1].fail_nth(OpKind::Flush, 1);
    assert_eq!(tree.clear_dtl(guid(1), 0..7, since), Ok(()));
    assert_eq!((tree.dtl(guid(1)), tree.take_changed_dtls()), (RangeSet::new(), vec![guid(1)]));
    for at in [before, after] {
        let block = content(&at, at.offset.0);
        assert!(tree.check_every_copy(&at, &|data| data == block).faults.is_empty());
    }
}

#[test]
fn what_cannot_be_written() {
    let running = Some(ReflowState { offset: 1 << 20, in_scratch: false });
    let expanding =
        Shape::Raidz { children: 5, nparity: 1, expansion: Expansion { txgs: Vec::new(), running } };
    let disks = Disks::new(expanding, Ashift(12));
    let tree = disks.tree(&disks.simulated(), &[]);
    let why = |at: Extent| tree.write(&at, &vec![0; at.psize.0 as usize]);
    assert!(matches!(why(extent(0, 512, 1)), Err(VdevError::CannotWrite { .. })));

    let disks = Disks::new(Shape::raidz(3, 1), Ashift(12));
    let tree = disks.tree(&disks.simulated(), &[]);
    let why = |at: Extent| tree.write(&at, &vec![0; at.psize.0 as usize]);
    assert!(matches!(why(extent(512, 512, 1)), Err(VdevError::Misaligned { .. })));
    assert!(matches!(why(extent(1 << 50, 512, 1)), Err(VdevError::OutOfRange { .. })));
    assert!(matches!(why(extent(u64::MAX - 4095, 512, 1)), Err(VdevError::OutOfRange { .. })));
    let end = tree.tops().next().map(|_| 3 * (DISK - 0x48_0000)).unwrap();
    assert!(matches!(why(extent(end - 4096, 512, 1)), Err(VdevError::OutOfRange { .. })));
    assert_eq!(why(extent(end - 8192, 512, 1)), Ok(()));
    assert!(matches!(why(extent(0, 0, 1)), Err(VdevError::Size(_))));
    assert!(matches!(why(extent(0, (16 << 20) + 1, 1)), Err(VdevError::Size(_))));
    let nowhere = Extent { vdev: VdevId(3), ..extent(0, 512, 1) };
    assert_eq!(why(nowhere), Err(VdevError::NoVdev { vdev: VdevId(3) }));
    // A block that cannot be written does not affect the others.
    let results = tree.write_many(&[
        Write { at: nowhere, data: &[1; 512] },
        Write { at: extent(0, 512, 1), data: &[2; 512] },
    ]);
    assert_eq!(results, [Err(VdevError::NoVdev { vdev: VdevId(3) }), Ok(())]);
}

/// Mirrors of RAID-Zs, RAID-Zs of replaced leaves.
#[test]
fn nested_vdevs() {
    let disks: Vec<Arc<SimDisk>> = (0..6).map(|i| Arc::new(SimDisk::new(DISK, i))).collect();
    let devices: HashMap<VdevGuid, Arc<dyn Device>> =
        disks.iter().enumerate().map(|(i, disk)| (guid(i), Arc::clone(disk) as Arc<dyn Device>)).collect();
    let raidz = |id: usize, from: usize| {
        let children = (0..3).map(|i| leaf(i, guid(from + i))).collect();
        let mut node = interior("raidz", id, 50 + id as u64, children);
        node.push("nparity", 1u64);
        node
    };
    let replacing = interior("replacing", 1, 60, vec![leaf(0, guid(1)), leaf(1, guid(2))]);
    let mut replaced = interior("raidz", 0, 2, vec![leaf(0, guid(0)), replacing, leaf(2, guid(3))]);
    replaced.push("nparity", 1u64);
    let tops = [interior("mirror", 0, 2, vec![raidz(0, 0), raidz(1, 3)]), replaced];
    for top in tops {
        let config = root(vec![as_top(top, Ashift(12), 0)]);
        let tree = VdevTree::open(&config, &devices, ReflowInfo::default()).unwrap();
        let at = extent(12 << 20, 40_000, 8);
        assert_eq!(write_all(&tree, &[at]), [Ok(())]);
        let block = content(&at, at.offset.0);
        assert!(tree.check_every_copy(&at, &|data| data == block).faults.is_empty());
        // The first leaf and one side of the others.
        disks.iter().take(2).for_each(|disk| disk.vanish());
        let at = extent(24 << 20, 40_000, 9);
        assert_eq!(write_all(&tree, &[at]), [Ok(())]);
        assert!(reads_back(&tree, &at));
        disks.iter().for_each(|disk| disk.come_back());
        assert_eq!((tree.dtl(guid(0)), tree.dtl(guid(3))), (set(&[9]), RangeSet::new()));
    }
}

#[test]
fn a_changed_configuration_keeps_leaves_and_what_they_missed() {
    let disks = Disks::new(Shape::Mirror(2), Ashift(12));
    let sims = disks.simulated();
    let tree = disks.tree(&sims, &[1]);
    let since = tree.mark();
    let at = extent(0, 4096, 5);
    assert_eq!(write_all(&tree, &[at]), [Ok(())]);
    let mut tops = vec![disks.shape.node(Ashift(12), vec![leaf(0, guid(0)), leaf(1, guid(1))])];
    tops.push(as_top(leaf(1, guid(7)), Ashift(12), 0));
    let added = Arc::new(SimDisk::new(DISK, 7));
    let news: HashMap<VdevGuid, Arc<dyn Device>> = [
        (guid(7), Arc::clone(&added) as Arc<dyn Device>),
        (guid(1), Arc::clone(&sims[1]) as Arc<dyn Device>),
    ]
    .into_iter()
    .collect();
    let grown = tree.reconfigured(&root(tops), &news).unwrap();
    assert!(reads_back(&grown, &at));
    assert_eq!(grown.dtl(guid(1)), set(&[5]));
    assert_eq!(grown.status().find(guid(0)).unwrap().writes, 1);
    assert_eq!(grown.take_changed_dtls(), [guid(1)]);
    // The old tree still counts on the same leaves, and its writes are flushed through the new one.
    assert_eq!(sims[0].unflushed(), 1);
    assert_eq!(grown.flush(&[VdevId(0)], since), Ok(()));
    assert_eq!(sims[0].unflushed(), 0);
    let there = Extent { vdev: VdevId(1), ..at };
    assert_eq!(grown.write(&there, &content(&at, 0)), Ok(()));
    assert_eq!(tree.write(&there, &content(&at, 0)), Err(VdevError::NoVdev { vdev: VdevId(1) }));
}

/// Random extents of all sizes, rewritten and read in any order, against a model in memory, with leaves
/// coming and going.
#[test]
fn random_writes_against_a_model() {
    for (number, (shape, ashift)) in shapes().into_iter().enumerate() {
        let seed = number as u64;
        let mut random = Random::from_seed(seed);
        let disks = Disks::new(shape.clone(), ashift);
        let sims = disks.simulated();
        let tree = disks.tree(&sims, &[]);
        let since = tree.mark();
        let step = tree.alignment(VdevId(0)).unwrap();
        // Places that do not overlap, each with a largest size.
        let mut places = Vec::new();
        let mut end = 0;
        while end < 16 << 20 {
            let most = if random.one_in(4) { 1 + random.below(300_000) } else { 1 + random.below(9000) };
            let asize = tree.psize_to_asize(VdevId(0), Psize(most), Txg(1000)).unwrap().0;
            places.push((end, most));
            end = (end + asize + random.below(3) * step).next_multiple_of(step);
        }
        let mut model: BTreeMap<usize, (Extent, Vec<u8>)> = BTreeMap::new();
        for txg in 1000..1030 {
            let sick = random.below(sims.len() as u64) as usize;
            let is_sick = shape.nparity() > 0 && random.one_in(3);
            if is_sick {
                sims[sick].vanish();
            }
            let mut batch = BTreeMap::new();
            for _ in 0..random.below(60) {
                let which = random.below(places.len() as u64) as usize;
                let (start, most) = places[which];
                let at = extent(start, 1 + random.below(most), txg);
                let mut data = vec![0; at.psize.0 as usize];
                random.fill(&mut data);
                batch.insert(which, (at, data));
            }
            let writes: Vec<Write<'_>> = batch.values().map(|(at, data)| Write { at: *at, data }).collect();
            let results = tree.write_many(&writes);
            assert!(results.iter().all(Result::is_ok), "seed {seed} txg {txg}: {results:?}");
            model.extend(batch);
            sims[sick].come_back();
            if random.one_in(2) {
                tree.flush(&[VdevId(0)], since).unwrap();
            }
            for _ in 0..20 {
                let which = random.below(places.len() as u64) as usize;
                let Some((at, data)) = model.get(&which) else { continue };
                let read = tree.read(at, &|bytes| bytes == data);
                assert!(read.data.is_ok(), "seed {seed} txg {txg} {at:?}: {read:?}");
            }
        }
        for (at, data) in model.values() {
            assert!(tree.read(at, &|bytes| bytes == data).data.is_ok(), "seed {seed} {at:?}");
        }
    }
}

#[test]
fn blocks_of_the_largest_size() {
    let disks = Disks::new(Shape::Leaf, Ashift(12));
    let sims = disks.simulated();
    let tree = disks.tree(&sims, &[]);
    let at = Extent { vdev: VdevId(0), offset: AllocOffset(4096), psize: Psize(16 << 20), birth: Txg(4) };
    sims[0].record(false);
    assert_eq!(write_all(&tree, &[at]), [Ok(())]);
    assert!(sims[0].take_record().iter().all(|op| op.len <= 1 << 20));
    assert!(reads_back(&tree, &at));
}

/// A device whose next write, once it is done, waits until it is released; its flushes can be made to fail.
#[derive(Debug)]
struct Slow {
    base: SimDisk,
    holds: AtomicBool,
    is_done: Barrier,
    goes_on: Barrier,
}

impl Device for Slow {
    fn size(&self) -> u64 {
        self.base.size()
    }

    fn read_at(&self, buf: &mut [u8], at: DeviceOffset) -> Result<(), DeviceError> {
        self.base.read_at(buf, at)
    }

    fn write_at(&self, buf: &[u8], at: DeviceOffset) -> Result<(), DeviceError> {
        let written = self.base.write_at(buf, at);
        if self.holds.swap(false, Ordering::SeqCst) {
            self.is_done.wait();
            self.goes_on.wait();
        }
        written
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.base.flush()
    }
}

#[test]
fn what_is_in_flight_while_a_flush_fails_counts_as_lost() {
    let (at, block) = (extent(0, 4096, 7), vec![5; 4096]);
    for sides in [1, 2] {
        let shape = if sides == 1 { Shape::Leaf } else { Shape::Mirror(2) };
        let slow = Arc::new(Slow {
            base: SimDisk::new(DISK, 1),
            holds: AtomicBool::new(true),
            is_done: Barrier::new(2),
            goes_on: Barrier::new(2),
        });
        let mut devices: HashMap<VdevGuid, Arc<dyn Device>> =
            (0..sides).map(|i| (guid(i), Arc::new(SimDisk::new(DISK, 2)) as Arc<dyn Device>)).collect();
        devices.insert(guid(0), Arc::clone(&slow) as Arc<dyn Device>);
        let children = (0..sides).map(|i| leaf(i, guid(i))).collect();
        let node = root(vec![as_top(shape.node(Ashift(12), children), Ashift(12), DISK - (8 << 20))]);
        let tree = VdevTree::open(&node, &devices, ReflowInfo::default()).unwrap();
        let mark = tree.mark();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| tree.write(&at, &block));
            slow.is_done.wait();
            // The device has the block, and loses it; the writer has not yet learned that it was written.
            slow.base.fail_nth(OpKind::Flush, 0);
            assert!(tree.flush_leaves(&[guid(0)])[0].is_err());
            slow.goes_on.wait();
            writer.join().unwrap().unwrap();
        });
        assert!(tree.dtl(guid(0)).contains(7), "{:?}", tree.dtl(guid(0)));
        // The device reports no further error. With another side the block is safe all the same.
        let flushed = tree.flush(&[VdevId(0)], mark);
        assert_eq!(flushed.is_ok(), sides == 2, "{flushed:?}");
    }
}
