//! `zfs release`: removes holds from snapshots.

use super::hold::{Answer, HoldAction, Refusal, change};
use crate::Session;
use crate::verbs::{Right, Verb};
use serde::{Deserialize, Serialize};

/// A snapshot to release.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Request {
    /// Full name of the snapshot.
    pub snapshot: String,
    /// Tag of the hold.
    pub tag: String,
    /// Also the snapshots of this name of all datasets below (`-r`).
    pub recursive: bool,
}

impl Verb for Request {
    const NAME: &'static str = "zfs release";
    const RIGHT: Right = Right::Delegated(&["release"]);
    type Answer = Answer;
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, Refusal> {
        change(session, HoldAction::Release, &self.snapshot, &self.tag, self.recursive)
    }
}
