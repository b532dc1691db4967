//! Properties: stored values, their sources, and computed values (docs/on-disk/22-mos-dsl.md, section 6;
//! docs/on-disk/33-cli.md, section 10).
//!
//! A stored value is looked up in the dataset itself and then, if the property is inheritable, in each
//! directory up to the root. In each directory the order is `p$iuv` (if it is a known index number), `p`, and
//! `p$recvd` unless `p$inherit` hides it.
//!
//! # What always holds
//! - A damaged or unknown value affects only its own property.
//! - The raw value stays as stored: names of index numbers belong to [`exact`] and to the tables of
//!   `format::prop`.

pub mod change;
pub mod receive;
pub(crate) mod values;

pub(crate) mod inherit;

mod computed;

pub use crate::stored_props::{PropValue, StoredProps};
use inherit::native;
pub use inherit::{Source, Value};

use crate::bookmark::Bookmark;
use crate::dataset::{Dataset, DatasetKind};
use crate::error::DslError;
use format::prop::{self as table, DatasetProp};

fn applies(prop: &DatasetProp, dataset: &Dataset, kind: DatasetKind) -> Result<bool, DslError> {
    let own = match kind {
        DatasetKind::Filesystem => table::FS,
        DatasetKind::Volume => table::VOL,
        DatasetKind::Snapshot => table::SNAP,
    };
    if !prop.applies_to(own) {
        return Ok(false);
    }
    // A property that snapshots share with heads applies to a snapshot only if its head is of the right kind.
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
///
/// # Errors
/// [`DslError::NoProperty`]; [`DslError::StoredValue`]; or an object of the MOS cannot be read.
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

/// All visible properties that have a value here, in the order of the table, then the user properties by
/// name.
///
/// # Errors
/// If an object of the MOS cannot be read, or is damaged.
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
///
/// # Errors
/// If an object of the MOS cannot be read, or is damaged.
pub fn all_user(dataset: &Dataset) -> Result<Vec<(String, Value)>, DslError> {
    let mut names: Vec<String> = Vec::new();
    let own = if dataset.is_snapshot() { Some(dataset.stored_props()?) } else { None };
    for props in
        own.iter().map(|p| Ok(&**p)).chain(dataset.dir().ancestry().map(crate::dir::Dir::stored_props))
    {
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
///
/// # Errors
/// If an object of the MOS cannot be read, or is damaged.
pub fn all_of_bookmark(mark: &Bookmark) -> Result<Vec<(String, Value)>, DslError> {
    computed::of_bookmark(mark)
}

/// The value of a property that a stream has brought to this very dataset, in use or not. A user property can have one,
/// and no value that is in use.
///
/// # Errors
/// If an object of the MOS cannot be read, or is damaged.
pub fn received(dataset: &Dataset, name: &str) -> Result<Option<PropValue>, DslError> {
    inherit::received(dataset, name)
}

fn user(dataset: &Dataset, name: &str) -> Result<Option<Value>, DslError> {
    let found = inherit::find(dataset, name, true, &|_| true)?;
    let received = inherit::received(dataset, name)?;
    Ok(found.map(|(raw, source)| Value { raw, source, received }))
}

/// The effective number of a native property, whether or not it applies to this kind of dataset. Unlike
/// [`get`] this does not read the dataset's contents.
///
/// # Errors
/// [`DslError::NoProperty`]; or an object of the MOS cannot be read.
pub fn stored_number(dataset: &Dataset, name: &str) -> Result<u64, DslError> {
    let prop = table::dataset(name).ok_or_else(|| DslError::NoProperty { name: name.to_owned() })?;
    Ok(native(dataset, prop)?.raw.number().unwrap_or(0))
}

/// A value in the exact form for scripts (`zfs get -p`): numbers in full, ratios with two decimals, index
/// names.
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
