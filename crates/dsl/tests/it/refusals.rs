//! A refused task has changed nothing, even if its caller submitted it on outdated facts.
#![allow(missing_docs)]

use crate::world;
use crate::world::World;
use cenote_dsl::DslError;
use cenote_dsl::bookmark::Bookmark;
use cenote_dsl::create;
use cenote_dsl::create::NewHead;
use cenote_dsl::delegation;
use cenote_dsl::delegation::{Scope, Who};
use cenote_dsl::destroy::{destroy, destroy_snapshots};
use cenote_dsl::promote::promote;
use cenote_dsl::prop;
use cenote_dsl::prop::PropValue;
use cenote_dsl::rename::{rename, rename_snapshot};
use cenote_dsl::rollback::{rollback, rollback_over};
use cenote_dsl::snapshot::snapshot;
use cenote_dsl::{TaskCtx, holds};
use format::objset::ObjsetType;
use format::{BlockPtr, Txg};
use std::collections::BTreeSet;

/// Runs a task that must be refused and must leave the pool unchanged.
fn refused<T: std::fmt::Debug>(
    world: &World,
    task: impl FnOnce(&mut TaskCtx<'_>) -> Result<T, DslError>,
) -> DslError {
    attempt(world, task).expect_err("a refusal")
}

/// Runs a task; if it is refused, the pool must be unchanged.
fn attempt<T: std::fmt::Debug>(
    world: &World,
    task: impl FnOnce(&mut TaskCtx<'_>) -> Result<T, DslError>,
) -> Result<T, DslError> {
    world.run(|ctx| {
        let before = ctx.mos.change_count();
        let result = task(ctx);
        if let Err(error) = &result {
            assert_eq!(ctx.mos.change_count(), before, "half done: {error}");
        }
        result
    })
}

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn going_back_while_a_snapshot_is_taken() {
    let world = World::new();
    world.create("tank/a");
    for snapshot in ["tank/a@s1", "tank/a@s2", "tank/a@s3"] {
        world.write("tank/a", 100, 0, 4, snapshot.len() as u64);
        world.snapshot(snapshot);
    }
    // The caller has listed the snapshots, and then the third was taken.
    let back =
        |ctx: &mut TaskCtx<'_>| rollback_over(ctx, "tank/a", Some("tank/a@s1"), &names(&["tank/a@s2"]));
    let why = refused(&world, back);
    assert!(matches!(why, DslError::NotNewest { newer, .. } if newer == ["tank/a@s3"]));
    // Of the snapshots to be destroyed, one is held and one is in use.
    let all = names(&["tank/a@s2", "tank/a@s3", "tank/a@gone", "tank/a#gone"]);
    let third = world.reopened().dataset("tank/a@s3").unwrap();
    world.task(|ctx| holds::hold(ctx.m(), third.id(), "mine", 1, false));
    let why = refused(&world, |ctx| rollback_over(ctx, "tank/a", Some("tank/a@s1"), &all));
    assert!(matches!(why, DslError::Held { .. }));
    world.task(|ctx| holds::release(ctx.m(), third.id(), "mine").map(drop));
    let used = world.heads.hold_snapshot(third.id(), &third.phys().bp).unwrap();
    let why = refused(&world, |ctx| rollback_over(ctx, "tank/a", Some("tank/a@s1"), &all));
    assert!(matches!(why, DslError::Busy { .. }));
    drop(used);
    world.task(|ctx| rollback_over(ctx, "tank/a", Some("tank/a@s1"), &all));
    assert_eq!(world.reopened().dataset("tank/a").unwrap().snapshots().unwrap().len(), 1);
}

#[test]
fn promoting_where_bookmarks_would_meet() {
    let world = World::new();
    world.create("tank/a");
    let snapshot = world.snapshot("tank/a@s");
    world.task(|ctx| create::clone(ctx, "tank/a@s", NewHead::named("tank/c")));
    let head = |name: &str| world.reopened().dataset(name).unwrap().id();
    let (a, c) = (head("tank/a"), head("tank/c"));
    world.task(|ctx| Bookmark::create_from_snapshot(ctx.m(), a, snapshot, "m"));
    world.task(|ctx| Bookmark::create_from_snapshot(ctx.m(), c, snapshot, "m"));
    assert!(
        matches!(refused(&world, |ctx| promote(ctx, "tank/c")), DslError::Exists { name } if name == "tank/c#m")
    );
}

#[test]
fn a_snapshot_with_impossible_properties() {
    let world = World::new();
    world.create("tank/a");
    let props = [("a:b".to_owned(), PropValue::String("x".repeat(10_000)))];
    refused(&world, |ctx| snapshot(ctx, &names(&["tank/a@s"]), &props));
    let props = [(format!("a:{}", "b".repeat(300)), PropValue::String(String::new()))];
    refused(&world, |ctx| snapshot(ctx, &names(&["tank/a@s"]), &props));
}

#[test]
fn snapshots_whose_blocks_are_being_shared_stay() {
    let world = World::new();
    world.create("tank/a");
    world.write("tank/a", 100, 0, 4, 1);
    world.snapshot("tank/a@s");
    let dataset = world.reopened().dataset("tank/a@s").unwrap();
    let (id, root) = (dataset.id(), dataset.phys().bp);
    let go = |ctx: &mut TaskCtx<'_>| destroy_snapshots(ctx, &names(&["tank/a@s"]), false);
    // The number alone does not identify a snapshot, and a head is none.
    assert!(matches!(world.heads.hold_snapshot(id, &BlockPtr::HOLE), Err(DslError::NotFound { .. })));
    let head = world.reopened().dataset("tank/a").unwrap();
    assert!(matches!(world.heads.hold_snapshot(head.id(), &head.phys().bp), Err(DslError::NotFound { .. })));
    let (one, two) = (world.heads.hold_snapshot(id, &root).unwrap(), world.heads.hold_snapshot(id, &root));
    drop(one);
    assert!(matches!(refused(&world, go), DslError::Busy { .. }));
    // The references of the last pointers that were read count in the txg after this one.
    let open = world.txgs.open_txg();
    world.brt.note_source(id, Txg(open.0 + 1));
    drop(two);
    assert!(matches!(refused(&world, go), DslError::Again { .. }));
    world.task(go);
    assert!(matches!(world.heads.hold_snapshot(id, &root), Err(DslError::NotFound { .. })));
    // Likewise for heads: one that is destroyed, and one that is rolled back.
    world.snapshot("tank/a@t");
    world.brt.note_source(head.id(), Txg(world.txgs.open_txg().0 + 1));
    assert!(matches!(refused(&world, |ctx| rollback(ctx, "tank/a", None)), DslError::Again { .. }));
    world.task(|ctx| rollback(ctx, "tank/a", None));
    world.task(|ctx| destroy_snapshots(ctx, &names(&["tank/a@t"]), false));
    world.brt.note_source(head.id(), Txg(world.txgs.open_txg().0 + 1));
    assert!(matches!(refused(&world, |ctx| destroy(ctx, "tank/a")), DslError::Again { .. }));
    world.task(|ctx| destroy(ctx, "tank/a"));
}

/// A caller that submits tasks without looking at the pool first.
struct Blind {
    state: u64,
}

const HEADS: [&str; 5] = ["tank/a", "tank/a/b", "tank/c", "tank/c/d", "tank"];

impl Blind {
    fn below(&mut self, n: u64) -> u64 {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % n
    }

    fn head(&mut self) -> String {
        HEADS[self.below(5) as usize].to_owned()
    }

    fn snapshot(&mut self) -> String {
        format!("{}@s{}", self.head(), self.below(3))
    }

    fn mark(&mut self) -> String {
        format!("{}#m{}", self.head(), self.below(2))
    }

    fn several(&mut self, one: fn(&mut Blind) -> String) -> Vec<String> {
        (0..1 + self.below(3)).map(|_| one(self)).collect()
    }

    /// Runs a verb with names that may or may not exist.
    #[allow(clippy::too_many_lines)] // One line for each verb.
    fn act(&mut self, ctx: &mut TaskCtx<'_>) -> Result<(), DslError> {
        let (head, other) = (self.head(), self.head());
        let id = |ctx: &TaskCtx<'_>, name: &str| Ok::<_, DslError>(ctx.dsl()?.dataset(name)?.id());
        match self.below(24) {
            18.. => self.act_further(ctx, &head),
            0 | 1 => {
                let new = NewHead::named(&head);
                create::create(ctx, new, ObjsetType::Zfs, &mut world::fill_nothing).map(drop)
            }
            2..=4 => snapshot(ctx, &self.several(Blind::snapshot), &[]).map(drop),
            5 => destroy_snapshots(ctx, &self.several(Blind::snapshot), self.state & 1 == 0),
            6 => destroy(ctx, &head),
            7 => create::clone(ctx, &self.snapshot(), NewHead::named(&head)).map(drop),
            8 => promote(ctx, &head),
            9 => {
                let mut lost = self.several(Blind::snapshot);
                lost.push(self.mark());
                rollback_over(ctx, &head, Some(&self.snapshot()), &lost)
            }
            10 => rename(ctx, &head, &other),
            11 => {
                let to = format!("s{}", self.below(3));
                rename_snapshot(ctx, &self.snapshot(), &to, self.state & 1 == 0)
            }
            12 => {
                let snapshot = id(ctx, &self.snapshot())?;
                if self.below(2) == 0 {
                    holds::hold(ctx.m(), snapshot, "t", 1, false)
                } else {
                    self.release(ctx)
                }
            }
            13 => {
                let (snapshot, mark) = (id(ctx, &self.snapshot())?, format!("m{}", self.below(2)));
                Bookmark::create_from_snapshot(ctx.m(), id(ctx, &head)?, snapshot, &mark)
            }
            14 => Bookmark::destroy(ctx.m(), id(ctx, &head)?, &format!("m{}", self.below(2))),
            15 => {
                let (prop, bytes) =
                    [("quota", 1 << 20), ("refreservation", 8 << 20), ("reservation", 4 << 20)]
                        [self.below(3) as usize];
                prop::change::set(ctx, &head, prop, &PropValue::Number(bytes * self.below(2)))
            }
            16 => prop::change::inherit(ctx, &head, "compression", false),
            _ => {
                let dir = ctx.dsl()?.dir(&head)?.id();
                let permission = ["snapshot", "no such", "@set"][self.below(3) as usize];
                delegation::change::allow(ctx.m(), dir, &Who::User(1), Scope::Local, &[permission])
            }
        }
    }

    /// Runs verbs of volumes, and tasks that consist of several steps.
    fn act_further(&mut self, ctx: &mut TaskCtx<'_>, head: &str) -> Result<(), DslError> {
        let id = |ctx: &TaskCtx<'_>, name: &str| Ok::<_, DslError>(ctx.dsl()?.dataset(name)?.id());
        match self.below(6) {
            0 => {
                let sizes = ["refreservation", "reservation", "quota", "refquota"];
                let props = sizes.map(|name| (name.to_owned(), PropValue::Number(self.below(3) << 20)));
                let new = NewHead { props: &props[self.below(4) as usize..], ..NewHead::named(head) };
                create::create(ctx, new, ObjsetType::Zvol, &mut world::fill_nothing).map(drop)
            }
            1 => {
                let dir = ctx.dsl()?.dir(head)?.id();
                let permissions = ["snapshot", "@set", ["mount", "no such"][self.below(2) as usize]];
                let which = [None, Some(&permissions[..])][self.below(2) as usize];
                delegation::change::unallow(ctx.m(), dir, &Who::User(self.below(2)), Scope::Local, which)
            }
            2 => {
                let (of, to) = (self.head(), format!("m{}", self.below(3)));
                let (of, from) = (id(ctx, &of)?, format!("m{}", self.below(2)));
                Bookmark::create_from_bookmark(ctx.m(), id(ctx, head)?, (of, &from), &to)
            }
            3 => {
                // All of them, or none.
                let snapshots: BTreeSet<String> = self.several(Blind::snapshot).into_iter().collect();
                let ids = snapshots.iter().map(|name| id(ctx, name)).collect::<Result<Vec<_>, _>>()?;
                ids.iter().try_for_each(|id| holds::check_hold(ctx.m(), *id, "t", false))?;
                ids.iter().try_for_each(|id| holds::hold(ctx.m(), *id, "t", 1, false))
            }
            4 => {
                let name =
                    ["block_cloning", "bookmark_v2", "livelist", "zstd_compress"][self.below(4) as usize];
                ctx.features.enable(ctx.m(), name)
            }
            _ => self.set_several(ctx, head),
        }
    }

    /// Sets several properties: those that succeed stay set, each refused one has changed nothing.
    fn set_several(&mut self, ctx: &mut TaskCtx<'_>, head: &str) -> Result<(), DslError> {
        let mut refused = Vec::new();
        for _ in 0..3 {
            let (prop, number) = [
                ("quota", self.below(3) << 20),
                ("refquota", self.below(3) << 20),
                ("reservation", self.below(3) << 29),
                ("refreservation", self.below(3) << 19),
                ("filesystem_limit", self.below(3)),
                ("compression", 15 + 2 * self.below(2)),
                // Not stored in the property ZAP.
                ("volsize", 1 << 20),
                ("version", 5),
            ][self.below(8) as usize];
            let value = PropValue::Number(number);
            refused.extend(ctx.step(|ctx| prop::change::set(ctx, head, prop, &value))?.err());
        }
        match refused.pop() {
            Some(why) if refused.len() == 2 => Err(why),
            _ => Ok(()),
        }
    }

    fn release(&mut self, ctx: &mut TaskCtx<'_>) -> Result<(), DslError> {
        let snapshot = ctx.dsl()?.dataset(&self.snapshot())?.id();
        if holds::release(ctx.m(), snapshot, "t")? {
            cenote_dsl::destroy::destroy_if_deferred(ctx, snapshot)?;
        }
        Ok(())
    }
}

/// Runs every verb in every state that the others leave behind. `CENOTE_ROUNDS`: number of steps.
#[test]
fn verbs_that_have_not_looked() {
    let rounds = std::env::var("CENOTE_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(1500);
    for seed in 1..4 {
        let world = World::new();
        let mut blind = Blind { state: seed };
        let mut done = 0;
        for round in 0..rounds {
            if blind.below(4) == 0 {
                let head = blind.head();
                if world.reopened().dataset(&head).is_ok() {
                    world.try_write(&head, 100 + round % 3, round % 5, 2, round);
                }
            }
            done += u32::from(attempt(&world, |ctx| blind.act(ctx)).is_ok());
            if round % 100 == 0 {
                world.sync();
                world.check();
            }
        }
        assert!(done > 100, "{done} of {rounds} went through");
        world.sync();
        world.check();
    }
}
