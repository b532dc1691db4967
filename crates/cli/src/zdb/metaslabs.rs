//! Metaslabs, their space maps, the logs of changes that the maps do not contain yet, and the mappings of
//! removed vdevs: `zdb -m`, and the part of `-ddd` before the datasets.

use super::contents::print_histogram;
use super::{Options, Verdict, chain};
use admin::debug::{
    Class, LogMap, RangeSet, RemovedVdev, SpaceMap, StoredMetaslab, VdevMetaslabs, checkpoint_maps,
    free_space, log_maps, metaslabs,
};
use cenote::Pool;
use format::space_map::{BUCKETS, Entry, LOG_SHIFT, MapType, SpaceMapPhys};
use format::{ObjectId, VdevId};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Number that is printed for an entry without a vdev: entries of one word name none.
const NO_VDEV: u64 = 1 << 24;
/// Shortest free segment, in bytes, that is part of the order of sizes and counted among the segments.
const COUNTED_FROM: u64 = 16 << 10;
const RULE: &str = "\t---------------   -------------------   ---------------   ------------";

/// Prints the space of all vdevs, or with `filter` of one vdev or some of its metaslabs.
pub(super) fn print(
    pool: &Pool,
    options: &Options,
    filter: Option<(u64, &[u64])>,
    out: &mut dyn Write,
) -> io::Result<Verdict> {
    let print = || -> Result<io::Result<()>, cenote::Error> {
        let vdevs = metaslabs(pool)?;
        let logs = log_maps(pool, &vdevs)?;
        let free = if options.count('m') > 2 { free_space(pool)? } else { BTreeMap::new() };
        let fragmentation = pool.spa().space()?.fragmentation;
        let seen = Seen { pool, options, vdevs, logs, free, fragmentation };
        Ok(seen.print(filter, out))
    };
    match { print }() {
        Ok(written) => written.map(|()| Verdict::Clean),
        Err(error) => {
            eprintln!("zdb: {}", chain(&error));
            Ok(Verdict::Unreadable)
        }
    }
}

/// The data to be printed.
struct Seen<'a> {
    pool: &'a Pool,
    options: &'a Options,
    vdevs: Vec<VdevMetaslabs>,
    logs: Vec<LogMap>,
    /// Free ranges of each metaslab; empty if they are not printed.
    free: BTreeMap<VdevId, Vec<RangeSet>>,
    /// Fragmentation of the pool in percent.
    fragmentation: Option<u64>,
}

impl Seen<'_> {
    fn print(&self, filter: Option<(u64, &[u64])>, out: &mut dyn Write) -> io::Result<()> {
        let options = self.options;
        let has_maps = options.detail('d') > 2 || options.has('m');
        if has_maps {
            writeln!(out, "\nMetaslabs:")?;
            for vdev in self.vdevs.iter().filter(|v| filter.is_none_or(|(id, _)| id == u64::from(v.vdev.0))) {
                print_head(vdev, out)?;
                let only = filter.map_or(&[][..], |(_, only)| only);
                self.print_vdev(vdev, only, out)?;
            }
        }
        if filter.is_some() {
            return Ok(());
        }
        if options.has('M') {
            self.print_groups(out)?;
        }
        if has_maps { self.print_logs(out) } else { Ok(()) }
    }

    fn print_logs(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.logs.is_empty() {
            return Ok(());
        }
        writeln!(out, "\nLog Space Maps in Pool:")?;
        for log in &self.logs {
            writeln!(out, "Log Spacemap object {} txg {}", log.object, log.txg)?;
            print_map(self.pool, self.options, (log.object, &log.phys), (0, LOG_SHIFT), out)?;
        }
        writeln!(out, "\nLog Space Map Obsolete Entry Statistics:")?;
        for log in &self.logs {
            writeln!(out, "{:<8} valid entries out of {:<8} - txg {}", log.valid, log.entries, log.txg)?;
        }
        let valid: u64 = self.logs.iter().map(|log| log.valid).sum();
        let entries: u64 = self.logs.iter().map(|log| log.entries).sum();
        writeln!(out, "{valid:<8} valid entries out of {entries:<8} - total\n")
    }

    /// Prints free segments by size: of the vdevs for data, with two `M` also of special vdevs, and of the
    /// pool.
    fn print_groups(&self, out: &mut dyn Write) -> io::Result<()> {
        let percent = |value: Option<u64>| value.map_or("  -".to_owned(), |value| format!("{value:>3}%"));
        let mut all = Vec::new();
        for vdev in self.vdevs.iter().filter(|vdev| vdev.removed.is_none() && !vdev.metaslabs.is_empty()) {
            let is_special = vdev.class == Class::Special && self.options.count('M') > 1;
            if vdev.class != Class::Normal && !is_special {
                continue;
            }
            let rows = self.histogram(vdev);
            let (id, count) = (vdev.vdev, vdev.metaslabs.len());
            writeln!(
                out,
                "\tvdev {id:>10}\t\tmetaslabs{count:>5}\t\tfragmentation{}",
                percent(vdev.fragmentation)
            )?;
            print_histogram(out, &rows)?;
            if vdev.class == Class::Normal {
                add_rows(&mut all, &rows);
            }
        }
        writeln!(out, "\tpool {}\tfragmentation\t{}", self.pool.name(), percent(self.fragmentation))?;
        print_histogram(out, &all)
    }

    /// Free segments of a vdev by size, as the maps of its metaslabs have recorded them.
    fn histogram(&self, vdev: &VdevMetaslabs) -> Vec<u64> {
        let shift = ashift(self.pool, vdev.vdev);
        let mut rows = Vec::new();
        let maps = vdev.metaslabs.iter().filter_map(|metaslab| metaslab.map);
        maps.filter_map(|(_, phys)| phys.histogram)
            .for_each(|h| add_rows(&mut rows, &stored_rows(&h, shift)));
        rows
    }

    fn print_vdev(&self, vdev: &VdevMetaslabs, only: &[u64], out: &mut dyn Write) -> io::Result<()> {
        let (pool, options) = (self.pool, self.options);
        if let Some(removed) = &vdev.removed {
            return print_removed(pool, options, vdev, removed, out);
        }
        let shift = ashift(pool, vdev.vdev);
        for (index, metaslab) in vdev.metaslabs.iter().enumerate() {
            if !only.is_empty() && !only.contains(&(index as u64)) {
                continue;
            }
            let free = options.number(metaslab.size.saturating_sub(metaslab.allocated()));
            let map = metaslab.map.map_or(0, |(id, _)| id.0);
            writeln!(
                out,
                "\tmetaslab {index:>6}   offset {:>12x}   spacemap {map:>6}   free    {free:>5}",
                metaslab.start
            )?;
            if let Some(free) = self.free.get(&vdev.vdev).and_then(|metaslabs| metaslabs.get(index)) {
                print_free(free, metaslab.size, options, out)?;
            }
            print_metaslab(pool, options, metaslab, shift, out)?;
            if vdev.unflushed_object.is_some() {
                writeln!(out, "\tFlush data:\n\tunflushed txg={}\n", metaslab.unflushed_txg)?;
            }
        }
        writeln!(out)
    }
}

