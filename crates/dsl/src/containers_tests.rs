//! Tests of the objects attached to directories and datasets: features, holds, counts, bookmarks,
//! permissions, livelists, properties. The reading modules have tests of their own.

use crate::block_space::Space;
use crate::bookmark::Bookmark;
use crate::bookmark::BookmarkError;
use crate::bookmark::change::FbnCounter;
use crate::create::{create_dir, create_head};
use crate::deadlist::Deadlist;
use crate::delegation;
use crate::delegation::{Scope, Who};
use crate::error::DslError;
use crate::holds;
use crate::holds::HoldError;
use crate::livelist;
use crate::livelist::LivelistWriter;
use crate::prop;
use crate::prop::PropValue;
use crate::prop::change::Change;
use crate::testing::{Rng, World, pointer};
use crate::tree::Dsl;
use crate::{MosTx, counts, free_lists, zapify};
use format::dsl::{BOOKMARK_FLAG_HAS_FBN, BOOKMARK_FLAG_SNAPSHOT_EXISTS};
use format::feature::FEATURES;
use format::{BlockPtr, ObjectId, Txg};
use std::collections::BTreeMap;

fn dsl(world: &World) -> Dsl {
    let mos = world.reopened();
    let directory = crate::mos::zap(&mos, ObjectId(1)).expect("directory");
    let root = crate::mos::lookup_object(&directory, ObjectId(1), "root_dataset").expect("readable");
    Dsl::open(mos, root.expect("there"), "tank")
}

/// A directory below the root with a head that comes from the empty snapshot.
fn make(m: MosTx<'_>, parent: Option<ObjectId>, name: &str) -> Result<(ObjectId, ObjectId), DslError> {
    let parent = parent.map_or_else(|| m.root_dir(), Ok)?;
    let dir = create_dir(m, Some(parent), name)?;
    let head = create_head(m, dir, m.origin_snapshot()?, 0)?;
    Ok((dir, head))
}

// ---- features -------------------------------------------------------------------------------

#[test]
fn enabling_a_feature_enables_what_it_needs() {
    let mut world = World::without(&["bookmarks", "enabled_txg", "livelist"]);
    assert!(!world.features.is_enabled("bookmark_written"));
    world.txg(|m, _| m.features.enable(m, "bookmark_written"));
    for name in ["bookmark_written", "bookmark_v2", "bookmarks", "extensible_dataset"] {
        assert!(world.features.is_enabled(name), "{name}");
    }
    let error = world.refused(|m| m.features.incr(m, "livelist"));
    assert!(matches!(error, DslError::FeatureDisabled { name: "livelist" }));
    let error = world.refused(|m| m.features.decr(m, "bookmarks"));
    assert!(matches!(error, DslError::Mismatch { found: 0, expected: 1, .. }));
}

#[test]
fn txgs_of_enabling_are_recorded_and_counted() {
    let mut world = World::new();
    world.txg(|m, _| m.features.enable(m, "physical_rewrite"));
    let view = world.reopened();
    let directory = crate::mos::zap(&view, ObjectId(1)).expect("directory");
    let id = crate::mos::lookup_object(&directory, ObjectId(1), "feature_enabled_txg").expect("readable");
    let zap = crate::mos::zap(&view, id.expect("there")).expect("a ZAP");
    assert_eq!(zap.count().expect("counted"), world.features.count("enabled_txg"));
    let txg = |guid: &str| zap.lookup_u64(guid.as_bytes()).expect("readable");
    assert_eq!((txg("com.delphix:enabled_txg"), txg("com.truenas:physical_rewrite")), (Some(4), Some(5)));
    // A feature that was enabled before the record existed has no entry.
    assert_eq!(txg("com.delphix:async_destroy"), None);
    let again = crate::FeatureCounts::load(&view).expect("readable");
    assert_eq!(again.counts(), world.features.counts());
    assert_eq!(again.count("lz4_compress"), 1);
}

