//! The dataset layer's changes on a pool in memory, each followed by a check of every sum.
#![allow(missing_docs)]

use crate::world;
use crate::world::{World, fill_nothing};
use cenote_dsl::DslError;
use cenote_dsl::create;
use cenote_dsl::create::NewHead;
use cenote_dsl::delegation;
use cenote_dsl::delegation::{Scope, User, Who};
use cenote_dsl::destroy::{destroy, destroy_snapshots};
use cenote_dsl::limits;
use cenote_dsl::promote::promote;
use cenote_dsl::prop;
use cenote_dsl::prop::PropValue;
use cenote_dsl::rename::{rename, rename_snapshot};
use cenote_dsl::rollback::rollback;
use cenote_dsl::snapshot::snapshot;
use cenote_dsl::{Caller, Cost, TaskCtx, counts};
use dmu::log::Unclaim;
use format::objset::ObjsetType::Zfs as ZFS;
use format::{BlockId, ObjectId};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn clone(world: &World, origin: &str, name: &str) {
    world.task(|ctx| create::clone(ctx, origin, NewHead::named(name)));
}

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

/// Makes a head with three snapshots: each alone holds some blocks, and all share some.
fn three_snapshots(world: &World, name: &str) {
    world.create(name);
    world.write(name, 100, 0, 8, 1);
    world.snapshot(&format!("{name}@s1"));
    world.write(name, 100, 2, 3, 2);
    world.write(name, 101, 0, 4, 3);
    world.snapshot(&format!("{name}@s2"));
    world.write(name, 100, 3, 3, 4);
    world.remove(name, 101);
    world.snapshot(&format!("{name}@s3"));
    world.write(name, 100, 0, 1, 5);
    world.write(name, 102, 0, 2, 6);
    world.sync();
    world.check();
}

#[test]
fn a_new_pool_adds_up() {
    let world = World::new();
    world.check();
    world.create("tank/a");
    world.create("tank/a/b");
    world.sync();
    world.check();
    let names: Vec<String> = world.reopened().dirs().unwrap().iter().map(|d| d.name().to_owned()).collect();
    assert_eq!(names, ["tank", "tank/a", "tank/a/b"]);
}

#[test]
fn what_cannot_be_made_is_refused() {
    let world = World::new();
    world.create("tank/a");
    let refused = |name: &str| world.try_create(name).unwrap_err();
    assert!(matches!(refused("tank/a"), DslError::Exists { .. }));
    assert!(matches!(refused("tank"), DslError::Exists { .. }));
    assert!(matches!(refused("tank/x/y"), DslError::NoParent { .. }));
    assert!(matches!(refused("other/x"), DslError::Crosses { .. }));
    assert!(matches!(refused("tank/a@b"), DslError::BadName { .. }));
    assert!(matches!(refused("tank/a%b"), DslError::BadName { .. }));
    assert!(matches!(refused(&format!("tank/{}", "x".repeat(251))), DslError::BadName { .. }));
    world.check();
}

#[test]
fn overwriting_after_snapshots_adds_up() {
    let world = World::new();
    three_snapshots(&world, "tank/a");
    for (snapshot, block) in [("s1", 2), ("s2", 2), ("s3", 3)] {
        let was = world.read(&format!("tank/a@{snapshot}"), 100, block);
        assert!(was.is_some());
    }
    assert_eq!(world.read("tank/a@s3", 101, 0), None);
    assert!(world.read("tank/a@s2", 101, 0).is_some());
}

#[test]
fn snapshots_go_in_any_order() {
    for order in [["s1", "s2", "s3"], ["s3", "s2", "s1"], ["s2", "s1", "s3"], ["s2", "s3", "s1"]] {
        let world = World::new();
        three_snapshots(&world, "tank/a");
        let kept = world.read("tank/a", 100, 6);
        for name in order {
            world.task(|ctx| destroy_snapshots(ctx, &[format!("tank/a@{name}")], false));
            world.sync();
            world.check();
        }
        assert_eq!(world.read("tank/a", 100, 6), kept);
        world.all_freed();
    }
}

#[test]
fn a_second_snapshot_of_one_txg_waits() {
    let world = World::new();
    world.create("tank/a");
    let second = world.run(|ctx| {
        snapshot(ctx, &names(&["tank/a@s", "tank@s"]), &[])?;
        snapshot(ctx, &names(&["tank/a@t"]), &[])
    });
    assert!(matches!(second, Err(DslError::Again { .. })));
    world.check();
    let twice = world.run(|ctx| snapshot(ctx, &names(&["tank/a@u", "tank/a@v"]), &[]));
    assert!(matches!(twice, Err(DslError::Crosses { .. })));
    let taken = world.run(|ctx| snapshot(ctx, &names(&["tank@new", "tank/a@s"]), &[]));
    assert!(matches!(taken, Err(DslError::Exists { .. })));
    assert!(world.reopened().dataset("tank@new").is_err(), "all or none");
}

