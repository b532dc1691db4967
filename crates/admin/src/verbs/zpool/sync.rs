//! `zpool sync`: writes everything that was changed in a pool to its devices.

use super::{Action, Refusal};
use crate::Session;
use crate::change::{self, ChangeError};
use crate::verbs::{Right, Verb};
use serde::{Deserialize, Serialize};

/// A pool to sync.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Name of the pool.
    pub pool: String,
    /// A pool that cannot be changed holds nothing to write, and is passed over.
    #[serde(default)]
    pub unless_read_only: bool,
}

impl Verb for Request {
    const NAME: &'static str = "zpool sync";
    const RIGHT: Right = Right::Anyone;
    type Answer = ();
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<(), Refusal> {
        match change::sync_pool(session.search(), &self.pool) {
            Err(ChangeError::ReadOnly { .. }) if self.unless_read_only => Ok(()),
            outcome => outcome.map_err(|error| Refusal::failed(Action::Sync, &self.pool, error)),
        }
    }
}
