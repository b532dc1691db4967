//! The vdevs of an open pool as data: states and counters from the tree, sizes from the space maps.

use super::{Activity, AdminError, Aux, Class, Health, OpenPool, Vdev, Vdevs};
use ::pool::space::{self, VdevSpace};
use ::pool::{AuxState, AuxVdev, FeatureState};
use cenote::Error;
use dmu::zap::Zap;
use format::config::{VdevKind, VdevNode};
use format::names;
use format::scan::{ScanFunc, ScanState};
use format::units::{LABEL_END, LABEL_START};
use format::{ObjectId, VdevId};
use std::collections::HashMap;
use std::path::Path;
use vdev::Device;
use vdev::device::file::{Access, FileDevice};
use vdev::tree::{Aux as TreeAux, VdevState, VdevStatus};

/// Bytes of a leaf that hold labels.
const LABELS: u64 = LABEL_START + LABEL_END;

pub(super) fn health(state: VdevState) -> Health {
    match state {
        VdevState::Online => Health::Online,
        VdevState::Degraded => Health::Degraded,
        VdevState::Faulted => Health::Faulted,
        VdevState::Unavail => Health::Unavail,
        VdevState::Removed => Health::Removed,
        VdevState::Offline => Health::Offline,
    }
}

pub(super) fn aux(aux: TreeAux) -> Aux {
    match aux {
        TreeAux::None => Aux::None,
        TreeAux::OpenFailed => Aux::OpenFailed,
        TreeAux::NoReplicas => Aux::NoReplicas,
        TreeAux::TooSmall => Aux::TooSmall,
        TreeAux::ErrExceeded => Aux::ErrExceeded,
        TreeAux::External => Aux::External,
        TreeAux::ChildrenOffline => Aux::ChildrenOffline,
        TreeAux::CorruptData => Aux::CorruptData,
    }
}

fn class(class: space::Class) -> Class {
    match class {
        space::Class::Normal => Class::Normal,
        space::Class::Log => Class::Log,
        space::Class::Special => Class::Special,
        space::Class::Dedup => Class::Dedup,
    }
}

/// One vdev from its state and its configuration, without sizes.
pub(super) fn plain(status: &VdevStatus, node: &VdevNode, class: Class) -> Vdev {
    let children = status.children.iter().zip(&node.children);
    let child = |(below, node): (&VdevStatus, &VdevNode)| {
        let child = plain(below, node, class);
        Vdev { non_allocating: child.non_allocating || status.non_allocating, ..child }
    };
    let missing =
        status.state == VdevState::Unavail && status.aux == TreeAux::OpenFailed && node.kind.is_leaf();
    Vdev {
        id: u64::from(status.id),
        path: status.path.as_deref().map(|p| Path::to_string_lossy(p).into_owned()),
        devid: node.devid.clone(),
        phys_path: node.phys_path.clone(),
        whole_disk: status.whole_disk,
        nparity: u64::from(status.nparity),
        draid: status.draid.map(|d| (u64::from(d.ndata), node.children.len() as u64, u64::from(d.nspares))),
        class,
        health: health(status.state),
        aux: aux(status.aux),
        not_present: missing,
        is_log: status.is_log,
        ashift: node.ashift.map_or(0, |a| u64::from(a.0)),
        asize: node.asize,
        // The size of a device that is not in use is of no use.
        psize: if status.state >= VdevState::Degraded { status.device_size } else { 0 },
        read_errors: status.read_errors,
        write_errors: status.write_errors,
        checksum_errors: status.checksum_errors,
        slow_ios: status.slow_ios,
        removing: status.removing,
        non_allocating: status.non_allocating,
        expanding: node.raidz_expanding,
        children: children.map(child).collect(),
        ..Vdev::new(status.kind.name(), status.guid.0)
    }
}

