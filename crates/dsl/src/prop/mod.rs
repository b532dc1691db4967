//! Properties: what is stored, where a value comes from, and the values that are computed
//! (docs/on-disk/22-mos-dsl.md, section 6; docs/on-disk/33-cli.md, section 10).
//!
//! A stored value is looked for in the dataset itself and then, if the property is inherited, in
//! one directory after the other up to the root. In each directory the order is `p$iuv` (if it is
//! an index number known here), `p`, and `p$recvd` unless `p$inherit` hides it.
//!
//! # What always holds
//! - A value that is damaged or unknown costs only its own property.
//! - The raw value stays as stored: names of index numbers belong to [`exact`] and to the tables
//!   of `format::prop`.

mod computed;
mod stored;

pub use stored::StoredProps;

use crate::DslError;
use crate::bookmark::Bookmark;
use crate::dataset::{Dataset, DatasetKind};
use format::prop::{self as table, DatasetProp, Fallback, Kind};

/// Part of a stored key that marks a received value.
const RECEIVED: &str = "$recvd";
/// Part that hides a received value.
const INHERIT: &str = "$inherit";
/// Part that carries an index number older software cannot represent.
const INDEX_UNKNOWN: &str = "$iuv";

/// A value as it is stored or computed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PropValue {
    /// A number: also the number of an index name, a ratio in hundredths, a time in seconds.
    Number(u64),
    /// A string.
    String(String),
}

impl PropValue {
    /// The number, if it is one.
    pub fn number(&self) -> Option<u64> {
        match self {
            PropValue::Number(n) => Some(*n),
            PropValue::String(_) => None,
        }
    }

    /// The string, if it is one.
    pub fn string(&self) -> Option<&str> {
        match self {
            PropValue::String(s) => Some(s),
            PropValue::Number(_) => None,
        }
    }
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Set nowhere.
    Default,
    /// Set here.
    Local,
    /// Set on this dataset above.
    Inherited(String),
    /// Came with a stream.
    Received,
    /// Of this mount only.
    Temporary,
    /// Computed, or fixed at creation.
    None,
}

impl Source {
    /// The words that the tools print.
    pub fn text(&self) -> String {
        match self {
            Source::Default => "default".to_owned(),
            Source::Local => "local".to_owned(),
            Source::Inherited(from) => format!("inherited from {from}"),
            Source::Received => "received".to_owned(),
            Source::Temporary => "temporary".to_owned(),
            Source::None => "-".to_owned(),
        }
    }
}

/// A property's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// The value.
    pub raw: PropValue,
    /// Where it comes from.
    pub source: Source,
    /// The value that came with a stream to this dataset, used or not.
    pub received: Option<PropValue>,
}

impl Value {
    fn computed(raw: PropValue) -> Value {
        Value { raw, source: Source::None, received: None }
    }
}

fn applies(prop: &DatasetProp, dataset: &Dataset, kind: DatasetKind) -> Result<bool, DslError> {
    let own = match kind {
        DatasetKind::Filesystem => table::FS,
        DatasetKind::Volume => table::VOL,
        DatasetKind::Snapshot => table::SNAP,
    };
    if !prop.applies_to(own) {
        return Ok(false);
    }
    // What a snapshot has in common with heads it has only if its head is of the right kind.
    if kind == DatasetKind::Snapshot && prop.name != "volsize" && prop.applies_to(table::FS | table::VOL) {
        let head = if dataset.is_volume()? { table::VOL } else { table::FS };
        return Ok(prop.applies_to(head));
    }
    if kind == DatasetKind::Snapshot && prop.name == "volsize" {
        return dataset.is_volume();
    }
    Ok(true)
}

/// The value of the property `name` of a dataset: of the table of `format::prop`, a user property
/// (`module:name`), `written@SNAPSHOT` or `written#BOOKMARK`. `None`: the property does not apply
/// to this kind of dataset, or it has no value here.
pub fn get(dataset: &Dataset, name: &str) -> Result<Option<Value>, DslError> {
    if let Some(rest) = name.strip_prefix("written@").or_else(|| name.strip_prefix("written#")) {
        let number = computed::written_since(dataset, name.contains('#'), rest)?;
        return Ok(number.map(|n| Value::computed(PropValue::Number(n))));
    }
    if name.contains(':') {
        return user(dataset, name);
    }
    let prop = table::dataset(name).ok_or_else(|| DslError::NoProperty { name: name.to_owned() })?;
    one(dataset, dataset.kind()?, prop)
}

fn one(dataset: &Dataset, kind: DatasetKind, prop: &DatasetProp) -> Result<Option<Value>, DslError> {
    if !applies(prop, dataset, kind)? {
        return Ok(None);
    }
    match computed::value(dataset, kind, prop)? {
        computed::Computed::Value(value) => Ok(Some(value)),
        computed::Computed::Absent => Ok(None),
        computed::Computed::Stored => native(dataset, prop).map(Some),
    }
}

