//! Block counts: `zdb -b`, `-bb`, `-bcc`.

use super::bp::Long;
use super::{Options, Verdict, chain};
use cenote::Pool;
use cenote::inspect::{BlockCounts, BlockReport, Check, blocks};
use format::nicenum::nicenum;
use std::io::{self, Write};

/// Counts and prints the blocks of the pool.
pub(crate) fn print(pool: &Pool, options: &Options, out: &mut dyn Write) -> io::Result<Verdict> {
    let check = match options.count('c') {
        0 if options.is_default() => Check::Everything,
        0 => Check::Nothing,
        1 => Check::Metadata,
        _ => Check::Everything,
    };
    let compare = !options.has('L');
    let what = match check {
        Check::Nothing => "",
        Check::Metadata => "verify metadata checksums",
        Check::Everything => "verify checksums",
    };
    let and = if what.is_empty() || !compare { "" } else { " and " };
    let leaked = if compare { "verify nothing leaked" } else { "" };
    writeln!(out, "\nTraversing all blocks to {what}{and}{leaked} ...\n")?;
    out.flush()?;
    let report = match blocks(pool, check, compare) {
        Ok(report) => report,
        Err(error) => {
            eprintln!("zdb: {}", chain(&error));
            return Ok(Verdict::Unreadable);
        }
    };
    let mut verdict = print_damage(&report, out)?;
    if compare {
        verdict = verdict.max(print_leaks(&report, out)?);
    }
    print_totals(&report, out)?;
    if options.count('b') > 1 {
        print_types(&report, out)?;
    }
    Ok(verdict)
}

fn print_damage(report: &BlockReport, out: &mut dyn Write) -> io::Result<Verdict> {
    for damaged in &report.damaged {
        eprintln!(
            "zdb_blkptr_cb: Got error reading {} {} -- skipping: {}",
            damaged.at,
            Long(&damaged.bp),
            damaged.why
        );
    }
    for problem in &report.problems {
        eprintln!("zdb: {problem}");
    }
    if report.damaged_count == 0 {
        return Ok(if report.problems.is_empty() { Verdict::Clean } else { Verdict::Unreadable });
    }
    writeln!(out, "\nError counts:\n\n\terrno  count")?;
    writeln!(out, "\t{:5}  {}", 52, report.damaged_count)?;
    Ok(Verdict::Unreadable)
}

fn print_leaks(report: &BlockReport, out: &mut dyn Write) -> io::Result<Verdict> {
    let Some(space) = &report.space else {
        writeln!(out, "\n\tNot everything could be counted: the sum says nothing about leaks\n")?;
        return Ok(Verdict::Unreadable);
    };
    if space.allocated == space.found {
        writeln!(out, "\n\tNo leaks (block sum matches space maps exactly)\n")?;
        return Ok(Verdict::Clean);
    }
    let missing = i128::from(space.allocated) - i128::from(space.found);
    let word = if missing > 0 { "leaked" } else { "unreachable" };
    writeln!(
        out,
        "\nblock traversal size {} != alloc {} ({word} {missing})\n",
        space.found, space.allocated
    )?;
    Ok(Verdict::Inconsistent)
}

fn ratio(larger: u64, smaller: u64) -> f64 {
    if smaller == 0 { 1.0 } else { larger as f64 / smaller as f64 }
}

fn print_totals(report: &BlockReport, out: &mut dyn Write) -> io::Result<()> {
    let t = &report.total;
    let average = |sum: u64| sum.checked_div(t.blocks).unwrap_or(0);
    let all = t.asize.saturating_add(report.shared.asize);
    writeln!(out, "\tbp count:         {:>14}", t.blocks)?;
    writeln!(out, "\tganged count:     {:>14}", t.gangs)?;
    writeln!(out, "\tbp logical:       {:>14}      avg: {:>6}", t.lsize, average(t.lsize))?;
    for (name, size) in [("physical: ", t.psize), ("allocated:", t.asize)] {
        let compression = ratio(t.lsize, size);
        writeln!(
            out,
            "\tbp {name}    {size:>14}      avg: {:>6}     compression: {compression:>6.2}",
            average(size)
        )?;
    }
    writeln!(
        out,
        "\tbp shared:        {:>14}      refs: {:>5}   deduplication: {:>6.2}",
        report.shared.asize,
        report.shared.blocks,
        ratio(all, t.asize)
    )?;
    writeln!(out, "\n\tadditional, non-pointer bps of type 0: {:>10}", report.embedded)?;
    writeln!(out, "\tDittoed blocks on same vdev: {}", t.same_vdev)?;
    writeln!(out, "\tBlocks of intent logs: {}\n", report.log_blocks)
}

fn print_types(report: &BlockReport, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "Blocks\tLSIZE\tPSIZE\tASIZE\t  avg\t comp\t%Total\tType")?;
    let mut kinds: Vec<_> = report.by_type.keys().map(|(kind, _)| *kind).collect();
    kinds.dedup();
    for kind in kinds {
        let rows = report.by_type.range((kind, i64::MIN)..=(kind, i64::MAX));
        let sum = rows.clone().fold(BlockCounts::default(), |sum, (_, counts)| sum.plus(counts));
        for ((_, level), counts) in rows.clone().rev() {
            if rows.clone().count() > 1 {
                print_type(out, counts, &report.total, &format!("    L{level} {kind}"))?;
            }
        }
        print_type(out, &sum, &report.total, &kind.to_string())?;
    }
    print_type(out, &report.total, &report.total, "Total")
}

fn print_type(out: &mut dyn Write, counts: &BlockCounts, total: &BlockCounts, name: &str) -> io::Result<()> {
    let percent = 100.0 * ratio(counts.asize, total.asize.max(1));
    writeln!(
        out,
        "{:>6}\t{:>5}\t{:>5}\t{:>5}\t{:>5}\t{:>5.2}\t{percent:>6.2}\t{name}",
        nicenum(counts.blocks),
        nicenum(counts.lsize),
        nicenum(counts.psize),
        nicenum(counts.asize),
        nicenum(counts.asize.checked_div(counts.blocks).unwrap_or(0)),
        ratio(counts.lsize, counts.psize),
    )
}
