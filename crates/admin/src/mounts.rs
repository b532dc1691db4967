//! How file systems of imported pools are shown to the machine's programs. The verbs here decide what is mounted
//! where; whoever owns the pools brings the means ([`Mounts`]), or has none.

use super::FileOps;
use ::pool::LivePool;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vdev::tunable::Tunable;

/// Root, and the user whose mounts they are, may make, destroy and rename snapshots in `.zfs/snapshot`.
pub static ADMIN_SNAPSHOT: Tunable = Tunable::new("zfs_admin_snapshot", 0, 0, 1);

/// Programs that open files with `O_DIRECT` are given them around the kernel's cache.
pub static DIO_ENABLED: Tunable = Tunable::new("zfs_dio_enabled", 1, 0, 1);

/// A table of mounts and the means to change it. `serve` has one for FUSE.
///
/// # What always holds
/// - A dataset is mounted once at most (its snapshots beside it do not count), in one place or several: what is the mount of a
///   dataset stands for its first place.
/// - A call returns when the kernel has seen the change.
pub trait Mounts: Send + Sync {
    /// What is mounted now, each place of it, oldest first.
    fn list(&self) -> Vec<Mounted>;

    /// The mount of a dataset, in its first place.
    fn mounted(&self, dataset: &str) -> Option<Mounted> {
        self.list().into_iter().find(|mount| mount.dataset == dataset)
    }

    /// What is mounted below a folder, oldest first.
    fn below(&self, at: &Path) -> Vec<Mounted>;

    /// Makes a mount point and the folders above it, where they are missing, and remembers that. Links of other users are
    /// not followed.
    ///
    /// # Errors
    /// Why there is none.
    fn make_folder(&self, at: &Path) -> io::Result<()>;

    /// Removes the folder of a mount point if it was made by [`Mounts::make_folder`], is where it was made, is empty, and
    /// nothing is mounted there.
    fn remove_folder(&self, at: &Path);

    /// What programs have asked of the mount of a dataset; `None`: it is not mounted, or nobody counts.
    fn stats(&self, dataset: &str) -> Option<FileOps> {
        let _ = dataset;
        None
    }

    /// Mounts a file system of a pool. The folder exists; links of other users are not followed on the way there.
    ///
    /// # Errors
    /// [`MountError`], and nothing is mounted.
    fn mount(
        &self,
        pool: &Arc<LivePool>,
        dataset: &str,
        at: &Path,
        options: &MountOptions,
    ) -> Result<(), MountError>;

    /// The same of a pool that is open for reading only: nothing can be changed, whatever the options say.
    ///
    /// # Errors
    /// [`MountError`], and nothing is mounted.
    fn mount_view(
        &self,
        _pool: &cenote::Pool,
        _dataset: &str,
        _at: &Path,
        _options: &MountOptions,
    ) -> Result<(), MountError> {
        Err(MountError::NoMounts)
    }

    /// Shows a dataset that is mounted in one more place. The folder exists.
    ///
    /// # Errors
    /// [`MountError::NotMounted`]; [`MountError::AlreadyMounted`] in this place; [`MountError::Busy`] if one of the two is
    /// to be read-only and the other is not; or why the kernel refuses.
    fn mount_beside(&self, _dataset: &str, _at: &Path, _options: &MountOptions) -> Result<(), MountError> {
        Err(MountError::AlreadyMounted)
    }

    /// Ends the mount of a dataset in all its places; everything that was written to it is in the pool, and durable.
    ///
    /// # Errors
    /// [`MountError::Busy`] if it is in use and `how` is [`Unmount::Normal`]: it is where it was then.
    fn unmount(&self, dataset: &str, how: Unmount) -> Result<(), MountError>;

    /// Takes a dataset off one of its places; from the last, it is as [`Mounts::unmount`].
    ///
    /// # Errors
    /// As there.
    fn unmount_from(&self, dataset: &str, _at: &Path, how: Unmount) -> Result<(), MountError> {
        self.unmount(dataset, how)
    }

    /// What was mounted by hand when the server before this one ended, or before, and is to be there.
    fn by_hand(&self) -> Vec<MountedByHand> {
        Vec::new()
    }

    /// What was mounted there by hand is not to be there again.
    fn not_by_hand(&self, _at: &Path) {}

    /// This server ends: what was mounted by hand and ends from now on is to be there when the next one begins.
    fn leaving(&self) {}

    /// Changes the options of a mount.
    ///
    /// # Errors
    /// [`MountError::NotMounted`], or why the kernel refuses.
    fn remount(&self, dataset: &str, options: &MountOptions) -> Result<(), MountError>;

    /// Whether properties were changed so that only a new mount of a dataset keeps to all of them.
    fn wants_new_mount(&self, _dataset: &str) -> bool {
        false
    }

