//! `cargo xtask peer alternate`: a tree of datasets that both sides have is changed on one side, sent to the other, and
//! compared there; then the other side changes it.

use super::sides::{Failure, Side, Sides};
use super::{Options, Random, difference, work};
use crate::Outcome;
use std::collections::BTreeMap;
use std::path::Path;

/// A dataset of the tree.
#[derive(Debug, Clone)]
struct Member {
    /// It has blocks of more than 128 KiB, which every increment must have too.
    is_large: bool,
    /// The property of no increment says so: a clone with its origin, by name.
    origin: Option<String>,
}

struct Trial {
    sides: Sides,
    random: Random,
    /// Datasets by name below the pool.
    members: BTreeMap<String, Member>,
    round: u64,
    /// Operations that a side has refused, with how often.
    refused: BTreeMap<String, u64>,
}

/// Name of the top of the tree below the pool.
const TOP: &str = "tree";

/// Runs the part.
pub(super) fn run(guest: &Path, program: &Path, options: &Options) -> Outcome {
    let sides = Sides::start(guest, program, &options.dir)?;
    let mut trial = Trial {
        sides,
        random: Random::new(options.seed),
        members: BTreeMap::new(),
        round: 0,
        refused: BTreeMap::new(),
    };
    trial.begin(&options.dir)?;
    let rounds = options.rounds_or(50);
    for round in 1..=rounds {
        trial.round = round;
        let side = if round % 2 == 1 { Side::Ours } else { Side::Theirs };
        let said = trial.round(side).map_err(|why| format!("seed {}, round {round}: {why}", options.seed))?;
        println!("round {round}: {said}");
    }
    for (line, count) in &trial.refused {
        println!("{count} times {line}");
    }
    trial.sides.end(true)?;
    println!("{rounds} rounds, seed {}: no difference", options.seed);
    Ok(())
}

impl Trial {
    /// Makes our pool and the tree, and sends it as a whole.
    fn begin(&mut self, dir: &Path) -> Result<(), Failure> {
        let (disk, mount) = (dir.join("ours/disk"), dir.join("mnt"));
        let create = format!(
            "truncate -s 4G {0} && zpool create -O mountpoint={1} ours {0}",
            disk.display(),
            mount.display()
        );
        self.sides.run(Side::Ours, &create)?;
        let options = "-o acltype=posix -o xattr=sa -o atime=off";
        // No file system is mounted within another: the folder that a receive makes for that is a change.
        self.sides.run(Side::Ours, &format!("zfs create {options} -o canmount=off ours/{TOP}"))?;
        for (name, is_large) in [(format!("{TOP}/a"), true), (format!("{TOP}/b"), false)] {
            let size = if is_large { "-o recordsize=1m" } else { "" };
            self.sides.run(Side::Ours, &format!("zfs create {size} ours/{name}"))?;
            self.members.insert(name, Member { is_large, origin: None });
        }
        self.work(Side::Ours)?;
        self.snapshot(Side::Ours)?;
        let sent = "zfs send -R -L";
        self.pass(Side::Ours, &format!("{sent} ours/{TOP}@r0"), &format!("zfs receive theirs/{TOP}"))?;
        self.compare(Side::Ours)
    }

    /// Works on a side, and sends the result to the other.
    fn round(&mut self, side: Side) -> Result<String, Failure> {
        let is_package = self.random.below(5) < 2;
        self.sides.run(side, "zfs mount -a")?;
        let mut said = Vec::new();
        if is_package && let Some(change) = self.reshape(side)? {
            said.push(change);
        }
        self.work(side)?;
        self.snapshot(side)?;
        if is_package {
            said.push(self.send_package(side)?);
        } else {
            let names: Vec<String> =
                [TOP.to_owned()].into_iter().chain(self.members.keys().cloned()).collect();
            for name in names {
                said.push(self.send_one(side, &name)?);
            }
        }
        self.compare(side)?;
        Ok(format!("{}: {}", side.name(), said.join("; ")))
    }

