//! Why a verb that changes a pool is refused or fails. The texts are those of OpenZFS; the command prints what
//! precedes them (`cannot create 'tank': `).

use super::device_holder::Holder;
use super::in_use::InUse;
use super::pool_name::NameProblem;
use crate::{AdminError, chain};
use ::pool::{DeviceRefusal, MissingVdev, PoolError, WriteRefusal};
use cenote::Error;
use dmu::TxError;
use dsl::DslError;
use vdev::DeviceError;
use vdev::gpt::GptWriteError;

/// Why a pool was not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// There is no pool of this name.
    #[error("no such pool")]
    NoPool,
    /// Several pools have this name; a guid is needed.
    #[error("more than one matching pool\nimport by numeric ID instead")]
    Ambiguous,
    /// The pool has no checkpoint.
    #[error("checkpoint does not exist")]
    NoCheckpoint,
    /// A pool of this name is already imported.
    #[error("pool already exists")]
    Exists,
    /// The name is not valid for a pool.
    #[error(transparent)]
    Name(#[from] NameProblem),
    /// There are objections to the new vdevs; `force` overrides them.
    #[error("invalid vdev specification\n{}{}", if *forced { FINAL } else { OVERRIDE }, lines.join("\n"))]
    Vdevs {
        /// True if `-f` was given: the objections cannot be overridden.
        forced: bool,
        /// The objections, one message each.
        lines: Vec<String>,
    },
    /// A device is named twice, or another process has it open.
    #[error(
        "one or more vdevs refer to the same device, or one of\nthe devices is part of an active md or lvm device"
    )]
    DeviceBusy {
        /// Path of the device, if it is a block device.
        disk: Option<String>,
    },
    /// A device is too small for a new pool.
    #[error("one or more devices is less than the minimum size (64M)")]
    TooSmall,
    /// A device is too small to be added to a pool.
    #[error("device is less than the minimum size (64M)")]
    AddTooSmall,
    /// The sector size of the new vdevs would differ from that of the pool's vdevs.
    #[error("adding devices with different physical sector sizes is not allowed")]
    Ashift,
    /// The change needs a feature that is not enabled.
    #[error("operation not supported on this type of pool")]
    NeedsFeature,
    /// The pool was imported read-only.
    #[error("pool is read-only")]
    ImportedReadOnly,
    /// The pool can only be opened for reading.
    #[error("pool is read-only: {why}")]
    ReadOnly {
        /// Why it cannot be written.
        why: WriteRefusal,
    },
    /// The pool was to be opened for reading under a name of its own.
    #[error("pool is read-only: its name is written on its devices")]
    FixedName,
    /// A device of the pool cannot be opened alone: another process has the pool open.
    #[error("pool is busy: {path}: {why}{}", holder.as_ref().map(Holder::remark).unwrap_or_default())]
    Busy {
        /// Path of the device.
        path: String,
        /// Why it is refused.
        why: DeviceRefusal,
        /// The process that has it open, if that can be seen.
        holder: Option<Holder>,
    },
    /// The pool is in use, or one of its file systems is mounted.
    #[error("pool is busy")]
    InUse,
    /// The pool is suspended: its devices do not accept writes.
    #[error("pool I/O is currently suspended")]
    Suspended,
    /// The caller is not an administrator.
    #[error("permission denied")]
    Denied,
    /// There is not enough space for the reservation of the root file system.
    #[error("one or more devices is out of space")]
    NoSpace,
    /// A property, or this value, cannot be set; holds the message.
    #[error("{0}")]
    Property(String),
    /// OpenZFS supports it and this version of Cenote does not.
    #[error("{what} not supported by this version of Cenote")]
    Unsupported {
        /// The unsupported thing with its verb: `dRAID is`.
        what: String,
    },
    /// The pool was not exported by another host.
    #[error(
        "pool was previously in use from another system.\nLast accessed by {host} (hostid={hostid:x}) at {accessed}\nThe pool can be imported, use 'zpool import -f' to import the pool."
    )]
    OtherHost {
        /// Name of that host.
        host: String,
        /// Host id of that host.
        hostid: u64,
        /// Time of its last write, in seconds since 1970; commands insert the date.
        accessed: u64,
    },
    /// A device cannot be used.
    #[error("cannot open '{path}': {why}")]
    Device {
        /// Path of the device.
        path: String,
        /// What is wrong with it.
        why: DeviceError,
    },
    /// No partition table can be written to a disk.
    #[error("cannot open '{path}': {why}")]
    Partitions {
        /// Path of the disk.
        path: String,
        /// What is wrong with it.
        why: GptWriteError,
    },
    /// Required devices are missing.
    #[error("one or more devices is currently unavailable")]
    Unavailable {
        /// The vdevs that lack them.
        vdevs: Vec<MissingVdev>,
    },
    /// Log devices are missing; `-m` imports the pool without them.
    #[error("one or more devices is currently unavailable")]
    MissingLogs {
        /// The log vdevs.
        vdevs: Vec<MissingVdev>,
    },
    /// A layer below failed; the message contains the whole chain of causes.
    #[error("{}", chain(.0))]
    Failed(Box<Error>),
    /// The search for pools failed.
    #[error(transparent)]
    Admin(#[from] AdminError),
}

