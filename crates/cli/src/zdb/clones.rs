//! Block reference tables, which count how often cloned blocks are referenced: `zdb -T`.

use super::contents::print_histogram;
use super::{Options, Verdict, chain};
use admin::debug::{CloneTable, Zap, ZapKey, extra_references};
use cenote::{Error, Pool};
use std::io::{self, Write};

/// Prints the tables; with more `-T`, a histogram of the references of each, and the entries.
pub(super) fn print(pool: &Pool, options: &Options, out: &mut dyn Write) -> io::Result<Verdict> {
    if !pool.spa().features().is_enabled("block_cloning") {
        writeln!(out, "BRT: unsupported on this pool")?;
        return Ok(Verdict::Clean);
    }
    let tables = match pool.spa().clone_tables() {
        Ok(tables) => tables,
        Err(error) => return unreadable(&error.into()),
    };
    let tables: Vec<CloneTable> = tables.into_iter().filter(|table| table.phys.count > 0).collect();
    if tables.is_empty() {
        writeln!(out, "BRT: empty")?;
        return Ok(Verdict::Clean);
    }
    let sum = |of: fn(&CloneTable) -> u64| tables.iter().map(of).fold(0, u64::saturating_add);
    let (used, saved) = (sum(|table| table.phys.used), sum(|table| table.phys.saved));
    let ratio = if used == 0 { 1.0 } else { (used as f64 + saved as f64) / used as f64 };
    // Truncated, not rounded.
    let ratio = (ratio * 100.0).floor() / 100.0;
    let [used, saved] = [used, saved].map(|bytes| options.number(bytes));
    writeln!(out, "BRT: used {used}; saved {saved}; ratio {ratio:.2}x")?;
    let detail = options.detail('T');
    if detail < 2 {
        return Ok(Verdict::Clean);
    }
    for vdev in 0..pool.spa().tree().top_count() {
        let Some(table) = tables.iter().find(|table| u64::from(table.vdev.0) == vdev as u64) else {
            writeln!(out, "BRT: vdev {vdev}: empty")?;
            continue;
        };
        let [used, saved] = [table.phys.used, table.phys.saved].map(|bytes| options.number(bytes));
        let (vdev, count) = (table.vdev, table.phys.count);
        writeln!(out, "BRT: vdev {vdev}: refcnt {count}; used {used}; saved {saved}")?;
    }
    for table in tables.iter().filter(|_| detail > 2) {
        if let Err(error) = print_entries(pool, table, detail, out)? {
            return unreadable(&error);
        }
    }
    Ok(Verdict::Clean)
}

fn unreadable(error: &Error) -> io::Result<Verdict> {
    eprintln!("zdb: {}", chain(error));
    Ok(Verdict::Unreadable)
}

/// Prints the entries of a table, or how many have how many references. The inner error is from reading the
/// table.
fn print_entries(
    pool: &Pool,
    table: &CloneTable,
    detail: usize,
    out: &mut dyn Write,
) -> io::Result<Result<(), Error>> {
    let mut powers = vec![0_u64; 64];
    if detail > 3 {
        writeln!(out, "\n{:<16} {:<10}", "DVA", "REFCNT")?;
    }
    let zap = pool.spa().mos().object(table.phys.entries).and_then(|object| Zap::open(&object));
    let zap = match zap {
        Ok(zap) => zap,
        Err(error) => return Ok(Err(error.into())),
    };
    for entry in zap.entries() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => return Ok(Err(error.into())),
        };
        let ZapKey::Words(words) = &entry.key else { continue };
        let Ok(references) = extra_references(entry.int_size, &entry.value, table.phys.array_order) else {
            continue;
        };
        if detail > 3 {
            let place = format!("{}:{:x}", table.vdev, words.first().copied().unwrap_or(0));
            writeln!(out, "{place:<16} {references:<10}")?;
        }
        let power = u64::BITS.saturating_sub(references.leading_zeros()) as usize;
        if let Some(count) = powers.get_mut(power) {
            *count += 1;
        }
    }
    if detail == 3 {
        writeln!(out, "\nBRT: vdev {}: DVAs with 2^n refcnts:", table.vdev)?;
        print_histogram(out, &powers)?;
    }
    Ok(Ok(()))
}
