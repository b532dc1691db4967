//! Block counts: `zdb -b`, `-bb`, `-bbb`, `-c`, `-bcc`.

use super::bp::Long;
use super::contents::print_histogram;
use super::{Options, Verdict, chain};
use admin::debug::{Class, VdevMetaslabs, metaslabs};
use cenote::Pool;
use cenote::inspect::{BlockCounts, BlockReport, BlockUse, Check, SIZE_ROWS, Space, Tally, blocks};
use format::ObjType;
use format::nicenum::nicenum;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Number of object types with a row of their own: types below this one.
const TYPES: u8 = 54;
/// Index of the last row of histograms by number of sectors.
const SECTORS_MAX: u64 = 257;

/// Counts and prints the blocks of the pool.
pub(super) fn print(pool: &Pool, options: &Options, out: &mut dyn Write) -> io::Result<Verdict> {
    let check = match options.count('c') {
        0 => Check::Nothing,
        1 => Check::Metadata,
        _ => Check::Everything,
    };
    let compare = !options.has('L');
    let checks = match check {
        Check::Nothing => "",
        Check::Metadata => "verify metadata checksums ",
        Check::Everything => "verify checksums ",
    };
    let (to, and) = match (check, compare) {
        (Check::Nothing, false) => ("", ""),
        (Check::Nothing, true) | (_, false) => ("to ", ""),
        (_, true) => ("to ", "and "),
    };
    let leaks = if compare { "verify nothing leaked " } else { "" };
    writeln!(out, "\nTraversing all blocks {to}{checks}{and}{leaks}...\n")?;
    out.flush()?;
    let report = match blocks(pool, check, compare) {
        Ok(report) => report,
        Err(error) => {
            eprintln!("zdb: {}", chain(&error));
            return Ok(Verdict::Unreadable);
        }
    };
    print_damage(&report, options, out)?;
    let mut verdict = match &report.space {
        Some(space) => print_leaks(space, out)?,
        None => Verdict::Clean,
    };
    for problem in &report.problems {
        eprintln!("zdb: {problem}");
    }
    print_totals(pool, &report.tally, options, out)?;
    if options.detail('b') > 1 {
        print_types(&report.tally, options.detail('b'), out)?;
        print_sizes(&report.tally, out)?;
    }
    writeln!(out)?;
    if !report.errors.is_empty() || !report.problems.is_empty() {
        verdict = verdict.max(Verdict::Unreadable);
    }
    Ok(verdict)
}

fn print_damage(report: &BlockReport, options: &Options, out: &mut dyn Write) -> io::Result<()> {
    for damaged in &report.damaged {
        write!(out, "zdb_blkptr_cb: Got error {} reading {} ", damaged.errno, damaged.at)?;
        if options.detail('b') > 1 {
            write!(out, "{}", Long(&damaged.bp))?;
        }
        writeln!(out, " -- skipping")?;
    }
    if report.errors.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nError counts:\n\n\terrno  count")?;
    for (errno, count) in &report.errors {
        writeln!(out, "\t{errno:>5}  {count}")?;
    }
    Ok(())
}

fn print_leaks(space: &Space, out: &mut dyn Write) -> io::Result<Verdict> {
    for (vdev, range) in &space.leaked {
        let (offset, size) = (range.start, range.end - range.start);
        writeln!(out, "leaked space: vdev {vdev}, offset 0x{offset:x}, size {size}")?;
    }
    for bp in &space.strays {
        eprintln!("zdb: not allocated, or part of two blocks: {}", Long(bp));
    }
    for miscount in &space.miscounted {
        eprintln!("zdb: {miscount}");
    }
    if space.matches() {
        writeln!(out, "\n\tNo leaks (block sum matches space maps exactly)")?;
        return Ok(Verdict::Clean);
    }
    let missing = i128::from(space.allocated) - i128::from(space.found);
    if missing == 0 {
        return Ok(Verdict::Inconsistent);
    }
    let word = if missing > 0 { "leaked" } else { "unreachable" };
    writeln!(out, "block traversal size {} != alloc {} ({word} {missing})", space.found, space.allocated)?;
    Ok(Verdict::Inconsistent)
}

/// A share in percent; for a total of 0, the text that C prints.
fn percent(part: u64, whole: u64) -> String {
    match (part, whole) {
        (0, 0) => "-nan".to_owned(),
        (_, 0) => "inf".to_owned(),
        _ => format!("{:.2}", 100.0 * part as f64 / whole as f64),
    }
}

