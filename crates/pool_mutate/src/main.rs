//! `cenote-pool-mutate`: rewrites pools from the command line.
#![forbid(unsafe_code)]

use cenote_pool_mutate::image::{Backing, Image};
use cenote_pool_mutate::swap::{self, Which};
use cenote_pool_mutate::{MutateError, mutate};
use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// Rewrites pools in place, with valid checksums.
#[derive(Parser)]
struct Forge {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Writes a pool in the other byte order.
    Swap {
        /// Name of the pool.
        pool: String,
        /// Image files of the pool; they are changed in place.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Only one half of the blocks, chosen by this seed; the uberblock with odd seeds.
        #[arg(long)]
        half: Option<u64>,
        /// All blocks, but not the uberblock: such a pool can be opened for writing.
        #[arg(long, conflicts_with = "half")]
        below: bool,
    },
    /// Changes blocks of a pool as an attacker would, chosen by a seed.
    Mutate {
        /// Name of the pool.
        pool: String,
        /// Image files of the pool; they are changed in place.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Chooses the blocks and the changes.
        #[arg(long, default_value_t = 0)]
        seed: u64,
    },
}

fn main() -> ExitCode {
    match run(Forge::parse().verb) {
        Ok(done) => {
            println!("{done}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("cenote-pool-mutate: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(verb: Verb) -> Result<String, MutateError> {
    Ok(match verb {
        Verb::Swap { pool, files, half, below } => {
            let which = half.map_or(if below { Which::Below } else { Which::All }, Which::Half);
            let done = swap::swap(&Image::open(files, &pool, Backing::Files)?, which)?;
            format!("{} blocks written, {} did not fit and keep their order", done.written, done.unfit)
        }
        Verb::Mutate { pool, files, seed } => {
            let plan = mutate::plan(seed);
            let done = mutate::mutate(&Image::open(files, &pool, Backing::Files)?, seed, plan)?;
            format!(
                "{:?}: {} blocks changed, {} written, {} left since they did not fit",
                plan.0, done.changed, done.written, done.unfit
            )
        }
    })
}
