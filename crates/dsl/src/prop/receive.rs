//! Properties that arrive with a stream (docs/on-disk/22-mos-dsl.md, section 6; 30-send-streams.md, section 9).
//!
//! # What always holds
//! - A received value is stored beside a local one, which stays in effect, and so does an explicit inheritance.
//! - The effects of a property (quotas, reservations, counts, write policy) are those of the value that is in effect.

use super::change::{Change, activate, check, check_counts, raw, set, store};
use super::{PropValue, Source, get};
use crate::dataset::Dataset;
use crate::error::{DslError, PropError};
use crate::task::TaskCtx;
use crate::{counts, limits, policy};
use format::names::prop_suffix::{INHERIT, RECEIVED};
use format::prop as table;

/// A property of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// Name of the property.
    pub name: String,
    /// The value to store.
    pub value: PropValue,
    /// What is to be in effect.
    pub effect: Effect,
}

/// What is in effect after a property was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The received value, unless the dataset has a local one or inherits explicitly.
    Received,
    /// What was in effect before; a property that is inherited inherits (`-x`).
    Excluded,
    /// What the dataset inherits, whatever was set locally (`-o` at an ancestor). A property that is not inherited is
    /// received as usual.
    Inherited,
}

/// Stores the properties that a dataset or snapshot has received. What it has received before and does not receive now
/// is removed. Returns the properties that are refused, with the reasons; the others are stored.
///
/// # Errors
/// [`DslError::NotFound`]; or an object of the MOS cannot be read or changed.
pub fn receive(
    ctx: &mut TaskCtx<'_>,
    name: &str,
    props: &[Received],
) -> Result<Vec<(String, DslError)>, DslError> {
    let mut refused = Vec::new();
    for gone in gone(&ctx.dsl()?.dataset(name)?, props)? {
        if let Err(error) = ctx.step(|ctx| drop_received(ctx, name, &gone))? {
            refused.push((gone, error));
        }
    }
    for prop in props {
        match ctx.step(|ctx| receive_one(ctx, name, prop))? {
            // Part of the contents of the dataset, which have arrived already.
            Ok(()) | Err(DslError::Prop(PropError::Elsewhere { .. })) => {}
            Err(error) => refused.push((prop.name.clone(), error)),
        }
    }
    Ok(refused)
}

/// The properties that a dataset has received before and does not receive now, by name.
fn gone(dataset: &Dataset, props: &[Received]) -> Result<Vec<String>, DslError> {
    let stored = match dataset.is_snapshot() {
        true => &*dataset.stored_props()?,
        false => dataset.dir().stored_props()?,
    };
    let comes = |name: &str| props.iter().any(|prop| canonical(&prop.name) == name);
    let mut gone: Vec<String> = stored
        .base_names()
        .filter(|name| stored.has(&format!("{name}{RECEIVED}")) && !comes(name))
        .map(str::to_owned)
        .collect();
    gone.sort();
    gone.dedup();
    Ok(gone)
}

/// The name under which a property is stored.
fn canonical(name: &str) -> &str {
    table::dataset(name).map_or(name, |prop| prop.name)
}

/// Whether a received value would be in effect: there is neither a local one nor an explicit inheritance.
fn takes_effect(dataset: &Dataset, prop: &str) -> Result<bool, DslError> {
    let has = |key: &str| match dataset.is_snapshot() {
        true => dataset.stored_props().map(|stored| stored.has(key)),
        false => dataset.dir().stored_props().map(|stored| stored.has(key)),
    };
    Ok(!has(prop)? && !has(&format!("{prop}{INHERIT}"))?)
}

fn drop_received(ctx: &mut TaskCtx<'_>, name: &str, prop: &str) -> Result<(), DslError> {
    let dataset = ctx.dsl()?.dataset(name)?;
    if takes_effect(&dataset, prop)? {
        limit(ctx, name, &dataset, prop, 0)?;
    }
    store(ctx.m(), dataset.id(), prop, &Change::DropReceived)?;
    changed(ctx, prop);
    Ok(())
}

fn receive_one(ctx: &mut TaskCtx<'_>, name: &str, received: &Received) -> Result<(), DslError> {
    let Received { name: prop, value, effect } = received;
    let dataset = ctx.dsl()?.dataset(name)?;
    let native = check(ctx, &dataset, prop, value)?;
    let (prop, inherits) = native.map_or((prop.as_str(), true), |prop| (prop.name, prop.inherits()));
    check_counts(ctx, prop, value)?;
    let is_free = takes_effect(&dataset, prop)?;
    match effect {
        Effect::Inherited if inherits => {
            store(ctx.m(), dataset.id(), prop, &Change::Received(value))?;
            store(ctx.m(), dataset.id(), prop, &Change::Inherit)?;
        }
        Effect::Excluded if is_free => {
            let before = get(&dataset, prop)?;
            let keeps = before.filter(|before| !inherits && before.source != Source::Default);
            if let Some(before) = keeps {
                set(ctx, name, prop, &before.raw)?;
            }
            store(ctx.m(), dataset.id(), prop, &Change::Received(value))?;
            if takes_effect(&ctx.dsl()?.dataset(name)?, prop)? {
                store(ctx.m(), dataset.id(), prop, &Change::Inherit)?;
            }
        }
        Effect::Excluded => store(ctx.m(), dataset.id(), prop, &Change::Received(value))?,
        Effect::Received | Effect::Inherited => {
            if is_free {
                take_effect(ctx, name, &dataset, prop, value)?;
            }
            store(ctx.m(), dataset.id(), prop, &Change::Received(value))?;
        }
    }
    changed(ctx, prop);
    ctx.note("set", Some((name, dataset.id())), format!("{prop}{RECEIVED}={}", raw(value)));
    Ok(())
}

/// The effects of a received value that is in effect.
fn take_effect(
    ctx: &mut TaskCtx<'_>,
    name: &str,
    dataset: &Dataset,
    prop: &str,
    value: &PropValue,
) -> Result<(), DslError> {
    if dataset.is_snapshot() {
        return Ok(());
    }
    if let Some(number) = value.number() {
        limit(ctx, name, dataset, prop, number)?;
        let is_count = matches!(prop, "filesystem_limit" | "snapshot_limit");
        if is_count && number != u64::MAX {
            counts::activate(ctx.m(), dataset.dir().id())?;
        }
    }
    activate(ctx.m(), dataset.id(), prop, value)
}

/// Puts a limit in effect, if the property is one, without a local value.
fn limit(
    ctx: &mut TaskCtx<'_>,
    name: &str,
    dataset: &Dataset,
    prop: &str,
    bytes: u64,
) -> Result<(), DslError> {
    match prop {
        "quota" => limits::set_quota(ctx, name, bytes)?,
        "reservation" => limits::set_reservation(ctx, name, bytes)?,
        "refquota" => limits::set_refquota(ctx, name, bytes)?,
        "refreservation" => limits::set_refreservation(ctx, name, bytes)?,
        _ => return Ok(()),
    }
    store(ctx.m(), dataset.id(), prop, &Change::ToReceived)
}

fn changed(ctx: &TaskCtx<'_>, prop: &str) {
    if policy::decides_policy(prop) {
        ctx.heads.policy_changed();
    }
}
