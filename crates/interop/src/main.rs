//! `cargo xtask interop` and the parts of `cargo xtask kernel-peer` that need the engine.
#![forbid(unsafe_code)]
// The disks of the pools are files in a folder of their own.
#![allow(clippy::disallowed_types)]

use cenote_interop::trial::Trial;
use clap::Parser;
use std::process::ExitCode;

/// Pools of every layout and mix of features, with seeded work in them, judged by OpenZFS's `zdb`.
#[derive(Parser)]
struct Args {
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds.
    #[arg(long, default_value_t = 1)]
    runs: u64,
    /// How often each pool is let go of and opened again.
    #[arg(long, default_value_t = 4)]
    rounds: u64,
    /// Steps of work in between.
    #[arg(long, default_value_t = 60)]
    steps: u64,
    /// Only this layout.
    #[arg(long)]
    layout: Option<String>,
    /// Ask zdb only after so many rounds.
    #[arg(long, default_value_t = 1)]
    zdb_every: u64,
    /// Let ztest work on each pool for so many seconds at the end.
    #[arg(long, default_value_t = 0)]
    ztest: u64,
    /// Leave the files of the last pool in this folder.
    #[arg(long)]
    dir: Option<std::path::PathBuf>,
    /// Print all operations before a failure, not only the last.
    #[arg(long)]
    trace: bool,
    /// Go on after a failure.
    #[arg(long)]
    keep_going: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let mut failed = 0;
    for seed in args.seed..args.seed + args.runs {
        let trial = Trial {
            seed,
            layout: args.layout.clone(),
            rounds: args.rounds,
            steps: args.steps,
            zdb_every: args.zdb_every,
            asks_zdb: true,
            ztest_secs: args.ztest,
            full_trace: args.trace,
        };
        let dir = match tempfile::tempdir() {
            Ok(dir) => dir,
            Err(error) => {
                eprintln!("interop: no temporary folder: {error}");
                return ExitCode::FAILURE;
            }
        };
        if let Some(dir) = &args.dir
            && let Err(error) = std::fs::create_dir_all(dir)
        {
            eprintln!("interop: {}: {error}", dir.display());
            return ExitCode::FAILURE;
        }
        match trial.run(args.dir.as_deref().unwrap_or(dir.path())) {
            Ok(plan) => println!("seed {seed}: {plan}: fine"),
            Err(why) => {
                failed += 1;
                println!("interop: {why}\nFAILED: seed {seed}");
                if !args.keep_going {
                    break;
                }
            }
        }
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
