//! `cargo xtask bench read`: reads pools through the library and the commands, each compared with a program that
//! does the same or reads as much from the same file.
//!
//! # What always holds
//! - Both sides run in turn, [`Choices::rounds`] times; the best run of each, which is the least disturbed, counts.
//! - For cold measurements the caches of the system and of Cenote are dropped before each run.

mod copying;
mod listing;
mod random;
mod verifying;

use crate::Failure;
use crate::report::Report;
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What there is to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum What {
    /// Every block of a cold pool, beside `zdb -bcc`.
    Verify,
    /// A large file out of a cold pool, beside `cat` of the pool's own file.
    Copy,
    /// A million files listed with all they have.
    List,
    /// 8 KiB at random places by 200 threads, beside fio on the pool's own file.
    Random,
}

/// What to measure, and how.
#[derive(Debug, Args)]
pub(crate) struct Choices {
    /// What to measure, comma-separated (default: all)
    #[arg(long, value_delimiter = ',')]
    only: Vec<What>,
    /// Small sizes: good to see that all works
    #[arg(long)]
    quick: bool,
    /// How often each side runs
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Path of the cenote program
    #[arg(long, default_value = "target/release/cenote")]
    program: PathBuf,
    /// The folder of a pool to verify, in place of one that is made here
    #[arg(long, requires = "pool")]
    pool_dir: Option<PathBuf>,
    /// Name of that pool
    #[arg(long, requires = "pool_dir")]
    pool: Option<String>,
    /// Path of OpenZFS's zdb
    #[arg(long, default_value = "/usr/sbin/zdb")]
    zdb: PathBuf,
    /// The folder where the table and the JSON are kept
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
}

/// Runs the chosen measurements.
pub(crate) fn run(dir: &Path, choices: &Choices) -> Result<(), Failure> {
    let mut report = Report::new("read");
    let is_wanted = |what| choices.only.is_empty() || choices.only.contains(&what);
    if is_wanted(What::Verify) {
        verifying::run(dir, choices, &mut report)?;
    }
    if is_wanted(What::Copy) {
        copying::run(dir, choices, &mut report)?;
    }
    if is_wanted(What::List) {
        listing::run(dir, choices, &mut report)?;
    }
    if is_wanted(What::Random) {
        random::run(dir, choices, &mut report)?;
    }
    report.keep(&choices.out)
}

/// A command of Cenote in its own process, with pools from a directory.
fn ours(choices: &Choices, verb: &str, folder: &Path) -> Command {
    let mut command = Command::new(&choices.program);
    command.env("CENOTE_DIRECT", "1").arg(verb).arg("-d").arg(folder);
    command
}
