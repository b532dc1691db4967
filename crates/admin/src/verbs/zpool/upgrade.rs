//! `zpool upgrade`: enables the features that a pool lacks, as far as its `compatibility` allows them.

use super::ReadRefusal;
use crate::change::{self, Compatibility};
use crate::verbs::{Code, Reason, Refused, Right, Verb};
use crate::{OpenPool, Session, pool_property};
use cenote::FeatureState;
use format::feature::{Feature, Since};
use serde::{Deserialize, Serialize};

/// Version of pools with features.
pub const VERSION: u64 = 5000;

/// A pool to upgrade.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Name of the pool.
    pub pool: String,
    /// Version to upgrade to; `None`: the newest (`-V`).
    #[serde(default)]
    pub version: Option<u64>,
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The pool has a newer version than was asked for.
    Newer {
        /// Its version.
        version: u64,
    },
    /// The pool has the version that was asked for.
    Same {
        /// Its version.
        version: u64,
    },
    /// Features were enabled.
    Enabled {
        /// Their short names; none if the pool lacked none.
        features: Vec<String>,
    },
}

/// Why the pool is as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    /// The caller is no administrator, or the pool cannot be read.
    #[error("{0}")]
    Read(ReadRefusal),
    /// The pool has no features, so this version of Cenote can only read it.
    #[error("cannot upgrade '{pool}': pools of version {version} can only be read by this version of Cenote")]
    Legacy {
        /// Name of the pool.
        pool: String,
        /// Its version.
        version: u64,
    },
    /// The features cannot be enabled.
    #[error("cannot set property for '{pool}': {reason}")]
    Failed {
        /// Name of the pool.
        pool: String,
        /// Why.
        reason: Reason,
    },
}

from_denied!(Refusal, ReadRefusal::Denied);

impl From<ReadRefusal> for Refusal {
    fn from(refusal: ReadRefusal) -> Refusal {
        Refusal::Read(refusal)
    }
}

impl Refused for Refusal {
    fn reason(&self) -> Reason {
        match self {
            Refusal::Read(refusal) => refusal.reason(),
            Refusal::Failed { reason, .. } => reason.clone(),
            Refusal::Legacy { .. } => Reason::new(Code::Unsupported, self),
        }
    }
}

/// The version of a pool's format.
pub(super) fn version_of(pool: &OpenPool) -> u64 {
    pool.pool().spa().version()
}

/// The feature sets that a pool keeps to.
///
/// # Errors
/// The properties of the pool cannot be read.
pub(super) fn compatibility(pool: &OpenPool) -> Result<Compatibility, Reason> {
    let value = pool_property(pool, "compatibility")?;
    let text = value.and_then(|found| found.value.text().map(str::to_owned)).unwrap_or_default();
    // A set that no longer exists limits nothing that could be named.
    Ok(Compatibility::load(&text).unwrap_or(Compatibility::Off))
}

/// The features that a pool lacks, in the order of the tools.
pub(super) fn missing(pool: &OpenPool) -> Vec<&'static Feature> {
    let features = pool.pool().spa().features();
    let is_missing = |(feature, state): &(&'static Feature, FeatureState)| {
        feature.since == Since::V2_3 && !feature.no_upgrade && *state == FeatureState::Disabled
    };
    features.iter().filter(is_missing).map(|(feature, _)| feature).collect()
}

impl Verb for Request {
    const NAME: &'static str = "zpool upgrade";
    const RIGHT: Right = Right::Administrator;
    type Answer = Answer;
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, Refusal> {
        let pool = super::open(session, &self.pool)?;
        let (now, wanted) = (version_of(&pool), self.version.unwrap_or(VERSION));
        if now > wanted {
            return Ok(Answer::Newer { version: now });
        }
        if now < VERSION {
            let is_same = self.version == Some(now);
            return match is_same {
                true => Ok(Answer::Same { version: now }),
                false => Err(Refusal::Legacy { pool: self.pool.clone(), version: now }),
            };
        }
        let set = compatibility(&pool).map_err(|reason| {
            let (pool, problems) = (self.pool.clone(), Vec::new());
            Refusal::Read(ReadRefusal::Unreadable { pool, reason, problems })
        })?;
        let lacks = missing(&pool).into_iter().map(|feature| feature.name);
        let lacks: Vec<&str> = lacks.filter(|name| set.allows(name)).collect();
        if lacks.is_empty() {
            return Ok(Answer::Enabled { features: Vec::new() });
        }
        // It is opened again for change.
        drop(pool);
        let enabled = change::enable_features(session.search(), &self.pool, &lacks, session.command_line())
            .map_err(|error| Refusal::Failed { pool: self.pool.clone(), reason: error.into() })?;
        Ok(Answer::Enabled { features: enabled.into_iter().map(str::to_owned).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::carried;

    #[test]
    fn refusals_cross_a_process() {
        carried(&Request { pool: "tank".into(), version: Some(28) });
        carried(&Answer::Enabled { features: vec!["livelist".into()] });
        let legacy = carried(&Refusal::Legacy { pool: "tank".into(), version: 28 });
        assert_eq!(
            legacy.to_string(),
            "cannot upgrade 'tank': pools of version 28 can only be read by this version of Cenote"
        );
        let denied = carried(&Refusal::from(crate::verbs::Denied));
        assert_eq!((denied.to_string().as_str(), denied.reason().code), ("permission denied", Code::Denied));
    }
}
