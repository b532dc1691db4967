//! `cenote replicate` between two pools, by a daemon and in process, through commands, and to folders of streams.
// Tests do not run for a client, so they may use the process's own streams.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]
// Tests use `std` to make files.
#![allow(clippy::disallowed_types, missing_docs)]

use crate::daemon_support::Ran;
use crate::daemon_support::folder::Folder;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A folder with the pools `src` and `dst`.
struct World {
    folder: tempfile::TempDir,
    /// Commands run in their own processes, without a daemon.
    is_direct: bool,
}

impl Folder for World {
    fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn command(&self, words: &str) -> Command {
        let mut command = crate::daemon_support::cenote(self.folder(), "run/socket", words);
        command.current_dir(self.folder()).stdin(Stdio::null());
        command.env("CENOTE_REPLICATE", self.path("policies.toml")).env("CENOTE_REPLICATE_LOOK_MS", "100");
        if self.is_direct {
            command.env("CENOTE_DIRECT", "1").env("CENOTE_DEVICES", self.path("devices"));
        }
        command
    }
}

impl World {
    fn new(is_direct: bool) -> World {
        let world = World { folder: tempfile::tempdir().expect("a folder"), is_direct };
        std::fs::create_dir(world.path("devices")).expect("made");
        for pool in ["src", "dst"] {
            let image = world.path(&format!("devices/{pool}"));
            std::fs::File::create(image).and_then(|file| file.set_len(256 << 20)).expect("sparse");
            world.good(&format!("zpool create -O mountpoint=none {pool} ~/devices/{pool}"));
        }
        world.good("zfs create src/a");
        world.good("zfs create src/a/b");
        world
    }

    /// Writes a file with these bytes into a dataset.
    fn put(&self, dataset: &str, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("written");
        self.good(&format!("cp ~/{name} {dataset}:/{name}"));
    }

    fn cat(&self, dataset: &str, name: &str) -> String {
        self.good(&format!("cat {dataset}:/{name}"))
    }

    fn snapshots(&self, dataset: &str) -> Vec<String> {
        let text = self.good(&format!("zfs list -H -o name -t snapshot -d 1 {dataset}"));
        text.lines().filter_map(|name| name.split_once('@')).map(|(_, name)| name.to_owned()).collect()
    }

    fn policies(&self, text: &str) {
        let text = text.replace('~', self.folder().to_str().expect("text"));
        std::fs::write(self.path("policies.toml"), text).expect("written");
    }

    fn bad(&self, words: &str, code: i32) -> Ran {
        let ran = self.run(words);
        assert_eq!(ran.code, Some(code), "{words}: {ran:?}");
        ran
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if !self.is_direct {
            let _ = self.command("daemon --stop").output();
        }
    }
}

/// Waits until the clock shows another second: names of snapshots have no smaller unit.
fn next_second() {
    std::thread::sleep(Duration::from_millis(1010));
}

