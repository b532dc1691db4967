//! Setting and inheriting properties (docs/on-disk/22-mos-dsl.md, section 6; docs/on-disk/33-cli.md, section
//! 7).
//!
//! [`set`] and [`inherit`] are the tasks: they find the dataset, check property, value and features, and
//! apply the effects of a property (reservations, counts, write policy). `store` is their lowest step: it
//! changes the keys of one property in one ZAP.
//!
//! # What always holds
//! - A property has at most one of `p` and `p$inherit`; local changes leave `p$recvd` alone.
//! - `p$inherit` is only written if the dataset has ever received properties.

use crate::dataset::Dataset;
use crate::error::DslError;
use crate::limits;
use crate::mos_tx::MosTx;
use crate::prop::PropValue;
use crate::prop::values::is_zstd;
use crate::task::TaskCtx;
use crate::{counts, policy, zapify};
use dmu::zap::{ZapMut, ZapValue};
use format::names::prop_suffix::{HAS_RECEIVED, INDEX_UNKNOWN, INHERIT, RECEIVED};
use format::prop::{self as table, DatasetProp};
use format::{ObjType, ObjectId};

pub use crate::error::PropError;
pub use crate::prop::values::{parse, parse_number, settable, validate, validate_for, validate_user};

/// Feature of blocks compressed with zstd.
const ZSTD: &str = "zstd_compress";
/// Properties stored in the contents of a file system or volume, or with its keys.
const ELSEWHERE: [&str; 15] = [
    "casesensitivity",
    "defaultgroupobjquota",
    "defaultgroupquota",
    "defaultprojectobjquota",
    "defaultprojectquota",
    "defaultuserobjquota",
    "defaultuserquota",
    "encryption",
    "keyformat",
    "normalization",
    "pbkdf2iters",
    "pbkdf2salt",
    "utf8only",
    "version",
    "volsize",
];

/// Change of a stored property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change<'v> {
    /// The value is set on the dataset itself.
    Local(&'v PropValue),
    /// A value received with a stream. A local value takes precedence.
    Received(&'v PropValue),
    /// Use the inherited value, even over a received one.
    Inherit,
    /// Use the received value, if there is one.
    ToReceived,
    /// Remove the received value.
    DropReceived,
}

fn zap_value(value: &PropValue) -> ZapValue<'_> {
    match value {
        PropValue::Number(n) => ZapValue::U64(*n),
        PropValue::String(text) => ZapValue::Str(text.as_bytes()),
    }
}

/// The ZAP of the properties that are stored with a dataset: its directory's, or a snapshot's own, which is
/// created if `make`.
fn zap_of(m: MosTx<'_>, dataset: ObjectId, make: bool) -> Result<Option<ObjectId>, DslError> {
    let phys = m.dataset(dataset)?;
    if !phys.is_snapshot() {
        return Ok(m.dir(phys.dir)?.props);
    }
    if phys.props.is_none() && make {
        let props = m.create_plain_zap(ObjType::DSL_PROPS)?;
        m.change_dataset(dataset, |phys| phys.props = Some(props))?;
        return Ok(Some(props));
    }
    Ok(phys.props)
}

fn put(zap: &ZapMut<'_>, name: &str, suffix: &str, value: ZapValue<'_>) -> Result<(), DslError> {
    Ok(zap.upsert(format!("{name}{suffix}").as_bytes(), value)?)
}

fn drop_key(zap: &ZapMut<'_>, name: &str, suffix: &str) -> Result<(), DslError> {
    zap.remove_if_present(format!("{name}{suffix}").as_bytes())?;
    Ok(())
}

