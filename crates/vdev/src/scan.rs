//! Finding leaves: reading the labels of files and block devices.
//!
//! Devices are listed and opened by the source of the search ([`Search::env`]). Leaves inside the partitions
//! of a whole disk, or of the image of one, are opened as a part of it.
//!
//! # What always holds
//! - Devices are opened for reading only, and a device without a label is closed again. Devices to be written
//!   are opened a second time ([`Found::lock`], [`Found::open_exclusive`]).
//! - The results of a search are hints: other processes may write to the devices until they are locked.
//!   [`Found::lock`] reads the labels again under the lock, and discards earlier results.
//! - A device that is no leaf is skipped after a few small reads; a leaf that is damaged or cannot be opened
//!   is listed as a problem.
//! - The result does not depend on the timing of the threads: leaves are in the order of the search.

use crate::device::file::Access;
use crate::device::partition::PartitionDevice;
use crate::device::{Cause, Device, DeviceError};
use crate::env::Env;
use crate::gpt;
use crate::label::{self, LabelProblem, Probe};
use crate::source::{Candidate, Devices, Mode};
use format::{DeviceOffset, Txg, VdevGuid};
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Number of threads that examine devices; they mostly wait.
const THREADS: usize = 16;
/// Most partitions of a disk that are searched; a usual table has no room for more.
const PARTITIONS_MAX: usize = 128;

/// A device with labels, found by a search.
#[derive(Debug, Clone)]
pub struct Leaf {
    /// The file or block device.
    pub path: PathBuf,
    /// Its contents, from the first label on.
    pub device: Arc<dyn Device>,
    /// The contents of its labels.
    pub probe: Probe,
    /// First byte of the partition in `path` that is the device; `None`: the whole of `path` is.
    pub partition: Option<DeviceOffset>,
}

/// The outcome of a search.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// Devices with labels, in the order of the search.
    pub leaves: Vec<Leaf>,
    /// Devices that could not be read or are damaged, each with the reason.
    pub problems: Vec<(PathBuf, ScanError)>,
    /// The search that found the leaves; `None`: it cannot be repeated.
    pub(crate) search: Option<Search>,
    /// Files and disks that are open for writing, by path. A second handle of a disk would be refused as busy
    /// while another of its partitions is open here.
    pub(crate) opened: HashMap<PathBuf, Arc<dyn Device>>,
}

impl From<Vec<Leaf>> for Found {
    /// Leaves that the caller supplies, without a search.
    fn from(leaves: Vec<Leaf>) -> Found {
        Found { leaves, ..Found::default() }
    }
}

impl Found {
    /// The source of the devices: that of the search, or the machine's if there was no search.
    pub fn source(&self) -> Devices {
        self.search.as_ref().map_or_else(Devices::default, |search| search.env.devices().clone())
    }

    /// Opens leaves exclusively for writing, and reads their labels again: those that `is_wanted` selects by
    /// the labels known so far. Of several copies of a leaf only that of [`Found::devices_of`] is opened, and
    /// the others are dropped. Leaves that are open for writing already stay open.
    ///
    /// If a label has changed since the search read it, devices may have joined or left its pool, so the
    /// search is repeated until all wanted leaves are locked and their labels unchanged under the lock.
    ///
    /// # Errors
    /// The path of the first device that cannot be opened, and the reason; [`DeviceError::Busy`] if it is
    /// open elsewhere. All locks are released then.
    pub fn lock(
        &self,
        is_wanted: impl Fn(&Leaf) -> bool,
        access: Access,
        env: &Env,
    ) -> Result<Found, (PathBuf, DeviceError)> {
        let mut found = self.clone();
        // Every round but the last locks a leaf that was not known before.
        while found.lock_known(&is_wanted, access, env)? {
            let Some(search) = &found.search else { break };
            let again = search.run();
            found.renew(again);
        }
        Ok(found)
    }

