//! `zpool` verbs that change pools, against what OpenZFS printed for the same commands, and their pools against
//! `zdb`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A folder with images and the state of the commands.
struct World {
    folder: tempfile::TempDir,
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
        let world = World { folder: tempfile::tempdir().expect("a folder") };
        std::fs::create_dir(world.images()).expect("made");
        for i in 0..10 {
            world.image(&format!("f{i}"), 128);
        }
        IMAGES.iter().for_each(|(name, size)| world.image(name, *size));
        world
    }

    fn images(&self) -> PathBuf {
        self.folder.path().join("d")
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
            .args(["-e", "-p"])
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
    let world = World::new();
    for (i, (options, vdevs)) in [
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
        ("-O compression=zstd-5 -O casesensitivity=insensitive -o multihost=on ", "/img/d/f0"),
    ]
    .into_iter()
    .enumerate()
    {
        // zdb is confused by destroyed pools of the same name.
        let pool = format!("t{i}");
        let line = format!("zpool create -f {options}{pool} {vdevs}");
        world.good(&line);
        world.judge(&pool);
        let (history, _) = world.run(&format!("zpool history {pool}"));
        assert!(history.contains(&line), "{history}");
        world.good(&format!("zpool destroy {pool}"));
    }
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
