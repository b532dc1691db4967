//! A daemon with devices that accept no writes for a while, whose files are removed, changed or returned, and
//! that other programs want.
// Tests do not run for a client, so they may use the process's own streams.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]
// Tests use `std` to make and damage files.
#![allow(clippy::disallowed_types, missing_docs)]

use crate::daemon_support::Ran;
use crate::daemon_support::folder::Folder;
use rustix::fs::{Mode, OFlags};
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const IMAGE: u64 = 96 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

/// A folder with images, some of them behind loop devices, and with a daemon of its own.
struct World {
    folder: tempfile::TempDir,
    loops: Vec<PathBuf>,
}

impl Folder for World {
    fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl World {
    fn new() -> World {
        World { folder: tempfile::tempdir().expect("a folder"), loops: Vec::new() }
    }

    /// Makes a world with this many loop devices. `None`: there are none here, which was reported.
    fn with_loops(count: usize) -> Option<World> {
        if !testkit::need_root() || !testkit::need_file("/dev/loop-control") {
            return None;
        }
        let losetup = testkit::need_tool("losetup")?;
        let mut world = World::new();
        for n in 0..count {
            let image = world.image(&format!("image{n}"));
            let made = Command::new(&losetup).args(["-f", "--show"]).arg(image).output().expect("it starts");
            if !made.status.success() {
                testkit::skip("no loop devices");
                return None;
            }
            world.loops.push(String::from_utf8_lossy(&made.stdout).trim().into());
        }
        Some(world)
    }

    fn image(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::File::create(&path).expect("made").set_len(IMAGE).expect("sparse");
        path
    }

    /// Makes a file of this many MiB that does not compress; returns its contents.
    fn noise(&self, name: &str, mib: usize) -> Vec<u8> {
        let mut noise = vec![0; mib << 20];
        fs::File::open("/dev/urandom").expect("there").read_exact(&mut noise).expect("read");
        fs::write(self.path(name), &noise).expect("written");
        noise
    }

    /// [`World::good`] with a time limit, because a suspended pool would delay the command for good.
    fn good_in_time(&self, words: &str) {
        let mut child = self.command(words);
        let mut child = child.stdout(Stdio::null()).spawn().expect("it starts");
        assert_eq!(self.code_in_time(&mut child, words), Some(0), "{words}\n{}", self.log());
    }

    /// Exit code of a process, which is killed after a time limit.
    fn code_in_time(&self, child: &mut Child, what: &str) -> Option<i32> {
        let begun = Instant::now();
        loop {
            if let Some(status) = child.try_wait().expect("a child") {
                return status.code();
            }
            if begun.elapsed() > PATIENCE {
                let _ = child.kill();
                panic!("{what} does not end\n{}", self.log());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Contents of a file of the pool, which is not mounted.
    fn content(&self, name: &str) -> Vec<u8> {
        let ran = self.command(&format!("cat tank:/{name}")).output().expect("it starts");
        assert!(ran.status.success(), "{name}: {}", String::from_utf8_lossy(&ran.stderr));
        ran.stdout
    }

    /// All loop devices, as words of a command.
    fn devices(&self, before_each: &str) -> String {
        let words = self.loops.iter().map(|path| format!("{before_each} {}", path.display()));
        words.collect::<Vec<_>>().join(" ")
    }

    fn wait_until(&self, what: &str, holds: impl Fn() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < PATIENCE, "{what} is waited for\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.command("daemon --stop").output();
        for path in &self.loops {
            let _ = Command::new("losetup").arg("-d").arg(path).status();
        }
    }
}

/// Makes the devices accept writes, or refuse them.
fn set_writable(world: &World, how: &str) {
    let done = Command::new("blockdev").arg(how).args(&world.loops).status();
    assert!(done.expect("blockdev starts").success());
}

/// Makes all devices refuse writes while a program writes and syncs, then accept them again. Returns how the
/// program ended, and the data that it was to write.
fn outage(layout: &str, failmode: &str) -> Option<(World, Option<i32>, Vec<u8>)> {
    if !testkit::need_file("/dev/fuse") || testkit::need_tool("blockdev").is_none() {
        return None;
    }
    let world = World::with_loops(2)?;
    let devices = world.devices("");
    world.good(&format!("zpool create -f -m ~/m -o failmode={failmode} tank {layout} {devices}"));
    let mut kept = fs::File::create(world.path("m/kept")).expect("made");
    kept.write_all(b"kept").and_then(|()| kept.sync_all()).expect("durable");
    let noise = world.noise("noise", 4);
    set_writable(&world, "--setro");
    let mut writer = Command::new("dd");
    writer.arg("if=noise").arg("of=m/new").args(["bs=64k", "conv=fsync"]).stderr(Stdio::null());
    let mut writer = writer.current_dir(world.folder.path()).spawn().expect("it starts");
    world.wait_until("the end of the pool", || world.log().contains("the pool is suspended"));
    assert_eq!(world.good("zpool list -H -o health tank"), "SUSPENDED\n");
    if failmode == "wait" {
        assert!(writer.try_wait().expect("a child").is_none(), "nothing is durable that it could be told of");
    } else {
        // With failmode=continue the writer gets an error and does not wait.
        assert_eq!(world.code_in_time(&mut writer, "the writer"), Some(1), "it is told");
    }
    set_writable(&world, "--setrw");
    world.good_in_time("zpool clear tank");
    assert_eq!(world.good("zpool list -H -o health tank"), "ONLINE\n");
    let code = world.code_in_time(&mut writer, "the writer");
    // The same file, and another one.
    kept.write_all(b" and more").and_then(|()| kept.sync_all()).expect("durable");
    fs::write(world.path("m/later"), "later").expect("written");
    Some((world, code, noise))
}

/// Checks that the pool has its expected contents, also after an import.
fn is_whole_after_an_import(world: &World) {
    world.good("zpool wait -t resilver tank");
    world.good("zpool export tank");
    world.good(&format!("zpool import {} tank", world.devices("-d")));
    assert_eq!(fs::read_to_string(world.path("m/kept")).expect("read"), "kept and more");
    assert_eq!(fs::read_to_string(world.path("m/later")).expect("read"), "later");
    world.good("zpool scrub -w tank");
    let status = world.good("zpool status tank");
    assert!(status.contains("repaired 0B") && status.contains("with 0 errors"), "{status}");
    assert!(status.ends_with("errors: No known data errors\n"), "{status}");
}

#[test]
fn a_writer_waits_while_no_device_takes_writes_and_nothing_is_lost() {
    for layout in ["mirror", ""] {
        let Some((world, code, noise)) = outage(layout, "wait") else { return };
        assert_eq!(code, Some(0), "it was told that all is durable");
        let is_there = || assert!(fs::read(world.path("m/new")).expect("read") == noise, "{layout}");
        is_there();
        is_whole_after_an_import(&world);
        is_there();
        world.good("zpool export tank");
    }
}

#[test]
fn a_writer_that_does_not_wait_is_told_and_all_goes_on_when_devices_take_writes_again() {
    for layout in ["mirror", ""] {
        let Some((world, ..)) = outage(layout, "continue") else { return };
        is_whole_after_an_import(&world);
        // The failed operation is repeated.
        fs::copy(world.path("noise"), world.path("m/new")).expect("copied");
        world.good("zpool export tank");
    }
}

/// `zpool online` and `clear` notice the same changes as `zpool reopen`.
#[test]
fn online_and_clear_see_that_the_file_of_a_running_leaf_is_gone_cut_or_another() {
    let world = World::new();
    let (b, copy) = (world.path("b"), world.path("copy"));
    let noises = ["x", "y", "z"].map(|name| world.noise(name, 1));
    for how in ["gone", "cut", "another"] {
        for words in ["zpool online tank ~/b", "zpool clear tank", "zpool clear tank ~/b"] {
            let what = format!("{how}, {words}");
            for name in ["a", "b"] {
                world.image(name);
            }
            world.good("zpool create -O mountpoint=none tank mirror ~/a ~/b");
            world.good("cp x tank:/x");
            world.good("zpool sync tank");
            fs::copy(&b, &copy).expect("copied");
            world.good("cp y tank:/y");
            world.good("zpool sync tank");
            match how {
                "gone" => fs::remove_file(&b).expect("removed"),
                "cut" => {
                    fs::File::options().write(true).open(&b).expect("there").set_len(IMAGE / 2).expect("cut")
                }
                _ => fs::rename(&copy, &b).expect("moved"),
            }
            world.good(words);
            if how != "another" {
                assert_eq!(world.good("zpool list -H -o health tank"), "DEGRADED\n", "{what}");
                let status = world.good("zpool status tank");
                let leaf =
                    status.lines().find(|line| line.contains(b.to_str().expect("text"))).expect("shown");
                assert!(leaf.contains("UNAVAIL"), "{what}: {leaf}");
                fs::rename(&copy, &b).expect("moved");
                world.good("zpool online tank ~/b");
            }
            world.good("cp z tank:/z");
            world.good("zpool wait -t resilver tank");
            let status = world.good("zpool status tank");
            assert!(status.contains(" state: ONLINE\n  scan: resilvered "), "{what}: {status}");
            world.good("zpool export tank");
            // This device alone has all data.
            fs::rename(world.path("a"), world.path("put aside")).expect("moved");
            world.good("zpool import -d ~/b tank");
            for (name, noise) in ["x", "y", "z"].iter().zip(&noises) {
                assert!(world.content(name) == *noise, "{what}: {name}");
            }
            world.good("zpool destroy tank");
        }
    }
}

/// With and without a paused scrub, which would not make way.
#[test]
fn a_resilver_that_is_due_after_an_import_is_shown_at_once_and_waited_for() {
    for is_scrubbed in [true, false] {
        let world = World::new();
        ["a", "b"].iter().for_each(|name| drop(world.image(name)));
        let noises = ["x", "y"].map(|name| world.noise(name, 4));
        // A daemon whose scans do not advance.
        let standing = |words: &str| {
            let mut command = world.command(words);
            let ran: Ran = command
                .env("CENOTE_PARAMETERS", "zfs_scan_suspend_progress=1")
                .output()
                .expect("it starts")
                .into();
            assert_eq!(ran.code, Some(0), "{words}: {ran:?}\n{}", world.log());
            ran.out
        };
        standing("zpool create -O mountpoint=none tank mirror ~/a ~/b");
        world.good("cp x tank:/x");
        if is_scrubbed {
            world.good("zpool scrub tank");
            world.good("zpool scrub -p tank");
        }
        world.good("zpool export tank");
        fs::rename(world.path("b"), world.path("away")).expect("moved");
        world.good("zpool import -d ~/a tank");
        world.good("cp y tank:/y");
        world.good("zpool export tank");
        fs::rename(world.path("away"), world.path("b")).expect("moved");
        world.good("zpool import -d ~/a -d ~/b tank");
        let status = world.good("zpool status tank");
        assert!(status.contains("\n  scan: resilver in progress since "), "{status}");
        world.good("daemon --stop");
        // A daemon whose scans advance; its first command waits for the resilver.
        world.good("zpool wait -t resilver tank");
        let status = world.good("zpool status tank");
        assert!(status.contains(" state: ONLINE\n  scan: resilvered "), "{status}");
        world.good("zpool export tank");
        fs::rename(world.path("a"), world.path("away")).expect("moved");
        world.good("zpool import -d ~/b tank");
        for (name, noise) in ["x", "y"].iter().zip(&noises) {
            assert!(world.content(name) == *noise, "{name}");
        }
    }
}

/// Whether a device is in use, as `mkfs` checks it.
fn is_had(device: &Path) -> bool {
    match rustix::fs::open(device, OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty()) {
        Ok(_) => false,
        Err(error) => {
            assert_eq!(error, rustix::io::Errno::BUSY);
            true
        }
    }
}

#[test]
fn spares_and_cache_devices_of_an_imported_pool_are_for_nobody_else() {
    let Some(world) = World::with_loops(3) else { return };
    let [disk, spare, cache] = [0, 1, 2].map(|n| world.loops[n].clone());
    world.good(&format!(
        "zpool create -f -O mountpoint=none tank {} spare {} cache {}",
        disk.display(),
        spare.display(),
        cache.display()
    ));
    let other = World::new();
    for is_imported in [false, true] {
        if is_imported {
            world.good("zpool export tank");
            assert!(!is_had(&spare) && !is_had(&cache), "they are free");
            // The other devices are found at their old paths.
            world.good(&format!("zpool import -d {} tank", disk.display()));
        }
        for device in [&spare, &cache] {
            let words = format!("zpool create -f -O mountpoint=none two {}", device.display());
            assert!(is_had(device), "{is_imported}: {}", device.display());
            let ran = world.run(&words);
            assert!(ran.code == Some(1) && ran.err.contains(device.to_str().expect("text")), "{ran:?}");
            // With another daemon, and without one.
            for is_direct in [false, true] {
                let mut command = other.command(&words);
                if is_direct {
                    command.env("CENOTE_DIRECT", "1");
                }
                let ran: Ran = command.output().expect("it starts").into();
                let busy = format!("cannot open '{}': Device or resource busy\n", device.display());
                assert!(ran.code == Some(1) && ran.err.starts_with(&busy), "{ran:?}");
            }
        }
        let status = world.good("zpool status tank");
        let states = status.lines().filter_map(|line| line.split_whitespace().nth(1));
        assert_eq!(states.filter(|state| ["ONLINE", "AVAIL"].contains(state)).count(), 5, "{status}");
    }
}

/// A device that is offline is wiped, and takes its own place again.
#[test]
fn a_device_that_was_wiped_in_place_replaces_itself() {
    let world = World::new();
    for name in ["a", "b"] {
        world.image(name);
    }
    let noise = world.noise("x", 3);
    world.good("zpool create -O mountpoint=none tank mirror ~/a ~/b");
    world.good("cp x tank:/x");
    world.good("zpool offline tank ~/b");
    fs::write(world.path("b"), vec![0; IMAGE as usize]).expect("wiped");
    world.good("zpool replace -w tank ~/b");
    world.good("zpool detach tank ~/a");
    assert!(world.content("x") == noise);
    world.good("zpool export tank");
    testkit::assert_zdb_clean(world.folder.path(), "tank");
}

/// The daemon replaces a device, and a spare stands in for one that is gone.
#[test]
fn a_device_is_replaced_and_a_spare_stands_in_for_one_that_is_gone() {
    let world = World::new();
    for name in ["a", "b", "c", "s"] {
        world.image(name);
    }
    let noise = world.noise("x", 3);
    world.good("zpool create -O mountpoint=none tank mirror ~/a ~/b spare ~/s");
    world.good("cp x tank:/x");
    let refused = world.run("zpool detach tank ~/s");
    assert_eq!(refused.code, Some(255), "{refused:?}");
    world.good("zpool replace -w tank ~/b ~/c");
    let names = || world.good("zpool list -v -H -P tank");
    assert!(names().contains("/c\t") && !names().contains("/b\t"), "{}", names());
    // What was replaced is free.
    world.good("zpool attach -w tank ~/a ~/b");
    world.good("zpool detach tank ~/b");
    let history = world.good("zpool history -i tank");
    let path = |name: &str| world.path(name).display().to_string();
    let replaced = format!("] vdev attach replace vdev={} for vdev={}\n", path("c"), path("b"));
    assert!(history.contains(&replaced), "{history}");
    assert!(history.contains(&format!("] detach vdev={}\n", path("b"))), "{history}");
    fs::remove_file(world.path("c")).expect("removed");
    let status = || world.good("zpool status tank");
    world.wait_until("the spare", || status().contains("INUSE     currently in use"));
    world.wait_until("the end of the resilver", || status().contains("\n  scan: resilvered "));
    assert!(world.content("x") == noise);
    world.good("zpool replace -w tank ~/c ~/b");
    world.wait_until("the spare's return", || status().contains("AVAIL"));
    assert!(world.good("zpool status -x tank").contains("is healthy"), "{}", status());
    world.good("zpool export tank");
    testkit::assert_zdb_clean(world.folder.path(), "tank");
}
