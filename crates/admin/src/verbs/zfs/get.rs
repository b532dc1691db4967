//! `zfs get`: properties of datasets, snapshots and bookmarks.
//!
//! The answer is collected: its properties decide the widths of columns.
//!
//! Source: docs/on-disk/33-cli.md (sections 2, 4, 10).

use super::select::{DatasetRow, Properties, Reader, Selection, Unreadable};
use super::{Entry, Unopened};
use crate::verbs::{Right, Verb};
use crate::{Property, Session};
use format::prop;
use serde::{Deserialize, Serialize};

pub use super::select::Refusal;

/// Properties that are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wanted {
    /// All that a dataset has: those that are shown, in the order of [`format::prop::DATASET`], then those of users by
    /// name. One that does not apply or has no value is left out.
    All,
    /// These, in this order, also where they do not apply.
    Named(Vec<String>),
}

/// Datasets whose properties are wanted. Without kinds, operands of any kind, and everything below them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Which datasets.
    pub selection: Selection,
    /// Which properties.
    pub properties: Wanted,
}

/// The properties.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Answer {
    /// Datasets by name, snapshots in the order in which they were taken.
    pub datasets: Vec<DatasetRow>,
    /// What could not be opened.
    pub unopened: Vec<Unopened>,
}

impl Verb for Request {
    const NAME: &'static str = "zfs get";
    const RIGHT: Right = Right::Anyone;
    type Answer = Answer;
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, Refusal> {
        let mut selected = self.selection.select(session, Reader::Get)?;
        let entries = std::mem::take(&mut selected.entries);
        let read = selected.properties(session);
        let rows = entries.iter().map(|entry| {
            session.step();
            Ok(DatasetRow::new(entry, self.properties.of(entry, &read)?))
        });
        match rows.collect() {
            Ok(datasets) => Ok(Answer { datasets, unopened: selected.unopened }),
            Err(error) => Err(selected.unreadable(error)),
        }
    }
}

impl Wanted {
    /// Name and value of each for one dataset.
    fn of(&self, entry: &Entry, read: &Properties<'_, '_>) -> Result<Vec<(String, Property)>, Unreadable> {
        if let Wanted::Named(names) = self {
            return names.iter().map(|name| Ok((name.clone(), read.of(entry, name)?))).collect();
        }
        let failed = |error| (Some(entry.name().to_owned()), error);
        let mut found = Vec::new();
        for known in prop::DATASET.iter().filter(|known| known.visible && known.name != "name") {
            if let Some(property) = entry.property(known.name).map_err(failed)? {
                found.push((known.name.to_owned(), property));
            }
        }
        found.extend(entry.user_properties().map_err(failed)?);
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Depth, Operand};
    use super::*;
    use crate::verbs::{Code, Denied, Reason, Refused, carried};
    use crate::{Kind, Source, Value};

    #[test]
    fn requests_answers_and_refusals_cross_a_process() {
        let selection = Selection { operands: vec![Operand::name("tank#m")], kinds: None, depth: Depth::All };
        carried(&Request { selection: selection.clone(), properties: Wanted::All });
        carried(&Request { selection, properties: Wanted::Named(vec!["a:b".into()]) });
        let received = Property {
            value: "yes".into(),
            source: Source::Inherited("tank".into()),
            received: Some(Value::Number(1)),
        };
        let row = DatasetRow {
            name: "tank/a@s".into(),
            kind: Kind::Snapshot,
            pool: "tank".into(),
            create_txg: 7,
            properties: vec![("a:b".into(), received)],
        };
        carried(&Answer { datasets: vec![row], unopened: Vec::new() });
        let reason = Reason::new(Code::Failed, "damaged");
        let refusal = Refusal::Unreadable { unopened: Vec::new(), name: None, reason };
        assert_eq!(carried(&refusal).to_string(), "damaged");
        assert_eq!(carried(&Refusal::from(Denied)).reason().code, Code::Denied);
    }
}
