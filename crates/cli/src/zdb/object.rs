//! One object as `zdb -d` prints it: the table line, then, with more `-d`, what it holds.

use super::bp::{Long, Short};
use super::nvprint::Indented;
use crate::time::ctime;
use cenote::inspect::{Filesystem, Object, Segment, Zap, ZapEntry, ZapStats, segments};
use format::dnode::{
    FLAG_SPILL, FLAG_USED_BYTES, FLAG_USEROBJUSED_ACCOUNTED, FLAG_USERUSED_ACCOUNTED, SLOTS_PER_BLOCK,
};
use format::dsl::{BpobjPhys, DatasetPhys, DirPhys};
use format::nicenum::nicenum;
use format::nvlist::{NvList, NvValue};
use format::{BlockPtr, ObjType, ObjectId};
use std::io::{self, Write};
use std::sync::Arc;

/// Type of the bonus of the history object.
const HISTORY_OFFSETS: u8 = 30;

/// The heading of the object table.
pub(crate) const HEADER: &str = "    Object  lvl   iblk   dblk  dsize  dnsize  lsize   %full  type";

/// Prints one object; `detail` is the number of `-d` given, `parsable` stands for `-P`.
pub(crate) fn print(
    out: &mut dyn Write,
    object: &Object,
    fs: Option<&Arc<Filesystem>>,
    detail: usize,
    parsable: bool,
) -> io::Result<()> {
    let number = |n: u64| if parsable { n.to_string() } else { nicenum(n) };
    let dnode = object.dnode();
    let lsize = object.logical_end();
    let mut kind = dnode.obj_type.to_string();
    if dnode.obj_type.id() & 0x80 != 0 {
        kind = self_described(dnode.obj_type).to_owned();
    }
    if dnode.checksum != 0 {
        let name = format::ChecksumId::from_id(dnode.checksum).map_or("unknown", |id| id.name());
        kind.push_str(&format!(" (K={name})"));
    }
    if dnode.compress != 0 {
        let name = format::CompressionId::from_id(dnode.compress).map_or("unknown", |id| id.name());
        kind.push_str(&format!(" (Z={name})"));
    }
    writeln!(
        out,
        "{:>10}  {:>3}  {:>5}  {:>5}  {:>5}  {:>6}  {:>5}  {:>6.2}  {kind}",
        object.id().0 as i64,
        dnode.nlevels,
        number(dnode.indirect_size()),
        number(dnode.data_block_size()),
        number(dnode.used_bytes()),
        number(dnode.slots() as u64 * 512),
        number(lsize),
        percent_full(object),
    )?;
    if dnode.bonus_type != ObjType::NONE && detail > 3 {
        writeln!(out, "{:>50}   bonus  {}", number(dnode.bonuslen.into()), dnode.bonus_type)?;
    }
    if detail < 4 {
        return Ok(());
    }
    print_flags(out, object)?;
    if object.objset().is_locked() && (dnode.bonus_type.is_encrypted() || dnode.obj_type.is_encrypted()) {
        writeln!(out, "\t\t(object encrypted)")?;
    } else {
        print_bonus(out, object, fs)?;
        print_contents(out, object)?;
    }
    if detail > 4 {
        print_blocks(out, object, detail, parsable)?;
    }
    writeln!(out)
}

fn self_described(kind: ObjType) -> &'static str {
    use format::ids::SwapClass;
    match kind.swap_class() {
        SwapClass::U8 => "uint8",
        SwapClass::U16 => "uint16",
        SwapClass::U32 => "uint32",
        SwapClass::U64 => "uint64",
        SwapClass::Zap => "zap",
        _ => "other",
    }
}

/// Allocated blocks (for dnodes: allocated dnodes) in hundredths of all there could be.
fn percent_full(object: &Object) -> f64 {
    let dnode = object.dnode();
    let fill: u64 = dnode.blkptrs.iter().map(BlockPtr::fill).sum();
    let all = if dnode.obj_type == ObjType::DNODE {
        (dnode.maxblkid.0 + 1).saturating_mul(SLOTS_PER_BLOCK as u64)
    } else {
        dnode.maxblkid.0.saturating_add(1)
    };
    100.0 * fill as f64 / all as f64
}

