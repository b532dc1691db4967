//! One object as `zdb -d` prints it: its line in the table, then, with more `-d`, its contents.

use super::bp::{Long, Short};
use super::view::View;
use super::{bonus, chain, contents, znode};
use admin::debug::{Object, Segment, ZstdHeader, each_block, segments, zstd_header};
use format::dnode::{
    FLAG_SPILL, FLAG_USED_BYTES, FLAG_USEROBJUSED_ACCOUNTED, FLAG_USERUSED_ACCOUNTED, SLOT_SIZE,
    SLOTS_PER_BLOCK,
};
use format::{BlockPtr, BpKind, ObjType, ObjectId};
use std::io::{self, Write};

/// Prints one object.
pub(super) fn print(out: &mut dyn Write, object: &Object, view: &View<'_>) -> io::Result<()> {
    view.print_header(out)?;
    let dnode = object.dnode();
    writeln!(
        out,
        "{:>10}  {:>3}  {:>5}  {:>5}  {:>5}  {:>6}  {:>5}  {:>6.2}  {}",
        object.id().0.cast_signed(),
        dnode.nlevels,
        view.number(dnode.indirect_size()),
        view.number(dnode.data_block_size()),
        // Rounded to sectors: the space in a RAID-Z is deflated, so it may be a fraction of a sector.
        view.number((dnode.used_bytes().saturating_add(256) >> 9) << 9),
        view.number((dnode.slots() * SLOT_SIZE) as u64),
        view.number(dnode.maxblkid.0.saturating_add(1).saturating_mul(dnode.data_block_size())),
        percent_full(object),
        type_text(object, view),
    )?;
    if view.detail < 4 {
        return Ok(());
    }
    if dnode.bonus_type != ObjType::NONE {
        let len = view.number(dnode.bonuslen.into());
        writeln!(out, "{len:>50}   bonus  {}", type_name(dnode.bonus_type))?;
    }
    print_flags(out, object)?;
    let is_locked = object.objset().is_locked();
    if is_locked && dnode.bonus_type.is_encrypted() {
        writeln!(out, "\t\t(bonus encrypted)")?;
    } else if matches!(dnode.bonus_type, ObjType::SA | ObjType::ZNODE) {
        znode::print(out, object, view)?;
    } else {
        bonus::print(out, object, view)?;
    }
    if is_locked && dnode.obj_type.is_encrypted() {
        writeln!(out, "\t\t(object encrypted)")?;
    } else {
        contents::print(out, object, view)?;
    }
    if view.detail > 4 {
        print_blocks(out, object, view)?;
        print_segments(out, object, view)?;
    }
    Ok(())
}

/// The type and, with six `d`, the checksum and compression that the object set uses for an object that names
/// none itself.
fn type_text(object: &Object, view: &View<'_>) -> String {
    let dnode = object.dnode();
    let mut text = type_name(dnode.obj_type);
    let all = view.detail > 5;
    if dnode.checksum != 0 {
        let name = format::ChecksumId::from_id(dnode.checksum).map_or("unknown", |id| id.name());
        text.push_str(&format!(" (K={name})"));
    } else if all {
        text.push_str(" (K=inherit)");
    }
    if dnode.compress != 0 {
        let name = format::CompressionId::from_id(dnode.compress).map_or("unknown", |id| id.name());
        text.push_str(&format!(" (Z={name})"));
    } else if all {
        text.push_str(&format!(" (Z=inherit={})", view.compression));
    }
    text
}

/// Name of a type. Types that describe themselves are named by the way in which their contents are
/// byte-swapped.
pub(super) fn type_name(kind: ObjType) -> String {
    if kind.id() & 0x80 == 0 {
        return kind.to_string();
    }
    kind.swap_class().to_string()
}

/// Share of allocated blocks (in the object of dnodes: of allocated dnodes), in percent.
fn percent_full(object: &Object) -> f64 {
    let dnode = object.dnode();
    let fill: u64 = dnode.blkptrs.iter().map(BlockPtr::fill).fold(0, u64::saturating_add);
    let blocks = dnode.maxblkid.0.saturating_add(1);
    let all = if object.id() == ObjectId(0) { blocks.saturating_mul(SLOTS_PER_BLOCK as u64) } else { blocks };
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

fn print_blocks(out: &mut dyn Write, object: &Object, view: &View<'_>) -> io::Result<()> {
    let dnode = object.dnode();
    let all = view.detail > 5;
    if let Some(bp) = &dnode.spill {
        writeln!(out, "\nSpill block: {}", Short { bp, all, freed: false })?;
    }
    writeln!(out, "Indirect blocks:")?;
    let mut written = Ok(());
    let unreadable = each_block(object, &mut |level, blkid, bp| {
        if written.is_err() {
            return;
        }
        let shift = dnode.epbs().saturating_mul(u32::from(level));
        let span = dnode.data_block_size().saturating_mul(1_u64.checked_shl(shift).unwrap_or(u64::MAX));
        let offset = blkid.saturating_mul(span);
        let mut marks = String::new();
        for l in (0..dnode.nlevels).rev() {
            match l == level {
                true => marks.push_str(&format!("L{l}")),
                false => marks.push(' '),
            }
        }
        let zstd = zstd(object, bp, view);
        written = match view.options.count('b') > 5 {
            true => writeln!(out, "{offset:>16x} {marks} {}{zstd}", Long(bp)),
            false => writeln!(out, "{offset:>16x} {marks} {}{zstd}", Short { bp, all, freed: false }),
        };
    });
    written?;
    for error in unreadable {
        eprintln!("zdb: {}", chain(&error));
    }
    writeln!(out)
}

/// With `-Z`: the header before the zstd frame of a block; empty for other blocks.
fn zstd(object: &Object, bp: &BlockPtr, view: &View<'_>) -> String {
    if !view.options.has('Z') {
        return String::new();
    }
    match zstd_header(object, bp) {
        Ok(Some(ZstdHeader { size, version, level })) => {
            let place = if bp.kind() == BpKind::Embedded { "EMBEDDED" } else { "NORMAL" };
            format!(" ZSTD:size={size}:version={version}:level={level}:{place}")
        }
        Ok(None) => String::new(),
        Err(error) => {
            eprintln!("zdb: {}", chain(&error));
            String::new()
        }
    }
}

fn print_segments(out: &mut dyn Write, object: &Object, view: &View<'_>) -> io::Result<()> {
    match segments(object) {
        Ok(list) => {
            for Segment { start, end } in list {
                let size = view.number(end - start);
                writeln!(out, "\t\tsegment [{start:016x}, {end:016x}) size {size:>5}")?;
            }
        }
        Err(error) => eprintln!("zdb: {}", chain(&error)),
    }
    Ok(())
}
