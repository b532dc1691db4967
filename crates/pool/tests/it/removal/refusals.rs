//! What cannot be removed, and that nothing is changed then.

use super::world::World;
use cenote_pool::space::Class;
use cenote_pool::{Layout, RemoveRefusal};
use format::VdevGuid;

#[test]
fn what_cannot_go_stays_as_it_is() {
    let single = (Layout::Single, 1, Class::Normal);
    let mut world = World::new(&[single, single], 7);
    assert!(matches!(world.pool.remove_device(VdevGuid(1)), Err(RemoveRefusal::NoDevice)));
    assert!(matches!(world.pool.cancel_removal(), Err(RemoveRefusal::NotRunning)));
    world.pool.remove_device(world.guid(0)).unwrap();
    assert!(matches!(world.pool.remove_device(world.guid(1)), Err(RemoveRefusal::Running)));
    world.pool.remove_to_end().unwrap();
    assert!(matches!(world.pool.remove_device(world.guid(1)), Err(RemoveRefusal::NoSpace)));
    assert!(matches!(world.pool.remove_device(world.guid(0)), Err(RemoveRefusal::NoDevice)));
    world.churn(3);
    world.reopen(false);

    let raidz = World::new(&[single, (Layout::Raidz(1), 3, Class::Normal)], 8);
    for top in [0, 1] {
        let before = raidz.pool.config().vdev_tree;
        assert!(matches!(raidz.pool.remove_device(raidz.guid(top)), Err(RemoveRefusal::Layout)));
        assert_eq!(raidz.pool.config().vdev_tree, before);
    }
    let leaf = raidz.pool.config().vdev_tree.children[1].children[0].guid;
    assert!(matches!(raidz.pool.remove_device(leaf), Err(RemoveRefusal::NotTop)));
}
