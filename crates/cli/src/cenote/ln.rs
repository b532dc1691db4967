//! `cenote ln`: links.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use ::cenote::Error;

use super::mv::{inside, is_dir, last_part, not_a_folder};
use super::open::Source;
use super::writing::{WritablePath, Writing, why};
use super::{Failure, Outcome, term};

/// Make links in a pool
///
/// Without -s, TARGET is POOL/DATASET:/PATH of a file in the same file system as LINK. With -s it is any text.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    source: Source,
    /// Symbolic links
    #[arg(short, long)]
    symbolic: bool,
    /// What has the name of the link is removed first
    #[arg(short, long)]
    force: bool,
    /// TARGET, several of them; then LINK, or a directory for the links, as POOL/DATASET:/PATH
    #[arg(required = true, num_args = 2.., value_name = "TARGET... LINK")]
    paths: Vec<OsString>,
}

pub(super) fn run(args: &Args) -> Outcome {
    let Some((link, targets)) = args.paths.split_last() else { return Err(Failure::Silent) };
    let link = link.clone();
    Writing::new(&args.source)?.each(targets, |pools, target| {
        let link = pools.writable_path(&link)?;
        let is_folder = is_dir(&link);
        if targets.len() > 1 && !is_folder {
            return Err(not_a_folder(&link));
        }
        make(args, pools, target, &link, is_folder)
    })
}

fn make(
    args: &Args,
    pools: &Writing<'_>,
    target: &OsStr,
    link: &WritablePath,
    is_folder: bool,
) -> Result<(), Failure> {
    let kind = if args.symbolic { "symbolic" } else { "hard" };
    let existing = if args.symbolic { None } else { Some(pools.writable_path(target)?) };
    let own = existing.as_ref().map_or(target.as_bytes(), |place| &place.path);
    let (path, shown) = match is_folder {
        true => {
            let name = last_part(own);
            (inside(&link.path, name), format!("{}/{}", link.shown.trim_end_matches('/'), term::escape(name)))
        }
        false => (link.path.clone(), link.shown.clone()),
    };
    let failure =
        |error: Error| Failure::Message(format!("failed to create {kind} link '{shown}': {}", why(&error)));
    if let Some(place) = &existing
        && place.fs.name() != link.fs.name()
    {
        let text = format!("failed to create hard link '{shown}': Invalid cross-device link");
        return Err(Failure::Message(text));
    }
    // The old file is removed only after the target of a hard link was found.
    let id =
        existing.as_ref().map(|place| place.fs.resolve_link(&place.path)).transpose().map_err(failure)?;
    if args.force {
        let there = link.fs.find(&path, false).map_err(failure)?.id;
        if there.is_some() && there == id {
            return Ok(());
        }
        if there.is_some() {
            link.fs.remove(&path).map_err(failure)?;
        }
    }
    match existing {
        Some(place) => link.fs.hard_link(&place.path, &path).map_err(failure),
        None => link.fs.symlink(target.as_bytes(), &path).map(|_| ()).map_err(failure),
    }
}
