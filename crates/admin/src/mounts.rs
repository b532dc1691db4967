//! The interface that mounts file systems of imported pools, so that programs see them. `mounting` decides what is
//! mounted where; the process that owns the pools implements [`Mounts`], or has no mounts.

use super::FileOps;
use ::pool::LivePool;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vdev::tunable::Tunable;

/// Allows root, and the user of the mounts, to create, destroy and rename snapshots in `.zfs/snapshot`.
pub static ADMIN_SNAPSHOT: Tunable = Tunable::new("zfs_admin_snapshot", 0, 0, 1);

/// Lets reads and writes of files opened with `O_DIRECT` bypass the kernel's page cache.
pub static DIO_ENABLED: Tunable = Tunable::new("zfs_dio_enabled", 1, 0, 1);

/// A table of mounts and the operations that change it. `serve` implements it with FUSE.
///
/// # What always holds
/// - A dataset is mounted at most once, in one place or several; mounts of its snapshots do not count. The mount of
///   a dataset is reported with its first place.
/// - A call returns after the kernel has applied the change.
pub trait Mounts: Send + Sync {
    /// All mounts, one entry for each place, oldest first.
    fn list(&self) -> Vec<Mounted>;

    /// The mount of a dataset, with its first place.
    fn mounted(&self, dataset: &str) -> Option<Mounted> {
        self.list().into_iter().find(|mount| mount.dataset == dataset)
    }

    /// The mounts below a directory, oldest first.
    fn below(&self, at: &Path) -> Vec<Mounted>;

    /// Creates a mount point and its missing parent directories, and records which it created. Symbolic links of
    /// other users are not followed.
    ///
    /// # Errors
    /// A directory cannot be created or reached.
    fn make_folder(&self, at: &Path) -> io::Result<()>;

    /// Removes a mount point if [`Mounts::make_folder`] created it, it still has its place, it is empty, and no
    /// file system is mounted there.
    fn remove_folder(&self, at: &Path);

    /// Request counts of a dataset's mount. `None`: the dataset is not mounted, or requests are not counted.
    fn stats(&self, dataset: &str) -> Option<FileOps> {
        let _ = dataset;
        None
    }

    /// Mounts a file system or snapshot of a pool. The mount point exists; symbolic links of other users in its path
    /// are not followed. A snapshot is mounted read-only, and cannot be destroyed until the mount has ended.
    ///
    /// # Errors
    /// [`MountError`]; then the dataset is not mounted.
    fn mount(
        &self,
        pool: &Arc<LivePool>,
        dataset: &str,
        at: &Path,
        options: &MountOptions,
    ) -> Result<(), MountError>;

    /// Mounts a file system of a pool that is open for reading only. The mount is read-only, whatever the options
    /// say.
    ///
    /// # Errors
    /// [`MountError`]; then the file system is not mounted.
    fn mount_view(
        &self,
        _pool: &cenote::Pool,
        _dataset: &str,
        _at: &Path,
        _options: &MountOptions,
    ) -> Result<(), MountError> {
        Err(MountError::NoMounts)
    }

    /// Mounts an already mounted dataset in one more place. The mount point exists.
    ///
    /// # Errors
    /// [`MountError::NotMounted`]; [`MountError::AlreadyMounted`] if it is mounted in this place;
    /// [`MountError::Busy`] if only one of the two places is read-only; or the kernel's refusal.
    fn mount_beside(&self, _dataset: &str, _at: &Path, _options: &MountOptions) -> Result<(), MountError> {
        Err(MountError::AlreadyMounted)
    }

    /// Unmounts a dataset from all its places. Everything written to the mount is durable when this returns.
    ///
    /// # Errors
    /// [`MountError::Busy`] if the mount is in use and `how` is [`Unmount::Normal`]; then it stays mounted.
    fn unmount(&self, dataset: &str, how: Unmount) -> Result<(), MountError>;

    /// Unmounts a dataset from one of its places. The last place is unmounted as by [`Mounts::unmount`].
    ///
    /// # Errors
    /// As [`Mounts::unmount`].
    fn unmount_from(&self, dataset: &str, _at: &Path, how: Unmount) -> Result<(), MountError> {
        self.unmount(dataset, how)
    }

    /// The mounts made by hand that were recorded when a previous server ended, and that are to be made again.
    fn by_hand(&self) -> Vec<MountedByHand> {
        Vec::new()
    }

    /// Forgets a recorded mount by hand at this place, so that it is not made again.
    fn not_by_hand(&self, _at: &Path) {}

    /// Announces that the server ends. Mounts by hand that end from now on are recorded for the next server.
    fn leaving(&self) {}

    /// Changes the options of a mount.
    ///
    /// # Errors
    /// [`MountError::NotMounted`], or the kernel's refusal.
    fn remount(&self, dataset: &str, options: &MountOptions) -> Result<(), MountError>;

    /// True if properties of the dataset have changed in a way that takes effect only after a new mount.
    fn wants_new_mount(&self, _dataset: &str) -> bool {
        false
    }

    /// Makes the kernel write back its unwritten data of a dataset, or of all datasets of a pool: before a
    /// snapshot, a rollback, a send, a report of space. Has no effect on a dataset that is not mounted.
    ///
    /// # Errors
    /// Data could not be written.
    fn write_back(&self, name: &str) -> Result<(), MountError>;

