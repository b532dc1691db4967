//! `zpool reguid`: gives a pool another guid.

use super::{Action, Refusal};
use crate::Session;
use crate::change;
use crate::verbs::{Right, Verb};
use format::PoolGuid;
use serde::{Deserialize, Serialize};

/// A pool that gets another guid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Name of the pool.
    pub pool: String,
    /// The guid; `None`: a random one.
    #[serde(default)]
    pub guid: Option<u64>,
}

impl Verb for Request {
    const NAME: &'static str = "zpool reguid";
    const RIGHT: Right = Right::Administrator;
    type Answer = ();
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<(), Refusal> {
        let guid = self.guid.map(PoolGuid);
        change::reguid_pool(session.search(), &self.pool, guid, session.command_line())
            .map_err(|error| Refusal::failed(Action::Reguid, &self.pool, error))
    }
}
