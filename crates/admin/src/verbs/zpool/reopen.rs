//! `zpool reopen`: opens the devices of a pool again.

use super::{Action, Refusal};
use crate::Session;
use crate::change;
use crate::verbs::{Right, Verb};
use serde::{Deserialize, Serialize};

/// A pool whose devices are opened again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Name of the pool.
    pub pool: String,
    /// A scrub that is under way gives way to a resilver of devices that came back; false: `-n`.
    #[serde(default)]
    pub restart_scrub: bool,
}

impl Verb for Request {
    const NAME: &'static str = "zpool reopen";
    const RIGHT: Right = Right::Administrator;
    type Answer = ();
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<(), Refusal> {
        change::reopen_pool(session.search(), &self.pool, self.restart_scrub, session.command_line())
            .map_err(|error| Refusal::failed(Action::Reopen, &self.pool, error))
    }
}
