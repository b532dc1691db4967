//! What a daemon reports of its pools: `zpool iostat`, `zpool events`, `fsstat`, kstat files and metrics.
// Tests do not run for a client, so they may use the process's own streams.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]
// Tests use `std` to make and damage files.
#![allow(clippy::disallowed_types, missing_docs)]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Length of an image in bytes.
const IMAGE: u64 = 256 << 20;

/// A folder with images, and a daemon of its own.
struct World {
    folder: tempfile::TempDir,
}

impl World {
    fn new() -> World {
        let world = World { folder: tempfile::tempdir().expect("a folder") };
        for image in ["a", "b", "c"] {
            let file = std::fs::File::create(world.path(image)).expect("made");
            file.set_len(IMAGE).expect("sparse");
        }
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
        let words = words.replace("~", self.folder.path().to_str().expect("text"));
        command.args(words.split_whitespace()).env_clear().env("TZ", "UTC0").env("PATH", "/usr/bin:/bin");
        command.env("CENOTE_SOCKET", self.path("run/socket")).env("CENOTE_STATE", self.path("state"));
        command.env("CENOTE_KSTAT", self.path("control"));
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    fn run(&self, words: &str) -> (Option<i32>, String, String) {
        let output = self.command(words).output().expect("it starts");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    fn good(&self, words: &str) -> String {
        let (code, out, err) = self.run(words);
        assert!(code == Some(0), "{words}: {code:?}\n{out}\n{err}");
        out
    }

    fn create(&self) {
        self.good("zpool create -O mountpoint=none tank mirror ~/a ~/b");
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.command("daemon --stop").output();
    }
}

/// Whether FUSE mounts can be made here.
fn can_mount() -> bool {
    std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok()
        && rustix::process::geteuid().is_root()
}

#[test]
fn iostat_counts_what_happens_between_two_samples() {
    let world = World::new();
    world.create();
    let out = world.good("zpool iostat -v tank");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 8, "{out}");
    assert!(lines[0].trim_start().starts_with("capacity     operations     bandwidth"), "{out}");
    assert!(
        lines[1].starts_with("pool ") && lines[3].starts_with("tank ") && lines[4].starts_with("  mirror-0")
    );
    let rates: Vec<&str> = lines[3].split_whitespace().collect();
    assert_ne!(rates[4], "0", "making a pool writes: {out}");
    // An idle pool has no operations in the second interval.
    let out = world.good("zpool iostat -Hp -y tank 1 1");
    assert_eq!(out.split('\t').count(), 7, "{out}");
    let out = world.good("zpool iostat -wHp tank");
    let sum = |column: usize| -> u64 {
        out.lines().skip(2).map(|line| line.split('\t').nth(column).unwrap().parse::<u64>().unwrap()).sum()
    };
    assert!(sum(2) > 0 && sum(2) == sum(4), "each write has a time in all and one in the device: {out}");
    let out = world.good("zpool iostat -rHp tank");
    assert_eq!(out.lines().count(), 2 + 16, "{out}");
    let (code, _, err) = world.run("zpool iostat nopool");
    assert_eq!((code, err.trim()), (Some(1), "Unable to parse pools/vdevs list."));
    let (code, _, err) = world.run("zpool iostat tank nodev");
    assert_eq!(code, Some(2));
    assert!(err.starts_with("Expected either a list of pools, or list of vdevs in \"tank\", but got:\n\tnodev (unknown)\n\nusage:\n"), "{err}");
    let (code, _, err) = world.run("zpool iostat -lw tank");
    assert_eq!(code, Some(2));
    assert!(err.starts_with("[-r|-w] isn't allowed with [-c|-l|-q]\nusage:\n\tiostat "), "{err}");
}

#[test]
fn events_go_on_over_pools_and_can_be_followed() {
    let world = World::new();
    world.create();
    world.good("zfs create tank/fs");
    let out = world.good("zpool events -H tank");
    let classes: Vec<&str> = out.lines().filter_map(|line| line.split('\t').nth(1)).collect();
    assert_eq!(classes.first(), Some(&"sysevent.fs.zfs.pool_create"), "{out}");
    assert!(
        classes.contains(&"sysevent.fs.zfs.history_event")
            && classes.contains(&"sysevent.fs.zfs.config_sync")
    );
    let verbose = world.good("zpool events -v");
    assert!(verbose.starts_with("TIME                           CLASS\n"), "{verbose}");
    assert!(verbose.contains("\n        history_dsname = \"tank/fs\"\n"), "{verbose}");
    assert_eq!(world.good("zpool events -H nopool"), "");
    let cleared = world.good("zpool events -c");
    assert_eq!(cleared, format!("cleared {} events\n", classes.len()));
    assert_eq!(world.good("zpool events"), "TIME                           CLASS\n");
    let mut follower = world.command("zpool events -Hf").stdout(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(follower.stdout.take().expect("a pipe")).lines();
    world.good("zpool export tank");
    let first = lines.next().expect("a line").expect("text");
    assert!(first.ends_with("\tsysevent.fs.zfs.pool_export"), "{first}");
    world.good("zpool import -d ~ tank");
    let import = lines.find(|line| line.as_ref().is_ok_and(|line| line.ends_with("pool_import")));
    assert!(import.is_some());
    rustix::process::kill_process(rustix::process::Pid::from_child(&follower), rustix::process::Signal::INT)
        .expect("it is there");
    follower.wait().expect("it ends");
    let (code, _, err) = world.run("zpool events -c tank");
    assert_eq!(code, Some(2));
    assert!(
        err.starts_with("invalid options combined with -c\nusage:\n\tevents [-vHf [pool] | -c]\n"),
        "{err}"
    );
}

/// A process without knowledge of the pool finds that the devices with its data are held.
#[test]
fn labels_of_a_pool_that_a_daemon_has_open_are_not_cleared() {
    let world = World::new();
    for image in ["l", "s", "x"] {
        let file = std::fs::File::create(world.path(image)).expect("made");
        file.set_len(IMAGE).expect("sparse");
    }
    world.good("zpool create -O mountpoint=none tank mirror ~/a ~/b log ~/l cache ~/c spare ~/s");
    world.good("zpool add tank cache ~/x");
    let sums = || ["a", "b", "l", "c", "s", "x"].map(|name| testkit::sha256(&label(&world.path(name))));
    let before = sums();
    for name in ["a", "b", "l", "c", "s", "x"] {
        for stranger in [false, true] {
            // Labels of cache devices and spares name no pool, and these devices have no data yet.
            if stranger && ["c", "s", "x"].contains(&name) {
                continue;
            }
            let mut command = world.command(&format!("zpool labelclear -f ~/{name}"));
            if stranger {
                command.env("CENOTE_STATE", world.path("another")).env("CENOTE_DIRECT", "1");
            }
            let output = command.output().expect("it starts");
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success() && text.contains("is a member ("), "{name} {stranger}: {text}");
        }
    }
    assert!(before == sums(), "labels have changed");
}

/// The part of a label that an idle pool does not write: the names of its devices.
fn label(path: &std::path::Path) -> Vec<u8> {
    let mut file = std::fs::File::open(path).expect("there");
    let mut bytes = vec![0; 128 << 10];
    std::io::Read::read_exact(&mut file, &mut bytes).expect("long enough");
    bytes
}

#[test]
fn counters_are_shown_as_files_and_metrics() {
    let world = World::new();
    world.create();
    let out = world.good("kstat");
    assert!(out.contains("== tank/state\nONLINE\n"), "{out}");
    world.good("kstat -o ~/files");
    let read =
        |name: &str| std::fs::read_to_string(world.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(read("files/kstat/zfs/tank/state"), "ONLINE\n");
    assert_eq!(
        read("files/kstat/zfs/tank/guid").trim(),
        world.good("zpool get -H -o value guid tank").trim()
    );
    assert!(read("files/kstat/zfs/tank/txgs").lines().count() > 2);
    assert_eq!(read("files/parameters/zfs_txg_timeout"), "5\n");
    world.good("daemon --stop");
    let mut again = world.command("zpool list tank");
    again.env("CENOTE_PARAMETERS", "zfs_txg_timeout=7").stdout(Stdio::null());
    assert!(again.status().expect("it starts").success());
    world.good("kstat -o ~/files");
    assert_eq!(read("files/parameters/zfs_txg_timeout"), "7\n");
    let metrics = world.good("metrics");
    assert!(metrics.contains("zfs_pool_online{pool=\"tank\"} 1\n"), "{metrics}");
    assert!(metrics.ends_with("# EOF\n"));
}

#[test]
fn counters_and_parameters_are_mounted() {
    if !can_mount() {
        testkit::skip("nothing can be mounted here");
        return;
    }
    let world = World::new();
    world.create();
    let read = |name: &str| std::fs::read_to_string(world.path("control").join(name));
    assert_eq!(read("kstat/zfs/tank/state").unwrap(), "ONLINE\n");
    assert!(read("kstat/zfs/arcstats").unwrap().contains("\nhits "));
    assert_eq!(read("parameters/zfs_txg_timeout").unwrap(), "5\n");
    std::fs::write(world.path("control/parameters/zfs_txg_timeout"), "7").unwrap();
    assert_eq!(read("parameters/zfs_txg_timeout").unwrap(), "7\n");
    assert!(std::fs::write(world.path("control/parameters/zfs_txg_timeout"), "many").is_err());
    assert!(std::fs::write(world.path("control/parameters/zfs_multihost_interval"), "99").is_err());
    let change = |name: &str| world.good(&format!("zfs create tank/{name}"));
    change("one");
    change("two");
    assert!(read("kstat/zfs/tank/txgs").unwrap().lines().count() > 3);
    std::fs::write(world.path("control/parameters/zfs_txg_history"), "1").unwrap();
    change("three");
    assert_eq!(read("kstat/zfs/tank/txgs").unwrap().lines().count(), 3, "one, the open one, and a heading");
    let heading = "id         txg        timestamp  error  duration   mmp_delay        vdev_guid                vdev_label vdev_path\n";
    assert_eq!(read("kstat/zfs/tank/multihost").unwrap(), heading);
    world.good("zpool export tank");
    assert!(read("kstat/zfs/tank/state").is_err());
    world.good("daemon --stop");
    assert!(read("parameters/zfs_txg_timeout").is_err(), "it ends with the daemon");
}

#[test]
fn fsstat_counts_what_programs_ask() {
    if !can_mount() {
        testkit::skip("nothing can be mounted here");
        return;
    }
    let world = World::new();
    world.good("zpool create -O mountpoint=~/tank tank ~/c");
    for i in 0..20 {
        std::fs::write(world.path("tank").join(i.to_string()), [7; 1000]).unwrap();
    }
    std::fs::remove_file(world.path("tank/3")).unwrap();
    std::fs::rename(world.path("tank/4"), world.path("tank/new")).unwrap();
    let out = world.good("fsstat -P ~/tank");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0], " new  name   name  attr  attr lookup rddir  read read  write write", "{out}");
    assert_eq!(lines[1], " file remov  chng   get   set    ops   ops   ops bytes   ops bytes", "{out}");
    let cells: Vec<&str> = lines[2].split_whitespace().collect();
    assert_eq!(cells[..3], ["20", "1", "1"], "{out}");
    assert!(cells[11].ends_with("/tank"), "{out}");
    let kinds = world.good("fsstat -P zfs");
    assert!(kinds.lines().nth(2).is_some_and(|line| line.trim_start().starts_with("20 ")), "{kinds}");
    let quiet = world.good("fsstat zfs 1 2");
    let second = quiet.lines().nth(3).expect("a second line");
    assert_eq!(second, "    0     0     0     0     0      0     0     0     0     0     0 zfs", "{quiet}");
    let (code, _, err) = world.run("fsstat /proc");
    assert_eq!(code, Some(1));
    assert_eq!(err, "fsstat: '/proc' is neither a type of file system nor in a mounted one\n");
    let objsets = std::fs::read_dir(world.path("control/kstat/zfs/tank")).unwrap();
    let objset = objsets.flatten().find(|file| file.file_name().to_string_lossy().starts_with("objset-0x"));
    let text = std::fs::read_to_string(objset.expect("the mounted one").path()).unwrap();
    assert!(
        text.contains("dataset_name                    7    tank\n") && text.contains("nunlinks "),
        "{text}"
    );
}

