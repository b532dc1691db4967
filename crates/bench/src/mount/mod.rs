//! `cargo xtask bench mount`: compares file systems as programs see them, in one run.
//!
//! Empty file systems on both transports of FUSE give the lower bounds: a real file system cannot avoid their cost.
//! CPU time is that of the client (this process and its children) and of the server, if there is one. Work on the
//! kernel's own threads is only in the CPU time of the whole machine, which is meaningful if the machine is idle
//! otherwise.
//!
//! [`watch`] sees to it that nothing stays behind; [`loop_image`] is what all stand on; [`providers`] make and
//! mount each; [`files`], [`data`] and [`programs`] are the workloads; [`goals`] judges.

mod data;
mod device_use;
mod files;
mod goals;
mod loop_image;
mod meter;
mod null;
mod programs;
mod providers;
mod site;
mod table;
mod tools;
mod watch;
mod watchdog;

use crate::Failure;
use clap::ValueEnum;
use data::Extent;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;
use table::Results;
use tools::ZfsFuse;
use watchdog::Watchdog;

pub(crate) use loop_image::LoopImage;
pub(crate) use meter::{Meter, Row};
pub(crate) use null::serve as serve_null;
pub(crate) use site::{Site, System};
pub(crate) use tools::{Tools, is_there, run as run_command};
pub(crate) use watch::{cleaner, folder as run_folder, work_below};

/// What is done on each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Workload {
    /// Names of empty files in folders of a thousand: made, opened, asked for, renamed, removed.
    Names,
    /// A tree of small files: made, walked cold and warm, renamed, removed.
    Tree,
    /// Many files of 4 and 8 KB: made, copied, removed.
    Small,
    /// One large file, written and read cold.
    Dd,
    /// fio: 4 KiB at random places, four threads, through the cache.
    Fio,
    /// Pages of 8 KiB: direct reads, durable writes, 200 readers and 10 writers with a log.
    Database,
    /// A little appended and made durable.
    Fdatasync,
    /// The program bonnie++.
    Bonnie,
}

/// Options of `bench mount`.
#[derive(clap::Args)]
pub(crate) struct Choices {
    /// Systems to measure, comma-separated (default: all)
    #[arg(long, value_enum, value_delimiter = ',')]
    systems: Vec<System>,
    /// Workloads to run, comma-separated (default: all)
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Workload>,
    /// Small sizes: minutes instead of an hour, and 2 GiB of disk instead of 16; good to see that all works
    #[arg(long)]
    quick: bool,
    /// The folder where the tables and the JSON are kept
    #[arg(long, value_name = "FOLDER", default_value = "target/bench")]
    out: PathBuf,
    /// Path of the cenote program
    #[arg(long, default_value = "target/release/cenote")]
    program: PathBuf,
    /// The folder in which Debian's package zfs-fuse was unpacked
    #[arg(long)]
    zfs_fuse: Option<PathBuf>,
}

/// Amount of work.
struct Sizes {
    /// Size of the image in bytes.
    image: u64,
    /// Number of files in the tree, and of names.
    tree: u64,
    /// Number of files of 4 KB, and of 8 KB.
    small: u64,
    extent: Extent,
    bonnie: programs::BonnieSize,
    /// Time limit of a workload on a server that may hang.
    patience: Duration,
}

impl Choices {
    fn sizes(&self) -> Sizes {
        match self.quick {
            false => Sizes {
                image: 16 << 30,
                tree: 100_000,
                small: 102_400,
                extent: Extent { bytes: 4 << 30, seconds: 15 },
                bonnie: programs::BonnieSize { mib: 2048, files: 16 },
                patience: Duration::from_secs(1200),
            },
            true => Sizes {
                image: 2 << 30,
                tree: 6_000,
                small: 3_000,
                extent: Extent { bytes: 128 << 20, seconds: 1 },
                bonnie: programs::BonnieSize { mib: 64, files: 1 },
                patience: Duration::from_secs(240),
            },
        }
    }

    fn workloads(&self) -> Vec<Workload> {
        match self.only.is_empty() {
            true => Workload::value_variants().to_vec(),
            false => self.only.clone(),
        }
    }

    fn systems(&self) -> Vec<System> {
        match self.systems.is_empty() {
            true => System::value_variants().to_vec(),
            false => self.systems.clone(),
        }
    }

