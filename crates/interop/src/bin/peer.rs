//! The parts of `cargo xtask kernel-peer` that need the engine: makes pools, and checks what the kernel has
//! left of them.
#![forbid(unsafe_code)]

use cenote::error::chain;
use cenote_interop::{Failure, peer};
use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// Pools for a kernel with OpenZFS, and what it has made of them.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    verb: Verb,
    /// Where everything that is random comes from.
    #[arg(long, default_value_t = 1, global = true)]
    seed: u64,
    /// Only these layouts.
    #[arg(long, global = true)]
    layout: Vec<String>,
}

#[derive(Subcommand)]
enum Verb {
    /// Makes a pool of each layout, each in a folder of its own.
    Make {
        /// Where.
        dir: PathBuf,
        /// Steps of work in each.
        #[arg(long, default_value_t = 120)]
        steps: u64,
    },
    /// Looks at what the kernel has left.
    Check {
        /// Where.
        dir: PathBuf,
    },
}

fn main() -> ExitCode {
    let args = Args::parse();
    let mut failed = 0;
    let all = peer::layout_names().into_iter().map(str::to_owned).collect();
    for layout in if args.layout.is_empty() { all } else { args.layout.clone() } {
        match run(&args, &layout) {
            Ok(()) => println!("{layout}: fine"),
            Err(why) => {
                failed += 1;
                println!("{layout}, --seed {}: {}", args.seed, chain(&*why));
            }
        }
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(args: &Args, layout: &str) -> Result<(), Failure> {
    match &args.verb {
        Verb::Make { dir, steps } => peer::make(&dir.join(layout), layout, args.seed, *steps),
        Verb::Check { dir } => peer::check(&dir.join(layout), args.seed),
    }
}
