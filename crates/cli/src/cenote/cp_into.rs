//! `cenote cp` into a pool: from this machine, from the same pool or from another one.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ::cenote::Target;
use ::cenote::copy::import::{Folder, HostSource, Importer, Options, import, write_volume};
use ::cenote::copy::{Content, Damaged, Observer, Stamp, Summary, children};
use ::cenote::files::{FilesystemWriter, VolumeFile};
use format::ObjectId;

use super::copying::Teller;
use super::cp_args::Args;
use super::mv::{is_dir, not_a_folder};
use super::open::{Found, FoundFile};
use super::writing::{Writable, WritablePath, Writing, cannot};
use super::{Failure, Outcome, code, term};

/// Whether a text has the form of a path in a pool.
fn names_pool(text: &OsStr) -> bool {
    let bytes = text.as_bytes();
    let is_path = bytes.starts_with(b"/") || bytes.starts_with(b"./") || bytes.starts_with(b"../");
    !is_path && Target::parse(text).is_some_and(|target| target.path.is_some())
}

/// Whether a text can only name a file of this machine, or names an existing one.
fn is_of_host(text: &OsStr) -> bool {
    let is_path = [&b"/"[..], b"./", b"../"].iter().any(|start| text.as_bytes().starts_with(start));
    is_path || (!names_pool(text) && Path::new(text).symlink_metadata().is_ok())
}

/// Whether the destination names something in a pool. It does if it has that form. Unless it begins like a
/// path of this machine, it also does if its folder does not exist here, or if all sources are files of this
/// machine (`cp` serves copies within the machine).
pub(super) fn is_into_pool(to: &OsStr, sources: &[std::ffi::OsString]) -> bool {
    let path = Path::new(to);
    let looks_like_host = [&b"/"[..], b"./", b"../"].iter().any(|start| to.as_bytes().starts_with(start));
    let has_folder = path.parent().is_none_or(|folder| folder.as_os_str().is_empty() || folder.is_dir());
    names_pool(to) || (!looks_like_host && (!has_folder || sources.iter().all(|source| is_of_host(source))))
}

/// The target of copies: a directory, in which they keep their names, or one name in a directory.
struct Destination {
    dir: ObjectId,
    /// The name of the copy; `None`: the name of the source.
    name: Option<Vec<u8>>,
    /// The destination ends in a slash: the name must be that of a directory.
    is_for_dir: bool,
    shown: String,
}

impl Destination {
    fn new(args: &Args, place: &WritablePath, is_single: bool) -> Result<Destination, Failure> {
        let shown = place.shown.clone();
        let failure = |error| cannot(format_args!("create '{shown}'"), &error);
        if is_dir(place) && !args.no_target_directory {
            let dir = place.fs.resolve(&place.path).map_err(failure)?;
            return Ok(Destination { dir, name: None, is_for_dir: false, shown });
        }
        if !is_single {
            return Err(not_a_folder(place));
        }
        let path = place.path.strip_suffix(b"/").filter(|path| !path.is_empty()).unwrap_or(&place.path);
        let at = place.fs.find(path, true).map_err(failure)?;
        if at.name.is_empty() {
            // The root is named: its contents are the target.
            return Ok(Destination { dir: at.dir, name: None, is_for_dir: false, shown });
        }
        if at.id.is_none() && place.fs.resolve_link(path).is_ok() {
            let why = "not writing through dangling symlink";
            return Err(Failure::Message(format!("{why} '{shown}'")));
        }
        let is_for_dir = path.len() < place.path.len();
        Ok(Destination { dir: at.dir, name: Some(at.name), is_for_dir, shown })
    }
}

pub(super) fn run(args: &Args, to: &OsStr, sources: &[std::ffi::OsString]) -> Outcome {
    let pools = Writing::new(&args.source)?;
    let outcome = pools.open(to).and_then(|to| match to {
        Writable::Files(place) => into_files(args, &pools, &place, sources),
        Writable::Volume(volume) => into_volume(args, &pools, &volume, sources),
    });
    pools.end(outcome)
}

fn into_files(
    args: &Args,
    pools: &Writing<'_>,
    to: &WritablePath,
    sources: &[std::ffi::OsString],
) -> Outcome {
    let destination = Destination::new(args, to, sources.len() == 1)?;
    let options = Options {
        owners: !args.how.no_owner,
        damaged: if args.how.partial { Damaged::ZeroFill } else { Damaged::LeaveOut },
        keep_existing: args.no_clobber,
        threads: args.threads,
        cancel: pools.stop().clone(),
    };
    let mut teller = Teller::new(args.how.verbose);
    let mut failed = false;
    let (ended, summary) = import(&to.fs, &options, &mut teller, |importer| {
        let folder = importer
            .top(destination.dir, b"")
            .map_err(|error| cannot(format_args!("create '{}'", destination.shown), &error.into()))?;
        for source in sources {
            if pools.stop().is_cancelled() {
                break;
            }
            let copy = Copy { args, fs: &to.fs, destination: &destination, folder: &folder };
            if let Err(failure) = copy.one(pools, source, importer) {
                failed = true;
                importer.finish();
                failure.tell()?;
            }
            // A later source may replace what an earlier one made.
            importer.finish();
        }
        Ok::<_, Failure>(())
    });
    teller.finish(&summary);
    ended?;
    Ok(code(failed || summary.failures > 0))
}

