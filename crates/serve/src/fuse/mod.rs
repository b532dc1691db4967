//! The FUSE mount: requests of the kernel answered from an [`FsView`].
//!
//! # What always holds
//! - The mount is read-only, nosuid and nodev; nothing of it can change, so attributes, entries
//!   and the absence of entries are cached by the kernel without end, and files are not even
//!   opened here: `open` and `opendir` answer "not needed", and the kernel stops asking.
//! - No request keeps anything in this process: there are no handles, and forgetting is free.
//! - A damaged block is an input/output error to the one who reads it, is told to whoever mounted,
//!   and stops nothing else.
//!
//! # Threads
//! One per cloned descriptor of `/dev/fuse`; each takes a request, answers it, takes the next.
//! There are more of them than processors because they wait for disks.

mod server;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use fuser::{Config, MountOption, Session, SessionACL, SessionUnmounter};

use crate::view::FsView;
use server::Server;

/// Told of what could not be read: the node and the error.
pub type Reporter = Box<dyn Fn(u64, &crate::ViewError) + Send + Sync>;

/// How to mount.
pub struct MountOptions {
    /// What the table of mounts shows as the source: the dataset.
    pub source: String,
    /// Other users may look in. Their rights are checked then, as they are for root's mounts;
    /// a private mount of a user shows that user everything.
    pub allow_other: bool,
    /// The kernel evaluates POSIX ACLs.
    pub posix_acl: bool,
    /// Threads; `None`: as many as seem good.
    pub threads: Option<usize>,
    /// Hears of damage.
    pub reporter: Option<Reporter>,
}

impl std::fmt::Debug for MountOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MountOptions")
            .field("source", &self.source)
            .field("allow_other", &self.allow_other)
            .field("posix_acl", &self.posix_acl)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

/// Why there is no mount.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// The kernel has no FUSE.
    #[error("/dev/fuse is not there: the kernel's FUSE module is not loaded")]
    NoFuse,
    /// Only root mounts without a helper, and there is none.
    #[error("fusermount3 is not installed (package fuse3): only root can mount without it")]
    NoHelper,
    /// The mount point is no directory.
    #[error("{}: not a directory", at.display())]
    NotADirectory {
        /// The mount point.
        at: PathBuf,
    },
    /// The system refused.
    #[error("cannot mount on {}", at.display())]
    Refused {
        /// The mount point.
        at: PathBuf,
        /// Its reason.
        #[source]
        source: io::Error,
    },
}

/// Threads for a machine with this many processors.
fn default_threads() -> usize {
    let cpus = std::thread::available_parallelism().map_or(4, std::num::NonZero::get);
    (2 * cpus).clamp(8, 32)
}

/// Mounts a view on a directory. It is served until it is unmounted, by whomever.
///
/// # Errors
/// See [`MountError`].
pub fn mount(view: Arc<dyn FsView>, at: &Path, options: MountOptions) -> Result<Mounted, MountError> {
    let refused = |source| MountError::Refused { at: at.to_path_buf(), source };
    if !Path::new("/dev/fuse").exists() {
        return Err(MountError::NoFuse);
    }
    if !rustix::process::geteuid().is_root() && !has_helper() {
        return Err(MountError::NoHelper);
    }
    let at = at.canonicalize().map_err(refused)?;
    if !at.is_dir() {
        return Err(MountError::NotADirectory { at });
    }
    let refused = |source| MountError::Refused { at: at.clone(), source };
    let config = config(&options);
    let server = Server::new(view, options.posix_acl, options.reporter);
    let mut session = Session::new(server, &at, &config).map_err(refused)?;
    let unmounter = session.unmount_callable();
    let thread =
        std::thread::Builder::new().name("fuse".into()).spawn(move || session.run()).map_err(refused)?;
    Ok(Mounted { thread, unmounter: Unmounter { session: unmounter, at } })
}

/// The program that mounts for users is there.
fn has_helper() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let named = std::env::var_os("FUSERMOUNT_PATH").is_some();
    named
        || std::env::split_paths(&path)
            .any(|dir| ["fusermount3", "fusermount"].iter().any(|name| dir.join(name).is_file()))
}

fn config(options: &MountOptions) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::RO,
        MountOption::NoSuid,
        MountOption::NoDev,
        MountOption::NoAtime,
        MountOption::FSName(options.source.clone()),
        MountOption::Subtype("cenote".into()),
    ];
    let root = rustix::process::geteuid().is_root();
    if options.allow_other || root {
        config.mount_options.push(MountOption::DefaultPermissions);
    }
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(options.threads.unwrap_or_else(default_threads).max(1));
    config.clone_fd = true;
    config
}

/// A mount that is being served.
#[derive(Debug)]
pub struct Mounted {
    thread: JoinHandle<io::Result<()>>,
    unmounter: Unmounter,
}

impl Mounted {
    /// The directory, links resolved.
    #[must_use]
    pub fn at(&self) -> &Path {
        &self.unmounter.at
    }

    /// Splits into what ends the mount and what waits for its end, for two threads.
    #[must_use]
    pub fn split(self) -> (Unmounter, Waiter) {
        (self.unmounter, Waiter { thread: self.thread })
    }

    /// Unmounts and waits until all is answered.
    ///
    /// # Errors
    /// Unmounting failed.
    pub fn unmount(self) -> io::Result<()> {
        let (mut unmounter, waiter) = self.split();
        unmounter.unmount()?;
        waiter.wait()
    }
}

/// Waits for the end of a mount.
#[derive(Debug)]
pub struct Waiter {
    thread: JoinHandle<io::Result<()>>,
}

impl Waiter {
    /// Returns when nothing is mounted any more.
    ///
    /// # Errors
    /// The connection to the kernel broke.
    pub fn wait(self) -> io::Result<()> {
        self.thread.join().map_err(|_| io::Error::other("the server of the mount died"))?
    }
}

/// Ends a mount.
#[derive(Debug)]
pub struct Unmounter {
    session: SessionUnmounter,
    at: PathBuf,
}

impl Unmounter {
    /// Unmounts. If files of it are open, it disappears from its directory at once and is served
    /// until they are closed.
    ///
    /// # Errors
    /// The system refused that too.
    pub fn unmount(&mut self) -> io::Result<()> {
        match self.session.unmount() {
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::BUSY.raw_os_error()) => {
                self.detach()
            }
            other => other,
        }
    }

    fn detach(&self) -> io::Result<()> {
        use rustix::mount::{UnmountFlags, unmount};
        match unmount(&self.at, UnmountFlags::DETACH) {
            Err(rustix::io::Errno::PERM) => {
                let status = std::process::Command::new("fusermount3")
                    .args(["-u", "-z", "--"])
                    .arg(&self.at)
                    .status()?;
                if status.success() { Ok(()) } else { Err(io::ErrorKind::ResourceBusy.into()) }
            }
            other => Ok(other?),
        }
    }
}