#[test]
fn labels_name_active_features_of_the_mos() {
    let mut world = World::new();
    assert!(world.features.take_label_change());
    let names = world.features.label_features();
    assert!(names.contains(&"com.delphix:hole_birth") && !names.contains(&"com.delphix:device_removal"));
    world.txg(|m, _| m.features.incr(m, "device_removal"));
    assert!(world.features.take_label_change());
    world.txg(|m, _| m.features.incr(m, "device_removal"));
    assert!(!world.features.take_label_change());
    assert!(world.features.label_features().contains(&"com.delphix:device_removal"));
}

#[test]
fn features_of_datasets_are_counted_once_each() {
    let mut world = World::new();
    let (a, b) = world.txg(|m, _| Ok((make(m, None, "a")?.1, make(m, None, "b")?.1)));
    let before = world.features.count("extensible_dataset");
    world.txg(|m, _| {
        zapify::activate_feature(m, a, "large_blocks")?;
        zapify::activate_feature(m, a, "large_blocks")?;
        zapify::activate_array(m, a, "redacted_datasets", &[7, 8])?;
        zapify::copy_features(m, a, b)
    });
    let count = |world: &World, name: &str| world.features.count(name);
    assert_eq!((count(&world, "large_blocks"), count(&world, "redacted_datasets")), (2, 2));
    assert_eq!(count(&world, "extensible_dataset"), before + 2);
    let dsl_now = dsl(&world);
    let head = dsl_now.dataset("tank/b").expect("there");
    assert!(head.has_feature("large_blocks").expect("readable"));
    assert_eq!(head.redact_snaps().expect("readable"), Some(vec![7, 8]));
    world.txg(|m, _| {
        zapify::deactivate_feature(m, a, "redacted_datasets")?;
        zapify::activate_feature(m, a, "longname")?;
        zapify::swap_features(m, a, b)?;
        assert!(zapify::has_feature(m, a, "redacted_datasets")?);
        assert!(zapify::has_feature(m, b, "longname")?);
        zapify::drop_features(m, a)?;
        zapify::drop_features(m, b)?;
        zapify::free_object(m, a)
    });
    for feature in FEATURES.iter().filter(|f| f.per_dataset && world.features.is_enabled(f.name)) {
        assert_eq!(count(&world, feature.name), 0, "{}", feature.name);
    }
    assert_eq!(count(&world, "extensible_dataset"), before + 1);
}

// ---- holds ----------------------------------------------------------------------------------

#[test]
fn holds_are_made_and_released() {
    let mut world = World::new();
    let snapshot = world.txg(|m, _| m.origin_snapshot()).expect("there");
    world.txg(|m, _| holds::hold(m, snapshot, "a", 11, false));
    world.txg(|m, _| holds::hold(m, snapshot, "b", 12, true));
    let held = |world: &World| {
        let dsl = dsl(world);
        let holds = dsl.dataset_by_object(snapshot).expect("there").holds().expect("readable");
        holds.into_iter().map(|hold| (hold.tag, hold.time)).collect::<Vec<_>>()
    };
    assert_eq!(held(&world), [("a".to_owned(), 11), ("b".to_owned(), 12)]);
    let hold_error = |error| match error {
        DslError::Hold(error) => error,
        other => panic!("{other}"),
    };
    assert_eq!(hold_error(world.refused(|m| holds::hold(m, snapshot, "a", 1, false))), HoldError::TagExists);
    assert_eq!(hold_error(world.refused(|m| holds::release(m, snapshot, "c"))), HoldError::NoSuchTag);
    let long = "x".repeat(256);
    assert_eq!(
        hold_error(world.refused(|m| holds::hold(m, snapshot, &long, 1, false))),
        HoldError::TagTooLong
    );
    let head = world.txg(|m, _| Ok(make(m, None, "a")?.1));
    assert_eq!(hold_error(world.refused(|m| holds::hold(m, head, "a", 1, false))), HoldError::NotSnapshot);
    // An import releases temporary holds.
    assert_eq!(world.txg(|m, _| holds::release_temporary(m)), []);
    assert_eq!(held(&world), [("a".to_owned(), 11)]);
    assert!(!world.txg(|m, _| holds::release(m, snapshot, "a")));
    assert_eq!(held(&world), []);
}

