//! `cargo xtask peer replicate`: `cenote replicate` between our pool and OpenZFS's, in both directions at once. Its
//! policies reach the guest through a command; trees are changed, streams are cut and runs are killed.

use super::sides::{Failure, Side, Sides};
use super::{Options, Random, difference, work};
use crate::Outcome;
use std::path::Path;

const CALLS: &str = include_str!("../guest/calls.sh");
const THERE: &str = include_str!("../guest/there.sh");
/// Tries of a run whose forerunner was killed: what that has left in the guest ends by itself.
const TRIES: u32 = 10;

/// A direction: name of its policy, and the side of its source.
const WAYS: [(&str, Side); 2] = [("out", Side::Ours), ("back", Side::Theirs)];

struct Trial {
    sides: Sides,
    random: Random,
    /// Datasets below each source, by the number of the way.
    members: [Vec<String>; 2],
    /// Runs that were cut, by the number of the way, and streams that were continued.
    cut: [u64; 2],
    continued: [u64; 2],
    round: u64,
}

/// Runs the part.
pub(super) fn run(guest: &Path, program: &Path, options: &Options) -> Outcome {
    let sides = Sides::start(guest, program, &options.dir)?;
    let mut trial = Trial {
        sides,
        random: Random::new(options.seed),
        members: Default::default(),
        cut: [0; 2],
        continued: [0; 2],
        round: 0,
    };
    trial.begin(&options.dir)?;
    let rounds = options.rounds_or(12);
    for round in 1..=rounds {
        trial.round = round;
        let said = trial.round().map_err(|why| format!("seed {}, round {round}: {why}", options.seed))?;
        println!("round {round}: {said}");
    }
    let Trial { cut, continued, .. } = &trial;
    println!("cut: {} out, {} back; continued: {} out, {} back", cut[0], cut[1], continued[0], continued[1]);
    if (0..2).any(|way| cut[way] > 0 && continued[way] == 0) {
        return Err("no stream that was cut was continued".to_owned());
    }
    trial.sides.run(Side::Ours, "touch $SHARE/calls/end")?;
    trial.sides.end(true)?;
    println!("{rounds} rounds, seed {}: no difference", options.seed);
    Ok(())
}

impl Trial {
    /// Makes pools, trees and policies.
    fn begin(&mut self, dir: &Path) -> Result<(), Failure> {
        let (dir, share) = (dir.display(), self.sides.share());
        let failed = |error: std::io::Error| format!("{}: {error}", share.display());
        std::fs::create_dir_all(share.join("calls")).map_err(failed)?;
        std::fs::write(share.join("calls.sh"), CALLS).map_err(failed)?;
        std::fs::write(share.join("there"), THERE).map_err(failed)?;
        let there = share.join("there").display().to_string();
        let place = |name: &str| format!("{{ command = [\"{there}\"], dataset = \"theirs/{name}\" }}");
        let rules = "recursive = true\nparallel = 2\ndestroyed = \"destroy\"\n\
                     keep-source = { last = 2 }\nkeep-target = { last = 3 }\n";
        let policies = format!(
            "[policy.out]\nfrom = \"ours/src\"\nto = {}\n{rules}[policy.back]\nfrom = {}\nto = \"ours/copy\"\n{rules}\
             guard = \"hold\"\n",
            place("copy"),
            place("src")
        );
        std::fs::write(share.join("policies.toml"), policies).map_err(failed)?;
        let create = format!(
            "chmod 755 $SHARE/there; truncate -s 4G {dir}/ours/disk && \
             zpool create -O mountpoint={dir}/mnt ours {dir}/ours/disk"
        );
        self.sides.run(Side::Ours, &create)?;
        self.sides.run(Side::Theirs, "setsid bash $SHARE/calls.sh >/dev/null 2>&1 </dev/null &")?;
        let options = "-o acltype=posix -o xattr=sa -o atime=off -o canmount=off";
        for (way, (_, side)) in WAYS.iter().enumerate() {
            let pool = side.name();
            self.sides.run(*side, &format!("zfs create {options} {pool}/src"))?;
            for (name, size) in [("a", "-o recordsize=1m"), ("b", ""), ("c", "")] {
                self.sides.run(*side, &format!("zfs create {size} {pool}/src/{name}"))?;
                self.members[way].push(name.to_owned());
            }
        }
        Ok(())
    }

    fn round(&mut self) -> Result<String, Failure> {
        let mut said = Vec::new();
        for (way, (name, side)) in WAYS.into_iter().enumerate() {
            if self.round > 1 && self.random.one_in(2) {
                said.push(self.reshape(way)?);
            }
            self.work(way)?;
            said.push(self.replicate(way).map_err(|why| format!("{name}: {why}"))?);
            self.compare(way, side)?;
        }
        Ok(said.join("; "))
    }

