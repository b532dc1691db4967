//! `cargo xtask zts`: runs OpenZFS's own test suite, unchanged, on our commands, daemon and mounts.
//!
//! The suite and its runner are not part of the project: the runner is found in `../shared/zts` or through
//! `CENOTE_ZTS`, and the suite is a package of the distribution. This task installs missing programs, builds
//! ours and puts them into a folder under the names that the tests use, starts the runner, and counts the
//! results.
//!
//! Tests that do not pass on files run a second time on loop devices, because some need disks with a name in
//! `/dev`.
//!
//! # What always holds
//! - The result of a test in a run replaces the earlier result of that test only, so results of runs of
//!   single groups add up in `target/zts/results.json`.
//! - `--list rest` stands for the tests in the groups of `core.txt` that are in neither list.
//! - With `--record` the counts are written into `docs/conformance.md`, between two marks. Text outside of
//!   them is kept; a failure that the text does not explain, and an explanation of a test that passes, are
//!   reported.

mod suite;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Map, Value, json};

use crate::{Outcome, judges, must, outside, root};

/// Commands that the suite calls and that our program provides.
const OURS: [&str; 10] = [
    "zpool",
    "zfs",
    "zdb",
    "zstream",
    "zstreamdump",
    "fsstat",
    "cenote",
    "cenoted",
    "zfs_ids_to_path",
    HELPER,
];
/// Helper of `mount -t zfs`: ours replaces that of the kernel module while the suite runs.
const HELPER: &str = "mount.zfs";
/// System programs that tests use: they read pools in files without a kernel module.
const SYSTEMS: [&str; 2] = ["zhack", "zgenhostid"];
/// For each package that scripts of the suite need, a program in it.
const PACKAGES: [(&str, &str); 11] = [
    ("ksh", "ksh"),
    ("xxh128sum", "xxhash"),
    ("pax", "pax"),
    ("jq", "jq"),
    ("bc", "bc"),
    ("fio", "fio"),
    ("getfattr", "attr"),
    ("getfacl", "acl"),
    ("parted", "parted"),
    ("sudo", "sudo"),
    ("rsync", "rsync"),
];
/// Folders of root's daemon: of its socket, and of its state.
const PRIVATE: [&str; 2] = ["/run/cenote", "/var/lib/cenote"];
/// Commands that make `/etc` private to the run: changes do not reach the machine. The machine has no host id
/// there; tests of multihost set one.
const ETC: &str = "mkdir -p /run/zts-etc && mount -t tmpfs -o mode=755 zts /run/zts-etc && \
    mkdir /run/zts-etc/upper /run/zts-etc/work && mount -t overlay zts -o \
    lowerdir=/etc,upperdir=/run/zts-etc/upper,workdir=/run/zts-etc/work /etc && rm -f /etc/hostid && ";
/// Where the daemon mounts counters and parameters.
const CONTROL: &str = "/run/cenote/control";
/// Folder in which the suite is installed.
const SUITE: &str = "/usr/share/zfs/zfs-tests";
const DOCUMENT: &str = "docs/conformance.md";
const BEGIN: &str = "<!-- counts: written by `cargo xtask zts --record` -->\n";
const END: &str = "<!-- end of counts -->\n";

/// Options of the runner that select tests.
const CHOICES: [&str; 6] = ["--tests", "--group", "--shard", "--class", "--tag", "--sanity"];

/// The options of this task; all others are the runner's.
#[derive(Debug, Default, PartialEq, Eq)]
struct Arguments {
    /// Whether each command works in its own process, without a daemon.
    direct: bool,
    /// Whether the programs of a debug build are used.
    debug: bool,
    record: bool,
    /// Values of `--list`.
    lists: Vec<String>,
    rest: Vec<String>,
}

