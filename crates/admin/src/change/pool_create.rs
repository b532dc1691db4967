//! Creates pools (`zpool create`).

use super::pool_devices::open_devices;
use super::pool_layout::{LayoutClass, PoolLayout};
use super::pool_open::{check_admin, in_process, listed_now, note, unnote};
use super::{ChangeError, check_pool_name, keep_open};
use crate::edit;
use crate::edit::values::{self, Setting, Subject};
use crate::{Caller, ImportSettings, Imported, Opened, Search};
use ::pool::LivePool;
use ::pool::PoolError;
use ::pool::{AuxKind, CreateSpec, FeatureSet, RootDataset};
use cenote::Budget;
use cenote::PoolWriter;
use cenote::{history_command, this_host};
use dsl::DslError;
use dsl::prop;
use dsl::prop::PropValue;
use dsl::prop::change::PropError;
use format::config::PoolConfig;
use format::feature::FEATURES;
use format::prop as table;
use std::collections::BTreeSet;
use vdev::Env;
use zpl::CaseSensitivity;
use zpl::{NewFilesystem, make_filesystem};

/// Version of the file systems that are created.
const FILESYSTEM_VERSION: u64 = 5;
/// Properties that need an encrypted dataset.
const KEY_PROPERTIES: [&str; 3] = ["keyformat", "keylocation", "pbkdf2iters"];

/// Description of a new pool.
#[derive(Debug, Clone)]
pub struct NewPool {
    /// Name of the pool, as stored on its devices.
    pub name: String,
    /// Its vdevs, already checked.
    pub layout: PoolLayout,
    /// Binary logarithm of the sector size of its vdevs; `None`: chosen for the devices.
    pub ashift: Option<u8>,
    /// Short names of the features to enable; their dependencies are added.
    pub features: Vec<String>,
    /// Pool properties to store, already checked.
    pub props: Vec<(String, String)>,
    /// Properties of the root file system.
    pub dataset_props: Vec<(String, String)>,
    /// Temporary name under which it is imported, if it differs from `name`.
    pub temporary: Option<String>,
    /// Settings of its import: alternate root, cache file, temporary name.
    pub settings: ImportSettings,
    /// Command line for its history; `None`: no line is written.
    pub command: Option<String>,
}

/// Creates a pool and imports it.
///
/// # Errors
/// [`ChangeError`]; the devices keep their previous contents unless a device has failed.
pub(crate) fn create_pool(search: &Search, new: &NewPool) -> Result<(), ChangeError> {
    check_admin(search)?;
    let settings = ImportSettings { temporary: new.temporary.is_some(), ..new.settings.clone() };
    let Some(namespace) = &search.namespace else {
        let pool = make_pool(new)?;
        return close(pool, new, &settings);
    };
    // Reserves the name for as long as the devices take.
    let reserved = namespace.reserve(new.temporary.as_ref().unwrap_or(&new.name));
    let is_taken = || Ok(reserved.is_none());
    let mut pool = build(new, Budget::to_stay(), &is_taken)?.in_name_of(search.caller.as_ref());
    let reserved = reserved.ok_or(ChangeError::Exists)?;
    if let Some(temporary) = &new.temporary {
        pool = reopen(pool, new, temporary)?;
    }
    let mut config = listed_now(&pool)?;
    pool.name().clone_into(&mut config.name);
    let live = noted(pool, &config, &settings)?.into_live();
    reserved.fill(Opened::Live(live), settings);
    Ok(())
}

/// Records a new pool as imported. If that fails the pool is destroyed again, because its command fails and the
/// next start would not import it.
fn noted(
    pool: PoolWriter,
    config: &PoolConfig,
    settings: &ImportSettings,
) -> Result<PoolWriter, ChangeError> {
    let Err(error) = note(config, settings) else { return Ok(pool) };
    // A further error is not reported: the first one is.
    let _ = pool.destroy();
    unnote(config.pool_guid, settings);
    Err(error)
}

