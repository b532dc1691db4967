//! `zpool create`.
//!
//! # Order
//! As the tool of OpenZFS checks: options as they come, operands, a slash in the name, vdevs, alternate root,
//! mount point; with `-n` that is all. Then feature sets, the name, properties in their order, the devices.

use super::{Given, command_line, layout, texts};
use crate::getopt::Getopt;
use crate::out::{Out, visible};
use crate::stop::{Outcome, Stop};
use admin::ImportSettings;
use admin::change::{
    Allow, ChangeError, Compatibility, NewPool, PoolLayout, PoolSetting, SetWhen, check_layout,
    check_pool_name, check_pool_setting, create_pool, find_device,
};
use admin::mounting::Mounting;
use format::feature::PROPERTY_PREFIX;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Version of pools with features.
const VERSION: u64 = 5000;

/// What the options ask for.
#[derive(Default)]
struct Wanted {
    force: bool,
    dry: bool,
    /// `-d`: only the features that are named.
    few: bool,
    pool: Given,
    dataset: Given,
    mountpoint: Option<String>,
    temporary: Option<String>,
}

pub(super) fn run(args: Vec<OsString>, out: &Out) -> Outcome {
    let command = command_line("create", &args);
    let mut walk = Getopt::new(args, ":fndR:m:o:O:t:", &[]);
    let wanted = options(&mut walk)?;
    let operands = texts(&walk.operands());
    let Some((name, vdevs)) = operands.split_first() else {
        return Err(Stop::usage("missing pool name argument"));
    };
    if vdevs.is_empty() {
        return Err(Stop::usage("missing vdev specification"));
    }
    if name.contains('/') {
        return Err(Stop::failed(format!(
            "cannot create '{name}': invalid character '/' in pool name\nuse 'zfs create' to create a dataset"
        )));
    }
    if let Some(ashift) = wanted.pool.get("ashift") {
        super::check_ashift(ashift).map_err(Stop::failed)?;
    }
    let vdevs = PoolLayout::parse(vdevs, &mut find_device).map_err(Stop::failed)?;
    let allow = if wanted.force { Allow::ALL } else { Allow::default() };
    check_layout(&vdevs, None, allow).map_err(|e| stop(name, &e))?;
    check_root(&wanted)?;
    check_mountpoint(name, &wanted)?;
    if wanted.dry {
        out.print(&layout::new_pool(name, &vdevs, out));
        return Ok(0);
    }
    let new = describe(name, vdevs, &wanted, command)?;
    let search = crate::search::from_env();
    create_pool(&search, &new).map_err(|e| stop(name, &e))?;
    let known = new.temporary.as_ref().unwrap_or(&new.name);
    let Some(mounting) = Mounting::of(&search) else { return Ok(0) };
    // The pool is there all the same.
    mounting.mount_new(known).map_err(Stop::failed)?;
    if let Some(path) = &wanted.mountpoint {
        crate::zfs::mount::tell_elsewhere(known, path, out);
    }
    Ok(0)
}

fn options(walk: &mut Getopt) -> Result<Wanted, Stop> {
    let mut wanted = Wanted::default();
    while let Some((letter, value)) = walk.next()? {
        let value = value.map(|v| v.to_string_lossy().into_owned()).unwrap_or_default();
        match letter {
            'f' => wanted.force = true,
            'n' => wanted.dry = true,
            'd' => wanted.few = true,
            'm' => wanted.mountpoint = Some(value),
            'R' => wanted.pool.add("altroot", &value).map_err(Stop::failed)?,
            'o' => pool_option(&value, &mut wanted.pool)?,
            'O' => dataset_option(&value, &mut wanted.dataset)?,
            't' => {
                if value.contains('/') {
                    return Err(Stop::failed(format!(
                        "cannot create '{value}': invalid character '/' in temporary name\n\
                         use 'zfs create' to create a dataset"
                    )));
                }
                wanted.temporary = Some(value);
            }
            _ => {}
        }
    }
    Ok(wanted)
}

/// `-o`: a property of the pool.
fn pool_option(text: &str, given: &mut Given) -> Result<(), Stop> {
    let (name, value) = text.split_once('=').ok_or_else(|| Stop::failed("missing '=' for -o option"))?;
    let name = super::known_pool_property(name)
        .ok_or_else(|| Stop::failed(format!("property '{name}' is not a valid pool or vdev property")))?;
    let both = given.get("version").is_some() && name.starts_with(PROPERTY_PREFIX)
        || name == "version" && given.names().any(|known| known.starts_with(PROPERTY_PREFIX));
    if both {
        return Err(Stop::failed("'feature@' and 'version' properties cannot be specified together"));
    }
    given.add(&name, value).map_err(Stop::failed)
}

/// `-O`: a property of the root file system.
fn dataset_option(text: &str, given: &mut Given) -> Result<(), Stop> {
    let (name, value) = text.split_once('=').ok_or_else(|| Stop::failed("missing '=' for -O option"))?;
    let known = format::prop::dataset(name).filter(|prop| prop.applies_to(format::prop::FS));
    let is_limit = format::prop::per_owner(name).is_some_and(|(prefix, _)| prefix.ends_with("quota@"));
    let name = match known {
        Some(known) => known.name,
        None if format::prop::is_user(name) || is_limit => name,
        None => return Err(Stop::failed(format!("property '{name}' is not a valid filesystem property"))),
    };
    given.add(name, value).map_err(Stop::failed)
}

fn check_root(wanted: &Wanted) -> Result<(), Stop> {
    match wanted.pool.get("altroot") {
        Some(root) if !root.starts_with('/') => {
            Err(Stop::failed(format!("invalid alternate root '{root}': must be an absolute path")))
        }
        _ => Ok(()),
    }
}