impl Arguments {
    fn parse(words: &[String]) -> Result<Arguments, String> {
        let mut parsed = Arguments::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--direct" => parsed.direct = true,
                "--debug" => parsed.debug = true,
                "--record" => parsed.record = true,
                "--list" => parsed
                    .lists
                    .push(words.next().ok_or("--list needs core, public, rest or a file")?.clone()),
                other => parsed.rest.push(other.to_owned()),
            }
        }
        let names_tests = parsed.rest.iter().any(|word| word == "--tests");
        if parsed.lists.is_empty() && !names_tests {
            parsed.lists.push("core".to_owned());
        }
        Ok(parsed)
    }

    /// Whether an option says which devices pools are made of.
    fn chooses_disks(&self) -> bool {
        self.rest.iter().any(|word| word == "--disks" || word.starts_with("--disks="))
    }

    /// The same options for a second run of the tests of this list, on loop devices.
    fn on_loops(&self, list: &Path) -> Arguments {
        let mut rest = Vec::new();
        let mut is_choice = false;
        for word in &self.rest {
            // The list replaces the options that select tests, with their values.
            if word.starts_with("--") {
                is_choice = CHOICES.contains(&word.as_str());
            }
            if !is_choice {
                rest.push(word.clone());
            }
        }
        rest.extend(["--disks", "loop"].map(str::to_owned));
        Arguments { lists: vec![list.display().to_string()], rest, ..*self }
    }
}

/// Runs `cargo xtask zts ARGUMENT…`.
pub(crate) fn run(words: &[String]) -> Outcome {
    let arguments = Arguments::parse(words)?;
    let runner = outside::outside("CENOTE_ZTS", "zts", "zts_run.py")?;
    install()?;
    let place = root().join("target/zts");
    let bin = programs(&place, arguments.debug)?;
    let results = place.join("last.json");
    let folder = runner.parent().unwrap_or(Path::new("."));
    let core = ids(&folder.join("core.txt"));
    let mut arguments = arguments;
    if arguments.lists.iter().any(|list| list == "rest") {
        let known = ids(&folder.join("public.txt"));
        let groups: BTreeSet<String> =
            core.iter().filter_map(|id| Some(id.rsplit_once('/')?.0.to_owned())).collect();
        let (catalog, list) = suite::write_rest(&groups, &known, Path::new(SUITE), &place)?;
        arguments.lists = vec![list.display().to_string()];
        arguments.rest.extend(["--catalog".to_owned(), catalog.display().to_string()]);
    }
    let outcome = must(&mut command(&runner, &bin, &place, &arguments, &results));
    let (kept, mut all) = (place.join("results.json"), BTreeMap::new());
    merge(&kept, &results, &mut all, |_| true)?;
    if outcome.is_err() && !arguments.chooses_disks() {
        let (again, list) = (place.join("last-loop.json"), place.join("again.txt"));
        let failed = not_passed(&results)?;
        fs::write(&list, failed).map_err(|error| format!("{}: {error}", list.display()))?;
        let on_loops = arguments.on_loops(&list);
        // The exit code is that of its tests, which are in the results.
        let _ = must(&mut command(&runner, &bin, &place, &on_loops, &again));
        merge(&kept, &again, &mut all, |status| status == "PASS")?;
    }
    let (text, totals) = report(&all, &core);
    fs::write(place.join("groups.md"), &text).map_err(|error| format!("groups.md: {error}"))?;
    println!("all runs so far: {totals}; by group in {}", place.join("groups.md").display());
    if arguments.record {
        record(&root().join(DOCUMENT), &text, &all, &core)?;
    }
    outcome
}

