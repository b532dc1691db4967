//! Compares the cost of operations in Cenote and in other systems, on the same machine in the same run.
//!
//! `write` and its parts: rate, and CPU time of the whole process for each operation, including the sync: the clock
//! stops when all data is on disk. `mount`: through FUSE, compared with the kernel's file systems. `read`: pools
//! read through the library and the commands. `stream`: snapshots sent and received. `codec`: the codecs of blocks.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_types)] // a program beside the house: it makes its own files

mod codec;
mod cost;
mod database;
mod fio;
mod mount;
mod pools;
mod read;
mod report;
mod sequential;
mod stream;
mod tree;

use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// Error of a measurement.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Measures what reading and writing cost.
#[derive(Parser)]
struct Args {
    /// Where the files of the pools are made; they are removed afterwards.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// The HELIOS tree: folders of at most 10, 30 files of 512 bytes in each leaf; made and removed.
    Tree {
        /// Number of files.
        #[arg(long, default_value_t = 100_000)]
        files: u64,
        /// Threads that make and remove.
        #[arg(long, default_value_t = 1)]
        threads: u64,
    },
    /// As many files as one likes: the rate at the end against that at the beginning.
    Many {
        /// Number of files.
        #[arg(long, default_value_t = 10_000_000)]
        files: u64,
    },
    /// A file written from its beginning to its end, in calls of 1 MiB.
    Sequential {
        /// Size of the data in GiB.
        #[arg(long, default_value_t = 8)]
        gib: u64,
        /// Four files as raidz1 instead of one.
        #[arg(long)]
        raidz: bool,
    },
    /// 8 KiB at random places of a file of records of 8 KiB.
    Overwrite {
        /// Number of threads.
        #[arg(long, default_value_t = 8)]
        threads: u64,
        /// Number of writes.
        #[arg(long, default_value_t = 200_000)]
        writes: u64,
        /// Bytes of the file, in MiB.
        #[arg(long, default_value_t = 1024)]
        mib: u64,
    },
    /// 8 KiB at random places, each durable before the next.
    Fsync {
        /// Threads, each with its own file.
        #[arg(long, default_value_t = 1)]
        threads: u64,
        /// Duration in seconds.
        #[arg(long, default_value_t = 10)]
        seconds: u64,
    },
    /// File systems as programs see them: the kernel's, others through FUSE, and ours. As root.
    Mount(mount::Choices),
    /// Pools read: verified, copied out of, listed, and by many threads at random, beside others doing the
    /// same.
    Read(read::Choices),
    /// Snapshots sent and received, beside other ways to copy. As root.
    Stream(stream::Choices),
    /// Checksums, parity, compression and encryption, beside the best of others.
    Codec(codec::Choices),
    /// An empty file system, for the floors.
    #[command(hide = true)]
    NullMount {
        /// Mount point.
        at: PathBuf,
    },
    /// Takes away what a run of `mount` left when it ends, however that ends.
    #[command(hide = true)]
    CleanUp {
        /// The folder of the run.
        folder: PathBuf,
    },
}

fn main() -> ExitCode {
    // The results must not depend on the machine's memory.
    heap::init(u64::MAX);
    let args = Args::parse();
    let done = match args.what {
        What::Tree { files, threads } => tree::make_and_remove(&args.dir, files, threads),
        What::Many { files } => tree::many(&args.dir, files),
        What::Sequential { gib, raidz } => sequential::write(&args.dir, gib << 30, raidz),
        What::Overwrite { threads, writes, mib } => {
            database::overwrite(&args.dir, threads, writes, mib << 20)
        }
        What::Mount(choices) => mount::run(&args.dir, &choices),
        What::Read(choices) => read::run(&args.dir, &choices),
        What::Stream(choices) => stream::run(&args.dir, &choices),
        What::Codec(choices) => codec::run(&args.dir, &choices),
        What::NullMount { at } => mount::serve_null(&at),
        What::CleanUp { folder } => mount::cleaner(&folder),
        What::Fsync { threads, seconds } => database::fsync(&args.dir, threads, seconds),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {}", cenote::error::chain(&*error));
            ExitCode::FAILURE
        }
    }
}
