//! Imports one pool (`zpool import`).
//!
//! A command in process opens the pool for writing (which claims the logs of a crash), makes the changes that the
//! options ask for, exports it, and records it as imported with its settings. With a namespace the pool stays open
//! there.

use super::device_holder::with_holder;
use super::pool_open::{in_process, listed, listed_now, note, options, unnote, without_logs};
use super::{ChangeError, check_pool_name, keep_open};
use crate::{
    AdminError, Caller, Candidate, ImportSettings, Imported, Namespace, Opened, Problem, Search,
    device_problems, host_id,
};
use ::pool::import::candidates_for;
use ::pool::{OpenOptions, Pool, Which};
use cenote::PoolWriter;
use format::config::{PoolConfig, VdevNode};
use format::{PoolGuid, Txg, VdevGuid};
use std::collections::HashMap;
use std::sync::Arc;
use vdev::scan::Found;

/// Options of an import.
#[derive(Debug, Clone, Default)]
pub struct ImportRequest {
    /// New name of the pool; `None`: its present name.
    pub new_name: Option<String>,
    /// Import it even if another host has not exported it.
    pub force: bool,
    /// If the newest state cannot be read, use the newest readable one (`-F`).
    pub recover: bool,
    /// Only determine whether `recover` would help (`-n`).
    pub dry: bool,
    /// Use only states up to this txg (`-T`).
    pub max_txg: Option<u64>,
    /// Import it even if log devices are missing (`-m`).
    pub allow_missing_logs: bool,
    /// Make the checkpoint the state of the pool (`--rewind-to-checkpoint`): what was written later is lost.
    pub go_back: bool,
    /// Import a destroyed pool (`-D`).
    pub destroyed: bool,
    /// Pool properties to store, already checked.
    pub props: Vec<(String, String)>,
    /// Short names of features to enable.
    pub features: Vec<String>,
    /// Settings of the import. With a temporary name, `new_name` is not written to the pool.
    pub settings: ImportSettings,
    /// Command line for its history; empty: no line is written.
    pub command: String,
}

/// Pools that can be imported, and the devices on which they were found.
#[derive(Default)]
pub struct Importable {
    found: Found,
    namespace: Option<Arc<Namespace>>,
    caller: Option<Caller>,
    /// The pools that are not imported yet.
    pub pools: Vec<Candidate>,
    /// What could not be examined.
    pub problems: Vec<Problem>,
}

/// Finds the pools that can be imported; with [`Search::destroyed`], destroyed pools.
///
/// # Errors
/// [`AdminError::CacheFile`] if [`Search::cachefile`] is set and cannot be used.
pub fn importable(search: &Search) -> Result<Importable, AdminError> {
    let found = search.run()?;
    let mut pools = candidates_for(&found, host_id());
    pools.retain(|pool| pool.is_destroyed() == search.destroyed);
    if let Some(namespace) = &search.namespace {
        pools.retain(|pool| !namespace.has(pool.guid));
    } else {
        let imported = Imported::load()?;
        pools.retain(|pool| imported.by_guid(pool.guid).is_none());
    }
    let problems = device_problems(&found);
    let (namespace, caller) = (search.namespace.clone(), search.caller.clone());
    Ok(Importable { found, namespace, caller, pools, problems })
}

