//! Deadlists, livelists and the lists of block pointers that they are made of.

use super::bp::Short;
use super::text::put;
use super::{Options, chain};
use admin::debug::{Bpobj, Deadlist, DslDataset, DslError, Object, Zap};
use cenote::{Dataset, Pool};
use format::blkptr::BLKPTR_SIZE;
use format::endian::bits;
use format::names;
use format::{BlockId, BlockPtr, ObjectId, Txg};
use std::io::{self, Write};

/// Most levels of nested lists that are printed.
const DEPTH_MAX: usize = 16;
/// Index of the word of a stored pointer whose lowest bit marks a free in a livelist.
const FILL_WORD: usize = 11;
/// Bonus lengths, in bytes, of a list with totals of compressed bytes, and of one that counts frees.
const HAS_COMP: usize = 32;
const HAS_FREED: usize = 56;

/// Lists of blocks of the whole pool that wait to be freed: name in the object directory, and title.
const POOL_LISTS: [(&str, &str); 3] = [
    (names::directory::SYNC_BPLIST, "Deferred frees"),
    (names::directory::FREE_BPOBJ, "Pool snapshot frees"),
    (names::directory::OBSOLETE_BPOBJ, "Pool obsolete blocks"),
];

/// Prints the lists of the whole pool.
pub(super) fn print_pool(pool: &Pool, options: &Options, out: &mut dyn Write) -> io::Result<()> {
    for (name, title) in POOL_LISTS {
        let id = match pool.spa().directory().object(name) {
            Ok(Some(id)) => id,
            Ok(None) => continue,
            Err(error) => {
                eprintln!("zdb: {}", chain(&error));
                continue;
            }
        };
        match Bpobj::open(pool.spa().mos(), id) {
            Ok(bpobj) => print_bpobj(&bpobj, options, options.detail('d'), title, 0, out)?,
            Err(error) => eprintln!("zdb: {}", chain(&error)),
        }
    }
    Ok(())
}

/// Prints the deadlists of `$ORIGIN`, the hidden dataset from which every file system descends.
pub(super) fn print_origin(pool: &Pool, options: &Options, out: &mut dyn Write) -> io::Result<()> {
    let datasets = || -> Result<Vec<DslDataset>, DslError> {
        let Some(dir) = pool.dsl().root()?.child(names::hidden::ORIGIN)? else { return Ok(Vec::new()) };
        let Some(head) = dir.head()? else { return Ok(Vec::new()) };
        let snapshots = head.snapshots()?;
        Ok(std::iter::once(head).chain(snapshots).collect())
    };
    let found = datasets()
        .and_then(|all| all.iter().map(admin::debug::DslDataset::deadlist).collect::<Result<Vec<_>, _>>());
    match found {
        Ok(lists) => lists
            .iter()
            .flatten()
            .try_for_each(|list| print_list(pool, "Deadlist", list, options, options.detail('d'), out)),
        Err(error) => {
            eprintln!("zdb: {}", chain(&error));
            Ok(())
        }
    }
}

/// Prints the deadlist of a dataset and, for a clone, its livelist: totals; with four `d` the lists, with
/// five their blocks, and with fewer than three only whether there are blocks that a removal has moved.
pub(super) fn print(
    dataset: &Dataset,
    options: &Options,
    detail: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let dsl = dataset.dsl();
    match dsl.deadlist() {
        _ if detail < 3 => {}
        Ok(Some(list)) => print_list(dataset.pool(), "Deadlist", &list, options, detail, out)?,
        Ok(None) => {}
        Err(error) => eprintln!("zdb: the deadlist of {}: {}", dataset.name(), chain(&error)),
    }
    match dsl.remap_deadlist() {
        Ok(Some(list)) => {
            writeln!(out, "ds_remap_deadlist:")?;
            if detail > 2 {
                print_list(dataset.pool(), "Deadlist", &list, options, detail, out)?;
            }
        }
        Ok(None) => {}
        Err(error) => eprintln!("zdb: the remap deadlist of {}: {}", dataset.name(), chain(&error)),
    }
    if dsl.is_snapshot() || detail < 3 {
        return Ok(());
    }
    let id = dsl.dir().livelist();
    match id.and_then(|id| id.map(|id| Deadlist::open(dataset.pool().spa().mos(), id)).transpose()) {
        Ok(Some(list)) => print_list(dataset.pool(), "Livelist", &list, options, detail, out)?,
        Ok(None) => {}
        Err(error) => eprintln!("zdb: the livelist of {}: {}", dataset.name(), chain(&error)),
    }
    if detail > 3 { print_bookmarks(dataset, out) } else { Ok(()) }
}

/// The bookmarks of a head, in the order of their ZAP.
fn print_bookmarks(dataset: &Dataset, out: &mut dyn Write) -> io::Result<()> {
    let names = || -> Result<Vec<Vec<u8>>, cenote::Error> {
        let Some(own) = dataset.dsl().zap()? else { return Ok(Vec::new()) };
        let Some(map) = own.lookup_u64(names::dataset::BOOKMARKS.as_bytes())? else { return Ok(Vec::new()) };
        let map = Zap::open(&dataset.pool().spa().mos().object(ObjectId(map))?)?;
        Ok(map.entries().map(|entry| entry.map(|e| e.name().to_vec())).collect::<Result<_, _>>()?)
    };
    let names = match names() {
        Ok(names) => names,
        Err(error) => {
            eprintln!("zdb: the bookmarks of {}: {}", dataset.name(), chain(&error));
            return Ok(());
        }
    };
    for name in names {
        let Ok(Some(bookmark)) = dataset.dsl().bookmark(&String::from_utf8_lossy(&name)) else { continue };
        let phys = bookmark.phys();
        put(out, format_args!("\t#"), &name, ": ")?;
        write!(out, "{{guid: {:x} creation_txg: {} ", phys.guid, phys.creation_txg)?;
        let list = bookmark.redaction_list().map_or(0, |id| id.0);
        writeln!(out, "creation_time: {} redaction_obj: {list}}}", phys.creation_time)?;
    }
    Ok(())
}

