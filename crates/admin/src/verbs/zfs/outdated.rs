//! `zfs upgrade` without operands: file systems that do not have the newest version.
//!
//! Source: docs/on-disk/33-cli.md (sections 2, 5).

use super::lines;
use crate::edit;
use crate::edit::FilesystemVersion;
use crate::edit::values::VERSION;
use crate::verbs::{Reason, Refused, Right, Verb};
use crate::{Problem, Session};
use serde::{Deserialize, Serialize};

/// Looks at the file systems of all pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {}

/// What could be upgraded.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Answer {
    /// File systems of a version below the newest, parents first.
    pub filesystems: Vec<FilesystemVersion>,
    /// Pools and devices that could not be opened.
    pub problems: Vec<Problem>,
}

/// Why nothing is answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    /// The caller may run no such verb.
    #[error("{0}")]
    Denied(Reason),
    /// The file systems of a pool cannot be read.
    #[error("{}{reason}", lines(problems))]
    Unreadable {
        /// Pools and devices that could not be opened by then.
        problems: Vec<Problem>,
        /// Why.
        reason: Reason,
    },
}

from_denied!(Refusal, Refusal::Denied);

impl Refused for Refusal {
    fn reason(&self) -> Reason {
        match self {
            Refusal::Denied(reason) | Refusal::Unreadable { reason, .. } => reason.clone(),
        }
    }
}

impl Verb for Request {
    const NAME: &'static str = "zfs outdated";
    const RIGHT: Right = Right::Anyone;
    type Answer = Answer;
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, Refusal> {
        let (pools, problems) = session.pools(&[]);
        let mut filesystems = Vec::new();
        for pool in &pools {
            match edit::filesystem_versions(pool.pool(), pool.name(), true) {
                Ok(found) => filesystems.extend(found.into_iter().filter(|fs| fs.version < VERSION)),
                Err(error) => return Err(Refusal::Unreadable { problems, reason: error.into() }),
            }
        }
        Ok(Answer { filesystems, problems })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AdminError;
    use crate::verbs::{Code, carried};

    #[test]
    fn requests_answers_and_refusals_cross_a_process() {
        carried(&Request {});
        let old = FilesystemVersion { name: "tank/old".into(), version: 4 };
        let reason = Reason::from(AdminError::NoPool { name: "lost".into() });
        let problems = vec![Problem { what: "lost".into(), reason }];
        carried(&Answer { filesystems: vec![old], problems: problems.clone() });
        let refusal = Refusal::Unreadable { problems, reason: Reason::new(Code::Failed, "damaged") };
        assert_eq!(carried(&refusal).to_string(), "cannot open 'lost': no such pool\ndamaged");
    }
}
