//! `zpool create`: makes a pool and mounts its root file system.
//!
//! # Order
//! As the tool of OpenZFS checks: a slash in the name, vdevs, alternate root, mount point ([`Request::plan`], which is
//! all of a dry run). Then feature sets, the name, properties in their order, the devices.

use crate::change::{
    self, Allow, ChangeError, Compatibility, NewPool, PoolLayout, PoolSetting, SetWhen, check_pool_name,
};
use crate::verbs::{Code, Reason, Refused, Right, Verb, Warning};
use crate::{ImportSettings, Session};
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::Path;

/// Version of pools with features.
const VERSION: u64 = 5000;

/// A pool to make.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// Name of the pool.
    pub name: String,
    /// The vdevs in the words of the command: `["mirror", "/dev/sda", "/dev/sdb"]`.
    pub vdevs: Vec<String>,
    /// Devices may be in use by exported pools, and vdevs need not be alike (`-f`).
    pub force: bool,
    /// Only the features that properties name are enabled (`-d`).
    pub named_features_only: bool,
    /// Properties of the pool and features, in their order (`-o`, `-R`).
    pub properties: Vec<(String, String)>,
    /// Properties of the root file system (`-O`).
    pub dataset_properties: Vec<(String, String)>,
    /// Mount point of the root file system; `None`: `/` and the pool's name (`-m`).
    pub mountpoint: Option<String>,
    /// Name of the pool while it is imported, where that is not its own (`-t`).
    pub temporary_name: Option<String>,
}

/// The pool that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Name by which the pool is imported.
    pub pool: String,
}

/// Why no pool was made, or its root file system is not mounted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    /// The caller is no administrator.
    #[error("{0}")]
    Denied(Reason),
    /// A slash in the name.
    #[error(
        "cannot create '{name}': invalid character '/' in pool name\nuse 'zfs create' to create a dataset"
    )]
    Slash {
        /// The name.
        name: String,
    },
    /// The vdevs make no pool, or their devices are in use; or a value of `ashift`.
    #[error("{0}")]
    Vdevs(Reason),
    /// The alternate root is no absolute path.
    #[error("invalid alternate root '{root}': must be an absolute path")]
    AltRoot {
        /// The path.
        root: String,
    },
    /// The mount point is no absolute path.
    #[error("invalid mountpoint '{path}': must be an absolute path, 'legacy', or 'none'")]
    MountPoint {
        /// The path.
        path: String,
    },
    /// The root file system would hide what is in the folder of its mount point, or the folder cannot be read.
    #[error("mountpoint '{path}' {}\nuse '-m' option to provide a different default", match unreadable {
        Some(reason) => format!(": {reason}"),
        None => "exists and is not empty".to_owned(),
    })]
    MountPointTaken {
        /// The folder.
        path: String,
        /// Why the folder cannot be read; `None`: it is not empty.
        unreadable: Option<Reason>,
    },
    /// A feature set cannot be used.
    #[error("Error: {0}")]
    Compatibility(Reason),
    /// A version and features exclude each other.
    #[error("'feature@' and 'version' properties cannot be specified together")]
    FeaturesAndVersion,
    /// A name that no pool can have.
    #[error("cannot create '{name}': {reason}\npool name may have been omitted")]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        reason: Reason,
    },
    /// Another process has a device.
    #[error("cannot open '{disk}': Device or resource busy\ncannot create '{name}': {reason}")]
    DeviceBusy {
        /// Name of the pool.
        name: String,
        /// Path of the device.
        disk: String,
        /// What that means for the pool.
        reason: Reason,
    },
    /// The pool cannot be made.
    #[error("cannot create '{name}': {reason}")]
    Failed {
        /// Name of the pool.
        name: String,
        /// Why.
        reason: Reason,
    },
    /// The pool was made, and its root file system is not mounted.
    #[error("{0}")]
    NotMounted(Reason),
}

from_denied!(Refusal, Refusal::Denied);

