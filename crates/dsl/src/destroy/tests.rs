//! Destroyed object sets, traversed and freed in pieces.

use crate::block_space::Space;
use crate::bptree::walk::{Position, Walk};
use crate::brt::Brt;
use crate::free_lists;
use crate::free_lists::{Budget, Freed};
use crate::freeing::Freer;
use crate::testing::{Rng, World};
use crate::{MosTx, bptree};
use dmu::{Ledger, LiveSet, NewObject, SetPolicy};
use format::dsl::{BptreeEntry, BptreePhys};
use format::objset::ObjsetType;
use format::{BlockPtr, Endian, ObjType, ObjectId, Txg};
use std::collections::BTreeMap;
use std::sync::Arc;

type BlockKey = (u64, u64, u64);

fn key_of(bp: &BlockPtr) -> BlockKey {
    (bp.words()[0], bp.words()[1], bp.logical_birth().0)
}

/// The allocated blocks of a set, by place.
#[derive(Default)]
struct Blocks(BTreeMap<BlockKey, BlockPtr>);

impl Ledger for Blocks {
    fn born(&mut self, bp: &BlockPtr) {
        if !bp.is_hole() && !bp.is_embedded() {
            self.0.insert(key_of(bp), *bp);
        }
    }

    fn killed(&mut self, bp: &BlockPtr) {
        // The space stays taken: this is what a snapshot would hold.
        self.0.remove(&key_of(bp));
    }
}

/// A dataset with files of many shapes, written in a few txgs; its root pointer and its blocks.
fn dataset(world: &mut World, seed: u64) -> (BlockPtr, BTreeMap<BlockKey, BlockPtr>) {
    let mut rng = Rng(seed);
    let mut blocks = Blocks::default();
    let mut set: Option<Arc<LiveSet>> = None;
    let mut files = Vec::new();
    for round in 0..4 {
        let (store, txgs) = (Arc::clone(&world.store), Arc::clone(&world.txgs));
        let root = world.txg(|m, _| {
            let set = set.get_or_insert_with(|| {
                LiveSet::create(&store, txgs.meter(), 99, ObjsetType::Zfs, SetPolicy::dataset(), m.tx)
            });
            for _ in 0..40 {
                if rng.below(3) > 0 || files.is_empty() {
                    let new = NewObject { indirect_shift: 12, ..NewObject::of(ObjType::PLAIN_FILE) }
                        .with_bonus(ObjType::SA, vec![1; 64])
                        .with_block_size(512 << rng.below(3));
                    files.push(set.allocate(&new, m.tx)?.id());
                }
                let file = set.object(files[rng.below(files.len() as u64) as usize])?;
                for _ in 0..rng.below(12) {
                    let data: Vec<u8> = (0..600).map(|_| rng.next() as u8).collect();
                    // Some offsets are far away, so that the tree is high and has holes.
                    let offset = rng.below(100_000) << (rng.below(4) * 4);
                    file.write_at(offset, &data, m.tx)?;
                }
                if rng.below(9) == 0 {
                    file.set_spill(Some((0..1024).map(|_| rng.next() as u8).collect()), m.tx);
                }
            }
            if round == 2 {
                for id in files.drain(..10) {
                    set.free(id, m.tx)?;
                }
            }
            Ok(set.sync(m.tx, &mut blocks)?)
        });
        if round == 3 {
            return (root, blocks.0);
        }
    }
    unreachable!("the last round returns")
}

/// Traverses with small budgets, resuming from the stored position; every block must be visited once, a
/// parent after its children.
fn walk_in_pieces(world: &World, root: &BlockPtr, newer_than: Txg, piece: u64) -> Vec<BlockPtr> {
    let mut seen = Vec::new();
    let mut from = [0; 4];
    for _ in 0..100_000 {
        let mut budget = Budget { blocks: piece };
        let mut walk = Walk::new(&world.store, newer_than, Position::of_bookmark(&from), &mut budget);
        let stopped = walk
            .run(root, &mut |bp| {
                if !bp.is_embedded() {
                    seen.push(*bp);
                }
                Ok(())
            })
            .expect("readable");
        assert_eq!(walk.unreadable(), 0);
        match stopped {
            Some(position) => from = position.bookmark(),
            None => return seen,
        }
    }
    panic!("a walk in pieces does not end");
}

#[test]
fn every_block_comes_up_once_however_small_the_pieces() {
    for seed in 1..=3 {
        let mut world = World::new();
        let (root, blocks) = dataset(&mut world, seed);
        let mut wanted: Vec<BlockKey> = blocks.keys().copied().collect();
        wanted.sort_unstable();
        for piece in [u64::MAX, 100, 7, 1] {
            let mut seen: Vec<BlockKey> =
                walk_in_pieces(&world, &root, Txg(0), piece).iter().map(key_of).collect();
            assert_eq!(seen.last(), Some(&key_of(&root)), "the root is the last");
            seen.sort_unstable();
            assert_eq!(seen, wanted, "seed {seed}, pieces of {piece}");
        }
        // Only blocks newer than a snapshot.
        let newer = Txg(root.logical_birth().0 - 2);
        let mut wanted: Vec<BlockKey> = wanted.into_iter().filter(|(_, _, birth)| *birth > newer.0).collect();
        let mut seen: Vec<BlockKey> = walk_in_pieces(&world, &root, newer, 3).iter().map(key_of).collect();
        seen.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(seen, wanted, "seed {seed}");
    }
}

