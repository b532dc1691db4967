//! `zfs mount` without operands: which file systems are mounted, and where.
//!
//! Source: docs/on-disk/33-cli.md (section 2).

use crate::Session;
use crate::verbs::{Denied, Right, Verb};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Lists all mounts of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {}

/// The mounts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Answer {
    /// In the order of the mount table; none where the process mounts nothing.
    pub mounts: Vec<Mount>,
}

/// A mount of a file system or snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Full name of what is mounted.
    pub dataset: String,
    /// Where.
    pub at: PathBuf,
}

impl Verb for Request {
    const NAME: &'static str = "zfs mounted";
    const RIGHT: Right = Right::Anyone;
    type Answer = Answer;
    type Refusal = Denied;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, Denied> {
        let mounts = session.mounting().map(|mounting| mounting.list()).unwrap_or_default();
        let mounts = mounts.into_iter().map(|mount| Mount { dataset: mount.dataset, at: mount.at });
        Ok(Answer { mounts: mounts.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Search;
    use crate::verbs::carried;

    #[test]
    fn a_process_without_mounts_lists_none() {
        let answer = Session::new(Search::default()).run(&carried(&Request {})).expect("anyone may");
        assert_eq!(answer, Answer::default());
        carried(&Answer { mounts: vec![Mount { dataset: "tank".into(), at: "/tank".into() }] });
    }
}
