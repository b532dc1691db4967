//! `cargo xtask peer records`: golden pools are imported read-only by OpenZFS, and opened by us. For each snapshot and
//! many flags both send the same bytes, or refuse in the same words.

use super::sides::{Failure, Side, Sides};
use super::{Options, difference};
use crate::Outcome;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Flags that each snapshot is sent with.
const FLAGS: [&str; 11] = ["", "-L", "-e", "-c", "-Lec", "-w", "-p", "-pb", "-ph", "-R", RECEIVED];
/// Those of the streams that we receive.
const RECEIVED: &str = "-pLec";
/// Properties that a receive leaves out: where it is mounted does not travel with the contents.
const WITHOUT: &str = "-x mountpoint -x canmount -x sharenfs -x sharesmb -x readonly -x snapdir";
/// Flags of increments: those that change blocks, and packages.
const INCREMENT_FLAGS: [&str; 5] = ["", "-Lec", "-w", "-p", "-R"];
/// Snapshots of a pool that are sent.
const SNAPSHOTS_MAX: usize = 12;
/// Pools that the guest cannot import read-only as they are: half of a running system, or too many snapshots to list.
const LEFT_OUT: [&str; 2] = ["missing-disk", "manysnaps"];
/// Pools with streams that are not OpenZFS's, on purpose: we name the block that cannot be read, and mark the stream of a
/// redacted dataset as redacted.
const DIFFERENT: [&str; 2] = ["lost-block", "redacted"];

/// Runs the part.
pub(super) fn run(guest: &Path, program: &Path, options: &Options) -> Outcome {
    let names = if options.pools.is_empty() { testkit::Fixture::names() } else { options.pools.clone() };
    let mut sides = Sides::start(guest, program, &options.dir)?;
    let dir = options.dir.display();
    let create = format!(
        "truncate -s 4G {dir}/ours/disk && zpool create -O mountpoint={dir}/mnt ours {dir}/ours/disk"
    );
    sides.run(Side::Ours, &create)?;
    let (mut streams, mut received, mut wrong) = (0, 0, Vec::new());
    for name in names.iter().filter(|name| !LEFT_OUT.contains(&name.as_str())) {
        match pool(&mut sides, name)? {
            Compared::Pool { equal, received: here, different } => {
                println!(
                    "{name}: {equal} streams are equal, {here} were received, {} differ",
                    different.len()
                );
                received += here;
                streams += equal + different.len();
                if DIFFERENT.contains(&name.as_str()) {
                    println!("  as they do on purpose");
                    continue;
                }
                different.iter().for_each(|why| println!("  {why}"));
                wrong.extend(different);
            }
            Compared::NotImported(why) => println!("{name}: OpenZFS does not import it read-only: {why}"),
        }
    }
    println!("{streams} streams, {received} were received, {} differ", wrong.len());
    sides.judge()?;
    sides.end(false)?;
    if wrong.is_empty() { Ok(()) } else { Err(format!("{} streams differ", wrong.len())) }
}

enum Compared {
    Pool { equal: usize, received: usize, different: Vec<String> },
    NotImported(String),
}

