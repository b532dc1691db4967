//! `cenote tar`: writes files and trees as an archive, and extracts archives into pools
//! ([`super::tar_extract`]).

use std::ffi::OsString;
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;

use ::cenote::copy::{Archiver, Damaged, TarWriter, children};

use super::copying::Teller;
use super::open::{Session, Source};
use super::{Failure, Outcome, code, tar_extract, term};
use crate::console::{RawOut, Stream};

/// Write files and directories as a tar archive (pax format), or extract one into a pool
///
/// With -x, the first TARGET is the directory to fill, further ones are members of the archive: without
/// any, all. Formats: ustar, pax, GNU, and those before; zstd is recognized.
///
/// Names are those from the root of the file system. Times have nanoseconds; extended attributes are
/// SCHILY.xattr records, POSIX ACLs also SCHILY.acl ones (extract with `tar --xattrs --acls`); files
/// with holes are stored sparse (GNU 1.0). A file that cannot be read whole is left out and told,
/// see --partial; to know that before its header is written, files with more than 32 MiB of data
/// are read twice.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    pub(super) source: Source,
    /// Extract
    #[arg(short = 'x', long)]
    pub(super) extract: bool,
    /// Write an archive: so it is without -x
    #[arg(short = 'c', long, conflicts_with = "extract")]
    create: bool,
    /// FILE instead of standard output or input; `-` is those
    #[arg(short, long, value_name = "FILE")]
    pub(super) file: Option<OsString>,
    /// With -x: owners are those of this process
    #[arg(long)]
    pub(super) no_owner: bool,
    /// With -x: files that are there already stay as they are
    #[arg(short, long)]
    pub(super) keep_old_files: bool,
    /// With -x: threads that write (one for each processor)
    #[arg(short = 'j', long, value_name = "THREADS", default_value = "0", hide_default_value = true)]
    pub(super) threads: usize,
    /// Write holes as zeros, for programs that do not know sparse files
    #[arg(long)]
    no_sparse: bool,
    /// Also the file systems below, as directories of their names
    #[arg(long)]
    children: bool,
    /// Keep files that cannot be read whole, with zeros in place of what is lost (still told)
    #[arg(long)]
    partial: bool,
    /// Name each file as it is written
    #[arg(short, long)]
    pub(super) verbose: bool,
    /// POOL/DATASET[@SNAPSHOT]:/PATH
    #[arg(required = true, value_name = "TARGET")]
    pub(super) targets: Vec<OsString>,
}

pub(super) fn run(args: &Args) -> Outcome {
    if args.extract {
        return tar_extract::run(args);
    }
    let output = output(args)?;
    let session = Session::new(&args.source);
    // All targets are opened before the archive is begun, so that a wrong name does not leave half an
    // archive.
    let found: Vec<_> =
        args.targets.iter().map(|target| session.find_file(target, false)).collect::<Result<_, _>>()?;
    let damaged = if args.partial { Damaged::ZeroFill } else { Damaged::LeaveOut };
    let mut teller = Teller::new(args.verbose);
    let tar = TarWriter::new(BufWriter::with_capacity(256 << 10, output), !args.no_sparse);
    let mut archiver = Archiver::new(tar, damaged, &mut teller);
    for file in &found {
        let pool = file.dataset.pool().clone();
        let below = move |dataset: &str| children(&pool, dataset);
        let below: Option<&dyn Fn(&str) -> _> = if args.children { Some(&below) } else { None };
        archiver.add(&file.fs, &file.node, (file.dataset.name(), &file.shown), &file.path, below)?;
    }
    let summary = archiver.finish()?;
    teller.finish(&summary);
    Ok(code(summary.failures > 0))
}

#[allow(clippy::disallowed_types)] // The archive is a file of the user's, no device.
fn output(args: &Args) -> Result<Box<dyn Write>, Failure> {
    match &args.file {
        Some(file) if file != "-" => {
            let created = std::fs::File::create(file);
            let created = created.map_err(|error| {
                Failure::Message(format!("{}: {}", term::escape(file.as_bytes()), term::io_words(&error)))
            })?;
            Ok(Box::new(created))
        }
        _ if Stream::Out.is_terminal() => {
            Err(Failure::Message("an archive is not written to a terminal: use -f FILE or a pipe".to_owned()))
        }
        _ => Ok(Box::new(RawOut::new())),
    }
}