#[test]
fn iostat_shows_what_scripts_say_of_leaves() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::new();
    world.create();
    std::fs::create_dir(world.path("scripts")).expect("made");
    let script = world.path("scripts/kind");
    std::fs::write(&script, "#!/bin/sh\necho kind=${VDEV_PATH##*/}\n").expect("written");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("set");
    let ask = |words: &str, enabled: &str| {
        let mut command = world.command(words);
        command.env("ZPOOL_SCRIPTS_PATH", world.path("scripts")).env("ZPOOL_SCRIPTS_AS_ROOT", "1");
        let output = command.env("ZPOOL_SCRIPTS_ENABLED", enabled).output().expect("it starts");
        let code = output.status.code();
        (code, String::from_utf8(output.stdout).expect("text") + &String::from_utf8_lossy(&output.stderr))
    };
    let (code, text) = ask("zpool iostat -c kind tank", "1");
    let last: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().last()).collect();
    assert_eq!(
        (code, &last[1..2], &last[3..7]),
        (Some(0), &["kind"][..], &["-", "-", "a", "b"][..]),
        "{text}"
    );
    let (code, text) = ask("zpool iostat -H -c kind tank", "1");
    assert!(code == Some(0) && text.lines().all(|line| line.split('\t').count() == 8), "{text}");
    let refused = ask("zpool iostat -c kind tank", "0");
    assert_eq!(refused, (Some(1), "Can't run -c, disabled by ZPOOL_SCRIPTS_ENABLED.\n".to_owned()));
    let (code, text) = ask("zpool iostat -c", "1");
    assert!(code == Some(0) && text.contains("kind"), "{text}");
    assert_eq!(ask("zpool iostat -r -c kind tank", "1").0, Some(2));
}
