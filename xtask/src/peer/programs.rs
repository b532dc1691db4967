//! `cargo xtask peer programs`: unmodified programs for backups between our commands and OpenZFS's, in both directions.
//! For them the guest is a host behind `ssh`, and this machine has our `zfs` and `zpool`.

use super::sides::{Failure, Side, Sides};
use super::tool::{Tool, Way};
use super::{Options, Random, difference, work};
use crate::Outcome;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const CALLS: &str = include_str!("../guest/calls.sh");
const SSH: &str = include_str!("../guest/ssh.sh");
/// File systems of a source. The volume is beside them.
const FILE_SYSTEMS: [&str; 3] = ["a", "b", "clone"];
/// Bytes of a stream after which the connection breaks.
const CUT: u64 = 1 << 20;

struct Trial {
    sides: Sides,
    random: Random,
    /// Snapshots that were compared, by name and guid.
    compared: BTreeSet<String>,
    /// How many comparisons of snapshots there were.
    comparisons: u64,
    /// Number of the present round, for names of files.
    step: u64,
}

/// Runs the part.
pub(super) fn run(guest: &Path, program: &Path, options: &Options) -> Outcome {
    let sides = Sides::start(guest, program, &options.dir)?;
    let random = Random::new(options.seed);
    let mut trial = Trial { sides, random, compared: BTreeSet::new(), comparisons: 0, step: 0 };
    trial.begin(&options.dir)?;
    let rounds = options.rounds_or(3);
    let mut table = Vec::new();
    for tool in Tool::ALL {
        let name = tool.name();
        let is_asked = |way: &Way| {
            let both = format!("{name}:{}", way.name());
            options.programs.is_empty()
                || options.programs.iter().any(|asked| asked == name || *asked == both)
        };
        let ways: Vec<Way> = Way::ALL.into_iter().filter(is_asked).collect();
        if ways.is_empty() {
            continue;
        }
        if !trial.sides.try_run(Side::Ours, &format!("command -v {name}"))?.1 {
            table.push(format!("{name}: skipped, there is no {name}"));
            continue;
        }
        for way in ways {
            let before = trial.comparisons;
            trial
                .replicate(tool, way, rounds)
                .map_err(|why| format!("seed {}, {name} {}: {why}", options.seed, way.name()))?;
            let count = trial.comparisons - before;
            let line = format!(
                "{name} {}: a full stream, {rounds} rounds, the target changed in each; a full and an incremental \
                 stream cut and continued; {count} comparisons of snapshots",
                way.name()
            );
            println!("{line}");
            table.push(line);
        }
    }
    trial.sides.run(Side::Ours, "touch $SHARE/calls/end")?;
    trial.sides.end(true)?;
    println!("\n{}\nseed {}: no difference", table.join("\n"), options.seed);
    Ok(())
}

impl Trial {
    /// Makes our pool, and the way into the guest.
    fn begin(&mut self, dir: &Path) -> Result<(), Failure> {
        let (dir, share) = (dir.display(), self.sides.share());
        let failed = |error: std::io::Error| format!("{}: {error}", share.display());
        std::fs::create_dir_all(share.join("calls")).map_err(failed)?;
        std::fs::write(share.join("calls.sh"), CALLS).map_err(failed)?;
        std::fs::write(share.join("ssh"), SSH).map_err(failed)?;
        let create = format!(
            "install -m 755 $SHARE/ssh {dir}/bin/ssh && : >$WORK/key && truncate -s 4G {dir}/ours/disk && \
             zpool create -O mountpoint={dir}/mnt -O acltype=posix ours {dir}/ours/disk"
        );
        self.sides.run(Side::Ours, &create)?;
        self.sides.run(Side::Theirs, "setsid bash $SHARE/calls.sh >/dev/null 2>&1 </dev/null &").map(drop)
    }

    /// A program keeps a copy of a tree.
    fn replicate(&mut self, tool: Tool, way: Way, rounds: u64) -> Result<(), Failure> {
        self.compared.clear();
        self.make_source(tool, way)?;
        self.pass(tool, way)?;
        self.compare(tool, way)?;
        if tool.copies_clones() {
            let clone = format!("zfs get -H -o value origin {}/clone", tool.copy(way));
            let origin = self.sides.run(way.source().other(), &clone)?;
            if origin.trim() != format!("{}/a@base", tool.copy(way)) {
                return Err(format!("the origin of the clone is {origin}"));
            }
        }
        println!("{} {}: full", tool.name(), way.name());
        for round in 1..=rounds {
            self.change_source(tool, way, &FILE_SYSTEMS)?;
            self.snapshot(tool, way)?;
            self.change_copy(tool, way)?;
            self.pass(tool, way)?;
            self.is_rolled_back(tool, way)?;
            self.compare(tool, way)?;
            println!("{} {}: round {round}", tool.name(), way.name());
        }
        self.break_off(tool, way, "a")?;
        let create = format!("zfs create {}/new", tool.source(way));
        self.sides.run(way.source(), &create)?;
        self.break_off(tool, way, "new")
    }

