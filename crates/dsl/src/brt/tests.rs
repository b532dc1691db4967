//! Model test of block reference tables against a map of counts.

use crate::brt::Brt;
use crate::testing::{Rng, World, pointer};
use format::brt::{BrtPhys, directory_name};
use format::{BlockPtr, ObjectId, VdevId};
use std::collections::BTreeMap;
use std::sync::Arc;

fn table(world: &World) -> Option<BrtPhys> {
    let view = world.reopened();
    let directory = crate::mos::zap(&view, ObjectId(1)).expect("directory");
    let name = directory_name(VdevId(0));
    let id = crate::mos::lookup_object(&directory, ObjectId(1), &name).expect("readable")?;
    let object = view.object(id).expect("there");
    Some(BrtPhys::decode(object.bonus(), object.order()).expect("a table"))
}

/// Blocks in many regions of the vdev.
fn block(n: u64) -> BlockPtr {
    pointer(n * 997, 5, 1 + n % 16)
}

fn model(seed: u64, wide: bool) {
    let mut rng = Rng(seed);
    let mut world = World::new();
    if wide {
        world.txg(|m, _| m.features.enable(m, "block_cloning_endian"));
    }
    let objects = world.objects();
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    for round in 0..40 {
        let txg = world.txgs.open_txg();
        let mut confirmed = Vec::new();
        for _ in 0..if round < 30 { rng.below(20) } else { 0 } {
            let n = rng.below(50);
            assert!(world.brt.add_pending(&block(n), txg));
            // Some pointers are overwritten in memory before they are written.
            if rng.below(4) > 0 {
                confirmed.push(n);
                *counts.entry(n).or_default() += 1;
            }
        }
        let brt = Arc::clone(&world.brt);
        world.txg(|m, _| {
            brt.apply(m)?;
            for n in &confirmed {
                assert!(brt.may_be_cloned(&block(*n)));
                brt.born(&block(*n));
            }
            brt.settle(m)?;
            for _ in 0..if round < 30 { rng.below(25) } else { 200 } {
                let n = rng.below(50);
                let expected = counts.get(&n).copied().unwrap_or(0);
                assert_eq!(brt.references(m, &block(n))?, expected, "seed {seed}, block {n}");
                assert_eq!(brt.release(m, &block(n))?, expected > 0, "seed {seed}, block {n}");
                if expected > 0 {
                    *counts.entry(n).or_default() -= 1;
                }
            }
            counts.retain(|_, count| *count > 0);
            brt.flush(m)?;
            let size = |n: &u64| m.space_of(&block(*n)).used;
            assert_eq!(brt.used(), counts.keys().map(size).sum::<u64>(), "seed {seed}");
            let saved: u64 = counts.iter().map(|(n, count)| size(n) * count).sum();
            assert_eq!(brt.saved(), saved, "seed {seed}");
            Ok(())
        });
        match table(&world) {
            Some(phys) => {
                assert_eq!(phys.count, counts.len() as u64);
                assert_eq!((phys.used, phys.saved), (world.brt.used(), world.brt.saved()));
                assert_eq!(world.features.count("block_cloning"), 1);
            }
            None => assert_eq!((counts.len(), world.features.count("block_cloning")), (0, 0)),
        }
        let endian = wide && !counts.is_empty();
        if world.features.is_enabled("block_cloning_endian") {
            assert_eq!(world.features.count("block_cloning_endian"), u64::from(endian));
        }
        // Tables read again from disk have the same counts.
        if rng.below(3) == 0 {
            world.brt = Brt::load(&world.mos.view()).expect("readable");
        }
    }
    for n in counts.keys() {
        assert!(world.brt.may_be_cloned(&block(*n)));
    }
    if counts.is_empty() {
        assert_eq!(world.objects(), objects, "seed {seed}");
    }
}

#[test]
fn references_are_counted() {
    for seed in 1..=4 {
        model(seed, false);
        model(seed, true);
    }
}

#[test]
fn only_data_on_vdevs_is_counted() {
    let brt = Brt::default();
    let bp = pointer(1, 5, 1);
    assert!(!brt.add_pending(&BlockPtr::HOLE, format::Txg(9)));
    assert!(!brt.add_pending(&bp.with_prop_bits(39, 1, 1), format::Txg(9)));
    assert!(!brt.add_pending(&bp.with_prop_bits(48, 8, 10), format::Txg(9)));
    assert!(brt.add_pending(&bp, format::Txg(9)));
    assert!(!brt.may_be_cloned(&bp), "not before its sync");
}
