//! Why something is not mounted or unmounted.

use crate::edit::names::NameError;
use crate::{MountError, NotWritten};
use cenote::Error;
use dsl::DslError;
use serde::{Deserialize, Serialize};
use std::{fmt, io};

/// What was to be done to a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MountAction {
    /// A file system is mounted.
    Mount,
    /// A file system is unmounted.
    Unmount,
    /// A dataset or path is looked up.
    Open,
}

impl fmt::Display for MountAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MountAction::Mount => "mount",
            MountAction::Unmount => "unmount",
            MountAction::Open => "open",
        })
    }
}

/// Something is not mounted or unmounted. The text is that of OpenZFS.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("cannot {action} '{what}': {why}")]
pub struct MountRefusal {
    /// What was to be done.
    pub action: MountAction,
    /// A dataset or a path.
    pub what: String,
    /// The reason.
    pub why: Obstacle,
}

/// Why something is not mounted or unmounted. Some texts continue with lines of advice.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Obstacle {
    /// There is no dataset of this name.
    #[error("dataset does not exist")]
    NoDataset,
    /// The dataset is a volume.
    #[error("operation not applicable to datasets of this type")]
    NotAFilesystem,
    /// The key of the encrypted file system is not loaded.
    #[error("encryption key not loaded")]
    Locked,
    /// The caller may not mount.
    #[error("Insufficient privileges")]
    Privileges,
    /// The caller may not do this, or the system refuses it.
    #[error("permission denied")]
    Denied,
    /// A word of `-o` is not a mount option.
    #[error("Invalid argument")]
    Option,
    /// The property `mountpoint` is `legacy`.
    #[error("legacy mountpoint\nuse {}(8) to {} this filesystem", tool(*.0), .0)]
    Legacy(MountAction),
    /// The property `mountpoint` is not `legacy`, so `mount` does not mount the file system.
    #[error(
        "it cannot be mounted using 'mount'.\nUse 'zfs set mountpoint=legacy {dataset}' or 'zfs mount {dataset}'.\n\
         See zfs(8) for more information."
    )]
    NotLegacy {
        /// Name of the file system.
        dataset: String,
    },
    /// The property `mountpoint` is `none`.
    #[error("no mountpoint set")]
    NoMountPoint,
    /// The property `canmount` is `off`.
    #[error("'canmount' property is set to 'off'")]
    CanMountOff,
    /// The file system is mounted.
    #[error("filesystem already mounted")]
    AlreadyMounted,
    /// A stream into the file system was cut, and can be resumed.
    #[error(
        "Contains partially-completed state from \"zfs receive -s\", which can be resumed with \"zfs send -t\""
    )]
    PartlyReceived,
    /// The file system was received from a redacted stream.
    #[error("Dataset is not complete, was created by receiving a redacted zfs send stream.")]
    Redacted,
    /// A snapshot is only mounted read-only.
    #[error("a snapshot cannot be mounted for writing")]
    ReadOnly,
    /// The mount point cannot be made.
    #[error("failed to create mountpoint: {error}")]
    Folder {
        /// What the system says.
        error: String,
    },
    /// The mount point is a directory with entries.
    #[error("directory is not empty")]
    NotEmpty,
    /// The mount point, or the dataset, is in use.
    #[error("mountpoint or dataset is busy")]
    Occupied,
    /// The file system is not mounted.
    #[error("not currently mounted")]
    NotMounted,
    /// The directory is inside a mount.
    #[error("not a mountpoint")]
    NotAMountPoint,
    /// The directory is in no mount of Cenote.
    #[error("not a ZFS filesystem")]
    NotZfs,
    /// The path to unmount cannot be followed.
    #[error("{error}\nwarning: {path} not in/proc/self/mounts\n{path}: {error}")]
    NoPath {
        /// The path as given.
        path: String,
        /// What the system says.
        error: String,
    },
    /// The mount is in use.
    #[error("pool or dataset is busy{}", users(by, also_at))]
    InUse {
        /// Process id and name of each program that uses it.
        by: Vec<(u32, String)>,
        /// Other places where it, or a directory of it, is mounted, as text.
        also_at: Vec<String>,
    },
    /// A mount made later hides the mount.
    #[error("it is hidden by what is mounted on {by}")]
    Hidden {
        /// Mount point of the hiding mount, as text.
        by: String,
    },
    /// A mount below it does not end.
    #[error("'{dataset}' is mounted below: {why}")]
    MountedBelow {
        /// The dataset of the mount below.
        dataset: String,
        /// Why it does not end.
        why: Box<Obstacle>,
    },
    /// A mount that was below it could not be made again.
    #[error("'{dataset}' below it: {why}")]
    NotMountedBelow {
        /// The dataset of that mount.
        dataset: String,
        /// Why it is not mounted again.
        why: Box<Obstacle>,
    },
    /// Changes of programs were not written in time.
    #[error("{0}")]
    NotWritten(NotWritten),
    /// The system, or a layer below, refuses with this message.
    #[error("{message}")]
    Failed {
        /// The error and its causes.
        message: String,
    },
}

