//! `zpool import` of pools: one by its name or guid, or all that are found.
//!
//! # Order
//! The name is free -> devices are searched (what cannot be looked at becomes a warning) -> the pool is picked, its new
//! name and the properties are checked -> it is imported -> its file systems are mounted.
//!
//! In process nothing stays open and nothing is mounted: an imported pool is one that the cache file lists, and every
//! command opens it again.

use crate::change::{
    self, ChangeError, ImportRequest, Importable, PoolSetting, SetWhen, check_pool_name, check_pool_setting,
};
use crate::verbs::{Code, Reason, Refused, Right, Verb, Warning};
use crate::{Candidate, Session};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Version of pools with features.
const VERSION: u64 = 5000;

/// Pools to import.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// Name or guid of the pool; `None`: all pools that are found (`-a`).
    pub pool: Option<String>,
    /// Name of the pool from now on.
    pub new_name: Option<String>,
    /// Properties, in their order (`-o`, `-R`).
    pub properties: Vec<(String, String)>,
    /// Also if another machine has not let go of the pool (`-f`).
    pub force: bool,
    /// If the newest state cannot be read, the newest that can (`-F`).
    pub rewind: bool,
    /// Only finds out whether the import would succeed (`-n`).
    pub dry_run: bool,
    /// Only states up to this transaction group (`-T`).
    pub txg_max: Option<u64>,
    /// Also without log devices that are missing (`-m`).
    pub allow_missing_logs: bool,
    /// Destroyed pools are meant (`-D`).
    pub destroyed: bool,
    /// The new name holds while the pool is imported, and is not written to it (`-t`).
    pub temporary: bool,
    /// The pool as of its checkpoint (`--rewind-to-checkpoint`).
    pub checkpoint: bool,
    /// The caller has named the places to search (`-d`): one that does not exist holds no pools, and is no problem.
    pub names_places: bool,
    /// File systems are mounted afterwards.
    pub mount: bool,
    /// Options of these mounts.
    pub mount_options: Vec<String>,
}

/// What became of each pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The pools, in the order in which they were imported or refused.
    pub pools: Vec<Outcome>,
    /// Number of places and devices that could not be looked at; warnings say which.
    pub problems: usize,
}

/// What became of one pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Name by which it is, or would be, imported.
    pub pool: String,
    /// Why it is not imported; `None`: it is.
    pub refusal: Option<Refusal>,
    /// The messages of file systems that are not mounted.
    pub not_mounted: Vec<String>,
}

/// A vdev that cannot be used. `Display` gives what the command says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingVdev {
    /// Guid of the vdev.
    pub guid: u64,
    /// Name of the vdev as the commands show it; `None`: only its number in the pool is known.
    pub name: Option<String>,
    /// The devices that it lacks; its own, if it is not made of others.
    pub devices: Vec<MissingDevice>,
    /// What the command says of it.
    pub text: String,
}

/// A device that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingDevice {
    /// Guid of the device.
    pub guid: u64,
    /// Path at which it was, or is.
    pub path: Option<PathBuf>,
}

impl std::fmt::Display for MissingVdev {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<&::pool::MissingVdev> for MissingVdev {
    fn from(vdev: &::pool::MissingVdev) -> MissingVdev {
        let device =
            |device: &::pool::MissingDevice| MissingDevice { guid: device.guid.0, path: device.path.clone() };
        MissingVdev {
            guid: vdev.guid.0,
            name: vdev.name.clone(),
            devices: vdev.devices.iter().map(device).collect(),
            text: vdev.to_string(),
        }
    }
}

/// Why a pool is not imported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    /// The caller is no administrator.
    #[error("{0}")]
    Denied(Reason),
    /// The cache file cannot be read.
    #[error("{0}")]
    CacheFile(Reason),
    /// A pool of this name is imported.
    #[error(
        "cannot import '{name}': a pool with that name already exists\n\
         use the form 'zpool import <pool | id> <newpool>' to give it a new name"
    )]
    NameTaken {
        /// The name.
        name: String,
    },
    /// No such pool was found.
    #[error("cannot import '{name}': no such pool available")]
    NotFound {
        /// The name or guid.
        name: String,
    },
    /// Several pools have this name.
    #[error("cannot import '{name}': more than one matching pool\nimport by numeric ID instead")]
    Ambiguous {
        /// The name.
        name: String,
    },
    /// A name that no pool can have.
    #[error("cannot import '{name}': {reason}")]
    NewName {
        /// The name.
        name: String,
        /// What is wrong with it.
        reason: Reason,
    },
    /// A property cannot be set, or not to this value.
    #[error("cannot import pool '{pool}': {reason}")]
    Property {
        /// Name of the pool.
        pool: String,
        /// Why.
        reason: Reason,
    },
    /// The pool has no checkpoint to go back to.
    #[error(
        "cannot import '{pool}': checkpoint does not exist\n\
         \tDestroy and re-create the pool from\n\
         \ta backup source."
    )]
    NoCheckpoint {
        /// Name of the pool.
        pool: String,
    },
    /// Another machine has not let go of the pool.
    #[error("cannot import '{pool}': pool was previously in use from another system")]
    OtherHost {
        /// Name of the pool.
        pool: String,
        /// New name that was asked for.
        new_name: Option<String>,
        /// Name of that machine; empty: not known.
        host: String,
        /// Host id of that machine.
        hostid: u64,
        /// When it last wrote, in seconds since 1970.
        accessed: u64,
    },
    /// Devices without which the pool cannot be opened are missing.
    #[error("cannot import '{pool}': one or more devices is currently unavailable")]
    Unavailable {
        /// Name of the pool.
        pool: String,
        /// New name that was asked for.
        new_name: Option<String>,
        /// The vdevs that lack devices.
        vdevs: Vec<MissingVdev>,
    },
    /// Log devices are missing.
    #[error("cannot import '{pool}': one or more devices is currently unavailable")]
    MissingLogs {
        /// Name of the pool.
        pool: String,
        /// New name that was asked for.
        new_name: Option<String>,
        /// The vdevs that lack devices.
        vdevs: Vec<MissingVdev>,
    },
    /// This version of Cenote can only read the pool.
    #[error("cannot import '{pool}': {reason}")]
    ReadOnly {
        /// Name of the pool.
        pool: String,
        /// New name that was asked for.
        new_name: Option<String>,
        /// Why.
        reason: Reason,
    },
    /// The pool cannot be imported.
    #[error("cannot import '{pool}'{}: {reason}", match new_name {
        Some(new) => format!(" as '{new}'"),
        None => String::new(),
    })]
    Failed {
        /// Name of the pool.
        pool: String,
        /// New name that was asked for.
        new_name: Option<String>,
        /// Why.
        reason: Reason,
    },
}

