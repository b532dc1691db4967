//! `zpool offline`: takes a device out of service, if the others hold everything.

use super::{Action, Refusal, find_vdev, is_reserve};
use crate::Session;
use crate::change::{self, Offline};
use crate::verbs::{Code, Reason, Right, Verb};
use serde::{Deserialize, Serialize};

/// A device to take out of service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Name of the pool.
    pub pool: String,
    /// The device: a path, the last part of a path, or a guid.
    pub device: String,
    /// The device counts as faulted (`-f`).
    #[serde(default)]
    pub fault: bool,
    /// Until the pool is opened again only (`-t`).
    #[serde(default)]
    pub temporary: bool,
}

impl Verb for Request {
    const NAME: &'static str = "zpool offline";
    const RIGHT: Right = Right::Administrator;
    type Answer = ();
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<(), Refusal> {
        let action = if self.fault { Action::Fault } else { Action::Offline };
        let refused =
            |message: &str| Refusal::failed(action, &self.device, Reason::new(Code::Refused, message));
        let vdev = find_vdev(session, action, &self.pool, &self.device)?;
        if !vdev.is_leaf() {
            return Err(refused("operation not supported on this type of vdev"));
        }
        if is_reserve(&vdev) {
            return Err(refused("device is reserved as a hot spare"));
        }
        let how = match (self.fault, self.temporary) {
            (false, false) => Offline::Always,
            (false, true) => Offline::Temporarily,
            (true, false) => Offline::Faulted,
            (true, true) => Offline::FaultedTemporarily,
        };
        change::offline_vdev(session.search(), &self.pool, vdev.guid, how, session.command_line())
            .map_err(|error| Refusal::failed(action, &self.device, error))
    }
}
