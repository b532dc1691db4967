//! `cenote-stress`: runs rounds of several actors until the time is up. `cargo xtask stress` builds and runs
//! it.

use cenote_stress::{Actors, Plan, run};
use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

/// Runs several actors at once on a daemon and pool of their own: writers, administrators, failing devices,
/// kill -9; then checks the result by models, cenote verify, zdb -bcc and with every set of devices that must
/// suffice
#[derive(Parser)]
struct Args {
    /// Seed of all random choices (random and reported, if not given)
    #[arg(long)]
    seed: Option<u64>,
    /// Seconds in which rounds are started
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Seconds that the actors of a round work
    #[arg(long, default_value_t = 20)]
    round_seconds: u64,
    /// Run this round only
    #[arg(long)]
    round: Option<u64>,
    /// Number of writers
    #[arg(long, default_value_t = 3)]
    writers: u64,
    /// Number of administrators
    #[arg(long, default_value_t = 2)]
    administrators: u64,
    /// No device faults
    #[arg(long)]
    no_devices: bool,
    /// The daemon is not killed
    #[arg(long)]
    no_kills: bool,
    /// Do not switch the transport of mounts
    #[arg(long)]
    one_transport: bool,
    /// Path of the cenote program
    #[arg(long)]
    program: PathBuf,
    /// Directory in which rounds make theirs
    #[arg(long)]
    dir: PathBuf,
}

fn main() -> ExitCode {
    if cenote_stress::map_writer() {
        return ExitCode::SUCCESS;
    }
    let args = Args::parse();
    let drawn = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(1, |now| now.as_secs());
    let seed = args.seed.unwrap_or_else(drawn);
    let plan = Plan {
        seed,
        time: Duration::from_secs(args.seconds),
        round: Duration::from_secs(args.round_seconds),
        only: args.round,
        program: args.program,
        folder: args.dir,
        actors: Actors {
            writers: args.writers,
            administrators: args.administrators,
            devices: !args.no_devices,
            kills: !args.no_kills,
            both_transports: !args.one_transport,
        },
    };
    match run(&plan) {
        Ok(done) => {
            println!(
                "seed {seed}: {} rounds, {} calls, {} commands, {} kills: all well",
                done.rounds, done.calls, done.commands, done.kills
            );
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}
