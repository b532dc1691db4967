//! Directories and datasets that have a ZAP of their own, and the per-dataset features that are stored there
//! (docs/on-disk/22-mos-dsl.md, section 4.3; docs/on-disk/16-features.md, section 6).
//!
//! # What always holds
//! - The feature `extensible_dataset` counts the directories and datasets that have become ZAPs.
//! - The count of a per-dataset feature is the number of datasets, snapshots included, whose ZAP has the
//!   feature's guid as a key.

use crate::error::DslError;
use crate::mos;
use crate::mos_tx::MosTx;
use dmu::zap::{Zap, ZapEntry, ZapValue};
use format::feature::{self, FEATURES, Feature};
use format::{ObjType, ObjectId};

/// Feature that counts the objects that have become ZAPs.
const EXTENSIBLE: &str = "extensible_dataset";

/// Whether the object is a ZAP.
pub(crate) fn is_zapified(m: MosTx<'_>, id: ObjectId) -> Result<bool, DslError> {
    Ok(m.object(id)?.obj_type().is_zap())
}

/// Turns a directory or dataset into a ZAP and keeps its bonus. Has no effect on one that is a ZAP already.
pub(crate) fn zapify(m: MosTx<'_>, id: ObjectId) -> Result<(), DslError> {
    let object = m.object(id)?;
    if object.obj_type().is_zap() {
        return Ok(());
    }
    m.features.incr(m, EXTENSIBLE)?;
    object.set_type(ObjType::ZAP_METADATA, m.tx);
    Ok(object.create_zap(m.tx, m.env.random(), 0)?)
}

/// Frees the object of a directory or dataset.
pub(crate) fn free_object(m: MosTx<'_>, id: ObjectId) -> Result<(), DslError> {
    if is_zapified(m, id)? {
        m.features.decr(m, EXTENSIBLE)?;
    }
    m.free(id)
}

/// The entry of the object's ZAP; `None`: the object is no ZAP or has no such entry.
///
/// # Errors
/// If an object of the MOS cannot be read, or is damaged.
pub(crate) fn entry(m: MosTx<'_>, id: ObjectId, key: &str) -> Result<Option<ZapEntry>, DslError> {
    if !is_zapified(m, id)? {
        return Ok(None);
    }
    Ok(m.zap(id)?.lookup(key.as_bytes())?)
}

/// The number under a key of the object's ZAP.
///
/// # Errors
/// If an object of the MOS cannot be read, or is damaged.
pub(crate) fn get(m: MosTx<'_>, id: ObjectId, key: &str) -> Result<Option<u64>, DslError> {
    entry(m, id, key)?.map(|found| mos::number(id, &found)).transpose()
}

/// Sets a value in the object's ZAP, which is created if needed.
///
/// # Errors
/// If an object of the MOS cannot be read or changed: the txg must not end then.
pub(crate) fn set<'v>(
    m: MosTx<'_>,
    id: ObjectId,
    key: &str,
    value: impl Into<ZapValue<'v>>,
) -> Result<(), DslError> {
    zapify(m, id)?;
    Ok(m.zap(id)?.upsert(key.as_bytes(), value)?)
}

/// Removes a key from the object's ZAP. Returns false if there was none.
///
/// # Errors
/// If an object of the MOS cannot be read or changed: the txg must not end then.
pub(crate) fn remove(m: MosTx<'_>, id: ObjectId, key: &str) -> Result<bool, DslError> {
    if !is_zapified(m, id)? {
        return Ok(false);
    }
    Ok(m.zap(id)?.remove_if_present(key.as_bytes())?)
}

fn per_dataset(name: &str) -> &'static Feature {
    let found = feature::by_name(name).filter(|f| f.per_dataset);
    found.unwrap_or_else(|| panic!("{name} is not counted per dataset"))
}

/// Whether the dataset uses this feature.
#[cfg(test)]
pub(crate) fn has_feature(m: MosTx<'_>, dataset: ObjectId, name: &str) -> Result<bool, DslError> {
    Ok(entry(m, dataset, per_dataset(name).guid)?.is_some())
}

/// Activates a feature for the dataset. Has no effect if it is active already.
pub(crate) fn activate_feature(m: MosTx<'_>, dataset: ObjectId, name: &str) -> Result<(), DslError> {
    put_feature(m, dataset, per_dataset(name), ZapValue::U64(0))
}

/// Like `activate_feature`, for a feature with an array of numbers: `redacted_datasets`.
pub(crate) fn activate_array(
    m: MosTx<'_>,
    dataset: ObjectId,
    name: &str,
    values: &[u64],
) -> Result<(), DslError> {
    put_feature(m, dataset, per_dataset(name), ZapValue::U64s(values))
}

fn put_feature(
    m: MosTx<'_>,
    dataset: ObjectId,
    feature: &Feature,
    value: ZapValue<'_>,
) -> Result<(), DslError> {
    zapify(m, dataset)?;
    let zap = m.zap(dataset)?;
    if zap.contains(feature.guid.as_bytes())? {
        return Ok(());
    }
    m.features.incr(m, feature.name)?;
    Ok(zap.insert(feature.guid.as_bytes(), value)?)
}

/// Deactivates a feature for the dataset. Has no effect if it is not active.
pub(crate) fn deactivate_feature(m: MosTx<'_>, dataset: ObjectId, name: &str) -> Result<(), DslError> {
    let feature = per_dataset(name);
    if remove(m, dataset, feature.guid)? {
        m.features.decr(m, feature.name)?;
    }
    Ok(())
}

/// Keys and values of all features that a dataset uses.
fn features_of(m: MosTx<'_>, dataset: ObjectId) -> Result<Vec<(&'static Feature, ZapEntry)>, DslError> {
    let mut used = Vec::new();
    if !is_zapified(m, dataset)? {
        return Ok(used);
    }
    for found in Zap::open(&m.object(dataset)?.read())?.entries() {
        let found = found?;
        let feature = FEATURES.iter().find(|f| f.per_dataset && f.guid.as_bytes() == found.name());
        used.extend(feature.map(|feature| (feature, found)));
    }
    Ok(used)
}

/// Copies the features of `from` to `to`, a snapshot or clone of it.
pub(crate) fn copy_features(m: MosTx<'_>, from: ObjectId, to: ObjectId) -> Result<(), DslError> {
    for (feature, found) in features_of(m, from)? {
        let value = ZapValue::Packed { int_size: found.int_size, bytes: &found.value };
        put_feature(m, to, feature, value)?;
    }
    Ok(())
}

/// Deactivates all features of a dataset that is being destroyed.
pub(crate) fn drop_features(m: MosTx<'_>, dataset: ObjectId) -> Result<(), DslError> {
    for (feature, _) in features_of(m, dataset)? {
        deactivate_feature(m, dataset, feature.name)?;
    }
    Ok(())
}

/// Exchanges the features of two datasets, because their contents are exchanged.
pub(crate) fn swap_features(m: MosTx<'_>, a: ObjectId, b: ObjectId) -> Result<(), DslError> {
    let (of_a, of_b) = (features_of(m, a)?, features_of(m, b)?);
    for (dataset, old, new) in [(a, &of_a, &of_b), (b, &of_b, &of_a)] {
        for (feature, _) in old {
            deactivate_feature(m, dataset, feature.name)?;
        }
        for (feature, found) in new {
            let value = ZapValue::Packed { int_size: found.int_size, bytes: &found.value };
            put_feature(m, dataset, feature, value)?;
        }
    }
    Ok(())
}