    /// Locks the wanted leaves that are known. Returns true if a label had changed.
    fn lock_known(
        &mut self,
        is_wanted: &impl Fn(&Leaf) -> bool,
        access: Access,
        env: &Env,
    ) -> Result<bool, (PathBuf, DeviceError)> {
        let is_open = |leaf: &Leaf| leaf.device.is_read_only() && is_wanted(leaf);
        let best: Vec<&Leaf> = self.by_guid(is_wanted).into_values().collect();
        let mut chosen: Vec<usize> = Vec::new();
        let mut dropped: Vec<usize> = Vec::new();
        for (index, leaf) in self.leaves.iter().enumerate().filter(|(_, leaf)| is_open(leaf)) {
            let is_best = best.iter().any(|best| std::ptr::eq(*best, leaf));
            if is_best { chosen.push(index) } else { dropped.push(index) }
        }
        // Every process locks in the same order, so that of several that want the same devices one gets them
        // all.
        chosen.sort_by(|a, b| self.leaves[*a].path.cmp(&self.leaves[*b].path));
        let mut is_changed = false;
        for index in chosen {
            let leaf = &mut self.leaves[index];
            let disk = match self.opened.get(&leaf.path) {
                Some(disk) => Arc::clone(disk),
                None => {
                    let opened = env.devices().open(&leaf.path, Mode::Exclusive, access);
                    opened.map_err(|error| (leaf.path.clone(), error))?
                }
            };
            self.opened.insert(leaf.path.clone(), Arc::clone(&disk));
            let device = leaf.place_on(disk).map_err(|error| (leaf.path.clone(), error))?;
            let probe = label::probe(&*device);
            is_changed |= probe.configs != leaf.probe.configs || probe.uberblocks != leaf.probe.uberblocks;
            (leaf.device, leaf.probe) = (device, probe);
        }
        let mut index = 0;
        self.leaves.retain(|leaf| {
            index += 1;
            !dropped.contains(&(index - 1)) && !leaf.probe.is_empty()
        });
        Ok(is_changed)
    }

    /// Adopts the results of a later search, except for leaves that are open for writing.
    fn renew(&mut self, again: Found) {
        let is_same = |a: &Leaf, b: &Leaf| a.path == b.path && a.partition == b.partition;
        for leaf in again.leaves {
            match self.leaves.iter_mut().find(|known| is_same(known, &leaf)) {
                Some(known) if !known.device.is_read_only() => {}
                Some(known) => *known = leaf,
                None => self.leaves.push(leaf),
            }
        }
        self.problems = again.problems;
    }

    /// The device of each leaf by guid, for [`crate::VdevTree::open`]. Of several copies of a leaf the
    /// one with the newest label counts, of equal ones the first. A leaf is also found by the guid of
    /// its top-level vdev, unless a leaf has that guid itself: when the last sibling is detached, the
    /// leaf takes that guid over, and its label may not say so yet; likewise by a guid in its older
    /// labels, because the newest label may say so too early.
    pub fn devices(&self) -> HashMap<VdevGuid, Arc<dyn Device>> {
        self.devices_of(|_| true)
    }

    /// Like [`Found::devices`], for the leaves that `is_wanted` selects: a copy of a pool with another pool
    /// guid has leaves with the same guids.
    pub fn devices_of(&self, is_wanted: impl Fn(&Leaf) -> bool) -> HashMap<VdevGuid, Arc<dyn Device>> {
        let leaves = self.by_guid(&is_wanted).into_iter();
        leaves.map(|(guid, leaf)| (guid, Arc::clone(&leaf.device))).collect()
    }

    fn by_guid(&self, is_wanted: &impl Fn(&Leaf) -> bool) -> HashMap<VdevGuid, &Leaf> {
        let mut best: HashMap<VdevGuid, (&Leaf, Txg)> = HashMap::new();
        let mut offer = |guid: VdevGuid, leaf, txg| {
            if best.get(&guid).is_none_or(|(_, known)| *known < txg) {
                best.insert(guid, (leaf, txg));
            }
        };
        let wanted = self.leaves.iter().filter(|leaf| is_wanted(leaf));
        let configs: Vec<_> = wanted.filter_map(|leaf| Some((leaf, leaf.probe.newest_config()?))).collect();
        let own: HashSet<VdevGuid> = configs.iter().filter_map(|(_, config)| config.guid).collect();
        for (leaf, config) in configs {
            config.guid.into_iter().for_each(|guid| offer(guid, leaf, config.txg));
            // The power may have failed while the guid changed: older labels have that of before.
            let older = leaf.probe.configs.iter().map(|found| &found.config);
            let older = older.filter(|older| older.pool_guid == config.pool_guid && older.txg != Txg(0));
            let others = config.top_guid.into_iter().chain(older.filter_map(|older| older.guid));
            others.filter(|guid| !own.contains(guid)).for_each(|guid| offer(guid, leaf, config.txg));
        }
        best.into_iter().map(|(guid, (leaf, _))| (guid, leaf)).collect()
    }

