//! Model test of bpobjs against plain vectors.

use crate::MosTx;
use crate::block_space::Space;
use crate::bpobj::Bpobj;
use crate::budget::Budget;
use crate::error::DslError;
use crate::testing::{Rng, World, pointer};
use format::bpobj::StoredBlock;
use format::{BlockPtr, ObjectId};
use std::collections::BTreeMap;

fn stored(n: u64, birth: u64) -> StoredBlock {
    StoredBlock::new(&pointer(n, birth, 1 + n % 8), false).expect("no hole")
}

fn sum(m: MosTx<'_>, entries: &[StoredBlock]) -> Space {
    entries.iter().fold(Space::default(), |sum, entry| sum.plus(m.space_of(&entry.bp)))
}

fn put(m: MosTx<'_>, id: ObjectId, entries: &[StoredBlock]) -> Result<(), DslError> {
    Bpobj::append(m, id, entries, sum(m, entries))
}

fn contents(view: &std::sync::Arc<dmu::ObjSet>, id: ObjectId) -> Vec<BlockPtr> {
    let mut all = Vec::new();
    Bpobj::open(view, id)
        .expect("a list")
        .for_each(&mut |bp, _| {
            all.push(*bp);
            Ok(())
        })
        .expect("readable");
    all.sort_by_key(|bp| bp.words()[1]);
    all
}

#[test]
fn what_is_appended_is_read_and_consumed() {
    let mut world = World::new();
    let objects = world.objects();
    let id = world.txg(|m, _| Bpobj::create(m, 512));
    let all: Vec<StoredBlock> = (0..1000).map(|n| stored(n, 9)).collect();
    for part in all.chunks(300) {
        world.txg(|m, _| put(m, id, part));
    }
    let read = contents(&world.reopened(), id);
    assert_eq!(read, all.iter().map(|entry| entry.bp).collect::<Vec<_>>());
    let mut seen = Vec::new();
    loop {
        let is_empty = world.txg(|m, _| {
            let mut budget = Budget { blocks: 77 };
            let is_empty = Bpobj::consume(m, id, &mut budget, &mut |entry, _| {
                seen.push(*entry);
                Ok(())
            })?;
            let left = &all[..all.len() - seen.len()];
            assert_eq!(Bpobj::open(&m.view(), id)?.space(), sum(m, left));
            Ok(is_empty)
        });
        if is_empty {
            break;
        }
    }
    seen.reverse();
    assert_eq!(seen, all);
    world.txg(|m, _| Bpobj::free(m, id));
    assert_eq!(world.objects(), objects);
}

#[test]
fn an_error_while_consuming_leaves_the_rest() {
    let mut world = World::new();
    let all: Vec<StoredBlock> = (0..10).map(|n| stored(n, 9)).collect();
    let id = world.txg(|m, _| {
        let id = Bpobj::create(m, 0)?;
        put(m, id, &all)?;
        Ok(id)
    });
    let mut count = 0;
    world.refused(|m| {
        Bpobj::consume(m, id, &mut Budget::unlimited(), &mut |_, _| {
            count += 1;
            if count > 4 { Err(DslError::not_found("x")) } else { Ok(()) }
        })
    });
    assert_eq!(contents(&world.reopened(), id).len(), 6);
}

#[test]
fn the_shared_empty_list_comes_and_goes() {
    let mut world = World::new();
    let objects = world.objects();
    let before = world.features.count("empty_bpobj");
    let (a, b) = world.txg(|m, _| Ok((Bpobj::create_or_share(m)?, Bpobj::create_or_share(m)?)));
    assert_eq!(a, b);
    assert_eq!(world.features.count("empty_bpobj"), before + 2);
    let into = world.txg(|m, _| {
        let into = Bpobj::create(m, 0)?;
        assert_eq!(Bpobj::append_sub(m, into, a)?, Space::default());
        Ok(into)
    });
    assert_eq!(world.features.count("empty_bpobj"), before + 1);
    world.txg(|m, _| {
        Bpobj::release(m, b)?;
        Bpobj::release(m, into)
    });
    assert_eq!((world.objects(), world.features.count("empty_bpobj")), (objects, before));
    let mut old = World::without(&["empty_bpobj"]);
    let (a, b) = old.txg(|m, _| Ok((Bpobj::create_or_share(m)?, Bpobj::create_or_share(m)?)));
    assert_ne!(a, b);
}

