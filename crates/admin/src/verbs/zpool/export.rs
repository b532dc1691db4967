//! `zpool export`: unmounts a pool and lets it go, so that any machine may import it.

use super::{Action, Refusal, let_go};
use crate::Session;
use crate::change;
use crate::verbs::{Right, Verb};
use serde::{Deserialize, Serialize};

/// A pool to export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Name of the pool.
    pub pool: String,
    /// Also if a spare of the pool is in use by another pool (`-f`).
    #[serde(default)]
    pub force: bool,
}

impl Verb for Request {
    const NAME: &'static str = "zpool export";
    const RIGHT: Right = Right::Administrator;
    type Answer = ();
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<(), Refusal> {
        let close = || change::export_pool(session.search(), &self.pool, session.command_line());
        let_go(session, &self.pool, Action::Export, self.force, close)
    }
}
