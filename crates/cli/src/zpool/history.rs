//! `zpool history`.

use super::texts;
use crate::getopt::Getopt;
use crate::out::Out;
use crate::stop::Outcome;
use crate::time;
use crate::zdb::nvprint::Indented;
use admin::verbs::zpool::history::{Item, Record, Request, What, Who};
use admin::{Owner, owner_names};
use format::nvlist::NvList;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::ops::ControlFlow;

/// Bytes of text that are printed at once.
const PRINT: usize = 64 << 10;

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
    let request = Request { pools: texts(&walk.operands()), internal: shown.internal };
    let users = if shown.long { Some(owner_names(Owner::User)) } else { None };
    let (mut code, mut has_pools, mut text) = (0, false, String::new());
    let outcome = super::reading().each(&request, &mut |item| {
        match item {
            Item::Problem(problem) => code = super::tell_problems(&[problem]),
            Item::Pool(name) => {
                let gap = if has_pools { "\n" } else { "" };
                let _ = writeln!(text, "{gap}History for '{}':", out.cell(&name));
                has_pools = true;
            }
            Item::Record(record) => line(&record, users.as_ref(), out, &mut text),
        }
        if text.len() >= PRINT {
            out.print(&std::mem::take(&mut text));
        }
        ControlFlow::Continue(())
    });
    if has_pools {
        text.push('\n');
    }
    out.print(&text);
    outcome.map_err(|refusal| super::unread(&refusal))?;
    if !has_pools && request.pools.is_empty() && code == 0 {
        say_error_line!("no pools available");
    }
    Ok(code)
}

/// A record, and with `users` who did it.
fn line(record: &Record, users: Option<&HashMap<u64, String>>, out: &Out, text: &mut String) {
    let (time, what, by) = match record {
        Record::Done { time, what, who } => (*time, what, who),
        Record::Unreadable(reason) => {
            let _ = writeln!(text, "unreadable record: {}", out.cell(&reason.to_string()));
            return;
        }
    };
    let when = time.map_or_else(|| "unknown".to_owned(), time::history);
    let _ = match what {
        What::Command(command) => write!(text, "{when} {}", out.cell(command)),
        What::Numbered { event, txg, text: internal } => {
            write!(text, "{when} [internal event {event} txg:{txg}] {}", out.cell(internal))
        }
        What::Internal { name, txg, dataset, text: internal } => {
            let _ = write!(text, "{when} [txg:{txg}] {}", out.cell(name));
            if let Some((dataset, id)) = dataset {
                let _ = write!(text, " {} ({id})", out.cell(dataset));
            }
            write!(text, " {}", out.cell(internal))
        }
        What::Operation { name, elapsed, input, output, errno } => {
            let _ = write!(text, "{when}");
            if let Some(elapsed) = elapsed {
                let _ = write!(text, " ({}ms)", elapsed / 1_000_000);
            }
            let _ = writeln!(text, " ioctl {}", out.cell(name));
            arguments([("input", input), ("output", output)], *errno, text);
            Ok(())
        }
        What::Unknown(list) => {
            write!(text, "{when} unrecognized record:\n{}", Indented { list, indent: 4 })
        }
    };
    if let Some(users) = users {
        who(by, users, out, text);
    }
    text.push('\n');
}

/// What an operation of the kernel was given, and what it gave.
fn arguments(lists: [(&str, &Option<NvList>); 2], errno: Option<i64>, text: &mut String) {
    for (title, list) in lists {
        if let Some(list) = list {
            let _ = write!(text, "    {title}:\n{}", Indented { list, indent: 8 });
        }
    }
    if let Some(errno) = errno {
        let _ = writeln!(text, "    errno: {errno}");
    }
}

/// ` [user 0 (root) on host:zone]`
fn who(who: &Who, users: &HashMap<u64, String>, out: &Out, text: &mut String) {
    text.push_str(" [");
    if let Some(user) = who.user {
        let _ = write!(text, "user {user} ");
        if let Some(name) = users.get(&user) {
            let _ = write!(text, "({name}) ");
        }
    }
    if let Some(host) = &who.host {
        let _ = write!(text, "on {}", out.cell(host));
    }
    if let Some(zone) = &who.zone {
        let _ = write!(text, ":{}", out.cell(zone));
    }
    text.push(']');
}
