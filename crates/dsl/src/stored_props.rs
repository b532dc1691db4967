//! Property ZAPs in stored form: values by name, with suffixes that mark received and hidden ones
//! (docs/on-disk/22-mos-dsl.md, section 6).

use crate::error::DslError;
use crate::mos;
use dmu::ObjSet;
use dmu::zap::ZapEntry;
use format::ObjectId;
use format::names::prop_suffix::{INDEX_UNKNOWN, INHERIT, RECEIVED};
use std::collections::HashMap;
use std::sync::Arc;

/// Most entries of a property ZAP: far more than any command can set.
const ENTRIES_MAX: usize = 1 << 18;

/// Stored or computed value of a property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PropValue {
    /// A number, also: an index value, a ratio in hundredths, a time in seconds since 1970.
    Number(u64),
    /// A text, without the zero byte at its end.
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

/// A property ZAP in memory.
#[derive(Debug, Default)]
pub struct StoredProps {
    object: Option<ObjectId>,
    entries: HashMap<String, ZapEntry>,
}

impl StoredProps {
    /// Reads the ZAP `object`; `None`: an empty one.
    pub(crate) fn read(mos: &Arc<ObjSet>, object: Option<ObjectId>) -> Result<StoredProps, DslError> {
        let mut entries = HashMap::new();
        if let Some(id) = object {
            for entry in mos::zap(mos, id)?.entries() {
                let entry = entry?;
                if entries.len() >= ENTRIES_MAX {
                    return Err(DslError::Endless { what: "properties", object: id, limit: ENTRIES_MAX });
                }
                // A name that is not UTF-8 cannot be looked up.
                if let Ok(name) = std::str::from_utf8(entry.name()) {
                    entries.insert(name.to_owned(), entry);
                }
            }
        }
        Ok(StoredProps { object, entries })
    }

    /// The value of an entry: one `u64`, or bytes up to a NUL. `None`: no such entry.
    ///
    /// # Errors
    /// [`DslError::StoredValue`] if the entry is neither.
    pub fn value(&self, key: &str) -> Result<Option<PropValue>, DslError> {
        let Some(entry) = self.entries.get(key) else { return Ok(None) };
        if let Some(number) = mos::single(entry) {
            return Ok(Some(PropValue::Number(number)));
        }
        if entry.int_size != 1 {
            return Err(mos::stored_value(self.object.unwrap_or_default(), entry));
        }
        let text = entry.value.split(|b| *b == 0).next().unwrap_or_default();
        Ok(Some(PropValue::String(String::from_utf8_lossy(text).into_owned())))
    }

    /// Whether the ZAP has an entry with this key.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// Names of the properties that have an entry of any kind; a name may occur twice.
    pub(crate) fn base_names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(|key| key.split('$').next().unwrap_or(key)).filter(|name| !name.is_empty())
    }

    /// The effective value, and whether it was received. `usable` tells whether a value of a newer form
    /// counts.
    pub(crate) fn lookup(
        &self,
        name: &str,
        usable: &dyn Fn(&PropValue) -> bool,
    ) -> Result<Option<(PropValue, bool)>, DslError> {
        if let Some(value) = self.value(&format!("{name}{INDEX_UNKNOWN}"))?
            && usable(&value)
        {
            return Ok(Some((value, false)));
        }
        if let Some(value) = self.value(name)? {
            return Ok(Some((value, false)));
        }
        if self.has(&format!("{name}{INHERIT}")) {
            return Ok(None);
        }
        Ok(self.value(&format!("{name}{RECEIVED}"))?.map(|value| (value, true)))
    }
}

/// The number that is set for a property in the ZAP `props`, not inherited: local, or received and not
/// hidden. An entry that is not one number counts as absent.
///
/// # Errors
/// If the ZAP cannot be read.
pub(crate) fn own_number(
    mos: &Arc<ObjSet>,
    props: Option<ObjectId>,
    name: &str,
) -> Result<Option<u64>, DslError> {
    let Some(id) = props else { return Ok(None) };
    let zap = mos::zap(mos, id)?;
    let number = |key: &str| -> Result<Option<u64>, DslError> {
        Ok(zap.lookup(key.as_bytes())?.and_then(|entry| mos::single(&entry)))
    };
    if let Some(number) = number(name)? {
        return Ok(Some(number));
    }
    if zap.lookup(format!("{name}{INHERIT}").as_bytes())?.is_some() {
        return Ok(None);
    }
    number(&format!("{name}{RECEIVED}"))
}