#[test]
fn twenty_rounds_in_process() {
    let world = World::new(true);
    let policy = "[policy.t]\nfrom = \"src/a\"\nto = \"dst/a\"\nrecursive = true\nparallel = 2\n\
                  keep-source = { last = 2 }\nkeep-target = { last = 4 }\ndestroyed = \"destroy\"\n";
    world.policies(policy);
    for round in 0..20 {
        world.put("src/a", "file", &format!("round {round}"));
        match round {
            3 => drop(world.good("zfs create src/a/new")),
            6 => drop(world.good("zfs rename src/a/new src/a/b/moved")),
            9 => drop(world.good("zfs destroy -r src/a/b/moved")),
            15 => {
                // Into a dataset that the target does not have yet.
                world.good("zfs create src/a/up");
                world.good("zfs rename src/a/b src/a/up/b");
            }
            17 => {
                world.good("zfs rename src/a/up/b src/a/b");
                world.good("zfs destroy -r src/a/up");
            }
            12 => {
                // The bookmark is what is left.
                let all = world.snapshots("src/a").join(",");
                world.good(&format!("zfs destroy src/a@{all}"));
            }
            _ => {}
        }
        let verify = if round % 5 == 0 { "--verify" } else { "" };
        world.good(&format!("replicate run t {verify}"));
        assert_eq!(world.cat("dst/a", "file"), format!("round {round}"));
        let names = world.good("zfs list -H -o name -r dst/a");
        match round {
            3..6 => assert_eq!(names, "dst/a\ndst/a/b\ndst/a/new\n"),
            6..9 => assert_eq!(names, "dst/a\ndst/a/b\ndst/a/b/moved\n"),
            15..17 => assert_eq!(names, "dst/a\ndst/a/up\ndst/a/up/b\n"),
            _ => assert_eq!(names, "dst/a\ndst/a/b\n"),
        }
        next_second();
    }
    let (source, target) = (world.snapshots("src/a"), world.snapshots("dst/a"));
    assert!(source.len() <= 3 && (4..=5).contains(&target.len()), "{source:?} {target:?}");
    assert_eq!(source.last(), target.last());
    // The newest common snapshot is held, and cannot be destroyed.
    let last = target.last().expect("one");
    let refused = world.bad(&format!("zfs destroy dst/a@{last}"), 1);
    assert!(refused.err.contains("dataset is busy") || refused.err.contains("held"), "{refused:?}");
    // Nothing in common any more: refused with advice, and nothing is changed.
    let marks = world.good("zfs list -H -o name -t bookmark -r src/a");
    marks.lines().for_each(|mark| drop(world.good(&format!("zfs destroy {mark}"))));
    for dataset in ["src/a", "src/a/b"] {
        let all = world.snapshots(dataset).join(",");
        world.good(&format!("zfs destroy {dataset}@{all}"));
    }
    let refused = world.bad("replicate run t", 1);
    assert!(refused.err.contains("zfs rename dst/a dst/a.old"), "{refused:?}");
    assert_eq!(world.snapshots("dst/a"), target);
    world.good("zfs rename dst/a dst/a.old");
    next_second();
    world.good("replicate run t --verify");
    let status = world.good("replicate status -j");
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    let row = &status["policies"]["t"];
    assert_eq!((&row["state"], &row["last_run"]["runs"]), (&"ok".into(), &22.into()), "{row}");
    assert!(world.good("replicate status --openmetrics").ends_with("# EOF\n"));
    assert!(world.good("replicate check").contains("copies src/a to dst/a"));
}

#[test]
fn within_one_pool_and_without_a_file() {
    let world = World::new(true);
    world.put("src/a", "file", "one");
    let said = world.good("replicate src/a src/copy --name n -v");
    assert!(said.contains("as a whole") && said.contains(" sent"), "{said}");
    assert_eq!(world.cat("src/copy", "file"), "one");
    assert_eq!(world.good("zfs get -H -o value readonly src/copy"), "on\n");
    // A dry run changes nothing.
    world.put("src/a", "file", "two");
    next_second();
    let said = world.good("replicate src/a src/copy --name n -n");
    assert!(said.contains("take the snapshot") && said.contains("send @cenote_n_"), "{said}");
    assert_eq!(world.cat("src/copy", "file"), "one");
    // A dataset that is there and is no copy is left alone.
    world.good("zfs create dst/mine");
    let refused = world.bad("replicate src/a dst/mine", 1);
    assert!(refused.err.contains("is not a copy of 'src/a'"), "{refused:?}");
    for (words, why) in [
        ("replicate src/a -- -r", "'-r' is not the name of a dataset"),
        ("replicate src/a", "a source and a target"),
        ("replicate src/a ssh://-oX/dst", "is not a host"),
        ("replicate nosuch", "policies.toml"),
        ("replicate src/a dst/x --keep 5", "is not a part of a grid"),
    ] {
        let refused = world.bad(words, 2);
        assert!(refused.err.contains(why), "{words}: {refused:?}");
    }
}

