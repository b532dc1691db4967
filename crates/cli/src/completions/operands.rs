//! The operands that each subcommand expects, from usage texts, and the existing names.

use crate::usage::Tool;
use format::prop::{self, Prop};
use std::process::Stdio;

/// Variable that keeps commands from starting a daemon: without one there are no names to complete.
const NO_START: &str = "CENOTE_NO_START";
/// Option letters of `zdb`, which has no usage table.
pub(super) const ZDB: &str = "AbBcCdDeEFGhiIkKlLmMoOpPqrRsStTuUvVxXyYZ";
/// Commands of `zstream`; their operands are files, which the shell completes.
pub(super) const ZSTREAM: [&str; 6] = ["dump", "token", "redup", "decompress", "recompress", "drop_record"];
/// Option letters of `fsstat`.
pub(super) const FSSTAT: &str = "afinPTv";

/// A kind of operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Pools,
    /// Names of file systems and volumes.
    Datasets,
    Filesystems,
    Snapshots,
    Bookmarks,
    /// Names of datasets, snapshots and bookmarks.
    Everything,
    Mountpoints,
    /// Names of the vdevs of all pools.
    Devices,
    /// Names of dataset properties, separated by commas.
    DatasetProperties,
    PoolProperties,
    /// A dataset property and its new value.
    SetDataset,
    SetPool,
    Types,
    Dates,
}

/// All options of a usage text.
pub(super) fn options(usage: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for word in usage.split(|c: char| c.is_whitespace() || matches!(c, '[' | ']' | '|' | ',' | '<' | '>')) {
        let new: Vec<String> = match word.strip_prefix('-') {
            Some(long) if long.starts_with('-') && long.len() > 1 => vec![word.to_owned()],
            Some(letters) if letters.chars().all(|c| c.is_ascii_alphanumeric()) => {
                letters.chars().map(|letter| format!("-{letter}")).collect()
            }
            _ => Vec::new(),
        };
        for option in new {
            if !found.contains(&option) {
                found.push(option);
            }
        }
    }
    found
}

/// Whether an option takes a value: then the usage text has a name after its letter.
fn takes_value(option: &str, usage: &str) -> bool {
    let words: Vec<&str> = usage.split_whitespace().collect();
    words.windows(2).any(|pair| {
        let is_it = pair[0].trim_start_matches('[') == option;
        is_it && !pair[0].ends_with(']') && !pair[1].starts_with(['[', '|', '-'])
    })
}

/// Number of operands among the words before the one to be completed.
pub(super) fn operands_before(before: &[String], usage: &str) -> usize {
    let mut count = 0;
    let mut words = before.iter();
    while let Some(word) = words.next() {
        if word.starts_with('-') && word.len() > 1 {
            if word.len() == 2 && takes_value(word, usage) {
                words.next();
            }
        } else {
            count += 1;
        }
    }
    count
}

/// Kind of the value of an option; `None` if it takes none that can be completed.
pub(super) fn value_of(tool: Tool, subcommand: &str, option: &str, usage: &str) -> Option<What> {
    if !takes_value(option, usage) {
        return None;
    }
    let names_columns = matches!(subcommand, "list" | "get");
    Some(match (tool, option) {
        (Tool::Zfs, "-o") if subcommand == "get" => return None,
        (Tool::Zfs, "-o") if names_columns => What::DatasetProperties,
        (Tool::Zpool, "-o") if names_columns => What::PoolProperties,
        (Tool::Zfs, "-s" | "-S") if subcommand == "list" => What::DatasetProperties,
        (Tool::Zfs, "-x") => What::DatasetProperties,
        (Tool::Zfs, "-t") if names_columns => What::Types,
        (Tool::Zfs, "-i" | "-I") => What::Snapshots,
        (Tool::Zfs, "-R") if subcommand == "mount" => What::Filesystems,
        (Tool::Zfs, "-o") => What::SetDataset,
        (Tool::Zpool, "-o") => What::SetPool,
        (Tool::Zpool, "-O") => What::SetDataset,
        (_, "-T") => What::Dates,
        _ => return None,
    })
}