#[test]
fn clones_diverge_and_go() {
    let world = World::new();
    three_snapshots(&world, "tank/a");
    clone(&world, "tank/a@s2", "tank/c");
    assert_eq!(world.read("tank/c", 101, 0), world.read("tank/a@s2", 101, 0));
    world.write("tank/c", 100, 1, 4, 50);
    world.write("tank/c", 200, 0, 4, 51);
    world.sync();
    world.check();
    world.snapshot("tank/c@cs1");
    world.write("tank/c", 100, 0, 2, 52);
    world.remove("tank/c", 200);
    world.sync();
    world.check();
    let held = world.run(|ctx| destroy_snapshots(ctx, &names(&["tank/a@s2"]), false));
    assert!(matches!(held, Err(DslError::HasClones { clones, .. }) if clones == ["tank/c"]));
    let full = world.run(|ctx| destroy(ctx, "tank/c"));
    assert!(matches!(full, Err(DslError::HasChildren { children, .. }) if children == ["tank/c@cs1"]));
    world.task(|ctx| destroy_snapshots(ctx, &names(&["tank/a@s1", "tank/a@s3"]), false));
    world.task(|ctx| destroy_snapshots(ctx, &names(&["tank/c@cs1"]), false));
    world.task(|ctx| destroy(ctx, "tank/c"));
    world.sync();
    world.check();
    world.all_freed();
}

#[test]
fn a_deferred_snapshot_goes_with_its_last_clone() {
    let world = World::new();
    three_snapshots(&world, "tank/a");
    clone(&world, "tank/a@s2", "tank/c");
    world.task(|ctx| destroy_snapshots(ctx, &names(&["tank/a@s2"]), true));
    assert!(world.reopened().dataset("tank/a@s2").unwrap().is_deferred());
    world.task(|ctx| destroy(ctx, "tank/c"));
    assert!(world.reopened().dataset("tank/a@s2").is_err());
}

#[test]
fn a_clone_is_promoted_and_promoted_back() {
    let world = World::new();
    three_snapshots(&world, "tank/a");
    clone(&world, "tank/a@s2", "tank/c");
    clone(&world, "tank/a@s1", "tank/d");
    world.write("tank/c", 100, 1, 4, 50);
    world.sync();
    world.snapshot("tank/c@cs1");
    world.write("tank/c", 100, 0, 2, 52);
    world.write("tank/d", 100, 0, 2, 53);
    world.sync();
    world.check();
    let was = world.read("tank/a@s2", 100, 2);
    world.task(|ctx| promote(ctx, "tank/c"));
    assert_eq!(world.read("tank/c@s2", 100, 2), was);
    assert!(world.reopened().dataset("tank/a@s2").is_err());
    assert_eq!(world.reopened().dir("tank/d").unwrap().origin().unwrap().unwrap().name(), "tank/c@s1");
    assert!(matches!(world.run(|ctx| promote(ctx, "tank/c")), Err(DslError::NotClone { .. })));
    world.write("tank/a", 100, 0, 8, 60);
    world.write("tank/c", 100, 0, 8, 61);
    world.sync();
    world.check();
    world.task(|ctx| promote(ctx, "tank/d"));
    world.write("tank/d", 100, 0, 8, 62);
    world.sync();
    world.task(|ctx| promote(ctx, "tank/a"));
    world.task(|ctx| destroy_snapshots(ctx, &names(&["tank/a@s3"]), false));
    let taken = world.run(|ctx| destroy(ctx, "tank/d"));
    assert!(taken.is_err(), "it owns s1 now");
    world.check();
}

#[test]
fn promoting_meets_its_own_names() {
    let world = World::new();
    three_snapshots(&world, "tank/a");
    clone(&world, "tank/a@s2", "tank/c");
    world.snapshot("tank/c@s1");
    let conflict = world.run(|ctx| promote(ctx, "tank/c"));
    assert!(matches!(conflict, Err(DslError::Exists { name }) if name == "tank/c@s1"));
    world.check();
}

#[test]
fn rolling_back() {
    let world = World::new();
    three_snapshots(&world, "tank/a");
    let was = world.read("tank/a@s3", 100, 0);
    assert_ne!(world.read("tank/a", 100, 0), was);
    let older = world.run(|ctx| rollback(ctx, "tank/a", Some("tank/a@s2")));
    assert!(matches!(older, Err(DslError::NotNewest { newer, .. }) if newer == ["tank/a@s3"]));
    let head = world.open("tank/a");
    assert!(matches!(world.run(|ctx| rollback(ctx, "tank/a", None)), Err(DslError::Busy { .. })));
    drop(head);
    world.task(|ctx| rollback(ctx, "tank/a", Some("tank/a@s3")));
    assert_eq!(world.read("tank/a", 100, 0), was);
    assert_eq!(world.read("tank/a", 102, 0), None);
    world.write("tank/a", 100, 0, 4, 70);
    world.sync();
    world.check();
    world.task(|ctx| destroy_snapshots(ctx, &names(&["tank/a@s1", "tank/a@s2", "tank/a@s3"]), false));
    world.sync();
    world.check();
    world.all_freed();
}

#[test]
fn rolling_back_a_clone() {
    let world = World::new();
    three_snapshots(&world, "tank/a");
    clone(&world, "tank/a@s2", "tank/c");
    world.write("tank/c", 100, 1, 4, 50);
    world.sync();
    world.snapshot("tank/c@cs1");
    world.write("tank/c", 100, 0, 8, 51);
    world.remove("tank/c", 101);
    world.sync();
    world.check();
    world.task(|ctx| rollback(ctx, "tank/c", None));
    world.sync();
    world.check();
}

