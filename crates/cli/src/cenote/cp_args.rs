//! The options of `cenote cp`, whichever way it copies.

use super::open::Source;
use std::ffi::OsString;

/// Copy files, directories and volumes out of a pool, or into one
///
/// With a DESTINATION of the form POOL/DATASET:/PATH, sources are files of this machine or of a pool (of
/// this one, too); with POOL/VOLUME, one image of this machine.
///
/// Modes, times to the nanosecond, extended attributes, POSIX ACLs, holes and hard links among the
/// copied files are kept; owners too where the system permits. Symbolic links are copied, never
/// followed; nothing is written outside DESTINATION. Contents of `/` go right into an existing
/// DESTINATION. A volume becomes a raw image with holes. A file that cannot be read whole is left
/// out and told, see --partial. Onto a device, /dev/null among them, the bytes of one file or volume
/// are written as `cenote cat` does; not onto a disk that is in use.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    pub(super) source: Source,
    #[command(flatten)]
    pub(super) how: How,
    /// Into a pool: files that are there already stay as they are
    #[arg(short, long)]
    pub(super) no_clobber: bool,
    /// Into a pool: DESTINATION is a name, even if a directory has it
    #[arg(short = 'T', long)]
    pub(super) no_target_directory: bool,
    /// Into a pool: threads that write (one for each processor)
    #[arg(short = 'j', long, value_name = "THREADS", default_value = "0", hide_default_value = true)]
    pub(super) threads: usize,
    /// POOL/DATASET[@SNAPSHOT]:/PATH or POOL/VOLUME[@SNAPSHOT], then where to copy to
    #[arg(required = true, num_args = 2.., value_name = "SOURCE... DESTINATION")]
    pub(super) paths: Vec<OsString>,
}

/// What is copied, and how.
#[derive(clap::Args)]
pub(super) struct How {
    /// Copy directories with all that is in them
    #[arg(short = 'r', short_alias = 'R', long)]
    pub(super) recursive: bool,
    /// The same as -r: attributes are kept in any case
    #[arg(short = 'a', long)]
    pub(super) archive: bool,
    /// With -r: also the file systems below, as directories of their names
    #[arg(long)]
    pub(super) children: bool,
    /// Leave owners alone
    #[arg(long)]
    pub(super) no_owner: bool,
    /// Keep files that cannot be read whole, with zeros in place of what is lost (still told)
    #[arg(long)]
    pub(super) partial: bool,
    /// Name each file as it is copied
    #[arg(short, long)]
    pub(super) verbose: bool,
}
