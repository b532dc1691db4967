//! `cenote mv`: other names, other places.

use std::ffi::{OsStr, OsString};

use ::cenote::Error;
use ::cenote::copy::import::{Options, import};
use ::cenote::files::RenameHow;
use ::cenote::files::{FileKind, ZplError};

use super::copying::Teller;
use super::open::{Found, Source};
use super::writing::{Place, TreeTeller, Writing, cannot, why};
use super::{Failure, Outcome};

/// Move or rename files and directories of pools
///
/// Within a file system that is a rename. Between two of them, files are copied with all their attributes
/// and removed when all of them are on disk.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    source: Source,
    /// What has the new name stays
    #[arg(short, long)]
    no_clobber: bool,
    /// Nothing is asked in any case
    #[arg(short, long)]
    force: bool,
    /// The destination is a name, even if a directory has it
    #[arg(short = 'T', long)]
    no_target_directory: bool,
    /// POOL/DATASET:/PATH, several of them, the last being the destination
    #[arg(required = true, num_args = 2.., value_name = "SOURCE... DESTINATION")]
    paths: Vec<OsString>,
}

pub(super) fn run(args: &Args) -> Outcome {
    let Some((to, sources)) = args.paths.split_last() else { return Err(Failure::Silent) };
    let pools = Writing::new(&args.source)?;
    let to = pools.place(to)?;
    let is_folder = !args.no_target_directory && is_dir(&to);
    if sources.len() > 1 && !is_folder {
        return Err(Failure::Message(format!("target '{}': Not a directory", to.shown)));
    }
    let to = Destination { place: to, is_folder };
    // Dropped before the pools are closed.
    let to = std::cell::RefCell::new(Some(to));
    let last = sources.len();
    let mut done = 0;
    pools.each(sources, |pools, from| {
        done += 1;
        let moved = match &*to.borrow() {
            Some(to) => move_one(args, pools, from, to),
            None => Err(Failure::Silent),
        };
        if done == last {
            to.take();
        }
        moved
    })
}

struct Destination {
    place: Place,
    is_folder: bool,
}

pub(super) fn is_dir(place: &Place) -> bool {
    let attrs = place.fs.resolve(&place.path).and_then(|id| Ok(place.fs.fs().attrs(id)?));
    attrs.is_ok_and(|attrs| FileKind::from_mode(attrs.mode) == Some(FileKind::Directory))
}

/// `folder/name`.
pub(super) fn inside(folder: &[u8], name: &[u8]) -> Vec<u8> {
    let folder = folder.strip_suffix(b"/").unwrap_or(folder);
    [folder, b"/", name].concat()
}

/// The last component of a path; empty for the root.
pub(super) fn last_part(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').find(|part| !part.is_empty()).unwrap_or_default()
}

fn move_one(args: &Args, pools: &Writing<'_>, from: &OsStr, to: &Destination) -> Result<(), Failure> {
    let from_text = from;
    let from = pools.place(from)?;
    let source = from
        .fs
        .find(&from.path, false)
        .map_err(|error| cannot(format_args!("stat '{}'", from.shown), &error))?;
    let Some(id) = source.id else {
        return Err(Failure::Message(format!("cannot stat '{}': No such file or directory", from.shown)));
    };
    if source.name.is_empty() {
        let why = "it is the root of the file system";
        return Err(Failure::Message(format!("cannot move '{}': {why}", from.shown)));
    }
    let target = match to.is_folder {
        true => inside(&to.place.path, &source.name),
        false => to.place.path.strip_suffix(b"/").unwrap_or(&to.place.path).to_vec(),
    };
    let said = match to.is_folder {
        true => format!("{}/{}", to.place.shown.trim_end_matches('/'), super::term::escape(&source.name)),
        false => to.place.shown.clone(),
    };
    let failure = |error: Error| match &error {
        Error::Path { source: ZplError::IntoItself { .. }, .. } => {
            Failure::Message(format!("cannot move '{}' to a subdirectory of itself, '{said}'", from.shown))
        }
        _ => Failure::Message(format!("cannot move '{}' to '{said}': {}", from.shown, why(&error))),
    };
    if from.fs.name() == to.place.fs.name() {
        if from.fs.find(&target, false).map_err(failure)?.id == Some(id) && args.no_clobber {
            return Ok(());
        }
        let how = if args.no_clobber { RenameHow::NoReplace } else { RenameHow::Replace };
        return match from.fs.rename_with(&from.path, &target, how) {
            Err(Error::Path { source: ZplError::Exists { .. }, .. }) if args.no_clobber => Ok(()),
            other => other.map_err(failure),
        };
    }
    copy_and_remove(args, pools, from_text, &from, &to.place, &target)
}

fn copy_and_remove(
    args: &Args,
    pools: &Writing<'_>,
    from_text: &OsStr,
    from: &Place,
    to: &Place,
    target: &[u8],
) -> Result<(), Failure> {
    let Found::File(file) = pools.source(from_text)? else { return Err(Failure::Silent) };
    let at =
        to.fs.find(target, false).map_err(|error| cannot(format_args!("move '{}'", from.shown), &error))?;
    if args.no_clobber && at.id.is_some() {
        return Ok(());
    }
    let mut teller = Teller::new(false);
    let (told, summary) = import(&to.fs, &Options::default(), &mut teller, |importer| {
        let folder = importer.top(at.dir, b"")?;
        let name = Some(at.name.as_slice());
        importer.copy_pool(&file.fs, &file.node, (file.dataset.name(), &file.shown), (&folder, name), None);
        Ok::<_, ZplError>(())
    });
    teller.finish(&summary);
    told.map_err(|error| cannot(format_args!("move '{}'", from.shown), &error.into()))?;
    if summary.failures > 0 {
        return Err(Failure::Message(format!("'{}' was not removed", from.shown)));
    }
    // Nothing goes before its copy is safe.
    to.fs.sync()?;
    drop(file);
    let mut teller = TreeTeller::new("remove", &from.fs);
    let removed = from.fs.remove_all(&from.path, &mut teller);
    removed.map_err(|error| cannot(format_args!("remove '{}'", from.shown), &error))?;
    if teller.failures > 0 { Err(Failure::Silent) } else { Ok(()) }
}