    /// Releases a mounted dataset whose contents are about to be replaced. Requests to the mount wait until the
    /// returned value is dropped. `None`: the dataset is not mounted.
    ///
    /// # Errors
    /// Data could not be written; then the mount is served as before.
    fn suspend(&self, _dataset: &str) -> Result<Option<Box<dyn Suspended + '_>>, MountError> {
        Ok(None)
    }

    /// Names, after `@`, of a mounted dataset's snapshots that programs use through `.zfs`.
    fn snapshots_in_use(&self, _dataset: &str) -> Vec<String> {
        Vec::new()
    }

    /// Invalidates the kernel's cached listings of a dataset's snapshots, after snapshots were made, destroyed or
    /// renamed.
    fn snapshots_changed(&self, _dataset: &str) {}

    /// Keeps mounts of a pool from beginning, changing and ending until the returned value is dropped: while datasets
    /// are renamed, up to the call of [`Mounts::renamed`]. Without that, a mount that begins meanwhile would be known
    /// by a name that its dataset no longer has, and the dataset could be mounted a second time.
    ///
    /// # Errors
    /// The caller no longer waits for the mounts that are beginning or ending.
    fn hold_names(&self, _pool: &str) -> Result<Box<dyn Send + '_>, MountError> {
        Ok(Box::new(()))
    }

    /// Updates the names of a renamed dataset and its descendants.
    fn renamed(&self, from: &str, to: &str);
}

/// A mount whose dataset is released. When the value is dropped, the dataset is served again under its present
/// name, with its previous contents unless [`Suspended::replaced`] was called.
pub trait Suspended: Send {
    /// Declares that the contents of the dataset were, or may have been, replaced (rollback, receive): open files
    /// return errors, and the kernel's caches of the mount are invalidated.
    fn replaced(&mut self);
}

/// A mount of a dataset in one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounted {
    /// Full name of the dataset.
    pub dataset: String,
    /// The mount point.
    pub at: PathBuf,
    /// The options in force.
    pub options: MountOptions,
}

/// A mount made by hand, at a place that no property names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountedByHand {
    /// Full name of the dataset.
    pub dataset: String,
    /// The mount point.
    pub at: PathBuf,
    /// Temporary properties; see [`MountOptions::temporary`].
    pub temporary: Vec<(String, String)>,
}

/// Mount options: values of properties, and what a command has set for this mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountOptions {
    /// The mount is read-only.
    pub read_only: bool,
    /// Programs can be executed.
    pub exec: bool,
    /// Set-user-id and set-group-id bits have effect.
    pub setuid: bool,
    /// Device files can be opened as devices.
    pub devices: bool,
    /// User extended attributes (`user.…`) are available.
    pub xattrs: bool,
    /// Which reads update access times.
    pub atime: AccessTimes,
    /// The mount point may be a directory that is not empty (property `overlay`, `zfs mount -O`).
    pub overlay: bool,
    /// Users other than the owner of the mount may access it.
    pub allow_other: bool,
    /// Properties that a command has set for this mount only; they are shown with the source `temporary`.
    pub temporary: Vec<(String, String)>,
    /// The mount was made by hand at a place that no property names. The next server mounts it there again.
    pub by_hand: bool,
}

impl Default for MountOptions {
    /// The default values of the properties, with access for every user.
    fn default() -> Self {
        Self {
            read_only: false,
            exec: true,
            setuid: true,
            devices: true,
            xattrs: true,
            atime: AccessTimes::default(),
            overlay: true,
            allow_other: true,
            temporary: Vec::new(),
            by_hand: false,
        }
    }
}

/// Which reads update the access time of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AccessTimes {
    /// No read.
    Never,
    /// The first read after a change, and one read a day.
    #[default]
    Relative,
    /// Every read.
    Always,
}

/// How a mount is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unmount {
    /// Fails while the mount is in use.
    #[default]
    Normal,
    /// Immediately; programs that use the mount get errors.
    Force,
    /// The mount leaves the directory tree immediately, and ends when it is no longer in use.
    Lazy,
}

/// Why a mount cannot be made, changed or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// This process does not mount file systems.
    #[error("mounts need the daemon")]
    NoMounts,
    /// The dataset, or the mount point, is already mounted.
    #[error("filesystem already mounted")]
    AlreadyMounted,
    /// The dataset is not mounted.
    #[error("not currently mounted")]
    NotMounted,
    /// The mount point is a directory that is not empty.
    #[error("directory is not empty")]
    NotEmpty,
    /// The mount is in use.
    #[error("pool or dataset is busy")]
    Busy {
        /// Process id and name of each program that uses it.
        by: Vec<(u32, String)>,
        /// Other places where it, or a directory of it, is mounted (`mount --bind`).
        also_at: Vec<PathBuf>,
    },
    /// A mount made later hides it.
    #[error("it is hidden by what is mounted on {}", by.display())]
    Hidden {
        /// Mount point of the hiding mount.
        by: PathBuf,
    },
    /// Changes of programs were not written in time.
    #[error("{0}")]
    NotWritten(NotWritten),
    /// The kernel, or FUSE, refuses.
    #[error("{}", crate::change::errno_text(.0))]
    System(io::Error),
    /// The dataset cannot be opened.
    #[error(transparent)]
    Open(Box<cenote::Error>),
}

/// What was not written before a mount ends or is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum NotWritten {
    /// The kernel keeps changes of programs in its cache.
    #[error("the kernel has not written back in time what programs have changed")]
    Cache,
    /// Changes are not on disk.
    #[error("not everything could be written")]
    Data,
}

impl From<cenote::Error> for MountError {
    fn from(error: cenote::Error) -> MountError {
        MountError::Open(Box::new(error))
    }
}