#[test]
fn through_commands_and_a_daemon() {
    let world = World::new(false);
    world.put("src/a", "file", "one");
    let binary = env!("CARGO_BIN_EXE_cenote");
    let mut text = "[policy.c]\nfrom = \"src/a\"\nrecursive = true\n".to_owned();
    let _ = writeln!(text, "to = {{ command = [\"env\", \"{binary}\"], dataset = \"dst/c\" }}");
    text.push_str("keep-source = { last = 1 }\nkeep-target = \"1x1h(keep=all)\"\n");
    // A shell in the place of ssh: the last word is a command line.
    let shell = "#!/bin/sh\nfor last; do :; done\nexec sh -c \"$last\"\n";
    std::fs::write(world.path("ssh"), shell).expect("written");
    rustix::fs::chmod(world.path("ssh"), rustix::fs::Mode::from_raw_mode(0o700)).expect("changed");
    let _ = write!(
        text,
        "[policy.s]\nfrom = \"ssh://host:22/src/a\"\nto = \"dst/s\"\nssh = [\"~/ssh\"]\n\
         zfs = [\"{binary}\", \"zfs\"]\nverify = true\nzstd = {}\n",
        testkit::need_tool("zstd").is_some()
    );
    world.policies(&text);
    world.good("replicate run -v");
    assert_eq!((world.cat("dst/c", "file"), world.cat("dst/s", "file")), ("one".into(), "one".into()));
    world.put("src/a", "file", "two");
    next_second();
    world.good("replicate run c s --verify");
    assert_eq!((world.cat("dst/c", "file"), world.cat("dst/s", "file")), ("two".into(), "two".into()));
    let holds = world.snapshots("dst/c").iter().map(|name| format!(" dst/c@{name}")).collect::<String>();
    let holds = world.good(&format!("zfs holds -H{holds}"));
    assert!(holds.lines().count() == 1 && holds.contains("cenote_c"), "{holds}");
    // A daemon starts no programs for its clients.
    let refused = world.bad("verb replicate {}", 2);
    assert!(refused.err.contains("no verb"), "{refused:?}");
}

