//! `zpool destroy`: says in the labels that the pool is not wanted any more. `zpool import -D` brings it back until
//! something else is written to its devices.

use super::{Action, Refusal, let_go};
use crate::Session;
use crate::change;
use crate::verbs::{Right, Verb};
use serde::{Deserialize, Serialize};

/// A pool to destroy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Name of the pool.
    pub pool: String,
}

impl Verb for Request {
    const NAME: &'static str = "zpool destroy";
    const RIGHT: Right = Right::Administrator;
    type Answer = ();
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<(), Refusal> {
        let close = || change::destroy_pool(session.search(), &self.pool, session.command_line());
        let_go(session, &self.pool, Action::Destroy, false, close)
    }
}