    /// A tree with file systems of several sizes of records, a clone and a volume. The top is not mounted: folders of
    /// mounts below it would be changes.
    fn make_source(&mut self, tool: Tool, way: Way) -> Result<(), Failure> {
        let (side, source) = (way.source(), tool.source(way));
        let options = "-o acltype=posix -o xattr=sa -o atime=off";
        let create = format!(
            "zfs create {options} -o canmount=off {source} && zfs create -o recordsize=1m {source}/a && \
             zfs create -o compression=zstd -o com.example:note='two words' {source}/b"
        );
        self.sides.run(side, &create)?;
        self.change_source(tool, way, &["a", "b"])?;
        let clone = format!("zfs snapshot {source}/a@base && zfs clone {source}/a@base {source}/clone");
        self.sides.run(side, &clone)?;
        self.make_volume(side, &format!("{source}/v"))?;
        self.snapshot(tool, way)?;
        let prepare = tool.prepare(way);
        if !prepare.0.is_empty() {
            self.sides.run(side, &prepare.0)?;
        }
        if !prepare.1.is_empty() {
            self.sides.run(side.other(), &prepare.1)?;
        }
        self.sides.run(Side::Ours, &tool.configure(way)).map(drop)
    }

    /// A volume with data. Ours is written while no daemon has the pool.
    fn make_volume(&mut self, side: Side, volume: &str) -> Result<(), Failure> {
        let from = self.random.below(8 << 20);
        let image = format!(
            "rm -f $WORK/image; truncate -s 12m $WORK/image; put $WORK/image 700000 3000000 {from}\n"
        );
        let write = match side {
            Side::Ours => {
                "at=$(dirname \"$CENOTE_SOCKET\")/../ours && zpool export ours && \
                 CENOTE_DIRECT=1 cenote cp -d \"$at\" $WORK/image VOLUME && zpool import -d \"$at\" ours"
            }
            Side::Theirs => {
                "for _ in $(seq 50); do [ -e /dev/zvol/VOLUME ] && break; udevadm settle; sleep 0.1; done; \
                 dd if=$WORK/image of=/dev/zvol/VOLUME bs=64k conv=fsync status=none"
            }
        };
        let write = write.replace("VOLUME", volume);
        self.sides.run(side, &format!("{image}zfs create -s -V 12m {volume} && {write}")).map(drop)
    }

    /// Changes files of datasets of a source.
    fn change_source(&mut self, tool: Tool, way: Way, names: &[&str]) -> Result<(), Failure> {
        let mut script = String::new();
        for name in names {
            let count = 5 + self.random.below(20);
            let files = work::files(&mut self.random, count);
            script.push_str(&format!("(\nwithin {}/{name}\n{files}\n)\n", tool.source(way)));
        }
        self.sides.run(way.source(), &script).map(drop)
    }

    /// A snapshot that the program has not made itself.
    fn snapshot(&mut self, tool: Tool, way: Way) -> Result<(), Failure> {
        self.step += 1;
        let snapshot = tool.snapshot(self.step);
        self.sides.run(way.source(), &format!("zfs snapshot -r {}@{snapshot}", tool.source(way))).map(drop)
    }

    /// Writes into the copy.
    fn change_copy(&mut self, tool: Tool, way: Way) -> Result<(), Failure> {
        let set = format!("{}/b", tool.copy(way));
        let write = format!("{}within {set}\necho changed >changed && sync -f changed", mount(&set));
        self.sides.run(way.source().other(), &write).map(drop)
    }

    /// Fails where what was written into the copy is still there.
    fn is_rolled_back(&mut self, tool: Tool, way: Way) -> Result<(), Failure> {
        let set = format!("{}/b", tool.copy(way));
        let look = format!("{}within {set}\n[ ! -e changed ] || ls -la", mount(&set));
        match self.sides.run(way.source().other(), &look)? {
            text if text.is_empty() => Ok(()),
            text => Err(format!("{set} was not rolled back\n{text}")),
        }
    }

    /// Runs the program, which must not complain.
    fn pass(&mut self, tool: Tool, way: Way) -> Result<String, Failure> {
        let (text, is_good) = self.start(tool, way, "")?;
        match tool.complaint(&text) {
            None if is_good => Ok(text),
            complaint => {
                let line = complaint.unwrap_or("it failed");
                Err(format!("{line}\n{}\n{text}", tool.command(way)))
            }
        }
    }

    fn start(&mut self, tool: Tool, way: Way, before: &str) -> Result<(String, bool), Failure> {
        // Names of snapshots have a resolution of a second.
        let script = format!("sleep 1; export CALLS=$SHARE/calls {before}\n{}", tool.command(way));
        self.sides.try_run(Side::Ours, &script)
    }

