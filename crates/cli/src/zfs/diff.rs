//! `zfs diff`.
//!
//! The state of a file system that is in use is that of the last txg: one is written first, so that what was done
//! before the command is in it.

use super::{complain, open_message};
use crate::colour::{self, Colour};
use crate::getopt::Getopt;
use crate::out::Out;
use crate::stop::{Outcome, Stop};
use admin::debug::FileKind;
use admin::diff::{Change, What, diff};
use admin::edit::{self, EditError};
use admin::{self, AdminError, OpenPool, Search};
use std::ffi::OsString;
use std::io::Write as _;
use std::ops::ControlFlow;

/// How changes are shown.
#[derive(Debug, Clone, Copy, Default)]
struct Shown {
    /// `-F`: the kind of each file.
    kinds: bool,
    /// `-H`: tabs only.
    scripted: bool,
    /// `-h`: names as they are.
    raw: bool,
    /// `-t`: times.
    times: bool,
    /// It goes to a terminal: control characters are made visible in any case.
    terminal: bool,
}

/// Output is gathered up to this size.
const CHUNK: usize = 64 << 10;

pub(super) fn run(args: Vec<OsString>, out: &Out) -> Outcome {
    let mut walk = Getopt::new(args, "FHth", &[]);
    let mut shown = Shown { terminal: out.cell("\u{1b}") != "\u{1b}", ..Shown::default() };
    while let Some((letter, _)) = walk.next()? {
        match letter {
            'F' => shown.kinds = true,
            'H' => shown.scripted = true,
            'h' => shown.raw = true,
            _ => shown.times = true,
        }
    }
    let operands = crate::zpool::texts(&walk.operands());
    let (from, to) = match &operands[..] {
        [] => return Err(Stop::usage("must provide at least one snapshot name")),
        [from] => (from, None),
        [from, to] => (from, Some(to.as_str())),
        _ => return Err(Stop::usage("too many arguments")),
    };
    let Some((dataset, _)) = from.split_once('@') else {
        return Err(Stop::failed(format!(
            "Badly formed snapshot name {from}: missing '@' delimiter in snapshot name"
        )));
    };
    let full = match to {
        // A short name is a snapshot of the same file system.
        Some(short) if short.starts_with('@') => format!("{dataset}{short}"),
        Some(to) => to.to_owned(),
        None => dataset.to_owned(),
    };
    let search = crate::search::from_env();
    let pool_name = dataset.split('/').next().unwrap_or_default().to_owned();
    up_to_date(&search, &pool_name)?;
    let (pools, problems) = admin::open_pools(&search, std::slice::from_ref(&pool_name));
    if let Some(problem) = problems.iter().find(|problem| !problem.is_missing_pool()) {
        complain(&problem.to_string());
    }
    let missing = || Stop::failed(format!("cannot open '{from}': dataset does not exist"));
    let pool = pools.first().ok_or_else(missing)?;
    let needed = |error: EditError| match error {
        EditError::Denied if to.is_none() => Stop::failed(
            "The diff delegated permission is needed in order\n\
             to create a just-in-time snapshot for diffing\n\
             : unable to generate diffs",
        ),
        EditError::NoDataset { .. } => missing(),
        error => Stop::failed(format!("unable to generate diffs: {error}")),
    };
    edit::may(&search, pool.pool(), dataset, &["diff"]).map_err(needed)?;
    // What is only in the other dataset is shown too.
    let other = full.split('@').next().unwrap_or_default();
    if other != dataset {
        let refused = |error: EditError| match error {
            EditError::NoDataset { .. } => {
                Stop::failed(format!("cannot open '{full}': dataset does not exist"))
            }
            error => Stop::failed(format!("unable to generate diffs: {error}")),
        };
        edit::may(&search, pool.pool(), other, &["diff"]).map_err(refused)?;
    }
    between(pool, from, &full, shown, out)
}

/// Brings a pool that is in use to the state of now.
fn up_to_date(search: &Search, pool: &str) -> Result<(), Stop> {
    match search.namespace.as_ref().and_then(|namespace| namespace.get(pool)) {
        Some(writer) => writer.sync().map(drop).map_err(Stop::failed),
        None => Ok(()),
    }
}

/// The colour of a line, by its sign, which is its first column, or its second behind a time.
fn of_change(line: &[u8]) -> Option<Colour> {
    let mut columns = line.split(|byte| *byte == b'\t').take(2);
    columns.find_map(|column| match column {
        b"+" => Some(Colour::Green),
        b"-" => Some(Colour::Red),
        b"M" => Some(Colour::Yellow),
        b"R" => Some(Colour::Blue),
        _ => None,
    })
}

