//! What the verbs of `zpool` refuse.

use super::ReadRefusal;
use crate::mounting::MountRefusal;
use crate::verbs::{Code, Reason, Refused};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a verb was to do, for the words of its refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Add vdevs.
    Add,
    /// Make a checkpoint.
    Checkpoint,
    /// Discard a checkpoint.
    DiscardCheckpoint,
    /// Attach a device to another one.
    Attach,
    /// Clear errors.
    Clear,
    /// Destroy a pool.
    Destroy,
    /// Detach a device.
    Detach,
    /// Export a pool.
    Export,
    /// Fault a device (`offline -f`).
    Fault,
    /// Take a device offline.
    Offline,
    /// Bring a device online.
    Online,
    /// Expand a device (`online -e`).
    Expand,
    /// Give a pool another guid.
    Reguid,
    /// Remove a device.
    Remove,
    /// Cancel the removal of a device.
    CancelRemoval,
    /// Tell how much memory the mapping of a device would take.
    IndirectSize,
    /// Open the devices of a pool again.
    Reopen,
    /// Replace a device.
    Replace,
    /// Begin a resilver anew.
    Resilver,
    /// Begin a scrub, or go on with one.
    Scrub,
    /// Pause a scrub.
    PauseScrub,
    /// Stop a scrub.
    StopScrub,
    /// Write everything to disk.
    Sync,
}

/// Why a verb on one pool did not do its work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The caller is no administrator.
    Denied(Reason),
    /// The pool cannot be opened for reading, or not be read.
    Read(ReadRefusal),
    /// The pool has no such device.
    NoDevice {
        /// What was to be done with it.
        action: Action,
        /// Name of the pool.
        pool: String,
        /// The device as it was named.
        device: String,
    },
    /// A file system of the pool cannot be unmounted.
    NotUnmounted {
        /// What was to be done after that.
        action: Action,
        /// Name of the pool.
        pool: String,
        /// Which, and why.
        refusal: MountRefusal,
    },
    /// The devices do not go together, or are in use.
    Vdevs(Reason),
    /// The pool was not changed.
    Failed {
        /// What was to be done.
        action: Action,
        /// Name of the pool or device.
        target: String,
        /// Why it was not.
        reason: Reason,
    },
}

impl Refusal {
    /// A pool or device with which something could not be done.
    pub(super) fn failed(action: Action, target: &str, reason: impl Into<Reason>) -> Refusal {
        Refusal::Failed { action, target: target.to_owned(), reason: reason.into() }
    }
}

impl Action {
    /// The words before the reason. OpenZFS quotes the names of some.
    fn words(self, target: &str) -> String {
        match self {
            Action::Add => format!("cannot add to '{target}'"),
            Action::Checkpoint => format!("cannot checkpoint '{target}'"),
            Action::DiscardCheckpoint => format!("cannot discard checkpoint in '{target}'"),
            Action::Attach => format!("cannot attach {target}"),
            Action::Detach => format!("cannot detach {target}"),
            Action::Replace => format!("cannot replace {target}"),
            Action::Clear => format!("cannot clear errors for {target}"),
            Action::Destroy => format!("cannot destroy '{target}'"),
            Action::Export => format!("cannot export '{target}'"),
            Action::Fault => format!("cannot fault {target}"),
            Action::Offline => format!("cannot offline {target}"),
            Action::Online => format!("cannot online {target}"),
            Action::Expand => format!("cannot expand {target}"),
            Action::Reguid => format!("cannot reguid '{target}'"),
            Action::Remove => format!("cannot remove {target}"),
            Action::CancelRemoval => "cannot cancel removal".to_owned(),
            Action::IndirectSize => format!("cannot determine indirect size of {target}"),
            Action::Reopen => format!("cannot reopen {target}"),
            Action::Resilver => format!("cannot restart resilver {target}"),
            Action::Scrub => format!("cannot scrub {target}"),
            Action::PauseScrub => format!("cannot pause scrubbing {target}"),
            Action::StopScrub => format!("cannot cancel scrubbing {target}"),
            Action::Sync => format!("sync '{target}' failed"),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Denied(reason) | Refusal::Vdevs(reason) => write!(f, "{reason}"),
            Refusal::Read(refusal) => write!(f, "{refusal}"),
            Refusal::NoDevice { action: Action::Online, pool, device } => {
                write!(f, "couldn't find device \"{device}\" in pool \"{pool}\"")
            }
            Refusal::NoDevice { action, device, .. } => {
                write!(f, "{}: no such device in pool", action.words(device))
            }
            Refusal::NotUnmounted { action: Action::Destroy, pool, refusal } => {
                write!(f, "{refusal}\ncould not destroy '{pool}': could not unmount datasets")
            }
            Refusal::NotUnmounted { refusal, .. } => write!(f, "{refusal}"),
            // Vdevs are added to a pool that was found.
            Refusal::Failed { action, target, reason }
                if reason.code == Code::NoPool && *action != Action::Add =>
            {
                write!(f, "cannot open '{target}': no such pool")
            }
            Refusal::Failed { action, target, reason } => write!(f, "{}: {reason}", action.words(target)),
        }
    }
}

from_denied!(Refusal, Refusal::Denied);

impl From<ReadRefusal> for Refusal {
    fn from(refusal: ReadRefusal) -> Refusal {
        Refusal::Read(refusal)
    }
}

impl Refused for Refusal {
    fn reason(&self) -> Reason {
        match self {
            Refusal::Denied(reason) | Refusal::Vdevs(reason) | Refusal::Failed { reason, .. } => {
                reason.clone()
            }
            Refusal::Read(refusal) => refusal.reason(),
            Refusal::NoDevice { device, .. } => {
                Reason { about: vec![device.clone()], ..Reason::new(Code::Refused, "no such device in pool") }
            }
            Refusal::NotUnmounted { pool, refusal, .. } => {
                Reason { about: vec![pool.clone()], ..Reason::new(Code::Busy, refusal) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_have_the_words_of_openzfs() {
        let failed =
            |action, code| Refusal::failed(action, "tank", Reason::new(code, "pool is busy")).to_string();
        assert_eq!(failed(Action::Export, Code::Busy), "cannot export 'tank': pool is busy");
        assert_eq!(failed(Action::Scrub, Code::NoPool), "cannot open 'tank': no such pool");
        assert_eq!(failed(Action::Sync, Code::Busy), "sync 'tank' failed: pool is busy");
        let device =
            |action| Refusal::NoDevice { action, pool: "tank".into(), device: "sda".into() }.to_string();
        assert_eq!(device(Action::Online), "couldn't find device \"sda\" in pool \"tank\"");
        assert_eq!(device(Action::Clear), "cannot clear errors for sda: no such device in pool");
    }

    #[test]
    fn refusals_cross_a_process() {
        let refusal =
            Refusal::failed(Action::Offline, "sda", Reason::new(Code::Refused, "no valid replicas"));
        let text = serde_json::to_string(&refusal).expect("data");
        assert_eq!(serde_json::from_str::<Refusal>(&text).expect("data"), refusal);
    }
}