impl Refused for Refusal {
    fn reason(&self) -> Reason {
        match self {
            Refusal::Denied(reason)
            | Refusal::Vdevs(reason)
            | Refusal::Compatibility(reason)
            | Refusal::Name { reason, .. }
            | Refusal::DeviceBusy { reason, .. }
            | Refusal::Failed { reason, .. }
            | Refusal::NotMounted(reason) => reason.clone(),
            Refusal::Slash { .. } => Reason::new(Code::Name, self),
            Refusal::AltRoot { .. } | Refusal::MountPoint { .. } | Refusal::FeaturesAndVersion => {
                Reason::new(Code::Value, self)
            }
            Refusal::MountPointTaken { .. } => Reason::new(Code::Busy, self),
        }
    }
}

impl Verb for Request {
    const NAME: &'static str = "zpool create";
    const RIGHT: Right = Right::Administrator;
    type Answer = Answer;
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, Refusal> {
        let layout = self.plan()?;
        let new = self.describe(layout, session)?;
        change::create_pool(session.search(), &new).map_err(|error| self.refused(error))?;
        let pool = new.temporary.unwrap_or(new.name);
        if let Some(mounting) = session.mounting() {
            let not_mounted = |refusal| Refusal::NotMounted(Reason::new(Code::Refused, refusal));
            mounting.mount_new(&pool).map_err(not_mounted)?;
        }
        Ok(Answer { pool })
    }
}

impl Request {
    /// Checks everything that can be checked before anything is written: the vdevs that would be made.
    ///
    /// # Errors
    /// The refusal.
    pub fn plan(&self) -> Result<PoolLayout, Refusal> {
        if self.name.contains('/') {
            return Err(Refusal::Slash { name: self.name.clone() });
        }
        let unfit = |error: &dyn std::fmt::Display| Refusal::Vdevs(Reason::new(Code::Refused, error));
        if let Some(ashift) = self.property("ashift") {
            change::parse_ashift(ashift).map_err(|error| unfit(&error))?;
        }
        let layout =
            PoolLayout::parse(&self.vdevs, &mut change::find_device).map_err(|error| unfit(&error))?;
        let allow = if self.force { Allow::ALL } else { Allow::default() };
        change::check_layout(&layout, None, allow).map_err(|error| self.refused(error))?;
        if let Some(root) = self.property("altroot").filter(|root| !root.starts_with('/')) {
            return Err(Refusal::AltRoot { root: root.to_owned() });
        }
        self.check_mountpoint()?;
        Ok(layout)
    }

    fn property(&self, wanted: &str) -> Option<&str> {
        value_of(&self.properties, wanted)
    }

    /// The root file system must not hide anything where it is going to be mounted.
    fn check_mountpoint(&self) -> Result<(), Refusal> {
        let of_dataset = || value_of(&self.dataset_properties, "mountpoint");
        let given = self.mountpoint.as_deref().or_else(of_dataset);
        if matches!(given, Some("none" | "legacy")) {
            return Ok(());
        }
        if let Some(path) = given.filter(|path| !path.starts_with('/')) {
            return Err(Refusal::MountPoint { path: path.to_owned() });
        }
        let below = given.map_or_else(|| format!("/{}", self.name), str::to_owned);
        let path = match self.property("altroot") {
            Some(root) => format!("{}{below}", root.trim_end_matches('/')),
            None => below,
        };
        let has_entries = std::fs::read_dir(Path::new(&path)).map(|mut entries| entries.next().is_some());
        let unreadable = match has_entries {
            Ok(false) => return Ok(()),
            Ok(true) => None,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => Some(Reason::new(Code::Failed, change::errno_text(&error))),
        };
        Err(Refusal::MountPointTaken { path, unreadable })
    }