fn print_totals(pool: &Pool, tally: &Tally, options: &Options, out: &mut dyn Write) -> io::Result<()> {
    let t = tally.total();
    let average = |sum: u64| sum.checked_div(t.blocks).unwrap_or(0);
    let ratio = |size: u64| t.lsize as f64 / size as f64;
    writeln!(out, "\n\t{:<16} {:>14}", "bp count:", t.blocks)?;
    writeln!(out, "\t{:<16} {:>14}", "ganged count:", t.gangs)?;
    writeln!(out, "\t{:<16} {:>14}      avg: {:>6}", "bp logical:", t.lsize, average(t.lsize))?;
    for (name, size) in [("bp physical:", t.psize), ("bp allocated:", t.asize)] {
        writeln!(
            out,
            "\t{name:<16} {size:>14}      avg: {:>6}     compression: {:>6.2}",
            average(size),
            ratio(size)
        )?;
    }
    let (bytes, count) = tally.deduped;
    let factor = bytes as f64 / t.asize as f64 + 1.0;
    writeln!(out, "\t{:<16} {bytes:>14}    ref>1: {count:>6}   deduplication: {factor:>6.2}", "bp deduped:")?;
    let (bytes, count) = tally.cloned;
    writeln!(out, "\t{:<16} {bytes:>14}    count: {count:>6}", "bp cloned:")?;
    match metaslabs(pool) {
        Ok(vdevs) => print_classes(pool, &vdevs, options, out)?,
        Err(error) => eprintln!("zdb: {}", chain(&error)),
    }
    for (kind, sizes) in &tally.embedded {
        let all: u64 = sizes.values().sum();
        writeln!(out, "\n\tadditional, non-pointer bps of type {kind}: {all:>10}")?;
        if options.detail('b') > 2 {
            writeln!(out, "\t number of (compressed) bytes:  number of bps")?;
            print_histogram(out, &rows(sizes))?;
        }
    }
    if tally.same_vdev > 0 {
        writeln!(out, "\tDittoed blocks on same vdev: {}", tally.same_vdev)?;
    }
    if tally.same_metaslab > 0 {
        writeln!(out, "\tDittoed blocks in same metaslab: {}", tally.same_metaslab)?;
    }
    for (vdev, _) in pool.spa().tree().tops() {
        if let Some(mapping) = pool.spa().tree().indirect(vdev) {
            let n = mapping.entries().len();
            writeln!(out, "\tindirect vdev id {vdev} has {n} segments ({n} in memory)")?;
        }
    }
    Ok(())
}

/// Number of blocks by number of sectors; all blocks of more than 128 KiB are in the last row.
fn sector_rows(counts: &BTreeMap<u64, u64>) -> Vec<u64> {
    let mut capped = BTreeMap::new();
    for (sectors, n) in counts {
        *capped.entry((*sectors).min(SECTORS_MAX)).or_default() += n;
    }
    rows(&capped)
}

/// Counts by number, from 0 on.
fn rows(counts: &BTreeMap<u64, u64>) -> Vec<u64> {
    let last = counts.keys().next_back().and_then(|last| usize::try_from(*last).ok()).unwrap_or(0);
    let mut rows = vec![0; last.min(1 << 16) + 1];
    for (at, n) in counts {
        if let Some(row) = usize::try_from(*at).ok().and_then(|at| rows.get_mut(at)) {
            *row += n;
        }
    }
    rows
}

/// Prints the allocated space of each class, from the space maps alone: their logs are not included.
fn print_classes(
    pool: &Pool,
    vdevs: &[VdevMetaslabs],
    options: &Options,
    out: &mut dyn Write,
) -> io::Result<()> {
    let sum = |class: Class, is_log: bool| {
        let metaslabs = vdevs.iter().filter(|v| v.class == class && v.removed.is_none());
        let metaslabs = metaslabs.flat_map(|v| v.metaslabs.iter().filter(|m| m.is_embedded_log == is_log));
        metaslabs.fold((0_u64, 0_u64), |(used, size), m| {
            (used.saturating_add(m.allocated()), size.saturating_add(m.size))
        })
    };
    let has = |class: Class| vdevs.iter().any(|v| v.class == class);
    for (name, class) in
        [("Normal class:", Class::Normal), ("Special class", Class::Special), ("Dedup class", Class::Dedup)]
    {
        if class == Class::Normal || has(class) {
            let (used, mut size) = sum(class, false);
            if !options.has('L') {
                size = size.saturating_add(removed_size(pool, vdevs, class));
            }
            writeln!(out, "\t{name:<16} {used:>14}     used: {:>5}%", percent(used, size))?;
        }
    }
    let (used, size) = sum(Class::Normal, true);
    writeln!(out, "\t{:<16} {used:>14}     used: {:>5}%", "Embedded log class", percent(used, size))
}

/// Bytes of removed vdevs: in a leak check the real tool counts them as present.
fn removed_size(pool: &Pool, vdevs: &[VdevMetaslabs], class: Class) -> u64 {
    let removed = vdevs.iter().filter(|v| v.class == class && v.removed.is_some());
    let nodes = removed.filter_map(|v| pool.spa().tree().top(v.vdev));
    nodes
        .map(|node| node.metaslabs().checked_shl(node.metaslab_shift).unwrap_or(0))
        .fold(0, u64::saturating_add)
}

