//! What the verbs do to mounts around their changes: mounting what was made, unmounting what goes, and asking what
//! is in use. Where the process has no mounts, nothing is done.

use super::lines;
use crate::Session;
use crate::Unmount;
use crate::edit::{self, EditError};
use crate::mounting::{MountRefusal, Mounting, Pending};
use crate::verbs::{Denied, Reason, Refused};
use cenote::PoolWriter;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;

/// How verbs unmount, with `-f` or without: what is in use stays, as it does on Linux.
pub(crate) const UNMOUNT: Unmount = Unmount::Normal;

/// A file system that was made, and that should be mounted and is not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotMounted {
    /// Why.
    pub refusal: MountRefusal,
    /// The caller is no administrator, and only the administrator mounts.
    pub needs_administrator: bool,
}

impl fmt::Display for NotMounted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.needs_administrator {
            true => f.write_str("filesystem successfully created, but it may only be mounted by root"),
            false => write!(f, "{}\nfilesystem successfully created, but not mounted", self.refusal),
        }
    }
}

/// A refusal of a verb that had made missing ancestors by then (`-p`).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{}{why}", lines(ancestors_not_mounted))]
pub struct AfterAncestors<W> {
    /// Ancestors that were made and are not mounted.
    pub ancestors_not_mounted: Vec<NotMounted>,
    /// Why the verb was refused.
    pub why: W,
}

impl<W: From<Denied>> From<Denied> for AfterAncestors<W> {
    fn from(denied: Denied) -> AfterAncestors<W> {
        AfterAncestors { ancestors_not_mounted: Vec::new(), why: denied.into() }
    }
}

impl<W: Refused> Refused for AfterAncestors<W> {
    fn reason(&self) -> Reason {
        self.why.reason()
    }
}

/// Makes the missing file systems above a new dataset, and mounts them. Returns those that are not mounted.
pub(super) fn make_ancestors(
    session: &mut Session<'_>,
    pool: &PoolWriter,
    name: &str,
) -> Result<Vec<NotMounted>, EditError> {
    let made = edit::create_ancestors(pool, name)?;
    if !made.is_empty() {
        session.note_change(name);
    }
    Ok(mount_new(session, &made))
}

/// Mounts file systems that were just made. Returns those that are not mounted.
pub(super) fn mount_new(session: &Session<'_>, names: &[String]) -> Vec<NotMounted> {
    let Some(mounting) = session.mounting() else { return Vec::new() };
    let refused = names.iter().filter_map(|name| mounting.mount_new(name).err());
    refused.map(|refusal| NotMounted { refusal, needs_administrator: !mounting.may_mount() }).collect()
}

/// Those of these datasets that are mounted.
pub(super) fn mounted(session: &Session<'_>, names: &[String]) -> Vec<String> {
    let Some(mounting) = session.mounting() else { return Vec::new() };
    let mounted: HashSet<String> = mounting.list().into_iter().map(|one| one.dataset).collect();
    names.iter().filter(|name| mounted.contains(*name)).cloned().collect()
}

/// Where a file system is mounted, if these properties give it a mount point on which only root mounts.
pub(super) fn elsewhere(
    session: &Session<'_>,
    dataset: &str,
    properties: &[(String, String)],
) -> Option<PathBuf> {
    let (_, wanted) = properties.iter().find(|(name, _)| name == "mountpoint")?;
    session.mounting().filter(|_| wanted.starts_with('/'))?.elsewhere(dataset)
}

/// Unmounts what is to be destroyed, in this order. Returns those of `names` before the first that stays mounted,
/// and why that one stays.
pub(super) fn unmount_before_destroy<'n>(
    session: &Session<'_>,
    names: &'n [String],
) -> (&'n [String], Option<MountRefusal>) {
    let Some(mounting) = session.mounting() else { return (names, None) };
    for (index, name) in names.iter().enumerate() {
        match mounting.before_destroy(std::slice::from_ref(name), UNMOUNT) {
            Ok(folders) => mounting.after_destroy(&folders),
            Err(refusal) => return (names.get(..index).unwrap_or_default(), Some(refusal)),
        }
    }
    (names, None)
}

/// Those of these snapshots that are mounted, or that programs use through `.zfs`.
pub(super) fn snapshots_in_use(session: &Session<'_>, names: &[String]) -> Vec<String> {
    let Some(mounting) = session.mounting() else { return Vec::new() };
    mounting.snapshots_in_use(names).into_iter().map(str::to_owned).collect()
}

/// Drops the listings of `.zfs/snapshot` that the kernel remembers of the datasets of these snapshots.
pub(super) fn snapshots_changed(session: &Session<'_>, names: &[String]) {
    if let Some(mounting) = session.mounting() {
        mounting.after_snapshots(names.iter().map(String::as_str));
    }
}

/// What was done to mounts before properties change, to be finished after.
#[must_use]
pub(super) struct PropertyChange(Option<(Mounting, Pending)>);

impl PropertyChange {
    /// Unmounts what a change of these properties of a dataset moves; `is_canmount_off`: `canmount` becomes `off`.
    ///
    /// # Errors
    /// What cannot be unmounted; nothing is unmounted then.
    pub(super) fn begin(
        session: &Session<'_>,
        dataset: &str,
        props: &[&str],
        is_canmount_off: bool,
    ) -> Result<PropertyChange, MountRefusal> {
        let Some(mounting) = session.mounting() else { return Ok(PropertyChange(None)) };
        let pending = mounting.before_set(dataset, props, is_canmount_off)?;
        Ok(PropertyChange(Some((mounting, pending))))
    }

    /// Mounts again, where it belongs now, what was unmounted. Returns what is not mounted, and why. Nothing was set
    /// if the caller may not set it; after another error, some of several properties may be set.
    pub(super) fn finish(self, done: &Result<(), EditError>) -> Vec<MountRefusal> {
        let is_set = !matches!(done, Err(EditError::Denied | EditError::DelegationOff));
        self.0.map(|(mounting, pending)| mounting.after_set(pending, is_set)).unwrap_or_default()
    }
}
