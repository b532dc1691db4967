//! `zpool scrub`: reads and checks every block of a pool and repairs what is damaged; also pauses and stops that.

use super::{Action, Refusal};
use crate::Session;
use crate::change::{self, Scrub};
use crate::verbs::{Right, Verb};
use serde::{Deserialize, Serialize};

/// A pool to scrub.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Name of the pool.
    pub pool: String,
    /// What to do.
    pub what: Scrub,
}

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The pool has a checkpoint: blocks that only the checkpoint references are not scrubbed.
    pub has_checkpoint: bool,
}

impl Verb for Request {
    const NAME: &'static str = "zpool scrub";
    const RIGHT: Right = Right::Administrator;
    type Answer = Answer;
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, Refusal> {
        let action = match self.what {
            Scrub::Start | Scrub::Newer | Scrub::Errors => Action::Scrub,
            Scrub::Pause => Action::PauseScrub,
            Scrub::Stop => Action::StopScrub,
        };
        change::scrub_pool(session.search(), &self.pool, self.what, session.command_line())
            .map(|has_checkpoint| Answer { has_checkpoint })
            .map_err(|error| Refusal::failed(action, &self.pool, error))
    }
}
