//! `zpool online`: brings a device back into service, and has it resilvered.

use super::{Action, Refusal, find_vdev, is_reserve, state_word};
use crate::Session;
use crate::change;
use crate::verbs::{Code, Reason, Right, Verb};
use serde::{Deserialize, Serialize};

/// A device to bring back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Name of the pool.
    pub pool: String,
    /// The device: a path, the last part of a path, or a guid.
    pub device: String,
    /// The pool uses space that the device has gained (`-e`).
    #[serde(default)]
    pub expand: bool,
}

/// The device is in service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// State of the device as `zpool status` shows it (`ONLINE`, `FAULTED`, …); `None`: not known.
    pub state: Option<String>,
}

impl Answer {
    /// True if the device is in service and no good.
    pub fn is_faulted(&self) -> bool {
        self.state.as_deref().is_some_and(|state| !matches!(state, "ONLINE" | "DEGRADED"))
    }
}

impl Verb for Request {
    const NAME: &'static str = "zpool online";
    const RIGHT: Right = Right::Administrator;
    type Answer = Answer;
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, Refusal> {
        let vdev = find_vdev(session, Action::Online, &self.pool, &self.device)?;
        let unsupported = |action| {
            let message = "operation not supported on this type of vdev";
            Err(Refusal::failed(action, &self.device, Reason::new(Code::Refused, message)))
        };
        if !vdev.is_leaf() {
            return unsupported(Action::Online);
        }
        if self.expand && vdev.space == 0 && is_reserve(&vdev) {
            return unsupported(Action::Expand);
        }
        let command = session.command_line();
        let state = change::online_vdev(session.search(), &self.pool, vdev.guid, self.expand, command)
            .map_err(|error| Refusal::failed(Action::Online, &self.device, error))?;
        Ok(Answer { state: state_word(state) })
    }
}
