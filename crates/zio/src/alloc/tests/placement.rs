//! Placement of blocks: adjacency, distance of copies, classes, turns.

use super::{Lab, Shape, Spec, Tx, dva, normal, top_space, tree};
use crate::alloc::{AllocClass, AllocError, MetaslabHint, Request};
use format::{Dva, Psize, Txg, VdevId};
use vdev::tree::RangeSet;

const M: u64 = 1 << 20;

fn single(shift: u32, metaslabs: u64) -> Spec {
    Spec::new(Shape::Single, 12, shift, metaslabs)
}

fn of_class(class: AllocClass, psize: u64) -> Request {
    Request { class, ..normal(psize, 1) }
}

/// Number of separate pieces that extents form.
fn pieces<'a>(dvas: impl IntoIterator<Item = &'a Dva>) -> usize {
    let ranges = dvas.into_iter().map(|dva| dva.offset.0..dva.offset.0 + dva.asize.0);
    ranges.collect::<RangeSet>().iter().count()
}

#[test]
fn blocks_of_a_txg_lie_side_by_side() {
    let lab = Lab::new(&[single(24, 16)]);
    let wants: Vec<_> = (0..2000).map(|i| normal(if i % 8 == 0 { 4096 } else { 128 << 10 }, 1)).collect();
    let dvas: Vec<_> =
        lab.alloc.allocate_batch(&wants, &Tx(5)).into_iter().map(|dvas| dvas.unwrap()[0]).collect();
    let small: Vec<_> = dvas.iter().filter(|dva| dva.asize.0 == 4096).collect();
    assert!(pieces(small.iter().copied()) <= 3, "{}", pieces(small));
    let large: Vec<_> = dvas.iter().filter(|dva| dva.asize.0 != 4096).collect();
    // 218 MiB in metaslabs of 16 MiB.
    assert!(pieces(large.iter().copied()) <= 40, "{}", pieces(large));
}

#[test]
fn copies_are_on_different_vdevs() {
    let lab = Lab::new(&[single(24, 8), single(24, 8), single(24, 8)]);
    for _ in 0..500 {
        let dvas = lab.allocate(16 << 10, 3, 5).unwrap();
        let mut vdevs: Vec<_> = dvas.iter().map(|dva| dva.vdev).collect();
        vdevs.sort_unstable();
        assert_eq!(vdevs, [VdevId(0), VdevId(1), VdevId(2)]);
    }
}

#[test]
fn copies_on_one_vdev_are_an_eighth_apart() {
    for (shift, metaslabs) in [(24, 40), (24, 4), (24, 2), (26, 1)] {
        let spec = single(shift, metaslabs);
        let lab = Lab::new(&[spec]);
        let mut by_copy = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..300 {
            let dvas = lab.allocate(8 << 10, 3, 5).unwrap();
            for (i, copy) in dvas.iter().enumerate() {
                let far = |other: &Dva| other.offset.0.abs_diff(copy.offset.0) >= spec.asize() / 8;
                assert!(dvas[..i].iter().all(far), "{metaslabs} metaslabs: {dvas:?}");
                by_copy[i].push(*copy);
            }
        }
        for copies in by_copy {
            assert!(pieces(&copies) <= 4, "{metaslabs} metaslabs: {} pieces", pieces(&copies));
        }
    }
}

#[test]
fn a_copy_that_does_not_fit_takes_back_the_others() {
    let lab = Lab::new(&[single(20, 1)]);
    let before = lab.alloc.totals(AllocClass::Normal);
    let refused = lab.allocate(600 << 10, 2, 5);
    assert!(matches!(refused, Err(AllocError::NoSpace { copies: 2, .. })), "{refused:?}");
    assert_eq!(lab.alloc.totals(AllocClass::Normal), before);
    assert!(lab.alloc.take_changes(Txg(5)).is_empty());
    assert_eq!(lab.one(M, 5), dva(0, 0, M), "all of it is there at once");
}

#[test]
fn classes_fall_back_when_they_are_full() {
    let lab = Lab::new(&[
        single(20, 4),
        single(20, 1).of(AllocClass::Special),
        single(20, 1).of(AllocClass::Dedup),
        single(20, 1).of(AllocClass::Log),
    ]);
    let take = |class| {
        let mut vdevs = Vec::new();
        for _ in 0..9 {
            vdevs.push(lab.alloc.allocate(&of_class(class, 128 << 10), &Tx(5)).unwrap()[0].vdev.0);
        }
        vdevs
    };
    assert_eq!(take(AllocClass::Log), [3, 3, 3, 3, 3, 3, 3, 3, 0]);
    assert_eq!(take(AllocClass::Dedup), [2, 2, 2, 2, 2, 2, 2, 2, 1]);
    assert_eq!(take(AllocClass::Special), [1, 1, 1, 1, 1, 1, 1, 0, 0]);
    assert_eq!(take(AllocClass::Normal), [0; 9]);
    assert_eq!(lab.alloc.totals(AllocClass::Special).allocated, M);
    assert_eq!(lab.alloc.totals(AllocClass::Normal).allocated, 12 * (128 << 10));
}