fn used_of_free_dir(m: MosTx<'_>) -> u64 {
    m.free_dir().and_then(|dir| m.dir(dir)).expect("there").used
}

#[test]
fn destroyed_sets_are_freed_in_the_background() {
    let mut world = World::new();
    let objects = world.objects();
    let sets: Vec<_> = (1..=2).map(|seed| dataset(&mut world, seed)).collect();
    world.txg(|m, _| {
        for (root, blocks) in &sets {
            let space = blocks.values().fold(Space::default(), |sum, bp| sum.plus(m.space_of(bp)));
            crate::freeing::charge_waiting(m, space, true)?;
            free_lists::add_destroyed(m, root, Txg(0), space)?;
        }
        assert_eq!(m.features.count("async_destroy"), 1);
        Ok(())
    });
    let (mut rounds, mut freed) = (0, Freed::default());
    while world.txg(|m, _| free_lists::is_pending(m)) {
        let round = world.txg(|m, brt| free_lists::background(m, brt, &mut Budget { blocks: 150 }));
        assert_eq!(round.refused, 0);
        freed.space = freed.space.plus(round.space);
        rounds += 1;
        assert!(rounds < 1000, "it ends");
    }
    assert!(rounds > 3, "{rounds} rounds");
    world.txg(|m, _| {
        assert_eq!(used_of_free_dir(m), 0);
        assert_eq!(m.features.count("async_destroy"), 0);
        for bp in sets.iter().flat_map(|(_, blocks)| blocks.values()) {
            assert!(m.zio().free(bp, m.tx).is_err(), "{bp:?} was not freed");
        }
        Ok(())
    });
    assert_eq!(world.objects(), objects);
}

#[test]
fn entries_that_say_so_free_nothing() {
    let mut world = World::new();
    let (root, blocks) = dataset(&mut world, 5);
    world.txg(|m, brt| {
        free_lists::add_destroyed(m, &root, Txg(u64::MAX), Space::default())?;
        let freed = free_lists::background(m, brt, &mut Budget::per_txg())?;
        assert_eq!(freed, Freed::default());
        assert!(!bptree::is_pending(m)?);
        let bp = blocks.values().next().expect("a block");
        Ok(m.zio().free(bp, m.tx)?)
    });
}

#[test]
fn the_queue_is_what_the_document_says() {
    let mut world = World::new();
    let (root, _) = dataset(&mut world, 6);
    let space = Space { used: 1, compressed: 2, uncompressed: 3 };
    world.txg(|m, _| free_lists::add_destroyed(m, &root, Txg(4), space));
    let view = world.reopened();
    let directory = crate::mos::zap(&view, ObjectId(1)).expect("directory");
    let id =
        crate::mos::lookup_object(&directory, ObjectId(1), "bptree_obj").expect("readable").expect("there");
    let object = view.object(id).expect("there");
    let phys = BptreePhys::decode(object.bonus(), object.order()).expect("a queue");
    assert_eq!(phys, BptreePhys { begin: 0, end: 1, bytes: 1, comp: 2, uncomp: 3 });
    let mut raw = [0; format::dsl::BPTREE_ENTRY_SIZE];
    object.read_at(0, &mut raw).expect("readable");
    let entry = BptreeEntry::decode(&raw, Endian::Little).expect("an entry");
    assert_eq!(entry, BptreeEntry { bp: root, birth: Txg(4), bookmark: [0; 4] });
}

#[test]
fn blocks_that_may_be_shared_wait_and_others_go_at_once() {
    let mut world = World::new();
    let (_, blocks) = dataset(&mut world, 7);
    let data: Vec<BlockPtr> = blocks
        .values()
        .filter(|bp| bp.obj_type() == ObjType::PLAIN_FILE && bp.level().0 == 0)
        .copied()
        .collect();
    let (cloned, plain) = (data[0], data[1]);
    world.txg(|m, brt| {
        let mut freer = Freer::new();
        freer.free(m, brt, &plain)?;
        assert!(m.zio().free(&plain, m.tx).is_err(), "it went at once");
        assert_eq!(freer.flush(m)?, Space::default());
        Ok(())
    });
    world.brt.add_pending(&cloned, Txg(world.txgs.open_txg().0));
    world.txg(|m, brt| {
        brt.apply(m)?;
        brt.born(&cloned);
        brt.settle(m)?;
        brt.flush(m)
    });
    world.txg(|m, brt| {
        let mut freer = Freer::new();
        freer.free(m, brt, &cloned)?;
        let waits = freer.flush(m)?;
        assert_eq!(waits, m.space_of(&cloned));
        assert_eq!(used_of_free_dir(m), waits.used);
        Ok(())
    });
    // Dropping the first reference frees no block, dropping the second frees it.
    let drain = |m: MosTx<'_>, brt: &Brt| {
        free_lists::background(m, brt, &mut Budget::per_txg())?;
        brt.flush(m)?;
        assert!(!free_lists::is_pending(m)?);
        Ok(used_of_free_dir(m))
    };
    assert_eq!(world.txg(drain), 0);
    assert_eq!(world.features.count("block_cloning"), 0);
    world.txg(|m, brt| {
        let mut freer = Freer::new();
        freer.free(m, brt, &cloned)?;
        freer.flush(m)?;
        assert!(m.zio().free(&cloned, m.tx).is_err(), "it went at once");
        Ok(())
    });
}
