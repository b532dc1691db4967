//! `zfs receive`: golden streams of OpenZFS into new pools, compared with what OpenZFS made of them; and the messages
//! of what is refused.
// Tests do not run for a client, so they may use the process's own streams.
#![allow(clippy::disallowed_methods)]

use crate::common;
use crate::zstream::fed;
use std::collections::BTreeMap;
use std::process::Command;

/// A folder with a pool `dst` of one image.
pub(crate) struct World {
    pub(crate) folder: tempfile::TempDir,
}

impl World {
    pub(crate) fn new() -> World {
        let world = World { folder: tempfile::tempdir_in(common::memory()).expect("a folder") };
        std::fs::create_dir(world.folder.path().join("d")).expect("made");
        let image = world.folder.path().join("d/a");
        make(&image, 512 << 20);
        world.good(&format!("zpool create dst {}", image.display()), &[]);
        world
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(testkit::cenote());
        let folder = self.folder.path();
        command.env_clear().env("TZ", "UTC0").env("CENOTE_DIRECT", "1");
        command.env("CENOTE_DEVICES", folder.join("d")).env("CENOTE_STATE", folder.join("state"));
        command
    }

    /// Runs a command with this input; returns its output, its errors and its exit code.
    pub(crate) fn run(&self, line: &str, input: &[u8]) -> (String, String, i32) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let output = fed(&mut self.command(), &words, input);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(&output.stdout), text(&output.stderr), output.status.code().unwrap_or(-1))
    }

    /// Runs a command that must succeed; returns its output.
    pub(crate) fn good(&self, line: &str, input: &[u8]) -> String {
        let (out, errors, code) = self.run(line, input);
        assert_eq!((code, errors.as_str()), (0, ""), "{line}");
        out
    }

    /// Runs a command that must fail; returns its errors.
    pub(crate) fn bad(&self, line: &str, input: &[u8]) -> String {
        let (out, errors, code) = self.run(line, input);
        assert_eq!((code, out.as_str()), (1, ""), "{line}: {errors}");
        errors
    }

    /// Receives a golden stream.
    pub(crate) fn receive(&self, line: &str, stream: &str) {
        self.good(line, &testkit::stream(stream));
    }

    /// The names that a listing has.
    pub(crate) fn names(&self, types: &str, below: &str) -> Vec<String> {
        let text = self.good(&format!("zfs list -H -o name -r -t {types} {below}"), &[]);
        text.lines().map(str::to_owned).collect()
    }

    /// Value and source of a property.
    pub(crate) fn property(&self, dataset: &str, name: &str) -> String {
        let text = self.good(&format!("zfs get -H -o value,source {name} {dataset}"), &[]);
        text.trim_end().replace('\t', " ")
    }

    /// Checks that a dataset has the files that OpenZFS has received.
    pub(crate) fn check_files(&self, dataset: &str, received: &str) {
        let expected: BTreeMap<String, String> = testkit::received()
            .1
            .filter(|entry| entry.ds == received)
            .filter(|entry| entry.sha256_of.is_none())
            .filter_map(|entry| Some((String::from_utf8(entry.path).ok()?, entry.sha256?)))
            .filter(|(path, _)| !path.contains(['\\', '\n']))
            .collect();
        assert!(!expected.is_empty(), "{received}");
        let to = tempfile::tempdir_in(self.folder.path()).expect("a folder");
        let mut tar = self.command();
        tar.args(["tar", "-c", &format!("{dataset}:/")]);
        let output = tar.output().expect("starts");
        assert!(output.status.success(), "{dataset}: {}", String::from_utf8_lossy(&output.stderr));
        let mut unpack = Command::new("tar");
        // Devices need rights that tests may lack.
        let _ = fed(unpack.arg("-C").arg(to.path()), &["-xf", "-"], &output.stdout);
        let script = format!(
            "cd '{}' && find . -type f -size -1000000k -print0 | xargs -0 -r sha256sum",
            to.path().display()
        );
        let sums = Command::new("sh").args(["-c", &script]).output().expect("starts").stdout;
        let found: BTreeMap<String, String> = String::from_utf8_lossy(&sums)
            .lines()
            .filter_map(|line| line.split_once("  ./"))
            .map(|(sum, path)| (path.to_owned(), sum.to_owned()))
            .collect();
        for (path, sum) in &expected {
            assert_eq!(found.get(path), Some(sum), "{dataset}: {path}");
        }
    }

    /// Checks that `zdb` finds no error.
    pub(crate) fn judge(&self) {
        if testkit::need_tool("zdb").is_some() {
            testkit::assert_zdb_clean(&self.folder.path().join("d"), "dst");
        }
    }
}