#[test]
fn the_last_hold_of_a_deferred_snapshot_says_so() {
    let mut world = World::new();
    let snapshot = world.txg(|m, _| m.origin_snapshot()).expect("there");
    world.txg(|m, _| {
        m.change_dataset(snapshot, |phys| phys.num_children = 1)?;
        holds::hold(m, snapshot, "a", 1, false)?;
        holds::hold(m, snapshot, "b", 1, true)?;
        holds::defer(m, snapshot)?;
        assert!(!holds::release(m, snapshot, "a")?);
        assert_eq!(holds::release_temporary(m)?, [snapshot]);
        holds::free_all(m, snapshot)
    });
}

// ---- counts ---------------------------------------------------------------------------------

#[test]
fn counts_begin_with_a_limit_and_follow_the_tree() {
    let mut world = World::new();
    let (a, b, c) = world.txg(|m, _| {
        let (a, _) = make(m, None, "a")?;
        let (b, _) = make(m, Some(a), "b")?;
        let (c, _) = make(m, Some(b), "c")?;
        counts::adjust(m, c, 1, 0)?;
        Ok((a, b, c))
    });
    let get = |world: &mut World, dir| {
        let counts = world.txg(|m, _| counts::of(m, dir));
        counts.map(|counts| (counts.filesystems, counts.snapshots))
    };
    assert_eq!(get(&mut world, a), None);
    world.txg(|m, _| counts::activate(m, a));
    assert_eq!(get(&mut world, a), Some((2, 0)));
    assert_eq!((get(&mut world, b), get(&mut world, c)), (Some((1, 0)), Some((0, 0))));
    assert_eq!(world.features.count("filesystem_limits"), 1);
    let (d, _) = world.txg(|m, _| {
        let made = make(m, Some(b), "d")?;
        counts::adjust(m, made.0, 1, 0)?;
        counts::adjust(m, c, 0, 2)?;
        counts::adjust(m, a, 0, 1)?;
        Ok(made)
    });
    assert_eq!((get(&mut world, a), get(&mut world, b)), (Some((3, 3)), Some((2, 2))));
    assert_eq!((get(&mut world, c), get(&mut world, d)), (Some((0, 2)), Some((0, 0))));
    world.txg(|m, _| {
        let props = m.dir(a)?.props.expect("there");
        m.zap(props)?.insert(b"filesystem_limit", 4)?;
        counts::check_limits(m, b, 1, 5, &|_, _| Ok(false))
    });
    let error = world.refused(|m| counts::check_limits(m, b, 2, 0, &|_, _| Ok(false)));
    assert!(matches!(error, DslError::CountLimit { prop: "filesystem_limit", used: 3, limit: 4, .. }));
    // One directory moves away from below `a`, and one is destroyed.
    world.txg(|m, _| {
        let root = m.root_dir()?;
        assert_eq!(counts::weight(m, b)?, counts::Counts { filesystems: 3, snapshots: 2 });
        counts::transfer(m, a, root, b)?;
        m.change_dir(b, |phys| phys.parent = Some(root))?;
        counts::adjust(m, d, -1, 0)
    });
    assert_eq!((get(&mut world, a), get(&mut world, b)), (Some((0, 1)), Some((1, 2))));
    assert_eq!(world.features.count("filesystem_limits"), 1);
}

/// As OpenZFS leaves it: active once, however many directories count, and for good.
#[test]
fn directories_of_a_foreign_pool_that_count_may_all_go() {
    let mut world = World::new();
    let dirs = world.txg(|m, _| {
        let (a, _) = make(m, None, "a")?;
        counts::activate(m, a)?;
        let (b, _) = make(m, None, "b")?;
        counts::adjust(m, b, 1, 0)?;
        assert_eq!(counts::of(m, b)?, Some(counts::Counts::default()), "although nothing above it counts");
        Ok([a, b])
    });
    world.txg(|m, _| dirs.iter().try_for_each(|dir| counts::adjust(m, *dir, -1, 0)));
    assert_eq!(world.features.count("filesystem_limits"), 1);
}

