//! `cenote-stress`: rounds of several actors, until the time is up. `cargo xtask stress` builds what it needs and runs it.

use cenote_stress::{Actors, Plan, run};
use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

/// Several actors at once on a daemon of its own: writers, administrators, devices that leave and return, kill -9; then
/// models, cenote verify, zdb -bcc and sets of devices that must suffice.
#[derive(Parser)]
struct Args {
    /// Decides what is done (drawn and told, if not given)
    #[arg(long)]
    seed: Option<u64>,
    /// How long rounds are begun
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// How long the actors of a round work
    #[arg(long, default_value_t = 20)]
    round_seconds: u64,
    /// This round alone
    #[arg(long)]
    round: Option<u64>,
    /// Programs that write
    #[arg(long, default_value_t = 3)]
    writers: u64,
    /// Administrators
    #[arg(long, default_value_t = 2)]
    administrators: u64,
    /// Devices stay
    #[arg(long)]
    no_devices: bool,
    /// The daemon is not killed
    #[arg(long)]
    no_kills: bool,
    /// The transport of mounts is left as the machine has it
    #[arg(long)]
    one_transport: bool,
    /// The program cenote
    #[arg(long)]
    program: PathBuf,
    /// Where the folders of rounds are made
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
