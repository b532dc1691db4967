//! `cargo xtask peer generated`: pools of ours of many layouts, with datasets of many properties. What they send is
//! received by OpenZFS, sent back, and received by us into another dataset: all three have the same contents.

use super::sides::{Failure, Side, Sides};
use super::{Options, Random, difference, work};
use crate::Outcome;
use std::path::Path;

/// Layouts, with the number of their disks.
const LAYOUTS: [(&str, usize); 6] =
    [("", 1), ("", 2), ("mirror", 2), ("raidz1", 3), ("raidz2", 4), ("raidz3", 5)];
/// The dataset that is sent.
const SET: &str = "set";
/// The dataset that comes back.
const BACK: &str = "back";

/// How a dataset with two snapshots travels.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// The first snapshot, then the increment.
    Increment,
    /// All in one package.
    Package,
    /// The first snapshot, then a package of all later ones.
    Interval,
    /// The first snapshot with small blocks, the increment with large ones.
    ToLarge,
}

/// Runs the part.
pub(super) fn run(guest: &Path, program: &Path, options: &Options) -> Outcome {
    let mut sides = Sides::start(guest, program, &options.dir)?;
    let count = options.rounds_or(20);
    for number in 0..count {
        let seed = options.seed + number;
        let mut trial = Trial { sides: &mut sides, random: Random::new(seed), disks: Vec::new() };
        let said = trial.run(&options.dir).map_err(|why| format!("--seed {seed} --count 1: {why}"))?;
        println!("{seed}: {said}");
    }
    println!("{count} datasets from seed {}: no difference", options.seed);
    sides.end(false)
}

struct Trial<'a> {
    sides: &'a mut Sides,
    random: Random,
    disks: Vec<String>,
}

