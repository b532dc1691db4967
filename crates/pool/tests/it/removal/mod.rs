//! Removal of vdevs: pools that are emptied step by step while they change, exported and opened again at every
//! step, compared with a model and judged by `zdb`. Condensing is in `full`.

mod fixtures;
mod refusals;
pub(crate) mod world;

use self::world::{HEAD, World};
use cenote_pool::space::Class;
use cenote_pool::{Layout, NewSide, Purpose};
use dsl::Cost;
use format::ObjectId;

#[test]
fn a_vdev_is_emptied_while_the_pool_changes() {
    let single = (Layout::Single, 1, Class::Normal);
    let mut world = World::new(&[single, single, single], 1);
    (0..40).for_each(|_| world.write(40));
    world.churn(40);
    world.snapshot("old");
    world.churn(20);
    world.pool.remove_device(world.guid(0)).unwrap();
    let mut steps = 0;
    loop {
        world.churn(3);
        let is_going_on = world.pool.remove_step(1 << 20).unwrap();
        steps += 1;
        if steps == 4 {
            world.destroy("old");
        }
        world = world.reopen(steps % 2 == 0);
        if !is_going_on {
            break;
        }
    }
    assert!(steps > 4, "{steps}");
    world.churn(30);
    world = world.reopen(false);
    // A second removal, onto the last vdev, of what the first has moved.
    let second = world.guid(1);
    world.pool.remove_device(second).unwrap();
    world.pool.remove_step(1 << 20).unwrap();
    world = world.reopen(true);
    world.pool.remove_to_end().unwrap();
    world.churn(20);
    world = world.reopen(false);
    let objects: Vec<ObjectId> = world.model.keys().copied().collect();
    let head = world.pool.heads().open_by_name(HEAD).unwrap();
    let tx = head.begin(Cost::freeing()).unwrap();
    objects.into_iter().for_each(|id| head.set.free(id, &tx).unwrap());
    drop((tx, head));
    world.model.clear();
    world.pool.sync().unwrap();
    world.reopen(false);
}

#[test]
fn a_mirror_and_a_special_mirror_leave() {
    let mirror = |class| (Layout::Mirror, 2, class);
    let tops = [mirror(Class::Normal), mirror(Class::Normal), mirror(Class::Special)];
    let mut world = World::new(&tops, 2);
    (0..20).for_each(|_| world.write(40));
    world.churn(20);
    for top in [2, 0] {
        let guid = world.guid(top);
        world.pool.remove_device(guid).unwrap();
        world.churn(5);
        world.pool.remove_to_end().unwrap();
        world = world.reopen(top == 2);
    }
    world.churn(10);
    world.pool.start_scrub(false).unwrap();
    world.pool.scan_to_end().unwrap();
    assert_eq!(world.pool.tree().repaired_bytes(), 0);
    world.reopen(false);
}

/// The sides of the mirror that leaves are wrong in different places, and nobody has looked.
#[test]
fn what_only_one_side_has_is_not_lost() {
    let mirror = (Layout::Mirror, 2, Class::Normal);
    let mut world = World::new(&[mirror, mirror], 6);
    (0..30).for_each(|_| world.write(40));
    world.pool.sync().unwrap();
    world.files.damage(0, 24 << 20..26 << 20);
    world.files.damage(1, 39 << 20..41 << 20);
    world.pool.remove_device(world.guid(0)).unwrap();
    world.pool.remove_to_end().unwrap();
    world = world.reopen(false);
    world.pool.start_scrub(false).unwrap();
    world.pool.scan_to_end().unwrap();
    assert_eq!(world.pool.view().unwrap().scan().unwrap().unwrap().errors, 0);
    let repaired = world.pool.tree().repaired_bytes();
    assert!(repaired > 256 << 10, "{repaired} bytes repaired");
    world = world.reopen(false);
    world.pool.start_scrub(false).unwrap();
    world.pool.scan_to_end().unwrap();
    assert_eq!(world.pool.tree().repaired_bytes(), 0);
}

#[test]
fn a_canceled_removal_leaves_no_trace() {
    let single = (Layout::Single, 1, Class::Normal);
    let mut world = World::new(&[single, single], 3);
    (0..40).for_each(|_| world.write(40));
    // Before that nothing is on the vdev.
    world.pool.sync().unwrap();
    let guid = world.guid(0);
    world.pool.remove_device(guid).unwrap();
    assert!(world.pool.remove_step(2 << 20).unwrap(), "{:?}", world.pool.view().unwrap().removal());
    world.churn(20);
    world = world.reopen(true);
    assert!(world.pool.remove_step(1 << 20).unwrap(), "{:?}", world.pool.view().unwrap().removal());
    world.churn(10);
    world.pool.cancel_removal().unwrap();
    world.churn(10);
    world = world.reopen(false);
    assert!(!world.pool.features().is_active("device_removal"));
    assert!(!world.pool.features().is_active("obsolete_counts"));
    let top = &world.pool.config().vdev_tree.children[0];
    assert!(!top.removing && !top.non_allocating);
    // Then once more, to the end.
    world.pool.remove_device(guid).unwrap();
    world.pool.remove_to_end().unwrap();
    world.churn(10);
    world.reopen(false);
}

#[test]
fn a_mirrored_log_becomes_a_hole() {
    let tops = [(Layout::Single, 1, Class::Normal), (Layout::Mirror, 2, Class::Log)];
    let mut world = World::new(&tops, 4);
    let head = world.pool.heads().open_by_name(HEAD).unwrap();
    for _ in 0..5 {
        world.write(2);
        let tx = head.begin(Cost::metadata()).unwrap();
        let time =
            dmu::log::Pending::Body(format::zil::Body::Remove { dir: ObjectId(1), name: b"gone".to_vec() });
        head.log.push(&tx, time);
        drop(tx);
        head.log.commit(None).unwrap();
    }
    let log = format::VdevId(1);
    assert!(world.pool.allocator().vdev_totals(log).allocated > 0);
    world.pool.remove_device(world.guid(1)).unwrap();
    assert_eq!(world.pool.config().hole_array, [log]);
    drop(head);
    world.churn(5);
    world = world.reopen(false);
    world.churn(5);
    world.reopen(true);
}

/// A device that was attached has copies of blocks, and anything between them.
#[test]
fn sides_that_differ_where_nothing_is_in_use_are_one_version() {
    let mut world = World::new(&[(Layout::Single, 1, Class::Normal)], 9);
    let (side, target) = (world.files.extra(256 << 20), world.files.extra(256 << 20));
    (0..200).for_each(|_| world.write(1));
    world.pool.sync().unwrap();
    for _ in 0..20 {
        (0..10).for_each(|_| world.change());
        world.pool.sync().unwrap();
    }
    let leaf = world.guid(0);
    world.pool.attach(leaf, NewSide::Device(side.leaves[0].clone()), Purpose::Mirror).unwrap();
    world.pool.work_to_end().unwrap();
    world.pool.add(vec![target]).unwrap();
    world.pool.remove_device(world.guid(0)).unwrap();
    world.pool.remove_to_end().unwrap();
    world = world.reopen(false);
    assert!(world.pool.view().unwrap().removal().unwrap().is_some_and(|phys| phys.copied == phys.to_copy));
    world.reopen(true);
}
