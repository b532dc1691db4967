//! Pools on some devices, their states, and advice: the list of `zpool import` (docs/on-disk/10-overview.md,
//! section 4; docs/on-disk/33-cli.md, section 5).
//!
//! A candidate is judged by opening it as far as possible: the configuration in the MOS names devices that no
//! label does. If that fails, only the labels are used.

pub(crate) mod writable;

use crate::assemble::{Group, aux_devices, groups};
use crate::aux;
use crate::error::PoolError;
use crate::open::{OpenOptions, Opened, Opener};
use format::config::{PoolConfig, PoolState, VdevKind, VdevNode};
use format::names;
use format::{PoolGuid, VdevGuid};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use vdev::scan::Found;
use vdev::tree::{Aux, VdevState, VdevStatus};
use vdev::{Device, Devices, VdevTree};

mod text;

use crate::vdev_name::display_name;
use crate::vdev_name::leaf_name;
pub use text::Status;

/// A vdev in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CandidateVdev {
    /// Name of the vdev, as the tools show it.
    pub name: String,
    /// State of the vdev, as the tools print it; empty for a cache device.
    pub state: &'static str,
    /// Reason for the state, as `zpool import` prints it; empty: none.
    pub reason: &'static str,
    /// Vdevs below this one.
    pub children: Vec<CandidateVdev>,
}

/// A pool that was found.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// Name of the pool.
    pub name: String,
    /// Guid of the pool.
    pub guid: PoolGuid,
    /// State of the pool in the newest label: exported, destroyed, active.
    pub state: PoolState,
    /// Health that the pool would have after an import.
    pub health: VdevState,
    /// Reason for a state other than healthy, as `zpool import` prints it; empty: none.
    pub reason: &'static str,
    /// The most important status of the pool.
    pub status: Status,
    /// Top-level vdevs that hold data.
    pub vdevs: Vec<CandidateVdev>,
    /// Vdevs for metadata and small blocks.
    pub special: Vec<CandidateVdev>,
    /// Vdevs of the dedup class.
    pub dedup: Vec<CandidateVdev>,
    /// Log devices.
    pub logs: Vec<CandidateVdev>,
    /// Cache devices.
    pub cache: Vec<CandidateVdev>,
    /// Hot spares.
    pub spares: Vec<CandidateVdev>,
    /// Some top-level vdevs are known only by their number.
    pub has_unknown_vdevs: bool,
    /// Guids of the features that Cenote does not know and that are in use.
    pub unsupported_features: Vec<String>,
    /// Why the pool cannot be opened; `None`: it can.
    pub problem: Option<String>,
    /// The newest label, or the configuration in the MOS.
    pub config: PoolConfig,
}

impl Candidate {
    /// Whether the pool can be imported.
    pub fn is_importable(&self) -> bool {
        self.health >= VdevState::Degraded
    }

    /// Whether the pool was destroyed.
    pub fn is_destroyed(&self) -> bool {
        self.state == PoolState::Destroyed
    }

    /// The health, as the tools print it.
    pub fn health_name(&self) -> &'static str {
        crate::props::health_name(self.health)
    }

    /// The text after `status:`; `None`: there is no problem.
    pub fn status_text(&self) -> Option<String> {
        self.status.text(&self.unsupported_features)
    }

    /// The text after `action:`.
    pub fn action_text(&self) -> String {
        self.status.action(self.health, self.is_destroyed())
    }

    /// The message id after `see:`; `None`: there is none.
    pub fn message_id(&self) -> Option<&'static str> {
        self.status.message_id()
    }
}

/// The pools among these devices, by name and guid, as seen from a machine without a host id.
pub fn candidates(found: &Found) -> Vec<Candidate> {
    candidates_for(found, 0)
}

/// The pools among these devices, by name and guid, as seen from the machine with this host id.
pub fn candidates_for(found: &Found, hostid: u64) -> Vec<Candidate> {
    let all = groups(found);
    let mut candidates: Vec<Candidate> = all.iter().map(|group| candidate(found, group, hostid)).collect();
    candidates.sort_by(|a, b| (&a.name, a.guid).cmp(&(&b.name, b.guid)));
    candidates
}

fn candidate(found: &Found, group: &Group<'_>, hostid: u64) -> Candidate {
    let aux = aux_devices(found);
    let opts = OpenOptions { destroyed: true, ..OpenOptions::default() };
    let opener = Opener { group, devices: group.devices(&aux), opts: &opts };
    let opened = opener.open();
    let newest = group.newest();
    let status = match &opened {
        Ok(opened) => Some(opened.tree.status()),
        // Fall back to the state that the labels alone describe.
        Err(_) => group.tree().ok().and_then(|root| {
            let reflow = format::uberblock::ReflowInfo::default();
            VdevTree::open(&root, &opener.devices, reflow).ok().map(|tree| tree.status())
        }),
    };
    let mut candidate = Candidate {
        name: newest.name.clone(),
        guid: group.guid,
        state: newest.state,
        health: VdevState::Faulted,
        reason: "corrupted data",
        status: Status::Ok,
        vdevs: Vec::new(),
        special: Vec::new(),
        dedup: Vec::new(),
        logs: Vec::new(),
        cache: Vec::new(),
        spares: Vec::new(),
        has_unknown_vdevs: false,
        unsupported_features: Vec::new(),
        problem: opened.as_ref().err().map(describe),
        config: opened.as_ref().map_or_else(|_| newest.clone(), |o| o.config.clone()),
    };
    if let Some(status) = &status {
        (candidate.health, candidate.reason) = health(status, opened.as_ref().err());
        sort_vdevs(&mut candidate, found, status, opened.as_ref().ok());
    }
    if let Ok(opened) = &opened {
        list_aux(&mut candidate, opened, &opener.devices, &found.source());
    }
    candidate.unsupported_features = match &opened {
        Err(PoolError::UnsupportedFeatures { features }) => features.clone(),
        Ok(opened) => opened.features.unsupported(true),
        Err(_) => Vec::new(),
    };
    candidate.status = text::judge(&candidate, status.as_ref(), &opened, newest, hostid);
    candidate
}