from_denied!(Refusal, Refusal::Denied);

impl Refused for Refusal {
    fn reason(&self) -> Reason {
        match self {
            Refusal::Denied(reason)
            | Refusal::CacheFile(reason)
            | Refusal::NewName { reason, .. }
            | Refusal::Property { reason, .. }
            | Refusal::ReadOnly { reason, .. }
            | Refusal::Failed { reason, .. } => reason.clone(),
            Refusal::NameTaken { name } => about(Code::Exists, name, self),
            Refusal::NotFound { name } => about(Code::NoPool, name, self),
            Refusal::Ambiguous { name } => about(Code::Refused, name, self),
            Refusal::NoCheckpoint { pool } => about(Code::Failed, pool, self),
            Refusal::OtherHost { pool, .. } => about(Code::Busy, pool, self),
            Refusal::Unavailable { pool, .. } | Refusal::MissingLogs { pool, .. } => {
                about(Code::Failed, pool, self)
            }
        }
    }
}

fn about(code: Code, name: &str, refusal: &Refusal) -> Reason {
    Reason { about: vec![name.to_owned()], ..Reason::new(code, refusal) }
}

impl Verb for Request {
    const NAME: &'static str = "zpool import";
    const RIGHT: Right = Right::Administrator;
    type Answer = Answer;
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, Refusal> {
        if let Some(name) = self.pool.as_ref().filter(|_| self.new_name.is_none()) {
            let imported =
                change::imported_names(session.search()).map_err(|error| Refusal::CacheFile(error.into()))?;
            if imported.contains(name) {
                return Err(Refusal::NameTaken { name: name.clone() });
            }
        }
        let found = self.search(session);
        let problems = found.problems.len();
        let Some(wanted) = &self.pool else {
            let pools = found.pools.iter().map(|pool| self.import_of_all(&found, pool, session)).collect();
            return Ok(Answer { pools, problems });
        };
        let pool = match &found.matching(wanted)[..] {
            [] => return Err(Refusal::NotFound { name: wanted.clone() }),
            [one] => *one,
            _ => return Err(Refusal::Ambiguous { name: wanted.clone() }),
        };
        if let Some(new) = &self.new_name {
            check_pool_name(new).map_err(|problem| Refusal::NewName {
                name: new.clone(),
                reason: ChangeError::from(problem).into(),
            })?;
        }
        let name = self.import(&found, pool, session)?;
        let not_mounted = self.mounted(session, &name);
        Ok(Answer { pools: vec![Outcome { pool: name, refusal: None, not_mounted }], problems })
    }
}

/// Mounts the file systems of a pool that was imported. The messages of those that are not mounted.
pub fn mount_all(session: &Session<'_>, pool: &str, options: &[String]) -> Vec<String> {
    let mounting = session.mounting();
    let refused = mounting.map(|mounting| mounting.after_import(pool, options)).unwrap_or_default();
    refused.iter().map(ToString::to_string).collect()
}

impl Request {
    /// The pools that could be imported. What cannot be looked at becomes a warning.
    fn search(&self, session: &mut Session<'_>) -> Importable {
        let mut found = change::importable(session.search()).unwrap_or_else(|error| {
            session.warn(Warning::Problem { message: format!("failed to open cache file: {error}") });
            Importable::default()
        });
        found.problems.retain(|problem| !self.names_places || Path::new(&problem.what).exists());
        for problem in &found.problems {
            session.warn(Warning::Problem { message: problem.to_string() });
        }
        found
    }