    /// The pool to make, its properties checked.
    fn describe(&self, layout: PoolLayout, session: &mut Session<'_>) -> Result<NewPool, Refusal> {
        let compatibility = Compatibility::load(self.property("compatibility").unwrap_or("off"))
            .map_err(|error| Refusal::Compatibility(Reason::new(Code::Value, error)))?;
        let version: Option<u64> = self.property("version").map(|text| text.parse().unwrap_or(u64::MAX));
        if !self.named_features_only && version.is_some_and(|version| version >= VERSION) {
            // All features would be enabled, and version 5000 says so too.
            return Err(Refusal::FeaturesAndVersion);
        }
        check_pool_name(&self.name).map_err(|problem| self.refused(problem.into()))?;
        let mut new = NewPool {
            name: self.name.clone(),
            layout,
            ashift: None,
            features: Vec::new(),
            props: Vec::new(),
            dataset_props: self.dataset_properties.clone(),
            temporary: None,
            settings: ImportSettings::default(),
            command: Some(session.command_line().to_owned()).filter(|line| !line.is_empty()),
        };
        if !self.named_features_only {
            new.features = compatibility.features().into_iter().map(str::to_owned).collect();
        }
        for (name, value) in &self.properties {
            let setting = change::check_pool_setting(name, value, SetWhen::Create)
                .map_err(|message| self.value_refused(message))?;
            let warning =
                apply(setting, &compatibility, &mut new).map_err(|message| self.value_refused(message))?;
            warning.into_iter().for_each(|warning| session.warn(warning));
        }
        if let Some(path) = &self.mountpoint {
            new.dataset_props.retain(|(name, _)| name != "mountpoint");
            new.dataset_props.push(("mountpoint".to_owned(), path.clone()));
        }
        if let Some(temporary) = &self.temporary_name {
            check_pool_name(temporary).map_err(|problem| Refusal::Failed {
                name: temporary.clone(),
                reason: ChangeError::from(problem).into(),
            })?;
            new.temporary = Some(temporary.clone());
            new.command = None;
        }
        new.settings.unlist(self.property("cachefile").is_some(), new.temporary.is_some());
        Ok(new)
    }

    fn value_refused(&self, message: String) -> Refusal {
        Refusal::Failed { name: self.name.clone(), reason: Reason::new(Code::Value, message) }
    }

    fn refused(&self, error: ChangeError) -> Refusal {
        let name = self.name.clone();
        match error {
            ChangeError::Vdevs { .. } => Refusal::Vdevs(error.into()),
            ChangeError::Name(_) => Refusal::Name { name, reason: error.into() },
            ChangeError::DeviceBusy { disk: Some(ref disk) } => {
                Refusal::DeviceBusy { name, disk: disk.clone(), reason: error.into() }
            }
            error => Refusal::Failed { name, reason: error.into() },
        }
    }
}

/// The value of a property among pairs.
fn value_of<'p>(pairs: &'p [(String, String)], wanted: &str) -> Option<&'p str> {
    pairs.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str())
}

/// Puts a property into the description of a new pool. The error is a message.
fn apply(
    setting: PoolSetting,
    compatibility: &Compatibility,
    new: &mut NewPool,
) -> Result<Option<Warning>, String> {
    let mut warning = None;
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
                warning = Some(Warning::FeatureOutsideSet { feature: name.to_owned() });
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
    Ok(warning)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_refuse_in_the_order_of_openzfs() {
        let request = Request { name: "tank/a".into(), mountpoint: Some("x".into()), ..Request::default() };
        assert_eq!(
            request.plan().expect_err("a slash").to_string(),
            "cannot create 'tank/a': invalid character '/' in pool name\nuse 'zfs create' to create a dataset"
        );
        let properties = vec![("ashift".to_owned(), "17".to_owned())];
        let request = Request { name: "tank".into(), properties, ..request };
        assert_eq!(
            request.plan().expect_err("ashift").to_string(),
            "invalid 'ashift=17' property: only values between 9 and 16 are allowed."
        );
    }

    #[test]
    fn refusals_cross_a_process() {
        let refusal = Refusal::MountPointTaken { path: "/tank".into(), unreadable: None };
        let text = serde_json::to_string(&refusal).expect("data");
        assert_eq!(serde_json::from_str::<Refusal>(&text).expect("data"), refusal);
        assert_eq!(
            refusal.to_string(),
            "mountpoint '/tank' exists and is not empty\nuse '-m' option to provide a different default"
        );
    }
}