/// An error and its causes, on one line.
fn describe(error: &PoolError) -> String {
    let mut line = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        line = format!("{line}: {inner}");
        cause = inner.source();
    }
    line
}

/// The health of the whole pool, and the reason.
fn health(status: &VdevStatus, error: Option<&PoolError>) -> (VdevState, &'static str) {
    let missing = status.children.iter().any(|top| top.kind == VdevKind::Missing);
    match error {
        Some(PoolError::UnsupportedFeatures { .. }) => (VdevState::Unavail, "unsupported feature(s)"),
        Some(PoolError::Version { .. }) => (VdevState::Unavail, "newer version"),
        Some(PoolError::GuidSum { .. }) => (VdevState::Unavail, "missing device"),
        // Top-level vdevs that only lack devices report that. If the state cannot be read although none does,
        // or although a vdev is completely unknown, the data are corrupt.
        Some(_) if status.state >= VdevState::Degraded || missing => (VdevState::Faulted, "corrupted data"),
        _ => (status.state, status.aux.words()),
    }
}

/// Sorts the top-level vdevs into the lists.
fn sort_vdevs(candidate: &mut Candidate, found: &Found, status: &VdevStatus, opened: Option<&Opened>) {
    for top in &status.children {
        match top.kind {
            VdevKind::Missing => candidate.has_unknown_vdevs = true,
            VdevKind::Hole | VdevKind::Indirect => {}
            _ => {
                let class = opened.and_then(|o| {
                    let node = o.tree.top(format::VdevId(top.id))?;
                    crate::space::class_of(&o.mos, node).ok()
                });
                let list = match class {
                    _ if top.is_log => &mut candidate.logs,
                    Some(crate::space::Class::Special) => &mut candidate.special,
                    Some(crate::space::Class::Dedup) => &mut candidate.dedup,
                    _ => &mut candidate.vdevs,
                };
                list.push(vdev(found, top));
            }
        }
    }
}

fn vdev(found: &Found, status: &VdevStatus) -> CandidateVdev {
    let (state, reason) = match state_of(found, status) {
        (state, Aux::CorruptData) => (state, "corrupted data"),
        (state, aux) => (state, aux.words()),
    };
    CandidateVdev {
        name: display_name(status),
        state: crate::props::health_name(state),
        reason,
        children: status.children.iter().map(|child| vdev(found, child)).collect(),
    }
}

/// A leaf whose path leads to a device of another pool or leaf is damaged rather than absent.
pub(crate) fn state_of(found: &Found, status: &VdevStatus) -> (VdevState, Aux) {
    let taken = |path: &Path| found.leaves.iter().any(|leaf| leaf.path == path);
    if status.aux == Aux::OpenFailed && status.path.as_deref().is_some_and(taken) {
        return (VdevState::Faulted, Aux::CorruptData);
    }
    (status.state, status.aux)
}

/// Lists the spares and cache devices that the MOS names.
fn list_aux(
    candidate: &mut Candidate,
    opened: &Opened,
    devices: &HashMap<VdevGuid, Arc<dyn Device>>,
    source: &Devices,
) {
    let entry = |node: &VdevNode, state, reason| {
        let seen_at = devices.get(&node.guid).and_then(|device| device.path()).map(Path::to_string_lossy);
        let path = seen_at.as_deref().or(node.path.as_deref());
        let name = leaf_name(path, node.whole_disk, node.guid);
        CandidateVdev { name, state, reason, children: Vec::new() }
    };
    for node in aux::nodes(&opened.directory, names::directory::L2CACHE).unwrap_or_default() {
        candidate.cache.push(entry(&node, "", ""));
    }
    for node in aux::nodes(&opened.directory, names::directory::SPARES).unwrap_or_default() {
        let is_found =
            || devices.contains_key(&node.guid) || !aux::at_recorded_path(&node, source).leaves.is_empty();
        let there = node.kind == VdevKind::DistributedSpare || is_found();
        let spare = match opened.config.vdev_tree.find(node.guid) {
            Some(_) => entry(&node, "INUSE", "currently in use"),
            None if there => entry(&node, "AVAIL", ""),
            None => entry(&node, "UNAVAIL", "cannot open"),
        };
        candidate.spares.push(spare);
    }
}