    /// One of all pools: a refusal stops no other.
    fn import_of_all(&self, found: &Importable, pool: &Candidate, session: &mut Session<'_>) -> Outcome {
        match self.import(found, pool, session) {
            Ok(name) => {
                let not_mounted = self.mounted(session, &name);
                Outcome { pool: name, refusal: None, not_mounted }
            }
            Err(refusal) => {
                Outcome { pool: pool.name.clone(), refusal: Some(refusal), not_mounted: Vec::new() }
            }
        }
    }

    fn mounted(&self, session: &Session<'_>, pool: &str) -> Vec<String> {
        if self.mount && !self.dry_run { mount_all(session, pool, &self.mount_options) } else { Vec::new() }
    }

    /// Imports a pool that was found. The name that it has now.
    fn import(&self, found: &Importable, pool: &Candidate, session: &Session<'_>) -> Result<String, Refusal> {
        let request = self.describe(&pool.name, session)?;
        found.import(pool, &request).map_err(|error| self.refused(pool, error))?;
        Ok(self.new_name.clone().unwrap_or_else(|| pool.name.clone()))
    }

    /// How the pool is to be imported, its properties checked.
    fn describe(&self, pool: &str, session: &Session<'_>) -> Result<ImportRequest, Refusal> {
        let mut request = ImportRequest {
            new_name: self.new_name.clone(),
            force: self.force,
            recover: self.rewind,
            dry: self.dry_run,
            max_txg: self.txg_max,
            allow_missing_logs: self.allow_missing_logs,
            destroyed: self.destroyed,
            command: session.command_line().to_owned(),
            ..ImportRequest::default()
        };
        request.settings.temporary = self.temporary;
        for (name, value) in &self.properties {
            let refused = |message: String| Refusal::Property {
                pool: pool.to_owned(),
                reason: Reason::new(Code::Value, message),
            };
            match check_pool_setting(name, value, SetWhen::Import).map_err(refused)? {
                PoolSetting::Stored(name, value) => request.props.push((name, value)),
                PoolSetting::Compatibility(value) => request.props.push(("compatibility".to_owned(), value)),
                PoolSetting::Feature(feature) => request.features.push(feature.to_owned()),
                PoolSetting::CacheFile(value) => {
                    request.settings.cachefile = Some(value).filter(|value| !value.is_empty());
                }
                PoolSetting::ReadOnly(readonly) => request.settings.readonly = readonly,
                PoolSetting::AltRoot(root) => request.settings.altroot = Some(root),
                PoolSetting::Version(version) if version < VERSION => {
                    return Err(refused(format!("property 'version' number {version} is invalid.")));
                }
                _ => {}
            }
        }
        let settings = &mut request.settings;
        settings.checkpoint = self.checkpoint && settings.readonly;
        request.go_back = self.checkpoint && !settings.readonly;
        let names_cachefile = self.properties.iter().any(|(name, _)| name == "cachefile");
        settings.unlist(names_cachefile, settings.temporary);
        settings.temporary &= self.new_name.is_some();
        Ok(request)
    }

    fn refused(&self, pool: &Candidate, error: ChangeError) -> Refusal {
        let (pool, new_name) = (pool.name.clone(), self.new_name.clone());
        match error {
            ChangeError::OtherHost { host, hostid, accessed } => {
                Refusal::OtherHost { pool, new_name, host, hostid, accessed }
            }
            ChangeError::Unavailable { vdevs } => {
                Refusal::Unavailable { pool, new_name, vdevs: vdevs.iter().map(MissingVdev::from).collect() }
            }
            ChangeError::MissingLogs { vdevs } => {
                Refusal::MissingLogs { pool, new_name, vdevs: vdevs.iter().map(MissingVdev::from).collect() }
            }
            ChangeError::ReadOnly { why } => {
                Refusal::ReadOnly { pool, new_name, reason: Reason::new(Code::ReadOnly, why) }
            }
            ChangeError::NoCheckpoint => Refusal::NoCheckpoint { pool },
            ChangeError::FixedName => {
                let reason = Reason::new(Code::ReadOnly, "its name is written on its devices");
                Refusal::ReadOnly { pool, new_name, reason }
            }
            error => Refusal::Failed { pool, new_name, reason: error.into() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_cross_a_process() {
        let refusal = Refusal::Failed {
            pool: "tank".into(),
            new_name: Some("pond".into()),
            reason: Reason::new(Code::Busy, "pool is busy"),
        };
        assert_eq!(refusal.to_string(), "cannot import 'tank' as 'pond': pool is busy");
        let log = MissingVdev {
            guid: 7,
            name: Some("mirror-1".into()),
            devices: vec![MissingDevice { guid: 8, path: Some("/img/l0".into()) }],
            text: "mirror-1 (/img/l0: cannot open)".into(),
        };
        crate::verbs::carried(&Refusal::MissingLogs {
            pool: "tank".into(),
            new_name: None,
            vdevs: vec![log],
        });
        let text = serde_json::to_string(&refusal).expect("data");
        assert_eq!(serde_json::from_str::<Refusal>(&text).expect("data"), refusal);
    }
}
