//! `cenote kstat` and `cenote metrics`: counters of imported pools.

use super::{Failure, Outcome};
use crate::console::{self, Stream};
use admin::{Kstats, tunables};
use std::path::{Path, PathBuf};

/// Show counters in the layout of OpenZFS's kstat files
///
/// Without --output they go to standard output, each file after a line with its path. A daemon whose
/// environment has CENOTE_KSTAT=FOLDER mounts them there, always as they are.
#[derive(clap::Args)]
pub(super) struct KstatArgs {
    /// Write files below this folder: kstat/zfs/…, and parameters/… with the numbers that can be changed
    #[arg(short, long, value_name = "FOLDER")]
    output: Option<PathBuf>,
}

/// Show counters in the text format of OpenMetrics, as Prometheus and others read it
#[derive(clap::Args)]
pub(super) struct MetricsArgs {}

pub(super) fn kstat(args: &KstatArgs) -> Outcome {
    let files = Kstats::new(crate::search::from_env()).all();
    match &args.output {
        None => {
            let text: String = files.iter().map(|(path, text)| format!("== {path}\n{text}")).collect();
            console::write(Stream::Out, text.as_bytes())?;
        }
        Some(folder) => {
            for (path, text) in files {
                write(&folder.join("kstat/zfs").join(path), &text)?;
            }
            for tunable in tunables() {
                write(&folder.join("parameters").join(tunable.name), &format!("{}\n", tunable.get()))?;
            }
        }
    }
    Ok(0)
}

pub(super) fn metrics(_: &MetricsArgs) -> Outcome {
    let text = Kstats::new(crate::search::from_env()).metrics()?;
    console::write(Stream::Out, text.as_bytes())?;
    Ok(0)
}

/// Replaces a file in one step: a concurrent reader sees the old or the new contents.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let told = |error: std::io::Error| Failure::Message(format!("{}: {error}", path.display()));
    let folder = path.parent().unwrap_or(path);
    std::fs::create_dir_all(folder).map_err(told)?;
    let new = path.with_extension("new");
    std::fs::write(&new, text).map_err(told)?;
    std::fs::rename(&new, path).map_err(told)
}