/// The program for file systems with a legacy mount point.
fn tool(action: MountAction) -> &'static str {
    if action == MountAction::Unmount { "umount" } else { "mount" }
}

/// One line for the programs that use a mount, and one for its other places.
fn users(by: &[(u32, String)], also_at: &[String]) -> String {
    let users: Vec<String> = by.iter().map(|(pid, name)| format!("{name} ({pid})")).collect();
    let lines = [("also mounted on", also_at), ("in use by", &users)];
    let told = lines.iter().filter(|(_, which)| !which.is_empty());
    told.map(|(what, which)| format!("\n{what}: {}", which.join(", "))).collect()
}

impl Obstacle {
    /// An error of the system, without its number.
    pub(super) fn system(error: &io::Error) -> Obstacle {
        match error.kind() {
            io::ErrorKind::PermissionDenied => Obstacle::Denied,
            _ => Obstacle::Failed { message: crate::change::errno_text(error) },
        }
    }

    /// The dataset cannot be read.
    pub(super) fn unreadable(error: &Error) -> Obstacle {
        match error {
            Error::Dsl(DslError::NotFound { .. }) => Obstacle::NoDataset,
            other => Obstacle::Failed { message: crate::chain(other) },
        }
    }
}

impl From<NameError> for Obstacle {
    fn from(error: NameError) -> Obstacle {
        Obstacle::Failed { message: error.to_string() }
    }
}

impl From<MountError> for Obstacle {
    fn from(error: MountError) -> Obstacle {
        match error {
            MountError::AlreadyMounted => Obstacle::AlreadyMounted,
            MountError::NotMounted => Obstacle::NotMounted,
            MountError::NotEmpty => Obstacle::NotEmpty,
            MountError::Busy { by, also_at } => {
                let also_at = also_at.iter().map(|at| at.display().to_string()).collect();
                Obstacle::InUse { by, also_at }
            }
            MountError::Hidden { by } => Obstacle::Hidden { by: by.display().to_string() },
            MountError::NotWritten(what) => Obstacle::NotWritten(what),
            MountError::System(error) => Obstacle::system(&error),
            MountError::Open(error)
                if matches!(*error, Error::Locked { .. } | Error::Dsl(DslError::Encrypted { .. })) =>
            {
                Obstacle::Locked
            }
            other => Obstacle::Failed { message: crate::chain(&other) },
        }
    }
}

impl MountRefusal {
    /// The key of the file system is missing, and nothing else is known to be in the way.
    pub(crate) fn is_locked(&self) -> bool {
        self.action == MountAction::Mount && self.why == Obstacle::Locked
    }

    pub(super) fn mount(what: impl Into<String>, why: impl Into<Obstacle>) -> MountRefusal {
        MountRefusal { action: MountAction::Mount, what: what.into(), why: why.into() }
    }

    pub(super) fn unmount(what: impl Into<String>, why: impl Into<Obstacle>) -> MountRefusal {
        MountRefusal { action: MountAction::Unmount, what: what.into(), why: why.into() }
    }

    pub(super) fn open(what: impl Into<String>, why: impl Into<Obstacle>) -> MountRefusal {
        MountRefusal { action: MountAction::Open, what: what.into(), why: why.into() }
    }
}

/// The dataset cannot be read.
pub(super) fn failed(name: &str, error: &Error) -> MountRefusal {
    MountRefusal::open(name, Obstacle::unreadable(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::path::PathBuf;

    /// The refusal is an answer to a verb that has done a part of its work.
    #[test]
    fn paths_that_are_not_utf8_can_be_told() {
        let path = PathBuf::from(OsStr::from_bytes(b"/b\xff"));
        let busy = MountError::Busy { by: Vec::new(), also_at: vec![path.clone()] };
        for error in [busy, MountError::Hidden { by: path }] {
            let refusal = MountRefusal::unmount("tank", error);
            let told = serde_json::to_string(&refusal).expect("told");
            assert_eq!(serde_json::from_str::<MountRefusal>(&told).expect("read"), refusal);
        }
    }
}