/// Prints the free ranges of a metaslab according to its map. The real tool calls this the state in memory,
/// but it does not replay logs either.
fn print_free(free: &RangeSet, size: u64, options: &Options, out: &mut dyn Write) -> io::Result<()> {
    let lengths = || free.iter().map(|range| range.end - range.start);
    let (count, max) = (lengths().filter(|len| *len >= COUNTED_FROM).count(), lengths().max().unwrap_or(0));
    let percent = u128::from(free.total()) * 100 / u128::from(size.max(1));
    let max = options.number(max);
    writeln!(out, "\t                  segments {count:>10}   maxsize {max:>7}   freepct {percent:>4}%")?;
    writeln!(out, "\tIn-memory histogram:")?;
    let mut rows = Vec::new();
    for shift in lengths().map(u64::ilog2) {
        let mut one = vec![0; shift as usize];
        one.push(1);
        add_rows(&mut rows, &one);
    }
    print_histogram(out, &rows)
}

/// The histogram of a map, with rows from segments of one byte on.
fn stored_rows(histogram: &[u64], shift: u32) -> Vec<u64> {
    let mut rows = vec![0; shift as usize];
    rows.extend(histogram.iter().take(BUCKETS));
    rows
}

fn add_rows(sums: &mut Vec<u64>, rows: &[u64]) {
    sums.resize(sums.len().max(rows.len()), 0);
    sums.iter_mut().zip(rows).for_each(|(sum, n)| *sum = sum.saturating_add(*n));
}

fn print_head(vdev: &VdevMetaslabs, out: &mut dyn Write) -> io::Result<()> {
    let bias = match vdev.class {
        Class::Normal => "",
        class => class.name(),
    };
    write!(out, "\tvdev {:>10}   {bias}", vdev.vdev)?;
    if let Some(id) = vdev.unflushed_object {
        write!(out, "   ms_unflushed_phys object {id}")?;
    }
    writeln!(
        out,
        "\n\tmetaslabs {:>5}   offset                spacemap          free        ",
        vdev.metaslabs.len()
    )?;
    writeln!(out, "{RULE}")
}

fn print_metaslab(
    pool: &Pool,
    options: &Options,
    metaslab: &StoredMetaslab,
    shift: u32,
    out: &mut dyn Write,
) -> io::Result<()> {
    let Some((id, phys)) = &metaslab.map else { return Ok(()) };
    if options.count('m') > 1
        && let Some(histogram) = &phys.histogram
    {
        let fragmentation = metaslab.fragmentation.unwrap_or(0);
        writeln!(out, "\tOn-disk histogram:\t\tfragmentation {fragmentation}")?;
        print_histogram(out, &stored_rows(histogram, shift))?;
    }
    print_map(pool, options, (*id, phys), (metaslab.start, shift), out)
}