/// Changes the stored value of a property of a dataset, without its effects.
///
/// # Errors
/// If an object of the MOS cannot be read or changed: the txg must not end then.
pub(crate) fn store(
    m: MosTx<'_>,
    dataset: ObjectId,
    name: &str,
    change: &Change<'_>,
) -> Result<(), DslError> {
    let make = matches!(change, Change::Local(_) | Change::Received(_));
    let Some(props) = zap_of(m, dataset, make)? else { return Ok(()) };
    let zap = m.zap(props)?;
    match change {
        Change::Local(value) => {
            put(&zap, name, "", zap_value(value))?;
            drop_key(&zap, name, INHERIT)?;
            drop_key(&zap, name, INDEX_UNKNOWN)
        }
        Change::Received(value) => {
            zap.upsert(HAS_RECEIVED.as_bytes(), 0)?;
            put(&zap, name, RECEIVED, zap_value(value))
        }
        Change::Inherit => {
            drop_key(&zap, name, "")?;
            drop_key(&zap, name, INDEX_UNKNOWN)?;
            if zap.contains(HAS_RECEIVED.as_bytes())? {
                put(&zap, name, INHERIT, ZapValue::U64(0))?;
            }
            Ok(())
        }
        Change::ToReceived => {
            drop_key(&zap, name, "")?;
            drop_key(&zap, name, INDEX_UNKNOWN)?;
            drop_key(&zap, name, INHERIT)
        }
        Change::DropReceived => drop_key(&zap, name, RECEIVED),
    }
}

/// The kind of a dataset as a bit of the property table.
fn kind_of(dataset: &Dataset) -> Result<u8, DslError> {
    let head = if dataset.is_volume()? { table::VOL } else { table::FS };
    Ok(if dataset.is_snapshot() { table::SNAP } else { head })
}

/// Checks that a property can be set to a value on a dataset. Returns `None` for a user property.
///
/// # Errors
/// [`DslError::Prop`] with the [`PropError`]; [`DslError::FeatureDisabled`].
pub fn check(
    ctx: &TaskCtx<'_>,
    dataset: &Dataset,
    name: &str,
    value: &PropValue,
) -> Result<Option<&'static DatasetProp>, DslError> {
    if name.contains(':') {
        let text = value.string().ok_or_else(|| PropError::NotString { name: name.to_owned() })?;
        validate_user(name, text)?;
        return Ok(None);
    }
    let prop = settable(name, kind_of(dataset)?, false)?;
    validate(prop, value, ctx.features)?;
    if ELSEWHERE.contains(&prop.name) {
        return Err(PropError::Elsewhere { name: prop.name }.into());
    }
    check_counts(ctx, prop.name, value)?;
    Ok(Some(prop))
}

/// Checks that the pool supports a limit on the number of datasets, if the property is one.
///
/// # Errors
/// [`DslError::FeatureDisabled`].
pub fn check_counts(ctx: &TaskCtx<'_>, prop: &str, value: &PropValue) -> Result<(), DslError> {
    let is_limit = matches!(prop, "filesystem_limit" | "snapshot_limit");
    if is_limit && value.number().is_some_and(|limit| limit != u64::MAX) {
        return counts::check_enabled(ctx.features);
    }
    Ok(())
}

/// Sets a native or user property of the dataset with this full name. Properties stored in the contents of
/// the dataset (`volsize`, `version`) and quotas of owners are set elsewhere.
///
/// # Errors
/// [`DslError::Prop`] with the [`PropError`]; for quotas and reservations [`DslError::BadLimit`].
pub fn set(ctx: &mut TaskCtx<'_>, name: &str, prop: &str, value: &PropValue) -> Result<(), DslError> {
    let dataset = ctx.dsl()?.dataset(name)?;
    let native = check(ctx, &dataset, prop, value)?;
    let prop = native.map_or(prop, |prop| prop.name);
    match (prop, value) {
        ("quota", PropValue::Number(bytes)) => limits::set_quota(ctx, name, *bytes)?,
        ("reservation", PropValue::Number(bytes)) => limits::set_reservation(ctx, name, *bytes)?,
        ("refquota", PropValue::Number(bytes)) => limits::set_refquota(ctx, name, *bytes)?,
        ("refreservation", PropValue::Number(bytes)) => limits::set_refreservation(ctx, name, *bytes)?,
        ("filesystem_limit" | "snapshot_limit", PropValue::Number(limit)) => {
            if *limit != u64::MAX {
                counts::activate(ctx.m(), dataset.dir().id())?;
            }
            store(ctx.m(), dataset.id(), prop, &Change::Local(value))?;
        }
        _ => store(ctx.m(), dataset.id(), prop, &Change::Local(value))?,
    }
    if !dataset.is_snapshot() {
        activate(ctx.m(), dataset.id(), prop, value)?;
    }
    changed(ctx, name, &dataset, prop, &raw(value));
    Ok(())
}