#[allow(clippy::disallowed_types)] // An image for the commands, no device of ours.
pub(crate) fn make(path: &std::path::Path, bytes: u64) {
    std::fs::File::create(path).expect("made").set_len(bytes).expect("sized");
}

#[test]
fn full_streams_and_increments_become_snapshots() {
    let world = World::new();
    let told = world.good("zfs receive -v dst/full", &testkit::stream("full"));
    let (first, second) = told.trim_end().split_once('\n').expect("two lines");
    assert_eq!(first, "receiving full stream of src/fs@a into dst/full@a");
    assert!(second.starts_with("received 3.47M stream in ") && second.ends_with("/sec)"), "{second}");
    world.receive("zfs receive dst/full", "incr-a-b");
    world.receive("zfs receive dst/full", "incr-b-c");
    assert_eq!(world.names("snapshot", "dst/full"), ["dst/full@a", "dst/full@b", "dst/full@c"]);
    for snapshot in ["dst/full@a", "dst/full@b", "dst/full@c"] {
        world.check_files(snapshot, snapshot);
    }
    // What is here already is passed over.
    world.receive("zfs receive dst/full", "incr-a-b");
    world.receive("zfs receive -F dst/full", "incr-b-c");
    assert_eq!(world.names("snapshot", "dst/full").len(), 3);
    world.judge();
}

#[test]
fn names_follow_the_options() {
    let world = World::new();
    let stream = testkit::stream("full-one-r1");
    let told = |line: &str| world.good(line, &stream);
    let would = |into: &str| format!("would receive full stream of src/tree/one@r1 into {into}\n");
    assert_eq!(told("zfs receive -nv dst/a"), would("dst/a@r1"));
    assert_eq!(told("zfs receive -nv dst/a@x"), would("dst/a@x"));
    assert_eq!(told("zfs receive -nv -d dst"), would("dst/tree/one@r1"));
    assert_eq!(told("zfs receive -nv -e dst"), would("dst/one@r1"));
    assert_eq!(world.names("all", "dst"), ["dst"]);
    world.receive("zfs recv -d dst", "full-one-r1");
    assert_eq!(world.names("all", "dst"), ["dst", "dst/tree", "dst/tree/one", "dst/tree/one@r1"]);
    world.receive("zfs recv dst/mine@x", "full-one-r1");
    assert_eq!(world.names("all", "dst/mine"), ["dst/mine", "dst/mine@x"]);
}

#[test]
fn dry_runs_of_packages_change_nothing() {
    let world = World::new();
    let told = world.good("zfs receive -nv dst/tree", &testkit::stream("replicate-r2"));
    assert!(told.starts_with("would receive full stream of src/tree@r1 into dst/tree@r1\n"), "{told}");
    let clone = "would receive full stream of src/tree/cl@r2 into dst/tree/cl@r2";
    assert!(told.lines().any(|line| line == clone), "{told}");
    assert_eq!(world.names("all", "dst"), ["dst"]);
}

#[test]
fn what_is_refused_is_told_in_the_words_of_openzfs() {
    let world = World::new();
    let full = testkit::stream("full-one-r1");
    let increment = testkit::stream("incr-a-b");
    assert_eq!(world.bad("zfs receive dst/a", &[]), "cannot receive: failed to read from stream\n");
    assert_eq!(
        world.bad("zfs receive dst/a", &[7; 5000]),
        "cannot receive: invalid stream (bad magic number)\n"
    );
    assert_eq!(
        world.bad("zfs receive dst/a", &increment),
        "cannot receive incremental stream: destination 'dst/a' does not exist\n"
    );
    assert_eq!(
        world.bad("zfs receive dst/none/x", &full),
        "cannot open 'dst/none': dataset does not exist\n\
         cannot receive new filesystem stream: unable to restore to destination\n"
    );
    let package = testkit::stream("replicate-r2");
    assert_eq!(
        world.bad("zfs receive dst/a@x", &package),
        "cannot receive: cannot specify snapshot name for multi-snapshot stream\n"
    );
    for line in [
        "zfs receive -e dst@x",
        "zfs receive -e dst/1/2",
        "zfs receive -d dst/none",
        "zfs receive dst/fs@",
        "zfs receive dst/fs@@a",
        "zfs receive nosuch",
        "zfs receive -o version=1 dst/a",
        "zfs receive -x normalization dst/a",
    ] {
        world.bad(line, &full);
    }
    let volume = testkit::stream("zvol-full");
    assert_eq!(
        world.bad("zfs receive -o atime=off dst/v", &volume),
        "cannot receive: 'atime' does not apply to datasets of this type\n"
    );
    let (_, errors, code) = world.run("zfs receive -A dst/none", &[]);
    assert!(errors.starts_with("cannot open 'dst/none': dataset does not exist\nusage:\n"), "{errors}");
    assert_eq!(code, 2);
    assert_eq!(world.names("all", "dst"), ["dst"]);
}

