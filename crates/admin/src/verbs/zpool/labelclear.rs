//! `zpool labelclear`: overwrites the labels of a device that belongs to no imported pool.

use crate::Session;
use crate::change::{self, LabelClearError};
use crate::verbs::{Code, Reason, Refused, Right, Verb};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A device whose labels are overwritten.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Path of the device, or its name in one of the device folders.
    pub device: PathBuf,
    /// Also the labels of a pool that may be in use elsewhere (`-f`).
    pub force: bool,
}

/// Why the labels are as they were.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    /// The caller is no administrator.
    #[error("{0}")]
    Denied(Reason),
    /// No device has this name.
    #[error("failed to find device {device}, try specifying absolute path instead")]
    NoDevice {
        /// The name.
        device: String,
    },
    /// The device has no labels, or they could not be overwritten.
    #[error("{0}")]
    NotCleared(Reason),
    /// The device is in use, may be in use, or cannot be opened.
    #[error("{0}")]
    Kept(Reason),
}

from_denied!(Refusal, Refusal::Denied);

impl Refused for Refusal {
    fn reason(&self) -> Reason {
        match self {
            Refusal::Denied(reason) | Refusal::NotCleared(reason) | Refusal::Kept(reason) => reason.clone(),
            Refusal::NoDevice { .. } => Reason::new(Code::Refused, self),
        }
    }
}

impl Verb for Request {
    const NAME: &'static str = "zpool labelclear";
    const RIGHT: Right = Right::Administrator;
    type Answer = ();
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<(), Refusal> {
        let path = path_of(&self.device)?;
        change::clear_labels(session.search(), &path, self.force).map_err(|error| match error {
            LabelClearError::Clear { .. } => Refusal::NotCleared(Reason::new(Code::Failed, error)),
            LabelClearError::Member { .. } | LabelClearError::Foreign { .. } => {
                Refusal::Kept(Reason::new(Code::Busy, error))
            }
            LabelClearError::Open { .. } | LabelClearError::Read { .. } => {
                Refusal::Kept(Reason::new(Code::Failed, error))
            }
        })
    }
}

/// The path of a device that is named by its path or by its name alone.
fn path_of(device: &Path) -> Result<PathBuf, Refusal> {
    if device.is_absolute() {
        return Ok(device.to_owned());
    }
    let name = device.to_string_lossy().into_owned();
    match change::find_device(&name) {
        Ok(found) => Ok(found.path),
        Err(_) => Err(Refusal::NoDevice { device: name }),
    }
}
