//! Texts of the commands about a pool that could be imported (docs/on-disk/33-cli.md, sections 3 and 5).

use super::{Candidate, CandidateVdev};
use crate::error::PoolError;
use crate::features::FeatureState;
use crate::open::Opened;
use format::config::{PoolConfig, PoolState};
use format::feature::FEATURES;
use vdev::tree::{VdevState, VdevStatus};

/// Version of pools with feature flags.
const VERSION_FEATURES: u64 = 5000;

/// The most important fact about a pool that could be imported; earlier variants come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// The pool uses unknown features.
    UnsupportedFeatures,
    /// The pool uses unknown features, but can be read without them.
    UnsupportedForWrite,
    /// The pool has an unknown version.
    NewerVersion,
    /// Top-level vdevs are missing, and the labels do not describe them.
    MissingTops,
    /// Devices are damaged that the pool needs.
    DamagedDevices,
    /// Devices are missing that the pool needs.
    MissingDevices,
    /// The MOS cannot be read.
    CorruptPool,
    /// Another machine used the pool last, and did not export it.
    OtherHost,
    /// Devices are faulted that the pool does not need.
    FaultedRedundant,
    /// Devices are missing that the pool does not need.
    MissingRedundant,
    /// Devices are damaged that the pool does not need.
    DamagedRedundant,
    /// A device was taken offline.
    Offline,
    /// The format has a known erratum.
    Errata,
    /// The pool has a version before feature flags.
    OlderVersion,
    /// Supported features are not enabled.
    DisabledFeatures,
    /// The pool has no problem.
    Ok,
}

impl Status {
    /// Id of the message with more details: `ZFS-8000-5E`.
    pub(crate) fn message_id(self) -> Option<&'static str> {
        Some(match self {
            Status::NewerVersion => "ZFS-8000-A5",
            Status::MissingTops => "ZFS-8000-6X",
            Status::DamagedDevices => "ZFS-8000-5E",
            Status::MissingDevices => "ZFS-8000-3C",
            Status::CorruptPool => "ZFS-8000-72",
            Status::OtherHost => "ZFS-8000-EY",
            Status::MissingRedundant => "ZFS-8000-2Q",
            Status::DamagedRedundant => "ZFS-8000-4J",
            Status::Errata => "ZFS-8000-ER",
            _ => return None,
        })
    }

    pub(super) fn text(self, unsupported: &[String]) -> Option<String> {
        Some(match self {
            Status::Ok => return None,
            Status::UnsupportedFeatures => {
                return Some(with_list("The pool uses the following feature(s) not supported on this system:", unsupported));
            }
            Status::UnsupportedForWrite => {
                return Some(with_list(
                    "The pool can only be accessed in read-only mode on this system. It\n\tcannot be accessed in read-write mode because it uses the following\n\tfeature(s) not supported on this system:",
                    unsupported,
                ));
            }
            Status::NewerVersion => "The pool is formatted using an incompatible version.",
            Status::MissingTops | Status::MissingDevices | Status::MissingRedundant => {
                "One or more devices are missing from the system."
            }
            Status::DamagedDevices | Status::DamagedRedundant => "One or more devices contains corrupted data.",
            Status::CorruptPool => "The pool data is corrupted.",
            Status::OtherHost => "The pool was last accessed by another system.",
            Status::FaultedRedundant => "One or more devices are faulted.",
            Status::Offline => "One or more devices are offlined.",
            Status::Errata => "Errata detected in the pool.",
            Status::OlderVersion => "The pool is formatted using a legacy on-disk version.",
            Status::DisabledFeatures => {
                "Some supported features are not enabled on the pool.\n\t(Note that they may be intentionally disabled if the\n\t'compatibility' property is set.)"
            }
        }
        .to_owned())
    }

    pub(super) fn action(self, health: VdevState, destroyed: bool) -> String {
        const BY_NAME: &str = "The pool can be imported using its name or numeric identifier";
        let importable = health >= VdevState::Degraded;
        let mut text = match self {
            Status::OlderVersion | Status::DisabledFeatures if importable => format!(
                "{BY_NAME}, though\n\tsome features will not be available without an explicit 'zpool upgrade'."
            ),
            Status::UnsupportedForWrite if importable => {
                "The pool cannot be imported in read-write mode. Import the pool with\n\t\"-o readonly=on\", access the pool on a system that supports the\n\trequired feature(s), or recreate the pool from backup.".to_owned()
            }
            Status::OtherHost if importable => format!("{BY_NAME} and\n\tthe '-f' flag."),
            _ if health == VdevState::Online => format!("{BY_NAME}."),
            _ if importable => {
                "The pool can be imported despite missing or damaged devices.  The\n\tfault tolerance of the pool may be compromised if imported.".to_owned()
            }
            Status::NewerVersion => {
                "The pool cannot be imported.  Access the pool on a system running newer\n\tsoftware, or recreate the pool from backup.".to_owned()
            }
            Status::UnsupportedFeatures => {
                "The pool cannot be imported.  Access the pool on a system that supports\n\tthe required feature(s), or recreate the pool from backup.".to_owned()
            }
            Status::MissingDevices | Status::MissingTops => {
                "The pool cannot be imported. Attach the missing\n\tdevices and try again.".to_owned()
            }
            _ => "The pool cannot be imported due to damaged devices or data.".to_owned(),
        };
        if destroyed && !importable {
            text.push_str("\n\tThe pool was destroyed, but can be imported using the '-Df' flags.");
        }
        text
    }
}

