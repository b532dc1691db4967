//! `zpool` verbs that change pools, compared with the output of OpenZFS for the same commands; `zdb` checks
//! the pools.

use crate::zpool_support::{World, replay, squeezed, sums};

#[test]
fn layouts_are_accepted_and_refused_as_by_openzfs() {
    replay(include_str!("transcripts/create-layouts.txt"));
}

#[test]
fn what_would_be_added_is_shown_as_by_openzfs() {
    replay(include_str!("transcripts/add-dry-run.txt"));
}

#[test]
fn wrong_creations_are_refused_as_by_openzfs() {
    replay(include_str!("transcripts/create-refused.txt"));
}

#[test]
fn pools_live_as_those_of_openzfs() {
    replay(include_str!("transcripts/life.txt"));
}

#[test]
fn checkpoints_are_kept_and_gone_back_to_as_by_openzfs() {
    replay(include_str!("transcripts/checkpoint.txt"));
}

#[test]
fn devices_are_attached_detached_and_replaced_as_by_openzfs() {
    replay(include_str!("transcripts/replacing.txt"));
}

#[test]
fn properties_are_set_as_by_openzfs() {
    replay(include_str!("transcripts/set.txt"));
}

#[test]
fn properties_of_vdevs_are_set_as_by_openzfs() {
    replay(include_str!("transcripts/set-vdev.txt"));
}

#[test]
fn pools_that_are_read_only_are_not_changed_as_by_openzfs() {
    replay(include_str!("transcripts/read-only.txt"));
}

#[test]
fn what_fails_half_way_is_told_as_by_openzfs() {
    replay(include_str!("transcripts/several.txt"));
}

/// The properties are stored where `zdb` finds them, and the pool is consistent.
#[test]
fn properties_of_vdevs_are_stored_as_by_openzfs() {
    let world = World::new();
    world.good("zpool create tank mirror /img/d/f0 /img/d/f1");
    for (prop, vdev) in [
        ("comment=of_the_root", "root-0"),
        ("x:y=of_the_top", "mirror-0"),
        ("io_n=55", "mirror-0"),
        ("comment=of_the_leaf", "/img/d/f0"),
        ("checksum_t=none", "/img/d/f0"),
    ] {
        world.good(&format!("zpool set {prop} tank {vdev}"));
    }
    let (text, code) = world.run("zpool set allocating=off tank mirror-0");
    assert!(
        text.ends_with("changing 'allocating' is not supported by this version of Cenote\n") && code == 1
    );
    let (history, _) = world.run("zpool history -i tank");
    let noted = |text: &str| {
        history.lines().any(|line| line.contains(" vdev set vdev_guid=") && line.ends_with(text))
    };
    assert!(noted(": x:y=of_the_top") && noted(": checksum_t=-1"), "{history}");
    let Some((text, _)) = world.zdb("-dddd", "tank") else { return testkit::skip("zdb is not installed") };
    for entry in ["comment = of_the_root", "x:y = of_the_top", "io_n = 55", "comment = of_the_leaf"] {
        assert!(text.contains(entry), "{entry}: {text}");
    }
    world.judge("tank");
}

#[test]
fn pools_of_every_layout_are_sound() {
    let layouts = [
        ("", "/img/d/f0"),
        ("", "/img/d/f0 /img/d/f1"),
        ("", "mirror /img/d/f0 /img/d/f1"),
        ("", "mirror /img/d/f0 /img/d/f1 mirror /img/d/f2 /img/d/f3"),
        ("", "raidz /img/d/f0 /img/d/f1 /img/d/f2"),
        ("", "raidz2 /img/d/f0 /img/d/f1 /img/d/f2 /img/d/f3"),
        ("", "raidz3 /img/d/f0 /img/d/f1 /img/d/f2 /img/d/f3 /img/d/f4"),
        ("", "mirror /img/d/f0 /img/d/f1 log /img/d/f2"),
        ("", "/img/d/f0 special mirror /img/d/f2 /img/d/f3 log mirror /img/d/f4 /img/d/f5 dedup /img/d/f6"),
        ("-o ashift=12 ", "raidz1 /img/d/f0 /img/d/f1 /img/d/f2"),
        ("-d ", "/img/d/f0"),
        ("-O compression=zstd-5 -O casesensitivity=insensitive -o autoexpand=on ", "/img/d/f0"),
    ];
    // zdb takes long, and waits most of the time.
    std::thread::scope(|scope| {
        for part in layouts.chunks(3) {
            scope.spawn(move || part.iter().for_each(|(options, vdevs)| check_layout(options, vdevs)));
        }
    });
}

