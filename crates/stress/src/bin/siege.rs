//! `cenote-siege`: users without rights against root's daemon. `cargo xtask siege` builds what it needs and runs it.

use cenote_stress::siege::{Plan, run};
use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

/// Two users without rights against root's daemon; needs root.
#[derive(Parser)]
struct Args {
    /// Decides what is done (drawn and told, if not given)
    #[arg(long)]
    seed: Option<u64>,
    /// How long it takes; the daemon is killed in the second half
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Mounted file systems of root's
    #[arg(long, default_value_t = 300)]
    mounts: u64,
    /// The program cenote
    #[arg(long)]
    program: PathBuf,
    /// Where its folder is made; every user must be able to get there
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
