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

impl Verb for Request {
    const NAME: &'static str = "zpool scrub";
    const RIGHT: Right = Right::Administrator;
    type Answer = ();
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<(), Refusal> {
        let action = match self.what {
            Scrub::Start | Scrub::Newer | Scrub::Errors => Action::Scrub,
            Scrub::Pause => Action::PauseScrub,
            Scrub::Stop => Action::StopScrub,
        };
        change::scrub_pool(session.search(), &self.pool, self.what, session.command_line())
            .map_err(|error| Refusal::failed(action, &self.pool, error))
    }
}
