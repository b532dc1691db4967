//! The options of `cenote tar`, whichever way it goes.

use super::open::Source;
use std::ffi::OsString;

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
    pub(super) create: bool,
    #[command(flatten)]
    pub(super) how: How,
    /// With -x: owners are those of this process
    #[arg(long)]
    pub(super) no_owner: bool,
    /// With -x: files that are there already stay as they are
    #[arg(short, long)]
    pub(super) keep_old_files: bool,
    /// With -x: threads that write (one for each processor)
    #[arg(short = 'j', long, value_name = "THREADS", default_value = "0", hide_default_value = true)]
    pub(super) threads: usize,
    /// POOL/DATASET[@SNAPSHOT]:/PATH
    #[arg(required = true, value_name = "TARGET")]
    pub(super) targets: Vec<OsString>,
}

/// How an archive is written.
#[derive(clap::Args)]
pub(super) struct How {
    /// FILE instead of standard output or input; `-` is those
    #[arg(short, long, value_name = "FILE")]
    pub(super) file: Option<OsString>,
    /// Write holes as zeros, for programs that do not know sparse files
    #[arg(long)]
    pub(super) no_sparse: bool,
    /// Also the file systems below, as directories of their names
    #[arg(long)]
    pub(super) children: bool,
    /// Keep files that cannot be read whole, with zeros in place of what is lost (still told)
    #[arg(long)]
    pub(super) partial: bool,
    /// Name each file as it is written
    #[arg(short, long)]
    pub(super) verbose: bool,
}