    /// Description of the machine and the sizes, stored with the results.
    fn conditions(&self) -> Value {
        let read = |path| std::fs::read_to_string(path).map(|text| text.trim().to_owned()).ok();
        let sizes = self.sizes();
        json!({
            "kernel": read("/proc/sys/kernel/osrelease"),
            "processors": std::thread::available_parallelism().map(usize::from).ok(),
            // Load of the machine; this program alone causes about 1 to 3.
            "load_at_end": read("/proc/loadavg"),
            "quick": self.quick,
            "tree_files": sizes.tree,
            "small_files": sizes.small,
            "stream_bytes": sizes.extent.bytes,
            "seconds": sizes.extent.seconds,
        })
    }

    /// Stores the results so far. Returns the text of the tables and goals.
    fn keep(&self, results: &Results) -> Result<String, Failure> {
        let verdicts = goals::judge(&results.rows);
        let text = table::text(results, &verdicts);
        std::fs::create_dir_all(&self.out)?;
        std::fs::write(self.out.join("mount.txt"), &text)?;
        let json = table::json(results, &verdicts, &self.conditions());
        std::fs::write(self.out.join("mount.json"), serde_json::to_string_pretty(&json)?)?;
        Ok(text)
    }
}

/// Measures and prints. Needs root, to attach devices and mount file systems.
pub(crate) fn run(dir: &Path, choices: &Choices) -> Result<(), Failure> {
    if !rustix::process::geteuid().is_root() {
        return Err("this mounts file systems: only root can do that".into());
    }
    let Some(folder) = watch::folder() else { return watch::work_below(dir) };
    let tools = Tools {
        cenote: choices.program.canonicalize().map_err(|error| {
            format!("{}: {error} (cargo build --release builds it)", choices.program.display())
        })?,
        zfs_fuse: choices.zfs_fuse.as_deref().and_then(ZfsFuse::in_folder),
        fio: is_there("fio"),
        bonnie: is_there("bonnie++"),
    };
    let sizes = choices.sizes();
    let image = LoopImage::new(folder, sizes.image, tools)?;
    let mut results = Results::default();
    let mut text = String::new();
    for kind in choices.systems() {
        match image.open(kind) {
            Ok(mut site) => measure(&mut site, choices, &sizes, &mut results),
            Err(error) => fail(&mut results, format!("{}: {error}", kind.name())),
        }
        text = choices.keep(&results)?;
    }
    println!("{text}");
    println!("kept in {}: mount.txt, mount.json", choices.out.display());
    Ok(())
}

fn fail(results: &mut Results, what: String) {
    println!("left out: {what}");
    results.failures.push(what);
}

/// Runs one workload after another on a system; a failure is reported, and the next workload runs.
fn measure(site: &mut Site<'_>, choices: &Choices, sizes: &Sizes, results: &mut Results) {
    let loads =
        choices.workloads().into_iter().filter(|load| site.kind != System::Disk || *load == Workload::Dd);
    for load in loads.collect::<Vec<_>>() {
        let mut rows: Vec<Row> = Vec::new();
        let watchdog = site.server_pid().map(|_| Watchdog::over(&site.folders(), sizes.patience));
        let done = match load {
            Workload::Names => files::names(site, sizes.tree, &mut rows),
            Workload::Tree => files::tree(site, sizes.tree, &mut rows),
            Workload::Small => files::small(site, sizes.small, &mut rows),
            Workload::Dd => data::stream(site, sizes.extent, &mut rows),
            Workload::Fio if !site.tools().fio => Err("fio is not here (Debian: apt install fio)".into()),
            Workload::Fio => programs::fio(site, sizes.extent, &mut rows),
            Workload::Database => data::database(site, sizes.extent, &mut rows),
            Workload::Fdatasync => data::fdatasync(site, sizes.extent, &mut rows),
            Workload::Bonnie if !site.tools().bonnie => {
                Err("bonnie++ is not here (Debian: apt install bonnie++)".into())
            }
            Workload::Bonnie => programs::bonnie(site, sizes.bonnie, &mut rows),
        };
        drop(watchdog);
        for row in &rows {
            println!("{}", table::line(row));
        }
        results.rows.append(&mut rows);
        if let Err(error) = done {
            fail(results, format!("{}, {load:?}: {error}", site.kind.name()));
            site.clear();
        }
    }
    if let Some(bytes) = site.server_pid().and_then(meter::memory_peak) {
        results.memory.push((site.kind.name(), bytes));
    }
}
