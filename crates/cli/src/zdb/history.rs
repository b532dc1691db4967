//! The history of a pool: `zdb -h`. Commands, internal events, and the ioctls with their arguments
//! (docs/on-disk/22-mos-dsl.md, section 10).

use super::nvprint::Indented;
use super::{Verdict, chain};
use crate::time;
use cenote::Pool;
use format::nvlist::{NvList, NvValue};
use std::io::{self, Write};

/// Prints all records, oldest first; with more than one `-h`, each also in its stored form.
pub(super) fn print(pool: &Pool, detail: usize, out: &mut dyn Write) -> io::Result<Verdict> {
    let mut records = match pool.spa().history() {
        Ok(records) => records.into_iter().peekable(),
        Err(error) => {
            eprintln!("Unable to read history: {}", chain(&error));
            return Ok(Verdict::Clean);
        }
    };
    if records.peek().is_none() {
        // Pools of versions 1 to 3.
        eprintln!("Unable to read history: there is none");
        return Ok(Verdict::Clean);
    }
    writeln!(out, "\nHistory:")?;
    for record in records {
        match record {
            Ok(record) => {
                print_record(&record, out)?;
                if detail > 1 {
                    write!(out, "{}", Indented { list: &record, indent: 2 })?;
                }
            }
            Err(error) => writeln!(out, "unreadable record: {}", chain(&error))?,
        }
    }
    Ok(Verdict::Clean)
}

fn print_record(record: &NvList, out: &mut dyn Write) -> io::Result<()> {
    let when = record.u64("history time").map_or_else(|| "unknown".to_owned(), time::history);
    if let Some(command) = record.str("history command") {
        return writeln!(out, "{when} {command}");
    }
    if let Some(event) = record.u64("history internal event") {
        // Pools before version 5000 number their events; the format describes only the numbers.
        let txg = record.u64("history txg").unwrap_or(0);
        let text = record.str("history internal str").unwrap_or("");
        return writeln!(out, "{when} [internal event {event} txg:{txg}] {text}");
    }
    if let Some(name) = record.str("internal_name") {
        write!(out, "{when} [txg:{}] {name}", record.u64("history txg").unwrap_or(0))?;
        if let Some(dataset) = record.str("dsname") {
            write!(out, " {dataset} ({})", record.u64("dsid").unwrap_or(0))?;
        }
        return writeln!(out, " {}", record.str("history internal str").unwrap_or(""));
    }
    if let Some(ioctl) = record.str("ioctl") {
        writeln!(out, "{when} ioctl {ioctl}")?;
        for (title, name) in [("input", "in_nvl"), ("output", "out_nvl")] {
            if let Some(list) = record.list(name) {
                writeln!(out, "    {title}:")?;
                write!(out, "{}", Indented { list, indent: 8 })?;
            }
        }
        if let Some(errno) = errno(record) {
            writeln!(out, "    errno: {errno}")?;
        }
        return Ok(());
    }
    writeln!(out, "{when} unrecognized record:")?;
    write!(out, "{}", Indented { list: record, indent: 4 })
}

fn errno(record: &NvList) -> Option<i64> {
    match record.get("errno")? {
        NvValue::Int64(n) => Some(*n),
        NvValue::Int32(n) => Some(i64::from(*n)),
        _ => None,
    }
}
