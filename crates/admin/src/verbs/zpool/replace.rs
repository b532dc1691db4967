//! `zpool replace`: a new device takes the place of another one, as soon as it has all data.

use super::attach::Attachment;
use super::{Action, Refusal};
use crate::Session;
use crate::change::Purpose;
use crate::verbs::{Right, Verb};
use serde::{Deserialize, Serialize};

/// A device to replace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Name of the pool.
    pub pool: String,
    /// The device in the pool: a path, the last part of a path, or a guid.
    pub device: String,
    /// The new device: a path, or a name in `/dev`; `None`: the device that is now at the path of the old one. A spare
    /// of the pool stands in for the device until it is detached.
    #[serde(default)]
    pub new_device: Option<String>,
    /// The new device may belong to a pool that is not imported, or contain a file system (`-f`).
    #[serde(default)]
    pub force: bool,
    /// A sequential rebuild instead of a resilver (`-s`).
    #[serde(default)]
    pub sequential: bool,
}

impl Verb for Request {
    const NAME: &'static str = "zpool replace";
    const RIGHT: Right = Right::Administrator;
    type Answer = ();
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<(), Refusal> {
        let Request { pool, device, force, sequential, .. } = self;
        let new_device = self.new_device.as_ref().unwrap_or(device);
        let target = format!("{device} with {new_device}");
        let (action, purpose) = (Action::Replace, Purpose::Replace);
        Attachment {
            pool,
            device,
            new_device,
            force: *force,
            sequential: *sequential,
            action,
            purpose,
            target,
        }
        .run(session)
    }
}