fn check_layout(options: &str, vdevs: &str) {
    let world = World::new();
    let line = format!("zpool create -f {options}tank {vdevs}");
    world.good(&line);
    world.judge("tank");
    let (history, _) = world.run("zpool history tank");
    assert!(history.contains(&line), "{history}");
    world.good("zpool destroy tank");
}

#[test]
fn a_pool_that_grows_stays_sound() {
    let world = World::new();
    world.good("zpool create tank mirror /img/d/f0 /img/d/f1");
    world.good("zpool add tank mirror /img/d/f2 /img/d/f3");
    world.good("zpool add tank log /img/d/f4");
    world.good("zpool add -f tank special mirror /img/d/f5 /img/d/f6");
    world.good("zpool set autotrim=on tank");
    world.judge("tank");
    world.good("zpool export tank");
    let import = "zpool import -d /img/d -o comment=moved tank lake";
    world.good(import);
    world.judge("lake");
    let (status, _) = world.run("zpool list -v -H -o name,health lake");
    assert_eq!(status.lines().count(), 13, "{status}");
    let (upgraded, code) = world.run("zpool upgrade -a");
    assert!(code == 0 && upgraded.contains("already has all supported"), "{upgraded}");
}

#[test]
fn a_spare_is_shared_by_pools() {
    let world = World::new();
    world.good("zpool create tank mirror /img/d/f0 /img/d/f1 spare /img/d/f2");
    world.good("zpool create lake /img/d/f3 spare /img/d/f2");
    world.good("zpool create pond /img/d/f4");
    world.good("zpool add pond spare /img/d/f2");
    let (text, code) = world.run("zpool add pond spare /img/d/f2");
    assert!(code == 1 && text.contains("already"), "{text}");
    let shows = |pool: &str| {
        let (text, _) = world.run(&format!("zpool status {pool}"));
        assert!(squeezed(&text).contains(&"\t  /img/d/f2 AVAIL".to_owned()), "{text}");
    };
    ["tank", "lake", "pond"].into_iter().for_each(shows);
    for pool in ["tank", "lake"] {
        world.good(&format!("zpool export {pool}"));
        world.good(&format!("zpool import -d /img/d {pool}"));
    }
    world.judge("lake");
}

#[test]
fn spares_and_cache_devices() {
    let world = World::new();
    world.good("zpool create tank mirror /img/d/f0 /img/d/f1 spare /img/d/f2");
    world.good("zpool add tank cache /img/d/f3");
    let (text, _) = world.run("zpool status tank");
    let tail: Vec<String> =
        squeezed(&text).into_iter().skip_while(|line| !line.contains("cache")).take(4).collect();
    assert_eq!(tail, ["\tcache", "\t  /img/d/f3 ONLINE 0 0 0", "\tspares", "\t  /img/d/f2 AVAIL"], "{text}");
    let (text, code) = world.run("zpool create -f y /img/d/f2");
    let expected = "invalid vdev specification\nthe following errors must be manually repaired:\n\
        /img/d/f2 is reserved as a hot spare for pool tank\n";
    assert_eq!((text.as_str(), code), (expected, 1));
    let (text, _) = world.run("zpool create y /img/d/f3");
    assert!(text.ends_with("/img/d/f3 is part of unknown pool 'tank'\n"), "{text}");
    world.judge("tank");
    world.good("zpool export tank");
    world.good("zpool create -f y /img/d/f2");
}