const OVERRIDE: &str = "use '-f' to override the following errors:\n";
const FINAL: &str = "the following errors must be manually repaired:\n";

impl ChangeError {
    /// Refuses vdevs with these objections; no objections are no error.
    pub(super) fn vdevs(forced: bool, lines: Vec<String>) -> Result<(), ChangeError> {
        if lines.is_empty() { Ok(()) } else { Err(ChangeError::Vdevs { forced, lines }) }
    }

    /// Refuses devices that are in use.
    pub(super) fn in_use(forced: bool, used: &[InUse]) -> Result<(), ChangeError> {
        ChangeError::vdevs(forced, used.iter().map(ToString::to_string).collect())
    }

    /// The error of a device that could not be opened for writing.
    pub(super) fn device(path: String, is_disk: bool, error: DeviceError) -> ChangeError {
        match error {
            DeviceError::Busy { .. } => ChangeError::DeviceBusy { disk: is_disk.then_some(path) },
            why => ChangeError::Device { path, why },
        }
    }
}

impl From<PoolError> for ChangeError {
    fn from(error: PoolError) -> ChangeError {
        match error {
            PoolError::NoSuchPool { .. } | PoolError::Destroyed { .. } => ChangeError::NoPool,
            PoolError::Ambiguous { .. } => ChangeError::Ambiguous,
            PoolError::NotWritable { why, .. } => ChangeError::ReadOnly { why },
            PoolError::BadDevice { path, why } => ChangeError::Busy { path, why, holder: None },
            PoolError::OtherHost { host, hostid, .. } => ChangeError::OtherHost { host, hostid, accessed: 0 },
            PoolError::MissingTops { vdevs, .. } => ChangeError::Unavailable { vdevs },
            PoolError::MissingLogs { vdevs, .. } => ChangeError::MissingLogs { vdevs },
            PoolError::Tx(TxError::Suspended { .. }) => ChangeError::Suspended,
            why @ (PoolError::CheckpointExists { .. }
            | PoolError::DiscardingCheckpoint { .. }
            | PoolError::VdevsChanging { .. }
            | PoolError::FeatureDisabled { .. }) => ChangeError::Property(why.to_string()),
            PoolError::NoCheckpoint { .. } => ChangeError::NoCheckpoint,
            PoolError::Property { why, .. } => ChangeError::Property(why.to_string()),
            PoolError::Shape { why } => ChangeError::Property(why.to_string()),
            PoolError::Dsl(DslError::NotFound { .. }) => {
                ChangeError::Property("no such pool or dataset".to_owned())
            }
            error => ChangeError::Failed(Box::new(Error::Pool(error))),
        }
    }
}

impl From<Error> for ChangeError {
    fn from(error: Error) -> ChangeError {
        match error {
            Error::Pool(error) => error.into(),
            error => ChangeError::Failed(Box::new(error)),
        }
    }
}
