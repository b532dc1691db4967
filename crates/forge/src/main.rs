//! `cenote-forge`: pools made over, from the command line.
#![forbid(unsafe_code)]

use cenote_forge::image::{Backing, Image};
use cenote_forge::swap::{self, Which};
use cenote_forge::{ForgeError, mutate};
use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// Makes pools over, in place and with right checksums.
#[derive(Parser)]
struct Forge {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Writes a pool in the other byte order.
    Swap {
        /// Its name.
        pool: String,
        /// The files, which are changed.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Only a half of the blocks, chosen by this seed; the uberblock with odd seeds.
        #[arg(long)]
        half: Option<u64>,
        /// All blocks, but not the uberblock: such a pool can be written.
        #[arg(long, conflicts_with = "half")]
        below: bool,
    },
    /// Changes blocks of a pool as an attacker would, by a seed.
    Mutate {
        /// Its name.
        pool: String,
        /// The files, which are changed.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Which blocks, and how.
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
            eprintln!("cenote-forge: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(verb: Verb) -> Result<String, ForgeError> {
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