fn print_list(
    pool: &Pool,
    title: &str,
    list: &Deadlist,
    options: &Options,
    detail: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    if let Some(bpobj) = list.bare() {
        return print_bpobj(bpobj, options, detail, "old-format deadlist", 0, out);
    }
    let space = list.space();
    let number = |n: u64| options.number(n);
    let (used, comp, uncomp) = (number(space.used), number(space.compressed), number(space.uncompressed));
    writeln!(out, "\n    {title}: {used} ({comp}/{uncomp} comp), {} entries", list.buckets().len())?;
    if detail < 4 {
        return Ok(());
    }
    writeln!(out)?;
    for (mintxg, id) in list.buckets() {
        print_bucket(pool, (*mintxg, *id), options, detail, out)?;
    }
    Ok(())
}

fn print_bucket(
    pool: &Pool,
    (mintxg, id): (Txg, ObjectId),
    options: &Options,
    detail: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let title = format!("mintxg {mintxg} -> obj {id}");
    if detail < 5 {
        return writeln!(out, "{title}");
    }
    match Bpobj::open(pool.spa().mos(), id) {
        Ok(bpobj) => print_bpobj(&bpobj, options, detail, &title, 0, out),
        Err(error) => {
            eprintln!("zdb: {}", chain(&error));
            Ok(())
        }
    }
}

/// Prints a list of block pointers: totals, and with five `d` the pointers.
pub(super) fn print_bpobj(
    bpobj: &Bpobj,
    options: &Options,
    detail: usize,
    title: &str,
    depth: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let phys = bpobj.phys();
    let indent = depth * 8 + 4;
    let bonus = bpobj.object().bonus().len();
    let number = |n: u64| options.number(n);
    write!(out, "{:indent$}{title}: object {}, ", "", bpobj.object().id())?;
    let is_nested = phys.num_subobjs > 0 && bonus > HAS_COMP;
    write!(out, "{} {}blkptrs, ", phys.num_blkptrs, if is_nested { "local " } else { "" })?;
    if bonus >= HAS_FREED {
        write!(out, "{} freed, ", phys.num_freed)?;
    }
    if is_nested {
        write!(out, "{} subobjs in object {}, ", phys.num_subobjs, phys.subobjs.map_or(0, |id| id.0))?;
        write!(out, "{} ({}/{} comp)", number(phys.bytes), number(phys.comp), number(phys.uncomp))?;
    } else {
        write!(out, "{}", number(phys.bytes))?;
    }
    writeln!(out)?;
    if detail < 5 {
        return Ok(());
    }
    if depth < DEPTH_MAX && is_nested {
        for id in bpobj.subobjs().unwrap_or_default() {
            match Bpobj::open(bpobj.object().objset(), id) {
                Ok(sub) => print_bpobj(&sub, options, detail, "subobj", depth + 1, out)?,
                Err(error) => eprintln!("zdb: {}", chain(&error)),
            }
        }
    }
    let how = Pointers { backwards: true, all: detail > 5 };
    print_pointers(bpobj.object(), phys.num_blkptrs, how, out)?;
    writeln!(out)
}

/// Format of a list of pointers.
#[derive(Clone, Copy)]
pub(super) struct Pointers {
    /// Whether the last pointer comes first.
    pub(super) backwards: bool,
    /// Whether all addresses of a pointer are printed.
    pub(super) all: bool,
}

/// Prints the first `count` pointers in an object, one a line.
pub(super) fn print_pointers(
    object: &Object,
    count: u64,
    how: Pointers,
    out: &mut dyn Write,
) -> io::Result<()> {
    let per_block = (object.block_size() / BLKPTR_SIZE as u64).max(1);
    let count = count.min(object.logical_end() / BLKPTR_SIZE as u64);
    let blocks = count.div_ceil(per_block);
    for i in 0..blocks {
        let blkid = if how.backwards { blocks - 1 - i } else { i };
        let here = (count - blkid * per_block).min(per_block);
        let block = match object.block(BlockId(blkid)) {
            Ok(Some(block)) => block,
            Ok(None) => continue,
            Err(error) => {
                eprintln!("zdb: {}", chain(&error));
                continue;
            }
        };
        let here = usize::try_from(here).unwrap_or(0);
        let mut pointers: Vec<BlockPtr> =
            BlockPtr::decode_all(block.bytes(), block.order()).take(here).collect();
        if how.backwards {
            pointers.reverse();
        }
        for bp in &pointers {
            let freed = bits(bp.words()[FILL_WORD], 0, 1) == 1;
            writeln!(out, "\t{}", Short { bp, all: how.all, freed })?;
        }
    }
    Ok(())
}
