//! `cargo xtask bench mount`: file systems as programs see them, side by side in one run.
//!
//! The floors are file systems of nothing on both transports of FUSE: what they cost, a real one cannot avoid.
//! Times of processors are of the client (this process and what it starts) and of the server, if there is one; what the
//! kernel does on threads of its own is in neither.

mod data;
mod files;
mod meter;
mod null;
mod site;
mod table;
mod tools;

use crate::Failure;
use clap::ValueEnum;
use data::Extent;
use meter::Row;
use site::{Ground, Site, System};
use std::path::{Path, PathBuf};
use tools::{Tools, ZfsFuse, is_there};

pub(crate) use null::serve as serve_null;

/// What is done on each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Workload {
    /// A tree of small files: made, walked, renamed, removed.
    Tree,
    /// Many files of 4 and 8 KB: made, copied, removed.
    Small,
    /// One large file, written and read.
    Dd,
    /// 4 KiB at random places, four threads, through the cache.
    Fio,
    /// Pages of 8 KiB around the cache, durable writes, a log.
    Database,
    /// A little appended and made durable.
    Fdatasync,
    /// bonnie++, only when asked for or with --full.
    Bonnie,
}

/// Choices.
#[derive(clap::Args)]
pub(crate) struct Choices {
    /// Systems to measure (default: all)
    #[arg(long, value_enum, value_delimiter = ',')]
    systems: Vec<System>,
    /// Workloads to run (default: all but bonnie)
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Workload>,
    /// The sizes of a careful comparison: 102,400 small files, a tree of 100,000, 4 GiB
    #[arg(long)]
    full: bool,
    /// Also write the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Our program
    #[arg(long, default_value = "target/release/cenote")]
    program: PathBuf,
    /// The folder in which Debian's package zfs-fuse was unpacked
    #[arg(long)]
    zfs_fuse: Option<PathBuf>,
}

struct Sizes {
    image: u64,
    tree: u64,
    small: u64,
    extent: Extent,
}

impl Choices {
    fn sizes(&self) -> Sizes {
        match self.full {
            true => Sizes {
                image: 16 << 30,
                tree: 100_000,
                small: 102_400,
                extent: Extent { bytes: 4 << 30, seconds: 15 },
            },
            false => Sizes {
                image: 5 << 30,
                tree: 20_000,
                small: 10_000,
                extent: Extent { bytes: 512 << 20, seconds: 4 },
            },
        }
    }

    fn workloads(&self) -> Vec<Workload> {
        let usual = |load: &Workload| self.full || *load != Workload::Bonnie;
        match self.only.is_empty() {
            true => Workload::value_variants().iter().copied().filter(usual).collect(),
            false => self.only.clone(),
        }
    }

    fn systems(&self) -> Vec<System> {
        match self.systems.is_empty() {
            true => System::value_variants().to_vec(),
            false => self.systems.clone(),
        }
    }
}

/// Measures and prints. As root: devices are attached and file systems mounted.
pub(crate) fn run(dir: &Path, choices: &Choices) -> Result<(), Failure> {
    if !rustix::process::geteuid().is_root() {
        return Err("this mounts file systems: only root can do that".into());
    }
    let tools = Tools {
        cenote: choices.program.canonicalize()?,
        zfs_fuse: choices.zfs_fuse.as_deref().and_then(ZfsFuse::in_folder),
        fio: is_there("fio"),
        bonnie: is_there("bonnie++"),
    };
    let sizes = choices.sizes();
    let ground = Ground::new(dir, sizes.image, tools)?;
    let mut rows = Vec::new();
    for kind in choices.systems() {
        match ground.open(kind) {
            Ok(mut site) => measure(&mut site, choices, &sizes, &mut rows),
            Err(error) => println!("{}: left out: {error}", kind.name()),
        }
    }
    table::print(&rows);
    if let Some(path) = &choices.json {
        std::fs::write(path, serde_json::to_string_pretty(&table::json(&rows))?)?;
    }
    Ok(())
}

/// One system after another workload; what fails is told, and the others go on.
fn measure(site: &mut Site<'_>, choices: &Choices, sizes: &Sizes, rows: &mut Vec<Row>) {
    for load in choices.workloads() {
        let before = rows.len();
        let done = match load {
            Workload::Tree => files::tree(site, sizes.tree, rows),
            Workload::Small => files::small(site, sizes.small, rows),
            Workload::Dd => data::stream(site, sizes.extent, rows),
            Workload::Fio if !site.tools().fio => Err("fio is not here (Debian: apt install fio)".into()),
            Workload::Fio => data::fio(site, sizes.extent, rows),
            Workload::Database => data::database(site, sizes.extent, rows),
            Workload::Fdatasync => data::fdatasync(site, sizes.extent, rows),
            Workload::Bonnie if !site.tools().bonnie => {
                Err("bonnie++ is not here (Debian: apt install bonnie++)".into())
            }
            Workload::Bonnie => data::bonnie(site, rows),
        };
        if let Err(error) = done {
            println!("{}, {load:?}: {error}", site.kind.name());
        }
        for row in rows.iter().skip(before) {
            table::line(row);
        }
    }
    if let Some(bytes) = site.server_pid().and_then(meter::memory_peak) {
        println!("{:<13} the server had {} MiB of memory at most", site.kind.name(), bytes >> 20);
    }
}
