//! `zpool resilver`: begins a resilver anew.

use super::{Action, Refusal};
use crate::Session;
use crate::change;
use crate::verbs::{Right, Verb};
use serde::{Deserialize, Serialize};

/// A pool to resilver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Name of the pool.
    pub pool: String,
}

impl Verb for Request {
    const NAME: &'static str = "zpool resilver";
    const RIGHT: Right = Right::Administrator;
    type Answer = ();
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<(), Refusal> {
        change::resilver_pool(session.search(), &self.pool, session.command_line())
            .map_err(|error| Refusal::failed(Action::Resilver, &self.pool, error))
    }
}
