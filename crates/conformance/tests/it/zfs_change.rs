//! `zfs` verbs that change datasets, compared with the output of OpenZFS for the same commands; `zdb` checks
//! the pools.
// Tests do not run for a client, so they may use the process's own streams.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

use crate::common;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder with two pools, `tank` and `other`, of one image each.
struct World {
    folder: tempfile::TempDir,
}

/// Length of an image in bytes.
const IMAGE: u64 = 512 << 20;

impl World {
    fn new() -> World {
        // In memory, if there is such a place: hundreds of commands open and close the pools.
        let world = World { folder: tempfile::tempdir_in(common::memory()).expect("a folder") };
        std::fs::create_dir(world.images()).expect("made");
        std::fs::create_dir(world.bin()).expect("made");
        for tool in ["zfs", "zpool", "cenote"] {
            std::os::unix::fs::symlink(testkit::cenote(), world.bin().join(tool)).expect("linked");
        }
        for (pool, image) in [("tank", "a"), ("other", "b")] {
            let image = world.images().join(image);
            make(&image, IMAGE);
            world.good(&format!("zpool create {pool} {}", image.display()));
        }
        world
    }

    fn images(&self) -> PathBuf {
        self.folder.path().join("d")
    }

    fn bin(&self) -> PathBuf {
        self.folder.path().join("bin")
    }

    /// Runs a line of a shell; returns its output, both streams mixed, and its exit code.
    fn run(&self, line: &str) -> (String, i32) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || " @#%/:=_,.+-".contains(c);
        let ours = words.first().map(|name| self.bin().join(name)).filter(|path| path.exists());
        let mut command = match ours {
            // One command without anything for a shell, which takes time to start.
            Some(path) if line.chars().all(is_plain) => {
                let mut command = Command::new(path);
                command.arg0(words[0]).args(&words[1..]);
                command
            }
            _ => {
                let mut command = Command::new("/bin/sh");
                command.args(["-c", line]);
                command
            }
        };
        let path = std::env::var("PATH").unwrap_or_default();
        command.env_clear().env("TZ", "UTC0").env("PATH", format!("{}:{path}", self.bin().display()));
        command.env("CENOTE_DIRECT", "1").env("CENOTE_DEVICES", self.images());
        command.env("CENOTE_STATE", self.folder.path().join("state"));
        common::run_mixed(command)
    }

    /// Runs a line that must succeed; returns its output.
    fn good(&self, line: &str) -> String {
        let (text, code) = self.run(line);
        assert_eq!(code, 0, "{line}: {text}");
        text
    }

    /// The numbers that a command prints, one to a line.
    fn numbers(&self, line: &str) -> Vec<u64> {
        let text = self.good(line);
        text.split_whitespace().map(|word| word.parse().unwrap_or(0)).collect()
    }

    fn number(&self, line: &str) -> u64 {
        self.numbers(line).first().copied().expect("a number")
    }

    /// Checks that `zdb` finds no error in a pool: blocks, space, and datasets.
    fn judge(&self, pool: &str) {
        let Some(zdb) = testkit::need_tool("zdb") else { return };
        let said = |options: &str| {
            let output = testkit::hurried(&zdb)
                .args(["-e", "-p"])
                .arg(self.images())
                .args([options, pool])
                .output()
                .expect("zdb starts");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success(), "zdb {options} {pool}: {text}");
            text
        };
        testkit::assert_zdb_clean(&self.images(), pool);
        let datasets = said("-Pd");
        assert!(!datasets.contains("ERROR") && !datasets.contains("incorrect"), "{datasets}");
        // `Dataset tank/fs [ZPL], ID 52, cr_txg 9, 23552, 6 objects`
        for line in datasets.lines().filter(|line| line.starts_with("Dataset ") && !line.contains(" mos ")) {
            let (name, facts) = line.trim_start_matches("Dataset ").split_once(" [").expect("a kind");
            let size = facts.split(", ").nth(3).and_then(|n| n.parse::<u64>().ok()).expect("a size");
            let ours = self.number(&format!("zfs list -Hp -o referenced '{name}'"));
            assert_eq!(ours, size, "{name}");
        }
    }

    /// Checks that the sums of `zfs list -o space` are right for each dataset.
    fn check_space(&self, pool: &str) {
        let text = self.good(&format!("zfs list -Hpr -o space {pool}"));
        let rows: Vec<(&str, Vec<u64>)> = text
            .lines()
            .map(|line| {
                let mut fields = line.split('\t');
                let name = fields.next().expect("a name");
                (name, fields.map(|n| n.parse().expect("a number")).collect())
            })
            .collect();
        for (name, numbers) in &rows {
            let [_, used, snapshots, dataset, reserved, children] = numbers[..] else { panic!("{name}") };
            assert_eq!(used, snapshots + dataset + reserved + children, "{name}");
            let below = rows
                .iter()
                .filter(|(other, _)| other.strip_prefix(name).is_some_and(|rest| rest.rfind('/') == Some(0)));
            let below: u64 = below.map(|(_, numbers)| numbers[1]).sum();
            // The pool's own metadata is charged to the root.
            assert!(if name.contains('/') { children == below } else { children >= below }, "{name}");
        }
    }
}

