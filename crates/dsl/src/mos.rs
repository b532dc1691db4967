//! Helpers for reading the MOS: open an object with an expected bonus type, look up a number in a ZAP.

use crate::error::DslError;
use crate::name;
use dmu::zap::{Zap, ZapEntry, ZapKey};
use dmu::{LiveObject, ObjSet, Object};
use format::dsl::{DatasetPhys, DirPhys};
use format::{ObjType, ObjectId};
use std::sync::Arc;

/// Opens `id` and checks the type of its bonus.
pub(crate) fn object_with_bonus(
    mos: &Arc<ObjSet>,
    id: ObjectId,
    bonus: ObjType,
    expected: &'static str,
) -> Result<Object, DslError> {
    let object = mos.object(id)?;
    let found = object.dnode().bonus_type;
    if found == bonus { Ok(object) } else { Err(DslError::WrongType { object: id, expected, found }) }
}

/// Decodes the bonus of a directory object that is open for writing.
pub(crate) fn dir_phys(object: &LiveObject) -> Result<DirPhys, DslError> {
    let order = object.read().order();
    object.with_bonus(|bonus| DirPhys::decode(bonus, order)).map_err(DslError::decode(object.id()))
}

/// Decodes the bonus of a dataset object that is open for writing.
pub(crate) fn dataset_phys(object: &LiveObject) -> Result<DatasetPhys, DslError> {
    let order = object.read().order();
    object.with_bonus(|bonus| DatasetPhys::decode(bonus, order)).map_err(DslError::decode(object.id()))
}

/// Opens the ZAP in object `id`.
pub(crate) fn zap(mos: &Arc<ObjSet>, id: ObjectId) -> Result<Zap, DslError> {
    Ok(Zap::open(&mos.object(id)?)?)
}

/// The ZAP in a directory or dataset object; `None` if the object was never turned into a ZAP (it still has
/// its old type).
pub(crate) fn own_zap(object: &Object) -> Result<Option<Zap>, DslError> {
    if object.dnode().obj_type.is_zap() { Ok(Some(Zap::open(object)?)) } else { Ok(None) }
}

/// The value of an entry that must be one `u64`.
pub(crate) fn number(object: ObjectId, entry: &ZapEntry) -> Result<u64, DslError> {
    single(entry).ok_or_else(|| stored_value(object, entry))
}

/// The value, if the entry is one `u64`.
pub(crate) fn single(entry: &ZapEntry) -> Option<u64> {
    (entry.int_size == 8 && entry.value.len() == 8).then(|| entry.u64()).flatten()
}

pub(crate) fn stored_value(object: ObjectId, entry: &ZapEntry) -> DslError {
    let size = usize::from(entry.int_size.max(1));
    DslError::StoredValue {
        object,
        key: match &entry.key {
            ZapKey::Name(name) => name.escape_ascii().to_string(),
            ZapKey::Words(words) => format!("{words:x?}"),
        },
        found: entry.value.len() / size,
        int_size: entry.int_size,
    }
}

/// Looks up a single `u64`.
pub(crate) fn lookup_number(zap: &Zap, object: ObjectId, key: &str) -> Result<Option<u64>, DslError> {
    match zap.lookup(key.as_bytes())? {
        Some(entry) => Ok(Some(number(object, &entry)?)),
        None => Ok(None),
    }
}

/// Looks up a single object number.
pub(crate) fn lookup_object(zap: &Zap, object: ObjectId, key: &str) -> Result<Option<ObjectId>, DslError> {
    Ok(lookup_number(zap, object, key)?.filter(|n| *n != 0).map(ObjectId))
}

/// The key under which a map of names to objects holds `value`. Reads the whole map.
pub(crate) fn reverse_lookup(zap: &Zap, map: ObjectId, value: ObjectId) -> Result<Option<String>, DslError> {
    tracing::trace!(map = map.0, object = value.0, "a name is searched by its number");
    for entry in zap.entries() {
        let entry = entry?;
        if single(&entry) == Some(value.0) {
            return Ok(Some(name::stored(map, value, entry.name())?.to_owned()));
        }
    }
    Ok(None)
}

/// The members of an int-set: values equal to their keys in hex.
pub(crate) fn int_set(mos: &Arc<ObjSet>, id: ObjectId) -> Result<Vec<ObjectId>, DslError> {
    zap(mos, id)?.entries().map(|entry| Ok(ObjectId(number(id, &entry?)?))).collect()
}