    /// Opens leaves exclusively for writing: those of [`Found::devices_of`] that `is_wanted` selects, by the
    /// same guids. Several partitions of one disk share its handle.
    pub fn open_exclusive(
        &self,
        is_wanted: impl Fn(&Leaf) -> bool,
        access: Access,
        devices: &Devices,
    ) -> Exclusive {
        let mut disks: HashMap<&Path, Result<Arc<dyn Device>, DeviceError>> = HashMap::new();
        let mut opened = Exclusive::default();
        let mut leaves: Vec<(VdevGuid, &Leaf)> = self.by_guid(&is_wanted).into_iter().collect();
        leaves.sort_by_key(|(guid, leaf)| (&leaf.path, *guid));
        for (guid, leaf) in leaves {
            let disk = disks.entry(&leaf.path).or_insert_with(|| match self.opened.get(&leaf.path) {
                Some(disk) => Ok(Arc::clone(disk)),
                None => devices.open(&leaf.path, Mode::Exclusive, access),
            });
            match disk.clone().and_then(|disk| leaf.on(disk)) {
                Ok(device) => {
                    opened.devices.insert(guid, device);
                }
                Err(error) => opened.failures.push((guid, leaf.path.clone(), error)),
            }
        }
        opened
    }
}

/// Leaves that were opened for writing.
#[derive(Debug, Default)]
pub struct Exclusive {
    /// The opened devices by the guids of their leaves, for [`crate::VdevTree::open`].
    pub devices: HashMap<VdevGuid, Arc<dyn Device>>,
    /// Leaves that could not be opened, each with the reason; [`DeviceError::Busy`] if it is open elsewhere.
    pub failures: Vec<(VdevGuid, PathBuf, DeviceError)>,
}

impl Leaf {
    /// The part of another handle of its disk that is the leaf.
    fn place_on(&self, disk: Arc<dyn Device>) -> Result<Arc<dyn Device>, DeviceError> {
        match self.partition {
            Some(start) => Ok(Arc::new(PartitionDevice::new(disk, start, self.device.size())?)),
            None => Ok(disk),
        }
    }

    /// The leaf on another handle of its disk. Fails with [`DeviceError::Gone`] if it is no longer there,
    /// because the path leads to another device by now.
    fn on(&self, disk: Arc<dyn Device>) -> Result<Arc<dyn Device>, DeviceError> {
        let device = self.place_on(disk)?;
        let is_same = label::probe_configs(&*device).guid() == self.probe.guid();
        if is_same { Ok(device) } else { Err(DeviceError::Gone) }
    }
}

/// A search for devices with labels.
#[derive(Debug, Clone, Default)]
pub struct Search {
    /// Places to search, as [`DeviceSource::list`](crate::source::DeviceSource::list) takes them: for the
    /// machine's source folders, files and block devices; if empty, all its block devices.
    pub paths: Vec<PathBuf>,
    /// Access mode for reading the devices.
    pub access: Access,
    /// Environment whose source lists and opens the devices.
    pub env: Env,
}