#[test]
fn one_of_many_metaslabs_is_for_the_log() {
    let lab = Lab::new(&[single(20, 65)]);
    let log = lab.alloc.allocate(&of_class(AllocClass::Log, 128 << 10), &Tx(5)).unwrap()[0];
    let metaslab = log.offset.0 / M;
    let mut normal = 0;
    while let Ok(dvas) = lab.allocate(128 << 10, 1, 5) {
        assert_ne!(dvas[0].offset.0 / M, metaslab, "normal blocks keep out");
        normal += 1;
    }
    assert_eq!(normal, 64 * 8);
    let totals = lab.alloc.totals(AllocClass::Normal);
    assert_eq!((totals.size, totals.embedded_log), (65 * M, M));
    for _ in 0..7 {
        let more = lab.alloc.allocate(&of_class(AllocClass::Log, 128 << 10), &Tx(5)).unwrap()[0];
        assert_eq!(more.offset.0 / M, metaslab);
    }
    assert!(lab.alloc.allocate(&of_class(AllocClass::Log, 4096), &Tx(5)).is_err());

    let lab = Lab::new(&[single(20, 64)]);
    assert_eq!(lab.alloc.totals(AllocClass::Normal).embedded_log, 0);
    assert!(lab.alloc.allocate(&of_class(AllocClass::Log, 128 << 10), &Tx(5)).is_ok());
}

#[test]
fn vdevs_fill_up_together() {
    // The second has three times the space.
    let lab = Lab::new(&[single(24, 8), single(24, 24)]);
    let mut bytes = [0_u64; 2];
    for _ in 0..2000 {
        let dva = lab.one(128 << 10, 5);
        bytes[dva.vdev.0 as usize] += dva.asize.0;
    }
    let share = bytes[1] as f64 / bytes[0] as f64;
    assert!((2.5..3.5).contains(&share), "{bytes:?}");
}

#[test]
fn neighbours_stay_on_one_vdev_for_a_turn() {
    let lab = Lab::new(&[single(24, 8), single(24, 8)]);
    let wants = vec![normal(4096, 1); 4000];
    let dvas: Vec<_> =
        lab.alloc.allocate_batch(&wants, &Tx(5)).into_iter().map(|dvas| dvas.unwrap()[0]).collect();
    let turns = dvas.chunk_by(|a, b| a.vdev == b.vdev).count();
    assert!(turns <= 40, "{turns} turns for 16 MB");
}

#[test]
fn raidz_and_draid_take_whole_stripes() {
    for shape in [Shape::Raidz(5, 2), Shape::Draid(7, 2, 1, 1, 2)] {
        let spec = Spec::new(shape, 12, 24, 12);
        let lab = Lab::new(&[spec]);
        let unit = lab.tree.alignment(VdevId(0)).unwrap();
        let mut taken = RangeSet::new();
        let mut sizes = (1..=40).map(|i| i * 3 * 1024).cycle();
        loop {
            let psize = sizes.next().unwrap();
            let Ok(dvas) = lab.allocate(psize, 1, 5) else { break };
            let dva = dvas[0];
            assert_eq!(Some(dva.asize), lab.tree.psize_to_asize(dva.vdev, Psize(psize), Txg(5)));
            assert_eq!(lab.tree.check(&dva, Psize(psize)), Ok(()));
            assert!(dva.offset.0.is_multiple_of(unit) && dva.asize.0.is_multiple_of(unit), "{dva}");
            assert_eq!(dva.offset.0 >> 24, (dva.offset.0 + dva.asize.0 - 1) >> 24, "{dva}");
            taken.insert(dva.offset.0..dva.offset.0 + dva.asize.0);
        }
        let totals = lab.alloc.totals(AllocClass::Normal);
        let sum: u64 = taken.iter().map(|range| range.end - range.start).sum();
        assert_eq!(totals.allocated, sum);
        assert!(totals.size - sum < totals.size / 50, "{totals:?}");
        assert_eq!(totals.deflated_allocated, (sum >> 9) * lab.tree.deflate_ratio(VdevId(0)));
    }
}

