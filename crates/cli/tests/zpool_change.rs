//! `zpool` verbs that change pools, against what OpenZFS printed for the same commands, and their pools against
//! `zdb`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A folder with images and the state of the commands.
struct World {
    folder: tempfile::TempDir,
    images: PathBuf,
}

/// Sizes of images, in MiB.
const IMAGES: [(&str, u64); 9] = [
    ("small", 64),
    ("tiny", 10),
    ("big", 200),
    ("b2", 150),
    ("x140", 140),
    ("x144", 144),
    ("x145", 145),
    ("near", 125),
    ("lnk", 128),
];

impl World {
    fn new() -> World {
        let folder = tempfile::tempdir().expect("a folder");
        let world = World { images: folder.path().join("d"), folder };
        std::fs::create_dir(world.images()).expect("made");
        for i in 0..10 {
            world.image(&format!("f{i}"), 128);
        }
        IMAGES.iter().for_each(|(name, size)| world.image(name, *size));
        world
    }

    fn images(&self) -> &Path {
        &self.images
    }

    /// Images are in this folder from now on.
    fn use_images(&mut self, folder: &Path) {
        self.images = folder.to_owned();
    }

    #[allow(clippy::disallowed_types)] // An image for the commands, no device of ours.
    fn image(&self, name: &str, mib: u64) {
        let file = std::fs::File::create(self.images().join(name)).expect("made");
        file.set_len(mib << 20).expect("sized");
    }

    /// Runs a command; what it printed, both ways as they came, and its exit code.
    fn run(&self, line: &str) -> (String, i32) {
        let words: Vec<String> = line.split(' ').map(|word| self.here(word)).collect();
        self.run_words(&words)
    }

    fn run_words(&self, words: &[String]) -> (String, i32) {
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let mut child = Command::new(env!("CARGO_BIN_EXE_cenote"))
            .args(words)
            .env_clear()
            .env("TZ", "UTC0")
            .env("CENOTE_STATE", self.folder.path().join("state"))
            .stdin(Stdio::null())
            .stdout(writer.try_clone().expect("a second end"))
            .stderr(writer)
            .spawn()
            .expect("the command starts");
        let mut text = String::new();
        // The command holds the only writing end now.
        std::io::Read::read_to_string(&mut reader, &mut text).expect("text");
        let code = child.wait().expect("it ends").code().unwrap_or(-1);
        (self.there(&text), code)
    }

    /// Runs a command that must do its work in silence.
    fn good(&self, line: &str) {
        assert_eq!(self.run(line), (String::new(), 0), "{line}");
    }

    fn here(&self, text: &str) -> String {
        text.replace("/img/lnk", "/img/d/lnk").replace("/img/d", &self.images().display().to_string())
    }

    fn there(&self, text: &str) -> String {
        text.replace(&self.images().display().to_string(), "/img/d").replace("/img/d/lnk", "/img/lnk")
    }

    /// What `zdb` says of a pool, if it is installed.
    fn zdb(&self, options: &str, pool: &str) -> Option<(String, bool)> {
        let zdb = Path::new("/usr/sbin/zdb");
        if !zdb.exists() {
            return None;
        }
        let output = Command::new(zdb)
            .args(["-U", "/nonexistent", "-e", "-p"])
            .arg(self.images())
            .args(options.split(' '))
            .arg(pool)
            .output()
            .expect("zdb starts");
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.push_str(&String::from_utf8_lossy(&output.stderr));
        Some((text, output.status.success()))
    }

    /// The pool is sound: no block leaks, none is wrong.
    fn judge(&self, pool: &str) {
        if let Some((text, success)) = self.zdb("-bcc", pool) {
            assert!(
                success && text.contains("No leaks (block sum matches space maps exactly)"),
                "{pool}: {text}"
            );
        }
    }
}

/// Columns of tables, however wide: paths here are of another length than in the transcripts.
fn squeezed(text: &str) -> Vec<String> {
    let squeeze = |line: &str| {
        let indent = line.len() - line.trim_start().len();
        let words: Vec<&str> = line.split_whitespace().collect();
        format!("{}{}", &line[..indent], words.join(" "))
    };
    text.lines().map(squeeze).collect()
}

