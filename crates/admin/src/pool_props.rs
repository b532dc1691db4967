//! Properties of a pool, as `zpool get` shows them.

use super::{AdminError, OpenPool, Property, Source, Value, datasets};
use ::pool::FeatureState;
use cenote::Error;
use format::feature::{self, PROPERTY_PREFIX, Since};
use format::prop::{self, Class};

const UNSUPPORTED_PREFIX: &str = "unsupported@";

fn failed(error: impl Into<Error>) -> AdminError {
    AdminError::from(error.into())
}

/// True for the names `feature@NAME` and `unsupported@GUID`.
pub(crate) fn is_feature_property(name: &str) -> bool {
    let known = name.strip_prefix(PROPERTY_PREFIX).is_some_and(|f| feature::by_name(f).is_some());
    known || name.strip_prefix(UNSUPPORTED_PREFIX).is_some_and(|guid| guid.contains(':'))
}

/// Names of the properties that `zpool get all` shows for this pool, in its order.
///
/// # Errors
/// [`AdminError::Cenote`] if the pool's properties or features cannot be read.
pub(crate) fn pool_property_names(pool: &OpenPool) -> Result<Vec<String>, AdminError> {
    let spa = pool.pool.spa();
    let mut names: Vec<String> =
        prop::POOL.iter().filter(|p| p.visible && p.name != "name").map(|p| p.name.to_owned()).collect();
    for (known, state) in spa.features().iter() {
        // Features of later releases are listed only if they are enabled.
        if known.since <= Since::V2_3 || state != FeatureState::Disabled {
            names.push(format!("{PROPERTY_PREFIX}{}", known.name));
        }
    }
    names.extend(spa.features().unknown().iter().map(|f| format!("{UNSUPPORTED_PREFIX}{}", f.guid)));
    names.extend(spa.user_properties().map_err(failed)?.into_iter().map(|(name, _)| name));
    Ok(names)
}

/// A property of a pool; `None` if it has no property of this name.
///
/// # Errors
/// [`AdminError::Cenote`] if the pool's properties or features cannot be read.
pub(crate) fn pool_property(pool: &OpenPool, name: &str) -> Result<Option<Property>, AdminError> {
    if let Some(guid) = name.strip_prefix(UNSUPPORTED_PREFIX) {
        let mut unknown = pool.pool.spa().features().unknown().iter().filter(|f| f.guid == guid);
        return Ok(unknown.next().map(|f| {
            Property::local(match (f.refcount, f.read_only_compatible) {
                (0, _) => "inactive",
                (_, true) => "readonly",
                (_, false) => "unavailable",
            })
        }));
    }
    let known = prop::pool(name).map_or(name, |p| p.name);
    if let Some(property) = of_import(pool, known) {
        return Ok(Some(property));
    }
    let found = pool.pool.spa().property(known).map_err(failed)?;
    Ok(found.map(|value| match value {
        Some(value) => datasets::property_of(value),
        None => {
            let of_table = prop::pool(name).map(|p| p.class == Class::ReadOnly);
            let computed = of_table.unwrap_or(!prop::is_user(name));
            let source = if computed { Source::None } else { Source::Default };
            Property { value: Value::Absent, source, received: None }
        }
    }))
}

/// A property of a pool as lists show it: one that the pool has not is absent.
pub(crate) fn value_of(pool: &OpenPool, name: &str) -> Result<Property, AdminError> {
    let found = pool_property(pool, name)?;
    Ok(found.unwrap_or(Property { value: Value::Absent, source: Source::None, received: None }))
}

/// Properties that belong to the import. `None`: `name` is not one of them, or has its default.
fn of_import(pool: &OpenPool, name: &str) -> Option<Property> {
    let settings = &pool.settings;
    let local = |text: &String| Property::local(text.as_str());
    match name {
        "readonly" => {
            let value = Value::Number(settings.readonly.into());
            Some(Property { value, source: Source::None, received: None })
        }
        "load_guid" => {
            Some(Property { value: Value::Number(pool.load_guid), source: Source::None, received: None })
        }
        "altroot" => settings.altroot.as_ref().map(local),
        "cachefile" => settings.cachefile.as_ref().filter(|_| !settings.readonly).map(local),
        _ => None,
    }
}