#[test]
fn a_fragmented_vdev_tells_the_largest_piece() {
    let lab = Lab::new(&[single(20, 4)]);
    let dvas: Vec<_> = (0..1024).map(|_| lab.one(4096, 5)).collect();
    lab.sync(5, "");
    // Every other sector, and three in a row once.
    for dva in dvas.iter().filter(|dva| (dva.offset.0 / 4096).is_multiple_of(2) || dva.offset.0 == 4096) {
        lab.alloc.free(dva, &Tx(6)).unwrap();
    }
    (6..9).for_each(|txg| lab.sync(txg, ""));
    match lab.allocate(128 << 10, 1, 9) {
        Err(AllocError::NoSpace { largest, .. }) => assert_eq!(largest, Psize(3 * 4096)),
        other => panic!("{other:?}"),
    }
    assert_eq!(lab.one(3 * 4096, 9).offset.0, 0);
    (0..510).for_each(|_| assert_eq!(lab.one(4096, 9).asize.0, 4096));
    assert!(matches!(lab.allocate(512, 1, 9), Err(AllocError::NoSpace { largest: Psize(0), .. })));
}

#[test]
fn near_is_where_it_was_asked_for() {
    let lab = Lab::new(&[single(24, 8), single(24, 8)]);
    let near = dva(1, 5 << 24, 4096);
    let want = Request { near: Some(near), ..normal(4096, 1) };
    let dvas = lab.alloc.allocate(&want, &Tx(5)).unwrap();
    assert_eq!((dvas[0].vdev, dvas[0].offset.0 >> 24), (VdevId(1), 5));
}

#[test]
fn nothing_is_read_before_it_is_needed() {
    let used = |spec: &Spec| {
        vec![MetaslabHint { largest_free: M, ..MetaslabHint::default() }; spec.metaslabs as usize]
    };
    let lab = Lab::with_hints(&[single(24, 8)], used);
    lab.alloc.totals(AllocClass::Normal);
    assert!(lab.disk.loads.lock().unwrap().is_empty());
    for _ in 0..100 {
        lab.one(128 << 10, 5);
    }
    assert_eq!(*lab.disk.loads.lock().unwrap(), [(VdevId(0), 0)]);
}

#[test]
fn wrong_hints_do_not_hide_room() {
    let hints = [
        MetaslabHint { allocated: 0, largest_free: 0, never_used: false },
        MetaslabHint { allocated: u64::MAX, largest_free: u64::MAX, never_used: false },
        MetaslabHint { allocated: 0, largest_free: 1 << 40, never_used: false },
    ];
    let lab = Lab::with_hints(&[single(20, 3)], |_| hints.to_vec());
    let mut count = 0;
    while lab.allocate(128 << 10, 1, 5).is_ok() {
        count += 1;
    }
    // The metaslab that claims to be full is not read until another operation uses it.
    assert_eq!(count, 16);
    assert!(lab.alloc.free(&dva(0, M, 4096), &Tx(5)).is_err());
    assert!(lab.allocate(128 << 10, 1, 5).is_ok());
}

#[test]
fn a_metaslab_that_cannot_be_read_is_left_alone() {
    let used = |spec: &Spec| {
        vec![MetaslabHint { largest_free: M, ..MetaslabHint::default() }; spec.metaslabs as usize]
    };
    let lab = Lab::with_hints(&[single(20, 2)], used);
    lab.disk.broken.lock().unwrap().push((VdevId(0), 0));
    for _ in 0..8 {
        assert_eq!(lab.one(128 << 10, 5).offset.0 / M, 1);
    }
    assert!(lab.allocate(128 << 10, 1, 5).is_err());
    let error = lab.alloc.free(&dva(0, 0, 4096), &Tx(5)).unwrap_err();
    assert!(matches!(error, AllocError::Load { metaslab: 0, .. }), "{error:?}");
    lab.disk.broken.lock().unwrap().clear();
    lab.alloc.set_tree(tree(&lab.specs));
    assert_eq!(lab.one(128 << 10, 5).offset.0 / M, 0);
}

#[test]
fn free_space_outside_the_metaslab_is_refused() {
    let used = |spec: &Spec| {
        vec![MetaslabHint { largest_free: M, ..MetaslabHint::default() }; spec.metaslabs as usize]
    };
    for range in [M..2 * M, 0..M + 4096, 512..8192, 4096..4608] {
        let lab = Lab::with_hints(&[single(20, 1)], used);
        let free: RangeSet = [range].into_iter().collect();
        lab.disk.synced.lock().unwrap().insert((VdevId(0), 0), free);
        let error = lab.allocate(4096, 1, 5).unwrap_err();
        assert!(matches!(error, AllocError::Load { .. }), "{error:?}");
    }
}