/// The root file system must not hide anything where it is going to be mounted.
fn check_mountpoint(name: &str, wanted: &Wanted) -> Result<(), Stop> {
    let given = wanted.mountpoint.as_deref().or_else(|| wanted.dataset.get("mountpoint"));
    if matches!(given, Some("none" | "legacy")) {
        return Ok(());
    }
    if let Some(path) = given.filter(|path| !path.starts_with('/')) {
        return Err(Stop::failed(format!(
            "invalid mountpoint '{path}': must be an absolute path, 'legacy', or 'none'"
        )));
    }
    let below = given.map_or_else(|| format!("/{name}"), str::to_owned);
    let path = match wanted.pool.get("altroot") {
        Some(root) => format!("{}{below}", root.trim_end_matches('/')),
        None => below,
    };
    let told = |what: String| {
        Stop::failed(format!("mountpoint '{path}' {what}\nuse '-m' option to provide a different default"))
    };
    match std::fs::read_dir(Path::new(&path)).map(|mut entries| entries.next().is_some()) {
        Ok(false) => Ok(()),
        Ok(true) => Err(told("exists and is not empty".to_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(told(format!(": {}", super::errno_text(&error)))),
    }
}

/// Puts together what is to be made.
fn describe(name: &str, layout: PoolLayout, wanted: &Wanted, command: String) -> Result<NewPool, Stop> {
    let compatibility = compatibility(wanted)?;
    let version: Option<u64> = wanted.pool.get("version").map(|text| text.parse().unwrap_or(u64::MAX));
    if !wanted.few && version.is_some_and(|version| version >= VERSION) {
        // All features would be enabled, and version 5000 says so too.
        say_error_line!("'feature@' and 'version' properties cannot be specified together");
        return Err(Stop::Code(2));
    }
    let refused = |why: &dyn std::fmt::Display| Stop::failed(format!("cannot create '{name}': {why}"));
    check_pool_name(name)
        .map_err(|problem| refused(&format!("{problem}\npool name may have been omitted")))?;
    let mut new = NewPool {
        name: name.to_owned(),
        layout,
        ashift: None,
        features: Vec::new(),
        props: Vec::new(),
        dataset_props: wanted.dataset.pairs(),
        temporary: None,
        settings: ImportSettings::default(),
        command: Some(command),
    };
    if !wanted.few {
        new.features = compatibility.features().into_iter().map(str::to_owned).collect();
    }
    for (prop, value) in wanted.pool.pairs() {
        let setting = check_pool_setting(&prop, &value, SetWhen::Create).map_err(|why| refused(&why))?;
        apply(setting, &compatibility, &mut new).map_err(|why| refused(&why))?;
    }
    if let Some(path) = &wanted.mountpoint {
        new.dataset_props.retain(|(prop, _)| prop != "mountpoint");
        new.dataset_props.push(("mountpoint".to_owned(), path.clone()));
    }
    if let Some(temporary) = &wanted.temporary {
        check_pool_name(temporary)
            .map_err(|problem| Stop::failed(format!("cannot create '{temporary}': {problem}")))?;
        new.temporary = Some(temporary.clone());
        new.command = None;
    }
    super::unlist(&wanted.pool, new.temporary.is_some(), &mut new.settings);
    Ok(new)
}

fn compatibility(wanted: &Wanted) -> Result<Compatibility, Stop> {
    let names = wanted.pool.get("compatibility").unwrap_or("off");
    Compatibility::load(names).map_err(|error| Stop::failed(format!("Error: {error}")))
}

fn apply(setting: PoolSetting, compatibility: &Compatibility, new: &mut NewPool) -> Result<(), String> {
    match setting {
        PoolSetting::Stored(name, value) => {
            if name == "ashift" {
                new.ashift = value.parse().ok().filter(|ashift| *ashift != 0);
            }
            if (name.as_str(), value.as_str()) != ("ashift", "0") {
                new.props.push((name, value));
            }
        }
        PoolSetting::Feature(name) => {
            if !compatibility.allows(name) {
                say_error_line!(
                    "Warning: feature \"{name}\" enabled but is not in specified 'compatibility' feature set."
                );
            }
            new.features.push(name.to_owned());
        }
        PoolSetting::NoFeature(name) => new.features.retain(|known| known != name),
        PoolSetting::Compatibility(value) if value.is_empty() || value == "off" => {}
        PoolSetting::Compatibility(value) => new.props.push(("compatibility".to_owned(), value)),
        PoolSetting::CacheFile(value) => new.settings.cachefile = Some(value).filter(|v| !v.is_empty()),
        PoolSetting::Version(VERSION) => return Err("invalid argument for this pool operation".to_owned()),
        PoolSetting::Version(version) => {
            return Err(format!("pools of version {version} are not supported by this version of Cenote"));
        }
        PoolSetting::TemporaryName(name) => new.temporary = Some(name),
        PoolSetting::AltRoot(root) => new.settings.altroot = Some(root),
        PoolSetting::ReadOnly(_) => {}
    }
    Ok(())
}

/// What the tool says of an error.
fn stop(name: &str, error: &ChangeError) -> Stop {
    match error {
        ChangeError::Vdevs { .. } => Stop::failed(error),
        ChangeError::Name(problem) => {
            Stop::failed(format!("cannot create '{name}': {problem}\npool name may have been omitted"))
        }
        ChangeError::DeviceBusy { disk: Some(path) } => Stop::failed(format!(
            "{}\ncannot create '{name}': {error}",
            visible(&format!("cannot open '{}': Device or resource busy", PathBuf::from(path).display()))
        )),
        error => Stop::failed(format!("cannot create '{name}': {error}")),
    }
}
