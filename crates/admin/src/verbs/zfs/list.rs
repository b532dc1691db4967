//! `zfs list`: datasets, snapshots and bookmarks, with properties, in an order.
//!
//! The answer is collected, because it is sorted; it takes some hundred bytes for each property of each dataset.
//!
//! Source: docs/on-disk/33-cli.md (sections 2, 4, 10).

use super::select::{self, DatasetRow, Properties, Reader, Selection};
use super::{Entry, Unopened};
use crate::verbs::{Right, Verb};
use crate::{Session, Value};
use format::prop::{self, Prop};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;

pub use super::select::Refusal;

/// Datasets to list. By themselves all file systems and volumes are listed, and operands of any kind.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// Which datasets.
    pub selection: Selection,
    /// Properties that are wanted of each, by the names of [`format::prop::DATASET`], of users, or of owners
    /// (`userused@1000`).
    pub properties: Vec<String>,
    /// What the list is sorted by, the first key first; then by name, snapshots in the order in which they were taken.
    pub sort: Vec<SortKey>,
}

/// A property to sort by. Numbers are sorted by size, all other values as text; datasets without a value come last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SortKey {
    /// Name of the property.
    pub property: String,
    /// The greatest first (`-S`).
    pub descending: bool,
}

/// The datasets.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Answer {
    /// In order.
    pub datasets: Vec<DatasetRow>,
    /// What could not be opened.
    pub unopened: Vec<Unopened>,
}

impl Verb for Request {
    const NAME: &'static str = "zfs list";
    const RIGHT: Right = Right::Anyone;
    type Answer = Answer;
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, Refusal> {
        let mut selected = self.selection.select(session, Reader::List)?;
        let entries = std::mem::take(&mut selected.entries);
        match self.rows(session, &selected.properties(session), entries) {
            Ok(datasets) => Ok(Answer { datasets, unopened: selected.unopened }),
            Err(error) => Err(selected.unreadable(error)),
        }
    }
}

impl Request {
    fn rows(
        &self,
        session: &Session<'_>,
        read: &Properties<'_, '_>,
        entries: Vec<Entry>,
    ) -> Result<Vec<DatasetRow>, select::Unreadable> {
        let mut keyed = Vec::new();
        for entry in entries {
            let keys = self.sort.iter().map(|key| Ok(read.of(&entry, &key.property)?.value));
            keyed.push((keys.collect::<Result<Vec<Value>, _>>()?, entry));
        }
        // Stable: equal keys stay in the order of the selection, also of a reversed one.
        keyed.sort_by(|(a, _), (b, _)| {
            let by = self.sort.iter().zip(a.iter().zip(b)).map(|(key, (a, b))| compare(key, a, b));
            by.fold(Ordering::Equal, Ordering::then)
        });
        let row = |(_, entry): (Vec<Value>, Entry)| {
            session.step();
            let values = self.properties.iter().map(|name| Ok((name.clone(), read.of(&entry, name)?)));
            Ok(DatasetRow::new(&entry, values.collect::<Result<_, _>>()?))
        };
        keyed.into_iter().map(row).collect()
    }
}

/// Values before missing ones, in either direction.
fn compare(key: &SortKey, a: &Value, b: &Value) -> Ordering {
    let known = prop::dataset(&key.property);
    let is_index = known.is_some_and(|prop| prop.kind == prop::Kind::Index);
    let by = match (a, b) {
        (Value::Absent, Value::Absent) => return Ordering::Equal,
        (Value::Absent, _) => return Ordering::Greater,
        (_, Value::Absent) => return Ordering::Less,
        (Value::Number(a), Value::Number(b)) if !is_index => a.cmp(b),
        _ => text(known, a).cmp(&text(known, b)),
    };
    if key.descending { by.reverse() } else { by }
}

/// A value as text: of an index, the word that its number stands for.
fn text(known: Option<&Prop>, value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        Value::Number(number) => {
            let word = known.and_then(|prop| prop.index_name(*number));
            word.map_or_else(|| number.to_string(), str::to_owned)
        }
        Value::Absent => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Depth, NotOpened, Operand};
    use super::*;
    use crate::verbs::{Code, Reason, Refused, carried};
    use crate::{Kind, Property};

    #[test]
    fn requests_answers_and_refusals_cross_a_process() {
        let request = Request {
            selection: Selection {
                operands: vec![Operand { text: "./x".into(), path: Some("/home/x".into()) }],
                kinds: Some(vec![Kind::Snapshot]),
                depth: Depth::Levels(2),
            },
            properties: vec!["name".into(), "used".into()],
            sort: vec![SortKey { property: "used".into(), descending: true }],
        };
        carried(&request);
        let reason = Reason::new(Code::NoDataset, "dataset does not exist");
        let unopened = vec![Unopened::Dataset(NotOpened { name: "tank/b".into(), reason: reason.clone() })];
        let row = DatasetRow {
            name: "tank/a".into(),
            kind: Kind::Filesystem,
            pool: "tank".into(),
            create_txg: 7,
            properties: vec![("used".into(), Property::computed(512))],
        };
        carried(&Answer { datasets: vec![row], unopened: unopened.clone() });
        let name = Some("tank/a".to_owned());
        let refusal = Refusal::Unreadable { unopened, name, reason: Reason::new(Code::Failed, "damaged") };
        assert_eq!(
            carried(&refusal).to_string(),
            "cannot open 'tank/b': dataset does not exist\ntank/a: damaged"
        );
        assert_eq!(refusal.reason().code, Code::Failed);
    }

    #[test]
    fn values_are_sorted_by_what_they_are() {
        let order = |property: &str, a: Value, b: Value, descending| {
            compare(&SortKey { property: property.to_owned(), descending }, &a, &b)
        };
        assert_eq!(order("used", 9.into(), 10.into(), false), Ordering::Less);
        assert_eq!(order("used", 9.into(), 10.into(), true), Ordering::Greater);
        assert_eq!(order("a:b", "9".into(), "10".into(), false), Ordering::Greater);
        // `lz4` has a greater number than `gzip`, and than `zstd` a smaller one.
        let number = |word: &str| {
            let prop = prop::dataset("compression").expect("known");
            (0..1000).find(|n| prop.index_name(*n) == Some(word)).expect("an algorithm").into()
        };
        assert_eq!(order("compression", number("lz4"), number("gzip"), false), Ordering::Greater);
        assert_eq!(order("quota", Value::Absent, 1.into(), false), Ordering::Greater);
        assert_eq!(order("quota", Value::Absent, 1.into(), true), Ordering::Greater);
    }
}
