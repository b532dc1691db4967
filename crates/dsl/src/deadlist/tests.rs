//! Model test of deadlists against sorted vectors.

use crate::MosTx;
use crate::block_space::Space;
use crate::bpobj::Bpobj;
use crate::deadlist::Deadlist;
use crate::deadlist::change::*;
use crate::testing::{Rng, World, pointer};
use dmu::ObjSet;
use format::{BlockPtr, ObjectId, Txg};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Blocks of a deadlist by key.
type Model = BTreeMap<u64, Vec<BlockPtr>>;

fn stored(bp: &BlockPtr) -> BlockPtr {
    format::bpobj::StoredBlock::new(bp, false).expect("no hole").bp
}

fn sum<'b>(m: MosTx<'_>, blocks: impl Iterator<Item = &'b BlockPtr>) -> Space {
    blocks.fold(Space::default(), |sum, bp| sum.plus(m.space_of(bp)))
}

fn contents(view: &Arc<ObjSet>, id: ObjectId) -> Model {
    let list = Deadlist::open(view, id).expect("a deadlist");
    let mut model = Model::new();
    for (key, bucket) in list.buckets() {
        let blocks = model.entry(key.0).or_default();
        let bucket = Bpobj::open(view, *bucket).expect("a list");
        bucket
            .for_each(&mut |bp, _| {
                blocks.push(*bp);
                Ok(())
            })
            .expect("readable");
        blocks.sort_by_key(|bp| bp.words()[1]);
    }
    model
}

fn target(model: &Model, birth: u64) -> u64 {
    model.keys().rev().find(|key| **key < birth).copied().unwrap_or(0)
}

fn check(world: &World, lists: &BTreeMap<ObjectId, Model>, seed: u64) {
    let view = world.reopened();
    for (id, model) in lists {
        let mut model = model.clone();
        for blocks in model.values_mut() {
            blocks.sort_by_key(|bp| bp.words()[1]);
        }
        assert_eq!(contents(&view, *id), model, "seed {seed}, deadlist {id}");
    }
    // Empty lists are shared, and each is counted.
    let directory = crate::mos::zap(&view, ObjectId(1)).expect("directory");
    let empty = crate::mos::lookup_object(&directory, ObjectId(1), "empty_bpobj").expect("readable");
    let mut users = 0;
    for id in lists.keys() {
        let list = Deadlist::open(&view, *id).expect("a deadlist");
        users += list.buckets().iter().filter(|(_, list)| Some(*list) == empty).count() as u64;
    }
    assert_eq!(world.features.count("empty_bpobj"), users, "seed {seed}");
}

#[test]
fn blocks_go_to_the_key_before_their_birth() {
    let mut world = World::new();
    let id = world.txg(|m, _| {
        let id = Deadlist::create(m)?;
        for key in [0, 5, 9] {
            Deadlist::add_key(m, id, Txg(key))?;
        }
        Ok(id)
    });
    world.txg(|m, _| {
        let mut writer = DeadlistWriter::open(m, id)?;
        for (n, birth) in [1, 5, 6, 9, 10, 700].into_iter().enumerate() {
            let bp = pointer(n as u64, birth, 1);
            writer.insert(&bp, m.space_of(&bp));
        }
        writer.insert(&BlockPtr::HOLE, Space::default());
        writer.flush(m)
    });
    let births: Vec<(u64, Vec<u64>)> = contents(&world.reopened(), id)
        .into_iter()
        .map(|(key, blocks)| (key, blocks.iter().map(|bp| bp.logical_birth().0).collect()))
        .collect();
    assert_eq!(births, [(0, vec![1, 5]), (5, vec![6, 9]), (9, vec![10, 700])]);
    world.txg(|m, _| {
        assert_eq!(Deadlist::open(&m.view(), id)?.space().used, 6 * 512);
        assert_eq!(Deadlist::open(&m.view(), id)?.space_between(Txg(5), Txg(9))?.used, 2 * 512);
        Ok(())
    });
}

#[test]
fn a_writer_notices_that_the_keys_have_changed() {
    let mut world = World::new();
    let id = world.txg(|m, _| {
        let id = Deadlist::create(m)?;
        Deadlist::add_key(m, id, Txg(0))?;
        Ok(id)
    });
    let mut writer = world.txg(|m, _| DeadlistWriter::open(m, id));
    world.txg(|m, _| Deadlist::add_key(m, id, Txg(7)));
    world.txg(|m, _| {
        writer.refresh(m, id)?;
        let bp = pointer(1, 8, 1);
        writer.insert(&bp, m.space_of(&bp));
        writer.flush(m)
    });
    assert_eq!(
        contents(&world.reopened(), id),
        Model::from([(0, vec![]), (7, vec![stored(&pointer(1, 8, 1))])])
    );
}