/// Fills lists, appends them to each other and consumes them at random; compares their contents with vectors.
fn model(seed: u64) {
    let mut rng = Rng(seed);
    let mut world = World::new();
    let objects = world.objects();
    let mut lists: BTreeMap<ObjectId, Vec<StoredBlock>> = BTreeMap::new();
    let mut next = 0;
    for _ in 0..60 {
        world.txg(|m, _| {
            for _ in 0..1 + rng.below(6) {
                step(m, &mut rng, &mut lists, &mut next)?;
            }
            Ok(())
        });
        let view = world.reopened();
        for (id, entries) in &lists {
            let mut wanted: Vec<BlockPtr> = entries.iter().map(|entry| entry.bp).collect();
            wanted.sort_by_key(|bp| bp.words()[1]);
            assert_eq!(contents(&view, *id), wanted, "seed {seed}, list {id}");
        }
        world.txg(|m, _| {
            for (id, entries) in &lists {
                assert_eq!(Bpobj::open(&m.view(), *id)?.space(), sum(m, entries), "seed {seed}, list {id}");
            }
            Ok(())
        });
    }
    world.txg(|m, _| {
        for id in lists.keys() {
            Bpobj::release(m, *id)?;
        }
        Ok(())
    });
    assert_eq!(world.objects(), objects, "seed {seed}: an object is left over");
}

fn step(
    m: MosTx<'_>,
    rng: &mut Rng,
    lists: &mut BTreeMap<ObjectId, Vec<StoredBlock>>,
    next: &mut u64,
) -> Result<(), DslError> {
    let pick = |rng: &mut Rng, lists: &BTreeMap<ObjectId, Vec<StoredBlock>>| {
        lists.keys().nth(rng.below(lists.len() as u64) as usize).copied()
    };
    match rng.below(8) {
        0 | 1 => {
            // Small blocks, so that lists soon have more than one.
            lists.insert(Bpobj::create(m, 1024)?, Vec::new());
        }
        2..=4 if !lists.is_empty() => {
            let Some(id) = pick(rng, lists) else { return Ok(()) };
            let entries: Vec<StoredBlock> = (0..rng.below(20)).map(|i| stored(*next + i, 9)).collect();
            *next += 20;
            put(m, id, &entries)?;
            lists.entry(id).or_default().extend(entries);
        }
        5 | 6 if lists.len() > 1 => {
            let Some((a, b)) = pick(rng, lists).zip(pick(rng, lists)).filter(|(a, b)| a != b) else {
                return Ok(());
            };
            let taken = lists.remove(&b).unwrap_or_default();
            assert_eq!(Bpobj::append_sub(m, a, b)?, sum(m, &taken));
            lists.entry(a).or_default().extend(taken);
        }
        7 if !lists.is_empty() => {
            let Some(id) = pick(rng, lists) else { return Ok(()) };
            let mut budget = Budget { blocks: rng.below(40) };
            let list = lists.entry(id).or_default();
            let is_empty = Bpobj::consume(m, id, &mut budget, &mut |entry, _| {
                let at = list.iter().position(|known| known == entry).expect("it was put in");
                list.swap_remove(at);
                Ok(())
            })?;
            assert!(!is_empty || list.is_empty());
        }
        _ => {}
    }
    Ok(())
}

#[test]
fn lists_hold_what_was_put_into_them() {
    for seed in 1..=6 {
        model(seed);
    }
}
