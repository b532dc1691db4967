//! The labels of devices: `zdb -l`, with `-u` also the uberblocks. More `l` also print how full the label is,
//! then equal labels one by one; `-uuu` prints every slot of every ring.

use super::nvprint::{Indented, Stats};
use super::{Options, Verdict, uberblock};
use admin::debug::{Labels, RingSlot, labels};
use format::config::PoolState;
use format::l2arc::{CacheHeader, HEADER_MAGIC};
use format::uberblock::Uberblock;
use std::collections::HashSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const LABELS: usize = 4;
const RULE: &str = "------------------------------------";

/// Prints the labels of a device. Exit code 2 if none is valid, 1 if some are not.
pub(super) fn print(options: &Options, device: &str, out: &mut dyn Write) -> io::Result<Verdict> {
    let Some(path) = find(device) else {
        writeln!(out, "failed to find device {device}, try specifying absolute path instead")?;
        return Ok(Verdict::Failed);
    };
    let found = match labels(&path) {
        Ok(found) => found,
        Err(error) => {
            let why = error_text(&path).unwrap_or_else(|| super::chain(&error));
            writeln!(out, "cannot open '{}': {why}", path.display())?;
            return Ok(Verdict::Failed);
        }
    };
    let mut valid = 0;
    let mut done: HashSet<(usize, u64)> = HashSet::new();
    for label in 0..LABELS {
        valid += usize::from(print_label(&found, label, &mut done, options, out)?);
    }
    if let (Some(header), false) = (&found.cache, options.has('q')) {
        let is_cache =
            |label| found.probe.config_of_label(label).is_some_and(|c| c.state == PoolState::L2cache);
        if (0..LABELS).any(is_cache) {
            print_cache(header, out)?;
        }
    }
    Ok(match valid {
        LABELS => Verdict::Clean,
        0 => Verdict::Inconsistent,
        _ => Verdict::Failed,
    })
}

/// The path of a device: a name without a folder is one in `/dev`, unless there is such a file here.
fn find(device: &str) -> Option<PathBuf> {
    let path = Path::new(device);
    if path.is_absolute() || path.exists() {
        return Some(path.to_owned());
    }
    let folders = ["/dev", "/dev/disk/by-id", "/dev/disk/by-path", "/dev/disk/by-partuuid", "/dev/mapper"];
    folders.iter().map(|folder| Path::new(folder).join(device)).find(|path| path.exists())
}

/// The system's message for a file that cannot be opened; `None` if it can.
fn error_text(path: &Path) -> Option<String> {
    let error = std::fs::metadata(path).err()?;
    Some(match error.kind() {
        io::ErrorKind::NotFound => "No such file or directory".to_owned(),
        io::ErrorKind::PermissionDenied => "Permission denied".to_owned(),
        _ => error.to_string(),
    })
}

/// Prints the parts of a label that differ from earlier ones; returns whether it has a configuration.
fn print_label(
    found: &Labels,
    label: usize,
    done: &mut HashSet<(usize, u64)>,
    options: &Options,
    out: &mut dyn Write,
) -> io::Result<bool> {
    let config = found.config(label);
    let is_sound = found.probe.config_of_label(label).is_some();
    let mut head = Head { label, is_sound, printed: options.has('q') };
    match config {
        Some(config) if !options.has('q') => {
            let has_same = |other: &usize| found.config(*other).is_some_and(|c| c.raw == config.raw);
            let same: Vec<usize> = (0..LABELS).filter(has_same).collect();
            if same.first() == Some(&label) || options.count('l') > 2 {
                head.print(out)?;
                write!(out, "{}", Indented { list: &config.raw, indent: 4 })?;
                writeln!(out, "    labels = {}", numbers(&same))?;
                if options.count('l') > 1 {
                    write!(out, "{}", Stats(&config.raw))?;
                }
            }
        }
        None if !options.has('q') => {
            let word = if found.readable.get(label) == Some(&true) { "unpack" } else { "read" };
            writeln!(out, "failed to {word} label {label}")?;
        }
        _ => {}
    }
    if options.has('u') {
        for slot in found.ring.iter().filter(|slot| slot.label == label) {
            print_slot(found, slot, &mut head, done, options, out)?;
        }
    }
    Ok(config.is_some())
}

/// The heading of a label, printed before its first part.
struct Head {
    label: usize,
    /// Whether the checksum of the label is right and its contents can be decoded.
    is_sound: bool,
    printed: bool,
}

impl Head {
    fn print(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if std::mem::replace(&mut self.printed, true) {
            return Ok(());
        }
        let cksum = if self.is_sound { "" } else { "(Bad label cksum)" };
        writeln!(out, "{RULE}\nLABEL {} {cksum}\n{RULE}", self.label)
    }
}

fn numbers(labels: &[usize]) -> String {
    labels.iter().map(|label| format!("{label} ")).collect()
}

/// Prints an uberblock once for all labels that have it in the same slot.
fn print_slot(
    found: &Labels,
    slot: &RingSlot,
    head: &mut Head,
    done: &mut HashSet<(usize, u64)>,
    options: &Options,
    out: &mut dyn Write,
) -> io::Result<()> {
    let each = options.count('u') > 2;
    let Some(ub) = &slot.uberblock else {
        if each {
            head.print(out)?;
            writeln!(out, "    Uberblock[{}] invalid", slot.slot)?;
        }
        return Ok(());
    };
    if !done.insert((slot.slot, identity(ub))) && !each {
        return Ok(());
    }
    head.print(out)?;
    writeln!(out, "    Uberblock[{}]", slot.slot)?;
    uberblock::print(out, ub)?;
    let has_same = |other: &&RingSlot| other.slot == slot.slot && other.uberblock.as_ref() == Some(ub);
    let same: Vec<usize> = found.ring.iter().filter(has_same).map(|other| other.label).collect();
    writeln!(out, "        labels = {}", numbers(&same))?;
    if !slot.is_verified && ub.txg.0 != 0 {
        writeln!(out, "        checksum is wrong: not used by an import")?;
    }
    Ok(())
}

/// A hash that distinguishes uberblocks.
fn identity(ub: &Uberblock) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    ub.encode().hash(&mut hasher);
    hasher.finish()
}

fn print_cache(header: &CacheHeader, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{RULE}\nL2ARC device header\n{RULE}")?;
    writeln!(out, "    magic: {HEADER_MAGIC}")?;
    writeln!(out, "    version: {}", header.version)?;
    writeln!(out, "    pool_guid: {}", header.pool_guid)?;
    writeln!(out, "    flags: {}", header.flags)?;
    for (i, newest) in header.newest.iter().enumerate() {
        writeln!(out, "    start_lbps[{i}]: {}", newest.address.0)?;
    }
    writeln!(out, "    log_blk_ent: {}", header.log_entries)?;
    writeln!(out, "    start: {}", header.start.0)?;
    writeln!(out, "    end: {}", header.end.0)?;
    writeln!(out, "    evict: {}", header.evict.0)?;
    writeln!(out, "    lb_asize_refcount: {}", header.log_asize)?;
    writeln!(out, "    lb_count_refcount: {}", header.log_count)?;
    writeln!(out, "    trim_action_time: {}", header.trim_time)?;
    writeln!(out, "    trim_state: {}\n", header.trim_state)?;
    writeln!(out, "{RULE}\nL2ARC device log blocks\n{RULE}")?;
    if header.newest.iter().all(|newest| newest.address.0 == 0) {
        return writeln!(out, "No log blocks to read\n");
    }
    // They list cached blocks; a reader of the pool itself does not need them.
    writeln!(out, "{} log blocks, not read\n", header.log_count)
}