    /// Changes properties and files of some datasets.
    fn work(&mut self, side: Side) -> Result<(), Failure> {
        for (name, member) in self.members.clone() {
            if self.round > 0 && self.random.one_in(3) {
                continue;
            }
            let set = format!("{}/{name}", side.name());
            let mut script = String::new();
            for _ in 0..self.random.below(3) {
                let property = work::property(&mut self.random, member.is_large);
                script.push_str(&format!("op zfs set {property} {set}\n"));
            }
            script.push_str(&format!("within {set}\n"));
            let count = 5 + self.random.below(25);
            script.push_str(&work::files(&mut self.random, count));
            let said = self.sides.run(side, &script)?;
            for line in said.lines().filter(|line| line.starts_with("refused: ")) {
                let (what, why) =
                    line.split_once(": ").and_then(|(_, rest)| rest.rsplit_once(": ")).unwrap_or((line, ""));
                let verb = what.split(' ').next().unwrap_or_default();
                *self.refused.entry(format!("{}: {verb}: {why}", side.name())).or_default() += 1;
            }
        }
        Ok(())
    }

    /// Changes the shape of the tree; returns what was done.
    fn reshape(&mut self, side: Side) -> Result<Option<String>, Failure> {
        let (pool, last, round) = (side.name(), self.round - 1, self.round);
        let names: Vec<String> = self.members.keys().cloned().collect();
        if names.is_empty() {
            return Ok(None);
        }
        let name = names[self.random.below(names.len() as u64) as usize].clone();
        let is_large = self.members[&name].is_large;
        let new = format!("{TOP}/n{round}");
        let command = match self.random.below(6) {
            0 => {
                self.members.insert(new.clone(), Member { is_large: false, origin: None });
                format!("zfs create {pool}/{new}")
            }
            1 | 2 => {
                self.members.insert(new.clone(), Member { is_large, origin: Some(name.clone()) });
                format!("zfs clone {pool}/{name}@r{last} {pool}/{new}")
            }
            3 => {
                let clones = self.members.iter().filter(|(_, member)| member.origin.is_some());
                let Some(clone) = clones.map(|(name, _)| name.clone()).next() else { return Ok(None) };
                let origin = self.members.get_mut(&clone).and_then(|member| member.origin.take());
                let origin = origin.unwrap_or_default();
                if let Some(other) = self.members.get_mut(&origin) {
                    other.origin = Some(clone.clone());
                }
                format!("zfs promote {pool}/{clone}")
            }
            4 => {
                let member = self.members.remove(&name).ok_or("no such dataset")?;
                self.members.insert(new.clone(), member);
                for other in self.members.values_mut().filter(|other| other.origin.as_ref() == Some(&name)) {
                    other.origin = Some(new.clone());
                }
                format!("zfs rename {pool}/{name} {pool}/{new}")
            }
            _ => {
                let is_origin = self.members.values().any(|other| other.origin.as_ref() == Some(&name));
                if is_origin || names.len() < 3 {
                    return Ok(None);
                }
                self.members.remove(&name);
                format!("zfs destroy -r {pool}/{name}")
            }
        };
        self.sides.run(side, &command)?;
        Ok(Some(command))
    }

    /// Takes the snapshot of the round, and destroys an old one now and then.
    fn snapshot(&mut self, side: Side) -> Result<(), Failure> {
        let (pool, round) = (side.name(), self.round);
        self.sides.run(side, &format!("zfs snapshot -r {pool}/{TOP}@r{round}"))?;
        if round >= 3 && self.random.one_in(2) {
            // It may be the origin of a clone.
            let old = round - 2 - self.random.below(2);
            for name in self.members.keys() {
                self.sides.try_run(side, &format!("zfs destroy {pool}/{name}@r{old}"))?;
            }
        }
        Ok(())
    }

