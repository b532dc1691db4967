//! `cenote mv`: renames and moves files.

use std::ffi::{OsStr, OsString};

use ::cenote::Error;
use ::cenote::copy::import::{Options, import};
use ::cenote::files::RenameHow;
use ::cenote::files::{FileKind, ZplError};

use super::copying::Teller;
use super::open::{Found, Source};
use super::writing::{TreeTeller, WritablePath, Writing, cannot, why};
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
    let to = pools.writable_path(to)?;
    let is_folder = !args.no_target_directory && is_dir(&to);
    if sources.len() > 1 && !is_folder {
        return Err(not_a_folder(&to));
    }
    let to = Destination { place: to, is_folder };
    pools.each(sources, move |pools, from| move_one(args, pools, from, &to))
}

struct Destination {
    place: WritablePath,
    is_folder: bool,
}

pub(super) fn is_dir(place: &WritablePath) -> bool {
    let attrs = place.fs.resolve(&place.path).and_then(|id| Ok(place.fs.fs().attrs(id)?));
    attrs.is_ok_and(|attrs| FileKind::from_mode(attrs.mode) == Some(FileKind::Directory))
}

/// Several things cannot go there.
pub(super) fn not_a_folder(place: &WritablePath) -> Failure {
    let why = place.fs.resolve(&place.path).err().map_or("Not a directory".to_owned(), |error| why(&error));
    Failure::Message(format!("target '{}': {why}", place.shown))
}

/// The path of a name in a folder: `folder/name`.
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
    let from = pools.writable_path(from)?;
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
    let last = from.path.split(|byte| *byte == b'/').rfind(|part| !part.is_empty()).unwrap_or_default();
    if matches!(last, b"." | b"..") {
        return Err(Failure::Message(format!("cannot move '{}': Device or resource busy", from.shown)));
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
    let kind = from.fs.fs().attrs(id).map(|attrs| FileKind::from_mode(attrs.mode));
    let is_dir = kind.map_err(|error| failure(error.into()))? == Some(FileKind::Directory);
    if !to.is_folder && to.place.path.ends_with(b"/") && !is_dir {
        return Err(Failure::Message(format!("cannot move '{}' to '{said}': Not a directory", from.shown)));
    }
    if from.fs.name() == to.place.fs.name() {
        let there = from.fs.find(&target, false).map_err(failure)?;
        if there.id == Some(id) {
            if args.no_clobber {
                return Ok(());
            }
            if there.dir == source.dir && there.name == source.name {
                let same = format!("'{}' and '{said}' are the same file", from.shown);
                return Err(Failure::Message(same));
            }
            if !is_dir {
                // A rename of one link to another link of the same file would leave both.
                return from.fs.remove(&source.path).map_err(failure);
            }
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
    from: &WritablePath,
    to: &WritablePath,
    target: &[u8],
) -> Result<(), Failure> {
    let Found::File(file) = pools.source(from_text)? else { return Err(Failure::Silent) };
    let at =
        to.fs.find(target, false).map_err(|error| cannot(format_args!("move '{}'", from.shown), &error))?;
    if args.no_clobber && at.id.is_some() {
        return Ok(());
    }
    let mut teller = Teller::new(false);
    let options = Options { cancel: pools.stop().clone(), ..Options::default() };
    let (told, summary) = import(&to.fs, &options, &mut teller, |importer| {
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
    if pools.stop().is_cancelled() {
        // The copy may be incomplete.
        return Err(Failure::Interrupted);
    }
    // The source is removed only after its copy is on disk.
    to.fs.sync()?;
    drop(file);
    let mut teller = TreeTeller::new("remove", &from.fs, pools.stop());
    let removed = from.fs.remove_all(&from.path, &mut teller);
    removed.map_err(|error| cannot(format_args!("remove '{}'", from.shown), &error))?;
    if teller.failures > 0 { Err(Failure::Silent) } else { Ok(()) }
}