/// The command line of the runner.
fn command(runner: &Path, bin: &Path, place: &Path, arguments: &Arguments, results: &Path) -> Command {
    // The run has folders of its own, in its own namespace: the machine may have a daemon already.
    let private =
        PRIVATE.map(|folder| format!("mkdir -p {folder} && mount -t tmpfs -o mode=755 zts {folder} && "));
    let helper = bin.join(HELPER);
    let helper =
        format!("{{ [ ! -e /sbin/{HELPER} ] || mount --bind {} /sbin/{HELPER}; }} && ", helper.display());
    let mut command = Command::new("unshare");
    let script = format!("{}{ETC}{helper}exec python3 \"$@\"", private.concat());
    command.args(["--mount", "sh", "-c"]).arg(script).arg("zts");
    command.arg(runner).arg("--bin").arg(bin).arg("--json").arg(results);
    command.arg("--logs").arg(place.join("logs"));
    for list in &arguments.lists {
        let file = match list.as_str() {
            "core" | "public" => runner.with_file_name(format!("{list}.txt")),
            file => PathBuf::from(file),
        };
        command.arg("--list").arg(file);
    }
    if arguments.direct {
        command.args(["--env", "CENOTE_DIRECT=1"]);
    } else {
        let bin = bin.display();
        command.arg("--daemon").arg(format!("exec {bin}/cenoted"));
        command.arg("--daemon-ready").arg(format!("{bin}/cenote daemon --status"));
        command.arg("--control").arg(CONTROL);
    }
    command.args(&arguments.rest);
    command
}

/// Installs programs that scripts of the suite use, or reports which are missing.
fn install() -> Outcome {
    if !Path::new(SUITE).is_dir() {
        let missing = judges::set_up();
        if !Path::new(SUITE).is_dir() {
            return Err(format!(
                "needs the suite in {SUITE} (package zfs-test); missing: {}",
                missing.join(", ")
            ));
        }
    }
    let missing =
        || PACKAGES.iter().filter(|(tool, _)| testkit::tool(tool).is_none()).map(|(_, package)| *package);
    let wanted: Vec<&str> = missing().collect();
    if !wanted.is_empty() {
        println!("installing {}", wanted.join(" "));
        let mut apt = Command::new("apt-get");
        apt.env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
        let _ = must(apt.args(["-q", "install", "-y", "--no-install-recommends"]).args(&wanted));
    }
    let left: Vec<&str> = missing().collect();
    if left.contains(&"ksh") {
        return Err("needs ksh".to_owned());
    }
    if !left.is_empty() {
        eprintln!("tests that use these will fail, as they are not installed: {}", left.join(" "));
    }
    Ok(())
}

/// Builds the programs; returns the folder with copies of them under all their names. As they are copies, a
/// later build does not affect the run.
fn programs(place: &Path, debug: bool) -> Result<PathBuf, String> {
    let mut build = crate::cargo(&["build", "--package", "cenote-cli"]);
    if !debug {
        build.arg("--release");
    }
    must(&mut build)?;
    let built = root().join("target").join(if debug { "debug" } else { "release" }).join("cenote");
    let bin = place.join("bin");
    let prepare = || {
        let _ = fs::remove_dir_all(&bin);
        fs::create_dir_all(&bin)?;
        fs::copy(&built, bin.join("cenote"))?;
        for name in OURS.iter().filter(|name| **name != "cenote") {
            std::os::unix::fs::symlink("cenote", bin.join(name))?;
        }
        for (name, path) in SYSTEMS.iter().filter_map(|name| Some((name, testkit::tool(name)?))) {
            std::os::unix::fs::symlink(path, bin.join(name))?;
        }
        Ok::<(), std::io::Error>(())
    };
    prepare().map_err(|error| format!("{}: {error}", bin.display()))?;
    Ok(bin)
}

/// Stored result of a test.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    group: String,
    status: String,
    why: String,
}

/// The tests of a run that did not pass, one a line.
fn not_passed(last: &Path) -> Result<String, String> {
    let bytes = fs::read(last).map_err(|error| format!("{}: {error}", last.display()))?;
    let found: Value =
        serde_json::from_slice(&bytes).map_err(|error| format!("{}: {error}", last.display()))?;
    let results = found["results"].as_array().into_iter().flatten();
    let bad = results.filter(|result| result["status"] != "PASS").filter_map(|result| result["id"].as_str());
    Ok(bad.map(|id| format!("{id}\n")).collect())
}

