//! Pools that grow with their devices: `zpool online -e`, `autoexpand=on`, `zpool reopen`.
// Tests do not run for a client, so they may use the process's own streams.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]
// Tests use `std` to make and damage files.
#![allow(clippy::disallowed_types, missing_docs)]

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SMALL: u64 = 256 << 20;
const LARGE: u64 = 512 << 20;
/// Longer than any step takes, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A folder with images, and a daemon of its own.
struct World {
    folder: tempfile::TempDir,
}

impl World {
    fn new(images: &[&str]) -> World {
        let world = World { folder: tempfile::tempdir().expect("a folder") };
        images.iter().for_each(|image| world.resize(image, SMALL));
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn resize(&self, image: &str, size: u64) {
        let file =
            std::fs::OpenOptions::new().write(true).create(true).truncate(false).open(self.path(image));
        file.and_then(|file| file.set_len(size)).expect("sized");
    }

    fn command(&self, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
        let words = words.replace('~', self.folder.path().to_str().expect("text"));
        command.args(words.split_whitespace()).env_clear().env("TZ", "UTC0").env("PATH", "/usr/bin:/bin");
        command.env("CENOTE_SOCKET", self.path("run/socket")).env("CENOTE_STATE", self.path("state"));
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    fn good(&self, words: &str) -> String {
        let output = self.command(words).output().expect("it starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{words}: {}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    }

    fn number(&self, property: &str) -> u64 {
        let text = self.good(&format!("zpool get -Hp -o value {property} tank"));
        text.trim().parse().unwrap_or(0)
    }

    /// Exports the pool, and checks it with OpenZFS's `zdb`.
    fn judge(&self) {
        self.good("zpool export tank");
        testkit::assert_zdb_clean(self.folder.path(), "tank");
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.command("daemon --stop").output();
    }
}

#[test]
fn online_e_takes_what_a_file_has_grown_by() {
    let world = World::new(&["a"]);
    world.good("zpool create -O mountpoint=none tank ~/a");
    let (size, free) = (world.number("size"), world.good("zfs get -Hp -o value available tank"));
    world.resize("a", LARGE);
    assert_eq!(world.number("expandsize"), 0, "nobody has looked");
    world.good("zpool reopen tank");
    assert_eq!((world.number("size"), world.number("expandsize")), (size, LARGE - SMALL));
    world.good("zpool online -e tank ~/a");
    assert_eq!((world.number("size"), world.number("expandsize")), (size + LARGE - SMALL, 0));
    let now = world.good("zfs get -Hp -o value available tank");
    let bytes = |text: &str| text.trim().parse::<u64>().expect("a number");
    assert!(bytes(&now) > bytes(&free) + (LARGE - SMALL) / 2, "{free} {now}");
    let history = world.good("zpool history -i tank");
    let line = format!("vdev online pool 'tank' size: {}(+{})", size + LARGE - SMALL, LARGE - SMALL);
    assert!(history.contains(&line), "{history}");
    // More than the free space before.
    world.good("zfs create -V 300m tank/v");
    world.good("zfs destroy tank/v");
    world.judge();
    world.good("zpool import -d ~ tank");
    assert_eq!(world.number("size"), size + LARGE - SMALL);
}

#[test]
fn a_mirror_grows_when_all_its_sides_have() {
    let world = World::new(&["a", "b"]);
    world.good("zpool create -O mountpoint=none tank mirror ~/a ~/b");
    let size = world.number("size");
    world.resize("a", LARGE);
    world.good("zpool online -e tank ~/a");
    assert_eq!(world.number("size"), size);
    world.good("zpool offline tank ~/b");
    world.good("zpool online -e tank ~/a");
    assert_eq!(world.number("size"), size, "the other side may be smaller");
    world.resize("b", LARGE);
    world.good("zpool online -e tank ~/b");
    assert_eq!(world.number("size"), size + LARGE - SMALL);
    world.judge();
}

#[test]
fn with_autoexpand_nobody_has_to_say_so() {
    let world = World::new(&["a", "b", "c"]);
    world.good("zpool create -O mountpoint=none -o autoexpand=on tank raidz ~/a ~/b ~/c");
    let size = world.number("size");
    ["a", "b", "c"].iter().for_each(|image| world.resize(image, LARGE));
    let began = Instant::now();
    while world.number("size") == size {
        assert!(began.elapsed() < PATIENCE, "it does not grow");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(world.number("size") >= size + (LARGE - SMALL) * 2);
    world.judge();
}

#[test]
fn a_device_that_grew_while_the_pool_was_exported_is_expandable() {
    let world = World::new(&["a"]);
    world.good("zpool create -O mountpoint=none tank ~/a");
    let size = world.number("size");
    world.good("zpool export tank");
    world.resize("a", LARGE);
    world.good("zpool import -d ~ tank");
    assert_eq!((world.number("size"), world.number("expandsize")), (size, LARGE - SMALL));
    world.good("zpool set autoexpand=on tank");
    assert_eq!(world.number("size"), size + LARGE - SMALL);
    world.judge();
}
