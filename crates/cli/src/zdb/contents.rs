//! Contents of objects, as `zdb -dddd` prints them: ZAPs, packed lists, lists of block pointers.

use super::nvprint::Indented;
use super::text::put;
use super::view::View;
use super::{chain, deadlists};
use admin::debug::{DmuError, Object, Zap, ZapEntry, ZapKey, ZapStats};
use format::dsl::BpobjPhys;
use format::ids::SwapClass;
use format::nvlist::NvList;
use format::{BlockId, ObjType, ObjectId};
use std::io::{self, Write};

/// Longest packed list that is read, in bytes: the configuration of a pool takes some kilobytes.
const NVLIST_MAX: u64 = 16 << 20;

/// Prints the contents of `object`.
pub(super) fn print(out: &mut dyn Write, object: &Object, view: &View<'_>) -> io::Result<()> {
    match object.dnode().obj_type {
        ObjType::PACKED_NVLIST => print_nvlist(out, object),
        ObjType::BPOBJ if view.detail > 4 => print_bpobj(out, object, view),
        // The keys of a dedup table are checksums, and there are many.
        ObjType::DDT_ZAP => print_zap(out, object, false),
        kind if kind.is_zap() => print_zap(out, object, true),
        ObjType::OBJECT_ARRAY if view.detail > 5 => print_numbers_of(out, object),
        kind if kind.id() & 0x80 != 0 && kind.swap_class() == SwapClass::U64 && view.detail > 5 => {
            print_numbers_of(out, object)
        }
        // The real tool prints no contents for types that describe themselves, except for ZAPs and arrays of
        // 64-bit numbers.
        kind if kind.id() & 0x80 != 0 && kind.swap_class() != SwapClass::U64 => {
            writeln!(out, "\tUNKNOWN OBJECT TYPE")
        }
        _ => Ok(()),
    }
}

fn print_bpobj(out: &mut dyn Write, object: &Object, view: &View<'_>) -> io::Result<()> {
    let how = deadlists::Pointers { backwards: false, all: view.detail > 5 };
    match BpobjPhys::decode(object.bonus(), object.order()) {
        Ok(phys) => deadlists::print_pointers(object, phys.num_blkptrs, how, out),
        Err(_) => Ok(()),
    }
}

/// Most numbers that are printed of one object: 128 MiB.
const NUMBERS_MAX: u64 = 16 << 20;

/// Prints an object that is an array of 64-bit numbers, in hexadecimal, four a line.
fn print_numbers_of(out: &mut dyn Write, object: &Object) -> io::Result<()> {
    let mut left = (object.logical_end() / 8).min(NUMBERS_MAX);
    let mut array = Array { count: 0 };
    for block in 0..=object.dnode().maxblkid.0 {
        let here = (object.block_size() / 8).min(left);
        left -= here;
        let words: Vec<u64> = match object.block(BlockId(block)) {
            Ok(Some(block)) => block.order().all_words(block.bytes()).collect(),
            Ok(None) => vec![0; usize::try_from(here).unwrap_or(0)],
            Err(error) => return writeln!(out, "\t\t{}", chain(&error)),
        };
        for word in words.iter().take(usize::try_from(here).unwrap_or(0)) {
            array.print(out, *word)?;
        }
        if left == 0 {
            break;
        }
    }
    writeln!(out, "]")
}

/// Prints a bonus that is an array of 64-bit numbers.
pub(super) fn print_numbers_in(out: &mut dyn Write, object: &Object) -> io::Result<()> {
    let mut array = Array { count: 0 };
    for word in object.order().all_words(object.bonus()) {
        array.print(out, word)?;
    }
    // The length of a bonus buffer is a multiple of 64 bytes.
    while !array.count.is_multiple_of(8) {
        array.print(out, 0)?;
    }
    writeln!(out, "]")
}

/// State of printing an array.
struct Array {
    count: u64,
}

impl Array {
    fn print(&mut self, out: &mut dyn Write, word: u64) -> io::Result<()> {
        let before = match self.count {
            0 => "\t\t[",
            n if n % 4 == 0 => ",\n\t\t",
            _ => ", ",
        };
        self.count += 1;
        write!(out, "{before}{word:x}")
    }
}

fn print_nvlist(out: &mut dyn Write, object: &Object) -> io::Result<()> {
    let len = object.order().get_u64(object.bonus(), 0).unwrap_or(0);
    if len > NVLIST_MAX {
        return writeln!(out, "\t\ta packed list of {len} bytes is not read");
    }
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    match object.read_at(0, &mut bytes) {
        Ok(()) => match NvList::decode(&bytes) {
            Ok(list) => write!(out, "{}", Indented { list: &list, indent: 8 }),
            Err(error) => writeln!(out, "\t\t{error}"),
        },
        Err(error) => writeln!(out, "\t\t{}", chain(&error)),
    }
}

fn print_zap(out: &mut dyn Write, object: &Object, with_entries: bool) -> io::Result<()> {
    let opened = || -> Result<(Zap, ZapStats), DmuError> {
        let zap = Zap::open(object)?;
        let stats = zap.stats()?;
        Ok((zap, stats))
    };
    let (zap, stats) = match opened() {
        Ok(opened) => opened,
        Err(error) => return writeln!(out, "\t\t{}", chain(&error)),
    };
    print_zap_stats(out, &stats)?;
    if !with_entries {
        return Ok(());
    }
    writeln!(out)?;
    for entry in zap.entries() {
        match entry {
            Ok(entry) => print_entry(out, object, &entry)?,
            Err(error) => {
                writeln!(out, "\t\t{}", chain(&error))?;
            }
        }
    }
    Ok(())
}