    /// Has the kernel hand over what it has not yet written of a dataset, or of all of a pool: before a snapshot, a
    /// rollback, a send, a report of space. Nothing happens to what is not mounted.
    ///
    /// # Errors
    /// What could not be written.
    fn write_back(&self, name: &str) -> Result<(), MountError>;

    /// The contents of a dataset are about to be replaced: lets go of it, so that nothing uses it. Programs that look at
    /// the mount wait until what this returns is dropped. `None`: it is not mounted.
    ///
    /// # Errors
    /// What could not be written; then the mount is served as before.
    fn suspend(&self, _dataset: &str) -> Result<Option<Box<dyn Suspended + '_>>, MountError> {
        Ok(None)
    }

    /// The snapshots of a mounted dataset, by the part of their names after `@`, that programs use through `.zfs`.
    fn snapshots_in_use(&self, _dataset: &str) -> Vec<String> {
        Vec::new()
    }

    /// Snapshots of a dataset were made, destroyed or renamed: listings that the kernel remembers are old.
    fn snapshots_changed(&self, _dataset: &str) {}

    /// A dataset has another name, those below it too.
    fn renamed(&self, from: &str, to: &str);
}

/// A mount whose dataset was let go of. When this is dropped it is served again, whatever it is called then: with the contents
/// that it had, unless [`Suspended::replaced`] was called.
pub trait Suspended: Send {
    /// The contents of the dataset have been replaced (rollback, receive), or may have been: open files answer with errors,
    /// and nothing that the kernel remembers of it holds any more.
    fn replaced(&mut self);
}

/// A mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounted {
    /// The dataset's name.
    pub dataset: String,
    /// Where.
    pub at: PathBuf,
    /// How.
    pub options: MountOptions,
}

/// A mount that somebody made by hand, where no property says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountedByHand {
    /// The dataset's name.
    pub dataset: String,
    /// Where.
    pub at: PathBuf,
    /// As of [`MountOptions`].
    pub temporary: Vec<(String, String)>,
}

/// How a file system is mounted: its properties, and what a command said beside them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountOptions {
    /// Nothing can be changed.
    pub read_only: bool,
    /// Programs can be run.
    pub exec: bool,
    /// Set-id bits count.
    pub setuid: bool,
    /// Device files are devices.
    pub devices: bool,
    /// Programs see extended attributes of theirs (`user.…`).
    pub xattrs: bool,
    /// Which reads are noted.
    pub atime: AccessTimes,
    /// Over a folder that is not empty (property `overlay`, `zfs mount -O`).
    pub overlay: bool,
    /// Other users may look in.
    pub allow_other: bool,
    /// Properties that a command has set for this mount alone: shown with the source `temporary`.
    pub temporary: Vec<(String, String)>,
    /// Somebody has mounted it by hand, and no property says where: whoever serves it later does that again.
    pub by_hand: bool,
}

impl Default for MountOptions {
    /// What the properties' default values mean, for every user.
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

/// Which reads a file's time of access tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AccessTimes {
    /// None.
    Never,
    /// The first after a change, and one a day.
    #[default]
    Relative,
    /// All.
    Always,
}

/// How a mount ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unmount {
    /// Only if nobody uses it.
    #[default]
    Normal,
    /// At once: whoever uses it gets errors.
    Force,
    /// It disappears at once, and ends when nobody uses it any more.
    Lazy,
}

/// Why a mount cannot be changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// This process mounts nothing.
    #[error("mounts need the daemon")]
    NoMounts,
    /// It is mounted already.
    #[error("filesystem already mounted")]
    AlreadyMounted,
    /// It is not mounted.
    #[error("not currently mounted")]
    NotMounted,
    /// The folder is not empty.
    #[error("directory is not empty")]
    NotEmpty,
    /// Somebody uses it.
    #[error("pool or dataset is busy")]
    Busy {
        /// Programs that do: number and name.
        by: Vec<(u32, String)>,
        /// Other places in which it, or a folder of it, is mounted (`mount --bind`).
        also_at: Vec<PathBuf>,
    },
    /// Something that was mounted later hides it.
    #[error("it is hidden by what is mounted on {}", by.display())]
    Hidden {
        /// Where that is mounted.
        by: PathBuf,
    },
    /// The kernel, or FUSE, says no.
    #[error("{why}")]
    Refused {
        /// Why.
        why: String,
    },
    /// The dataset cannot be opened.
    #[error(transparent)]
    Open(Box<cenote::Error>),
}

impl From<cenote::Error> for MountError {
    fn from(error: cenote::Error) -> MountError {
        MountError::Open(Box::new(error))
    }
}