/// Merges the results of the last run, as far as they count, into the stored ones, and stores them.
fn merge(
    kept: &Path,
    last: &Path,
    known: &mut BTreeMap<String, Known>,
    counts: impl Fn(&str) -> bool,
) -> Outcome {
    let read =
        |path: &Path| fs::read(path).ok().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    let mut all: Map<String, Value> = match read(kept) {
        Some(Value::Object(map)) => map,
        _ => Map::new(),
    };
    let found = read(last).ok_or("the runner left no results")?;
    for result in found["results"].as_array().into_iter().flatten() {
        let id = result["id"].as_str().unwrap_or_default();
        if !counts(result["status"].as_str().unwrap_or_default()) {
            continue;
        }
        let part = json!({"group": result["group"], "status": result["status"], "why": result["why"]});
        all.insert(id.to_owned(), part);
    }
    fs::write(kept, serde_json::to_vec_pretty(&all).unwrap_or_default())
        .map_err(|error| format!("{}: {error}", kept.display()))?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let read = |value: &Value| Known {
        group: text(&value["group"]),
        status: text(&value["status"]),
        why: text(&value["why"]),
    };
    *known = all.iter().map(|(id, value)| (id.clone(), read(value))).collect();
    Ok(())
}

/// The tests that a list names.
fn ids(list: &Path) -> Vec<String> {
    let text = fs::read_to_string(list).unwrap_or_default();
    let first = |line: &str| line.split('#').next()?.split_whitespace().next().map(str::to_owned);
    text.lines().filter_map(first).collect()
}

/// Numbers of passed, failed and skipped tests.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Count([u64; 3]);

impl Count {
    fn add(&mut self, status: &str) {
        let slot = match status {
            "PASS" => 0,
            "SKIP" => 2,
            _ => 1,
        };
        self.0[slot] += 1;
    }
}

/// The tables, and the totals as a sentence.
fn report(all: &BTreeMap<String, Known>, core: &[String]) -> (String, String) {
    let mut text = String::new();
    let (mut core_count, mut total) = (Count::default(), Count::default());
    let mut groups: BTreeMap<(bool, &str), Count> = BTreeMap::new();
    for (id, known) in all {
        let is_core = core.iter().any(|name| name == id);
        groups.entry((!is_core, &known.group)).or_default().add(&known.status);
        total.add(&known.status);
        if is_core {
            core_count.add(&known.status);
        }
    }
    let line = |Count([passed, failed, skipped]): Count| {
        format!("{passed} passed, {failed} failed, {skipped} skipped")
    };
    let totals = format!("core {} of {}; all {}", line(core_count), core.len(), line(total));
    for (further, title) in [(false, "core.txt"), (true, "further tests")] {
        let part: Vec<_> = groups.iter().filter(|((is_further, _), _)| *is_further == further).collect();
        if part.is_empty() {
            continue;
        }
        text.push_str(&format!("\n| {title} | pass | fail | skip |\n| --- | ---: | ---: | ---: |\n"));
        let mut sum = [0; 3];
        for ((_, group), Count(count)) in part {
            text.push_str(&format!("| {group} | {} | {} | {} |\n", count[0], count[1], count[2]));
            sum.iter_mut().zip(count).for_each(|(sum, n)| *sum += n);
        }
        text.push_str(&format!("| **all** | **{}** | **{}** | **{}** |\n", sum[0], sum[1], sum[2]));
    }
    (text, totals)
}