#[test]
fn guids_and_names_of_pools_are_read_as_by_openzfs() {
    let world = World::new();
    world.good("zpool create tank /img/d/f0");
    for (given, guid) in [("-1", "18446744073709551615"), ("0123", "123"), ("+7", "7")] {
        world.good(&format!("zpool reguid -g {given} tank"));
        assert_eq!(world.run("zpool get -H -o value guid tank"), (format!("{guid}\n"), 0));
    }
    let refused = "cannot reguid 'tank': invalid argument for this pool operation\n";
    assert_eq!(world.run("zpool reguid -g 0 tank"), (refused.to_owned(), 255));
    let (text, code) = world.run("zpool reguid -g 0x10 tank");
    assert!(text.starts_with("invalid GUID: 0x10\nusage:\n") && code == 2, "{text}");
    world.judge("tank");
    for options in ["", "-v ", "-H ", "-f ", "-vHf "] {
        for name in ["/tmp/", "tank/fs", "tank@snap", "tank#bm", "-"] {
            let (text, code) = world.run(&format!("zpool events {options}{name}"));
            let expected = format!("invalid pool name '{name}'\nusage:\n\tevents [-vHf [pool] | -c]\n");
            assert_eq!((text, code), (expected, 2));
        }
    }
    let (text, code) = world.run("zpool events nosuch");
    assert!(text.starts_with("TIME ") && code == 0, "{text}");
}

#[test]
fn labels_of_an_imported_pool_are_not_cleared() {
    let world = World::new();
    world.good("zpool create tank mirror /img/d/f0 /img/d/f1 log /img/d/f2 cache /img/d/f3 spare /img/d/f4");
    let before = sums(world.images());
    for (device, role) in
        [("f0", "ACTIVE"), ("f1", "ACTIVE"), ("f2", "ACTIVE"), ("f3", "L2CACHE"), ("f4", "SPARE")]
    {
        for force in ["", "-f "] {
            let (text, code) = world.run(&format!("zpool labelclear {force}/img/d/{device}"));
            let expected = format!("/img/d/{device} is a member ({role}) of pool \"tank\"\n");
            assert_eq!((text, code), (expected, 1), "{force}{device}");
        }
    }
    assert!(sums(world.images()) == before, "its devices have changed");
    let (text, _) = world.run("zpool labelclear -f /dev/null");
    assert_eq!(text, "failed to read label from /dev/null\n");
    world.judge("tank");
    // A pool that can no longer be opened blocks no command.
    for lost in ["f0", "f1"] {
        std::fs::remove_file(world.images().join(lost)).expect("there");
    }
    world.good("zpool labelclear -f /img/d/f2");
}

#[test]
fn a_lost_log_device_is_given_up_only_on_demand() {
    let world = World::with_whole_paths();
    world.good("zpool create tank mirror /img/d/f0 /img/d/f1 log /img/d/f2");
    world.good("zpool export tank");
    std::fs::remove_file(world.images().join("f2")).expect("there");
    let (text, code) = world.run("zpool import -d /img/d tank");
    let expected = "cannot import 'tank': one or more devices is currently unavailable\n\
        The devices below are missing or corrupted, use '-m' to import the pool anyway:\n\
        \t    /img/d/f2 [log]\n\n";
    assert_eq!((text.as_str(), code), (expected, 1));
    let (text, _) = world.run("zpool import -d /img/d");
    assert!(text.contains("\n state: DEGRADED\n") && text.contains("/msg/ZFS-8000-2Q\n"), "{text}");
    world.good("zpool import -m -d /img/d tank");
    let (text, _) = world.run("zpool status tank");
    assert!(text.contains("\n state: DEGRADED\n") && text.contains("/msg/ZFS-8000-2Q\n"), "{text}");
    world.good("zpool set comment=x tank");
    let (text, _) = world.run("zpool get -H -o value comment tank");
    assert_eq!(text, "x\n");
    world.good("zpool export tank");
}

#[test]
fn a_lost_mirror_of_logs_is_named() {
    let world = World::new();
    world.good("zpool create tank /img/d/f0 log mirror /img/d/f1 /img/d/f2");
    world.good("zpool export tank");
    for lost in ["f1", "f2"] {
        std::fs::remove_file(world.images().join(lost)).expect("there");
    }
    let (text, code) = world.run("zpool import -d /img/d tank");
    assert!(code == 1 && text.contains("\n\t    mirror-1 [log]\n\n"), "{text}");
}

#[test]
fn too_few_devices_are_no_pool() {
    let world = World::with_whole_paths();
    world.good("zpool create tank raidz /img/d/f0 /img/d/f1 /img/d/f2");
    world.good("zpool export tank");
    std::fs::remove_file(world.images().join("f2")).expect("there");
    world.good("zpool import -d /img/d tank");
    world.good("zpool set comment=degraded tank");
    world.judge("tank");
    world.good("zpool export tank");
    std::fs::remove_file(world.images().join("f1")).expect("there");
    let (text, code) = world.run("zpool import -d /img/d tank");
    let expected = "cannot import 'tank': one or more devices is currently unavailable\n\
        The devices below are missing or corrupted, the pool can be imported when they are back:\n\
        \t    raidz1-0 (/img/d/f1: cannot open, /img/d/f2: cannot open)\n";
    assert_eq!((text.as_str(), code), (expected, 1));
}