#[test]
fn the_daemon_keeps_to_the_schedule() {
    let world = World::new(false);
    world.put("src/a", "file", "one");
    world.policies("[policy.d]\nfrom = \"src/a\"\nto = \"dst/d\"\nevery = \"1s\"\n");
    let until = Instant::now() + Duration::from_secs(60);
    let has = |text: &str| world.run("cat dst/d:/file").out == text;
    while !has("one") {
        assert!(Instant::now() < until, "{}", world.log());
        std::thread::sleep(Duration::from_millis(100));
    }
    world.put("src/a", "file", "two");
    while !has("two") {
        assert!(Instant::now() < until, "{}", world.log());
        std::thread::sleep(Duration::from_millis(100));
    }
    // A file that others may write runs nothing.
    rustix::fs::chmod(world.path("policies.toml"), rustix::fs::Mode::from_raw_mode(0o666)).expect("changed");
    let refused = world.bad("replicate status", 2);
    assert!(refused.err.contains("others may write it"), "{refused:?}");
    while !world.log().contains("others may write it") {
        assert!(Instant::now() < until, "{}", world.log());
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The properties of a tree may choose the target `t`.
const TARGET: &str = "[target.t]\nfrom = \"src\"\nto = \"dst\"\nevery = \"1s\"\n";

fn status(world: &World) -> serde_json::Value {
    let text = world.run("replicate status -j").out;
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}\n{}", world.log()))
}

/// Waits until something is so.
fn wait_for(world: &World, what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < until, "{what}: {}\n{}", status(world), world.log());
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn the_daemon_runs_policies_of_properties() {
    let world = World::new(false);
    world.put("src/a", "file", "one");
    world.policies(TARGET);
    let has = |dataset: &str, text: &str| world.run(&format!("cat {dataset}:/file")).out == text;
    world.good("zfs set org.cenote:replicate.target=t src/a");
    wait_for(&world, "a dataset is copied", || has("dst/a", "one"));
    world.put("src/a", "file", "two");
    wait_for(&world, "a change is copied", || has("dst/a", "two"));
    // The properties of one dataset do not concern those of others.
    world.good("zfs set org.cenote:replicate.to=dst/x src/a/b");
    world.good("zfs create -o org.cenote:replicate.target=t src/new");
    world.put("src/new", "file", "new");
    wait_for(&world, "a new dataset is copied", || has("dst/new", "new"));
    let said = status(&world);
    assert!(
        said["refused"]["src/a/b"].as_str().is_some_and(|why| why.contains("unknown field `to`")),
        "{said}"
    );
    assert_eq!(said["policies"].as_object().map(serde_json::Map::len), Some(2), "{said}");
    assert_eq!(world.bad("replicate check", 2).err.lines().count(), 1);
    // A copy goes where its source went.
    world.good("zfs rename src/a src/z");
    world.put("src/z", "file", "three");
    wait_for(&world, "a renamed dataset is copied", || has("dst/z", "three"));
    assert_eq!(world.run("zfs list dst/a").code, Some(1));
    // Without its properties nothing is copied any more.
    world.good("zfs inherit org.cenote:replicate.target src/z");
    world.good("zfs destroy -r src/new");
    let gone =
        |name: &str| world.log().matches("a policy in properties is gone").count() == 2 && has(name, "new");
    wait_for(&world, "both policies are gone", || gone("dst/new"));
    assert_eq!(status(&world)["policies"], serde_json::json!({}));
    // Wrong targets are wrong files.
    world.policies("[target.t]\nfrom = \"src\"\nto = \"src/copies\"\n");
    assert!(world.bad("replicate status", 2).err.contains("one side is within the other"));
}

#[test]
fn a_user_with_properties_decides_little() {
    if !testkit::need_root() || !testkit::need_file("/usr/bin/setpriv") {
        return;
    }
    let world = World::new(false);
    let open = rustix::fs::Mode::from_raw_mode(0o755);
    rustix::fs::chmod(world.folder(), open).expect("changed");
    std::fs::copy(env!("CARGO_BIN_EXE_cenote"), world.path("cenote")).expect("copied");
    let set = |property: &str, dataset: &str| {
        let mut command = Command::new("/usr/bin/setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(world.path("cenote"));
        command.args(["zfs", "set", property, dataset]).env_clear().stdin(Stdio::null());
        command.env("CENOTE_SOCKET", world.path("run/socket")).env("CENOTE_NO_START", "1");
        let output = command.current_dir("/").output().expect("it starts");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for name in ["src/secret", "dst/other"] {
        world.good(&format!("zfs create {name}"));
    }
    world.put("src/secret", "file", "secret");
    world.put("dst/other", "file", "other");
    world.put("src/a", "file", "mine");
    world.good("zfs allow -u 65534 userprop src/a");
    let marker = world.path("marker");
    let touch = format!("[\"touch\", \"{}\"]", marker.display());
    world.policies(&TARGET.replace("to = ", "keep-target = { last = 2 }\nto = "));
    let is_refused = |why: &str| {
        let said = status(&world);
        assert!(said["refused"]["src/a"].as_str().is_some_and(|text| text.contains(why)), "{why}: {said}");
        assert_eq!(said["policies"], serde_json::json!({}), "{why}");
        assert_eq!(world.bad("replicate run", 1).err.lines().count(), 1);
    };
    let other = set("org.cenote:replicate.target=t", "src/secret");
    assert!(!other.0 && other.1.contains("permission denied"), "{other:?}");
    assert!(set("org.cenote:replicate.target=t", "src/a/b").0);
    assert!(set("org.cenote:replicate.target=none", "src/a/b").0);
    for (field, value, why) in [
        ("to", format!("{{ command = {touch}, dataset = \"dst/other\" }}"), "unknown field `to`"),
        ("to", "ssh://evil/pool".to_owned(), "unknown field `to`"),
        ("to", "file:///etc/cron.d".to_owned(), "unknown field `to`"),
        ("from", "src/secret".to_owned(), "unknown field `from`"),
        ("ssh", touch.clone(), "unknown field `ssh`"),
        ("zfs", touch, "unknown field `zfs`"),
        ("force", "true".to_owned(), "unknown field `force`"),
        ("set", "{ mountpoint = \"/etc\" }".to_owned(), "unknown field `set`"),
        ("keep-target", "{ last = 1 }".to_owned(), "decides 'keep-target'"),
        ("target", "nosuch".to_owned(), "no target 'nosuch'"),
    ] {
        let said = set(&format!("org.cenote:replicate.{field}={value}"), "src/a");
        assert!(said.0, "{said:?}");
        if field != "target" {
            assert!(set("org.cenote:replicate.target=t", "src/a").0);
        }
        let text = status(&world)["refused"]["src/a"].to_string();
        assert!(text.contains(why), "{why}: {text}");
        world.good(&format!("zfs inherit org.cenote:replicate.{field} src/a"));
    }
    // A line break makes no property of another dataset.
    let forged = "no\nsrc/secret\torg.cenote:replicate.target\tt";
    let said = set(&format!("org.cenote:replicate.target={forged}"), "src/a");
    if said.0 {
        world.good("zfs inherit org.cenote:replicate.target src/a/b");
        is_refused("no target 'no");
    }
    assert!(set("org.cenote:replicate.target=t", "src/a").0);
    wait_for(&world, "it is copied", || world.run("cat dst/a:/file").out == "mine");
    assert!(!marker.exists() && world.cat("dst/other", "file") == "other");
    assert_eq!(world.good("zfs list -H -o name -r dst"), "dst\ndst/a\ndst/other\n");
}

#[test]
fn policies_of_properties_in_process() {
    let world = World::new(true);
    // Nobody has asked for a file.
    let nothing = world.good("replicate status");
    assert!(nothing.starts_with("there are no policies: ") && nothing.lines().count() == 1, "{nothing}");
    assert!(world.good("replicate status --openmetrics").ends_with("# EOF\n"));
    let missing = world.bad("replicate status --policy-file ~/none", 2);
    assert!(missing.err.contains("No such file or directory"), "{missing:?}");
    world.bad("replicate status nosuch", 2);
    world.put("src/a", "file", "one");
    world.policies(TARGET);
    world.good("zfs set org.cenote:replicate.target=t src/a");
    world.good("zfs set org.cenote:replicate.ssh=x src/a/b");
    let refused = world.bad("replicate run", 1);
    assert!(refused.err.contains("src/a/b") && refused.err.contains("unknown field `ssh`"), "{refused:?}");
    assert_eq!(world.cat("dst/a", "file"), "one");
    next_second();
    world.good("zfs rename src/a src/z");
    let name = status(&world)["policies"].as_object().and_then(|all| all.keys().next().cloned());
    world.good(&format!("replicate run {} --verify", name.expect("a policy")));
    assert_eq!(world.good("zfs list -H -o name -r dst"), "dst\ndst/z\n");
}

/// A target that claims to have received a part of a stream that is not raw.
#[test]
fn a_token_does_not_get_what_is_encrypted() {
    for is_direct in [true, false] {
        let world = World::new(is_direct);
        let stream = world.path("stream");
        std::fs::write(&stream, testkit::stream("raw-full")).expect("written");
        let stream = std::fs::File::open(stream).expect("there");
        let received = world.command("zfs receive -u src/sec").stdin(stream).output().expect("it starts");
        assert!(received.status.success(), "{}", String::from_utf8_lossy(&received.stderr));
        let mut list = format::NvList::new();
        for (name, number) in [("object", 0), ("offset", 0), ("bytes", 0)] {
            list.push(name, number as u64);
        }
        let guid: u64 = world.good("zfs get -Hpo value guid src/sec@1").trim().parse().expect("a number");
        list.push("toguid", guid);
        list.push("toname", "src/sec@1");
        let token = cenote::stream::ResumeToken { list };
        let script = format!(
            "#!/bin/sh\nshift\ncase $1 in\nlist) case $* in *guid*) printf 'x/copy\\t7\\t1\\t1\\t-\\t{token}\\n' ;; esac ;;\n\
             get) echo - ;;\nreceive) case $* in *-A*) echo aborted >>{0}/aborted ;; *) cat >>{0}/stolen ;; esac ;;\nesac\n",
            world.folder().display()
        );
        std::fs::write(world.path("target"), script).expect("written");
        world.policies(
            "[policy.p]\nfrom = \"src/sec\"\nto = { command = [\"sh\", \"~/target\"], dataset = \"x/copy\" }\n\
             raw = true\nsnapshot = false\nalso = [\"1\"]\nadopt = true\n",
        );
        let refused = world.bad("replicate run p", 1);
        assert!(refused.err.contains("is to be continued decrypted"), "{refused:?}");
        assert!(world.path("aborted").exists() && !world.path("stolen").exists(), "{refused:?}");
    }
}

#[test]
fn runs_in_the_same_second_succeed() {
    for is_direct in [true, false] {
        let world = World::new(is_direct);
        world.policies("[policy.p]\nfrom = \"src/a\"\nto = \"dst/copy\"\n");
        for _ in 0..4 {
            world.good("replicate run p");
        }
    }
}

/// The index of a folder has a name that no dataset has: the folders of datasets below are beside it.
#[test]
fn datasets_are_no_files_of_the_folder_of_streams_above() {
    let world = World::new(true);
    world.good("zfs create src/a/index.json");
    world.policies("[target.t]\nfrom = \"src/a\"\nto = \"file://~/streams\"\n");
    world.good("zfs set org.cenote:replicate.target=t src/a/index.json");
    world.good("replicate run");
    world.good("zfs set org.cenote:replicate.target=t src/a");
    next_second();
    world.good("replicate run");
    assert!(
        world.path("streams/index.json/@index.json").is_file() && world.path("streams/@index.json").is_file()
    );
}

#[test]
fn folders_of_streams() {
    let world = World::new(true);
    world.policies(
        "[policy.f]\nfrom = \"src/a\"\nto = \"file://~/streams\"\nrecursive = true\nkeep-target = { last = 1 }\n",
    );
    for round in 0..3 {
        world.put("src/a", "file", &format!("round {round}"));
        world.good("replicate run f --verify");
        next_second();
    }
    let folder = world.path("streams/streams");
    let mut files: Vec<_> =
        std::fs::read_dir(&folder).expect("a folder").map(|e| e.expect("an entry").path()).collect();
    files.retain(|path| path.extension().is_some_and(|kind| kind == "zfs"));
    files.sort();
    // The chain is whole, though one snapshot is kept.
    assert_eq!(files.len(), 3, "{files:?}");
    for (file, from) in files.iter().zip([true, false, false]) {
        assert_eq!(file.to_string_lossy().ends_with(".full.zfs"), from, "{files:?}");
        let stream = std::fs::File::open(file).expect("a stream");
        let received = world.command("zfs receive -u dst/by-hand").stdin(stream).output().expect("it starts");
        assert!(received.status.success(), "{}", String::from_utf8_lossy(&received.stderr));
    }
    assert_eq!(world.cat("dst/by-hand", "file"), "round 2");
    assert!(world.good(&format!("stream cat {} :/file", files[0].display())).contains("round 0"));
    // The way back.
    world.good("replicate file://~/streams dst/back --recursive --name back --verify");
    assert_eq!(world.cat("dst/back", "file"), "round 2");
    assert_eq!(world.good("zfs list -H -o name -r dst/back"), "dst/back\ndst/back/b\n");
    // A stream that is damaged is found.
    let last = files.last().expect("one");
    let mut bytes = std::fs::read(last).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(last, bytes).expect("written");
    world.policies("[policy.f]\nfrom = \"src/a\"\nto = \"file://~/streams\"\nsnapshot = false\n");
    let refused = world.bad("replicate run f --verify", 1);
    assert!(refused.err.contains("the stream"), "{refused:?}");
}
