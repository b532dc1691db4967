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
use crate::cost::{Cost, Meter};
use crate::pools::{Bench, Wanted, noise};
use crate::report::Report;
use clap::{Args, ValueEnum};
use pool::Layout;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use zpl::FileKind;
use zpl::{NewFile, WriteHow};

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

/// Drops the system's cache of the files in a directory.
fn cool(folder: &Path) -> Result<(), Failure> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_file() {
            let file = File::open(&path)?;
            file.sync_all()?;
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        }
    }
    Ok(())
}

/// A pool with one file of this many incompressible bytes.
fn one_file(dir: &Path, name: &str, bytes: u64, record_size: u64) -> Result<TempDir, Failure> {
    // Allowance for reserved space and indirect blocks.
    let size = bytes + bytes / 8 + (512 << 20);
    let (layout, cache_bytes) = (Layout::Single, 512 << 20);
    let wanted = Wanted { disks: 1, size, layout, record_size, cache_bytes, prefill: size };
    let bench = Bench::new(dir, &wanted)?;
    let fs = &bench.fs.fs;
    let file = fs.create(fs.root(), name.as_bytes(), &NewFile::of(FileKind::Regular, 0o644))?.id;
    let data = noise(1 << 20, 5);
    for at in (0..bytes).step_by(data.len()) {
        fs.write(file, at, &data, &WriteHow::default())?;
    }
    bench.close()
}

/// The better of two runs.
fn best(before: Option<Cost>, now: Cost) -> Option<Cost> {
    Some(before.filter(|before| before.wall <= now.wall).unwrap_or(now))
}

/// Runs a program to its end and ignores its output.
fn timed(command: &mut Command) -> Result<Cost, Failure> {
    let cpu = children_cpu();
    let meter = Meter::start();
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let name = command.get_program().to_string_lossy().into_owned();
    let status = status.map_err(|error| format!("{name}: {error}"))?;
    let wall = meter.stop().wall;
    if !status.success() {
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        return Err(format!("{name} {}: {status}", words.join(" ")).into());
    }
    Ok(Cost { wall, cpu: children_cpu().saturating_sub(cpu) })
}

/// CPU time of all child processes that have ended: fields `cutime` and `cstime` of /proc/self/stat, in ticks.
fn children_cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields = after_name.split_whitespace().skip(13).take(2);
    let ticks: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second().max(1))
}

/// A command of Cenote in its own process, with pools from a directory.
fn ours(choices: &Choices, verb: &str, folder: &Path) -> Command {
    let mut command = Command::new(&choices.program);
    command.env("CENOTE_DIRECT", "1").arg(verb).arg("-d").arg(folder);
    command
}

/// CPU seconds of both sides.
fn cpu_note(ours: Cost, theirs: Cost) -> String {
    format!("CPU {:.2} s, {:.2}", ours.cpu.as_secs_f64(), theirs.cpu.as_secs_f64())
}
