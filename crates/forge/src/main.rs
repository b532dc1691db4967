//! `cenote-forge`: pools made over, from the command line.
#![forbid(unsafe_code)]

use cenote_forge::image::{Backing, Image};
use cenote_forge::swap::{self, Which};
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
}

fn main() -> ExitCode {
    let Verb::Swap { pool, files, half, below } = Forge::parse().verb;
    let which = half.map_or(if below { Which::Below } else { Which::All }, Which::Half);
    match Image::open(files, &pool, Backing::Files).and_then(|image| swap::swap(&image, which)) {
        Ok(outcome) => {
            println!(
                "{} blocks written, {} did not fit and keep their order",
                outcome.written, outcome.unfit
            );
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("cenote-forge: {error}");
            ExitCode::FAILURE
        }
    }
}
