//! Determines the condition of a pool: the first that applies, in the order of `zpool status`
//! (docs/on-disk/33-cli.md, section 5).

use super::{Aux, Diagnosis, Health, Vdev};
use ::pool::FailMode;
use format::feature::{FEATURES, Since};
use std::path::Path;

/// Directories of the feature lists that the property `compatibility` names.
const COMPATIBILITY: [&str; 2] = ["/etc/zfs/compatibility.d", "/usr/share/zfs/compatibility.d"];

/// Facts of an open pool that the diagnosis depends on.
pub(super) struct Facts<'a> {
    pub(super) root: &'a Vdev,
    pub(super) resilvering: bool,
    pub(super) errors: u64,
    pub(super) version: u64,
    pub(super) unsupported_for_write: Vec<String>,
    /// Set if the pool is suspended: its failure mode.
    pub(super) suspended: Option<FailMode>,
    /// Why the pool accepts no writes until it is imported again.
    pub(super) stopped: Option<String>,
    /// Value of the property `compatibility`.
    pub(super) compatibility: &'a str,
    /// Names of the enabled features.
    pub(super) enabled: &'a [&'a str],
}

pub(super) fn of_pool(facts: &Facts<'_>) -> Diagnosis {
    if facts.resilvering {
        return Diagnosis::Resilvering;
    }
    if !facts.unsupported_for_write.is_empty() {
        return Diagnosis::UnsupportedForWrite(facts.unsupported_for_write.clone());
    }
    if let Some(why) = &facts.stopped {
        return Diagnosis::Stopped(why.clone());
    }
    match facts.suspended {
        Some(FailMode::Continue) => return Diagnosis::SuspendedFailing,
        Some(FailMode::Wait | FailMode::Panic) => return Diagnosis::SuspendedWaiting,
        None => {}
    }
    let by_devices = devices(facts.root);
    match by_devices {
        Diagnosis::FaultedNoReplicas | Diagnosis::MissingNoReplicas | Diagnosis::CorruptLabelNoReplicas => {
            by_devices
        }
        _ if facts.errors > 0 => Diagnosis::CorruptData,
        Diagnosis::Healthy => versions(facts),
        other => other,
    }
}

/// The vdevs without children.
fn leaves(root: &Vdev) -> Vec<&Vdev> {
    root.walk().into_iter().filter(|v| v.children.is_empty() && v.pool_name.is_none()).collect()
}

/// The condition that follows from the states of devices.
pub(super) fn devices(root: &Vdev) -> Diagnosis {
    let leaves = leaves(root);
    let any = |test: &dyn Fn(&Vdev) -> bool| leaves.iter().any(|v| test(v));
    let faulted = any(&|v| v.health == Health::Faulted && !is_corrupt(v));
    let missing = any(&|v| v.health == Health::Unavail && !is_corrupt(v));
    let corrupt = any(&is_corrupt);
    if root.health == Health::Unavail || root.health == Health::Faulted {
        return match (faulted, missing, corrupt) {
            (true, ..) => Diagnosis::FaultedNoReplicas,
            (_, true, _) => Diagnosis::MissingNoReplicas,
            (_, _, true) => Diagnosis::CorruptLabelNoReplicas,
            _ => Diagnosis::CorruptPool,
        };
    }
    if faulted {
        Diagnosis::Faulted
    } else if missing {
        Diagnosis::Missing
    } else if corrupt {
        Diagnosis::CorruptLabel
    } else if any(&|v| v.read_errors + v.write_errors + v.checksum_errors > 0) {
        Diagnosis::Failing
    } else if any(&|v| v.health == Health::Offline) {
        Diagnosis::Offline
    } else if any(&|v| v.health == Health::Removed) {
        Diagnosis::Removed
    } else {
        Diagnosis::Healthy
    }
}

fn is_corrupt(vdev: &Vdev) -> bool {
    matches!(vdev.health, Health::Unavail | Health::Faulted)
        && matches!(vdev.aux, Aux::CorruptData | Aux::BadLabel | Aux::TooSmall)
}

/// Old versions, and features that could be enabled and that `compatibility` allows.
fn versions(facts: &Facts<'_>) -> Diagnosis {
    if facts.version < 5000 {
        return if facts.compatibility == "legacy" { Diagnosis::Healthy } else { Diagnosis::OldVersion };
    }
    let requested: Vec<String> = match facts.compatibility {
        "" | "off" => known(),
        "legacy" => Vec::new(),
        files => match listed(files) {
            Some(names) => names,
            // Without the lists, missing features cannot be determined.
            None => return Diagnosis::Healthy,
        },
    };
    let is_requested = |name: &str| requested.iter().any(|r| r == name);
    if facts.enabled.iter().any(|name| !is_requested(name)) && !matches!(facts.compatibility, "" | "off") {
        return Diagnosis::Incompatible;
    }
    let all_enabled = requested.iter().all(|name| facts.enabled.contains(&name.as_str()));
    if all_enabled { Diagnosis::Healthy } else { Diagnosis::FeaturesDisabled }
}

/// The features of the OpenZFS version whose commands Cenote follows.
fn known() -> Vec<String> {
    FEATURES.iter().filter(|f| f.since <= Since::V2_3 && !f.no_upgrade).map(|f| f.name.to_owned()).collect()
}

/// The features that all of the named files list; `None` if one of them cannot be read.
fn listed(files: &str) -> Option<Vec<String>> {
    let mut common = known();
    for file in files.split(',') {
        let text = COMPATIBILITY.iter().find_map(|dir| {
            let path = Path::new(file);
            let path = if path.is_absolute() { path.to_owned() } else { Path::new(dir).join(path) };
            std::fs::read_to_string(path).ok()
        })?;
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
        let words: Vec<&str> = lines.flat_map(|line| line.split([' ', '\t', ','])).collect();
        common.retain(|name| words.contains(&name.as_str()));
    }
    Some(common)
}
