//! `cenote stat`: shows all attributes of a file.

use std::ffi::OsString;
use std::io::{BufWriter, Write};

use ::cenote::copy::{Kind, Stamp, ace_text};
use ::cenote::{Dataset, Node, Volume};

use super::open::{Found, FoundFile, Session, Source};
use super::term::{date, escape, mode};
use super::{Outcome, code, term};
use crate::console::RawOut;

/// Show all attributes of files and volumes
///
/// Also what `stat` of the system does not know: project, flags, extended attributes, the ACL as stored.
/// Times are in UTC. Symbolic links are not followed.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    source: Source,
    /// Follow a symbolic link
    #[arg(short = 'L', long)]
    dereference: bool,
    /// POOL/DATASET[@SNAPSHOT]:/PATH or POOL/VOLUME[@SNAPSHOT]
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<OsString>,
}

/// Names of the inode flags of Linux (`FS_…_FL`) that a file can have.
const FLAGS: [(u32, &str); 4] =
    [(0x10, "immutable"), (0x20, "append-only"), (0x40, "no-dump"), (0x2000_0000, "project-inherit")];

pub(super) fn run(args: &Args) -> Outcome {
    let session = Session::new(&args.source);
    let mut out = BufWriter::new(RawOut::new());
    let mut failed = false;
    for target in &args.targets {
        match session.find(target, args.dereference) {
            Ok(Found::File(file)) => failed |= show(&mut out, &file)?,
            Ok(Found::Volume(dataset, volume)) => show_volume(&mut out, &dataset, &volume)?,
            Err(failure) => {
                out.flush()?;
                failure.tell()?;
                failed = true;
            }
        }
    }
    out.flush()?;
    Ok(code(failed))
}

fn time(stamp: Stamp) -> String {
    let (date, nanos) = (date(stamp.secs), stamp.nanos);
    format!("{date}.{nanos:09} +0000")
}

fn show_volume(out: &mut impl Write, dataset: &Dataset, volume: &Volume) -> std::io::Result<()> {
    writeln!(out, "  Name: {}", escape(dataset.name().as_bytes()))?;
    writeln!(out, "  Kind: volume")?;
    writeln!(out, "  Size: {}  Block: {}", volume.size(), volume.block_size())?;
    writeln!(out, " Space: {} bytes", volume.object().dnode().used_bytes())
}

/// Prints one file. Returns whether a part could not be read.
fn show(out: &mut impl Write, file: &FoundFile) -> std::io::Result<bool> {
    let (node, attrs) = (&file.node, file.node.attrs());
    let mut failed = false;
    write!(out, "  File: {}", escape(&file.shown))?;
    if node.kind() == Kind::Symlink {
        match node.readlink() {
            Ok(target) => write!(out, " -> {}", escape(&target))?,
            Err(error) => failed = complain(out, file, &error)?,
        }
    }
    writeln!(out)?;
    writeln!(out, "  Kind: {}", node.kind())?;
    writeln!(out, "  Size: {}  Blocks: {}  Block: {}", attrs.size, node.blocks_512(), node.block_size())?;
    writeln!(out, " Inode: {}  Generation: {}  Links: {}", node.id(), attrs.generation, attrs.links)?;
    if matches!(node.kind(), Kind::CharDevice | Kind::BlockDevice) {
        writeln!(out, "Device: {}, {}", attrs.rdev.0, attrs.rdev.1)?;
    }
    writeln!(
        out,
        "  Mode: {:04o} {}  Uid: {}  Gid: {}  Project: {}",
        attrs.mode & 0o7777,
        mode(attrs.mode),
        attrs.posix_uid(),
        attrs.posix_gid(),
        attrs.projid
    )?;
    for (name, stamp) in
        [("Access", attrs.atime), ("Modify", attrs.mtime), ("Change", attrs.ctime), (" Birth", attrs.crtime)]
    {
        writeln!(out, "{name}: {}", time(stamp))?;
    }
    let flags = attrs.linux_flags();
    let names: Vec<&str> = FLAGS.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, name)| *name).collect();
    if !names.is_empty() {
        writeln!(out, " Flags: {}", names.join(", "))?;
    }
    match node.xattr_values() {
        Ok(all) => {
            for (name, value) in all {
                writeln!(out, " Xattr: {} ({} bytes) \"{}\"", escape(&name), value.len(), shortened(&value))?;
            }
        }
        Err(error) => failed |= complain(out, file, &error)?,
    }
    failed |= show_acl(out, file, node)?;
    Ok(failed)
}

fn complain(
    out: &mut impl Write,
    file: &FoundFile,
    error: &(dyn std::error::Error + 'static),
) -> std::io::Result<bool> {
    out.flush()?;
    term::complain(format_args!("{}: {}", escape(&file.shown), term::chain(error)));
    Ok(true)
}

/// The beginning of a value, as text.
fn shortened(value: &[u8]) -> String {
    const SHOWN: usize = 64;
    let more = if value.len() > SHOWN { "…" } else { "" };
    format!("{}{more}", escape(value.get(..SHOWN).unwrap_or(value)))
}

/// Prints the ACL of a file, unless it only repeats the mode.
fn show_acl(out: &mut impl Write, file: &FoundFile, node: &Node) -> std::io::Result<bool> {
    match node.acl() {
        Ok(acl) if acl.is_trivial => Ok(false),
        Ok(acl) => {
            for ace in &acl.aces {
                writeln!(out, "   ACL: {}", ace_text(std::slice::from_ref(ace)))?;
            }
            Ok(false)
        }
        Err(error) => complain(out, file, &error),
    }
}
