//! `zpool history`.

use super::texts;
use crate::getopt::Getopt;
use crate::out::Out;
use crate::stop::{Outcome, Stop};
use crate::time;
use crate::zdb::nvprint::Indented;
use admin::{self, OpenPool, Owner, owner_names};
use format::nvlist::{NvList, NvValue};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt::Write as _;

/// What is shown.
#[derive(Clone, Copy, Default)]
struct Shown {
    /// `-i`: what the pool itself noted.
    internal: bool,
    /// `-l`: who did it, and where.
    long: bool,
}

pub(super) fn run(args: Vec<OsString>, out: &Out) -> Outcome {
    let mut walk = Getopt::new(args, "il", &[]);
    let mut shown = Shown::default();
    while let Some((letter, _)) = walk.next()? {
        match letter {
            'i' => shown.internal = true,
            _ => shown.long = true,
        }
    }
    let operands = texts(&walk.operands());
    admin::settle(&crate::search::from_env(), &operands);
    let opened = super::open(&operands);
    if opened.pools.is_empty() && operands.is_empty() && opened.code == 0 {
        say_error_line!("no pools available");
    }
    let users = if shown.long { owner_names(Owner::User) } else { HashMap::new() };
    for pool in &opened.pools {
        out.print(&text(pool, shown, &users, out).map_err(Stop::failed)?);
    }
    Ok(opened.code)
}

fn text(
    pool: &OpenPool,
    shown: Shown,
    users: &HashMap<u64, String>,
    out: &Out,
) -> Result<String, cenote::Error> {
    let mut text = format!("History for '{}':\n", out.cell(pool.name()));
    for record in pool.pool().spa().history()? {
        match record {
            Ok(record) => line(&record, shown, users, out, &mut text),
            // The records behind it are still there.
            Err(error) => {
                let _ = writeln!(text, "unreadable record: {}", out.cell(&error.to_string()));
            }
        }
    }
    text.push('\n');
    Ok(text)
}

fn line(record: &NvList, shown: Shown, users: &HashMap<u64, String>, out: &Out, text: &mut String) {
    let when = record.u64("history time").map_or_else(|| "unknown".to_owned(), time::history);
    let start = text.len();
    let word = |name: &str| record.str(name).unwrap_or_default();
    let number = |name: &str| record.u64(name).unwrap_or(0);
    if let Some(command) = record.str("history command") {
        let _ = write!(text, "{when} {}", out.cell(command));
    } else if !shown.internal {
        return;
    } else if let Some(event) = record.u64("history internal event") {
        // Pools before version 5000 number their events; the numbers are all that the format says.
        let internal = out.cell(word("history internal str"));
        let _ = write!(text, "{when} [internal event {event} txg:{}] {internal}", number("history txg"));
    } else if let Some(name) = record.str("internal_name") {
        let _ = write!(text, "{when} [txg:{}] {}", number("history txg"), out.cell(name));
        if let Some(dataset) = record.str("dsname") {
            let _ = write!(text, " {} ({})", out.cell(dataset), number("dsid"));
        }
        let _ = write!(text, " {}", out.cell(word("history internal str")));
    } else if let Some(ioctl) = record.str("ioctl") {
        let _ = write!(text, "{when}");
        if let Some(elapsed) = integer(record, "elapsed_ns") {
            let _ = write!(text, " ({}ms)", elapsed / 1_000_000);
        }
        let _ = writeln!(text, " ioctl {}", out.cell(ioctl));
        arguments(record, text);
    } else {
        let _ = write!(text, "{when} unrecognized record:\n{}", Indented { list: record, indent: 4 });
    }
    if shown.long {
        who(record, users, out, text);
    }
    debug_assert!(text.len() > start, "every record that is shown has a text");
    text.push('\n');
}

/// What an operation of the kernel was given, and what it gave.
fn arguments(record: &NvList, text: &mut String) {
    for (title, name) in [("input", "in_nvl"), ("output", "out_nvl")] {
        if let Some(list) = record.list(name) {
            let _ = write!(text, "    {title}:\n{}", Indented { list, indent: 8 });
        }
    }
    if let Some(errno) = integer(record, "errno") {
        let _ = writeln!(text, "    errno: {errno}");
    }
}

fn integer(record: &NvList, name: &str) -> Option<i64> {
    match record.get(name)? {
        NvValue::Int64(n) => Some(*n),
        NvValue::Int32(n) => Some(i64::from(*n)),
        _ => None,
    }
}

/// ` [user 0 (root) on host:zone]`
fn who(record: &NvList, users: &HashMap<u64, String>, out: &Out, text: &mut String) {
    text.push_str(" [");
    if let Some(user) = record.u64("history who") {
        let _ = write!(text, "user {user} ");
        if let Some(name) = users.get(&user) {
            let _ = write!(text, "({name}) ");
        }
    }
    if let Some(host) = record.str("history hostname") {
        let _ = write!(text, "on {}", out.cell(host));
    }
    if let Some(zone) = record.str("history zone") {
        let _ = write!(text, ":{}", out.cell(zone));
    }
    text.push(']');
}