#[test]
fn a_dataset_that_exists_is_overwritten_by_force_only() {
    let world = World::new();
    world.good("zfs create dst/a", &[]);
    let full = testkit::stream("full-one-r1");
    assert_eq!(
        world.bad("zfs receive dst/a", &full),
        "cannot receive new filesystem stream: destination 'dst/a' exists\nmust specify -F to overwrite it\n"
    );
    world.receive("zfs receive -F dst/a", "full-one-r1");
    world.check_files("dst/a@r1", "dst/one@r1");
    assert_eq!(
        world.bad("zfs receive -F dst/a", &full),
        "cannot receive new filesystem stream: destination has snapshots (eg. dst/a@r1)\n\
         must destroy them to overwrite it\n"
    );
    world.judge();
}

#[test]
fn a_changed_dataset_is_rolled_back_by_force_only() {
    let world = World::new();
    world.receive("zfs receive dst/full", "full");
    world.good("mkdir dst/full:/changed", &[]);
    assert_eq!(
        world.bad("zfs receive dst/full", &testkit::stream("incr-a-b")),
        "cannot receive incremental stream: destination dst/full has been modified\n\
         since most recent snapshot\n"
    );
    assert_eq!(
        world.bad("zfs receive dst/full", &testkit::stream("incr-b-c")),
        "cannot receive incremental stream: most recent snapshot of dst/full does not\n\
         match incremental source\n"
    );
    world.receive("zfs receive -F dst/full", "incr-a-b");
    world.check_files("dst/full@b", "dst/full@b");
    world.judge();
}

#[test]
fn streams_that_end_early_leave_nothing_or_a_token() {
    let world = World::new();
    let part = testkit::stream("resume-part");
    assert_eq!(
        world.bad("zfs receive dst/gone", &part),
        "cannot receive new filesystem stream: incomplete stream\n"
    );
    assert_eq!(world.names("all", "dst"), ["dst"]);
    let errors = world.bad("zfs receive -s dst/res", &part);
    let start = "cannot receive new filesystem stream: checksum mismatch or incomplete stream.\n\
                 Partially received snapshot is saved.\n\
                 A resuming stream can be generated on the sending system by running:\n    zfs send -t ";
    let token = errors.strip_prefix(start).expect(&errors).trim_end().to_owned();
    assert_eq!(world.property("dst/res", "receive_resume_token"), format!("{token} -"));
    let full = testkit::stream("full");
    assert_eq!(
        world.bad("zfs receive dst/res", &full),
        "cannot receive new filesystem stream: destination dst/res contains partially-complete state from \
         \"zfs receive -s\".\n"
    );
    world.receive("zfs receive -s dst/res", "resume-rest");
    world.check_files("dst/res@c", "dst/res@c");
    world.bad("zfs receive -s dst/more", &part);
    world.good("zfs receive -A dst/more", &[]);
    assert_eq!(world.names("filesystem", "dst"), ["dst", "dst/res"]);
    assert_eq!(
        world.bad("zfs receive -A dst/res", &[]),
        "'dst/res' does not have any resumable receive state to abort\n"
    );
    let mut damaged = full.clone();
    damaged[full.len() / 2] ^= 1;
    assert_eq!(
        world.bad("zfs receive dst/bad", &damaged),
        "cannot receive new filesystem stream: invalid stream (checksum mismatch)\n"
    );
    world.judge();
}

