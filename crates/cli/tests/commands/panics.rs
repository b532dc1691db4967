//! A daemon after a panic in a request, which a test provokes through a mount or by a command.
// Tests do not run for a client, so they may use the process's own streams.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]
// Tests use `std` to make and damage files.
#![allow(clippy::disallowed_types, missing_docs)]

use crate::daemon_support::{Ran, cenote};
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// A folder with a daemon of its own, and the pools `one` and `two` in it, mounted.
struct World {
    folder: tempfile::TempDir,
}

impl World {
    fn new() -> Option<World> {
        if !testkit::need_root() || !testkit::need_file("/dev/fuse") {
            return None;
        }
        let world = World { folder: tempfile::tempdir().expect("a folder") };
        for pool in ["one", "two"] {
            fs::File::create(world.path(&format!("{pool}.img")))
                .expect("made")
                .set_len(128 << 20)
                .expect("sparse");
            world.good(&format!("zpool create -m ~/{pool} {pool} ~/{pool}.img"));
        }
        Some(world)
    }

    fn folder(&self) -> PathBuf {
        self.folder.path().canonicalize().expect("there")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    fn run(&self, words: &str) -> Ran {
        let mut command = cenote(&self.folder(), "socket", words);
        command.env("CENOTE_TEST_PANIC", "yes").current_dir("/").stdin(Stdio::null());
        command.output().expect("it starts").into()
    }

    fn good(&self, words: &str) -> String {
        let ran = self.run(words);
        assert_eq!(ran.code, Some(0), "{words}: {ran:?}\n{}", self.log());
        ran.out
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("state/cenoted.log")).unwrap_or_default()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.run("daemon --stop");
    }
}

#[test]
fn a_panic_in_one_request_ends_that_request_and_in_a_change_its_pool() {
    let Some(world) = World::new() else { return };
    let daemon = world.good("daemon --status");
    fs::write(world.path("one/kept"), "kept").expect("written");
    world.good("zpool sync one");

    // The request changed nothing, so the pool is not in doubt.
    let failed = fs::metadata(world.path("one/panic-in-a-request")).expect_err("it panics");
    assert_eq!(failed.raw_os_error(), Some(5), "{failed}");
    assert!(world.log().contains("a test wants this panic"), "{}", world.log());
    fs::write(world.path("one/after"), "after").expect("all goes on");
    world.good("zpool sync one");
    assert_eq!(world.good("zpool list -H -o name,health"), "one\tONLINE\ntwo\tONLINE\n");
    assert_eq!(world.good("zpool status -x"), "all pools are healthy\n");

    // A change is half done: its txg is not written, and no later one either.
    let failed = fs::write(world.path("one/panic-in-a-change"), "x").expect_err("it panics");
    assert_eq!(failed.raw_os_error(), Some(5), "{failed}");
    let begun = Instant::now();
    while world.good("zpool list -H -o health one") != "SUSPENDED\n" && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(20));
    }
    let status = world.good("zpool status one");
    for wanted in [
        " state: SUSPENDED\n",
        "status: Nothing more is written to the pool: a change ended in a panic.\n",
        "action: Export the pool by 'zpool export -f', then import it:",
    ] {
        assert!(status.contains(wanted), "{wanted} is not in {status}");
    }
    let short = world.good("zpool status -x");
    assert!(short.contains("pool: one") && !short.contains("pool: two"), "{short}");
    let events = world.good("zpool events -v one");
    assert!(events.contains("ereport.fs.zfs.io_failure"), "{events}");
    assert!(events.contains("reason = \"a change ended in a panic\""), "{events}");
    for (words, code) in
        [("zfs create one/x", 1), ("zpool sync one", 1), ("zpool clear one", 1), ("zpool export one", 1)]
    {
        let ran = world.run(words);
        assert!(ran.code == Some(code) && ran.err.contains("suspended"), "{words}: {ran:?}");
    }
    // Data on disk can be read, changes are refused, and no caller waits.
    assert_eq!(fs::read_to_string(world.path("one/kept")).expect("readable"), "kept");
    let refused = fs::write(world.path("one/more"), "x").expect_err("nothing is written");
    assert_eq!(refused.raw_os_error(), Some(5), "{refused}");

    // Other pools continue, in the same process.
    fs::write(world.path("two/file"), "two").expect("written");
    world.good("zfs create two/x");
    world.good("zpool sync two");
    assert_eq!(world.good("daemon --status"), daemon);

    // The pool can be exported by force, and has the state on disk.
    world.good("zpool export -f one");
    world.good("zpool import -d ~ one");
    assert_eq!(fs::read_to_string(world.path("one/after")).expect("there"), "after");
    assert_eq!(
        fs::metadata(world.path("one/panic-in-a-change")).map(drop).map_err(|e| e.kind()),
        Err(ErrorKind::NotFound)
    );
    fs::write(world.path("one/again"), "again").expect("written");
    assert_eq!(world.good("zpool list -H -o health one"), "ONLINE\n");

    // The daemon ends in order with a stopped pool.
    fs::write(world.path("one/panic-in-a-change"), "x").expect_err("it panics");
    world.good("daemon --stop");
    assert!(world.log().contains("cenoted has ended"), "{}", world.log());
    assert_eq!(
        fs::read_to_string(world.path("two/file")).map_err(|e| e.kind()),
        Err(ErrorKind::NotFound),
        "unmounted"
    );
    assert!(world.good("zpool list -H -o name,health").contains("one\tONLINE\ntwo\tONLINE\n"));
    assert_eq!(fs::read_to_string(world.path("two/file")).expect("mounted again"), "two");
}

#[test]
fn a_panic_in_a_command_ends_that_command_and_in_a_change_its_pool() {
    let Some(world) = World::new() else { return };
    let daemon = world.good("daemon --status");
    for pool in ["one", "two"] {
        world.good(&format!("zfs create -o mountpoint=none {pool}/own"));
    }
    let failed = |words: &str| {
        let ran = world.run(words);
        let is_told = ran.err.ends_with(": internal error; the log of cenoted has more\n");
        assert!(ran.code == Some(70) && is_told, "{words}: {ran:?}");
        assert!(world.log().contains("a test wants this panic"), "{}", world.log());
    };
    // The command changed nothing, so the pool is not in doubt.
    failed("zfs list panic-in-a-request");
    world.good("mkdir one/own:/after");
    assert_eq!(world.good("zpool status -x"), "all pools are healthy\n");

    // A change is half done. Other commands are served meanwhile.
    let mut going = cenote(&world.folder(), "socket", "zpool iostat two 1");
    let mut going =
        going.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("it starts");
    failed("mkdir one/own:/panic-in-a-change");
    let begun = Instant::now();
    while world.good("zpool list -H -o health one") != "SUSPENDED\n" && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(world.good("zpool list -H -o name,health"), "one\tSUSPENDED\ntwo\tONLINE\n");
    let refused = world.run("mkdir one/own:/more");
    assert!(refused.code == Some(1) && refused.err.contains("a change ended in a panic"), "{refused:?}");
    world.good("mkdir two/own:/after");
    fs::write(world.path("two/file"), "two").expect("written");
    world.good("zpool sync two");
    assert!(going.try_wait().expect("a child").is_none(), "it goes on");
    going.kill().expect("killed");
    going.wait().expect("ended");
    assert_eq!(world.good("daemon --status"), daemon, "by the same process");
    world.good("zpool export -f one");
    world.good("zpool import -d ~ one");
    assert_eq!(world.good("ls one/own:/"), "after\n");
}
