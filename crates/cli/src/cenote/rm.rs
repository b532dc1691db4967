//! `cenote rm`: removes files and trees.

use std::ffi::{OsStr, OsString};

use super::open::Source;
use super::writing::{TreeTeller, Writing, cannot};
use super::{Failure, Outcome};
use ::cenote::Error;
use ::cenote::files::{FileKind, ZplError};

/// Remove files and directories of a pool
///
/// Nothing is asked. Symbolic links are removed, never followed. Space that snapshots refer to is not freed.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    source: Source,
    /// Directories with all that is in them
    #[arg(short = 'r', short_alias = 'R', long)]
    recursive: bool,
    /// No error for what does not exist
    #[arg(short, long)]
    force: bool,
    /// Empty directories, too
    #[arg(long)]
    dir: bool,
    /// POOL/DATASET:/PATH
    #[arg(required_unless_present = "force", value_name = "TARGET")]
    targets: Vec<OsString>,
}

pub(super) fn run(args: &Args) -> Outcome {
    Writing::new(&args.source)?.each(&args.targets, |pools, target| remove(args, pools, target))
}

fn remove(args: &Args, pools: &Writing<'_>, target: &OsStr) -> Result<(), Failure> {
    let place = pools.writable_path(target)?;
    let path = match place.path.strip_suffix(b"/") {
        Some(path) if !path.is_empty() => path,
        _ => &place.path,
    };
    let shown = &place.shown;
    let last = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    if matches!(last, b"." | b"..") {
        let why = "refusing to remove '.' or '..' directory: skipping";
        return Err(Failure::Message(format!("{why} '{shown}'")));
    }
    let failure = |error: Error| cannot(format_args!("remove '{shown}'"), &error);
    let is_missing = |error: &Error| {
        matches!(error, Error::NoSuchPath { .. } | Error::Path { source: ZplError::WrongKind { .. }, .. })
    };
    let attrs = match place.fs.attrs(path) {
        Err(error) if args.force && is_missing(&error) => return Ok(()),
        attrs => attrs.map_err(failure)?,
    };
    if FileKind::from_mode(attrs.mode) != Some(FileKind::Directory) {
        if path.len() < place.path.len() {
            if args.force {
                return Ok(());
            }
            return Err(Failure::Message(format!("cannot remove '{shown}': Not a directory")));
        }
        return place.fs.remove(path).map_err(failure);
    }
    if path.iter().all(|byte| *byte == b'/') {
        let why = "it is the root of the file system: `zfs destroy` removes that";
        return Err(Failure::Message(format!("cannot remove '{shown}': {why}")));
    }
    if !args.recursive {
        if args.dir {
            return place.fs.remove_dir(path).map_err(failure);
        }
        return Err(Failure::Message(format!("cannot remove '{shown}': Is a directory")));
    }
    let mut teller = TreeTeller::new("remove", &place.fs, pools.stop());
    place.fs.remove_all(path, &mut teller).map_err(failure)?;
    if teller.failures > 0 { Err(Failure::Silent) } else { Ok(()) }
}
