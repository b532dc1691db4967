//! What the verbs of `zpool` that only read refuse.

use crate::verbs::{Code, Reason, Refused};
use crate::{AdminError, Problem};
use serde::{Deserialize, Serialize};

/// Why pools are not read, or not all of them. What could not be opened before that stands in `problems`: a caller
/// tells it first.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum ReadRefusal {
    /// The caller may not read them.
    #[error("{0}")]
    Denied(Reason),
    /// The pool that the verb is about cannot be opened.
    #[error("{}", problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Closed {
        /// The pool, and what was found wrong with devices while it was looked for.
        problems: Vec<Problem>,
    },
    /// There is no property of this name.
    #[error("bad property list: invalid property '{property}'")]
    Property {
        /// The name.
        property: String,
        /// What could not be opened before.
        problems: Vec<Problem>,
    },
    /// The pool has no such vdev.
    #[error("no such vdev '{vdev}' in pool")]
    NoVdev {
        /// Name of the pool.
        pool: String,
        /// The vdev as it was named.
        vdev: String,
    },
    /// The objects of a pool cannot be read.
    #[error("{reason}")]
    Unreadable {
        /// Name of the pool.
        pool: String,
        /// Why.
        reason: Reason,
        /// What could not be opened before.
        problems: Vec<Problem>,
    },
    /// How far the background work of a pool is cannot be read.
    #[error("failed to check progress of {pool}: {reason}")]
    NoProgress {
        /// Name of the pool.
        pool: String,
        /// Why.
        reason: Reason,
    },
}

impl ReadRefusal {
    /// The objects of a pool cannot be read. `problems`: what could not be opened before.
    pub(super) fn unreadable(pool: &str, error: AdminError, problems: &[Problem]) -> ReadRefusal {
        ReadRefusal::Unreadable { pool: pool.to_owned(), reason: error.into(), problems: problems.to_vec() }
    }

    /// What could not be opened before the verb was refused, and is not in the words of the refusal.
    pub fn problems(&self) -> &[Problem] {
        match self {
            ReadRefusal::Property { problems, .. } | ReadRefusal::Unreadable { problems, .. } => problems,
            _ => &[],
        }
    }
}

from_denied!(ReadRefusal, ReadRefusal::Denied);

impl Refused for ReadRefusal {
    fn reason(&self) -> Reason {
        match self {
            ReadRefusal::Denied(reason)
            | ReadRefusal::Unreadable { reason, .. }
            | ReadRefusal::NoProgress { reason, .. } => reason.clone(),
            // The pool itself comes last.
            ReadRefusal::Closed { problems } => match problems.last() {
                Some(problem) => problem.reason.clone(),
                None => Reason::new(Code::NoPool, "no such pool"),
            },
            ReadRefusal::Property { .. } => Reason::new(Code::Value, self),
            ReadRefusal::NoVdev { vdev, .. } => {
                Reason { about: vec![vdev.clone()], ..Reason::new(Code::Refused, self) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::carried;

    #[test]
    fn refusals_cross_a_process() {
        let problems = vec![Problem::missing_pool("tank")];
        let closed = carried(&ReadRefusal::Closed { problems: problems.clone() });
        assert_eq!(closed.to_string(), "cannot open 'tank': no such pool");
        assert_eq!(closed.reason().code, Code::NoPool);
        let property = carried(&ReadRefusal::Property { property: "nosuch".into(), problems });
        assert_eq!(property.problems().len(), 1);
        assert_eq!(property.to_string(), "bad property list: invalid property 'nosuch'");
        carried(&ReadRefusal::NoVdev { pool: "tank".into(), vdev: "sda".into() });
        let reason = Reason::new(Code::Failed, "checksum");
        let unreadable = ReadRefusal::NoProgress { pool: "tank".into(), reason };
        assert_eq!(carried(&unreadable).to_string(), "failed to check progress of tank: checksum");
    }
}
