//! A refused command leaves the devices of its pool unchanged.

use crate::zpool_support::{World, sums};
use std::time::SystemTime;

/// Commands that are refused because of wrong usage, because of the state of the pool, or half-way.
const REFUSED: [&str; 61] = [
    "zpool set nosuch=1 tank",
    "zpool set size=1 tank",
    "zpool set ashift=99 tank",
    "zpool set bootfs=tank/nosuch tank",
    "zpool set bootfs=other/x tank",
    "zpool set feature@nosuch=enabled tank",
    "zpool set feature@async_destroy=disabled tank",
    "zpool set altroot=/x tank",
    "zpool set version=28 tank",
    "zpool set comment=01234567890123456789012345678901x tank",
    "zpool set cachefile=relative tank",
    "zpool set nosuch=1 tank mirror-0",
    "zpool set checksum_n=abc tank mirror-0",
    "zpool set allocating=off tank mirror-0",
    "zpool set allocating=on tank /img/d/f0",
    "zpool set comment=x tank nosuch",
    "zpool add tank /img/d/f4",
    "zpool add tank mirror /img/d/f0 /img/d/f4",
    "zpool add -o ashift=12 tank mirror /img/d/f4 /img/d/f5",
    "zpool add tank mirror /img/d/tiny /img/d/small",
    "zpool add tank nosuch",
    "zpool create -f tank /img/d/f0",
    "zpool create -f other /img/d/f1",
    "zpool create tank /img/d/f4",
    "zpool labelclear /img/d/f0",
    "zpool import -d /img/d tank",
    "zpool import -d /img/d gone -o bootfs=x",
    "zpool import -d /img/d -o comment=01234567890123456789012345678901x gone",
    "zpool import -d /img/d -o feature@nosuch=enabled gone",
    "zpool import -d /img/d gone tank",
    "zpool import -d /img/d gone raidz",
    "zpool upgrade -V 99 tank",
    "zpool export nosuch",
    "zpool destroy nosuch",
    "zfs create tank",
    "zfs create tank/a",
    "zfs create tank/a/no/parent",
    "zfs create -V 1T tank/big",
    "zfs create -o quota=1 tank/q",
    "zfs create -o nosuch=1 tank/q",
    "zfs create -o refreservation=1T tank/q",
    "zfs set quota=1K tank/a",
    "zfs set reservation=1T tank/a",
    "zfs set compression=nosuch tank/a",
    "zfs set volsize=0 tank/v",
    "zfs set recordsize=3 tank/a",
    "zfs snapshot tank/a@s",
    "zfs snapshot tank/nosuch@s",
    "zfs destroy tank/a",
    "zfs destroy tank",
    "zfs destroy tank/a@nosuch",
    "zfs rename tank/a tank/v",
    "zfs rename tank/a tank/a/b",
    "zfs rollback tank/a@s",
    "zfs promote tank/a",
    "zfs clone tank/a@s tank/v",
    "zfs hold k tank/a@s",
    "zfs bookmark tank/a@nosuch tank/a#b",
    "zfs send tank/a@nosuch",
    "zfs send -i @t tank/a@s",
    "zfs send -p tank/a",
];

/// Time of the last write to each device.
fn written(world: &World) -> Vec<SystemTime> {
    let time =
        |i: u32| std::fs::metadata(world.images().join(format!("f{i}"))).and_then(|meta| meta.modified());
    (0..8).map(|i| time(i).expect("a time")).collect()
}

#[test]
fn a_refused_command_writes_nothing() {
    let world = World::new();
    world.good("zpool create gone /img/d/f7");
    world.good("zpool export gone");
    world.good("zpool create tank mirror /img/d/f0 /img/d/f1 log /img/d/f2 spare /img/d/f3");
    for line in [
        "zfs create tank/a",
        "zfs create -V 10M tank/v",
        "zfs snapshot tank/a@s",
        "zfs snapshot tank/a@t",
        "zfs hold k tank/a@s",
        "zfs clone tank/a@s tank/c",
    ] {
        world.good(line);
    }
    let (before, since) = (sums(world.images()), written(&world));
    for line in REFUSED {
        let (text, code) = world.run(line);
        assert!(code != 0 && !text.is_empty(), "{line}: {text}");
        assert!(written(&world) == since, "{line}: the devices have changed\n{text}");
    }
    assert!(sums(world.images()) == before, "the devices have changed");
    world.good("zfs release k tank/a@s");
    assert!(written(&world) != since, "what is not refused is written");
    world.judge("tank");
}
