//! The options of an import hold for every later command: an alternate root, a temporary name, read-only,
//! another cache file.

use crate::zpool_support::{World, replay, sums};

#[test]
fn imports_are_remembered_as_by_openzfs() {
    replay(include_str!("transcripts/session.txt"));
}

#[test]
fn a_pool_that_is_only_read_is_not_written() {
    let world = World::new();
    world.good("zpool create tank mirror /img/d/f0 /img/d/f1 spare /img/d/f2");
    world.good("zfs create tank/a");
    world.good("zpool export tank");
    world.good("zpool import -d /img/d -o readonly=on tank");
    let before = sums(world.images());
    for line in [
        "zpool set comment=x tank",
        "zpool set failmode=continue tank",
        "zpool add -f tank /img/d/f3",
        "zpool sync tank",
        "zfs create tank/b",
        "zfs set compression=off tank/a",
        "zfs snapshot tank@s",
        "zfs destroy tank/a",
        "cp -d /img/d /etc/passwd tank/a:/",
        "mkdir -d /img/d tank/a:/d",
    ] {
        let (text, code) = world.run(line);
        assert!(text.contains("read-only") && code != 0, "{line}: {text}");
    }
    world.good("zpool export tank");
    assert!(sums(world.images()) == before, "its devices have changed");
}

#[test]
fn the_usual_cache_file_has_nothing_of_ours() {
    let world = World::new();
    world.good("zpool create -R /nowhere -o cachefile= tank /img/d/f0");
    let Some(text) = world.zdb_of_cache() else { return testkit::skip("zdb is not installed") };
    assert!(text.contains("tank:") && !text.contains("nowhere") && !text.contains("cenote_import"), "{text}");
    let (text, _) = world.run("zpool get -H -o value altroot,cachefile tank");
    assert_eq!(text, "/nowhere\n-\n");
}

#[test]
fn a_checkpoint_is_shown_as_long_as_the_pool_is_imported_so() {
    let fixture = testkit::Fixture::open("checkpoint");
    let copy = fixture.scratch();
    let mut world = World::new();
    world.use_images(copy.dir());
    let pool = &fixture.manifest().pool;
    let before = sums(copy.dir());
    let rewind = format!("zpool import -f -d /img/d --rewind-to-checkpoint {pool}");
    world.good(&format!("{rewind} -o readonly=on"));
    assert_eq!(world.run(&format!("zpool get -H -o value readonly,checkpoint {pool}")).0, "on\n-\n");
    let list = format!("zfs list -H -o name,creation -t all -r {pool}");
    let (then, _) = world.run(&list);
    world.good(&format!("zpool export {pool}"));
    world.good(&format!("zpool import -f -d /img/d -o readonly=on {pool}"));
    let (now, _) = world.run(&list);
    assert!(then != now && then.starts_with(pool) && now.starts_with(pool), "{then}\n{now}");
    world.good(&format!("zpool export {pool}"));
    assert!(sums(copy.dir()) == before, "its devices have changed");
}
