//! Attributes of files, as `zdb -dddd` prints them.

use super::chain;
use super::text::{Octal, put};
use super::view::View;
use crate::time::ctime_signed;
use admin::debug::{FileKind, Object, Paths};
use format::ObjType;
use format::nvlist::{NvList, NvValue};
use format::znode::FLAG_PROJID;
use std::io::{self, Write};

/// Prints the attributes of the file in `object`.
pub(super) fn print(out: &mut dyn Write, object: &Object, view: &View<'_>) -> io::Result<()> {
    let Some(paths) = &view.paths else { return Ok(()) };
    let mut paths = paths.borrow_mut();
    let node = match paths.filesystem().node(object.id()) {
        Ok(node) => node,
        Err(error) => return writeln!(out, "\t\t{error}"),
    };
    let attrs = node.attrs();
    // Finding the path requires reading directories, which is too slow for a whole pool.
    if view.detail > 4 {
        print_path(out, object, &mut paths, view)?;
    }
    if let Ok(target) = node.readlink() {
        put(out, format_args!("\ttarget\t"), &target, "\n")?;
    }
    writeln!(out, "\tuid     {}", attrs.uid)?;
    writeln!(out, "\tgid     {}", attrs.gid)?;
    for (name, time) in
        [("atime", attrs.atime), ("mtime", attrs.mtime), ("ctime", attrs.ctime), ("crtime", attrs.crtime)]
    {
        writeln!(out, "\t{name}\t{}", ctime_signed(time.secs))?;
    }
    writeln!(out, "\tgen\t{}", attrs.generation)?;
    writeln!(out, "\tmode\t{:o}", attrs.mode)?;
    writeln!(out, "\tsize\t{}", attrs.size)?;
    writeln!(out, "\tparent\t{}", attrs.parent)?;
    writeln!(out, "\tlinks\t{}", attrs.links)?;
    writeln!(out, "\tpflags\t{:x}", attrs.flags)?;
    if attrs.flags & FLAG_PROJID != 0 {
        writeln!(out, "\tprojid\t{}", attrs.projid)?;
    }
    // In the fixed layout of old file systems every attribute is present, even without a value.
    let is_legacy = object.dnode().bonus_type == ObjType::ZNODE;
    if is_legacy || attrs.xattr_dir.is_some() {
        writeln!(out, "\txattr\t{}", attrs.xattr_dir.map_or(0, |id| id.0))?;
    }
    if is_legacy || matches!(node.kind(), FileKind::CharDevice | FileKind::BlockDevice) {
        let (major, minor) = attrs.rdev;
        writeln!(out, "\trdev\t0x{:016x}", u64::from(major) << 20 | u64::from(minor))?;
    }
    match node.packed_xattrs() {
        Ok((list, _)) if list.is_empty() => Ok(()),
        Ok((list, bytes)) => print_xattrs(out, &list, bytes),
        Err(error) => writeln!(out, "\t\t{error}"),
    }
}

fn print_path(out: &mut dyn Write, object: &Object, paths: &mut Paths, view: &View<'_>) -> io::Result<()> {
    match paths.of(object.id()) {
        Ok(Some(path)) => put(out, format_args!("\tpath\t"), &path, "\n"),
        Ok(None) if paths.filesystem().unlinked().is_ok_and(|all| all.contains(&object.id())) => {
            writeln!(out, "\tpath\ton delete queue")
        }
        Ok(None) => {
            view.leaked.set(view.leaked.get() + 1);
            writeln!(out, "\tpath\tpath not found, possibly leaked")
        }
        Err(error) => {
            eprintln!("zdb: {}", chain(&error));
            writeln!(out, "\tpath\t???<object#{}>", object.id())
        }
    }
}

fn print_xattrs(out: &mut dyn Write, list: &NvList, bytes: usize) -> io::Result<()> {
    writeln!(out, "\tSA xattrs: {bytes} bytes, {} entries\n", list.len())?;
    for (name, value) in list.iter_bytes() {
        let value = match value {
            NvValue::ByteArray(bytes) | NvValue::Uint8Array(bytes) => &bytes[..],
            _ => &[],
        };
        put(out, format_args!("\t\t"), name, " = ")?;
        writeln!(out, "{}", Octal(value))?;
    }
    Ok(())
}