#[allow(clippy::disallowed_types)] // An image for the commands, no device of ours.
fn make(path: &Path, size: u64) {
    std::fs::File::create(path).expect("made").set_len(size).expect("sized");
}

/// Bytes that do not compress.
#[allow(clippy::disallowed_types)] // A file of the host.
fn noise(path: &Path, len: usize) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ len as u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::fs::write(path, (0..len).map(|_| next()).collect::<Vec<u8>>()).expect("written");
}

/// Removes usage texts, which have tests of their own.
fn without_usage(text: &str) -> String {
    let mut shown = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line == "usage:" {
            // The last line of a usage text, or of the list of properties.
            lines.find(|line| line.ends_with("topic>]") || line.contains("SMB SID"));
            shown += "<usage>\n";
        } else if line.starts_with("Usage: \t") {
            let error = lines.find(|line| line.starts_with("zfs: error")).unwrap_or_default();
            shown += &format!("<usage>\n{error}\n");
        } else {
            shown += line;
            shown.push('\n');
        }
    }
    shown
}

/// Runs the commands of a transcript, and compares their output; then cleans up, and checks the pools.
fn replay(transcript: &str, cleanup: &[&str]) {
    let world = World::new();
    let mut lines = transcript.lines().filter(|line| !line.starts_with("# "));
    let mut different = Vec::new();
    while let Some(line) = lines.next() {
        if let Some(command) = line.strip_prefix("% ") {
            world.run(command);
            continue;
        }
        let command = line.strip_prefix("$ ").expect("a command");
        let mut expected = String::new();
        let code = loop {
            let line = lines.next().expect("an exit code");
            match line.rsplit_once("[exit ") {
                // Output without a newline at its end precedes the exit code.
                Some((rest, code)) => {
                    expected += rest;
                    break code.trim_end_matches(']').parse::<i32>().expect("a code");
                }
                None => expected += &format!("{line}\n"),
            }
        };
        let (text, found) = world.run(command);
        let text = without_usage(&text);
        if (&text, found) != (&expected, code) {
            different.push(format!("$ {command}\n{text}[exit {found}] instead of\n{expected}[exit {code}]"));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n\n"));
    for line in cleanup {
        world.good(line);
    }
    for pool in ["tank", "other"] {
        world.check_space(pool);
        world.judge(pool);
    }
}

#[test]
fn properties_and_creation_as_openzfs() {
    replay(include_str!("transcripts/zfs-properties.txt"), &[]);
}

#[test]
fn holds_destroying_rolling_back_and_renaming_as_openzfs() {
    replay(include_str!("transcripts/zfs-snapshots.txt"), &[]);
}

#[test]
fn clones_bookmarks_promoting_and_permissions_as_openzfs() {
    // zdb reports all lists of permissions as leaked.
    let cleanup = ["zfs unallow -c tank/v1", "zfs unallow -u root,1000 tank/v1", "zfs unallow -g 0 tank/v1"];
    replay(include_str!("transcripts/zfs-clones.txt"), &cleanup);
}

#[test]
fn limits_volume_sizes_and_columns_as_openzfs() {
    // zdb reports all lists of permissions as leaked.
    replay(include_str!("transcripts/zfs-limits.txt"), &["zfs unallow root tank/a"]);
}

#[test]
fn listing_inheriting_and_limits_below_as_openzfs() {
    // Space of a reservation counts for no child; zdb reports all lists of permissions as leaked.
    let cleanup = ["zfs destroy -r tank/a/r", "zfs unallow -g root tank/a"];
    replay(include_str!("transcripts/zfs-listing.txt"), &cleanup);
}

#[test]
fn listings_are_sorted_as_by_openzfs() {
    replay(include_str!("transcripts/zfs-sorting.txt"), &[]);
}

#[test]
fn sends_are_refused_as_by_openzfs() {
    replay(include_str!("transcripts/zfs-send.txt"), &[]);
}

/// A size that no device can have is refused before the volume is made.
#[test]
fn volumes_of_half_of_everything() {
    let world = World::new();
    for size in ["8E", "15.9E"] {
        let (text, code) = world.run(&format!("timeout 60 zfs create -s -V {size} tank/v"));
        assert_eq!((text.as_str(), code), ("cannot create 'tank/v': volume size is too large\n", 1));
    }
    world.good("zfs create -s -V 1E tank/v");
    assert_eq!(world.run("zfs set volsize=8E tank/v").1, 255);
    world.judge("tank");
}

/// Files change between snapshots; the space is reclaimed as announced, and a rollback restores files.
#[test]
fn contents_space_and_going_back() {
    let world = World::new();
    let (f, g) = (world.folder.path().join("f"), world.folder.path().join("g"));
    noise(&f, 100_000);
    noise(&g, 1_200_000);
    let (f, g) = (f.display(), g.display());
    world.good("zfs create -o recordsize=16K tank/fs");
    world.good(&format!("cenote cp {f} tank/fs:/f"));
    world.good("zfs snapshot tank/fs@1");
    world.good(&format!("cenote cp {g} tank/fs:/g"));
    world.good("zfs snapshot tank/fs@2");
    world.good("cenote rm tank/fs:/f");
    world.good("zfs snapshot tank/fs@3");
    world.check_space("tank");
    world.judge("tank");

    let used = || world.number("zfs list -Hp -o used tank/fs");
    let promised = |range: &str| {
        let text = world.good(&format!("zfs destroy -nvp tank/fs@{range}"));
        let line = text.lines().last().and_then(|line| line.strip_prefix("reclaim\t")).map(str::to_owned);
        line.and_then(|n| n.parse::<u64>().ok()).expect("a number")
    };
    let (before, both) = (used(), promised("1%2"));
    assert!(both > promised("1") + promised("2") && both > 100_000, "{both}");
    world.good("zfs destroy tank/fs@1%2");
    assert_eq!(used(), before - both);
    world.check_space("tank");
    world.judge("tank");

    world.good("cenote rm tank/fs:/g");
    world.good("zfs rollback tank/fs@3");
    world.good(&format!("cenote cat tank/fs:/g | cmp - {g}"));
    world.good("zfs clone tank/fs@3 tank/clone");
    world.good("cenote rm tank/clone:/g");
    world.good(&format!("cenote cp {f} tank/clone:/new"));
    world.good("zfs promote tank/clone");
    world.good(&format!("cenote cat tank/fs:/g | cmp - {g}"));
    world.check_space("tank");
    world.judge("tank");

    let (text, code) = world.run("zfs destroy -r tank/clone");
    assert_eq!(code, 1, "{text}");
    assert!(text.ends_with("use '-R' to destroy the following datasets:\ntank/fs\n"), "{text}");
    world.good("zfs destroy -R tank/clone");
    world.check_space("tank");
    world.judge("tank");
}

/// Limits of owners, projects of files, sizes of volumes.
#[test]
fn projects_limits_and_volumes() {
    let world = World::new();
    let f = world.folder.path().join("f");
    noise(&f, 70_000);
    world.good("zfs create tank/p");
    world.good("cenote mkdir tank/p:/d");
    world.good(&format!("cenote cp {} tank/p:/d/f", f.display()));
    assert_eq!(world.good("zfs project tank/p:/d"), "    0 - tank/p:/d\n    0 - tank/p:/d/f\n");
    world.good("zfs project -p 5 -s -r tank/p:/d");
    assert_eq!(world.good("zfs project -r tank/p:/d"), "    5 P tank/p:/d\n    5 P tank/p:/d/f\n");
    assert_eq!(world.good("zfs project -c -r tank/p:/d"), "");
    world.good("zfs set projectquota@5=1M projectobjquota@5=9 userquota@0=10M tank/p");
    let text = world.good("zfs projectspace -Hp -o name,quota,objused,objquota tank/p");
    assert!(text.contains("5\t1048576\t2\t9\n"), "{text}");
    world.good("zfs project -C -r tank/p:/d");
    assert_eq!(world.good("zfs project -r tank/p:/d"), "    0 - tank/p:/d\n    0 - tank/p:/d/f\n");

    world.good("zfs create -V 10M tank/v");
    world.good("zfs set volsize=20M tank/v");
    let sizes = world.numbers("zfs get -Hp -o value volsize,refreservation tank/v");
    assert_eq!(sizes, [20 << 20, 23_592_960]);
    world.good("zfs snapshot tank/v@1");
    world.good("zfs clone tank/v@1 tank/w");
    world.good("zfs set volsize=8M tank/w");
    world.good("zfs destroy -R tank/v@1");
    world.check_space("tank");
    world.judge("tank");
}

/// The history has the command lines of successful changes, and no others.
#[test]
fn history_has_what_was_done() {
    let world = World::new();
    world.good("zfs create tank/a");
    assert_eq!(world.run("zfs create tank/a").1, 1);
    world.good("zfs create -nv tank/b");
    world.good("zfs snapshot -r tank@s");
    let (text, code) = world.run("zfs set compression=lz4 reservation=10T tank/a");
    assert_eq!(code, 255, "{text}");
    let lines = world.good("zpool history tank");
    let commands: Vec<&str> =
        lines.lines().filter_map(|line| line.split_once(" zfs ").map(|(_, c)| c)).collect();
    assert_eq!(commands, ["create tank/a", "snapshot -r tank@s"]);
    let all = world.good("zpool history -i tank");
    assert!(all.contains("] snapshot tank/a@s ("), "{all}");
}

/// The records of `zpool history -i` for the operations of the last commands: names and input, as OpenZFS
/// shows them.
#[test]
fn operations_are_in_the_internal_history_as_by_openzfs() {
    let world = World::new();
    let mut seen = 0;
    let mut new = || {
        let all = world.good("zpool history -i tank");
        let lines: Vec<&str> =
            all.lines().skip(std::mem::replace(&mut seen, all.lines().count() - 1)).collect();
        let mut text = String::new();
        for line in lines {
            if let Some((_, operation)) = line.split_once("ms) ioctl ") {
                text += &format!("{operation}\n");
            } else if line.starts_with("    ") {
                text += &format!("{line}\n");
            }
        }
        text
    };
    new();
    let snaps = |names: &str| {
        let names: String = names.split(' ').map(|name| format!("            {name}\n")).collect();
        format!("    input:\n        snaps:\n{names}")
    };
    let all = |line: fn(&str) -> String| {
        ["tank@snap", "tank/fs1@snap", "tank/fs2@snap", "tank/v@snap"].map(line).concat()
    };
    let steps = [
        ("zfs create tank/fs1", "create\n    input:\n        type: 2\n        props:\n".to_owned()),
        (
            "zfs create -o compression=zstd -o com.example:note=hello tank/fs2",
            "create\n    input:\n        type: 2\n        props:\n            com.example:note: 'hello'\n            \
             compression: 16\n"
                .to_owned(),
        ),
        (
            "zfs create -s -V 32M tank/v",
            "create\n    input:\n        type: 3\n        props:\n            volsize: 33554432\n".to_owned(),
        ),
        (
            "zfs snapshot -r tank@snap",
            format!(
                "snapshot\n    input:\n        snaps:\n{}        props:\n",
                all(|name| format!("            {name}\n"))
            ),
        ),
        (
            "zfs snapshot -o a:b=c tank@p tank/fs1@p",
            format!("snapshot\n{}        props:\n            a:b: 'c'\n", snaps("tank@p tank/fs1@p")),
        ),
        (
            "zfs hold -r tag tank@snap",
            format!("hold\n    input:\n        holds:\n{}", all(|name| format!("            {name}: 'tag'\n"))),
        ),
        (
            "zfs release -r tag tank@snap",
            format!("release\n    input:\n{}", all(|name| format!("        {name}:\n            tag\n"))),
        ),
        (
            "zfs rollback -r tank/fs1@snap",
            format!(
                "destroy_snaps\n{}rollback\n    input:\n        target: 'tank/fs1@snap'\n    output:\n        \
                 target: 'tank/fs1@snap'\n",
                snaps("tank/fs1@p")
            ),
        ),
        ("zfs destroy tank/v@snap", format!("destroy_snaps\n{}", snaps("tank/v@snap"))),
        (
            "zfs bookmark tank/fs2@snap tank/fs2#b",
            "bookmark\n    input:\n        tank/fs2#b: 'tank/fs2@snap'\n".to_owned(),
        ),
        ("zfs destroy tank/fs2#b", "destroy_bookmarks\n    input:\n        tank/fs2#b\n".to_owned()),
        (
            "zfs clone tank/fs2@snap tank/cl",
            "clone\n    input:\n        origin: 'tank/fs2@snap'\n        props:\n".to_owned(),
        ),
        ("zfs promote tank/cl", String::new()),
        ("zfs destroy -r tank/fs1", format!("destroy_snaps\n{}", snaps("tank/fs1@snap"))),
        ("zfs set quota=1G tank/fs2", String::new()),
    ];
    for (command, expected) in steps {
        world.good(command);
        assert_eq!(new(), expected, "{command}");
    }
    assert_ne!(world.run("zfs destroy tank/nosuch").1, 0);
    assert_eq!(new(), "", "what was refused is not there");
    let long = world.good("zpool history -il tank");
    assert!(long.contains("\n [user 0 (root) on "), "{long}");
    world.judge("tank");
}

/// From the time when it is set on a dataset until the last dataset on which it was set is destroyed.
#[test]
fn compression_with_zstd_is_a_feature_in_use_as_by_openzfs() {
    let world = World::new();
    let state = || world.good("zpool get -H -o value feature@zstd_compress tank").trim_end().to_owned();
    let steps = [
        ("zfs create -o compress=zstd-7 tank/a", "active"),
        ("zfs set compression=lz4 tank/a", "active"),
        ("zfs inherit compression tank/a", "active"),
        ("zfs snapshot tank/a@s", "active"),
        ("zfs clone tank/a@s tank/c", "active"),
        ("zfs destroy -R tank/a", "enabled"),
        ("zfs create tank/b", "enabled"),
        ("zfs set compression=zstd-fast-5 tank/b", "active"),
        ("zfs create tank/b/below", "active"),
        ("zfs destroy tank/b/below", "active"),
        ("zfs destroy tank/b", "enabled"),
        ("zfs create -V 10M -s -o compression=zstd tank/v", "active"),
        ("zfs destroy tank/v", "enabled"),
    ];
    assert_eq!(state(), "enabled");
    for (command, expected) in steps {
        world.good(command);
        assert_eq!(state(), expected, "{command}");
        if command.contains("set") || command.contains("clone") {
            world.judge("tank");
        }
    }
    assert_eq!(
        world.good("zpool get -H -o value feature@skein,feature@large_blocks tank"),
        "enabled\nenabled\n"
    );
    world.judge("tank");
}

#[test]
fn commands_abort_at_their_end_on_demand() {
    let world = World::new();
    let aborted = |line: &str| world.run(&format!("ulimit -c 0\nZFS_ABORT=yes {line}\necho $?"));
    for line in ["zfs list", "zpool create", "zpool", "zfs nosuch", "zpool list nosuch", "zpool version"] {
        let (text, _) = aborted(line);
        assert!(text.lines().last().is_some_and(|code| code == "134"), "{line}: {text}");
    }
    aborted("zfs create tank/made");
    world.good("zfs list tank/made");
}