#[test]
fn renaming() {
    let world = World::new();
    three_snapshots(&world, "tank/a");
    world.create("tank/b");
    world.create("tank/a/x");
    world.write("tank/a/x", 100, 0, 4, 9);
    world.snapshot("tank/a/x@s1");
    let below = world.run(|ctx| rename(ctx, "tank/a", "tank/a/x/y"));
    assert!(matches!(below, Err(DslError::Descendant { .. })));
    assert!(matches!(world.run(|ctx| rename(ctx, "tank/a", "tank/b")), Err(DslError::Exists { .. })));
    world.task(|ctx| rename(ctx, "tank/a", "tank/b/a"));
    world.task(|ctx| rename(ctx, "tank/b/a", "tank/b/z"));
    assert!(world.read("tank/b/z/x@s1", 100, 0).is_some());
    world.task(|ctx| rename_snapshot(ctx, "tank/b/z@s1", "first", true));
    assert!(world.read("tank/b/z/x@first", 100, 0).is_some());
    let taken = world.run(|ctx| rename_snapshot(ctx, "tank/b/z@first", "s2", true));
    assert!(matches!(taken, Err(DslError::Exists { .. })));
    world.task(|ctx| rename(ctx, "tank/b/z", "tank/z"));
    world.write("tank/z", 100, 0, 4, 10);
    world.sync();
    world.check();
}

#[test]
fn an_open_head_follows_a_rename() {
    let world = World::new();
    world.create("tank/a");
    world.create("tank/b");
    let head = world.open("tank/a");
    world.task(|ctx| rename(ctx, "tank/a", "tank/b/a"));
    assert_eq!(&*head.name(), "tank/b/a");
    world.task(|ctx| limits::set_quota(ctx, "tank/b", 1 << 20));
    assert!(head.space().available < 1 << 20);
}

/// Counts the maps of names that were walked to find a name by its number.
#[derive(Default)]
struct Walks(AtomicUsize);

impl tracing::Subscriber for Walks {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        if event.metadata().target().starts_with("cenote_dsl::mos") {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn a_rename_walks_the_names_above_the_renamed_head_alone() {
    const OTHERS: usize = 100;
    let world = World::new();
    world.run(|ctx| {
        for n in 0..OTHERS {
            create::create(ctx, NewHead::named(&format!("tank/x{n}")), ZFS, &mut fill_nothing).expect("made");
        }
    });
    world.create("tank/old");
    let others: Vec<_> = (0..OTHERS).map(|n| world.open(&format!("tank/x{n}"))).collect();
    let head = world.open("tank/old");