fn print_zap_stats(out: &mut dyn Write, stats: &ZapStats) -> io::Result<()> {
    let Some(header) = &stats.header else {
        return writeln!(out, "\tmicrozap: {} bytes, {} entries", stats.block_size, stats.entries);
    };
    writeln!(out, "\tFat ZAP stats:\n\t\tPointer table:")?;
    writeln!(out, "\t\t\t{} elements", 1_u64.checked_shl(header.table_shift).unwrap_or(0))?;
    writeln!(out, "\t\t\tzt_blk: {}", header.table_block)?;
    writeln!(out, "\t\t\tzt_numblks: {}", header.table_blocks)?;
    writeln!(out, "\t\t\tzt_shift: {}", header.table_shift)?;
    writeln!(out, "\t\t\tzt_blks_copied: {}", header.blocks_copied)?;
    writeln!(out, "\t\t\tzt_nextblk: {}", header.next_block)?;
    writeln!(out, "\t\tZAP entries: {}", stats.entries)?;
    writeln!(out, "\t\tLeaf blocks: {}", stats.leaves)?;
    writeln!(out, "\t\tTotal blocks: {}", stats.blocks)?;
    writeln!(out, "\t\tzap_block_type: 0x8000000000000001\n\t\tzap_magic: 0x2f52ab2ab")?;
    writeln!(out, "\t\tzap_salt: 0x{:x}", stats.salt)?;
    for (title, rows) in [
        ("Leafs with 2^n pointers:", &stats.leaves_by_pointers),
        ("Blocks with n*5 entries:", &stats.leaves_by_entries),
        ("Blocks n/10 full:", &stats.leaves_by_fullness),
        ("Entries with n chunks:", &stats.entries_by_chunks),
        ("Buckets with n entries:", &stats.buckets_by_entries),
    ] {
        writeln!(out, "\t\t{title}")?;
        print_histogram(out, rows)?;
    }
    Ok(())
}

/// Prints the rows from the first to the last that is not zero, each with a bar of at most forty stars.
pub(super) fn print_histogram(out: &mut dyn Write, rows: &[u64]) -> io::Result<()> {
    const WIDTH: u64 = 40;
    let Some(first) = rows.iter().position(|n| *n > 0) else { return Ok(()) };
    let last = rows.iter().rposition(|n| *n > 0).unwrap_or(first);
    let max = u128::from(rows.iter().copied().max().unwrap_or(0).max(WIDTH));
    for (i, n) in rows.iter().enumerate().take(last + 1).skip(first) {
        let stars = (u128::from(*n) * u128::from(WIDTH)).div_ceil(max);
        writeln!(out, "\t\t\t{i:3}: {n:6} {}", "*".repeat(usize::try_from(stars).unwrap_or(0)))?;
    }
    Ok(())
}

fn print_entry(out: &mut dyn Write, object: &Object, entry: &ZapEntry) -> io::Result<()> {
    let name = match &entry.key {
        ZapKey::Name(name) => name,
        // Decimal digits in the form of a hexadecimal number, as the real tool prints them.
        ZapKey::Words(words) => {
            write!(out, "\t\t0x{:010}x = ", words.first().copied().unwrap_or(0))?;
            return print_numbers(out, entry);
        }
    };
    put(out, format_args!("\t\t"), name, " = ")?;
    match object.dnode().obj_type {
        ObjType::DIRECTORY => {
            let value = entry.u64s().first().copied().unwrap_or(0);
            writeln!(out, "{} (type: {})", value & (ObjectId::LIMIT - 1), dirent_type(value >> 60))
        }
        ObjType::SA_ATTR_REGISTRATION => {
            let v = entry.u64().unwrap_or(0);
            writeln!(out, " {v:x} : [{}:{}:{}]", v >> 24 & 0xffff_ffff, v >> 16 & 0xff, v & 0xffff)
        }
        ObjType::SA_ATTR_LAYOUTS => {
            let items: Vec<String> = entry.u64s().iter().map(|n| format!(" {n} ")).collect();
            writeln!(out, "[{}]", items.concat())
        }
        _ => print_value(out, entry),
    }
}

/// Prints a value: text as text, other bytes in hexadecimal, numbers with a space after each.
fn print_value(out: &mut dyn Write, entry: &ZapEntry) -> io::Result<()> {
    if entry.int_size != 1 {
        return print_numbers(out, entry);
    }
    match entry.value.split_last() {
        Some((0, text)) if text.iter().all(|b| matches!(b, b' '..=b'~' | b'\t')) => {
            put(out, format_args!(""), text, "\n")
        }
        _ => {
            let hex: String = entry.value.iter().map(|b| format!("{b:02x}")).collect();
            writeln!(out, "{hex}")
        }
    }
}

/// Prints numbers, 64-bit ones as signed, with a space after each.
fn print_numbers(out: &mut dyn Write, entry: &ZapEntry) -> io::Result<()> {
    for n in entry.u64s() {
        match entry.int_size {
            8 => write!(out, "{} ", n.cast_signed())?,
            _ => write!(out, "{n} ")?,
        }
    }
    writeln!(out)
}

fn dirent_type(kind: u64) -> &'static str {
    match kind {
        0 => "not specified",
        1 => "FIFO",
        2 => "Character Device",
        4 => "Directory",
        6 => "Block Device",
        8 => "Regular File",
        10 => "Symbolic Link",
        12 => "Socket",
        13 => "Door",
        14 => "Event Port",
        _ => "invalid",
    }
}