// ---- bookmarks ------------------------------------------------------------------------------

#[test]
fn bookmarks_come_and_go() {
    let mut world = World::new();
    let (snapshot, head, other) = world.txg(|m, _| {
        let snapshot = m.origin_snapshot()?.expect("there");
        Ok((snapshot, make(m, None, "a")?.1, make(m, None, "b")?.1))
    });
    world.txg(|m, _| Bookmark::create_from_snapshot(m, head, snapshot, "m"));
    world.txg(|m, _| Bookmark::create_from_bookmark(m, head, (head, "m"), "n"));
    let dsl_now = dsl(&world);
    let marks = dsl_now.dataset("tank/a").expect("there").bookmarks().expect("readable");
    assert_eq!(marks.iter().map(crate::Bookmark::name).collect::<Vec<_>>(), ["tank/a#m", "tank/a#n"]);
    let v2 = marks[0].phys().v2.expect("the second form");
    assert_eq!(v2.flags, BOOKMARK_FLAG_HAS_FBN | BOOKMARK_FLAG_SNAPSHOT_EXISTS);
    let count =
        |world: &World| ["bookmarks", "bookmark_v2", "bookmark_written"].map(|n| world.features.count(n));
    assert_eq!(count(&world), [1, 2, 2]);
    let refused = world.refused(|m| Bookmark::create_from_snapshot(m, head, snapshot, "m"));
    assert!(matches!(refused, DslError::Bookmark(BookmarkError::Exists)));
    let refused = world.refused(|m| Bookmark::create_from_snapshot(m, head, other, "x"));
    assert!(matches!(refused, DslError::Bookmark(BookmarkError::NotSnapshot)));
    let refused = world.refused(|m| Bookmark::destroy(m, head, "x"));
    assert!(matches!(refused, DslError::Bookmark(BookmarkError::NoSuch { .. })));
    world.txg(|m, _| {
        assert_eq!(Bookmark::move_conflicts(m, head, other, Txg(9))?, Vec::<String>::new());
        Bookmark::move_upto(m, head, other, Txg(9))
    });
    assert_eq!(count(&world), [1, 2, 2]);
    world.txg(|m, _| Bookmark::destroy(m, other, "m"));
    assert_eq!(count(&world), [1, 1, 1]);
    world.txg(|m, _| Bookmark::destroy_all(m, other));
    assert_eq!(count(&world), [0, 0, 0]);
}

#[test]
fn bookmarks_count_what_is_freed_before_the_next_snapshot() {
    let mut world = World::new();
    let (snapshot, head) = world.txg(|m, _| {
        let snapshot = m.origin_snapshot()?.expect("there");
        let (dir, head) = make(m, None, "a")?;
        // A chain of its own: this head is the successor of the snapshot.
        m.change_dataset(snapshot, |phys| {
            (phys.next_snap, phys.creation_txg, phys.dir) = (Some(head), Txg(6), dir);
        })?;
        m.change_dataset(head, |phys| phys.prev_snap_txg = Txg(6))?;
        Ok((snapshot, head))
    });
    world.txg(|m, _| {
        let dead = m.dataset(head)?.deadlist.expect("there");
        Deadlist::insert(m, dead, &pointer(1, 3, 4))?;
        Bookmark::create_from_snapshot(m, head, snapshot, "m")
    });
    let fbn = |m: MosTx<'_>| -> Result<u64, DslError> {
        let mark = Bookmark::get(m, head, "m")?.expect("there");
        Ok(mark.v2.expect("the second form").freed_before_next[0])
    };
    assert_eq!(world.txg(|m, _| fbn(m)), 4 * 512);
    world.txg(|m, _| {
        let mut counter = FbnCounter::open(m, head)?.expect("it counts");
        for (n, birth) in [(2, 5), (3, 6), (4, 7)] {
            let bp = pointer(n, birth, 1);
            counter.killed(&bp, m.space_of(&bp));
        }
        counter.flush(m)
    });
    assert_eq!(world.txg(|m, _| fbn(m)), 6 * 512, "what was born later is not of the snapshot");
    world.txg(|m, _| {
        assert!(Bookmark::on_snapshot_destroy(m, head, snapshot)?, "the key must stay");
        let mark = Bookmark::get(m, head, "m")?.expect("there");
        assert_eq!(mark.v2.expect("the second form").flags, BOOKMARK_FLAG_HAS_FBN);
        Ok(())
    });
    // Once the snapshot is gone the key goes with the bookmark.
    world.txg(|m, _| {
        let dead = m.dataset(head)?.deadlist.expect("there");
        Deadlist::add_key(m, dead, Txg(6))?;
        Bookmark::destroy(m, head, "m")?;
        assert_eq!(Deadlist::keys(m, dead)?, [Txg(0)]);
        Ok(())
    });
}