/// Writes the tables into the document, and reports where document and results disagree.
fn record(document: &Path, tables: &str, all: &BTreeMap<String, Known>, core: &[String]) -> Outcome {
    let text = fs::read_to_string(document).map_err(|error| format!("{}: {error}", document.display()))?;
    let marks = "the marks around the counts are missing";
    let (before, rest) = text.split_once(BEGIN).ok_or(marks)?;
    let (_, after) = rest.split_once(END).ok_or(marks)?;
    for (id, known) in all.iter().filter(|(id, _)| core.contains(id)) {
        let short = id.rsplit('/').next().unwrap_or(id);
        let is_explained = before.contains(short) || after.contains(short);
        match known.status.as_str() {
            "PASS" if is_explained => eprintln!("{DOCUMENT} explains {id}, which passes"),
            "PASS" => {}
            _ if is_explained => {}
            status => eprintln!("{DOCUMENT} does not explain {id}: {status} {}", known.why),
        }
    }
    let whole = format!("{before}{BEGIN}{tables}\n{END}{after}");
    fs::write(document, whole).map_err(|error| format!("{}: {error}", document.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(group: &str, status: &str) -> Known {
        Known { group: group.to_owned(), status: status.to_owned(), why: String::new() }
    }

    #[test]
    fn arguments_that_are_not_ours_go_to_the_runner() {
        let words = ["--direct", "--group", "atime", "--list", "public"].map(str::to_owned);
        let parsed = Arguments::parse(&words).expect("good");
        assert!(parsed.direct && !parsed.record);
        assert_eq!(
            (parsed.lists, parsed.rest),
            (vec!["public".to_owned()], vec!["--group".to_owned(), "atime".to_owned()])
        );
        let parsed = Arguments::parse(&["--tests".to_owned(), "atime/x".to_owned()]).expect("good");
        assert_eq!(parsed.lists, Vec::<String>::new());
        assert!(Arguments::parse(&["--list".to_owned()]).is_err());
    }

    #[test]
    fn the_second_run_has_loop_devices_and_those_tests_that_did_not_pass() {
        let words = ["--debug", "--tests", "a/1", "a/2", "--timeout", "9", "--sanity"].map(str::to_owned);
        let parsed = Arguments::parse(&words).expect("good");
        assert!(!parsed.chooses_disks());
        let again = parsed.on_loops(Path::new("/l"));
        assert_eq!((again.debug, again.lists), (true, vec!["/l".to_owned()]));
        assert_eq!(again.rest, ["--timeout", "9", "--disks", "loop"]);
        assert!(Arguments::parse(&["--disks=file".to_owned()]).expect("good").chooses_disks());

        let folder = tempfile::tempdir().expect("a folder");
        let (kept, first, second) =
            (folder.path().join("kept"), folder.path().join("first"), folder.path().join("second"));
        let write = |path: &Path, statuses: [&str; 3]| {
            let results: Vec<Value> = statuses
                .iter()
                .zip(["a/1", "a/2", "a/3"])
                .map(|(status, id)| json!({"id": id, "group": "a", "status": status, "why": ""}))
                .collect();
            fs::write(path, json!({ "results": results }).to_string()).expect("written");
        };
        write(&first, ["PASS", "FAIL", "FAIL"]);
        write(&second, ["FAIL", "PASS", "TIMEOUT"]);
        assert_eq!(not_passed(&first).as_deref(), Ok("a/2\na/3\n"));
        let mut all = BTreeMap::new();
        merge(&kept, &first, &mut all, |_| true).expect("merged");
        merge(&kept, &second, &mut all, |status| status == "PASS").expect("merged");
        let statuses: Vec<&str> = all.values().map(|known| known.status.as_str()).collect();
        assert_eq!(statuses, ["PASS", "PASS", "FAIL"]);
    }

    #[test]
    fn counts_are_those_of_groups() {
        let all = BTreeMap::from([
            ("a/one".to_owned(), known("a", "PASS")),
            ("a/two".to_owned(), known("a", "TIMEOUT")),
            ("b/three".to_owned(), known("b", "SKIP")),
        ]);
        let (text, totals) = report(&all, &["a/one".to_owned(), "a/two".to_owned()]);
        assert_eq!(totals, "core 1 passed, 1 failed, 0 skipped of 2; all 1 passed, 1 failed, 1 skipped");
        assert!(text.contains("| a | 1 | 1 | 0 |") && text.contains("| b | 0 | 0 | 1 |"));
    }

    #[test]
    fn what_is_written_by_hand_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let document = folder.path().join("c.md");
        fs::write(&document, format!("head\n{BEGIN}old\n{END}by hand\n")).expect("written");
        record(&document, "new", &BTreeMap::new(), &[]).expect("recorded");
        assert_eq!(fs::read_to_string(&document).expect("read"), format!("head\n{BEGIN}new\n{END}by hand\n"));
    }
}