impl Search {
    /// A search of these places.
    pub fn in_paths(paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> Search {
        Search { paths: paths.into_iter().map(Into::into).collect(), ..Search::default() }
    }

    /// The places that the environment names: `CENOTE_DEVICES` (one a line), else
    /// `ZPOOL_IMPORT_PATH` (separated by colons), else every block device.
    pub fn from_environment() -> Search {
        let split = |list: OsString, separator: u8| -> Vec<PathBuf> {
            let parts = list.as_bytes().split(|byte| *byte == separator).filter(|part| !part.is_empty());
            parts.map(|part| PathBuf::from(OsString::from_vec(part.to_vec()))).collect()
        };
        let ours = std::env::var_os("CENOTE_DEVICES").map(|list| split(list, b'\n'));
        let theirs = || std::env::var_os("ZPOOL_IMPORT_PATH").map(|list| split(list, b':'));
        Search { paths: ours.or_else(theirs).unwrap_or_default(), ..Search::default() }
    }

    /// Runs the search. Does not fail: devices that cannot be read are among the problems.
    pub fn run(&self) -> Found {
        let mut found = Found { search: Some(self.clone()), ..Found::default() };
        let listing = self.env.devices().list(&self.paths);
        let problem = |(path, error): (PathBuf, DeviceError)| (path, error.into());
        found.problems.extend(listing.problems.into_iter().map(problem));
        let candidates = listing.candidates;
        // More threads than processors: they wait for disks.
        let env = self.env.clone().with_workers(THREADS);
        let looked = env.map(&candidates, |candidate| look(candidate, self.access, env.devices()));
        for (candidate, outcome) in candidates.iter().zip(looked) {
            match outcome {
                Ok(leaves) => {
                    let damage = leaves.iter().flat_map(|leaf| &leaf.probe.problems);
                    found
                        .problems
                        .extend(damage.map(|problem| (candidate.path.clone(), problem.clone().into())));
                    found.leaves.extend(leaves);
                }
                Err(error) => found.problems.push((candidate.path.clone(), error)),
            }
        }
        drop_twins(&mut found.leaves);
        found
    }
}

/// Why a device could not be searched, or the damage on it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScanError {
    /// The device could not be opened or read.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A label of the device is damaged, or the device is too small for its labels.
    #[error(transparent)]
    Label(#[from] LabelProblem),
}

/// Examines one candidate: returns the leaf that it is, or the leaves in its partitions.
fn look(candidate: &Candidate, access: Access, devices: &Devices) -> Result<Vec<Leaf>, ScanError> {
    let device = match devices.open(&candidate.path, Mode::Read, access) {
        Ok(device) => device,
        Err(error) if candidate.is_named || !is_ordinary(&error) => return Err(error.into()),
        Err(_) => return Ok(Vec::new()),
    };
    let direct = look_at(Arc::clone(&device), &candidate.path, None);
    // Back labels alone may be left over from before the disk was partitioned.
    let in_front = |leaf: &Leaf| leaf.probe.configs.iter().any(|found| found.label < 2);
    if matches!(&direct, Ok(Some(leaf)) if in_front(leaf)) {
        return Ok(direct?.into_iter().collect());
    }
    match look_inside(&device, &candidate.path) {
        Ok(inside) if !inside.is_empty() => Ok(inside),
        Err(error) if matches!(&direct, Ok(None)) => Err(error),
        _ => Ok(direct?.into_iter().collect()),
    }
}

/// The leaf that a device is. Fails if it is only the front of one.
fn look_at(
    device: Arc<dyn Device>,
    path: &Path,
    partition: Option<DeviceOffset>,
) -> Result<Option<Leaf>, ScanError> {
    let size = device.size();
    if size < format::label::DEVICE_MIN {
        let is_cut_off = label::front_config(&*device).is_some();
        return if is_cut_off { Err(LabelProblem::TooSmall { size }.into()) } else { Ok(None) };
    }
    if !label::looks_like_leaf(&*device) {
        return Ok(None);
    }
    let probe = label::probe(&*device);
    let leaf = Leaf { path: path.to_owned(), device, probe, partition };
    Ok((!leaf.probe.is_empty()).then_some(leaf))
}

/// Examines the partitions of a disk that the kernel shows only as a whole. Fails if none is a leaf and one
/// could not be read.
fn look_inside(disk: &Arc<dyn Device>, path: &Path) -> Result<Vec<Leaf>, ScanError> {
    let mut leaves = Vec::new();
    let mut failure = None;
    for partition in gpt::partitions(&**disk)?.unwrap_or_default().iter().take(PARTITIONS_MAX) {
        let device = PartitionDevice::new(Arc::clone(disk), partition.start, partition.len)?;
        match look_at(Arc::new(device), path, Some(partition.start)) {
            Ok(leaf) => leaves.extend(leaf),
            Err(error) => failure = Some(error),
        }
    }
    match failure {
        Some(error) if leaves.is_empty() => Err(error),
        _ => Ok(leaves),
    }
}

/// Whether a failure is to be expected when a whole folder is searched: no medium, no permission, no device.
fn is_ordinary(error: &DeviceError) -> bool {
    use rustix::io::Errno;
    match error {
        DeviceError::Open { cause: Cause::System(cause) } => {
            matches!(*cause, Errno::NOMEDIUM | Errno::NXIO | Errno::NODEV)
        }
        DeviceError::NotFound | DeviceError::NotADevice | DeviceError::IsFolder => true,
        DeviceError::Denied | DeviceError::Gone | DeviceError::Busy { .. } => true,
        _ => false,
    }
}

/// Drops leaves that were found twice, as a partition and through the table of its disk.
fn drop_twins(leaves: &mut Vec<Leaf>) {
    let direct: Vec<(Option<VdevGuid>, u64)> = leaves
        .iter()
        .filter(|leaf| leaf.partition.is_none())
        .map(|leaf| (leaf.probe.guid(), leaf.device.size()))
        .collect();
    leaves.retain(|leaf| {
        leaf.partition.is_none() || !direct.contains(&(leaf.probe.guid(), leaf.device.size()))
    });
}
