//! Dedup tables: `zdb -D`, and the simulated table for a pool in which all data were deduplicated: `zdb -S`.

use super::bp::Long;
use super::{Options, Verdict, chain};
use admin::DedupBucket;
use admin::debug::{
    DdtClass, DdtHistogram, DdtKey, DdtPhys, DdtStat, DdtValue, DedupTable, FLAG_FLAT, FLAG_LOG, LogHeader,
};
use cenote::inspect::simulated_dedup;
use cenote::{Error, Pool};
use format::ddt::{log_name, zap_name};
use format::{BlockPtr, ChecksumId, ObjType, ObjectId};
use std::io::{self, Write};

/// A ZAP of a table, with the entries of one class.
struct Entries {
    class: DdtClass,
    zap: ObjectId,
    /// Space on disk in bytes.
    taken: u64,
    /// Space in memory in bytes.
    size: u64,
    count: u64,
    histogram: DdtHistogram,
}

/// A dedup table, without its entries.
struct Table {
    table: DedupTable,
    entries: Vec<Entries>,
    /// The logs, each with the number of its valid keys.
    logs: Vec<(ObjectId, LogHeader, usize)>,
}

fn tables(pool: &Pool) -> Result<Vec<Table>, Error> {
    let mut tables = Vec::new();
    for table in pool.spa().dedup_tables()? {
        let mut entries = Vec::new();
        for (class, zap) in table.classes.iter().copied() {
            let count = pool.spa().dedup_entries(zap)?;
            let object = pool.spa().mos().object(zap)?;
            let dnode = object.dnode();
            let blocks = dnode.blkptrs.iter().map(BlockPtr::fill).fold(0, u64::saturating_add);
            let histogram = pool.spa().dedup_class_histogram(table.checksum, class)?;
            // The real tool prints nothing for a class without entries.
            if count > 0 {
                let size = blocks.saturating_mul(dnode.data_block_size());
                entries.push(Entries { class, zap, taken: dnode.used_bytes(), size, count, histogram });
            }
        }
        let logs = table.logs.iter().map(|id| {
            let (header, count) = pool.spa().dedup_log(*id)?;
            Ok((*id, header, count))
        });
        let logs = logs.collect::<Result<_, Error>>()?;
        tables.push(Table { table, entries, logs });
    }
    Ok(tables)
}

/// Prints the dedup tables; with more `-D`, a histogram of all and of each table, and the entries.
pub(super) fn print(pool: &Pool, options: &Options, out: &mut dyn Write) -> io::Result<Verdict> {
    let detail = options.detail('D');
    let unreadable = |error: &dyn std::error::Error| {
        eprintln!("zdb: {}", chain(error));
        Ok(Verdict::Unreadable)
    };
    let (tables, sum) = match tables(pool).and_then(|tables| Ok((tables, pool.spa().dedup_histogram()?))) {
        Ok(found) => found,
        Err(error) => return unreadable(&error),
    };
    for table in &tables {
        print_table(table, out)?;
        for entries in &table.entries {
            if let Err(error) = print_entries(pool, table.table.checksum, entries, detail, out)? {
                return unreadable(&error);
            }
        }
        for (which, log) in table.logs.iter().enumerate() {
            print_log(table.table.checksum, which, log, out)?;
        }
    }
    let total = sum.total();
    if total.blocks == 0 {
        writeln!(out, "All DDTs are empty")?;
        return Ok(Verdict::Clean);
    }
    writeln!(out)?;
    if detail > 1 {
        writeln!(out, "DDT histogram (aggregated over all DDTs):")?;
        print_histogram(&sum, true, out)?;
    }
    print_ratios(&total, out)?;
    Ok(Verdict::Clean)
}

fn print_table(table: &Table, out: &mut dyn Write) -> io::Result<()> {
    let (version, flags) = table.table.fast.unwrap_or((0, 0));
    let kind = if table.table.fast.is_some() { "FDT" } else { "LEGACY" };
    let flags = flag_names(flags, &[(FLAG_FLAT, "FLAT"), (FLAG_LOG, "LOG")]);
    let (checksum, home) = (table.table.checksum, table.table.home);
    writeln!(out, "DDT-{checksum}: version={version} [{kind}]; flags={flags}; rootobj={home}")
}