/// The vdevs of a pool with their sizes. Reads the headers of its space maps.
pub(crate) fn vdevs(pool: &OpenPool) -> Result<Vdevs, AdminError> {
    let failed = |e| AdminError::from(Error::from(e));
    let (tree, spa) = (pool.pool.spa().tree(), pool.pool.spa());
    let status = tree.status();
    let mut root = plain(&status, tree.config(), Class::Normal);
    root.pool_name = Some(pool.name.clone());
    root.guid = pool.pool.guid().0;
    let spaces = spa.vdev_spaces().map_err(failed)?;
    let spaces: HashMap<VdevId, VdevSpace> = spaces.into_iter().map(|s| (s.vdev, s)).collect();
    let resilvering = is_resilvering(pool)?;
    for (top, (id, node)) in root.children.iter_mut().zip(tree.tops()) {
        set_class(top, class(spa.class_of(id).map_err(failed)?));
        if let Some(space) = spaces.get(&id) {
            sizes(top, space, tree.deflate_ratio(id));
        }
        details(pool, top, node, resilvering)?;
    }
    let totals = spa.space().map_err(failed)?;
    (root.alloc, root.space) = (totals.allocated, totals.size);
    root.deflated = root.children.iter().filter(|v| v.class != Class::Log).map(|v| v.deflated).sum();
    root.fragmentation = totals.fragmentation;
    if spa.features().state_of("spacemap_histogram") == FeatureState::Disabled {
        // Space maps without histograms do not tell how fragmented anything is.
        root.fragmentation = None;
        root.children.iter_mut().for_each(|top| top.fragmentation = None);
    }
    root.checkpoint = totals.checkpoint;
    root.expandsize = totals.expandable;
    let cache = spa.cache_devices().map_err(failed)?;
    let spares = spa.spares().map_err(failed)?;
    Ok(Vdevs {
        cache: cache.iter().map(|v| beside(pool, v, Class::Cache, &root)).collect(),
        spares: spares.iter().map(|v| beside(pool, v, Class::Spare, &root)).collect(),
        root,
    })
}

/// A resilver was going on when the pool was last written.
pub(super) fn is_resilvering(pool: &OpenPool) -> Result<bool, AdminError> {
    if let Some(live) = pool.pool.spa().scan_progress() {
        return Ok(live.phys.func == ScanFunc::Resilver);
    }
    let scan = pool.pool.spa().scan().map_err(Error::from)?;
    Ok(scan.is_some_and(|s| s.func == ScanFunc::Resilver && s.state == ScanState::Scanning))
}

fn set_class(vdev: &mut Vdev, class: Class) {
    vdev.class = class;
    vdev.children.iter_mut().for_each(|child| set_class(child, class));
}

fn sizes(top: &mut Vdev, space: &VdevSpace, deflate_ratio: u64) {
    top.alloc = space.allocated;
    top.space = space.size;
    top.deflated = (space.size >> 9).saturating_mul(deflate_ratio);
    top.checkpoint = space.checkpoint;
    top.expandsize = space.expandable;
    top.fragmentation = space.fragmentation;
    top.ashift = u64::from(space.ashift);
    top.replace_size = space.size;
    // What a replacement needs: its share of the vdev's space and room for labels.
    let share = match top.kind.as_str() {
        "raidz" | "draid" => space.size / (top.children.len().max(1) as u64),
        _ => space.size,
    };
    replace_sizes(&mut top.children, share);
    if top.is_leaf() {
        top.replace_size = share + LABELS;
    }
}

fn replace_sizes(children: &mut [Vdev], share: u64) {
    for child in children {
        child.replace_size = if child.is_leaf() { share + LABELS } else { share };
        replace_sizes(&mut child.children, share);
    }
}

/// What leaf ZAPs tell, and whether a resilver is bringing a leaf up to date.
fn details(pool: &OpenPool, vdev: &mut Vdev, node: &VdevNode, resilvering: bool) -> Result<(), AdminError> {
    vdev.resilvering = resilvering && node.resilver_txg.0 != 0;
    vdev.resilver_deferred = node.resilver_defer;
    if vdev.is_leaf() && node.zap_leaf != ObjectId(0) {
        let total = vdev.psize.saturating_sub(LABELS);
        vdev.initialize = activity(pool, node.zap_leaf, total, &INITIALIZE)?;
        vdev.trim = activity(pool, node.zap_leaf, total, &TRIM)?;
    }
    for (child, node) in vdev.children.iter_mut().zip(&node.children) {
        details(pool, child, node, resilvering)?;
    }
    Ok(())
}

/// Keys of state, position and time in a leaf's ZAP.
const INITIALIZE: [&str; 3] = [
    names::leaf_vdev::INITIALIZE_STATE,
    names::leaf_vdev::INITIALIZE_OFFSET,
    names::leaf_vdev::INITIALIZE_TIME,
];
const TRIM: [&str; 3] =
    [names::leaf_vdev::TRIM_STATE, names::leaf_vdev::TRIM_OFFSET, names::leaf_vdev::TRIM_TIME];

