//! `cenote-siege`: attacks of unprivileged users on the daemon of root. `cargo xtask siege` builds and runs
//! it.

use cenote_stress::siege::{Plan, run};
use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

/// Attacks the daemon of root as two unprivileged users; needs root
#[derive(Parser)]
struct Args {
    /// Seed of all random choices (random and reported, if not given)
    #[arg(long)]
    seed: Option<u64>,
    /// Duration in seconds; the daemon is killed in the second half
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Number of mounted file systems of root
    #[arg(long, default_value_t = 300)]
    mounts: u64,
    /// Path of the cenote program
    #[arg(long)]
    program: PathBuf,
    /// Directory in which the siege makes its own; every user must be able to enter it
    #[arg(long)]
    dir: PathBuf,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let drawn = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(1, |now| now.as_secs());
    let seed = args.seed.unwrap_or_else(drawn);
    let time = Duration::from_secs(args.seconds);
    match run(&Plan { seed, time, mounts: args.mounts, program: args.program, folder: args.dir }) {
        Ok(()) => {
            println!("seed {seed}: all as it was");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("seed {seed}: {failure}");
            ExitCode::FAILURE
        }
    }
}