/// Reopens a new pool under a temporary name, which is not written to its devices.
fn reopen(pool: PoolWriter, new: &NewPool, temporary: &str) -> Result<PoolWriter, ChangeError> {
    let guid = pool.guid();
    pool.close()?;
    let layout = &new.layout;
    let leaves = layout.tops.iter().flat_map(|top| &top.leaves).chain(&layout.spares).chain(&layout.cache);
    let paths = leaves.map(|leaf| leaf.path.clone());
    let found = vdev::scan::Search { paths: paths.collect(), ..vdev::scan::Search::default() }.run();
    let mut options = keep_open::options();
    options.open.name = Some(temporary.to_owned());
    Ok(PoolWriter::import(&found, guid, &options)?)
}

/// Exports a new pool from this process and records it as imported.
fn close(pool: PoolWriter, new: &NewPool, settings: &ImportSettings) -> Result<(), ChangeError> {
    let mut config = listed_now(&pool)?;
    if let Some(temporary) = &new.temporary {
        config.name.clone_from(temporary);
    }
    Ok(noted(pool, &in_process(config), settings)?.close()?)
}

/// Creates a pool and leaves it open. No cache file lists it.
pub(crate) fn make_pool(new: &NewPool) -> Result<PoolWriter, ChangeError> {
    let is_taken = || Ok(Imported::load()?.by_name(new.temporary.as_ref().unwrap_or(&new.name)).is_some());
    build(new, Budget::of_command(), &is_taken)
}

/// Creates a pool. `is_taken` tells whether an imported pool already has its name.
fn build(
    new: &NewPool,
    budget: Budget,
    is_taken: &dyn Fn() -> Result<bool, ChangeError>,
) -> Result<PoolWriter, ChangeError> {
    check_pool_name(&new.name)?;
    let features = with_dependencies(&new.features);
    let mut root = Root::check(new, &features)?;
    let limits = std::mem::take(&mut root.limits);
    if is_taken()? {
        return Err(ChangeError::Exists);
    }
    let is_special = |class| matches!(class, LayoutClass::Special | LayoutClass::Dedup);
    let needs_classes = new.layout.tops.iter().any(|top| is_special(top.class));
    if needs_classes && !features.contains("allocation_classes") {
        return Err(ChangeError::NeedsFeature);
    }
    let devices = open_devices(&new.layout, new.ashift, || ChangeError::TooSmall)?;
    let env = Env::system();
    let spec = CreateSpec {
        features: FeatureSet::Named(features.into_iter().collect()),
        props: new.props.clone(),
        root: root.dataset(env.clone()),
        host: this_host(),
        command: new.command.as_deref().map(|text| history_command(text, &Caller::this_process())),
        cache_bytes: budget.cache_bytes,
        limits: budget.limits,
        ..CreateSpec::new(&new.name, devices.tops)
    };
    let pool = PoolWriter::of(LivePool::create(spec, env).map_err(of_create)?);
    pool.live().add_aux(AuxKind::Spare, devices.spares)?;
    pool.live().add_aux(AuxKind::Cache, devices.cache)?;
    if !limits.is_empty() {
        edit::set(&pool, &new.name, &limits).map_err(|e| ChangeError::Property(e.to_string()))?;
    }
    Ok(pool)
}

fn of_create(error: PoolError) -> ChangeError {
    match error {
        PoolError::Dsl(DslError::Space { .. }) => ChangeError::NoSpace,
        error => error.into(),
    }
}

/// Features and all their dependencies.
fn with_dependencies(names: &[String]) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let mut rest: Vec<&str> = names.iter().map(String::as_str).collect();
    while let Some(name) = rest.pop() {
        if all.insert(name.to_owned()) {
            let known = FEATURES.iter().find(|feature| feature.name == name);
            rest.extend(known.into_iter().flat_map(|feature| feature.depends).copied());
        }
    }
    all
}

/// Default `recordsize` of file systems, in bytes.
const RECORD_SIZE: u64 = 128 << 10;

/// Properties of a new pool's root file system.
struct Root {
    props: Vec<(String, PropValue)>,
    filesystem: NewFilesystem,
    /// Quotas of owners.
    limits: Vec<Setting>,
}

