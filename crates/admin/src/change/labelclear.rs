//! Clears the ZFS labels of a device (`zpool labelclear`).
//!
//! # What always holds
//! - The labels of a device that belongs to a pool imported here are never cleared, whatever its role and even with
//!   force; nor are those of a device that another process has open. A pool that is listed as imported but cannot
//!   be opened any more does not protect its devices.

use crate::{Imported, Search, open_pools};
use format::config::PoolState;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;
use vdev::device::file::Access;
use vdev::source::Mode;
use vdev::{DeviceError, label, label_write};

/// What a device is to a pool that has it in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// A device with data.
    Active,
    /// A hot spare.
    Spare,
    /// A cache device.
    Cache,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Active => "ACTIVE",
            Role::Spare => "SPARE",
            Role::Cache => "L2CACHE",
        })
    }
}

/// What the labels say of a pool that is not imported here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LetGo {
    /// It was exported.
    Exported,
    /// It was not: another machine may use it.
    PotentiallyActive,
}

impl fmt::Display for LetGo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LetGo::Exported => "exported",
            LetGo::PotentiallyActive => "potentially active",
        })
    }
}

/// Why labels were not cleared. The texts are those of OpenZFS.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum LabelClearError {
    /// The device cannot be opened.
    #[error("failed to open {path}: {message}")]
    Open {
        /// Path of the device.
        path: String,
        /// The error of the device.
        message: String,
    },
    /// The path is not a device or file.
    #[error("failed to read label from {path}")]
    Read {
        /// The path as given.
        path: String,
    },
    /// The device belongs to a pool that is imported here, or another process has it open.
    #[error("{path} is a member ({role}) of pool \"{pool}\"")]
    Member {
        /// Path of the device.
        path: String,
        /// Role of the device in the pool.
        role: Role,
        /// Name of the pool.
        pool: String,
    },
    /// The device belongs to a pool that is not imported here; `-f` clears it.
    #[error("use '-f' to override the following error:\n{path} is a member of {state} pool \"{pool}\"")]
    Foreign {
        /// Path of the device.
        path: String,
        /// Whether the pool was exported.
        state: LetGo,
        /// Name of the pool.
        pool: String,
    },
    /// The device has no labels, or they could not be overwritten.
    #[error("failed to clear label for {path}")]
    Clear {
        /// Path of the device.
        path: String,
    },
}

/// Overwrites the labels of a device.
///
/// # Errors
/// [`LabelClearError`]; the device is unchanged unless it has failed.
pub(crate) fn clear_labels(search: &Search, path: &Path, force: bool) -> Result<(), LabelClearError> {
    let shown = path.display().to_string();
    let failed = |e: DeviceError| LabelClearError::Open { path: shown.clone(), message: e.to_string() };
    let device = match search.devices.open(path, Mode::Read, Access::Auto) {
        Err(DeviceError::NotADevice) => return Err(LabelClearError::Read { path: shown }),
        opened => opened.map_err(failed)?,
    };
    let probe = label::probe(&*device);
    let none = || LabelClearError::Clear { path: shown.clone() };
    let config = probe.newest_config().ok_or_else(none)?;
    let imported = Imported::load().unwrap_or_default();
    let pool = config.guid.and_then(|guid| imported.pool_of(guid)).map(str::to_owned);
    let role = match config.state {
        PoolState::Spare => Role::Spare,
        PoolState::L2cache => Role::Cache,
        _ => Role::Active,
    };
    if let Some(pool) = pool.filter(|pool| !force || is_there(search, pool)) {
        return Err(LabelClearError::Member { path: shown, role, pool });
    }
    let state = match config.state {
        PoolState::Exported => Some(LetGo::Exported),
        PoolState::Active => Some(LetGo::PotentiallyActive),
        _ => None,
    };
    if let Some(state) = state.filter(|_| !force) {
        return Err(LabelClearError::Foreign { path: shown, state, pool: config.name.clone() });
    }
    drop(device);
    let device = match search.devices.open(path, Mode::Exclusive, Access::Cached) {
        Err(DeviceError::Busy { .. }) => {
            return Err(LabelClearError::Member { path: shown, role, pool: config.name.clone() });
        }
        opened => opened.map_err(failed)?,
    };
    label_write::clear(&*device).map_err(|_| none())
}

/// True if a listed pool can also be opened.
fn is_there(search: &Search, pool: &str) -> bool {
    !open_pools(search, &[pool.to_owned()]).0.is_empty()
}
