//! The stored half of properties: ZAPs of directories and snapshots, read once, and the search
//! through them.

use super::{INDEX_UNKNOWN, INHERIT, PropValue, RECEIVED, Source};
use crate::dataset::Dataset;
use crate::dir::Dir;
use crate::{DslError, mos};
use dmu::ObjSet;
use dmu::zap::ZapEntry;
use format::ObjectId;
use std::collections::HashMap;
use std::sync::Arc;

/// Entries that a property ZAP may have: far more than any command can set.
const ENTRIES_MAX: usize = 1 << 18;

/// A property ZAP in memory.
#[derive(Debug, Default)]
pub struct StoredProps {
    object: Option<ObjectId>,
    entries: HashMap<String, ZapEntry>,
}

impl StoredProps {
    /// Reads the ZAP `object`; none: nothing is stored.
    pub fn read(mos: &Arc<ObjSet>, object: Option<ObjectId>) -> Result<StoredProps, DslError> {
        let mut entries = HashMap::new();
        if let Some(id) = object {
            for entry in mos::zap(mos, id)?.entries() {
                let entry = entry?;
                if entries.len() >= ENTRIES_MAX {
                    return Err(DslError::Endless { what: "properties", object: id, limit: ENTRIES_MAX });
                }
                // A name that is not text cannot be asked for.
                if let Ok(name) = std::str::from_utf8(entry.name()) {
                    entries.insert(name.to_owned(), entry);
                }
            }
        }
        Ok(StoredProps { object, entries })
    }

    /// The value of an entry: one `u64`, or bytes up to a NUL.
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

    /// There is an entry.
    pub fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// Names of the properties that have an entry of any kind, some perhaps twice.
    pub fn base_names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(|key| key.split('$').next().unwrap_or(key)).filter(|name| !name.is_empty())
    }

    /// The value that holds here, and whether it was received.
    fn lookup(
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

pub(super) fn of_dir(dir: &Dir) -> Result<&StoredProps, DslError> {
    dir.stored_props()
}

pub(super) fn of_snapshot(snapshot: &Dataset) -> Result<Arc<StoredProps>, DslError> {
    snapshot.stored_props()
}

/// The value that holds for a dataset, and its source.
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
        if let Some(found) = of_snapshot(dataset)?.lookup(name, usable)? {
            return Ok(Some(here(found)));
        }
        if !inherits {
            return Ok(None);
        }
    }
    for (height, dir) in dataset.dir().ancestry().enumerate() {
        if let Some(found) = of_dir(dir)?.lookup(name, usable)? {
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

/// The value that came with a stream to this very dataset.
pub(super) fn received(dataset: &Dataset, name: &str) -> Result<Option<PropValue>, DslError> {
    let key = format!("{name}{RECEIVED}");
    if dataset.is_snapshot() {
        return of_snapshot(dataset)?.value(&key);
    }
    of_dir(dataset.dir())?.value(&key)
}