    fn send_package(&mut self, side: Side) -> Result<String, Failure> {
        let (last, now) = (self.round - 1, self.round);
        let start = if self.random.one_in(3) { "-i" } else { "-I" };
        // Large blocks must stay large.
        let flags = work::block_flags(&mut self.random, true);
        let sent = format!("zfs send -R {flags} {start} @r{last} {}/{TOP}@r{now}", side.name());
        self.pass(side, &sent, &format!("zfs receive -F {}/{TOP}", side.other().name()))?;
        Ok(sent)
    }

    /// Sends one dataset from the last snapshot, or from a bookmark of it.
    fn send_one(&mut self, side: Side, name: &str) -> Result<String, Failure> {
        let (last, now, pool) = (self.round - 1, self.round, side.name());
        let is_large = self.members.get(name).is_some_and(|member| member.is_large);
        let flags = work::block_flags(&mut self.random, is_large);
        let (before, start) = match self.random.below(6) {
            0 => (
                format!("zfs bookmark {pool}/{name}@r{last} '{pool}/{name}#r{last}' &&"),
                format!("-i '#r{last}'"),
            ),
            1 => (String::new(), format!("-p -i @r{last}")),
            2 => (String::new(), format!("-I @r{last}")),
            _ => (String::new(), format!("-i @r{last}")),
        };
        let sent = format!("zfs send {flags} {start} {pool}/{name}@r{now}");
        let to = format!("{}/{name}", side.other().name());
        let (send, is_package) = (format!("{before} {sent}"), sent.contains("-p") || sent.contains("-I"));
        if !is_package && self.random.one_in(3) {
            self.pass_in_parts(side, &send, &to)?;
            return Ok(format!("{sent} in parts"));
        }
        let force = self.random.of(&["", " -F", " -u", " -s"]);
        self.pass(side, &send, &format!("zfs receive{force} {to}"))?;
        Ok(sent)
    }

    /// Sends on a side and receives on the other.
    fn pass(&mut self, side: Side, send: &str, receive: &str) -> Result<(), Failure> {
        let file = format!("$SHARE/streams/{}", self.round);
        self.sides.run(side, &format!("{send} >{file}"))?;
        self.sides
            .run(side.other(), &format!("{receive} <{file}"))
            .map_err(|why| format!("{send}\n{why}"))?;
        Ok(())
    }

    /// Sends on a side, and receives only a part on the other; the token of that gives the rest.
    fn pass_in_parts(&mut self, side: Side, send: &str, to: &str) -> Result<(), Failure> {
        let file = format!("$SHARE/streams/{}", self.round);
        let part = self.random.below(1000);
        self.sides.run(side, &format!("{send} >{file}.all; size=$(stat -c %s {file}.all); head -c $((size * {part} / 1000)) {file}.all >{file}"))?;
        let receive = format!(
            "zfs receive -s {to} <{file} >/dev/null 2>&1; zfs get -H -o value receive_resume_token {to}"
        );
        let token = self.sides.run(side.other(), &receive)?;
        let token = token.trim();
        // Too little may have come for a state: then all is sent again.
        let send = if token == "-" { format!("cat {file}.all") } else { format!("zfs send -t {token}") };
        self.pass(side, &send, &format!("zfs receive -s {to}"))
    }

    /// Compares the snapshots of the round.
    fn compare(&mut self, side: Side) -> Result<(), Failure> {
        let now = self.round;
        let listed =
            |pool: &str| format!("zfs list -H -r -t filesystem -o name {pool}/{TOP} | sed 's/^[a-z]*//'");
        let lists = [Side::Ours, Side::Theirs].map(|side| self.sides.run(side, &listed(side.name())));
        let [ours, theirs] = lists;
        if let Some(why) = difference("the list of datasets", &ours?, &theirs?) {
            return Err(why);
        }
        for name in self.members.keys() {
            let mut say = |side: Side| self.sides.run(side, &format!("look {}/{name}@r{now}", side.name()));
            let (ours, theirs) = (say(Side::Ours)?, say(Side::Theirs)?);
            if let Some(why) = difference(&format!("{name}@r{now} from {}", side.name()), &ours, &theirs) {
                return Err(why);
            }
        }
        Ok(())
    }
}