/// Kinds of the operand at an index.
pub(super) fn expected(tool: Tool, subcommand: &str, index: usize, usage: &str) -> Vec<What> {
    let is_first = index == 0;
    match (tool, subcommand) {
        (Tool::Zfs, "get" | "inherit") if is_first => return vec![What::DatasetProperties],
        (Tool::Zpool, "get") if is_first => return vec![What::PoolProperties],
        (Tool::Zfs, "set") if is_first => return vec![What::SetDataset],
        (Tool::Zpool, "set") if is_first => return vec![What::SetPool],
        (Tool::Zfs, "get" | "list") => return vec![What::Everything],
        (Tool::Zfs, "hold" | "release") if is_first => return Vec::new(),
        (Tool::Zfs, "hold" | "release" | "holds" | "rollback") => return vec![What::Snapshots],
        // A new object has no name yet.
        (Tool::Zpool, "create" | "import" | "labelclear") => return Vec::new(),
        (Tool::Zpool, _) if is_first => return vec![What::Pools],
        (Tool::Zpool, _) if usage.contains("device") || usage.contains("vdev") => return vec![What::Devices],
        (Tool::Zpool, _) if usage.contains("...") => return vec![What::Pools],
        (Tool::Zpool, _) => return Vec::new(),
        (Tool::Zfs, _) => {}
    }
    let mut what = Vec::new();
    if usage.contains("snap") {
        what.push(What::Snapshots);
    }
    if usage.contains("bookmark") {
        what.push(What::Bookmarks);
    }
    if usage.contains("filesystem") || usage.contains("volume") {
        what.push(What::Datasets);
    }
    if usage.contains("mountpoint>") {
        what.push(What::Mountpoints);
    }
    if subcommand == "program" && is_first {
        what.push(What::Pools);
    }
    what
}

/// Candidates of a kind; `current` is the beginning of the word.
pub(super) fn list(what: What, current: &str) -> Vec<String> {
    match what {
        What::DatasetProperties => several(current, &visible_names(&prop::DATASET)),
        What::PoolProperties => several(current, &visible_names(&prop::POOL)),
        What::Types => several(current, &["filesystem", "snapshot", "volume", "bookmark", "all"]),
        What::Dates => ["d", "u"].map(str::to_owned).to_vec(),
        What::SetDataset => assignments(current, &prop::DATASET),
        What::SetPool => assignments(current, &prop::POOL),
        what => names(what),
    }
}

fn visible_names(table: &'static [Prop]) -> Vec<&'static str> {
    table.iter().filter(|prop| prop.visible).map(|prop| prop.name).collect()
}

/// Completes the last of several words that are separated by commas.
fn several(current: &str, words: &[&str]) -> Vec<String> {
    let head = current.rfind(',').and_then(|comma| current.get(..=comma)).unwrap_or_default();
    words.iter().map(|word| format!("{head}{word}")).collect()
}

/// Completes `name=`, or the known values after it.
fn assignments(current: &str, table: &'static [Prop]) -> Vec<String> {
    let Some((name, _)) = current.split_once('=') else {
        let editable = table.iter().filter(|prop| prop.visible && prop.editable());
        return editable.map(|prop| format!("{}=", prop.name)).collect();
    };
    let known = table.iter().filter(|prop| prop.name == name);
    known.flat_map(|prop| prop.index).map(|(word, _)| format!("{name}={word}")).collect()
}

/// Names of the imported objects of a kind.
pub(super) fn names(what: What) -> Vec<String> {
    let zfs = |types: &str| ask(&["zfs", "list", "-H", "-o", "name", "-t", types]);
    match what {
        What::Pools => ask(&["zpool", "list", "-H", "-o", "name"]),
        What::Datasets => zfs("filesystem,volume"),
        What::Filesystems => zfs("filesystem"),
        What::Snapshots => zfs("snapshot"),
        What::Bookmarks => zfs("bookmark"),
        What::Everything => zfs("all"),
        What::Mountpoints => {
            let mounted = ask(&["zfs", "mount"]);
            let path = |line: &String| Some(line.get(line.find(" /")? + 1..)?.to_owned());
            mounted.iter().filter_map(path).collect()
        }
        What::Devices => {
            let lines = ask(&["zpool", "list", "-v", "-H", "-P"]);
            let vdev = |line: &String| line.strip_prefix('\t')?.split('\t').next().map(str::to_owned);
            lines.iter().filter_map(vdev).collect()
        }
        _ => Vec::new(),
    }
}

/// The lines that one of the commands of this program prints.
fn ask(words: &[&str]) -> Vec<String> {
    let Ok(mut command) = crate::this_program() else { return Vec::new() };
    command.args(words).stdin(Stdio::null()).stderr(Stdio::null()).env(NO_START, "1");
    let output = command.output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).lines().map(str::to_owned).collect()
}