fn activity(
    pool: &OpenPool,
    zap: ObjectId,
    total: u64,
    keys: &[&str; 3],
) -> Result<Option<Activity>, AdminError> {
    let zap = Zap::open(&pool.pool.spa().mos().object(zap).map_err(Error::from)?).map_err(Error::from)?;
    let number = |key: &str| -> Result<u64, AdminError> {
        Ok(zap.lookup(key.as_bytes()).map_err(Error::from)?.and_then(|e| e.u64()).unwrap_or(0))
    };
    let [state, done, since] = keys;
    let state = number(state)?;
    if state == 0 {
        return Ok(None);
    }
    Ok(Some(Activity { state, done: number(done)?.min(total), total, since: number(since)? }))
}

/// Bytes of a spare or cache device of a pool that is open for writing: no search has looked at it.
fn size_of(pool: &OpenPool, node: &VdevNode) -> u64 {
    let path = node.path.as_ref().filter(|_| pool.pool.spa().is_live());
    let device = path.and_then(|path| FileDevice::open(Path::new(path), Access::Auto).ok());
    device.map_or(0, |device| device.size())
}

/// A spare or cache device.
fn beside(pool: &OpenPool, device: &AuxVdev, class: Class, root: &Vdev) -> Vdev {
    let node = &device.node;
    let leaf = pool.found.leaves.iter().find(|leaf| leaf.probe.guid() == Some(node.guid));
    let mut psize = leaf.map_or_else(|| size_of(pool, node), |leaf| leaf.device.size());
    let path = leaf.map(|leaf| leaf.path.to_string_lossy().into_owned()).or_else(|| node.path.clone());
    if node.kind == VdevKind::DistributedSpare {
        psize = distributed_spare_size(root, node);
    }
    let in_use = device.state == AuxState::InUse;
    if in_use && let Some(active) = root.walk().into_iter().find(|v| v.guid == node.guid.0) {
        psize = active.psize;
    }
    let (health, aux) = match device.state {
        AuxState::Available | AuxState::Online => (Health::Online, Aux::None),
        AuxState::InUse => (Health::Unavail, Aux::SpareInUse),
        AuxState::Unavailable => (Health::Unavail, Aux::OpenFailed),
    };
    let space = match class {
        // The first block of a cache device is its header.
        Class::Cache => {
            psize.saturating_sub(LABELS).saturating_sub(1 << node.ashift.map_or(9, |a| a.0.min(16)))
        }
        _ => 0,
    };
    Vdev {
        id: u64::from(node.id),
        path,
        devid: node.devid.clone(),
        phys_path: node.phys_path.clone(),
        whole_disk: node.whole_disk,
        class,
        health,
        aux,
        ashift: node.ashift.map_or(0, |a| u64::from(a.0)),
        // Bytes in use stay 0: nothing here reads what a cache device holds.
        space,
        deflated: space,
        fragmentation: (class == Class::Cache).then_some(0),
        asize: node.asize,
        replace_size: psize,
        psize,
        ..Vdev::new(node.kind.name(), node.guid.0)
    }
}

/// A distributed spare is as large as a disk of its dRAID.
fn distributed_spare_size(root: &Vdev, spare: &VdevNode) -> u64 {
    let top = root.children.iter().find(|v| spare.top_guid.is_some_and(|guid| guid.0 == v.guid));
    top.map_or(0, |top| top.walk().iter().map(|v| v.psize).max().unwrap_or(0))
}

/// A vdev by its name, path or guid; `root-0`, also `root`, is the root.
pub(crate) fn find_vdev(pool: &OpenPool, name: &str) -> Result<Option<Vdev>, AdminError> {
    let vdevs = vdevs(pool)?;
    if matches!(name, "root-0" | "root") {
        return Ok(Some(vdevs.root));
    }
    let matches = |v: &&&Vdev| {
        let full = v.path.as_deref();
        full == Some(name)
            || full.is_some_and(|p| p.strip_prefix("/dev/") == Some(name))
            || v.guid.to_string() == name
            || interior_name(v).as_deref() == Some(name)
    };
    let all = vdevs.root.walk();
    Ok(all.iter().filter(|v| v.pool_name.is_none() && v.kind != "hole").find(matches).map(|v| (*v).clone()))
}

/// The name of a vdev that is no leaf; so may `raidz1-0` be written `raidz-0`.
pub(super) fn interior_name(vdev: &Vdev) -> Option<String> {
    Some(match (vdev.kind.as_str(), vdev.draid) {
        _ if vdev.is_leaf() => return None,
        ("raidz", _) => format!("raidz{}-{}", vdev.nparity, vdev.id),
        ("draid", Some((data, children, spares))) => {
            format!("draid{}:{data}d:{children}c:{spares}s-{}", vdev.nparity, vdev.id)
        }
        (kind, _) => format!("{kind}-{}", vdev.id),
    })
}