fn between(pool: &OpenPool, from: &str, to: &str, shown: Shown, out: &Out) -> Outcome {
    let pools = std::slice::from_ref(pool);
    for name in [from, to] {
        if let Err(error) = admin::find(pools, name) {
            return Err(Stop::failed(open_message(name, &error)));
        }
    }
    let open = |name: &str| pool.pool().dataset(name).map_err(Stop::failed);
    let (old, new) = (open(from)?, open(to)?);
    let prefix = prefix(pools, to)?;
    let is_painted = colour::are_wanted(out);
    let print = |text: Vec<u8>| {
        out.print_bytes(&if is_painted { colour::paint(&text, of_change) } else { text });
    };
    let mut text: Vec<u8> = Vec::new();
    let outcome = diff(&old, &new, &mut |change| {
        line(&change, prefix.as_bytes(), shown, &mut text);
        if text.len() >= CHUNK {
            print(std::mem::take(&mut text));
        }
        ControlFlow::Continue(())
    });
    print(text);
    match outcome {
        Ok(()) => Ok(0),
        Err(AdminError::NotEarlier { .. }) => {
            Err(Stop::failed("Unable to obtain diffs: \n   Not an earlier snapshot from the same fs"))
        }
        Err(error) => Err(Stop::failed(format!("Unable to obtain diffs: \n   {error}"))),
    }
}

/// Where the file system is, for its files: its mount point, or its name where it has none.
fn prefix(pools: &[OpenPool], to: &str) -> Result<String, Stop> {
    let head = to.split('@').next().unwrap_or(to);
    let entry = admin::find(pools, head).map_err(|error| Stop::failed(open_message(head, &error)))?;
    let mountpoint = entry.property("mountpoint").map_err(Stop::failed)?;
    let text = mountpoint.as_ref().and_then(|property| property.value.text()).unwrap_or_default();
    Ok(match text.starts_with('/') {
        true => text.trim_end_matches('/').to_owned(),
        false => format!("/{head}"),
    })
}

/// One change, as a line.
fn line(change: &Change, prefix: &[u8], shown: Shown, text: &mut Vec<u8>) {
    if shown.times {
        let _ = write!(text, "{:10}.{:09}\t", change.ctime.secs, change.ctime.nanos);
    }
    text.push(match change.what {
        What::Removed => b'-',
        What::Added => b'+',
        What::Modified { .. } => b'M',
        What::Renamed { .. } => b'R',
    });
    text.push(b'\t');
    if shown.kinds {
        text.extend([kind(change.kind), b'\t']);
    }
    let path = |path: &[u8], text: &mut Vec<u8>| {
        name(prefix, shown, text);
        name(path, shown, text);
    };
    if let What::Renamed { from } = &change.what {
        path(from, text);
        text.extend(if shown.scripted { &b"\t"[..] } else { b" -> " });
    }
    path(&change.path, text);
    if let What::Modified { links } = change.what
        && links != 0
    {
        let _ = write!(text, "\t({links:+})");
    }
    text.push(b'\n');
}

/// A path; bytes that may be none of a text as `\0ooo`.
fn name(path: &[u8], shown: Shown, text: &mut Vec<u8>) {
    for byte in path {
        let is_raw = shown.raw && !(shown.terminal && byte.is_ascii_control());
        if is_raw || (byte.is_ascii_graphic() && *byte != b'\\') {
            text.push(*byte);
        } else {
            let _ = write!(text, "\\{byte:04o}");
        }
    }
}

fn kind(kind: FileKind) -> u8 {
    match kind {
        FileKind::BlockDevice => b'B',
        FileKind::CharDevice => b'C',
        FileKind::Directory => b'/',
        FileKind::Fifo => b'|',
        FileKind::Symlink => b'@',
        FileKind::Socket => b'=',
        FileKind::Regular => b'F',
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use admin::diff::Time;

    fn change(what: What) -> Change {
        let ctime = Time { secs: 12, nanos: 5 };
        Change { what, kind: FileKind::Regular, ctime, path: "/a b\\ü".as_bytes().to_vec() }
    }

    fn shown(what: What, shown: Shown) -> String {
        let mut text = Vec::new();
        line(&change(what), b"/t", shown, &mut text);
        String::from_utf8(text).expect("text")
    }

    #[test]
    fn lines_have_the_form_of_the_tool() {
        let plain = Shown::default();
        assert_eq!(shown(What::Added, plain), "+\t/t/a\\0040b\\0134\\0303\\0274\n");
        let raw = Shown { raw: true, kinds: true, times: true, ..plain };
        assert_eq!(shown(What::Removed, raw), "        12.000000005\t-\tF\t/t/a b\\ü\n");
        assert_eq!(shown(What::Modified { links: -1 }, Shown { raw: true, ..plain }), "M\t/t/a b\\ü\t(-1)\n");
        let moved = || What::Renamed { from: b"/o".to_vec() };
        assert_eq!(shown(moved(), Shown { raw: true, ..plain }), "R\t/t/o -> /t/a b\\ü\n");
        let scripted = Shown { raw: true, scripted: true, ..plain };
        assert_eq!(shown(moved(), scripted), "R\t/t/o\t/t/a b\\ü\n");
    }
}