// ---- permissions ----------------------------------------------------------------------------

#[test]
fn permissions_are_granted_inherited_and_taken_back() {
    let mut world = World::new();
    let (a, b) = world.txg(|m, _| {
        let (a, _) = make(m, None, "a")?;
        delegation::change::allow(m, a, &Who::User(7), Scope::Local, &["snapshot", "@set", "compression"])?;
        delegation::change::allow(m, a, &Who::CreateTime, Scope::NotApplicable, &["destroy", "@set"])?;
        let (b, _) = make(m, Some(a), "b")?;
        delegation::change::inherit_create_time(m, a, b, Some(1000))?;
        Ok((a, b))
    });
    let allowed = |world: &World, name: &str| {
        let all = dsl(world).dir(name).expect("there").allowed().expect("readable");
        all.into_iter().map(|allow| (allow.who, allow.permissions.join(","))).collect::<Vec<_>>()
    };
    assert_eq!(
        allowed(&world, "tank/a"),
        [
            (Who::CreateTime, "@set,destroy".to_owned()),
            (Who::User(7), "@set,compression,snapshot".to_owned())
        ]
    );
    assert_eq!(allowed(&world, "tank/a/b"), [(Who::User(1000), "@set,destroy".to_owned())]);
    let objects = world.objects();
    world.txg(|m, _| {
        delegation::change::unallow(m, a, &Who::User(7), Scope::Local, Some(&["@set", "snapshot"]))?;
        delegation::change::unallow(m, b, &Who::User(1000), Scope::Local, None)
    });
    assert_eq!(allowed(&world, "tank/a")[1], (Who::User(7), "compression".to_owned()));
    assert_eq!(allowed(&world, "tank/a/b"), []);
    // A list of sets, and a map with two lists.
    assert_eq!(world.objects(), objects - 4);
    let error = world.refused(|m| delegation::change::allow(m, a, &Who::Everyone, Scope::Local, &["nosuch"]));
    assert!(matches!(error, DslError::BadPermission { .. }));
}

// ---- livelists ------------------------------------------------------------------------------

/// The blocks that a livelist still has, and their charge. Checks that its totals agree, and that each freed
/// mark comes after its block.
fn blocks_left(m: MosTx<'_>, id: ObjectId, note: &str) -> Result<BTreeMap<u64, u64>, DslError> {
    let (mut left, mut sum) = (BTreeMap::new(), Space::default());
    for (_, list) in crate::deadlist::Deadlist::lists(m, id)? {
        let mut here = Space::default();
        crate::bpobj::Bpobj::open(&m.view(), list)?.for_each(&mut |bp, freed| {
            let times = left.entry(bp.words()[1]).or_insert(0);
            if freed {
                assert!(*times > 0, "{note}: a mark before its block");
                *times -= 1;
                here = here.minus(m.space_of(bp));
            } else {
                *times += 1;
                here = here.plus(m.space_of(bp));
            }
            Ok(())
        })?;
        assert_eq!(crate::bpobj::Bpobj::open(&m.view(), list)?.space(), here, "{note}");
        sum = sum.plus(here);
    }
    left.retain(|_, times| *times > 0);
    assert_eq!(livelist::space(m, id)?, sum, "{note}");
    Ok(left)
}