#[test]
fn features_are_enabled_later() {
    let world = World::new();
    world.good("zpool create -d tank /img/d/f0");
    let (text, code) = world.run("zpool upgrade tank");
    assert!(
        code == 0 && text.contains("Enabled the following features on 'tank':\n  async_destroy\n"),
        "{text}"
    );
    assert!(text.ends_with("  large_microzap\n\n"), "{text}");
    world.judge("tank");
    let (states, _) = world.run("zpool get -H -o value feature@lz4_compress,feature@blake3 tank");
    assert_eq!(states, "active\nenabled\n");
}

#[test]
fn pools_of_openzfs_are_imported_changed_and_exported() {
    for name in ["mirror", "raidz2", "zil-slog", "crash-nolog", "checkpoint", "removed-vdev", "spare-in-use"]
    {
        let fixture = testkit::Fixture::open(name);
        let copy = fixture.scratch();
        let mut world = World::new();
        world.use_images(copy.dir());
        let pool = &fixture.manifest().pool;
        world.good(&format!("zpool import -f -d /img/d -o comment=here {pool}"));
        world.good(&format!("zpool set autoexpand=on {pool}"));
        let (comment, _) = world.run(&format!("zpool get -H -o value comment {pool}"));
        assert_eq!(comment, "here\n");
        world.good(&format!("zpool export {pool}"));
        world.judge(pool);
    }
}

#[test]
fn pools_that_can_only_be_read_are_refused_by_name() {
    for (name, why) in [
        ("draid1", "dRAID"),
        ("version10", "version 10"),
        ("zil-encrypted", "is encrypted, and has an intent log"),
        ("dedup-fast", "it has dedup tables"),
        ("dedup-legacy", "it has dedup tables"),
    ] {
        let fixture = testkit::Fixture::open(name);
        let copy = fixture.scratch();
        let mut world = World::new();
        world.use_images(copy.dir());
        let before = sums(copy.dir());
        let pool = &fixture.manifest().pool;
        let (text, code) = world.run(&format!("zpool import -f -d /img/d {pool}"));
        let hint = "This version of Cenote can only read it: use 'zpool import -o readonly=on' to import the pool.\n";
        let is_told = text.starts_with(&format!("cannot import '{pool}': ")) && text.ends_with(hint);
        assert!(is_told && text.contains(why) && code == 1, "{name}: {text}");
        world.good(&format!("zpool import -f -d /img/d -o readonly=on {pool}"));
        let (listed, _) = world.run(&format!("zpool list -H -o name {pool}"));
        assert_eq!(listed, format!("{pool}\n"));
        let (text, code) = world.run(&format!("zpool set comment=x {pool}"));
        let start = format!("cannot set property for '{pool}': pool is read-only");
        assert!(text.starts_with(&start) && code == 1, "{name}: {text}");
        let (text, code) = world.run(&format!("zfs create {pool}/new"));
        let start = format!("cannot create '{pool}/new': pool is read-only");
        assert!(text.starts_with(&start) && code == 1, "{name}: {text}");
        let (text, code) = world.run(&format!("cp -d /img/d /etc/passwd {pool}:/"));
        assert!(text.contains("pool is read-only") && code == 1, "{name}: {text}");
        let (listed, code) = world.run(&format!("zfs list -H -o name {pool}"));
        assert_eq!((listed, code), (format!("{pool}\n"), 0));
        world.good(&format!("zpool export {pool}"));
        assert!(sums(copy.dir()) == before, "{name}: its devices have changed");
    }
}

#[test]
fn each_import_draws_a_load_guid() {
    let world = World::new();
    world.good("zpool create -O mountpoint=none tank /img/d/f0");
    let drawn = |world: &World| world.run("zpool get -H -o value load_guid tank").0.trim().parse::<u64>();
    let (one, two) = (drawn(&world).expect("a number"), drawn(&world).expect("a number"));
    // Without a daemon each command imports the pool.
    assert_ne!(one, two);
}
