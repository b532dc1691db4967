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
    #[serde(default)]
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
    /// The device is in use or may be, cannot be opened, or has no labels.
    #[error("{0}")]
    Kept(LabelClearError),
}

from_denied!(Refusal, Refusal::Denied);

impl Refused for Refusal {
    fn reason(&self) -> Reason {
        match self {
            Refusal::Denied(reason) => reason.clone(),
            Refusal::NoDevice { .. } => Reason::new(Code::Refused, self),
            Refusal::Kept(LabelClearError::Member { .. } | LabelClearError::Foreign { .. }) => {
                Reason::new(Code::Busy, self)
            }
            Refusal::Kept(_) => Reason::new(Code::Failed, self),
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
        change::clear_labels(session.search(), &path, self.force).map_err(Refusal::Kept)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::{LetGo, Role};
    use crate::verbs::carried;

    #[test]
    fn refusals_cross_a_process() {
        let (path, pool) = ("/dev/sda".to_owned(), "tank".to_owned());
        let member = LabelClearError::Member { path: path.clone(), role: Role::Cache, pool: pool.clone() };
        let member = carried(&Refusal::Kept(member));
        assert_eq!(member.to_string(), "/dev/sda is a member (L2CACHE) of pool \"tank\"");
        assert_eq!(member.reason().code, Code::Busy);
        let foreign = LabelClearError::Foreign { path: path.clone(), state: LetGo::PotentiallyActive, pool };
        assert_eq!(
            carried(&Refusal::Kept(foreign)).to_string(),
            "use '-f' to override the following error:\n/dev/sda is a member of potentially active pool \"tank\""
        );
        assert_eq!(carried(&Refusal::Kept(LabelClearError::Clear { path })).reason().code, Code::Failed);
    }
}