/// Flags as a number, and by their names if any are set.
fn flag_names(flags: u64, names: &[(u64, &str)]) -> String {
    let set: Vec<&str> = names.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, name)| *name).collect();
    match set.is_empty() {
        true => format!("0x{flags:02x}"),
        false => format!("0x{flags:02x} [{}]", set.join(" ")),
    }
}

fn print_log(
    checksum: ChecksumId,
    which: usize,
    (id, header, count): &(ObjectId, LogHeader, usize),
    out: &mut dyn Write,
) -> io::Result<()> {
    let flags = u64::from(header.flushing) | u64::from(header.checkpoint.is_some()) << 1;
    let flags = flag_names(flags, &[(1, "FLUSHING"), (2, "CHECKPOINT")]);
    let name = log_name(checksum, u8::from(which > 0));
    let (length, txg) = (header.length, header.first_txg);
    writeln!(out, "{name}: flags={flags}; obj={id}; len={length}; txg={txg}; entries={count}")
}

/// Prints a class of a table. The inner error is from reading the class.
fn print_entries(
    pool: &Pool,
    checksum: ChecksumId,
    entries: &Entries,
    detail: usize,
    out: &mut dyn Write,
) -> io::Result<Result<(), Error>> {
    let name = zap_name(checksum, entries.class);
    let Entries { zap, taken, size, count, .. } = entries;
    writeln!(out, "{name}: dspace={taken}; mspace={size}; entries={count}")?;
    if detail < 3 {
        return Ok(Ok(()));
    }
    writeln!(out, "{name}: object={zap}")?;
    print_histogram(&entries.histogram, false, out)?;
    if detail < 4 || (detail < 5 && entries.class == DdtClass::Unique) {
        return Ok(Ok(()));
    }
    writeln!(out, "{name} contents:\n")?;
    let mut written = Ok(());
    let read = pool.spa().each_dedup_entry(*zap, &mut |index, key, value| {
        if written.is_ok() {
            written = print_entry(checksum, index, &key, &value, out);
        }
    });
    written?;
    writeln!(out)?;
    Ok(read.map_err(Error::from))
}

/// Prints one line for each variant of the block in the entry before this position of the ZAP. In a classic
/// table, there is a variant for each number of copies.
fn print_entry(
    checksum: ChecksumId,
    index: u64,
    key: &DdtKey,
    value: &DdtValue,
    out: &mut dyn Write,
) -> io::Result<()> {
    for (copies, phys) in value.in_use() {
        let bp = pointer(checksum, key, phys);
        writeln!(out, "index {index:x} refcnt {} phys {copies} {}", phys.refcount, Long(&bp))?;
    }
    Ok(())
}

/// The pointer to a block of a table.
fn pointer(checksum: ChecksumId, key: &DdtKey, phys: &DdtPhys) -> BlockPtr {
    let [a, b, c, d, e, f] = phys.dva_words;
    let [w, x, y, z] = key.checksum.0;
    let sizes = key.prop & ((1 << 39) - 1);
    let crypt = u64::from(key.is_encrypted()) << 61;
    let kind = u64::from(ObjType::DEDUP.id()) << 48;
    let (deduplicated, little) = (1 << 62, 1 << 63);
    let prop = sizes | u64::from(checksum.id()) << 40 | kind | crypt | deduplicated | little;
    BlockPtr::from_words([a, b, c, d, e, f, prop, 0, 0, 0, phys.birth.0, 1, w, x, y, z])
}

fn print_histogram(histogram: &DdtHistogram, with_total: bool, out: &mut dyn Write) -> io::Result<()> {
    let buckets: Vec<DedupBucket> = histogram.buckets.iter().map(DedupBucket::from).collect();
    let mut table = String::new();
    crate::zpool::dedup_table(&buckets, &mut table);
    if !with_total {
        table = table.lines().filter(|line| !line.starts_with(" Total ")).map(|l| format!("{l}\n")).collect();
    }
    out.write_all(table.as_bytes())
}

/// Prints what deduplication would save in this pool.
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

/// Prints the ratios of deduplication, compression and copies.
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