/// A livelist is drained a few blocks at a time; at the end of each txg it is whole.
fn drained_in_pieces(seed: u64, piece: u64, write: impl Fn(&mut Rng, &mut LivelistWriter, Txg)) {
    let note = format!("seed {seed}, pieces of {piece}");
    let mut rng = Rng(seed);
    let mut world = World::new();
    let (dir, _) = world.txg(|m, _| make(m, None, "a"));
    world.txg(|m, _| livelist::create(m, dir));
    world.txg(|m, _| {
        let mut writer = LivelistWriter::open(m, dir)?.expect("there");
        write(&mut rng, &mut writer, m.txg());
        writer.flush(m)
    });
    let (id, mut left) = world.txg(|m, _| {
        let id = livelist::take_for_destroy(m, dir)?.expect("there");
        crate::freeing::charge_waiting(m, livelist::space(m, id)?, true)?;
        free_lists::add_deleted_clone(m, id)?;
        Ok((id, blocks_left(m, id, &note)?))
    });
    while !world.txg(|m, brt| {
        let mut budget = free_lists::Budget { blocks: piece };
        let freed = free_lists::background(m, brt, &mut budget)?;
        assert!(freed.refused <= piece, "{note}: {freed:?}");
        if !free_lists::is_pending(m)? {
            assert_eq!(left.values().sum::<u64>(), freed.refused, "{note}");
            assert_eq!(m.dir(m.free_dir()?)?.used, 0, "{note}");
            return Ok(true);
        }
        assert!(budget.is_spent(), "{note}: there is more to do");
        let now = blocks_left(m, id, &note)?;
        assert_eq!(left.values().sum::<u64>(), now.values().sum::<u64>() + freed.refused, "{note}");
        left = now;
        Ok(false)
    }) {}
    assert_eq!(world.features.count("livelist"), 0);
}

#[test]
fn livelists_are_drained_in_pieces() {
    for seed in 1..=4 {
        for piece in [1, 3, 7, 50, 1000] {
            drained_in_pieces(seed, piece, |rng, writer, txg| {
                let mut live = Vec::new();
                for n in 1..=60 + rng.below(60) {
                    let bp = pointer(n % 40, txg.0, 1 + n % 5);
                    if rng.below(5) < 3 || live.is_empty() {
                        writer.born(&bp);
                        live.push(bp);
                    } else {
                        writer.killed(&live.swap_remove(rng.below(live.len() as u64) as usize));
                    }
                }
            });
        }
    }
}

#[test]
fn a_livelist_crowded_with_marks_is_drained() {
    for piece in [1, 20] {
        drained_in_pieces(9, piece, |_, writer, txg| {
            let all: Vec<_> = (1..=90).map(|n| pointer(n, txg.0, 1)).collect();
            all.iter().for_each(|bp| writer.born(bp));
            all.iter().filter(|bp| bp.words()[1] % 3 > 0).for_each(|bp| writer.killed(bp));
        });
    }
}

/// Blocks are born and go in a clone; the livelist's totals follow, and draining frees what is left.
fn livelist_model(seed: u64) {
    let mut rng = Rng(seed);
    let mut world = World::new();
    let objects = world.objects();
    let (dir, _) = world.txg(|m, _| make(m, None, "a"));
    world.txg(|m, _| livelist::create(m, dir));
    let mut live: BTreeMap<u64, BlockPtr> = BTreeMap::new();
    let mut next = 0;
    for _ in 0..20 {
        world.txg(|m, _| {
            let mut writer = LivelistWriter::open(m, dir)?.expect("there");
            for _ in 0..rng.below(40) {
                if rng.below(3) > 0 {
                    next += 1;
                    let bp = pointer(next, m.txg().0, 1 + next % 5);
                    writer.born(&bp);
                    live.insert(next, bp);
                } else if let Some(n) = live.keys().nth(rng.below(live.len().max(1) as u64) as usize).copied()
                {
                    writer.killed(&live.remove(&n).expect("there"));
                }
            }
            // Blocks of the origin, and blocks without space, do not enter the livelist.
            writer.killed(&pointer(1 << 40, 1, 1));
            writer.born(&pointer(1 << 41, m.txg().0, 1).with_prop_bits(39, 1, 1));
            writer.flush(m)?;
            let id = livelist::of(m, dir)?.expect("there");
            let sum = live.values().fold(Space::default(), |sum, bp| sum.plus(m.space_of(bp)));
            assert_eq!(livelist::space(m, id)?, sum, "seed {seed}");
            Ok(())
        });
    }
    assert_eq!(world.features.count("livelist"), 1);
    world.txg(|m, brt| {
        let id = livelist::take_for_destroy(m, dir)?.expect("there");
        let space = livelist::space(m, id)?;
        crate::freeing::charge_waiting(m, space, true)?;
        free_lists::add_deleted_clone(m, id)?;
        // These blocks were never allocated: each that is to be freed is refused.
        let freed = free_lists::background(m, brt, &mut free_lists::Budget::per_txg())?;
        assert_eq!((freed.space, freed.refused), (space, live.len() as u64), "seed {seed}");
        assert!(!free_lists::is_pending(m)?);
        Ok(())
    });
    assert_eq!(world.features.count("livelist"), 0);
    assert!(world.objects() > objects, "the directory is still there");
}

