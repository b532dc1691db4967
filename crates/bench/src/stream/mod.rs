//! `cargo xtask bench stream`: snapshots sent and received, each compared with another way to copy the same data, or
//! with what the same device or library does at most.
//!
//! [`large`] measures through the library, on pools in files: sends of a large file out of the cache, and receives.
//! [`cold`] and [`trees`] measure commands and a daemon on a loop device: a large file, and a million small ones beside
//! tar and rsync on the same mounts, and btrfs on the same device. It must run as root.

mod cold;
mod large;
mod trees;

use crate::Failure;
use crate::mount::{LoopImage, Tools, run_folder, work_below};
use crate::report::Report;
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};

/// What there is to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum What {
    /// A large file sent, cached and cold.
    Send,
    /// A large file received, beside sequential writing.
    Receive,
    /// The memory of the commands, with blocks of 16 MiB.
    Memory,
    /// Many small files sent and received, and an increment.
    Trees,
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
    /// Number of small files (default: 1,000,000)
    #[arg(long)]
    files: Option<u64>,
    /// How often each side runs; the trees run once
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Path of the cenote program
    #[arg(long, default_value = "target/release/cenote")]
    program: PathBuf,
    /// The folder where the table and the JSON are kept
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
}

impl Choices {
    /// Bytes of the large file.
    fn bytes(&self) -> u64 {
        if self.quick { 256 << 20 } else { 2 << 30 }
    }

    fn files(&self) -> u64 {
        self.files.unwrap_or(if self.quick { 20_000 } else { 1_000_000 })
    }
}

/// Runs the chosen measurements.
pub(crate) fn run(dir: &Path, choices: &Choices) -> Result<(), Failure> {
    if !rustix::process::geteuid().is_root() {
        return Err("this mounts file systems: only root can do that".into());
    }
    let Some(folder) = run_folder() else { return work_below(dir) };
    let is_wanted = |what| choices.only.is_empty() || choices.only.contains(&what);
    let cenote = choices.program.canonicalize();
    let cenote = cenote.map_err(|error| format!("{}: {error}", choices.program.display()))?;
    let image = |bytes: u64| LoopImage::new(folder.clone(), bytes, Tools::only(cenote.clone()));
    let mut report = Report::new("stream");
    if is_wanted(What::Send) {
        large::send_file(&folder, choices, &mut report)?;
        cold::run(&image(choices.bytes() / 4 * 5 + (1 << 30))?, choices, &mut report)?;
    }
    if is_wanted(What::Receive) {
        large::receive_file(&folder, choices, &mut report)?;
    }
    if is_wanted(What::Memory) {
        large::memory(&folder, choices, &mut report)?;
    }
    if is_wanted(What::Trees) {
        let bytes = (choices.files() * trees::ROOM).max(1 << 30);
        trees::run(&image(bytes)?, choices.files(), &mut report)?;
    }
    report.keep(&choices.out)
}
