//! The source of a property value: the dataset itself, or a directory above it.

use crate::dataset::Dataset;
use crate::error::DslError;
use crate::stored_props::PropValue;
use format::names::prop_suffix::RECEIVED;
use format::prop::{DatasetProp, Fallback, Kind};

/// Source of a property value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Set nowhere: the default of the property.
    Default,
    /// Set on the dataset itself.
    Local,
    /// Set on this ancestor (full name).
    Inherited(String),
    /// Received with a send stream.
    Received,
    /// Set by an option of the current mount.
    Temporary,
    /// Computed, or fixed at creation.
    None,
}

impl Source {
    /// The source as the tools print it: `inherited from tank`.
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

/// Value of a property, with its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// Value as it is stored.
    pub raw: PropValue,
    /// The value in stored form.
    pub source: Source,
    /// The value that this dataset received with a stream, in use or not.
    pub received: Option<PropValue>,
}

impl Value {
    pub(super) fn computed(raw: PropValue) -> Value {
        Value { raw, source: Source::None, received: None }
    }
}

/// The effective value of a property, and its source.
pub(super) fn find(
    dataset: &Dataset,
    name: &str,
    inherits: bool,
    usable: &dyn Fn(&PropValue) -> bool,
) -> Result<Option<(PropValue, Source)>, DslError> {
    let here = |(value, received)| {
        let source = if received { Source::Received } else { Source::Local };
        (value, source)
    };
    if dataset.is_snapshot() {
        if let Some(found) = dataset.stored_props()?.lookup(name, usable)? {
            return Ok(Some(here(found)));
        }
        if !inherits {
            return Ok(None);
        }
    }
    for (height, dir) in dataset.dir().ancestry().enumerate() {
        if let Some(found) = dir.stored_props()?.lookup(name, usable)? {
            let own = height == 0 && !dataset.is_snapshot();
            let inherited = || Source::Inherited(dir.name().to_owned());
            return Ok(Some(if own { here(found) } else { (found.0, inherited()) }));
        }
        if !inherits {
            break;
        }
    }
    Ok(None)
}

/// The value that this very dataset received with a stream.
pub(super) fn received(dataset: &Dataset, name: &str) -> Result<Option<PropValue>, DslError> {
    let key = format!("{name}{RECEIVED}");
    if dataset.is_snapshot() {
        return dataset.stored_props()?.value(&key);
    }
    dataset.dir().stored_props()?.value(&key)
}

/// Looks up the stored value of a native property.
pub(super) fn native(dataset: &Dataset, prop: &DatasetProp) -> Result<Value, DslError> {
    let usable = |value: &PropValue| match (prop.kind, value) {
        (Kind::Index, PropValue::Number(n)) => prop.index_name(*n).is_some(),
        (Kind::Number, PropValue::Number(_)) | (Kind::Text, PropValue::String(_)) => true,
        _ => false,
    };
    let found = find(dataset, prop.name, prop.inherits(), &usable)?;
    let received = received(dataset, prop.name)?;
    let (raw, source) = match found {
        Some((raw, source)) if usable(&raw) => (raw, source),
        _ => (fallback(prop), Source::Default),
    };
    Ok(Value { raw, source, received })
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
    let found = find(dataset, name, false, &|_| true)?;
    Ok(found.and_then(|(raw, _)| raw.number()))
}