fn print_types(tally: &Tally, detail: usize, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\nBlocks\tLSIZE\tPSIZE\tASIZE\t  avg\t comp\t%Total\tType")?;
    let total = tally.total();
    let mut metadata = BlockCounts::default();
    let mut by_level: BTreeMap<u8, BlockCounts> = BTreeMap::new();
    let types = (0..TYPES).map(|id| {
        (ObjType::from_id_unchecked(id).to_string(), BlockUse::Object(ObjType::from_id_unchecked(id)))
    });
    let more = [
        ("deferred free".to_owned(), Some(BlockUse::DeferredFree)),
        // Current releases write no such blocks.
        ("dedup ditto".to_owned(), None),
        ("other".to_owned(), Some(BlockUse::Other)),
    ];
    for (name, used) in types.map(|(name, used)| (name, Some(used))).chain(more) {
        let levels: Vec<(u8, &BlockCounts)> = match used {
            Some(used) => {
                tally.by_use.range((used, 0)..=(used, u8::MAX)).map(|((_, l), c)| (*l, c)).collect()
            }
            None => Vec::new(),
        };
        print_type(&name, &levels, &total, detail, out)?;
        let is_stored = levels.iter().any(|(_, counts)| counts.asize > 0);
        for (level, counts) in levels {
            by_level.entry(level).or_default().merge(counts);
            // Rows of types without any space are neither printed nor added up.
            if is_stored
                && (level > 0 || used.is_some_and(BlockUse::is_metadata))
                && used != Some(BlockUse::Other)
            {
                metadata.merge(counts);
            }
        }
    }
    if detail > 2 {
        for (level, counts) in by_level.iter().rev() {
            print_row(counts, &total, &format!("    L{level} Total"), detail, out)?;
        }
    }
    print_row(&total, &total, "Total", detail, out)?;
    // Metadata get one row, whatever the detail.
    print_row(&metadata, &total, "Metadata Total", 0, out)
}

fn print_type(
    name: &str,
    levels: &[(u8, &BlockCounts)],
    total: &BlockCounts,
    detail: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut sum = BlockCounts::default();
    levels.iter().for_each(|(_, counts)| sum.merge(counts));
    if sum.asize == 0 {
        return writeln!(
            out,
            "{:>6}\t{:>5}\t{:>5}\t{:>5}\t{:>5}\t{:>5}\t{:>6}\t{name}",
            "-", "-", "-", "-", "-", "-", "-"
        );
    }
    let is_tree = levels.iter().any(|(level, _)| *level > 0);
    if detail > 2 && is_tree {
        for (level, counts) in levels.iter().rev().filter(|(_, counts)| counts.asize > 0) {
            print_row(counts, total, &format!("    L{level} {name}"), detail, out)?;
        }
    }
    print_row(&sum, total, name, detail, out)
}

fn print_row(
    counts: &BlockCounts,
    total: &BlockCounts,
    name: &str,
    detail: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(
        out,
        "{:>6}\t{:>5}\t{:>5}\t{:>5}\t{:>5}\t{:>5.2}\t{:>6.2}\t{name}",
        nicenum(counts.blocks),
        nicenum(counts.lsize),
        nicenum(counts.psize),
        nicenum(counts.asize),
        nicenum(counts.asize.checked_div(counts.blocks).unwrap_or(0)),
        counts.lsize as f64 / counts.psize as f64,
        100.0 * counts.asize as f64 / total.asize as f64,
    )?;
    if detail > 2 && counts.gangs > 0 {
        writeln!(out, "\t number of ganged blocks: {}", counts.gangs)?;
    }
    if detail > 3 {
        writeln!(out, "psize (in 512-byte sectors): number of blocks")?;
        print_histogram(out, &sector_rows(&counts.sectors))?;
    }
    Ok(())
}

/// Blocks by size.
fn print_sizes(tally: &Tally, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\nBlock Size Histogram\n")?;
    writeln!(out, "  block   psize                lsize                asize")?;
    writeln!(out, "   size   Count   Size   Cum.  Count   Size   Cum.  Count   Size   Cum.")?;
    let mut sums = [0_u64; 3];
    for row in 0..SIZE_ROWS {
        write!(out, "{:>7}:", nicenum(512 << row))?;
        for (rows, sum) in [&tally.by_psize, &tally.by_lsize, &tally.by_asize].iter().zip(&mut sums) {
            let (count, bytes) = rows.get(row).copied().unwrap_or((0, 0));
            *sum = sum.saturating_add(bytes);
            write!(out, "{:>7}{:>7}{:>7}", nicenum(count), nicenum(bytes), nicenum(*sum))?;
        }
        writeln!(out)?;
    }
    Ok(())
}
