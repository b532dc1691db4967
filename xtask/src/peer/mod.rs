//! `cargo xtask peer`: OpenZFS judges our send streams and what we receive. A kernel with OpenZFS runs in a guest.
//!
//! - `alternate`: a tree of datasets is changed in turn on our side and in OpenZFS, and each time sent to the other side.
//! - `generated`: datasets of many layouts and properties go to OpenZFS and back.
//! - `replicate`: `cenote replicate` keeps copies of trees at the other side, in both directions.
//! - `programs`: unmodified programs for backups, with our commands on one end and OpenZFS's on the other.
//! - `records`: for the same snapshot and flags both send the same bytes.
//!
//! # What always holds
//! - The same seed gives the same work. Snapshots are compared by [`look`](../guest/tools.sh), the same script on both
//!   sides: names, contents, attributes, owners, times, numbers of links and of files.
//! - The first difference ends a part; the folder with both pools is kept and named.

mod alternate;
mod generated;
mod programs;
mod records;
mod replicate;
mod sides;
mod tool;
mod work;

use std::path::{Path, PathBuf};

use crate::{Outcome, cargo, must, outside, root};

const USAGE: &str = "\
cargo xtask peer PART [OPTION…], as root; parts:
  alternate [--rounds N] [--seed S]   50 rounds of work and of increments, the sides in turn
  generated [--count N] [--seed S]    20 datasets of ours, sent there and back
  replicate [--rounds N] [--seed S]   12 rounds of cenote replicate to OpenZFS and from it, with cut streams
  programs [--rounds N] [--programs P,…]
                                      3 rounds of syncoid, zfs-autobackup and pyznap, to OpenZFS and from it;
                                      P is such a program, or PROGRAM:out or PROGRAM:back
  records [--pools P,…]               the streams of golden pools, byte by byte
options: --dir DIR       folder of the run (target/peer)
         --program FILE  our program (default: a debug build of it)
The kernel with OpenZFS is not part of the project: ../shared/kernel-peer/run.sh, or CENOTE_KERNEL_PEER=FOLDER with a
run.sh, which boots it and runs a script there (cargo xtask kernel-peer uses the same).";

/// Options of all parts.
struct Options {
    seed: u64,
    rounds: u64,
    pools: Vec<String>,
    programs: Vec<String>,
    dir: PathBuf,
    program: Option<PathBuf>,
}

impl Options {
    fn read(words: &[String]) -> Result<Options, String> {
        let mut options = Options {
            seed: 1,
            rounds: 0,
            pools: Vec::new(),
            programs: Vec::new(),
            dir: root().join("target/peer"),
            program: None,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value\n{USAGE}"));
            let number = |text: &String| text.parse().map_err(|_| format!("{text} is not a number"));
            match word.as_str() {
                "--seed" => options.seed = value().and_then(number)?,
                "--rounds" | "--count" => options.rounds = value().and_then(number)?,
                "--pools" => options.pools = value()?.split(',').map(str::to_owned).collect(),
                "--programs" => options.programs = value()?.split(',').map(str::to_owned).collect(),
                "--dir" => options.dir = PathBuf::from(value()?),
                "--program" => options.program = Some(PathBuf::from(value()?)),
                _ => return Err(format!("'{word}'?\n{USAGE}")),
            }
        }
        Ok(options)
    }

    fn rounds_or(&self, rounds: u64) -> u64 {
        if self.rounds == 0 { rounds } else { self.rounds }
    }
}

/// Runs `cargo xtask peer PART …`.
pub(crate) fn run(words: &[String]) -> Outcome {
    let Some((part, rest)) = words.split_first() else { return Err(USAGE.to_owned()) };
    let part: fn(&Path, &Path, &Options) -> Outcome = match part.as_str() {
        "alternate" => alternate::run,
        "generated" => generated::run,
        "replicate" => replicate::run,
        "programs" => programs::run,
        "records" => records::run,
        _ => return Err(USAGE.to_owned()),
    };
    let options = Options::read(rest)?;
    if !testkit::need_root() || !Path::new("/dev/fuse").exists() {
        return Err("our side mounts file systems: it needs root and /dev/fuse".to_owned());
    }
    let guest = outside::outside("CENOTE_KERNEL_PEER", "kernel-peer", "run.sh")?;
    let program = match &options.program {
        Some(program) => program.clone(),
        None => {
            must(&mut cargo(&["build", "--quiet", "--package", "cenote-cli"]))?;
            root().join("target/debug/cenote")
        }
    };
    std::fs::create_dir_all(&options.dir).map_err(|error| format!("{}: {error}", options.dir.display()))?;
    part(&guest, &program, &options).map_err(|why| format!("{why}\nall is kept in {}", options.dir.display()))
}

/// Random numbers that a seed determines (splitmix64).
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`.
    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// One of several values.
    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// The first differences between what both sides say of a snapshot; `None` if there are none.
fn difference(what: &str, ours: &str, theirs: &str) -> Option<String> {
    if ours == theirs {
        return None;
    }
    let (left, right): (std::collections::BTreeSet<_>, std::collections::BTreeSet<_>) =
        (ours.lines().collect(), theirs.lines().collect());
    let only =
        |name: &str, here: &std::collections::BTreeSet<&str>, there: &std::collections::BTreeSet<&str>| {
            here.difference(there).take(8).map(|line| format!("\n  {name}: {line}")).collect::<String>()
        };
    Some(format!("{what} differs{}{}", only("ours", &left, &right), only("theirs", &right, &left)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_name_the_side() {
        assert_eq!(difference("x", "a\nb\n", "a\nb\n"), None);
        assert_eq!(difference("x", "a\nb\n", "a\nc\n").as_deref(), Some("x differs\n  ours: b\n  theirs: c"));
    }

    #[test]
    fn the_same_seed_gives_the_same_work() {
        let script = |seed| work::files(&mut Random::new(seed), 30);
        assert_eq!(script(7), script(7));
        assert_ne!(script(7), script(8));
    }
}
