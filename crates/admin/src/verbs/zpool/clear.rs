//! `zpool clear`: forgets the errors of a pool or of one device, and lets a suspended pool go on.

use super::{Action, Refusal, find_vdev};
use crate::Session;
use crate::change;
use crate::verbs::{Right, Verb};
use serde::{Deserialize, Serialize};

/// Errors to clear.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Name of the pool.
    pub pool: String,
    /// The device; `None`: all of the pool.
    #[serde(default)]
    pub device: Option<String>,
    /// Only checks the request (`-n`).
    #[serde(default)]
    pub dry_run: bool,
}

impl Verb for Request {
    const NAME: &'static str = "zpool clear";
    const RIGHT: Right = Right::Administrator;
    type Answer = ();
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<(), Refusal> {
        let device = self.device.as_deref();
        let vdev = device.map(|device| find_vdev(session, Action::Clear, &self.pool, device)).transpose()?;
        if self.dry_run {
            return Ok(());
        }
        let guid = vdev.map(|vdev| vdev.guid);
        change::clear_pool(session.search(), &self.pool, guid, session.command_line())
            .map_err(|error| Refusal::failed(Action::Clear, device.unwrap_or(&self.pool), error))
    }
}