/// Prints the header of a space map and, with six `d`, its entries.
fn print_map(
    pool: &Pool,
    options: &Options,
    (id, phys): (ObjectId, &SpaceMapPhys),
    (start, shift): (u64, u32),
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(out, "space map object {id}:")?;
    writeln!(out, "  smp_length = 0x{:x}", phys.length)?;
    writeln!(out, "  smp_alloc = 0x{:x}", phys.allocated)?;
    if options.count('d') < 6 && options.count('m') < 4 {
        return Ok(());
    }
    let mut index = 0_u64;
    let mut written = Ok(());
    let read = SpaceMap::open(pool.spa().mos(), id).and_then(|map| {
        map.for_each_entry(&mut |entry| {
            if written.is_ok() {
                written = print_entry(&entry, index, (start, shift), out);
            }
            index += 1;
            Ok(())
        })
    });
    written?;
    match read {
        Ok(()) => Ok(()),
        Err(error) => writeln!(out, "\t\t{}", chain(&error)),
    }
}

/// Prints, by vdev, the blocks that were freed since the checkpoint and are kept for it.
pub(super) fn print_checkpoint(pool: &Pool, options: &Options, out: &mut dyn Write) -> io::Result<Verdict> {
    let maps = match checkpoint_maps(pool) {
        Ok(maps) => maps,
        Err(error) => {
            eprintln!("zdb: {}", chain(&error));
            return Ok(Verdict::Unreadable);
        }
    };
    for (vdev, id, phys) in maps {
        print_map(pool, options, (id, &phys), (0, ashift(pool, vdev)), out)?;
    }
    Ok(Verdict::Clean)
}

fn ashift(pool: &Pool, vdev: VdevId) -> u32 {
    pool.spa().tree().ashift(vdev).map_or(9, |ashift| u32::from(ashift.0))
}

/// Prints a space map with its title.
pub(super) fn print_map_of(
    pool: &Pool,
    options: &Options,
    id: ObjectId,
    out: &mut dyn Write,
) -> io::Result<()> {
    match SpaceMap::open(pool.spa().mos(), id) {
        Ok(map) => print_map(pool, options, (id, map.phys()), (0, 0), out),
        Err(error) => {
            eprintln!("zdb: {}", chain(&error));
            Ok(())
        }
    }
}

fn print_entry(entry: &Entry, index: u64, (start, shift): (u64, u32), out: &mut dyn Write) -> io::Result<()> {
    match entry {
        entry if entry.is_padding() => writeln!(out, "\t    [{index:>6}] PADDING"),
        Entry::Debug { action, pass, txg } => {
            let name = if *action == MapType::Alloc { "ALLOC" } else { "FREE" };
            writeln!(out, "\t    [{index:>6}] {name}: txg {txg} pass {pass}")
        }
        Entry::Range { kind, offset, run, vdev } => {
            let letter = if *kind == MapType::Alloc { 'A' } else { 'F' };
            let from = start.saturating_add(offset.saturating_mul(1 << shift));
            let size = run.saturating_mul(1 << shift);
            let to = from.saturating_add(size);
            let words = if entry.is_two_words() { 2 } else { 1 };
            let vdev = vdev.map_or(NO_VDEV, |vdev| u64::from(vdev.0));
            writeln!(
                out,
                "\t    [{index:>6}]    {letter}  range: {from:010x}-{to:010x}  size: {size:06x} vdev: {vdev:06} words: {words}"
            )
        }
    }
}

fn print_removed(
    pool: &Pool,
    options: &Options,
    vdev: &VdevMetaslabs,
    removed: &RemovedVdev,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(out, "indirect births obj {}:", removed.births_object)?;
    writeln!(out, "    vib_count = {}", removed.births.len())?;
    for birth in &removed.births {
        writeln!(out, "\toffset {:x} -> txg {}", birth.end.0, birth.txg)?;
    }
    writeln!(out, "\nindirect mapping obj {}:", removed.mapping_object)?;
    writeln!(out, "    vim_max_offset = 0x{:x}", removed.mapping.max_offset)?;
    writeln!(out, "    vim_bytes_mapped = 0x{:x}", removed.mapping.bytes_mapped)?;
    writeln!(out, "    vim_count = {}", removed.mapping.num_entries)?;
    if options.count('d') > 5 || options.count('m') > 3 {
        for (entry, obsolete) in &removed.entries {
            write!(out, "\t<{}:{:x}:{:x}> -> <{}>", vdev.vdev, entry.src.0, entry.len, entry.dst)?;
            match obsolete {
                None => writeln!(out)?,
                Some(bytes) => writeln!(out, " ({bytes:x} obsolete)")?,
            }
        }
        writeln!(out)?;
        if let Some((id, phys)) = &removed.obsolete {
            writeln!(out, "obsolete space map object {id}:")?;
            // The ranges of this map are in bytes.
            print_map(pool, options, (*id, phys), (0, 0), out)?;
            writeln!(out)?;
        }
    }
    writeln!(out)
}
