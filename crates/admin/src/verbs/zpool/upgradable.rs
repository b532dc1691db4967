//! `zpool upgrade` without a pool: the version of each pool, and the features that it lacks.

use super::{ReadRefusal, upgrade};
use crate::change::Compatibility;
use crate::verbs::{Reason, Right, Verb};
use crate::{OpenPool, Problem, Session};
use serde::{Deserialize, Serialize};

/// Pools to look at.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// Names of the pools; none: all.
    pub pools: Vec<String>,
}

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The pools, by name.
    pub pools: Vec<Row>,
    /// What could not be opened or looked at.
    pub problems: Vec<Problem>,
}

/// One pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Name of the pool.
    pub pool: String,
    /// Version of its format.
    pub version: u64,
    /// Short names of the features that it lacks and its `compatibility` allows, in the order of the tools; or why the
    /// property cannot be read.
    pub missing: Result<Vec<String>, Reason>,
}

impl Verb for Request {
    const NAME: &'static str = "zpool upgradable";
    const RIGHT: Right = Right::Administrator;
    type Answer = Answer;
    type Refusal = ReadRefusal;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, ReadRefusal> {
        let (opened, problems) = session.pools(&self.pools);
        let missing = |pool: &OpenPool| {
            let set = upgrade::compatibility(pool)?;
            let lacks = upgrade::missing(pool).into_iter().map(|feature| feature.name);
            Ok(lacks.filter(|name| allows(&set, name)).map(str::to_owned).collect())
        };
        let row = |pool: &OpenPool| Row {
            pool: pool.name().to_owned(),
            version: upgrade::version_of(pool),
            missing: missing(pool),
        };
        Ok(Answer { pools: opened.iter().map(row).collect(), problems })
    }
}

/// A pool that keeps to no features at all is listed with all of them: they could be enabled.
fn allows(set: &Compatibility, feature: &str) -> bool {
    *set == Compatibility::Legacy || set.allows(feature)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::{Code, carried};

    #[test]
    fn requests_and_answers_cross_a_process() {
        carried(&Request { pools: vec!["tank".into()] });
        let lacks = Row { pool: "tank".into(), version: 5000, missing: Ok(vec!["livelist".into()]) };
        let missing = Err(Reason::new(Code::Failed, "checksum"));
        let damaged = Row { pool: "pond".into(), version: 28, missing };
        carried(&Answer { pools: vec![lacks, damaged], problems: vec![Problem::missing_pool("lake")] });
    }
}