/// Runs every command of a transcript and compares.
fn replay(transcript: &str) {
    let world = World::new();
    let mut wrong = Vec::new();
    for block in format!("\n{transcript}").split("\n$ ").skip(1) {
        let (command, rest) = block.split_once('\n').expect("a command and what it printed");
        let (expected, code) = rest.rsplit_once("[exit ").expect("an exit code");
        let code: i32 = code.trim_end().trim_end_matches(']').parse().expect("a number");
        let (printed, exit) = world.run(command);
        if (squeezed(&printed), exit) != (squeezed(expected), code) {
            wrong.push(format!("$ {command}\n--- expected {code}\n{expected}+++ {exit}\n{printed}"));
        }
    }
    assert!(wrong.is_empty(), "{} commands differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn layouts_are_accepted_and_refused_as_by_openzfs() {
    replay(include_str!("transcripts/create-layouts.txt"));
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
fn properties_are_set_as_by_openzfs() {
    replay(include_str!("transcripts/set.txt"));
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
    // zdb takes its time, most of it waiting.
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
    let (text, _) = world.run("zpool labelclear /img/d/f3");
    assert_eq!(text, "/img/d/f3 is a member (L2CACHE) of pool \"tank\"\n");
    world.judge("tank");
    world.good("zpool export tank");
    world.good("zpool create -f y /img/d/f2");
}

#[test]
fn a_lost_log_device_is_given_up_only_on_demand() {
    let world = World::new();
    world.good("zpool create tank mirror /img/d/f0 /img/d/f1 log /img/d/f2");
    world.good("zpool export tank");
    std::fs::remove_file(world.images().join("f2")).expect("there");
    let (text, code) = world.run("zpool import -d /img/d tank");
    let expected = "cannot import 'tank': one or more devices is currently unavailable\n\
        The devices below are missing or corrupted, use '-m' to import the pool anyway:\n\
        \t    /img/d/f2 [log]\n\n";
    assert_eq!((text.as_str(), code), (expected, 1));
    world.good("zpool import -m -d /img/d tank");
    world.good("zpool set comment=x tank");
    let (text, _) = world.run("zpool get -H -o value comment tank");
    assert_eq!(text, "x\n");
    world.good("zpool export tank");
}

#[test]
fn too_few_devices_are_no_pool() {
    let world = World::new();
    world.good("zpool create tank raidz /img/d/f0 /img/d/f1 /img/d/f2");
    world.good("zpool export tank");
    std::fs::remove_file(world.images().join("f2")).expect("there");
    world.good("zpool import -d /img/d tank");
    world.good("zpool set comment=degraded tank");
    world.judge("tank");
    world.good("zpool export tank");
    std::fs::remove_file(world.images().join("f1")).expect("there");
    let (text, code) = world.run("zpool import -d /img/d tank");
    let expected = "cannot import 'tank': no such pool or dataset\n\tDestroy and re-create the pool from\n\ta backup source.\n";
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
    for name in ["mirror", "raidz2", "zil-slog", "crash-nolog"] {
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
        ("checkpoint", "checkpoint"),
        ("removed-vdev", "removed"),
        ("version10", "version 10"),
    ] {
        let fixture = testkit::Fixture::open(name);
        let copy = fixture.scratch();
        let mut world = World::new();
        world.use_images(copy.dir());
        let pool = &fixture.manifest().pool;
        let (text, code) = world.run(&format!("zpool import -f -d /img/d {pool}"));
        let hint = "This version of Cenote can only read it: use 'zpool import -o readonly=on' to import the pool.\n";
        let is_told = text.starts_with(&format!("cannot import '{pool}': ")) && text.ends_with(hint);
        assert!(is_told && text.contains(why) && code == 1, "{name}: {text}");
        world.good(&format!("zpool import -f -d /img/d -o readonly=on {pool}"));
        let (listed, _) = world.run(&format!("zpool list -H -o name {pool}"));
        assert_eq!(listed, format!("{pool}\n"));
        let (text, code) = world.run(&format!("zpool set comment=x {pool}"));
        let start = format!("cannot set property for '{pool}': pool is read-only: ");
        assert!(text.starts_with(&start) && text.contains(why) && code == 1, "{name}: {text}");
        world.good(&format!("zpool export {pool}"));
    }
}