    // While there is one subscriber, `tracing` asks only that of the thread which first comes to an event, and
    // another test may come there first. With two it asks all of them.
    let _second = tracing::Dispatch::new(Walks::default());
    let walks = Arc::new(Walks::default());
    tracing::subscriber::with_default(Arc::clone(&walks), || {
        world.run(|ctx| rename(ctx, "tank/old", "tank/new")).expect("renamed");
        world.sync();
    });
    assert_eq!(&*head.name(), "tank/new");
    assert!(others.iter().enumerate().all(|(n, other)| *other.name() == *format!("tank/x{n}")));
    let walks = walks.0.load(Ordering::Relaxed);
    assert!((1..10).contains(&walks), "{walks} walks with {OTHERS} other heads open");
}

#[test]
fn reservations_are_charged_upwards() {
    let world = World::new();
    three_snapshots(&world, "tank/a");
    world.create("tank/a/b");
    world.task(|ctx| limits::set_reservation(ctx, "tank/a/b", 10 << 20));
    world.task(|ctx| limits::set_refreservation(ctx, "tank/a", 5 << 20));
    world.write("tank/a/b", 100, 0, 100, 1);
    world.write("tank/a", 100, 0, 50, 2);
    world.sync();
    world.check();
    world.snapshot("tank/a@r");
    world.write("tank/a", 100, 0, 500, 3);
    world.write("tank/a/b", 100, 0, 1000, 4);
    world.sync();
    world.check();
    world.task(|ctx| destroy_snapshots(ctx, &names(&["tank/a@r"]), false));
    world.task(|ctx| rollback(ctx, "tank/a", None));
    world.task(|ctx| rename(ctx, "tank/a/b", "tank/b"));
    world.task(|ctx| limits::set_reservation(ctx, "tank/b", 0));
    world.task(|ctx| limits::set_refreservation(ctx, "tank/a", 0));
    let low = world.run(|ctx| limits::set_quota(ctx, "tank/b", 1 << 20));
    assert!(matches!(low, Err(DslError::BadLimit { .. })));
}

#[test]
fn a_head_does_not_go_back_to_more_than_its_refquota() {
    let world = World::new();
    world.create("tank/a");
    world.write("tank/a", 100, 0, 500, 1);
    world.sync();
    world.snapshot("tank/a@full");
    world.remove("tank/a", 100);
    world.sync();
    world.task(|ctx| limits::set_refquota(ctx, "tank/a", 1 << 20));
    let refused = world.run(|ctx| rollback(ctx, "tank/a", None));
    assert!(matches!(refused, Err(DslError::Quota { quota: 0x10_0000, .. })), "{refused:?}");
    world.task(|ctx| limits::set_refquota(ctx, "tank/a", 0));
    world.task(|ctx| rollback(ctx, "tank/a", None));
    world.sync();
    world.check();
}

#[test]
fn properties_of_a_new_dataset_take_effect() {
    let world = World::new();
    let props = [
        ("reservation".to_owned(), PropValue::Number(3 << 20)),
        ("quota".to_owned(), PropValue::Number(4 << 20)),
        ("test:user".to_owned(), PropValue::String("yes".to_owned())),
        ("compression".to_owned(), PropValue::Number(16)),
    ];
    world.task(|ctx| {
        let new = NewHead { props: &props, ..NewHead::named("tank/p") };
        create::create(ctx, new, format::objset::ObjsetType::Zfs, &mut |_, _| Ok(()))
    });
    let dsl = world.reopened();
    let dataset = dsl.dataset("tank/p").unwrap();
    assert_eq!((dataset.dir().phys().reserved, dataset.dir().phys().quota), (3 << 20, 4 << 20));
    let value = cenote_dsl::prop::get(&dataset, "test:user").unwrap().unwrap();
    assert_eq!(value.raw.string(), Some("yes"));
}

#[test]
fn a_clone_is_refused_whole() {
    let world = World::new();
    world.create("tank/a");
    world.write("tank/a", 100, 0, 8, 1);
    world.snapshot("tank/a@s");
    let few = [("refquota".to_owned(), PropValue::Number(1))];
    let refused = world.run(|ctx| {
        create::clone(ctx, "tank/a@s", NewHead { props: &few, ..NewHead::named("tank/c") }).unwrap_err()
    });
    assert!(matches!(refused, DslError::BadLimit { .. }), "{refused}");
    assert!(world.reopened().dir("tank/c").is_err(), "nothing of it is there");
    world.check();
}

#[test]
fn limits_on_numbers_bind_those_who_cannot_change_them() {
    let world = World::new();
    for name in ["tank/a", "tank/b", "tank/b/c"] {
        world.create(name);
    }
    world.snapshot("tank/a@s");
    world.task(|ctx| create::clone(ctx, "tank/a@s", NewHead::named("tank/clone")));
    for (name, prop) in
        [("tank", "filesystem_limit"), ("tank/a", "filesystem_limit"), ("tank", "snapshot_limit")]
    {
        world.task(|ctx| prop::change::set(ctx, name, prop, &PropValue::Number(1)));
    }
    world.task(|ctx| prop::change::set(ctx, "tank/clone", "snapshot_limit", &PropValue::Number(0)));
    type Verb = fn(&mut TaskCtx<'_>) -> Result<(), DslError>;
    let verbs: [Verb; 5] = [
        |ctx| create::create(ctx, NewHead::named("tank/a/x"), ZFS, &mut |_, _| Ok(())).map(drop),
        |ctx| create::clone(ctx, "tank/a@s", NewHead::named("tank/a/y")).map(drop),
        |ctx| snapshot(ctx, &names(&["tank/a@t"]), &[]).map(drop),
        |ctx| rename(ctx, "tank/b", "tank/a/b"),
        |ctx| promote(ctx, "tank/clone"),
    ];
    let nobody = User { uid: 7, groups: vec![] };
    for (at, verb) in verbs.into_iter().enumerate() {
        let refused = world.run(|ctx| {
            ctx.caller = Caller::User(nobody.clone());
            verb(ctx)
        });
        assert!(matches!(refused, Err(DslError::CountLimit { .. })), "{at}: {refused:?}");
        world.check();
    }
    for verb in verbs {
        world.task(verb);
    }
    let of = |ctx: &mut TaskCtx<'_>, name: &str| counts::of(ctx.m(), ctx.dsl()?.dir(name)?.id());
    let counted = world.task(|ctx| of(ctx, "tank/a")).unwrap();
    assert_eq!((counted.filesystems, counted.snapshots), (4, 1), "they are counted all the same");
}

#[test]
fn who_may_change_a_limit_is_not_bound_by_it() {
    let world = World::new();
    for name in ["tank/a", "tank/a/b", "tank/from", "tank/from/below"] {
        world.create(name);
    }
    world.snapshot("tank/from/below@s");
    for (name, prop) in
        [("tank/a", "filesystem_limit"), ("tank/a/b", "filesystem_limit"), ("tank/a", "snapshot_limit")]
    {
        world.task(|ctx| prop::change::set(ctx, name, prop, &PropValue::Number(1)));
    }
    let grant = |name: &str, scope, permission: &str| {
        world.task(|ctx| {
            let dir = ctx.dsl()?.dir(name)?.id();
            delegation::change::allow(ctx.m(), dir, &Who::User(7), scope, &[permission])
        });
    };
    let as_user = |verb: &dyn Fn(&mut TaskCtx<'_>) -> Result<(), DslError>| {
        world.run(|ctx| {
            ctx.caller = Caller::User(User { uid: 7, groups: vec![] });
            match verb(ctx) {
                Err(DslError::CountLimit { dir, prop, .. }) => {
                    Some((ctx.dsl().unwrap().dir_by_object(dir).unwrap().name().to_owned(), prop))
                }
                done => {
                    done.unwrap();
                    None
                }
            }
        })
    };
    let refused_by = |name: &str, prop| Some((name.to_owned(), prop));
    let create = |name: &str| {
        as_user(&|ctx| create::create(ctx, NewHead::named(name), ZFS, &mut |_, _| Ok(())).map(drop))
    };
    assert_eq!(create("tank/a/b/c"), refused_by("tank/a", "filesystem_limit"));
    // Permissions below the limit, or for datasets below it, do not apply to the limit itself.
    grant("tank/a/b", Scope::Local, "filesystem_limit");
    grant("tank/a", Scope::Descendent, "filesystem_limit");
    grant("tank", Scope::Local, "filesystem_limit");
    assert_eq!(create("tank/a/b/c"), refused_by("tank/a", "filesystem_limit"));
    grant("tank", Scope::Descendent, "filesystem_limit");
    assert_eq!(create("tank/a/b/c"), None);
    assert_eq!(create("tank/a/b/d"), None);

    // A directory from below one that does not count brings the counts of its contents.
    let uncounted = world.task(|ctx| counts::of(ctx.m(), ctx.dsl()?.dir("tank/from")?.id()));
    assert_eq!(uncounted, None);
    assert_eq!(as_user(&|ctx| rename(ctx, "tank/from", "tank/a/from")), None, "one snapshot is allowed");
    assert_eq!(as_user(&|ctx| rename(ctx, "tank/a/from", "tank/from")), None);
    world.snapshot("tank/from@t");
    let refused = as_user(&|ctx| rename(ctx, "tank/from", "tank/a/from"));
    assert_eq!(refused, refused_by("tank/a", "snapshot_limit"));
    grant("tank/a", Scope::Local, "snapshot_limit");
    assert_eq!(as_user(&|ctx| rename(ctx, "tank/from", "tank/a/from")), None);
    world.check();
}

/// A small part of a large record takes all of it, whatever the change said that it would take.
#[test]
fn what_is_dirty_counts_where_the_pool_is_nearly_full() {
    let world = World::new();
    world.create("tank/a");
    world.sync();
    let used = world.reopened().dir("tank").unwrap().phys().used;
    let slop = 2 << 20;
    world.heads.set_pool_space(cenote_dsl::PoolSpace { size: used + slop + (8 << 20), slop });
    let head = world.open("tank/a");
    let tx = head.begin(Cost::write(1, 1 << 20)).expect("there is room");
    world.txgs.meter().add(zio::AllocTx::txg(&tx), 9 << 20);
    drop(tx);
    let refused = head.begin(Cost::write(1, 1 << 20)).unwrap_err();
    assert!(matches!(refused, DslError::Space { after: Some(_), .. }), "{refused}");
    world.sync();
    assert!(head.begin(Cost::write(1, 1 << 20)).is_ok());
}

/// Intent logs leave the bytes to a txg that its changes may still take.
#[test]
fn intent_logs_have_a_quarter_of_what_the_pool_keeps_back() {
    let world = World::new();
    let (txg, slop) = (world.txgs.synced_txg(), 64 << 20);
    world.heads.set_pool_space(cenote_dsl::PoolSpace { size: 256 << 20, slop });
    let log_room = |free: u64| {
        world.heads.set_free(txg, free);
        world.txgs.meter().log_room()
    };
    assert_eq!(log_room(100 << 20), slop / 4, "changes may take 36 MiB");
    assert_eq!(log_room(56 << 20), 8 << 20, "as much as is free beside the rest of that");
    assert_eq!(log_room(10 << 20), 0);
    assert!(log_room(1 << 40) > 1 << 39, "there is room for all");
}

#[test]
fn quotas_stop_writers() {
    let world = World::new();
    world.create("tank/a");
    world.task(|ctx| limits::set_quota(ctx, "tank/a", 1 << 20));
    let head = world.open("tank/a");
    world.write("tank/a", 100, 0, 100, 1);
    let pending = head.begin(Cost::write(1, 128 << 10)).unwrap_err();
    assert!(matches!(pending, DslError::Quota { after: Some(_), .. }), "{pending}");
    world.sync();
    let full = head.begin(Cost::write(1, 128 << 10)).unwrap_err();
    assert!(matches!(full, DslError::Quota { after: None, .. }), "{full}");
    assert!(head.begin(Cost::freeing()).is_ok());
    assert_eq!(head.space().available, 0);
    world.remove("tank/a", 100);
    world.sync();
    assert!(head.begin(Cost::write(1, 128 << 10)).is_ok());
    world.task(|ctx| limits::set_quota(ctx, "tank/a", 0));
    world.task(|ctx| limits::set_refquota(ctx, "tank/a", 1 << 20));
    world.write("tank/a", 101, 0, 100, 1);
    world.sync();
    assert!(matches!(head.begin(Cost::write(1, 128 << 10)), Err(DslError::Quota { .. })));
    world.task(|ctx| limits::set_refquota(ctx, "tank/a", 0));
    assert!(head.begin(Cost::write(1, 128 << 10)).is_ok(), "a new limit is known at once");
}

#[test]
fn a_full_pool_keeps_its_slop_and_its_reservations() {
    let world = World::new();
    world.create("tank/a");
    world.create("tank/r");
    world.task(|ctx| limits::set_reservation(ctx, "tank/r", 4 << 20));
    world.write("tank/a", 100, 0, 200, 1);
    world.sync();
    let used = world.reopened().dir("tank").unwrap().phys().used;
    let slop = 2 << 20;
    let full = cenote_dsl::PoolSpace { size: used + slop, slop };
    world.heads.set_pool_space(full);
    let (a, r) = (world.open("tank/a"), world.open("tank/r"));
    let refused = a.begin(Cost::write(1, 128 << 10)).unwrap_err();
    assert!(matches!(refused, DslError::Space { after: None, .. }), "{refused}");
    assert!(a.begin(Cost::freeing()).is_ok());
    assert!(r.begin(Cost::write(1 << 20, 128 << 10)).is_ok(), "it has reserved so much");
    assert_eq!(a.space().available, 0);
    assert!(r.space().available > 3 << 20);
    let made = world.try_create("tank/new").unwrap_err();
    assert!(matches!(made, DslError::Space { .. }), "{made}");
    world.heads.set_pool_space(cenote_dsl::PoolSpace { size: used + slop / 2, slop });
    assert!(a.begin(Cost::freeing()).is_err());
    drop(a);
    world.heads.set_pool_space(full);
    world.run(|ctx| destroy(ctx, "tank/a")).unwrap();
    world.check();
}

#[test]
fn a_volume_that_reserved_all_is_never_refused() {
    let world = World::new();
    world.create("tank/vol");
    world.create("tank/other");
    world.task(|ctx| limits::set_refreservation(ctx, "tank/vol", 4 << 20));
    world.write("tank/vol", 100, 0, 200, 1);
    world.sync();
    let used = world.reopened().dir("tank").unwrap().phys().used;
    let slop = 2 << 20;
    let full = cenote_dsl::PoolSpace { size: used + slop, slop };
    world.heads.set_pool_space(full);
    let (vol, other) = (world.open("tank/vol"), world.open("tank/other"));
    let of_volume = Cost { within: Some(4 << 20), ..Cost::write(700 << 10, 128 << 10) };
    assert!(matches!(other.begin(Cost::write(1, 128 << 10)), Err(DslError::Space { after: None, .. })));
    for _ in 0..3 {
        drop(vol.begin(of_volume).expect("nothing is pending"));
        let waits = vol.begin(of_volume).expect_err("old and new blocks are there until then");
        assert!(matches!(waits, DslError::Space { after: Some(_), .. }), "{waits}");
        // The helper does not set `within`, which would mark it as an overwrite.
        world.heads.set_pool_space(cenote_dsl::PoolSpace { size: 1 << 30, slop });
        world.write("tank/vol", 100, 0, 200, 2);
        world.sync();
        world.heads.set_pool_space(full);
    }
    let too_large = Cost { within: Some(5 << 20), ..Cost::write(1 << 20, 128 << 10) };
    assert!(matches!(vol.begin(too_large), Err(DslError::Space { after: None, .. })));
    // Its policy is read again with a txg that changes something.
    world.task(|ctx| prop::change::set(ctx, "tank/vol", "copies", &PropValue::Number(2)));
    world.sync();
    assert!(vol.begin(of_volume).is_err(), "two copies were not reserved");
}

#[test]
fn a_reservation_has_room_again_when_what_is_pending_was_written() {
    let world = World::new();
    world.create("tank/a");
    world.task(|ctx| limits::set_refreservation(ctx, "tank/a", 4 << 20));
    let used = world.reopened().dir("tank").unwrap().phys().used;
    world.heads.set_pool_space(cenote_dsl::PoolSpace { size: used + (2 << 20), slop: 2 << 20 });
    let head = world.open("tank/a");
    drop(head.begin(Cost::write(3 << 20, 128 << 10)).expect("reserved"));
    let waits = head.begin(Cost::write(3 << 20, 128 << 10)).expect_err("both do not fit");
    assert!(matches!(waits, DslError::Space { after: Some(_), .. }), "{waits}");
    world.write("tank/a", 100, 0, 1, 1);
    world.sync();
    assert!(head.begin(Cost::write(3 << 20, 128 << 10)).is_ok());
}

#[test]
fn a_busy_head_is_not_destroyed() {
    let world = World::new();
    world.create("tank/a");
    let head = world.open("tank/a");
    assert!(matches!(world.run(|ctx| destroy(ctx, "tank/a")), Err(DslError::Busy { .. })));
    drop(head);
    world.task(|ctx| destroy(ctx, "tank/a"));
    assert!(matches!(world.heads.open_by_name("tank/a"), Err(DslError::NotFound { .. })));
    let root = world.run(|ctx| destroy(ctx, "tank"));
    assert!(matches!(root, Err(DslError::WrongKind { .. })));
}

/// Writes, and commits that to the intent log, whose first block waits for a txg.
fn write_and_commit(world: &World, name: &str, object: u64, seed: u64) {
    world.write(name, object, 0, 4, seed);
    let head = world.open(name);
    let commit = || {
        for _ in 0..20 {
            let tx = head.begin(Cost::write(4096, 128 << 10)).unwrap();
            let data = dmu::log::LogData::copied(&world::noise(seed, 20_000));
            let object = format::ObjectId(object);
            head.log.push(&tx, dmu::log::Pending::Write { object, offset: 0, data, mtime: None });
            drop(tx);
            head.log.commit(Some(object)).unwrap();
        }
    };
    std::thread::scope(|scope| {
        let committer = scope.spawn(commit);
        while !committer.is_finished() {
            let wait = std::time::Duration::from_millis(1);
            if world.txgs.wait_for_work(wait) == dmu::Work::Sync {
                world.sync();
            }
        }
        committer.join().unwrap();
    });
}

#[test]
fn logs_go_with_their_users() {
    let world = World::new();
    world.create("tank/a");
    write_and_commit(&world, "tank/a", 100, 1);
    world.sync();
    // The head is no longer in use: one txg frees the log, and two more notice that.
    for _ in 0..3 {
        world.sync();
    }
    world.check();
    world.snapshot("tank/a@s");
    let head = world.open("tank/a");
    write_and_commit(&world, "tank/a", 100, 2);
    world.sync();
    drop(head);
    world.run(|ctx| rollback(ctx, "tank/a", None)).unwrap();
    world.sync();
    world.check();
    let head = world.open("tank/a");
    write_and_commit(&world, "tank/a", 100, 3);
    world.sync();
    write_and_commit(&world, "tank/a", 100, 4);
    drop(head);
    world.run(|ctx| snapshot(ctx, &names(&["tank/a@t"]), &[])).unwrap();
    world.run(|ctx| create::clone(ctx, "tank/a@t", NewHead::named("tank/c"))).unwrap();
    world.run(|ctx| destroy_snapshots(ctx, &names(&["tank/a@s"]), false)).unwrap();
    world.sync();
    world.check();
    assert_eq!(world.open("tank/c").set.zil_header(), Default::default());
    world.task(|ctx| destroy(ctx, "tank/c"));
    world.task(|ctx| destroy_snapshots(ctx, &names(&["tank/a@t"]), false));
    let head = world.open("tank/a");
    write_and_commit(&world, "tank/a", 100, 5);
    world.sync();
    drop(head);
    world.run(|ctx| destroy(ctx, "tank/a")).unwrap();
    world.sync();
    world.check();
    world.all_freed();
}

#[test]
fn a_log_is_used_again_while_it_is_given_up() {
    for syncs in 0..5 {
        let world = World::new();
        world.create("tank/a");
        write_and_commit(&world, "tank/a", 100, 1);
        for _ in 0..syncs {
            world.sync();
        }
        write_and_commit(&world, "tank/a", 100, 2);
        for _ in 0..5 {
            world.sync();
        }
        world.check();
        assert!(!world.heads.is_in_use(world.reopened().dataset("tank/a").unwrap().id()));
    }
}

#[test]
fn contents_are_changed_by_tasks() {
    let world = World::new();
    let id = world.create("tank/a");
    let change = |ctx: &mut cenote_dsl::TaskCtx<'_>| {
        ctx.change_contents(id, |set, tx| {
            let new = dmu::NewObject::of(format::ObjType::U64_METADATA);
            let object = set.allocate(&new, tx)?;
            object.write_at(0, b"changed", tx)?;
            Ok(object.id())
        })
    };
    let object = world.task(change);
    assert_eq!(&world.read("tank/a", object.0, 0).unwrap()[..7], b"changed");
    let head = world.open("tank/a");
    assert!(matches!(world.run(change), Err(DslError::Busy { .. })));
    drop(head);
    let frozen = world.run(|ctx| {
        snapshot(ctx, &names(&["tank/a@s"]), &[])?;
        change(ctx)
    });
    assert!(matches!(frozen, Err(DslError::Again { .. })));
    world.task(change);
}

#[test]
fn destroying_without_background() {
    let world = World::with_features(&["extensible_dataset"]);
    three_snapshots(&world, "tank/a");
    clone(&world, "tank/a@s2", "tank/c");
    world.write("tank/c", 100, 1, 4, 50);
    world.sync();
    world.task(|ctx| destroy(ctx, "tank/c"));
    world.task(|ctx| destroy_snapshots(ctx, &names(&["tank/a@s1", "tank/a@s2", "tank/a@s3"]), false));
    world.task(|ctx| destroy(ctx, "tank/a"));
    world.sync();
    world.check();
    world.all_freed();
}

#[test]
fn everything_goes() {
    let world = World::new();
    let before = world.reopened().dir("tank").unwrap().phys().used;
    three_snapshots(&world, "tank/a");
    world.create("tank/b");
    world.write("tank/b", 100, 0, 300, 1);
    world.sync();
    world.task(|ctx| destroy(ctx, "tank/b"));
    world.task(|ctx| destroy_snapshots(ctx, &names(&["tank/a@s1", "tank/a@s2", "tank/a@s3"]), false));
    world.task(|ctx| destroy(ctx, "tank/a"));
    world.sync();
    world.sync();
    world.check();
    world.all_freed();
    let after = world.reopened().dir("tank").unwrap().phys().used;
    assert!(after < before + (64 << 10), "{after} bytes are used, {before} were at the beginning");
}

/// Random changes of a tree of datasets, each checked.
fn random_life(seed: u64, steps: u32) {
    let world = World::new();
    let mut state = seed;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    world.create("tank/d0");
    let mut next = 1;
    for step in 0..steps {
        let dsl = world.reopened();
        let heads: Vec<String> =
            dsl.dirs().unwrap().iter().skip(1).map(|dir| dir.name().to_owned()).collect();
        let snapshots: Vec<String> = heads
            .iter()
            .flat_map(|head| dsl.dataset(head).unwrap().snapshots().unwrap())
            .map(|snapshot| snapshot.name().to_owned())
            .collect();
        let head = heads.get(random(heads.len().max(1) as u64) as usize).cloned();
        let snapshot_name = snapshots.get(random(snapshots.len().max(1) as u64) as usize).cloned();
        let what = [0, 0, 1, 4, 5, 5, 5, 6, 6, 7, 8, 9, 9, 10, 11, 12][random(16) as usize];
        let result = match (what, head, snapshot_name) {
            (0..=3, Some(head), _) => {
                world.write(&head, 100 + random(3), random(20), 1 + random(10), seed ^ u64::from(step));
                Ok(())
            }
            (4, Some(head), _) => {
                let object = 100 + random(3);
                if world.read(&head, object, 0).is_some() {
                    world.remove(&head, object);
                }
                Ok(())
            }
            (5, Some(head), _) => {
                next += 1;
                world.run(|ctx| snapshot(ctx, &[format!("{head}@s{next}")], &[])).map(|_| ())
            }
            (6, _, Some(origin)) => {
                next += 1;
                let name = format!("tank/d{next}");
                world.run(|ctx| create::clone(ctx, &origin, NewHead::named(&name))).map(|_| ())
            }
            (7, _, Some(name)) => {
                let defer = random(4) == 0;
                world.run(|ctx| destroy_snapshots(ctx, &[name], defer))
            }
            (8, Some(head), _) => world.run(|ctx| destroy(ctx, &head)),
            (9, Some(head), _) => world.run(|ctx| promote(ctx, &head)),
            (10, Some(head), _) => world.run(|ctx| rollback(ctx, &head, None)),
            (11, Some(head), _) => {
                let bytes = random(4) << 20;
                world.run(|ctx| limits::set_refreservation(ctx, &head, bytes))
            }
            _ => {
                next += 1;
                world.try_create(&format!("tank/d{next}")).map(|_| ())
            }
        };
        world.sync();
        if let Err(
            error @ (DslError::Dmu(_)
            | DslError::Zio(_)
            | DslError::Mismatch { .. }
            | DslError::Decode { .. }),
        ) = result
        {
            panic!("seed {seed}, step {step}: {error}");
        }
        println!("seed {seed}, step {step}: {what} {:?}", result.err().map(|e| e.to_string()));
        world.check();
    }
    for _ in 0..3 {
        world.sync();
    }
    world.all_freed();
}

#[test]
fn writers_and_tasks_at_once() {
    let world = World::new();
    for name in ["tank/a", "tank/b"] {
        world.create(name);
    }
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for name in ["tank/a", "tank/b"] {
            let (world, stop) = (&world, &stop);
            scope.spawn(move || {
                for round in 0.. {
                    if stop.load(std::sync::atomic::Ordering::Relaxed) {
                        return;
                    }
                    world.write(name, 100 + round % 3, round % 7, 3, round);
                    if round % 11 == 0 {
                        world.write(name, 1000 + round, 0, 2, round);
                        world.remove(name, 1000 + round);
                    }
                }
            });
        }
        for step in 0..30 {
            let (a, b) = (format!("tank/a@s{step}"), format!("tank/b@s{step}"));
            world.run(|ctx| snapshot(ctx, &[a, b], &[])).unwrap();
            if step >= 5 {
                let old = format!("tank/a@s{}", step - 5);
                world.run(|ctx| destroy_snapshots(ctx, &[old], false)).unwrap();
            }
            if step % 10 == 3 {
                let (origin, name) = (format!("tank/b@s{step}"), format!("tank/c{step}"));
                world.run(|ctx| create::clone(ctx, &origin, NewHead::named(&name))).unwrap();
                world.run(|ctx| promote(ctx, &name)).unwrap();
            }
            match world.run(|ctx| rollback(ctx, "tank/b", None)) {
                Ok(())
                | Err(DslError::Busy { .. } | DslError::NotNewest { .. } | DslError::NotFound { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    world.sync();
    world.check();
}

#[test]
fn random_lives_add_up() {
    for seed in 1..9 {
        random_life(seed, 80);
    }
}

/// The blocks that a claimed log references are free, which happens if another system wrote the log. Without
/// care the txg that drops the log is refused, and each one after it.
#[test]
fn a_claim_on_what_is_free_stops_no_txg() {
    for cloned in [false, true] {
        let world = World::new();
        world.run(|ctx| ctx.features.enable(ctx.m(), "block_cloning")).unwrap();
        world.create("tank/a");
        world.write("tank/a", 100, 0, 4, 1);
        world.sync();
        let file = world.open("tank/a").set.object(ObjectId(100)).unwrap();
        let pointers = [0, 1].map(|n| file.pointer_on_disk(BlockId(n)).unwrap().unwrap());
        drop(file);
        if cloned {
            // A table, with an entry for another block.
            assert!(world.brt.add_claim(&pointers[1], world.txgs.open_txg()));
            world.sync();
        }
        world.remove("tank/a", 100);
        world.sync();
        world.sync();
        for how in [Unclaim::Pointer, Unclaim::CountOnly] {
            world.brt.drop_claim(&pointers[0], how, world.txgs.open_txg());
            world.sync();
        }
        if cloned {
            assert_eq!(world.run(|ctx| ctx.brt.references(ctx.m(), &pointers[1])).unwrap(), 0);
            world.brt.drop_claim(&pointers[1], Unclaim::Pointer, world.txgs.open_txg());
            world.sync();
        }
        world.all_freed();
        world.check();
    }
}