#[test]
fn a_hundred_thousand_blocks_are_written_once() {
    let mut world = World::new();
    let id = world.txg(|m, _| {
        let id = Deadlist::create(m)?;
        Deadlist::add_key(m, id, Txg(0))?;
        Deadlist::add_key(m, id, Txg(50))?;
        Ok(id)
    });
    world.txg(|m, _| {
        let mut writer = DeadlistWriter::open(m, id)?;
        for n in 0..100_000 {
            let bp = pointer(n, 1 + n % 100, 1);
            writer.insert(&bp, m.space_of(&bp));
        }
        writer.flush(m)
    });
    let read = contents(&world.reopened(), id);
    assert_eq!(read.values().map(Vec::len).collect::<Vec<_>>(), [50_000, 50_000]);
}

/// Applies the deadlist changes of snapshots, clones and destroys in any order.
fn model(seed: u64) {
    let mut rng = Rng(seed);
    let mut world = World::new();
    let objects = world.objects();
    let mut lists: BTreeMap<ObjectId, Model> = BTreeMap::new();
    let mut freed: Vec<BlockPtr> = Vec::new();
    let sink = world.txg(|m, _| {
        let id = Deadlist::create(m)?;
        Deadlist::add_key(m, id, Txg(0))?;
        lists.insert(id, Model::from([(0, vec![])]));
        Bpobj::create(m, 0)
    });
    let mut next = 0;
    for _ in 0..80 {
        world.txg(|m, _| {
            let Some(id) = lists.keys().nth(rng.below(lists.len() as u64) as usize).copied() else {
                return Ok(());
            };
            let mut list = lists.remove(&id).unwrap_or_default();
            match rng.below(9) {
                0..=2 => {
                    let mut writer = DeadlistWriter::open(m, id)?;
                    for _ in 0..rng.below(30) {
                        next += 1;
                        let bp = pointer(next, 1 + rng.below(m.txg().0), 1 + rng.below(8));
                        writer.insert(&bp, m.space_of(&bp));
                        list.entry(target(&list, bp.logical_birth().0)).or_default().push(stored(&bp));
                    }
                    writer.flush(m)?;
                }
                3 | 4 => {
                    // A key is added before any block belongs to it.
                    let key = m.txg().0;
                    let newest = list.keys().last().copied().unwrap_or(0);
                    if key > newest {
                        Deadlist::add_key(m, id, Txg(key))?;
                        list.insert(key, vec![]);
                    }
                }
                5 => {
                    let at = rng.below(list.len() as u64) as usize;
                    let key = list.keys().nth(at).copied().unwrap_or(0);
                    Deadlist::remove_key(m, id, Txg(key))?;
                    if at > 0 {
                        let moved = list.remove(&key).unwrap_or_default();
                        list.range_mut(..key).next_back().expect("one before").1.extend(moved);
                    }
                }
                6 if lists.len() < 4 => {
                    let below = 1 + rng.below(m.txg().0 + 4);
                    let new = Deadlist::clone_keys(m, id, Txg(below))?;
                    lists.insert(new, list.keys().filter(|k| **k < below).map(|k| (*k, vec![])).collect());
                }
                7 if !lists.is_empty() => {
                    let Some((from, other)) = lists.pop_first() else { return Ok(()) };
                    Deadlist::merge(m, id, from)?;
                    for (key, blocks) in other {
                        let at = list.range(..=key).next_back().map(|(key, _)| *key).unwrap_or(key);
                        list.entry(at).or_default().extend(blocks);
                    }
                }
                8 => {
                    let key = 1 + rng.below(m.txg().0);
                    let gone = list.split_off(&key);
                    let space = Deadlist::move_range(m, id, Txg(key), sink)?;
                    assert_eq!(space, sum(m, gone.values().flatten()), "seed {seed}");
                    freed.extend(gone.into_values().flatten());
                }
                _ => {}
            }
            assert_eq!(
                Deadlist::open(&m.view(), id)?.space(),
                sum(m, list.values().flatten()),
                "seed {seed}"
            );
            lists.insert(id, list);
            Ok(())
        });
        check(&world, &lists, seed);
    }
    world.txg(|m, _| {
        assert_eq!(Bpobj::open(&m.view(), sink)?.space(), sum(m, freed.iter()));
        Bpobj::free(m, sink)?;
        for id in lists.keys() {
            Deadlist::free(m, *id)?;
        }
        Ok(())
    });
    assert_eq!((world.objects(), world.features.count("empty_bpobj")), (objects, 0), "seed {seed}");
}

#[test]
fn deadlists_hold_what_was_put_into_them() {
    for seed in 1..=8 {
        model(seed);
    }
}