    /// Changes files of some datasets of a source.
    fn work(&mut self, way: usize) -> Result<(), Failure> {
        let side = WAYS[way].1;
        let mut script = String::new();
        for name in &self.members[way] {
            if self.round > 1 && self.random.one_in(3) {
                continue;
            }
            let count = 5 + self.random.below(20);
            let files = work::files(&mut self.random, count);
            script.push_str(&format!("(\nwithin {}/src/{name}\n{files}\n)\n", side.name()));
        }
        // Streams that are long enough to be cut.
        if let Some(name) = self.members[way].first() {
            let from = self.random.below(8 << 20);
            let file = format!("op create 0 long{} 5000000 {from}", self.round);
            script.push_str(&format!("(\nwithin {}/src/{name}\n{file}\n)\n", side.name()));
        }
        self.sides.run(side, &script).map(drop)
    }

    /// Changes the tree of a source.
    fn reshape(&mut self, way: usize) -> Result<String, Failure> {
        let (_, side) = WAYS[way];
        let (pool, new) = (side.name(), format!("n{}", self.round));
        let members = &mut self.members[way];
        let at = self.random.below(members.len() as u64) as usize;
        let name = members[at].clone();
        let command = match self.random.below(4) {
            0 | 1 if members.len() < 6 => {
                members.push(new.clone());
                format!("zfs create {pool}/src/{new}")
            }
            2 if members.len() > 2 => {
                members.remove(at);
                // The policy holds the newest common snapshot.
                format!(
                    "for s in $(zfs list -H -o name -t snapshot -d 1 {pool}/src/{name}); do \
                     zfs holds -H $s | cut -f 2 | while read -r t; do zfs release $t $s; done; done; \
                     zfs destroy -r {pool}/src/{name}"
                )
            }
            _ => {
                members[at] = new.clone();
                format!("zfs rename {pool}/src/{name} {pool}/src/{new}")
            }
        };
        self.sides.run(side, &command)?;
        Ok(command.rsplit(';').next().unwrap_or_default().trim().to_owned())
    }

    /// Runs a policy; some runs before it are cut or killed.
    fn replicate(&mut self, way: usize) -> Result<String, Failure> {
        let (name, _) = WAYS[way];
        let run = format!("cenote replicate run {name} --policy-file $SHARE/policies.toml -v");
        let head = "export CALLS=$SHARE/calls\n";
        let mut said = String::new();
        let is_killed = self.random.one_in(5);
        match self.random.below(5) {
            _ if is_killed => {
                let after = 300 + self.random.below(4000);
                let script = format!("{head}timeout -s KILL {}.{:03} {run}", after / 1000, after % 1000);
                self.sides.try_run(Side::Ours, &script)?;
                said.push_str("killed, ");
            }
            0..3 => {
                let bytes = 20_000 + self.random.below(4 << 20);
                let (text, is_good) =
                    self.sides.try_run(Side::Ours, &format!("{head}export CUT={bytes}\n{run}"))?;
                self.note(way, &text);
                if !is_good {
                    self.cut[way] += 1;
                    said.push_str("cut, ");
                }
            }
            _ => {}
        }
        let mut tries = if is_killed { TRIES } else { 1 };
        loop {
            let (text, is_good) = self.sides.try_run(Side::Ours, &format!("{head}{run} --verify"))?;
            self.note(way, &text);
            if is_good {
                let sent = text.lines().filter(|line| line.ends_with(" sent")).count();
                return Ok(format!("{said}{name}: {sent} streams"));
            }
            tries -= 1;
            if tries == 0 {
                return Err(format!("{said}{run}\n{text}"));
            }
            self.sides.run(Side::Ours, "sleep 1")?;
        }
    }

    fn note(&mut self, way: usize, text: &str) {
        self.continued[way] += text.lines().filter(|line| line.contains(": continue @")).count() as u64;
    }

    /// Compares source and copy: names, and the newest snapshots.
    fn compare(&mut self, way: usize, source: Side) -> Result<(), Failure> {
        let copy = source.other();
        let mount = "zfs set canmount=off ours/copy 2>/dev/null; zfs mount -a";
        self.sides.run(Side::Ours, mount)?;
        let trees = [(source, "src"), (copy, "copy")].map(|(side, top)| {
            let list =
                format!("zfs list -H -r -t filesystem -o name {}/{top} | cut -s -d / -f 3-", side.name());
            self.sides.run(side, &list)
        });
        let [left, right] = trees;
        if let Some(why) = difference("the list of datasets", &left?, &right?) {
            return Err(why);
        }
        for name in self.members[way].clone() {
            let mut look = |side: Side, top: &str| {
                let set = format!("{}/{top}/{name}", side.name());
                let newest = format!("zfs list -H -o name -s createtxg -t snapshot -d 1 {set} | tail -n 1");
                self.sides.run(side, &format!("s=$({newest})\necho ${{s#*@}}\nlook $s"))
            };
            let (left, right) = (look(source, "src")?, look(copy, "copy")?);
            if let Some(why) = difference(&format!("src/{name} of {}", source.name()), &left, &right) {
                return Err(why);
            }
        }
        Ok(())
    }
}