#[test]
fn livelists_hold_what_a_clone_has_written() {
    for seed in 1..=4 {
        livelist_model(seed);
    }
}

#[test]
fn a_livelist_that_is_taken_away_leaves_nothing() {
    let mut world = World::new();
    let (dir, head) = world.txg(|m, _| make(m, None, "a"));
    world.txg(|m, _| zapify::zapify(m, dir));
    let objects = world.objects();
    world.txg(|m, _| livelist::create(m, dir));
    world.txg(|m, _| {
        let mut writer = LivelistWriter::open(m, dir)?.expect("there");
        writer.born(&pointer(1, m.txg().0, 8));
        writer.flush(m)?;
        m.change_dataset(head, |phys| phys.referenced = 40 * 512)?;
        livelist::check_share(m, head)?;
        assert!(livelist::of(m, dir)?.is_some(), "four fifths are shared");
        m.change_dataset(head, |phys| phys.referenced = 32 * 512)?;
        livelist::check_share(m, head)
    });
    assert_eq!((world.objects(), world.features.count("livelist")), (objects, 0));
}

// ---- properties -----------------------------------------------------------------------------

#[test]
fn stored_properties_hide_and_show_received_ones() {
    let mut world = World::new();
    let head = world.txg(|m, _| Ok(make(m, None, "a")?.1));
    let (one, two) = (PropValue::Number(2), PropValue::Number(15));
    let shown = |world: &World| {
        let dsl = dsl(world);
        let head = dsl.dataset("tank/a").expect("there");
        let dir = head.dir().stored_props().expect("readable");
        let keys = ["", "$recvd", "$inherit"].map(|suffix| {
            dir.value(&format!("compression{suffix}")).expect("readable").and_then(|v| v.number())
        });
        keys.map(|number| number.map_or(-1, |n| n as i64))
    };
    let store = |world: &mut World, change: Change<'_>| {
        world.txg(|m, _| prop::change::store(m, head, "compression", &change));
        shown(world)
    };
    assert_eq!(store(&mut world, Change::Local(&one)), [2, -1, -1]);
    assert_eq!(store(&mut world, Change::Inherit), [-1, -1, -1], "nothing was received, nothing to hide");
    assert_eq!(store(&mut world, Change::Received(&two)), [-1, 15, -1]);
    assert_eq!(store(&mut world, Change::Inherit), [-1, 15, 0]);
    assert_eq!(store(&mut world, Change::Local(&one)), [2, 15, -1]);
    assert_eq!(store(&mut world, Change::ToReceived), [-1, 15, -1]);
    assert_eq!(store(&mut world, Change::DropReceived), [-1, -1, -1]);
    let text = PropValue::String("a note".to_owned());
    world.txg(|m, _| prop::change::store(m, head, "com.example:note", &Change::Local(&text)));
    let dsl = dsl(&world);
    let stored =
        dsl.dir("tank/a").expect("there").stored_props().expect("readable").value("com.example:note");
    assert_eq!(stored.expect("readable"), Some(text));
}