/// Every visible property that has a value here, in the order of the table, then the user
/// properties by name.
pub fn all(dataset: &Dataset) -> Result<Vec<(String, Value)>, DslError> {
    let kind = dataset.kind()?;
    let mut values = Vec::new();
    for prop in table::DATASET.iter().filter(|p| p.visible) {
        match one(dataset, kind, prop) {
            Ok(Some(value)) => values.push((prop.name.to_owned(), value)),
            Ok(None) => {}
            Err(cause @ DslError::StoredValue { .. }) => {
                tracing::warn!(dataset = dataset.name(), property = prop.name, "{cause}");
            }
            Err(cause) => return Err(cause),
        }
    }
    values.append(&mut all_user(dataset)?);
    Ok(values)
}

/// The user properties that have a value here, by name.
pub fn all_user(dataset: &Dataset) -> Result<Vec<(String, Value)>, DslError> {
    let mut names: Vec<String> = Vec::new();
    let own = if dataset.is_snapshot() { Some(stored::of_snapshot(dataset)?) } else { None };
    for props in own.iter().map(|p| Ok(&**p)).chain(dataset.dir().ancestry().map(stored::of_dir)) {
        names.extend(props?.base_names().filter(|n| n.contains(':')).map(str::to_owned));
    }
    names.sort();
    names.dedup();
    let mut values = Vec::new();
    for name in names {
        if let Some(value) = user(dataset, &name)? {
            values.push((name, value));
        }
    }
    Ok(values)
}

/// The visible properties of a bookmark, in the order of the table.
pub fn all_of_bookmark(mark: &Bookmark) -> Result<Vec<(String, Value)>, DslError> {
    computed::of_bookmark(mark)
}

fn user(dataset: &Dataset, name: &str) -> Result<Option<Value>, DslError> {
    let found = stored::find(dataset, name, true, &|_| true)?;
    let received = stored::received(dataset, name)?;
    Ok(found.map(|(raw, source)| Value { raw, source, received }))
}

/// Looks a property of the table up in what is stored.
fn native(dataset: &Dataset, prop: &DatasetProp) -> Result<Value, DslError> {
    let usable = |value: &PropValue| match (prop.kind, value) {
        (Kind::Index, PropValue::Number(n)) => prop.index_name(*n).is_some(),
        (Kind::Number, PropValue::Number(_)) | (Kind::Text, PropValue::String(_)) => true,
        _ => false,
    };
    let found = stored::find(dataset, prop.name, prop.inherits(), &usable)?;
    let received = stored::received(dataset, prop.name)?;
    let (raw, source) = match found {
        Some((raw, source)) if usable(&raw) => (raw, source),
        _ => (fallback(prop), Source::Default),
    };
    Ok(Value { raw, source, received })
}

/// The number that holds for a property of the table, whether or not it applies to this kind of dataset.
/// Unlike [`get`] this reads nothing of the dataset's contents.
pub fn stored_number(dataset: &Dataset, name: &str) -> Result<u64, DslError> {
    let prop = table::dataset(name).ok_or_else(|| DslError::NoProperty { name: name.to_owned() })?;
    Ok(native(dataset, prop)?.raw.number().unwrap_or(0))
}

fn fallback(prop: &DatasetProp) -> PropValue {
    match prop.fallback {
        Fallback::Number(n) => PropValue::Number(n),
        Fallback::Text(text) => PropValue::String(text.to_owned()),
        Fallback::None if prop.kind == Kind::Text => PropValue::String(String::new()),
        Fallback::None => PropValue::Number(0),
    }
}

/// A number stored in the dataset's own directory, not inherited: quotas and reservations.
pub(crate) fn own_number(dataset: &Dataset, name: &str) -> Result<Option<u64>, DslError> {
    if dataset.is_snapshot() {
        return Ok(None);
    }
    let found = stored::find(dataset, name, false, &|_| true)?;
    Ok(found.and_then(|(raw, _)| raw.number()))
}

/// A value in the exact form that scripts get (`zfs get -p`): numbers in full, ratios with two
/// decimals, index names.
pub fn exact(name: &str, value: &PropValue) -> String {
    let number = match value {
        PropValue::String(text) => return text.clone(),
        PropValue::Number(n) => *n,
    };
    match name {
        "compressratio" | "refcompressratio" => format!("{}.{:02}", number / 100, number % 100),
        "filesystem_limit" | "snapshot_limit" | "filesystem_count" | "snapshot_count"
            if number == u64::MAX =>
        {
            "none".to_owned()
        }
        _ => match table::dataset(name).and_then(|p| p.index_name(number)) {
            Some(text) => text.to_owned(),
            None => number.to_string(),
        },
    }
}
