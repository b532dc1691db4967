//! `zpool set`.

use super::{command_line, texts};
use crate::getopt::Getopt;
use crate::out::{Out, visible};
use crate::stop::{Outcome, Stop};
use admin::change::{
    ChangeError, Compatibility, PoolSetting, SetWhen, VdevProp, check_pool_setting, enable_features,
    set_cachefile, set_pool_props, set_vdev_prop,
};
use admin::{OpenPool, pool_property};
use cenote::FeatureState;
use std::ffi::OsString;

/// What failures of finding a pool or vdev give: an error number of the system.
const EXIT_INVALID: u8 = 22;

pub(super) fn run(args: Vec<OsString>, _: &Out) -> Outcome {
    let command = command_line("set", &args);
    let mut walk = Getopt::new(args, "", &[]);
    while walk.next()?.is_some() {}
    let operands = texts(&walk.operands());
    let (text, pool, vdev) = match &operands[..] {
        [] => return Err(Stop::usage("missing property=value argument")),
        [text] if !text.contains('=') => {
            return Err(Stop::usage("missing value in property=value argument"));
        }
        [_] => return Err(Stop::usage("missing pool name")),
        [text, pool] => (text, pool, None),
        [text, pool, vdev] => (text, pool, Some(vdev)),
        _ => return Err(Stop::usage("too many pool names")),
    };
    let Some((name, value)) = text.split_once('=') else {
        return Err(Stop::usage("missing value in property=value argument"));
    };
    let (pools, _) = admin::open_pools(&crate::search::from_env(), std::slice::from_ref(pool));
    let Some(opened) = pools.into_iter().next() else {
        say_error_line!("{}", visible(&format!("cannot open '{pool}': is not a pool")));
        return Err(Stop::Code(EXIT_INVALID));
    };
    match vdev {
        Some(vdev) => set_vdev(opened, vdev, name, value),
        None => set_pool(opened, name, value, &command),
    }
}

fn set_pool(pool: OpenPool, name: &str, value: &str, command: &str) -> Outcome {
    let pool_name = pool.name().to_owned();
    let refused =
        |why: &dyn std::fmt::Display| Stop::failed(format!("cannot set property for '{pool_name}': {why}"));
    let limits = pool_property(&pool, "compatibility").map_err(Stop::failed)?;
    let limits = limits.and_then(|found| found.value.text().map(str::to_owned)).unwrap_or_default();
    if name == "compatibility" {
        check_compatibility(&pool, value)?;
    }
    let setting = check_pool_setting(name, value, SetWhen::Set).map_err(|why| refused(&why))?;
    if let PoolSetting::Stored(known, dataset) = &setting
        && known == "bootfs"
        && !dataset.is_empty()
        && dataset.split(['/', '@']).next() != Some(pool_name.as_str())
    {
        return Err(refused(&format!("'{dataset}' is an invalid name")));
    }
    drop(pool);
    let search = crate::search::from_env();
    let store = |name: &str, value: &str| {
        set_pool_props(&search, &pool_name, &[(name.to_owned(), value.to_owned())], command)
    };
    let outcome = match &setting {
        PoolSetting::Stored(known, value) => store(known, value),
        PoolSetting::Compatibility(value) => store("compatibility", value),
        PoolSetting::Feature(feature) => {
            let allowed = Compatibility::load(&limits).unwrap_or(Compatibility::Off);
            if !allowed.allows(feature) {
                return Err(Stop::failed(format!(
                    "Error: cannot enable feature '{feature}' on pool '{pool_name}'\n\
                     as it is not specified in this pool's current compatibility set.\n\
                     Consider setting 'compatibility' to a less restrictive set, or to 'off'."
                )));
            }
            enable_features(&search, &pool_name, &[feature], command).map(drop)
        }
        PoolSetting::CacheFile(value) => set_cachefile(&search, &pool_name, value, command),
        // A pool that has features has this version; an older one can only be read.
        PoolSetting::Version(_) => return Err(refused(&"invalid argument for this pool operation")),
        _ => Ok(()),
    };
    match outcome {
        Ok(()) => Ok(0),
        Err(ChangeError::ReadOnly { why }) => Err(refused(&format!("pool is read-only: {why}"))),
        Err(error) => Err(refused(&error)),
    }
}

/// A set must be there; features that it leaves out stay enabled, which is worth a warning.
fn check_compatibility(pool: &OpenPool, value: &str) -> Result<(), Stop> {
    let set = Compatibility::load(value).map_err(|error| Stop::failed(format!("Error: {error}")))?;
    let mut enabled =
        pool.pool().spa().features().iter().filter(|(_, state)| *state != FeatureState::Disabled);
    if enabled.any(|(feature, _)| !set.allows(feature.name)) {
        say_error_line!(
            "Warning: one or more features already enabled on pool '{}'\n\
             are not present in this compatibility set.",
            visible(pool.name())
        );
    }
    Ok(())
}

fn set_vdev(pool: OpenPool, vdev: &str, name: &str, value: &str) -> Outcome {
    let pool_name = pool.name().to_owned();
    let Some(found) = admin::find_vdev(&pool, vdev).map_err(Stop::failed)? else {
        say_error_line!("{}", visible(&format!("cannot find '{vdev}' in '{pool_name}': device not in pool")));
        return Err(Stop::Code(EXIT_INVALID));
    };
    drop(pool);
    let refused = |error: ChangeError| {
        Stop::failed(format!("cannot set property {name} for {vdev} on {pool_name}: {error}"))
    };
    let prop = VdevProp::parse(name, value).map_err(|error| refused(error.into()))?;
    set_vdev_prop(&crate::search::from_env(), &pool_name, &found, prop).map_err(refused)?;
    Ok(0)
}