#[test]
fn packages_bring_datasets_with_properties_and_their_shape() {
    let world = World::new();
    world.receive("zfs receive dst/tree", "replicate-r2");
    let heads = |world: &World| world.names("filesystem,volume", "dst/tree");
    assert_eq!(heads(&world), ["dst/tree", "dst/tree/cl", "dst/tree/deux", "dst/tree/one", "dst/tree/vol"]);
    assert_eq!(world.property("dst/tree", "compression"), "gzip received");
    assert_eq!(world.property("dst/tree", "com.example:k"), "v received");
    assert_eq!(world.property("dst/tree/one", "compression"), "gzip inherited from dst/tree");
    assert_eq!(world.property("dst/tree/one", "quota"), "50M received");
    assert_eq!(world.property("dst/tree/deux", "recordsize"), "32K received");
    assert_eq!(world.property("dst/tree/cl", "origin"), "dst/tree/one@r1 -");
    world.check_files("dst/tree/cl@r2", "dst/tree/cl@r2");
    // What the sender does not have goes; names follow.
    world.good("zfs create dst/tree/mine", &[]);
    world.good("zfs rename dst/tree/deux dst/tree/other", &[]);
    world.good("zfs snapshot dst/tree/one@mine", &[]);
    world.receive("zfs receive -F dst/tree", "replicate-r2-r3");
    assert_eq!(
        heads(&world),
        ["dst/tree", "dst/tree/cl", "dst/tree/deux", "dst/tree/one", "dst/tree/three", "dst/tree/vol"]
    );
    for snapshot in ["dst/tree/one@r3", "dst/tree/cl@r3"] {
        world.check_files(snapshot, snapshot);
    }
    assert!(!world.names("snapshot", "dst/tree").iter().any(|name| name.ends_with("@mine")));
    world.judge();
}

#[test]
fn intervals_are_received_from_where_the_dataset_is() {
    let world = World::new();
    world.receive("zfs receive dst/full2", "full");
    world.receive("zfs receive dst/full2", "incr-a-b");
    let told = world.good("zfs receive -v dst/full2", &testkit::stream("interval-a-c"));
    assert!(told.contains("\nsnap dst/full2@b already exists; ignoring\n"), "{told}");
    world.check_files("dst/full2@c", "dst/full2@c");
    world.judge();
}

#[test]
fn clones_find_their_origin() {
    let world = World::new();
    world.receive("zfs receive dst/one", "full-one-r1");
    world.receive("zfs receive dst/cl", "clone-origin");
    world.receive("zfs receive -o origin=dst/one@r1 dst/cl2", "clone-origin");
    for clone in ["dst/cl", "dst/cl2"] {
        assert_eq!(world.property(clone, "origin"), "dst/one@r1 -");
        world.check_files(&format!("{clone}@r2"), "dst/cl@r2");
    }
    world.good("zfs destroy -R dst/one@r1", &[]);
    assert_eq!(
        world.bad("zfs receive dst/cl3", &testkit::stream("clone-origin")),
        "cannot receive new filesystem stream: local origin for clone dst/cl3@r2 does not exist\n"
    );
    world.judge();
}

#[test]
fn properties_are_overridden_and_excluded() {
    let world = World::new();
    let line = "zfs receive -o atime=off -o compression=lz4 -x com.example:k -x quota dst/tree";
    world.receive(line, "replicate-r2");
    assert_eq!(world.property("dst/tree", "atime"), "off local");
    assert_eq!(world.property("dst/tree/one", "atime"), "off inherited from dst/tree");
    assert_eq!(world.property("dst/tree", "compression"), "lz4 local");
    assert_eq!(world.property("dst/tree", "com.example:k"), "- -");
    assert_eq!(world.property("dst/tree/one", "quota"), "none default");
    let received = world.good("zfs get -H -o received quota,recordsize dst/tree/one", &[]);
    assert_eq!(received, "50M\n-\n");
    world.good("zfs inherit -S compression dst/tree", &[]);
    assert_eq!(world.property("dst/tree", "compression"), "gzip received");
    world.judge();
}

#[test]
fn holds_are_received_unless_they_are_not_wanted() {
    let world = World::new();
    world.receive("zfs receive dst/held@x", "full-holds");
    assert!(world.good("zfs holds -H dst/held@x", &[]).starts_with("dst/held@x\tkeepme\t"));
    world.receive("zfs receive -h dst/free", "full-holds");
    assert_eq!(world.good("zfs holds -H dst/free@c", &[]), "");
    world.judge();
}

#[test]
fn volumes_are_received() {
    let world = World::new();
    world.receive("zfs receive dst/vol", "zvol-full");
    world.receive("zfs receive dst/vol", "zvol-incr");
    assert_eq!(world.names("volume,snapshot", "dst/vol"), ["dst/vol", "dst/vol@r1", "dst/vol@r2"]);
    assert_eq!(world.property("dst/vol", "volsize"), "4M local");
    world.judge();
}