fn with_list(text: &str, features: &[String]) -> String {
    let mut text = text.to_owned();
    for feature in features {
        text.push_str("\n\t");
        text.push_str(feature);
    }
    text
}

fn leaves(vdevs: &[CandidateVdev]) -> Vec<&CandidateVdev> {
    vdevs.iter().flat_map(below).collect()
}

fn below(vdev: &CandidateVdev) -> Vec<&CandidateVdev> {
    if vdev.children.is_empty() { vec![vdev] } else { vdev.children.iter().flat_map(below).collect() }
}

/// The most important status of a pool.
pub(super) fn judge(
    candidate: &Candidate,
    status: Option<&VdevStatus>,
    opened: &Result<Opened, PoolError>,
    newest: &PoolConfig,
    hostid: u64,
) -> Status {
    let parts = [&candidate.vdevs, &candidate.special, &candidate.dedup, &candidate.logs];
    let leaves: Vec<&CandidateVdev> = parts.into_iter().flat_map(|list| leaves(list)).collect();
    let any = |state: &str, reason: &str| leaves.iter().any(|l| l.state == state && l.reason == reason);
    let (missing, damaged) = (any("UNAVAIL", "cannot open"), any("FAULTED", "corrupted data"));
    let faulted = leaves.iter().any(|l| l.state == "FAULTED" && l.reason != "corrupted data");
    let importable = candidate.health >= VdevState::Degraded;
    let held = newest.state == PoolState::Active && newest.hostid != 0 && newest.hostid != hostid;
    let all_there = status.is_some_and(|s| s.state >= VdevState::Degraded);
    match opened {
        Err(PoolError::UnsupportedFeatures { .. }) => return Status::UnsupportedFeatures,
        Err(PoolError::Version { .. }) => return Status::NewerVersion,
        Err(PoolError::GuidSum { .. }) => return Status::MissingTops,
        _ if held && importable => return Status::OtherHost,
        Ok(opened) if !opened.features.unsupported(true).is_empty() => return Status::UnsupportedForWrite,
        _ if !importable && damaged => return Status::DamagedDevices,
        _ if !importable && missing => return Status::MissingDevices,
        Err(_) if candidate.has_unknown_vdevs => return Status::MissingTops,
        Err(_) if all_there => return Status::CorruptPool,
        _ if !importable => return Status::MissingTops,
        _ => {}
    }
    if faulted {
        return Status::FaultedRedundant;
    }
    if missing {
        return Status::MissingRedundant;
    }
    if damaged {
        return Status::DamagedRedundant;
    }
    if leaves.iter().any(|l| l.state == "OFFLINE") {
        return Status::Offline;
    }
    judge_format(candidate, opened)
}

/// Status of a pool without problems of its devices or data, by its version and features.
fn judge_format(candidate: &Candidate, opened: &Result<Opened, PoolError>) -> Status {
    if candidate.config.errata != 0 {
        return Status::Errata;
    }
    if candidate.config.version < VERSION_FEATURES {
        // A pool that is kept at an old version on purpose has no problem.
        let wanted = candidate.config.compatibility.as_deref() == Some("legacy");
        return if wanted { Status::Ok } else { Status::OlderVersion };
    }
    let Ok(opened) = opened else { return Status::Ok };
    let kept_back = opened.config.compatibility.as_deref().is_some_and(|set| set != "off");
    let disabled = FEATURES
        .iter()
        .filter(|f| f.is_supported() && f.since == format::feature::Since::V2_3)
        .any(|f| opened.features.state(f) == FeatureState::Disabled);
    if disabled && !kept_back { Status::DisabledFeatures } else { Status::Ok }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_the_transcripts() {
        assert_eq!(
            Status::Ok.action(VdevState::Online, false),
            "The pool can be imported using its name or numeric identifier."
        );
        assert_eq!(
            Status::DamagedDevices.action(VdevState::Faulted, true),
            "The pool cannot be imported due to damaged devices or data.\n\tThe pool was destroyed, but can be imported using the '-Df' flags."
        );
        assert_eq!(
            Status::MissingDevices.action(VdevState::Unavail, false),
            "The pool cannot be imported. Attach the missing\n\tdevices and try again."
        );
        assert_eq!(Status::MissingRedundant.message_id(), Some("ZFS-8000-2Q"));
    }
}
