//! Dedup tables: the one that there would be if everything were deduplicated, `zdb -S`.

use super::{Verdict, chain};
use cenote::Pool;
use cenote::admin::DedupBucket;
use cenote::inspect::{DdtStat, simulated_dedup};
use std::io::{self, Write};

/// Prints what deduplication would save.
pub(super) fn print_simulated(pool: &Pool, out: &mut dyn Write) -> io::Result<Verdict> {
    let (histogram, problems) = match simulated_dedup(pool) {
        Ok(found) => found,
        Err(error) => {
            eprintln!("zdb: {}", chain(&error));
            return Ok(Verdict::Unreadable);
        }
    };
    for problem in &problems {
        eprintln!("zdb: {problem}");
    }
    let buckets: Vec<DedupBucket> = histogram.buckets.iter().map(DedupBucket::from).collect();
    let mut table = String::new();
    crate::zpool::dedup_table(&buckets, &mut table);
    write!(out, "Simulated DDT histogram:\n{table}")?;
    let total = histogram.total();
    if total.blocks > 0 {
        print_ratios(&total, out)?;
    }
    Ok(if problems.is_empty() { Verdict::Clean } else { Verdict::Unreadable })
}

/// How much dedup and compression save, and copies cost.
fn print_ratios(total: &DdtStat, out: &mut dyn Write) -> io::Result<()> {
    let ratio = |a: u64, b: u64| if b == 0 { 1.0 } else { a as f64 / b as f64 };
    let dedup = ratio(total.ref_dsize, total.dsize);
    let compress = ratio(total.ref_lsize, total.ref_psize);
    let copies = ratio(total.ref_dsize, total.ref_psize);
    writeln!(
        out,
        "dedup = {dedup:.2}, compress = {compress:.2}, copies = {copies:.2}, dedup * compress / copies = {:.2}\n",
        dedup * compress / copies
    )
}