/// Activates the feature that a property of a head uses as soon as it is set. Other features are activated by
/// their first block.
pub(crate) fn activate(m: MosTx<'_>, head: ObjectId, prop: &str, value: &PropValue) -> Result<(), DslError> {
    let uses_zstd = prop == "compression" && value.number().is_some_and(is_zstd);
    if uses_zstd && m.features.is_enabled(ZSTD) { zapify::activate_feature(m, head, ZSTD) } else { Ok(()) }
}

/// A value as the history records it: index values as numbers.
pub(crate) fn raw(value: &PropValue) -> String {
    match value {
        PropValue::Number(number) => number.to_string(),
        PropValue::String(text) => text.clone(),
    }
}

fn changed(ctx: &mut TaskCtx<'_>, name: &str, dataset: &Dataset, prop: &str, text: &str) {
    if policy::decides_policy(prop) {
        ctx.heads.policy_changed();
    }
    ctx.note("set", Some((name, dataset.id())), format!("{prop}={text}"));
}

/// Inherits a property of the dataset with this full name: removes the local value. With `received` the
/// received value takes its place, otherwise the inherited one.
///
/// # Errors
/// [`DslError::Prop`] with the [`PropError`].
pub fn inherit(ctx: &mut TaskCtx<'_>, name: &str, prop: &str, received: bool) -> Result<(), DslError> {
    let dataset = ctx.dsl()?.dataset(name)?;
    let prop = check_inherit(&dataset, prop, received)?;
    let change = if received { Change::ToReceived } else { Change::Inherit };
    let m = ctx.m();
    match prop {
        "quota" | "reservation" | "refquota" | "refreservation" if received => {
            to_received_limit(ctx, name, &dataset, prop)?;
        }
        _ => {}
    }
    store(m, dataset.id(), prop, &change)?;
    if policy::decides_policy(prop) {
        ctx.heads.policy_changed();
    }
    let now = crate::prop::get(&ctx.dsl()?.dataset(name)?, prop)?;
    let now = now.map_or_else(String::new, |value| raw(&value.raw));
    ctx.note("inherit", Some((name, dataset.id())), format!("{prop}={now}"));
    Ok(())
}

/// Resets a limit to its received value, or to none.
fn to_received_limit(
    ctx: &mut TaskCtx<'_>,
    name: &str,
    dataset: &Dataset,
    prop: &str,
) -> Result<(), DslError> {
    let stored = dataset.dir().stored_props()?.value(&format!("{prop}{RECEIVED}"))?;
    let bytes = stored.and_then(|value| value.number()).unwrap_or(0);
    match prop {
        "quota" => limits::set_quota(ctx, name, bytes),
        "reservation" => limits::set_reservation(ctx, name, bytes),
        "refquota" => limits::set_refquota(ctx, name, bytes),
        _ => limits::set_refreservation(ctx, name, bytes),
    }
}

/// The canonical name of a property, if it can be inherited here.
fn check_inherit<'n>(dataset: &Dataset, name: &'n str, received: bool) -> Result<&'n str, DslError> {
    if name.contains(':') {
        validate_user(name, "")?;
        return Ok(name);
    }
    let prop: &'static DatasetProp = settable(name, kind_of(dataset)?, false)?;
    // A property that is not inheritable can still be reset to its received value.
    if ELSEWHERE.contains(&prop.name) || !(prop.inherits() || received) {
        return Err(PropError::NotInheritable { name: prop.name }.into());
    }
    Ok(prop.name)
}
