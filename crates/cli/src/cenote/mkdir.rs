//! `cenote mkdir`: makes directories.

use std::ffi::{OsStr, OsString};

use ::cenote::files::NewAttrs;

use super::open::Source;
use super::writing::{Writing, cannot};
use super::{Failure, Outcome, mode_text};
use crate::console::umask;

/// Make directories in a pool
///
/// They belong to the user who runs this.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    source: Source,
    /// Those above that are missing, too; no error if it is there
    #[arg(short, long)]
    parents: bool,
    /// Permissions, octal or symbolic as in chmod, in place of rwxrwxrwx less the umask
    #[arg(short, long, value_name = "MODE")]
    mode: Option<String>,
    /// POOL/DATASET:/PATH
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<OsString>,
}

pub(super) fn run(args: &Args) -> Outcome {
    let usual = 0o777 & !umask();
    let mode = match &args.mode {
        None => usual,
        Some(text) => mode_text::parse(text)
            .map(|change| change.apply(0o777, true, umask()))
            .ok_or_else(|| Failure::Message(format!("invalid mode '{text}'")))?,
    };
    Writing::new(&args.source)?.each(&args.targets, |pools, target| make(args, pools, target, usual, mode))
}

fn make(args: &Args, pools: &Writing<'_>, target: &OsStr, usual: u32, mode: u32) -> Result<(), Failure> {
    let place = pools.writable_path(target)?;
    let failure = |error| cannot(format_args!("create directory '{}'", place.shown), &error);
    let path = place.path.strip_suffix(b"/").unwrap_or(&place.path);
    if !args.parents {
        place.fs.create_dir(path, mode).map_err(failure)?;
        return Ok(());
    }
    let is_there = place.fs.resolve(path).is_ok();
    // The user that made the directories must be able to use them.
    place.fs.create_dir_all(path, usual | 0o300).map_err(failure)?;
    if !is_there {
        let new = NewAttrs { mode: Some(mode), ..NewAttrs::default() };
        place.fs.set_attrs(path, &new).map_err(failure)?;
    }
    Ok(())
}
