//! Bonus buffers of the pool's own objects, as `zdb -dddd` prints them.

use super::bp::Long;
use super::contents;
use super::view::View;
use crate::time::ctime;
use admin::debug::Object;
use format::dsl::{BpobjPhys, DatasetPhys, DirPhys};
use format::ids::SwapClass;
use format::{DecodeError, ObjType, ObjectId};
use std::io::{self, Write};

/// Type of the bonus of the history object.
const HISTORY_OFFSETS: u8 = 30;

/// Prints the bonus of `object`, if it is one of the pool's own.
pub(super) fn print(out: &mut dyn Write, object: &Object, view: &View<'_>) -> io::Result<()> {
    let (bonus, order) = (object.bonus(), object.order());
    match object.dnode().bonus_type {
        ObjType::DSL_DIR => {
            print_or(out, DirPhys::decode(bonus, order), |out, dir| print_dir(out, dir, view))
        }
        ObjType::DSL_DATASET => {
            print_or(out, DatasetPhys::decode(bonus, order), |out, dataset| print_dataset(out, dataset, view))
        }
        ObjType::BPOBJ_HDR => {
            print_or(out, BpobjPhys::decode(bonus, order), |out, bpobj| print_bpobj(out, bpobj, view))
        }
        // Five numbers (docs/on-disk/22-mos-dsl.md, section 10).
        kind if kind.id() == HISTORY_OFFSETS => {
            let names = ["pool_create_len", "phys_max_off", "bof", "eof", "records_lost"];
            for (name, value) in names.iter().zip(order.all_words(bonus)) {
                writeln!(out, "\t\t{name} = {value}")?;
            }
            Ok(())
        }
        kind if kind.id() & 0x80 != 0 && kind.swap_class() == SwapClass::U64 && view.detail > 5 => {
            contents::print_numbers_in(out, object)
        }
        _ => Ok(()),
    }
}

fn print_or<T>(
    out: &mut dyn Write,
    decoded: Result<T, DecodeError>,
    print: impl FnOnce(&mut dyn Write, &T) -> io::Result<()>,
) -> io::Result<()> {
    match decoded {
        Ok(decoded) => print(out, &decoded),
        Err(error) => writeln!(out, "\t\t{error}"),
    }
}

fn id(object: Option<ObjectId>) -> u64 {
    object.map_or(0, |id| id.0)
}

fn print_bpobj(out: &mut dyn Write, bpobj: &BpobjPhys, view: &View<'_>) -> io::Result<()> {
    writeln!(out, "\t\tnum_blkptrs = {}", bpobj.num_blkptrs)?;
    writeln!(out, "\t\tbytes = {}", view.number(bpobj.bytes))?;
    writeln!(out, "\t\tcomp = {}", view.number(bpobj.comp))?;
    writeln!(out, "\t\tuncomp = {}", view.number(bpobj.uncomp))?;
    writeln!(out, "\t\tsubobjs = {}", id(bpobj.subobjs))?;
    writeln!(out, "\t\tnum_subobjs = {}", bpobj.num_subobjs)?;
    writeln!(out, "\t\tnum_freed = {}", bpobj.num_freed)
}

fn print_dir(out: &mut dyn Write, dir: &DirPhys, view: &View<'_>) -> io::Result<()> {
    let number = |n: u64| view.number(n);
    writeln!(out, "\t\tcreation_time = {}", ctime(dir.creation_time))?;
    writeln!(out, "\t\thead_dataset_obj = {}", id(dir.head))?;
    writeln!(out, "\t\tparent_dir_obj = {}", id(dir.parent))?;
    writeln!(out, "\t\torigin_obj = {}", id(dir.origin))?;
    writeln!(out, "\t\tchild_dir_zapobj = {}", id(dir.children))?;
    writeln!(out, "\t\tused_bytes = {}", number(dir.used))?;
    writeln!(out, "\t\tcompressed_bytes = {}", number(dir.compressed))?;
    writeln!(out, "\t\tuncompressed_bytes = {}", number(dir.uncompressed))?;
    writeln!(out, "\t\tquota = {}", number(dir.quota))?;
    writeln!(out, "\t\treserved = {}", number(dir.reserved))?;
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
        writeln!(out, "\t\tused_breakdown[{name}] = {}", number(value))?;
    }
    writeln!(out, "\t\tclones = {}", id(dir.clones))
}

fn print_dataset(out: &mut dyn Write, ds: &DatasetPhys, view: &View<'_>) -> io::Result<()> {
    let number = |n: u64| view.number(n);
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
    writeln!(out, "\t\tused_bytes = {}", number(ds.referenced))?;
    writeln!(out, "\t\tcompressed_bytes = {}", number(ds.compressed))?;
    writeln!(out, "\t\tuncompressed_bytes = {}", number(ds.uncompressed))?;
    writeln!(out, "\t\tunique = {}", number(ds.unique))?;
    writeln!(out, "\t\tfsid_guid = {}", ds.fsid_guid)?;
    writeln!(out, "\t\tguid = {}", ds.guid)?;
    writeln!(out, "\t\tflags = {:x}", ds.flags)?;
    writeln!(out, "\t\tnext_clones_obj = {}", id(ds.next_clones))?;
    writeln!(out, "\t\tprops_obj = {}", id(ds.props))?;
    writeln!(out, "\t\tbp = {}", Long(&ds.bp))
}
