//! Why a verb that changes a pool is refused or fails. The texts are those of the tools of OpenZFS, behind
//! what the verb says first (`cannot create 'tank': `).

use super::in_use::InUse;
use super::pool_name::NameProblem;
use crate::{AdminError, chain};
use ::pool::{MissingVdev, PoolError};
use cenote::Error;
use dmu::TxError;
use dsl::DslError;
use vdev::DeviceError;

/// Why a pool was not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// There is no pool of this name.
    #[error("no such pool")]
    NoPool,
    /// Several pools have this name.
    #[error("more than one matching pool\nimport by numeric ID instead")]
    Ambiguous,
    /// A pool of this name is imported already.
    #[error("pool already exists")]
    Exists,
    /// A name that no pool can have.
    #[error(transparent)]
    Name(#[from] NameProblem),
    /// Vdevs that should not be made so; `force` would make them.
    #[error("invalid vdev specification\n{}{}", if *forced { FINAL } else { OVERRIDE }, lines.join("\n"))]
    Vdevs {
        /// `-f` was given: what is left cannot be overridden.
        forced: bool,
        /// What is wrong.
        lines: Vec<String>,
    },
    /// A device was named twice, or somebody else has it.
    #[error(
        "one or more vdevs refer to the same device, or one of\nthe devices is part of an active md or lvm device"
    )]
    DeviceBusy {
        /// Its path, if it is a block device.
        disk: Option<String>,
    },
    /// A device is too small for a pool.
    #[error("one or more devices is less than the minimum size (64M)")]
    TooSmall,
    /// A device is too small to be added.
    #[error("device is less than the minimum size (64M)")]
    AddTooSmall,
    /// The new vdevs would have other sectors than those of the pool.
    #[error("adding devices with different physical sector sizes is not allowed")]
    Ashift,
    /// A feature that is needed is not enabled.
    #[error("operation not supported on this type of pool")]
    NeedsFeature,
    /// The pool was imported for reading only.
    #[error("pool is read-only")]
    ImportedReadOnly,
    /// The pool can only be read.
    #[error("pool is read-only: {why}")]
    ReadOnly {
        /// Why.
        why: String,
    },
    /// Somebody else has the pool open.
    #[error("pool is busy: {why}")]
    Busy {
        /// Which device, and how that showed.
        why: String,
    },
    /// Somebody uses it, or something of it is mounted.
    #[error("pool is busy")]
    InUse,
    /// Its devices do not take what is written.
    #[error("pool I/O is currently suspended")]
    Suspended,
    /// Only the administrator may do that.
    #[error("permission denied")]
    Denied,
    /// There is not enough room for what the root file system reserves.
    #[error("one or more devices is out of space")]
    NoSpace,
    /// A property that cannot be set, or not to this value.
    #[error("{0}")]
    Property(String),
    /// OpenZFS has it, this version of Cenote has not.
    #[error("{what} not supported by this version of Cenote")]
    Unsupported {
        /// What, with its verb: `dRAID is`.
        what: String,
    },
    /// Another machine has not let go of the pool.
    #[error(
        "pool was previously in use from another system.\nLast accessed by {host} (hostid={hostid:x}) at {accessed}\nThe pool can be imported, use 'zpool import -f' to import the pool."
    )]
    OtherHost {
        /// That machine's name.
        host: String,
        /// Its number.
        hostid: u64,
        /// When, in seconds since 1970; the commands put the date in.
        accessed: u64,
    },
    /// A device cannot be used.
    #[error("cannot open '{path}': {why}")]
    Device {
        /// Its path.
        path: String,
        /// Why.
        why: String,
    },
    /// Devices that are needed are missing.
    #[error("one or more devices is currently unavailable")]
    Unavailable {
        /// The vdevs that lack them.
        vdevs: Vec<MissingVdev>,
    },
    /// Log devices are missing; `-m` imports without them.
    #[error("one or more devices is currently unavailable")]
    MissingLogs {
        /// The log vdevs.
        vdevs: Vec<MissingVdev>,
    },
    /// Something below failed; the message tells the whole chain.
    #[error("{}", chain(.0))]
    Failed(Box<Error>),
    /// Looking for pools failed.
    #[error(transparent)]
    Admin(#[from] AdminError),
}

const OVERRIDE: &str = "use '-f' to override the following errors:\n";
const FINAL: &str = "the following errors must be manually repaired:\n";

impl ChangeError {
    /// Vdevs that are refused for these reasons.
    pub(super) fn vdevs(forced: bool, lines: Vec<String>) -> Result<(), ChangeError> {
        if lines.is_empty() { Ok(()) } else { Err(ChangeError::Vdevs { forced, lines }) }
    }

    /// Devices that are refused because they are used.
    pub(super) fn in_use(forced: bool, used: &[InUse]) -> Result<(), ChangeError> {
        ChangeError::vdevs(forced, used.iter().map(ToString::to_string).collect())
    }

    /// A device that could not be opened for writing.
    pub(super) fn device(path: String, is_disk: bool, error: &DeviceError) -> ChangeError {
        match error {
            DeviceError::Busy { .. } => ChangeError::DeviceBusy { disk: is_disk.then_some(path) },
            error => ChangeError::Device { path, why: error.to_string() },
        }
    }
}

impl From<PoolError> for ChangeError {
    fn from(error: PoolError) -> ChangeError {
        match error {
            PoolError::NoSuchPool { .. } => ChangeError::NoPool,
            PoolError::Ambiguous { .. } => ChangeError::Ambiguous,
            PoolError::NotWritable { why, .. } => ChangeError::ReadOnly { why: why.to_string() },
            PoolError::BadDevice { path, why } => ChangeError::Busy { why: format!("{path}: {why}") },
            PoolError::OtherHost { host, hostid, .. } => ChangeError::OtherHost { host, hostid, accessed: 0 },
            PoolError::MissingTops { vdevs, .. } => ChangeError::Unavailable { vdevs },
            PoolError::MissingLogs { vdevs, .. } => ChangeError::MissingLogs { vdevs },
            PoolError::Tx(TxError::Suspended { .. }) => ChangeError::Suspended,
            PoolError::Property { why, .. } => ChangeError::Property(why.to_string()),
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
