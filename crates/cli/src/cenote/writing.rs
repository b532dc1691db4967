//! Common parts of the verbs that change files: pools that are open for writing, and messages for errors.

use admin::served::ServedFilesystem;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ::cenote::files::BeginError;
use ::cenote::files::{FileKind, ZplError};
use ::cenote::files::{FilesystemWriter, TreeObserver, VolumeFile};
use ::cenote::{CancelFlag, Error, PoolWriter, Target};
use indicatif::{ProgressBar, ProgressStyle};

use super::open::{Found, FoundFile, Session, Source, parse};
use super::{Failure, Outcome, code, term};
use crate::console;

/// Exit code of a command that a signal has ended.
pub(super) const INTERRUPTED: u8 = 130;

/// The pools that a command changes. A pool is opened when it is first named, and closed at the end.
pub(super) struct Writing<'a> {
    session: Session<'a>,
    filesystems: RefCell<HashMap<String, FilesystemWriter>>,
    pools: RefCell<HashMap<String, PoolWriter>>,
    /// Set when a signal asks for the end.
    stop: CancelFlag,
    /// A pool is open, so it has to be closed before the process ends.
    is_open: Arc<AtomicBool>,
}

/// A path in a file system that is open for writing.
pub(super) struct WritablePath {
    pub(super) fs: FilesystemWriter,
    pub(super) path: Vec<u8>,
    /// The target as the user wrote it.
    pub(super) shown: String,
}

/// An object that can be written.
pub(super) enum Writable {
    Files(WritablePath),
    Volume(VolumeFile),
}