impl Importable {
    /// The pools with this name or guid.
    pub fn matching<'c>(&'c self, wanted: &str) -> Vec<&'c Candidate> {
        let guid: Option<u64> = wanted.parse().ok();
        let is_it = |pool: &&Candidate| match guid {
            Some(guid) => pool.guid == PoolGuid(guid),
            None => pool.name == wanted,
        };
        self.pools.iter().filter(is_it).collect()
    }

    /// Imports one of the pools.
    ///
    /// # Errors
    /// [`ChangeError`]; then the pool is unchanged unless a device has failed.
    pub fn import(&self, pool: &Candidate, request: &ImportRequest) -> Result<(), ChangeError> {
        let name = request.new_name.as_deref().unwrap_or(&pool.name);
        if self.caller.as_ref().is_some_and(|caller| !caller.is_admin()) {
            return Err(ChangeError::Denied);
        }
        if let Some(new) = &request.new_name {
            check_pool_name(new)?;
        }
        let reserved = match &self.namespace {
            Some(namespace) => Some(namespace.reserve(name).ok_or(ChangeError::Exists)?),
            None if Imported::load()?.by_name(name).is_some() => return Err(ChangeError::Exists),
            None => None,
        };
        let open = OpenOptions {
            max_txg: request.max_txg.map(Txg),
            recover: request.recover,
            allow_missing_logs: request.allow_missing_logs,
            destroyed: request.destroyed,
            checkpoint: request.settings.checkpoint || request.go_back,
            ..options().open
        };
        if request.settings.readonly || request.dry {
            let shown = self.open_for_reading(pool, request, &open)?;
            if let Some((reserved, shown)) = reserved.zip(shown) {
                reserved.fill(Opened::ReadOnly(shown, self.found.clone()), request.settings.clone());
            }
            return Ok(());
        }
        let mut import = if reserved.is_some() { keep_open::options() } else { options() };
        import.open = OpenOptions { cache_bytes: import.open.cache_bytes, ..open };
        import.force = request.force;
        match &request.new_name {
            Some(new) if request.settings.temporary => import.open.name = Some(new.clone()),
            new => import.new_name.clone_from(new),
        }
        let writer = PoolWriter::import(&self.found, pool.guid, &import)
            .map_err(|e| self.told(with_holder(e.into()), pool))?
            .in_name_of(self.caller.as_ref());
        let outcome = finish(&writer, request);
        // Recorded before it can be found under its name: a pool that is not recorded would be lost at the next
        // start.
        let noted = outcome.and_then(|()| listed_now(&writer)).and_then(|mut config| {
            name.clone_into(&mut config.name);
            let config = if request.allow_missing_logs { without_logs(config) } else { config };
            note(&self.noted(config), &request.settings)
        });
        match (reserved, noted) {
            (Some(reserved), Ok(())) => {
                reserved.fill(Opened::Live(writer.into_live()), request.settings.clone());
                Ok(())
            }
            (_, noted) => {
                if noted.is_err() {
                    unnote(pool.guid, &request.settings);
                }
                writer.close().map_err(ChangeError::from).and(noted)
            }
        }
    }

    /// Imports a pool for reading only: its devices are not written to.
    fn open_for_reading(
        &self,
        pool: &Candidate,
        request: &ImportRequest,
        open: &OpenOptions,
    ) -> Result<Option<cenote::Pool>, ChangeError> {
        if request.new_name.is_some() && !request.settings.temporary && !request.dry {
            return Err(ChangeError::FixedName);
        }
        let name = request.new_name.clone().filter(|_| !request.dry);
        let open = OpenOptions { name, ..open.clone() };
        let opened = Pool::open(self.found.clone(), &Which::Guid(pool.guid), &open);
        let opened = opened.map_err(|e| self.told(e.into(), pool))?;
        if request.dry {
            return Ok(None);
        }
        let mut config = opened.config().clone();
        config.name = request.new_name.clone().unwrap_or_else(|| opened.name().to_owned());
        relocate(&mut config.vdev_tree, &self.paths());
        let config = self.noted(listed(config, &opened)?);
        note(&config, &request.settings).inspect_err(|_| unnote(pool.guid, &request.settings))?;
        Ok(Some(cenote::Pool::from(opened)))
    }

    /// The configuration to record. A pool that is not kept in a namespace is marked as imported in process.
    fn noted(&self, config: PoolConfig) -> PoolConfig {
        if self.namespace.is_none() { in_process(config) } else { config }
    }

    /// Paths at which the leaves were found.
    fn paths(&self) -> HashMap<VdevGuid, String> {
        let place = |leaf: &vdev::scan::Leaf| {
            // A leaf in a partition was found through its disk and keeps the path in its configuration.
            let path = leaf.path.to_str().filter(|_| leaf.partition.is_none())?;
            Some((leaf.probe.guid()?, path.to_owned()))
        };
        self.found.leaves.iter().filter_map(place).collect()
    }

    /// Adds facts from the pool's labels to an error.
    fn told(&self, error: ChangeError, pool: &Candidate) -> ChangeError {
        let of_pool = |leaf: &&vdev::scan::Leaf| {
            leaf.probe.newest_config().is_some_and(|config| config.pool_guid == pool.guid)
        };
        let newest = || {
            let leaves = self.found.leaves.iter().filter(of_pool);
            leaves.filter_map(|leaf| leaf.probe.newest_uberblock()).map(|ub| ub.uberblock.timestamp).max()
        };
        match error {
            ChangeError::OtherHost { host, hostid, .. } => {
                ChangeError::OtherHost { host, hostid, accessed: newest().unwrap_or(0) }
            }
            error => error,
        }
    }
}

/// Sets the paths of leaves to where they were found.
fn relocate(node: &mut VdevNode, paths: &HashMap<VdevGuid, String>) {
    if let Some(path) = paths.get(&node.guid).filter(|_| node.children.is_empty()) {
        node.path = Some(path.clone());
    }
    node.children.iter_mut().for_each(|child| relocate(child, paths));
}

/// Makes the changes that the options ask for, in the open pool.
fn finish(pool: &PoolWriter, request: &ImportRequest) -> Result<(), ChangeError> {
    if !request.props.is_empty() {
        pool.live().set_props(request.props.clone())?;
    }
    if !request.features.is_empty() {
        let names: Vec<&str> = request.features.iter().map(String::as_str).collect();
        pool.live().enable_features(&names)?;
    }
    pool.live().note_import()?;
    if !request.command.is_empty() {
        pool.record(&request.command)?;
    }
    Ok(())
}