#[test]
fn impossible_extents_are_refused() {
    let lab = Lab::new(&[single(20, 2)]);
    for extent in [
        dva(1, 0, 4096),
        dva(0, 2 * M, 4096),
        dva(0, u64::MAX - 511, 4096),
        dva(0, 0, u64::MAX - 511),
        dva(0, 512, 4096),
        dva(0, 4096, 512),
        dva(0, M - 4096, 8192),
        dva(0, 0, 0),
    ] {
        let outcomes = [lab.alloc.free(&extent, &Tx(5)), lab.alloc.claim(&extent, &Tx(5))];
        for outcome in outcomes {
            assert!(matches!(outcome, Err(AllocError::NoMetaslab { .. })), "{extent}: {outcome:?}");
        }
    }
    for psize in [0, (16 << 20) + 512, u64::MAX] {
        assert!(matches!(lab.allocate(psize, 1, 5), Err(AllocError::Size(_))));
    }
    assert_eq!(lab.alloc.totals(AllocClass::Normal).allocated, 0);
}

#[test]
fn vdevs_that_lost_too_much_are_not_written_to() {
    let mirror = Spec::new(Shape::Mirror(2), 12, 20, 4);
    let lab = Lab::new(&[Spec { missing: 2, ..mirror }, Spec { missing: 1, ..mirror }, mirror]);
    let mut seen = [0; 3];
    for _ in 0..48 {
        seen[lab.one(128 << 10, 5).vdev.0 as usize] += 1;
    }
    assert_eq!(seen[0], 0);
    assert!(seen[1] > 0 && seen[2] > 0);
    lab.alloc.set_allocating(VdevId(1), false);
    let rest = std::iter::from_fn(|| lab.allocate(128 << 10, 1, 5).ok()).collect::<Vec<_>>();
    assert!(rest.iter().all(|dvas| dvas[0].vdev == VdevId(2)));
    lab.alloc.set_allocating(VdevId(1), true);
    assert_eq!(lab.one(128 << 10, 5).vdev, VdevId(1));
}

#[test]
fn vdevs_are_added_grow_and_go() {
    let spec = single(20, 2);
    let mut lab = Lab::new(&[spec, spec]);
    lab.alloc.remove_top(VdevId(1));
    let first: Vec<_> = (0..16).map(|_| lab.one(128 << 10, 5)).collect();
    assert!(lab.allocate(128 << 10, 1, 5).is_err());
    lab.specs[0].metaslabs = 3;
    let grown = lab.specs[0];
    lab.disk.synced.lock().unwrap().insert((VdevId(0), 2), std::iter::once(2 * M..3 * M).collect());
    lab.alloc.add_top(top_space(0, &grown, grown.hints(false)));
    assert_eq!(lab.alloc.vdev_totals(VdevId(0)).size, 3 * M);
    assert_eq!(lab.alloc.vdev_totals(VdevId(0)).allocated, 2 * M);
    assert_eq!(lab.one(128 << 10, 5).offset.0, 2 * M);
    lab.alloc.free(&first[3], &Tx(5)).unwrap();
    lab.alloc.add_top(top_space(1, &spec, spec.hints(false)));
    assert_eq!(lab.alloc.totals(AllocClass::Normal).size, 5 * M);
    assert!((0..23).all(|_| lab.allocate(128 << 10, 1, 5).is_ok()));
}

/// Sixteen metaslabs in which no two free sectors are neighbours.
fn fragmented() -> Lab {
    let hint = MetaslabHint { allocated: M / 2, largest_free: 4096, never_used: false };
    let lab = Lab::with_hints(&[single(20, 16)], |spec| vec![hint; spec.metaslabs as usize]);
    for (at, free) in lab.disk.synced.lock().unwrap().iter_mut() {
        *free = (0..128).map(|i| at.1 * M + i * 8192..at.1 * M + i * 8192 + 4096).collect();
    }
    lab
}

#[test]
fn large_blocks_do_not_make_all_space_maps_be_read() {
    let lab = fragmented();
    for txg in [5, 6] {
        for _ in 0..20 {
            assert!(matches!(
                lab.allocate(128 << 10, 1, txg),
                Err(AllocError::NoSpace { largest: Psize(4096), .. })
            ));
        }
    }
    assert_eq!(lab.disk.loads.lock().unwrap().len(), 8);
    for _ in 0..16 * 128 {
        lab.one(4096, 7);
    }
    assert!(lab.allocate(4096, 1, 7).is_err());
    assert_eq!(lab.disk.loads.lock().unwrap().len(), 16);
}

#[test]
fn hints_that_are_too_low_are_found_out() {
    let hint = MetaslabHint { allocated: 0, largest_free: 4096, never_used: false };
    let lab = Lab::with_hints(&[single(20, 16)], |_| vec![hint; 16]);
    for _ in 0..4 * 8 {
        lab.one(128 << 10, 5);
    }
    assert!(lab.allocate(128 << 10, 1, 5).is_err(), "enough has been read for one txg");
    lab.sync(5, "");
    for _ in 0..4 * 8 {
        lab.one(128 << 10, 6);
    }
    assert_eq!(lab.disk.loads.lock().unwrap().len(), 8);
}