impl<'a> Writing<'a> {
    pub(super) fn new(source: &'a Source) -> Result<Writing<'a>, Failure> {
        source.check_writable()?;
        let (stop, is_open) = (CancelFlag::default(), Arc::new(AtomicBool::new(false)));
        let (asked, has_pool) = (stop.clone(), Arc::clone(&is_open));
        let is_own_process = console::current().is_none();
        // Before any other thread exists that could receive the signals.
        console::on_cancel(move |times| {
            if is_own_process && (times > 1 || !has_pool.load(Ordering::Relaxed)) {
                console::exit(INTERRUPTED);
            }
            asked.cancel();
        })?;
        let (filesystems, pools) = (RefCell::default(), RefCell::default());
        Ok(Writing { session: Session::new(source), filesystems, pools, stop, is_open })
    }

    /// The cancellation flag: set when the command is to end early.
    pub(super) fn stop(&self) -> &CancelFlag {
        &self.stop
    }

    /// Opens the object that a target names, and its pool, for writing.
    pub(super) fn open(&self, text: &OsStr) -> Result<Writable, Failure> {
        let target = parse(text)?;
        let shown = term::escape(text.as_bytes());
        if target.dataset.contains(['@', '#']) {
            return Err(Failure::Message(format!("{shown}: a snapshot cannot be changed")));
        }
        let name = self.open_pool(&target)?;
        if let Some(fs) = self.filesystems.borrow().get(&name) {
            let path = target.path.unwrap_or_else(|| b"/".to_vec());
            return Ok(Writable::Files(WritablePath { fs: fs.clone(), path, shown }));
        }
        let pools = self.pools.borrow();
        let Some(pool) = pools.get(target.pool()) else { return Err(Failure::Silent) };
        if let Some(at) = mount_of(&name) {
            let at = term::escape(at.as_os_str().as_bytes());
            return Err(Failure::Message(format!("{shown}: {name} is mounted: change its files below {at}")));
        }
        match pool.filesystem(&name) {
            Ok(fs) => {
                if !pool.is_kept_open() {
                    // The command ends with a sync, and no other process has the pool open.
                    fs.stop_logging();
                }
                let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
                let fs = fs.as_owner(uid.as_raw(), gid.as_raw());
                self.filesystems.borrow_mut().insert(name, fs.clone());
                let path = target.path.unwrap_or_else(|| b"/".to_vec());
                Ok(Writable::Files(WritablePath { fs, path, shown }))
            }
            Err(Error::NotAFilesystem { .. }) if target.path.as_deref().is_none_or(|path| path == b"/") => {
                Ok(Writable::Volume(pool.volume(&name)?))
            }
            Err(Error::Zpl(ZplError::Version { version, .. })) => Err(Failure::Message(format!(
                "{shown}: a file system of version {version} can only be read; 'zfs upgrade' makes it one of version 5"
            ))),
            Err(error) => Err(error.into()),
        }
    }

    /// As [`Writing::open`], for verbs that have no use for volumes.
    pub(super) fn writable_path(&self, text: &OsStr) -> Result<WritablePath, Failure> {
        match self.open(text)? {
            Writable::Files(place) => Ok(place),
            Writable::Volume(volume) => Err(Failure::Message(format!("'{}' is a volume", volume.name()))),
        }
    }

    /// Opens an object for reading; in a pool that is open for writing, in its newest state.
    pub(super) fn source(&self, text: &OsStr) -> Result<Found, Failure> {
        match self.session.find(text, false)? {
            Found::File(file) => {
                let filesystems = self.filesystems.borrow();
                let Some(open) = filesystems.get(file.dataset.name()) else { return Ok(Found::File(file)) };
                let node = open.node(file.node.id())?;
                Ok(Found::File(Box::new(FoundFile { fs: open.reader().clone(), node, ..*file })))
            }
            volume => Ok(volume),
        }
    }

    /// Whether the target's dataset exists and its pool can be read.
    pub(super) fn has_dataset(&self, text: &OsStr) -> bool {
        parse(text).and_then(|target| self.session.dataset(&target).map(|_| ())).is_ok()
    }

    /// Opens the pool of a target for writing, and returns the real name of the dataset.
    fn open_pool(&self, target: &Target) -> Result<String, Failure> {
        let called = target.pool();
        if !self.pools.borrow().contains_key(called) {
            let writer = self.session.open_rw(called)?;
            self.is_open.store(true, Ordering::Relaxed);
            // Reads from this pool use the open pool, too.
            self.session.adopt(called, writer.view()?);
            self.pools.borrow_mut().insert(called.to_owned(), writer);
        }
        let pools = self.pools.borrow();
        let name = pools.get(called).map_or(called, PoolWriter::name);
        let rest = target.dataset.strip_prefix(called).unwrap_or("");
        Ok(format!("{name}{rest}"))
    }

    /// Writes all changes and closes the pools.
    fn close(self) -> Result<(), Failure> {
        let Writing { session, filesystems, pools, .. } = self;
        for (_, fs) in filesystems.into_inner() {
            if let Err(error) = fs.finish_removals() {
                // The space is freed when the file system is opened again.
                term::complain(format_args!("warning: {}: {}", fs.name(), why(&error)));
            }
        }
        drop(session);
        for (name, pool) in pools.into_inner() {
            let written = if pool.is_kept_open() { pool.sync().map(|_| ()) } else { Ok(()) };
            written.and_then(|()| pool.close()).map_err(|error| {
                let name = term::escape(name.as_bytes());
                Failure::Message(format!("{name}: not everything was written: {}", term::chain(&error)))
            })?;
        }
        Ok(())
    }

    /// Calls `work` for each of several arguments, and closes the pools. An argument that fails is reported,
    /// and the others are processed.
    pub(super) fn each<T: AsRef<OsStr>>(
        self,
        all: &[T],
        mut work: impl FnMut(&Writing<'a>, &OsStr) -> Result<(), Failure>,
    ) -> Outcome {
        let mut outcome = Ok(code(false));
        for one in all {
            if self.stop.is_cancelled() {
                break;
            }
            if let Err(failure) = work(&self, one.as_ref()) {
                outcome = failure.tell().map(|()| code(true));
                if outcome.is_err() {
                    break;
                }
            }
        }
        // Releases the pools that the work has open.
        drop(work);
        self.end(outcome)
    }

    /// Closes the pools, whatever the outcome of the work was; returns the outcome of the command.
    pub(super) fn end(self, outcome: Outcome) -> Outcome {
        let stop = self.stop.clone();
        let closed = self.close();
        if stop.is_cancelled() {
            closed?;
            return Err(Failure::Interrupted);
        }
        let code = outcome?;
        closed?;
        Ok(code)
    }
}

/// Mount point of a file system that this daemon has mounted.
fn mount_of(dataset: &str) -> Option<PathBuf> {
    let console = console::current()?;
    let mounted = console.namespace.mounts()?.list().into_iter().find(|mount| mount.dataset == dataset);
    mounted.map(|mount| mount.at)
}

/// The message `cannot WHAT: WHY`.
pub(super) fn cannot(what: impl std::fmt::Display, error: &Error) -> Failure {
    Failure::Message(format!("cannot {what}: {}", why(error)))
}

/// The reason in an error, in the system's message if there is one. It does not name the path; the caller
/// does.
pub(super) fn why(error: &Error) -> String {
    match error {
        Error::Path { source, .. } | Error::Zpl(source) => zpl_words(source),
        Error::NoSuchPath { .. } => "No such file or directory".to_owned(),
        Error::TooManyLinks { .. } => "Too many levels of symbolic links".to_owned(),
        other => term::chain(other),
    }
}

/// The system's message for an error of a file.
pub(super) fn zpl_words(error: &ZplError) -> String {
    let words = match error {
        ZplError::NotFound { .. } | ZplError::Stale { .. } => "No such file or directory",
        ZplError::Exists { .. } => "File exists",
        ZplError::NotEmpty { .. } => "Directory not empty",
        ZplError::WrongKind { expected: "directory", .. } => "Not a directory",
        ZplError::WrongKind { kind: FileKind::Directory, .. } => "Is a directory",
        ZplError::NameTooLong { .. } => "File name too long",
        ZplError::TooManyLinks { .. } => "Too many links",
        ZplError::FileTooLarge { .. } => "File too large",
        ZplError::OverQuota { .. } | ZplError::Begin(BeginError::Quota(_)) => "Disk quota exceeded",
        ZplError::Begin(BeginError::NoSpace(_)) => "No space left on device",
        ZplError::NotPermitted { why, .. } => return format!("Operation not permitted: {why}"),
        other => return term::chain(other),
    };
    words.to_owned()
}

/// Reports problems in a tree, and shows progress.
pub(super) struct TreeTeller {
    bar: ProgressBar,
    /// Verb for the messages: `remove` and the like.
    what: &'static str,
    /// Text before a path in messages.
    dataset: String,
    stop: CancelFlag,
    pub(super) failures: u64,
}

impl TreeTeller {
    pub(super) fn new(what: &'static str, fs: &FilesystemWriter, stop: &CancelFlag) -> TreeTeller {
        let bar = ProgressBar::with_draw_target(None, console::progress_target());
        let style = ProgressStyle::with_template("{spinner} {pos} files, {per_sec}, {elapsed}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        TreeTeller { bar, what, dataset: fs.name().to_owned(), stop: stop.clone(), failures: 0 }
    }
}

impl TreeObserver for TreeTeller {
    fn progress(&mut self, done: u64) {
        self.bar.set_position(done);
    }

    fn is_stopped(&self) -> bool {
        self.stop.is_cancelled()
    }

    fn problem(&mut self, path: &[u8], error: &ZplError) {
        self.failures += 1;
        let (what, dataset, path) = (self.what, &self.dataset, term::escape(path));
        self.bar.suspend(|| {
            term::complain(format_args!("cannot {what} '{dataset}:{path}': {}", zpl_words(error)));
        });
    }
}

impl Drop for TreeTeller {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
