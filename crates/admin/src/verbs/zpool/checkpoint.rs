//! `zpool checkpoint`: keeps the present state of a pool, to which an import can go back, or gives it up.

use super::{Action, Refusal};
use crate::Session;
use crate::change;
use crate::verbs::{Right, Verb};
use serde::{Deserialize, Serialize};

/// A pool of which a state is kept or given up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Name of the pool.
    pub pool: String,
    /// Give up the checkpoint (`-d`). The space that it held is freed in the background.
    #[serde(default)]
    pub discard: bool,
}

impl Verb for Request {
    const NAME: &'static str = "zpool checkpoint";
    const RIGHT: Right = Right::Administrator;
    type Answer = ();
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<(), Refusal> {
        let action = if self.discard { Action::DiscardCheckpoint } else { Action::Checkpoint };
        change::checkpoint_pool(session.search(), &self.pool, self.discard, session.command_line())
            .map_err(|error| Refusal::failed(action, &self.pool, error))
    }
}