/// Compares the streams of one pool.
fn pool(sides: &mut Sides, name: &str) -> Result<Compared, Failure> {
    let fixture = testkit::Fixture::try_open(name).map_err(|error| format!("{name}: {error}"))?;
    let (pool, images) = (fixture.manifest().pool.clone(), fixture.images());
    let at = sides.share().join("pools").join(name);
    copy(&images, &at).map_err(|error| format!("{}: {error}", at.display()))?;
    let import = format!("zpool import -f -N -d $SHARE/pools/{name} {pool}");
    if !fixture.manifest().datasets.iter().any(testkit::Dataset::is_snapshot) {
        // One that is damaged cannot be changed, and has nothing to send.
        sides.try_run(
            Side::Theirs,
            &format!("{import} && zfs snapshot -r {pool}@peer; zpool export {pool}"),
        )?;
    }
    let (said, is_good) = sides.try_run(Side::Theirs, &format!("{import} -o readonly=on"))?;
    if !is_good {
        return Ok(Compared::NotImported(said.lines().last().unwrap_or_default().to_owned()));
    }
    let sends = sends(sides, &pool)?;
    let list = sides.share().join("sends");
    fs::write(&list, sends.join("\n") + "\n").map_err(|error| format!("{}: {error}", list.display()))?;
    let all = "n=0; while read -r line; do n=$((n+1)); \
               eval \"zfs send $line\" >$SHARE/streams/$n.$SIDE 2>$SHARE/streams/$n.$SIDE.err; \
               echo $? >>$SHARE/streams/$n.$SIDE.err; done <$SHARE/sends";
    sides.run(Side::Theirs, all)?;
    sides.run(Side::Ours, &format!("export CENOTE_DIRECT=1 CENOTE_DEVICES={}\n{all}", at.display()))?;
    let (mut equal, mut different) = (0, Vec::new());
    for (index, send) in sends.iter().enumerate() {
        match compare(&sides.share().join("streams"), index + 1, send)? {
            None => equal += 1,
            Some(why) => different.push(format!("{name}: zfs send {why}")),
        }
    }
    let received = receive(sides, name, &sends, &mut different);
    sides.run(Side::Theirs, &format!("zpool export {pool}"))?;
    let received = received?;
    for path in [at, sides.share().join("streams")] {
        fs::remove_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let streams = sides.share().join("streams");
    fs::create_dir_all(&streams).map_err(|error| format!("{}: {error}", streams.display()))?;
    Ok(Compared::Pool { equal, received, different })
}

/// Receives streams of OpenZFS's, and compares the snapshots of file systems with those that it has sent. Returns their
/// number.
fn receive(
    sides: &mut Sides,
    name: &str,
    sends: &[String],
    different: &mut Vec<String>,
) -> Result<usize, Failure> {
    let mut received = 0;
    for (index, send) in sends.iter().enumerate() {
        let Some(snapshot) = send.strip_prefix(RECEIVED).map(|rest| rest.trim().trim_matches('\'')) else {
            continue;
        };
        let stream = format!("$SHARE/streams/{}.theirs", index + 1);
        // File systems of old versions are not mounted for writing here, and volumes are compared by their streams.
        let has_files = format!("test -s {stream} && [ \"$(zfs get -H -o value version {snapshot})\" = 5 ]");
        if !sides.try_run(Side::Theirs, &has_files)?.1 {
            continue;
        }
        received += 1;
        let (theirs, _) = sides.try_run(Side::Theirs, &format!("look {snapshot}"))?;
        let script = format!("zfs receive {WITHOUT} ours/back@s <{stream} && look ours/back@s");
        let (ours, _) = sides.try_run(Side::Ours, &script)?;
        different.extend(difference(&format!("{name}: what is received of {snapshot}"), &ours, &theirs));
        sides.try_run(Side::Ours, "zfs destroy -r ours/back")?;
    }
    Ok(received)
}

fn copy(images: &[PathBuf], to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    let status = Command::new("cp").arg("--sparse=always").args(images).arg(to).status()?;
    let made = Command::new("chmod").args(["-R", "u+w"]).arg(to).status()?;
    if status.success() && made.success() {
        Ok(())
    } else {
        Err(std::io::Error::other("images are not copied"))
    }
}

/// The arguments of the sends of a pool.
fn sends(sides: &mut Sides, pool: &str) -> Result<Vec<String>, Failure> {
    let list = format!("zfs list -H -r -t snapshot,bookmark -s createtxg -o name {pool}");
    let listed = sides.run(Side::Theirs, &list)?;
    let mut sets: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for name in listed.lines() {
        sets.entry(name.split(['@', '#']).next().unwrap_or(name)).or_default().push(name);
    }
    let (mut sends, mut count) = (Vec::new(), 0);
    for names in sets.values() {
        let mut before: Vec<&str> = Vec::new();
        for name in names {
            if !name.contains('@') {
                before.push(name);
                continue;
            }
            count += 1;
            if count > SNAPSHOTS_MAX {
                break;
            }
            sends.extend(FLAGS.iter().map(|flags| format!("{flags} '{name}'")));
            for start in before.iter().rev().take(2) {
                let flags = INCREMENT_FLAGS.iter();
                sends.extend(flags.map(|flags| format!("{flags} -i '{start}' '{name}'")));
            }
            if let Some(start) = before.iter().find(|start| start.contains('@')) {
                sends.extend(["-I", "-R -I", "-pw -I"].map(|flags| format!("{flags} '{start}' '{name}'")));
            }
            before.push(name);
        }
    }
    Ok(sends)
}

/// Compares a stream of both sides.
fn compare(at: &Path, number: usize, send: &str) -> Result<Option<String>, Failure> {
    let path = |side: Side, end: &str| at.join(format!("{number}.{}{end}", side.name()));
    let read = |path: PathBuf| fs::read(&path).map_err(|error| format!("{}: {error}", path.display()));
    let text =
        |side: Side| read(path(side, ".err")).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    if let Some(why) = difference(&format!("{send}: what is said"), &text(Side::Ours)?, &text(Side::Theirs)?)
    {
        return Ok(Some(why));
    }
    if read(path(Side::Ours, ""))? == read(path(Side::Theirs, ""))? {
        return Ok(None);
    }
    let zstream = testkit::tool("zstream").ok_or("no zstream on this machine")?;
    let dump = |side: Side| {
        let output = Command::new(&zstream).args(["dump", "-v"]).arg(path(side, "")).output();
        let output = output.map_err(|error| format!("zstream: {error}"))?;
        Ok::<_, Failure>(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (ours, theirs) = (dump(Side::Ours)?, dump(Side::Theirs)?);
    let spills = embedded_spills(&theirs);
    let is_package = theirs.contains("\thdrtype = 2\n");
    if spills.is_empty() && !is_package {
        let why = difference(&format!("{send}: the dump"), &ours, &theirs);
        return Ok(Some(why.unwrap_or_else(|| format!("{send}: the payload differs"))));
    }
    let [ours, theirs] = [&ours, &theirs].map(|dump| {
        let dump = if is_package { unordered(dump) } else { dump.clone() };
        if spills.is_empty() { dump } else { without_spills(&dump, &spills) }
    });
    Ok(difference(&format!("{send}: the dump"), &ours, &theirs))
}

/// The dump of a package without what depends on the order of datasets and of their properties, which have none of their
/// own: OpenZFS takes that of the hashes of their names. The checksums at the ends of the streams stay.
fn unordered(dump: &str) -> String {
    let of_list = dump.lines().position(|line| line.starts_with("END checksum"));
    let others = dump.lines().enumerate().filter(|(at, _)| Some(*at) != of_list).map(|(_, line)| line);
    let mut lines: Vec<&str> = others.collect();
    lines.sort_unstable();
    lines.join("\n")
}

/// The objects whose spill block OpenZFS sends as embedded data: its receivers lose it, so we send it as a spill block
/// (docs/on-disk/30-send-streams.md, section 4).
fn embedded_spills(dump: &str) -> BTreeSet<&str> {
    let lines = dump.lines().filter_map(|line| line.strip_prefix("WRITE_EMBEDDED object = "));
    lines.filter_map(|rest| rest.split_once(" offset = 184467440737")).map(|(object, _)| object).collect()
}

/// A dump without the records of these spill blocks, and without sums.
fn without_spills(dump: &str, objects: &BTreeSet<&str>) -> String {
    let is_kept = |line: &&str| {
        let spill = line.strip_prefix("SPILL block for object = ").and_then(|rest| rest.split(' ').next());
        let is_embedded = line.starts_with("WRITE_EMBEDDED") && line.contains(" offset = 184467440737");
        let is_sum = ["\tTotal", "END checksum", "SUMMARY"].iter().any(|start| line.starts_with(start));
        !(is_sum || is_embedded || spill.is_some_and(|object| objects.contains(object)))
    };
    dump.lines().filter(is_kept).map(|line| format!("{line}\n")).collect()
}