impl Root {
    /// Checks the properties.
    fn check(new: &NewPool, features: &BTreeSet<String>) -> Result<Root, ChangeError> {
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        let projects = features.contains("project_quota");
        let filesystem = NewFilesystem { projects, uid, gid, ..NewFilesystem::default() };
        let mut root = Root { props: Vec::new(), filesystem, limits: Vec::new() };
        for (name, text) in &new.dataset_props {
            root.take(name, text, new, features)?;
        }
        let number = |wanted: &str, default: u64| {
            let given = root.props.iter().find(|(name, _)| name == wanted);
            given.and_then(|(_, value)| value.number()).unwrap_or(default)
        };
        if number("special_small_blocks", 0) > number("recordsize", RECORD_SIZE) {
            let why = "special_small_blocks property must not be greater than recordsize";
            return Err(ChangeError::Property(why.to_owned()));
        }
        Ok(root)
    }

    fn take(
        &mut self,
        name: &str,
        text: &str,
        new: &NewPool,
        features: &BTreeSet<String>,
    ) -> Result<(), ChangeError> {
        if table::is_user(name) {
            prop::change::validate_user(name, text).map_err(|e| property(&e))?;
            self.props.push((name.to_owned(), PropValue::String(text.to_owned())));
            return Ok(());
        }
        if table::per_owner(name).is_some() {
            let subject =
                Subject { kind: table::FS, creating: true, block_size: 1, version: FILESYSTEM_VERSION };
            let setting = values::resolve(name, text, &subject, &|feature| features.contains(feature));
            self.limits.push(setting.map_err(|e| ChangeError::Property(e.to_string()))?);
            return Ok(());
        }
        let known = prop::change::settable(name, table::FS, true).map_err(|e| property(&e))?;
        if matches!(known.name, "quota" | "refquota") && text == "0" {
            return Err(ChangeError::Property("use 'none' to disable quota/refquota".to_owned()));
        }
        let value = prop::change::parse(known, text).map_err(|e| property(&e))?;
        let is_enabled = |feature: &str| features.contains(feature);
        prop::change::validate_for(known, &value, &is_enabled).map_err(|e| property(&e))?;
        let number = value.number().unwrap_or(0);
        match known.name {
            "encryption" if number != ENCRYPTION_OFF => return Err(unsupported(name, text)),
            "dedup" if number != DEDUP_OFF => return Err(unsupported(name, text)),
            name if KEY_PROPERTIES.contains(&name) && !matches!(text, "none" | "0") => {
                let why = "Encryption must be turned on to set encryption properties.";
                return Err(ChangeError::Property(why.to_owned()));
            }
            "special_small_blocks" if number != 0 && !has_special(&new.layout) => {
                let why = "special_small_blocks property requires a special vdev";
                return Err(ChangeError::Property(why.to_owned()));
            }
            "version" if !matches!(number, 0 | FILESYSTEM_VERSION) => return Err(unsupported(name, text)),
            "version" | "encryption" => {}
            "normalization" => self.filesystem.normalization = number,
            "utf8only" => self.filesystem.utf8only = number != 0,
            "casesensitivity" => {
                self.filesystem.case = match number {
                    1 => CaseSensitivity::Insensitive,
                    2 => CaseSensitivity::Mixed,
                    _ => CaseSensitivity::Sensitive,
                }
            }
            name => self.props.push((name.to_owned(), value)),
        }
        Ok(())
    }

    fn dataset(self, env: Env) -> RootDataset {
        let filesystem = self.filesystem;
        RootDataset {
            props: self.props,
            case_insensitive: filesystem.case != CaseSensitivity::Sensitive,
            fill: Box::new(move |set, tx| {
                let made = make_filesystem(set, &filesystem, &env, tx);
                made.map(drop).map_err(|e| DslError::Fill { source: Box::new(e) })
            }),
        }
    }
}

/// Index value of `encryption=off` and of `dedup=off`.
const ENCRYPTION_OFF: u64 = 2;
const DEDUP_OFF: u64 = 2;

fn has_special(layout: &PoolLayout) -> bool {
    layout.tops.iter().any(|top| top.class == LayoutClass::Special)
}

fn property(error: &PropError) -> ChangeError {
    match error {
        PropError::NeedsFeature { .. } => ChangeError::NeedsFeature,
        error => ChangeError::Property(error.to_string()),
    }
}

fn unsupported(name: &str, value: &str) -> ChangeError {
    ChangeError::Unsupported { what: format!("property '{name}={value}' is") }
}