impl Trial<'_> {
    fn run(&mut self, dir: &Path) -> Result<String, Failure> {
        let layout = self.create_pool(dir)?;
        let is_volume = self.random.one_in(4);
        let (what, is_large) = if is_volume { self.volume(dir)? } else { self.files()? };
        let ways = [Way::Increment, Way::Package, Way::Interval];
        let way = if is_large && self.random.one_in(2) { Way::ToLarge } else { self.random.of(&ways) };
        let there = self.travel(Side::Ours, SET, SET, way, is_large)?;
        // What was split stays split.
        let way_back = self.random.of(&ways);
        let back = self.travel(Side::Theirs, SET, BACK, way_back, is_large)?;
        let carries = |way: Way| matches!(way, Way::Package | Way::Interval);
        if carries(way) && carries(way_back) {
            let mut facts =
                |side: Side, set: &str| self.sides.run(side, &format!("facts {}/{set}", side.name()));
            let (first, there, here) =
                (facts(Side::Ours, SET)?, facts(Side::Theirs, SET)?, facts(Side::Ours, BACK)?);
            let why = difference("the properties there", &first, &there);
            if let Some(why) = why.or_else(|| difference("the properties of what came back", &first, &here)) {
                return Err(format!("{what}\n{why}"));
            }
        }
        for (side, set) in [(Side::Theirs, SET), (Side::Ours, BACK)] {
            for snapshot in ["a", "b"] {
                let mut look = |side: Side, set: &str| {
                    self.sides.run(side, &format!("look {}/{set}@{snapshot}", side.name()))
                };
                let (first, other) = (look(Side::Ours, SET)?, look(side, set)?);
                if let Some(why) = difference(&format!("{}/{set}@{snapshot}", side.name()), &first, &other) {
                    return Err(format!("{what}\n{there}\n{back}\n{why}"));
                }
            }
        }
        self.sides.run(Side::Theirs, &format!("zfs destroy -R theirs/{SET}"))?;
        self.sides.judge()?;
        self.sides.run(Side::Ours, &format!("rm -f {}", self.disks.join(" ")))?;
        Ok(format!("{layout}, {what}; {there}; {back}"))
    }

    fn create_pool(&mut self, dir: &Path) -> Result<String, Failure> {
        let (kind, count) = self.random.of(&LAYOUTS);
        self.disks = (0..count).map(|n| dir.join(format!("ours/disk{n}")).display().to_string()).collect();
        let disks = self.disks.join(" ");
        let ashift = self.random.of(&[9, 12, 13]);
        let mount = dir.join("mnt");
        let create = format!(
            "zpool create -o ashift={ashift} -O acltype=posix -O mountpoint={} ours {kind} {disks}",
            mount.display()
        );
        self.sides.run(Side::Ours, &format!("truncate -s 1G {disks} && {create}"))?;
        Ok(format!("{kind} of {count}, ashift {ashift}"))
    }

    /// A file system with two snapshots; also tells whether it may have blocks of more than 128 KiB.
    fn files(&mut self) -> Result<(String, bool), Failure> {
        let r = &mut self.random;
        let is_large = r.one_in(2);
        let size =
            if is_large { r.of(&["256k", "1m", "4m", "16m"]) } else { r.of(&["512", "4k", "16k", "128k"]) };
        let options = format!("-o recordsize={size} {}", work::settings(r, false));
        self.sides.run(Side::Ours, &format!("zfs create {options} ours/{SET}"))?;
        for snapshot in ["a", "b"] {
            let count = 20 + self.random.below(40);
            let property = work::property(&mut self.random, is_large);
            let files = work::files(&mut self.random, count);
            self.sides.run(
                Side::Ours,
                &format!("op zfs set {property} ours/{SET}\nwithin ours/{SET}\n{files}zfs snapshot ours/{SET}@{snapshot}"),
            )?;
        }
        Ok((format!("zfs create {options}"), is_large))
    }

    /// A volume with two snapshots. Our volumes are written while no daemon has the pool.
    fn volume(&mut self, dir: &Path) -> Result<(String, bool), Failure> {
        let r = &mut self.random;
        let size = r.of(&["512", "4k", "8k", "16k", "64k", "128k"]);
        let options = format!("-s -V 12m -b {size} {}", work::settings(r, true));
        self.sides.run(Side::Ours, &format!("zfs create {options} ours/{SET}"))?;
        for snapshot in ["a", "b"] {
            let parts = (0..3).map(|_| {
                format!(
                    "put $WORK/image {} {} {}\n",
                    r.below(9 << 20),
                    1 + r.below(2 << 20),
                    r.below(8 << 20)
                )
            });
            let parts: String = parts.collect();
            let away =
                format!("CENOTE_DIRECT=1 cenote cp -d {} $WORK/image ours/{SET}", dir.join("ours").display());
            self.sides.run(
                Side::Ours,
                &format!(
                    "truncate -s 12m $WORK/image\n{parts}zpool export ours && {away} && \
                     zpool import -d {} ours && zfs snapshot ours/{SET}@{snapshot}",
                    dir.join("ours").display()
                ),
            )?;
        }
        self.sides.run(Side::Ours, "rm $WORK/image")?;
        Ok((format!("zfs create {options}"), false))
    }

    /// Sends a dataset of a side to the other side; returns the commands.
    fn travel(
        &mut self,
        from: Side,
        set: &str,
        to: &str,
        way: Way,
        is_large: bool,
    ) -> Result<String, Failure> {
        let source = format!("{}/{set}", from.name());
        let mut flags = || work::block_flags(&mut self.random, is_large);
        let (first, second) = (flags(), flags());
        let sends = match way {
            Way::Increment => vec![format!("{first} {source}@a"), format!("{second} -i @a {source}@b")],
            Way::Package => vec![format!("-R {first} {source}@b")],
            Way::Interval => vec![format!("-p {first} {source}@a"), format!("-p {second} -I @a {source}@b")],
            Way::ToLarge => vec![format!("-c {source}@a"), format!("-L -i @a {source}@b")],
        };
        for send in &sends {
            let file = "$SHARE/streams/stream";
            self.sides.run(from, &format!("zfs send {send} >{file}"))?;
            let receive = format!("zfs receive -F {}/{to} <{file}", from.other().name());
            self.sides.run(from.other(), &receive).map_err(|why| format!("zfs send {send}: {why}"))?;
        }
        Ok(format!("{} sends {}", from.name(), sends.join(", then ")))
    }
}
