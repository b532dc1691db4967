//! The parts of `cargo xtask kernel-peer --logs` that need the engine: makes pools with logs, and compares
//! the result of their replay by an OpenZFS kernel with that of our own replay.
#![forbid(unsafe_code)]

use cenote_crash::logs::{Case, check, make};
use clap::{Parser, ValueEnum};
use std::path::PathBuf;
use std::process::ExitCode;

/// Pools whose logs wait to be replayed, for a kernel with OpenZFS.
#[derive(Parser)]
struct Args {
    /// What to do.
    verb: Verb,
    /// Where the pools are, each in a folder of its own.
    dir: PathBuf,
}

#[derive(Clone, Copy, ValueEnum)]
enum Verb {
    /// Makes the pools.
    Make,
    /// Looks at what the kernel has left.
    Check,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let mut failed = 0;
    for (name, case) in Case::ALL {
        let dir = args.dir.join(name);
        let done = match args.verb {
            Verb::Make => make(&dir, case),
            Verb::Check => check(&dir, case),
        };
        match done {
            Ok(()) => println!("{name}: fine"),
            Err(why) => {
                failed += 1;
                println!("{name}: {}", cenote::error::chain(&*why));
            }
        }
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
