//! `zpool import` without a pool: the pools that could be imported.

use crate::change;
use crate::verbs::{Reason, Refused, Right, Verb};
use crate::{Candidate, CandidateVdev, Problem, Session};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Pools to look for; the session's search says where, and whether destroyed ones are meant.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// The caller has named the places to search (`-d`): one that does not exist holds no pools, and is no problem.
    pub names_places: bool,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The pools that are not imported, by name and guid.
    pub pools: Vec<Found>,
    /// What could not be looked at.
    pub problems: Vec<Problem>,
}

/// A pool that is not imported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Name of the pool.
    pub name: String,
    /// Guid of the pool.
    pub guid: u64,
    /// State that it would have (`ONLINE`, `DEGRADED`, …).
    pub state: String,
    /// Why it would have that state; empty: nothing to tell.
    pub reason: String,
    /// It was destroyed.
    pub is_destroyed: bool,
    /// Text on the first thing that people should know about it.
    pub status: Option<String>,
    /// Text on what can be done with it.
    pub action: String,
    /// The pool's property `comment`.
    pub comment: Option<String>,
    /// Id of the message that tells more.
    pub message_id: Option<String>,
    /// Top-level vdevs that hold data.
    pub vdevs: Vec<FoundVdev>,
    /// Vdevs for dedup tables.
    pub dedup: Vec<FoundVdev>,
    /// Vdevs for metadata and small blocks.
    pub special: Vec<FoundVdev>,
    /// Log devices.
    pub logs: Vec<FoundVdev>,
    /// Cache devices.
    pub cache: Vec<FoundVdev>,
    /// Hot spares.
    pub spares: Vec<FoundVdev>,
    /// Some top-level vdevs are known only by their number.
    pub has_unknown_vdevs: bool,
}

/// A vdev of a pool that is not imported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundVdev {
    /// Its name as the commands show it.
    pub name: String,
    /// Its state (`ONLINE`, `UNAVAIL`, …); of a cache device none.
    pub state: String,
    /// Why; empty: nothing to tell.
    pub reason: String,
    /// Vdevs below this one.
    pub children: Vec<FoundVdev>,
}

/// Why nothing was looked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    /// The caller is no administrator.
    #[error("{0}")]
    Denied(Reason),
    /// A cache file cannot be read.
    #[error("{0}")]
    CacheFile(Reason),
}

from_denied!(Refusal, Refusal::Denied);

impl Refused for Refusal {
    fn reason(&self) -> Reason {
        let (Refusal::Denied(reason) | Refusal::CacheFile(reason)) = self;
        reason.clone()
    }
}

impl From<&Candidate> for Found {
    fn from(pool: &Candidate) -> Found {
        let vdevs = |vdevs: &[CandidateVdev]| vdevs.iter().map(FoundVdev::from).collect();
        Found {
            name: pool.name.clone(),
            guid: pool.guid.0,
            state: pool.health_name().to_owned(),
            reason: pool.reason.to_owned(),
            is_destroyed: pool.is_destroyed(),
            status: pool.status_text(),
            action: pool.action_text(),
            comment: pool.config.comment.clone().filter(|comment| !comment.is_empty()),
            message_id: pool.message_id().map(str::to_owned),
            vdevs: vdevs(&pool.vdevs),
            dedup: vdevs(&pool.dedup),
            special: vdevs(&pool.special),
            logs: vdevs(&pool.logs),
            cache: vdevs(&pool.cache),
            spares: vdevs(&pool.spares),
            has_unknown_vdevs: pool.has_unknown_vdevs,
        }
    }
}

impl From<&CandidateVdev> for FoundVdev {
    fn from(vdev: &CandidateVdev) -> FoundVdev {
        FoundVdev {
            name: vdev.name.clone(),
            state: vdev.state.to_owned(),
            reason: vdev.reason.to_owned(),
            children: vdev.children.iter().map(FoundVdev::from).collect(),
        }
    }
}

impl Verb for Request {
    const NAME: &'static str = "zpool importable";
    const RIGHT: Right = Right::Administrator;
    type Answer = Answer;
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, Refusal> {
        let mut found =
            change::importable(session.search()).map_err(|error| Refusal::CacheFile(error.into()))?;
        found.problems.retain(|problem| !self.names_places || Path::new(&problem.what).exists());
        Ok(Answer { pools: found.pools.iter().map(Found::from).collect(), problems: found.problems })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::{Code, carried};

    #[test]
    fn requests_and_answers_cross_a_process() {
        carried(&Request { names_places: true });
        let vdev = CandidateVdev {
            name: "sda".into(),
            state: "UNAVAIL",
            reason: "cannot open",
            children: Vec::new(),
        };
        let mirror =
            CandidateVdev { name: "mirror-0".into(), state: "DEGRADED", reason: "", children: vec![vdev] };
        let vdev = carried(&FoundVdev::from(&mirror));
        assert_eq!(
            (vdev.children[0].state.as_str(), vdev.children[0].reason.as_str()),
            ("UNAVAIL", "cannot open")
        );
        let reason = Reason::new(Code::Failed, "/c: no cache file");
        carried(&Refusal::CacheFile(reason));
        carried(&Answer { pools: Vec::new(), problems: vec![Problem::missing_pool("tank")] });
    }
}