fn print_flags(out: &mut dyn Write, object: &Object) -> io::Result<()> {
    let flags = object.dnode().flags;
    let mut text = String::new();
    for (bit, name) in [
        (FLAG_USED_BYTES, "USED_BYTES "),
        (FLAG_USERUSED_ACCOUNTED, "USERUSED_ACCOUNTED "),
        (FLAG_USEROBJUSED_ACCOUNTED, "USEROBJUSED_ACCOUNTED "),
        (FLAG_SPILL, "SPILL_BLKPTR"),
    ] {
        if flags & bit != 0 {
            text.push_str(name);
        }
    }
    writeln!(out, "\tdnode flags: {text}")?;
    writeln!(out, "\tdnode maxblkid: {}", object.dnode().maxblkid)
}

fn print_bonus(out: &mut dyn Write, object: &Object, fs: Option<&Arc<Filesystem>>) -> io::Result<()> {
    let (bonus, order) = (object.bonus(), object.order());
    match object.dnode().bonus_type {
        ObjType::DSL_DIR => match DirPhys::decode(bonus, order) {
            Ok(dir) => print_dir(out, &dir),
            Err(error) => writeln!(out, "\t\t{error}"),
        },
        ObjType::DSL_DATASET => match DatasetPhys::decode(bonus, order) {
            Ok(dataset) => print_dataset(out, &dataset),
            Err(error) => writeln!(out, "\t\t{error}"),
        },
        ObjType::BPOBJ_HDR => match BpobjPhys::decode(bonus, order) {
            Ok(bpobj) => {
                writeln!(out, "\t\tnum_blkptrs = {}", bpobj.num_blkptrs)?;
                writeln!(out, "\t\tbytes = {}", nicenum(bpobj.bytes))?;
                writeln!(out, "\t\tcomp = {}", nicenum(bpobj.comp))?;
                writeln!(out, "\t\tuncomp = {}", nicenum(bpobj.uncomp))?;
                writeln!(out, "\t\tsubobjs = {}", id(bpobj.subobjs))?;
                writeln!(out, "\t\tnum_subobjs = {}", bpobj.num_subobjs)?;
                writeln!(out, "\t\tnum_freed = {}", bpobj.num_freed)
            }
            Err(error) => writeln!(out, "\t\t{error}"),
        },
        // Bonus of the history: five numbers (docs/on-disk/22-mos-dsl.md, section 10).
        kind if kind.id() == HISTORY_OFFSETS => {
            let names = ["pool_create_len", "phys_max_off", "bof", "eof", "records_lost"];
            for (name, value) in names.iter().zip(order.all_words(bonus)) {
                writeln!(out, "\t\t{name} = {value}")?;
            }
            Ok(())
        }
        ObjType::SA | ObjType::ZNODE => match fs {
            Some(fs) => print_znode(out, object, fs),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

fn id(object: Option<ObjectId>) -> u64 {
    object.map_or(0, |id| id.0)
}

fn print_dir(out: &mut dyn Write, dir: &DirPhys) -> io::Result<()> {
    writeln!(out, "\t\tcreation_time = {}", ctime(dir.creation_time))?;
    writeln!(out, "\t\thead_dataset_obj = {}", id(dir.head))?;
    writeln!(out, "\t\tparent_dir_obj = {}", id(dir.parent))?;
    writeln!(out, "\t\torigin_obj = {}", id(dir.origin))?;
    writeln!(out, "\t\tchild_dir_zapobj = {}", id(dir.children))?;
    writeln!(out, "\t\tused_bytes = {}", nicenum(dir.used))?;
    writeln!(out, "\t\tcompressed_bytes = {}", nicenum(dir.compressed))?;
    writeln!(out, "\t\tuncompressed_bytes = {}", nicenum(dir.uncompressed))?;
    writeln!(out, "\t\tquota = {}", nicenum(dir.quota))?;
    writeln!(out, "\t\treserved = {}", nicenum(dir.reserved))?;
    writeln!(out, "\t\tprops_zapobj = {}", id(dir.props))?;
    writeln!(out, "\t\tdeleg_zapobj = {}", id(dir.delegation))?;
    writeln!(out, "\t\tflags = {:x}", dir.flags)?;
    let b = &dir.breakdown;
    for (name, value) in [
        ("HEAD", b.head),
        ("SNAP", b.snap),
        ("CHILD", b.child),
        ("CHILD_RSRV", b.child_reservation),
        ("REFRSRV", b.ref_reservation),
    ] {
        writeln!(out, "\t\tused_breakdown[{name}] = {}", nicenum(value))?;
    }
    writeln!(out, "\t\tclones = {}", id(dir.clones))
}

fn print_dataset(out: &mut dyn Write, ds: &DatasetPhys) -> io::Result<()> {
    writeln!(out, "\t\tdir_obj = {}", ds.dir)?;
    writeln!(out, "\t\tprev_snap_obj = {}", id(ds.prev_snap))?;
    writeln!(out, "\t\tprev_snap_txg = {}", ds.prev_snap_txg)?;
    writeln!(out, "\t\tnext_snap_obj = {}", id(ds.next_snap))?;
    writeln!(out, "\t\tsnapnames_zapobj = {}", id(ds.snapshot_names))?;
    writeln!(out, "\t\tnum_children = {}", ds.num_children)?;
    writeln!(out, "\t\tuserrefs_obj = {}", id(ds.userrefs))?;
    writeln!(out, "\t\tcreation_time = {}", ctime(ds.creation_time))?;
    writeln!(out, "\t\tcreation_txg = {}", ds.creation_txg)?;
    writeln!(out, "\t\tdeadlist_obj = {}", id(ds.deadlist))?;
    writeln!(out, "\t\tused_bytes = {}", nicenum(ds.referenced))?;
    writeln!(out, "\t\tcompressed_bytes = {}", nicenum(ds.compressed))?;
    writeln!(out, "\t\tuncompressed_bytes = {}", nicenum(ds.uncompressed))?;
    writeln!(out, "\t\tunique = {}", nicenum(ds.unique))?;
    writeln!(out, "\t\tfsid_guid = {}", ds.fsid_guid)?;
    writeln!(out, "\t\tguid = {}", ds.guid)?;
    writeln!(out, "\t\tflags = {:x}", ds.flags)?;
    writeln!(out, "\t\tnext_clones_obj = {}", id(ds.next_clones))?;
    writeln!(out, "\t\tprops_obj = {}", id(ds.props))?;
    writeln!(out, "\t\tbp = {}", Long(&ds.bp))
}

fn print_znode(out: &mut dyn Write, object: &Object, fs: &Arc<Filesystem>) -> io::Result<()> {
    let node = match fs.node(object.id()) {
        Ok(node) => node,
        Err(error) => return writeln!(out, "\t\t{error}"),
    };
    let attrs = node.attrs();
    if let Ok(target) = node.readlink() {
        writeln!(out, "\ttarget\t{}", target.escape_ascii())?;
    }
    match fs.path_of(object.id()) {
        Ok(Some(path)) => writeln!(out, "\tpath\t{}", path.escape_ascii())?,
        Ok(None) | Err(_) => writeln!(out, "\tpath\t???<object#{}>", object.id())?,
    }
    writeln!(out, "\tuid     {}", attrs.uid)?;
    writeln!(out, "\tgid     {}", attrs.gid)?;
    for (name, time) in
        [("atime", attrs.atime), ("mtime", attrs.mtime), ("ctime", attrs.ctime), ("crtime", attrs.crtime)]
    {
        writeln!(out, "\t{name}\t{}", ctime(time.secs.max(0) as u64))?;
    }
    writeln!(out, "\tgen\t{}", attrs.generation)?;
    writeln!(out, "\tmode\t{:o}", attrs.mode)?;
    writeln!(out, "\tsize\t{}", attrs.size)?;
    writeln!(out, "\tparent\t{}", attrs.parent)?;
    writeln!(out, "\tlinks\t{}", attrs.links)?;
    writeln!(out, "\tpflags\t{:x}", attrs.flags)?;
    if attrs.flags & format::znode::FLAG_PROJID != 0 {
        writeln!(out, "\tprojid\t{}", attrs.projid)?;
    }
    if let Some(xattr) = attrs.xattr_dir {
        writeln!(out, "\txattr\t{xattr}")?;
    }
    if attrs.rdev != (0, 0) {
        let (major, minor) = attrs.rdev;
        writeln!(out, "\trdev\t0x{:016x}", u64::from(major) << 20 | u64::from(minor))?;
    }
    match node.packed_xattrs() {
        Ok((list, _)) if list.is_empty() => Ok(()),
        Ok((list, bytes)) => print_xattrs(out, &list, bytes),
        Err(error) => writeln!(out, "\t\t{error}"),
    }
}

fn print_xattrs(out: &mut dyn Write, list: &NvList, bytes: usize) -> io::Result<()> {
    writeln!(out, "\tSA xattrs: {bytes} bytes, {} entries\n", list.len())?;
    for (name, value) in list.iter_bytes() {
        let value = match value {
            NvValue::ByteArray(bytes) | NvValue::Uint8Array(bytes) => &bytes[..],
            _ => &[],
        };
        writeln!(out, "\t\t{} = {}", name.escape_ascii(), value.escape_ascii())?;
    }
    Ok(())
}

fn print_contents(out: &mut dyn Write, object: &Object) -> io::Result<()> {
    match object.dnode().obj_type {
        ObjType::PACKED_NVLIST => print_nvlist(out, object),
        kind if kind.is_zap() => match print_zap(out, object) {
            Ok(printed) => printed,
            Err(error) => writeln!(out, "\t\tunreadable: {error}"),
        },
        // A DSL object that carries a ZAP keeps its bonus type but has become a ZAP itself.
        _ => Ok(()),
    }
}

/// Longest packed list that is read: a pool's configuration is some kilobytes.
const NVLIST_MAX: u64 = 16 << 20;

fn print_nvlist(out: &mut dyn Write, object: &Object) -> io::Result<()> {
    let len = object.order().get_u64(object.bonus(), 0).unwrap_or(0);
    if len > NVLIST_MAX {
        return writeln!(out, "\t\ta packed list of {len} bytes is not read");
    }
    let mut bytes = vec![0; len as usize];
    match object.read_at(0, &mut bytes) {
        Ok(()) => match NvList::decode(&bytes) {
            Ok(list) => write!(out, "{}", Indented { list: &list, indent: 8 }),
            Err(error) => writeln!(out, "\t\t{error}"),
        },
        Err(error) => writeln!(out, "\t\tunreadable: {error}"),
    }
}

fn print_zap(out: &mut dyn Write, object: &Object) -> Result<io::Result<()>, cenote::inspect::DmuError> {
    let zap = Zap::open(object)?;
    let stats = zap.stats()?;
    let mut print = || -> io::Result<()> {
        print_zap_stats(out, &stats)?;
        for entry in zap.entries() {
            match entry {
                Ok(entry) => print_entry(out, object.dnode().obj_type, &entry)?,
                Err(error) => writeln!(out, "\t\tunreadable: {error}")?,
            }
        }
        Ok(())
    };
    Ok(print())
}

fn print_zap_stats(out: &mut dyn Write, stats: &ZapStats) -> io::Result<()> {
    let Some(header) = &stats.header else {
        return writeln!(out, "\tmicrozap: {} bytes, {} entries\n", stats.block_size, stats.entries);
    };
    writeln!(out, "\tFat ZAP stats:\n\t\tPointer table:")?;
    writeln!(out, "\t\t\t{} elements", 1_u64.checked_shl(header.table_shift as u32).unwrap_or(0))?;
    writeln!(out, "\t\t\tzt_blk: {}", header.table_block)?;
    writeln!(out, "\t\t\tzt_numblks: {}", header.table_blocks)?;
    writeln!(out, "\t\t\tzt_shift: {}", header.table_shift)?;
    writeln!(out, "\t\t\tzt_blks_copied: {}", header.blocks_copied)?;
    writeln!(out, "\t\t\tzt_nextblk: {}", header.next_block)?;
    writeln!(out, "\t\tZAP entries: {}", stats.entries)?;
    writeln!(out, "\t\tLeaf blocks: {}", stats.leaves)?;
    writeln!(out, "\t\tTotal blocks: {}", stats.blocks)?;
    writeln!(out, "\t\tzap_block_type: 0x8000000000000001\n\t\tzap_magic: 0x2f52ab2ab")?;
    writeln!(out, "\t\tzap_salt: {:#x}", stats.salt)?;
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
    writeln!(out)
}

/// Rows from the first to the last that is not zero, each with a bar of at most forty stars.
fn print_histogram(out: &mut dyn Write, rows: &[u64]) -> io::Result<()> {
    const WIDTH: u64 = 40;
    let Some(first) = rows.iter().position(|n| *n > 0) else { return Ok(()) };
    let last = rows.iter().rposition(|n| *n > 0).unwrap_or(first);
    let max = rows.iter().copied().max().unwrap_or(0).max(WIDTH);
    for (i, n) in rows.iter().enumerate().take(last + 1).skip(first) {
        let stars = ((n * WIDTH).div_ceil(max)) as usize;
        writeln!(out, "\t\t\t{i:3}: {n:6} {}", "*".repeat(stars))?;
    }
    Ok(())
}

fn print_entry(out: &mut dyn Write, kind: ObjType, entry: &ZapEntry) -> io::Result<()> {
    let name = entry.name().escape_ascii().to_string();
    if kind == ObjType::DIRECTORY {
        let value = entry.u64s().first().copied().unwrap_or(0);
        let (object, dirent) = (value & (ObjectId::LIMIT - 1), value >> 60);
        return writeln!(out, "\t\t{name} = {object} (type: {})", dirent_type(dirent));
    }
    if kind == ObjType::SA_ATTR_REGISTRATION {
        let v = entry.u64().unwrap_or(0);
        return writeln!(out, "\t\t{name} = {v:>9x} : [{}:{}:{}]", v >> 24 & 0xffff, v >> 16 & 0xff, v & 0xffff);
    }
    if kind == ObjType::SA_ATTR_LAYOUTS {
        let items: Vec<String> = entry.u64s().iter().map(|n| format!(" {n} ")).collect();
        return writeln!(out, "\t\t{name} = [{}]", items.concat());
    }
    match (entry.int_size, entry.string()) {
        (1, _) if kind == ObjType::OBJECT_DIRECTORY => {
            let hex: String = entry.value.iter().map(|b| format!("{b:02x}")).collect();
            writeln!(out, "\t\t{name} = {hex}")
        }
        (1, Some(text)) => writeln!(out, "\t\t{name} = {}", text.escape_ascii()),
        _ => {
            let numbers: Vec<String> = entry.u64s().iter().map(|n| format!("{n} ")).collect();
            writeln!(out, "\t\t{name} = {}", numbers.concat())
        }
    }
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

fn print_blocks(out: &mut dyn Write, object: &Object, detail: usize, parsable: bool) -> io::Result<()> {
    let dnode = object.dnode();
    writeln!(out, "Indirect blocks:")?;
    let mut failed = None;
    let mut visit = |level: i64, blkid: u64, bp: &BlockPtr| {
        let span = dnode.data_block_size().saturating_mul(
            1_u64.checked_shl(dnode.epbs() * u32::try_from(level.max(0)).unwrap_or(0)).unwrap_or(u64::MAX),
        );
        let indent = " ".repeat(usize::from(dnode.nlevels).saturating_sub(usize::try_from(level).unwrap_or(0) + 1));
        let head = format!("{:>16x} {indent}L{level} ", blkid.saturating_mul(span));
        let line =
            if detail > 5 { writeln!(out, "{head}{}", Long(bp)) } else { writeln!(out, "{head}{}", Short(bp)) };
        failed = failed.take().or(line.err());
    };
    let unreadable = cenote::inspect::each_block(object, &mut visit);
    if let Some(error) = failed {
        return Err(error);
    }
    for error in unreadable {
        writeln!(out, "\t\tunreadable: {error}")?;
    }
    writeln!(out)?;
    match segments(object) {
        Ok(list) => {
            for Segment { start, end } in list {
                let size = if parsable { (end - start).to_string() } else { nicenum(end - start) };
                writeln!(out, "\t\tsegment [{start:016x}, {end:016x}) size {size:>5}")?;
            }
            Ok(())
        }
        Err(error) => writeln!(out, "\t\tunreadable: {error}"),
    }
}