struct Copy<'c> {
    args: &'c Args,
    fs: &'c FilesystemWriter,
    destination: &'c Destination,
    folder: &'c Folder,
}

impl Copy<'_> {
    fn one(&self, pools: &Writing<'_>, text: &OsStr, importer: &mut Importer<'_>) -> Result<(), Failure> {
        if is_of_host(text) || (!names_pool(text) && !pools.has_dataset(text)) {
            return self.host(text, importer);
        }
        match pools.source(text)? {
            Found::Volume(dataset, volume) => {
                let own = dataset.name().rsplit('/').next().unwrap_or_default().as_bytes();
                let name = self.destination.name.as_deref().unwrap_or(own);
                let written = i64::try_from(dataset.dsl().phys().creation_time).unwrap_or_default();
                let written = Stamp { secs: written, nanos: 0 };
                importer.copy_volume(&volume, (self.folder, name), text.as_bytes(), written);
                Ok(())
            }
            Found::File(file) => self.pool(text, &file, importer),
        }
    }

    fn host(&self, text: &OsStr, importer: &mut Importer<'_>) -> Result<(), Failure> {
        let shown = term::escape(text.as_bytes());
        let source = HostSource::open(Path::new(text), false).map_err(|error| {
            Failure::Message(format!("cannot stat '{shown}': {}", term::io_words(&error)))
        })?;
        self.check_recursive(source.is_dir(), &shown)?;
        let name = self.destination.name.as_deref().or(source.own_name());
        importer.copy_host(&source, self.folder, name, text.as_bytes());
        Ok(())
    }

    fn check_recursive(&self, is_dir: bool, shown: &str) -> Result<(), Failure> {
        if !is_dir && self.destination.is_for_dir {
            let to = &self.destination.shown;
            return Err(Failure::Message(format!("cannot create regular file '{to}': Not a directory")));
        }
        if is_dir && !(self.args.how.recursive || self.args.how.archive) {
            return Err(Failure::Message(format!("-r not given; leaving out directory '{shown}'")));
        }
        Ok(())
    }

    fn pool(&self, text: &OsStr, file: &FoundFile, importer: &mut Importer<'_>) -> Result<(), Failure> {
        let shown = term::escape(text.as_bytes());
        self.check_recursive(file.node.is_dir(), &shown)?;
        self.check_not_into_itself(file, &shown)?;
        let own = file.path.rsplit(|&byte| byte == b'/').next().filter(|name| !name.is_empty());
        let name = self.destination.name.as_deref().or(own);
        let pool = file.dataset.pool().clone();
        let below = move |dataset: &str| children(&pool, dataset);
        let below: Option<&dyn Fn(&str) -> _> = if self.args.how.children { Some(&below) } else { None };
        let from = (file.dataset.name(), text.as_bytes());
        importer.copy_pool(&file.fs, &file.node, from, (self.folder, name), below);
        Ok(())
    }

    /// Checks that a directory is not copied below itself, which would never end.
    fn check_not_into_itself(&self, file: &FoundFile, shown: &str) -> Result<(), Failure> {
        if file.dataset.name() != self.fs.name() || !file.node.is_dir() {
            return Ok(());
        }
        let fs = self.fs.fs();
        let mut at = self.destination.dir;
        loop {
            if at == file.node.id() {
                let to = &self.destination.shown;
                let text = format!("cannot copy a directory, '{shown}', into itself, '{to}'");
                return Err(Failure::Message(text));
            }
            if at == fs.root() {
                return Ok(());
            }
            at = fs.attrs(at).map_err(::cenote::Error::from)?.parent;
        }
    }
}

fn into_volume(args: &Args, pools: &Writing<'_>, to: &VolumeFile, sources: &[std::ffi::OsString]) -> Outcome {
    let [source] = sources else {
        return Err(Failure::Message(format!("target '{}': Not a directory", to.name())));
    };
    let shown = term::escape(source.as_bytes());
    let failure = |why: String| Failure::Message(format!("cannot copy '{shown}' to '{}': {why}", to.name()));
    let mut teller = Teller::new(args.how.verbose);
    teller.begins(source.as_bytes());
    let image: Box<dyn Content> = if is_of_host(source) || !names_pool(source) && !pools.has_dataset(source) {
        let content = HostSource::open(Path::new(source), true).and_then(|source| source.content());
        Box::new(content.map_err(|error| failure(term::io_words(&error)))?)
    } else {
        match pools.source(source)? {
            Found::Volume(_, volume) => Box::new(volume),
            Found::File(file) if file.node.is_dir() => return Err(failure("Is a directory".to_owned())),
            Found::File(file) => Box::new(file.node),
        }
    };
    let (mut written, stop) = (0, pools.stop());
    let done = write_volume(to, &*image, &mut |bytes| {
        written += bytes;
        teller.copied(bytes);
        !stop.is_cancelled()
    });
    teller.finish(&Summary { files: 1, bytes: written, ..Summary::default() });
    match done {
        Ok(()) => Ok(code(false)),
        Err(error) => Err(failure(term::chain(&error))),
    }
}
