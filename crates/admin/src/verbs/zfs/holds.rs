//! `zfs holds`: the holds on snapshots.
//!
//! Source: docs/on-disk/33-cli.md (sections 2, 5), 22-mos-dsl.md (section 5).

use super::operand::{self, NotOpened, Unopened};
use crate::datasets::{self, Walk};
use crate::verbs::{Denied, Right, Verb};
use crate::{Hold, Kind, OpenPool, Session, edit};
use serde::{Deserialize, Serialize};

/// Snapshots whose holds are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// Full names.
    pub snapshots: Vec<String>,
    /// Also of the snapshots of these names of all datasets below (`-r`).
    pub recursive: bool,
}

/// The holds.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Answer {
    /// Full names of the snapshots that were looked at, held or not.
    pub snapshots: Vec<String>,
    /// The holds on them: by snapshot, in the order of the request, then by tag.
    pub holds: Vec<Hold>,
    /// What could not be opened.
    pub unopened: Vec<Unopened>,
}

impl Verb for Request {
    const NAME: &'static str = "zfs holds";
    const RIGHT: Right = Right::Anyone;
    type Answer = Answer;
    type Refusal = Denied;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, Denied> {
        let pools = self.snapshots.iter().map(|name| edit::pool_of(name).to_owned());
        let (pools, problems) = session.pools(&pools.collect::<Vec<_>>());
        let mut answer = Answer::default();
        answer.unopened.extend(operand::told(problems).map(Unopened::Pool));
        for name in &self.snapshots {
            let Some((dataset, snapshot)) = name.split_once('@') else {
                answer.unopened.push(Unopened::NotASnapshot { name: name.clone() });
                continue;
            };
            match self.of(session, &pools, dataset, snapshot, &mut answer.snapshots) {
                Ok(holds) => answer.holds.extend(holds),
                Err(closed) => answer.unopened.push(Unopened::Dataset(closed)),
            }
        }
        Ok(answer)
    }
}

impl Request {
    /// The holds of a snapshot and, if asked for, of those of the same name below; adds the names of those snapshots to
    /// `seen`.
    fn of(
        &self,
        session: &Session<'_>,
        pools: &[OpenPool],
        dataset: &str,
        snapshot: &str,
        seen: &mut Vec<String>,
    ) -> Result<Vec<Hold>, NotOpened> {
        let name = format!("{dataset}@{snapshot}");
        let closed = |error| NotOpened::new(name.as_str(), error);
        let entry = operand::find_name(session, pools, &name).map_err(closed)?;
        let mut entries = vec![entry];
        let pool = pools.iter().find(|pool| dataset.split('/').next() == Some(pool.name()));
        if let (true, Some(pool)) = (self.recursive, pool) {
            let walk = Walk { kinds: vec![Kind::Snapshot], depth: None };
            entries = datasets::walk(pool, dataset, &walk).map_err(closed)?;
            entries.retain(|entry| entry.name().split_once('@').is_some_and(|(_, name)| name == snapshot));
        }
        let mut holds = Vec::new();
        for entry in entries {
            seen.push(entry.name().to_owned());
            holds.extend(entry.holds().map_err(|error| NotOpened::new(entry.name(), error))?);
        }
        Ok(holds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::{Code, Refused, carried};

    #[test]
    fn requests_answers_and_refusals_cross_a_process() {
        carried(&Request { snapshots: vec!["tank@a".into()], recursive: true });
        let hold = Hold { snapshot: "tank@a".into(), tag: "keep".into(), time: 1_700_000_000 };
        let unopened = vec![Unopened::NotASnapshot { name: "tank".into() }];
        let answer = Answer { snapshots: vec!["tank@a".into()], holds: vec![hold], unopened };
        assert_eq!(carried(&answer).unopened[0].to_string(), "'tank' is not a snapshot");
        assert_eq!(carried(&Denied).reason().code, Code::Denied);
    }
}