    /// The connection breaks while a long stream travels; the next run continues it.
    fn break_off(&mut self, tool: Tool, way: Way, name: &str) -> Result<(), Failure> {
        let (source, copy) = (format!("{}/{name}", tool.source(way)), format!("{}/{name}", tool.copy(way)));
        let (from, step) = (self.random.below(8 << 20), self.step);
        let write = format!("within {source}\nop create 0 long{step} 8000000 {from}");
        self.sides.run(way.source(), &write)?;
        self.snapshot(tool, way)?;
        let (text, is_good) = self.start(tool, way, &format!("CUT={CUT}"))?;
        if tool.complaint(&text).is_none() && is_good {
            return Err(format!("a broken connection is not told\n{text}"));
        }
        let state = format!("zfs get -H -o value receive_resume_token {copy}");
        let (token, _) = self.sides.try_run(way.source().other(), &state)?;
        if !token.starts_with("1-") {
            return Err(format!("{copy} has no token: {token}\n{text}"));
        }
        let text = self.pass(tool, way)?;
        if !tool.has_continued(&text) {
            return Err(format!("{copy} was not continued\n{text}"));
        }
        self.compare(tool, way)?;
        println!("{} {}: {name} was cut and continued", tool.name(), way.name());
        Ok(())
    }

    /// Compares source and copy: names of datasets, and all common snapshots that were not compared yet.
    fn compare(&mut self, tool: Tool, way: Way) -> Result<(), Failure> {
        let (side, source, copy) = (way.source(), tool.source(way), tool.copy(way));
        let mut ask = |what: &str| -> Result<[String; 2], Failure> {
            let list = |top: &str| format!("zfs list -H -p -r -s createtxg {what} {top} | sed 's|^{top}||'");
            Ok([self.sides.run(side, &list(&source))?, self.sides.run(side.other(), &list(&copy))?])
        };
        let [left, right] = ask("-t filesystem,volume -o name,type")?;
        if let Some(why) = difference("the set of datasets", &sorted(&left), &sorted(&right)) {
            return Err(why);
        }
        let [here, there] = ask("-t snapshot -o name,guid")?;
        if let Some(line) = missing(&here, &there) {
            return Err(format!("{source}{line} is not in the copy, or has another guid\n{there}"));
        }
        let there: BTreeSet<&str> = there.lines().collect();
        let common = here.lines().filter(|line| there.contains(line)).map(str::to_owned);
        // The top cannot be mounted.
        let new = common.filter(|line| line.starts_with('/') && !self.compared.contains(line));
        let new: Vec<String> = new.collect();
        let names: Vec<&str> = new.iter().filter_map(|line| line.split('\t').next()).collect();
        let look = |top: &str| {
            let one = |name: &&str| {
                let set = format!("{top}{}", name.split('@').next().unwrap_or_default());
                format!("{}echo {name}\nlook {top}{name} || exit 1\n", mount(&set))
            };
            names.iter().map(one).collect::<String>()
        };
        let left = self.sides.run(side, &look(&source))?;
        let right = self.sides.run(side.other(), &look(&copy))?;
        self.judge(side, &names, &left, &right)?;
        self.comparisons += new.len() as u64;
        self.compared.extend(new);
        Ok(())
    }

    /// Compares the descriptions of snapshots, each of which its name heads.
    fn judge(&self, side: Side, names: &[&str], left: &str, right: &str) -> Result<(), Failure> {
        let part = |text: &str, at: usize| {
            let tail = text.split_once(&format!("{}\n", names[at])).map_or("", |(_, tail)| tail).to_owned();
            match names.get(at + 1).and_then(|next| tail.find(&format!("\n{next}\n"))) {
                Some(end) => tail[..end].to_owned(),
                None => tail.trim_end().to_owned(),
            }
        };
        for (at, name) in names.iter().enumerate() {
            let (from, to) = (part(left, at), part(right, at));
            let (ours, theirs) = if side == Side::Ours { (from, to) } else { (to, from) };
            if ours.is_empty() && theirs.is_empty() {
                return Err(format!("{name} was not described\n{left}\n{right}"));
            }
            if let Some(why) = difference(name, &ours, &theirs) {
                return Err(why);
            }
        }
        Ok(())
    }
}

/// The newest snapshot of a dataset of the source that the copy lacks. Lines are snapshots with their guids, by age.
fn missing<'a>(source: &'a str, copy: &str) -> Option<&'a str> {
    let newest: BTreeMap<&str, &str> =
        source.lines().filter_map(|line| Some((line.split_once('@')?.0, line))).collect();
    newest.into_values().find(|line| !copy.lines().any(|other| other == *line))
}

fn sorted(text: &str) -> String {
    let lines: BTreeSet<&str> = text.lines().collect();
    lines.into_iter().map(|line| format!("{line}\n")).collect()
}

/// Lines that mount a file system where it is not.
fn mount(set: &str) -> String {
    format!("[ \"$(zfs get -H -o value mounted {set})\" != no ] || zfs mount {set} || exit 1\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_snapshot_must_be_in_the_copy_with_its_guid() {
        let source = "/a@1\t11\n/b@1\t12\n/a@2\t13\n";
        assert_eq!(missing(source, "/b@1\t12\n/a@2\t13\n"), None);
        assert_eq!(missing(source, "/a@1\t11\n/b@1\t12\n"), Some("/a@2\t13"));
        assert_eq!(missing(source, "/a@2\t13\n/b@1\t99\n"), Some("/b@1\t12"));
    }
}
