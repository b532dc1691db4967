//! Unmounts file systems before a change of datasets, and mounts them again after it.

use super::{
    MountOptions, MountPoint, MountProperties, MountRefusal, MountRequest, Mounted, Mounting, Obstacle,
    Unmount,
};
use crate::Suspended;
use crate::edit::{self, EditError};
use std::collections::HashMap;
use std::io;
use std::path::PathBuf;

/// Properties that affect mount options.
const OF_MOUNTS: [&str; 11] = [
    "readonly",
    "exec",
    "setuid",
    "devices",
    "atime",
    "relatime",
    "nbmand",
    "xattr",
    "acltype",
    "sync",
    "recordsize",
];

/// The mounts that were ended before a change. They are made again after the change, whether or not it succeeded.
#[derive(Debug, Default)]
#[must_use]
pub struct Pending {
    moved: Vec<Moved>,
    /// Name of the dataset that the change begins with.
    root: String,
    /// After the change, file systems that mount automatically are mounted even if they were not mounted before.
    mounts_all: bool,
    /// The changed properties that affect mount options.
    follows: Vec<String>,
    /// The kernel's cached listings of `.zfs` have to be invalidated.
    shows: bool,
}

/// A dataset that is released while its contents are replaced. When the value is dropped, it is served again, and what
/// was mounted below it is mounted there again: the kernel ends mounts on folders that the new contents do not have.
#[must_use]
pub struct Replacing<'m> {
    mounting: &'m Mounting,
    suspended: Option<Box<dyn Suspended + 'm>>,
    /// What is mounted below, oldest first; empty as long as the contents were not replaced.
    below: Vec<Mounted>,
}

impl Replacing<'_> {
    /// Declares that the contents were, or may have been, replaced. Without this call the mount keeps its previous
    /// contents.
    pub(crate) fn replaced(&mut self, dataset: &str) {
        if let Some(suspended) = &mut self.suspended {
            suspended.replaced();
            self.below = self.mounting.below(dataset);
        }
    }
}

impl Drop for Replacing<'_> {
    fn drop(&mut self) {
        drop(self.suspended.take());
        self.mounting.put_below(&self.below);
    }
}

#[derive(Debug)]
pub(super) struct Moved {
    properties: MountProperties,
    /// Where it was, oldest first, each with its position among all mounts.
    was: Vec<(usize, Mounted)>,
}

impl Moved {
    fn was_mounted(&self) -> bool {
        !self.was.is_empty()
    }
}

impl Mounting {
    /// A file system and those below it that have their mount points from it, it first.
    pub(super) fn inheriting(&self, dataset: &str) -> Result<Vec<MountProperties>, MountRefusal> {
        let all = self.properties_below(dataset)?;
        let mut stops: Vec<String> = Vec::new();
        let mut found = Vec::new();
        for properties in all {
            let below_stop = stops.iter().any(|stop| is_below(&properties.dataset, stop));
            if below_stop || (properties.is_own && properties.dataset != dataset) {
                stops.push(properties.dataset);
            } else {
                found.push(properties);
            }
        }
        Ok(found)
    }

    /// Unmounts those of these that are mounted, the newest first. If one stays, the others are mounted again.
    pub(super) fn take_down(
        &self,
        places: &[MountProperties],
        how: Unmount,
    ) -> Result<Vec<Moved>, MountRefusal> {
        let mounts = self.list();
        let wanted: HashMap<&str, usize> = places
            .iter()
            .enumerate()
            .map(|(index, properties)| (properties.dataset.as_str(), index))
            .collect();
        let mut moved: Vec<Moved> = places
            .iter()
            .map(|properties| Moved { properties: properties.clone(), was: Vec::new() })
            .collect();
        let which = |mount: &Mounted| wanted.get(mount.dataset.as_str()).copied();
        for (age, mount) in mounts.iter().enumerate().rev() {
            let Some(moved_one) = which(mount).and_then(|index| moved.get_mut(index)) else { continue };
            moved_one.was.insert(0, (age, mount.clone()));
            if let Err(refusal) = self.end(mount, how) {
                // This mount was not ended.
                moved_one.was.remove(0);
                self.put_back_as_was(&moved);
                return Err(refusal);
            }
        }
        Ok(moved)
    }

    fn put_back_as_was(&self, moved: &[Moved]) {
        let mut was: Vec<&(usize, Mounted)> = moved.iter().flat_map(|moved| &moved.was).collect();
        was.sort_by_key(|(age, _)| *age);
        for (_, was) in was {
            // The verb returns its own error; a listing shows what is not mounted.
            let _ = self.mount_as_was(was);
        }
    }

    // ---- properties --------------------------------------------------------------------------

    /// Call before properties of a dataset are set or inherited. `off`: `canmount` becomes `off`.
    ///
    /// # Errors
    /// The mount that cannot be ended, or whose data cannot be written; then the mounts are unchanged.
    pub(crate) fn before_set(
        &self,
        dataset: &str,
        props: &[&str],
        off: bool,
    ) -> Result<Pending, MountRefusal> {
        let mut pending = Pending { root: dataset.to_owned(), ..Pending::default() };
        // Of snapshots and volumes nothing is mounted by its properties.
        if self.properties(dataset).is_err() {
            return Ok(pending);
        }
        if props.contains(&"mountpoint") {
            pending.mounts_all = true;
            pending.moved = self.take_down(&self.inheriting(dataset)?, Unmount::Normal)?;
        } else if props.contains(&"canmount") && off {
            // File systems that inherit the mount point have to be unmounted too.
            pending.moved = self.take_down(&self.inheriting(dataset)?, Unmount::Normal)?;
        }
        if props.contains(&"readonly") {
            // What programs have written before still counts.
            for properties in self.properties_below(dataset)? {
                let failed = |error| MountRefusal::open(dataset, error);
                if self.mounted(&properties.dataset).is_some() {
                    self.mounts.write_back(&properties.dataset).map_err(failed)?;
                }
            }
        }
        pending.shows = props.contains(&"snapdir");
        let of_mounts = props.iter().filter(|prop| OF_MOUNTS.contains(prop));
        pending.follows = of_mounts.map(|prop| (*prop).to_owned()).collect();
        Ok(pending)
    }

    /// Call after the change of [`Mounting::before_set`]: makes the mounts again where they belong now. `is_set`:
    /// at least one property was set. Returns what could not be mounted.
    pub(crate) fn after_set(&self, pending: Pending, is_set: bool) -> Vec<MountRefusal> {
        let Pending { moved, root, mounts_all, follows, shows } = pending;
        let mounts_all = mounts_all && is_set;
        let mut refusals = Vec::new();
        for moved in moved {
            let name = moved.properties.dataset.as_str();
            let put = self.put_again(&moved, name, mounts_all.then_some(root.as_str()));
            // What was not mounted before is in no request: it may stay unmounted.
            refusals.extend(put.err().filter(|_| moved.was_mounted()));
        }
        if is_set && !follows.is_empty() {
            refusals.extend(self.follow_properties(&root, &follows));
        }
        if is_set && shows {
            let places = self.properties_below(&root).unwrap_or_default();
            places.iter().for_each(|properties| self.mounts.snapshots_changed(&properties.dataset));
        }
        refusals
    }

    /// Mounts a file system again, under its new name and at its new mount point. One that was not mounted is mounted if the
    /// mount point of `set` was set, and it is that file system or has moved with it.
    fn put_again(&self, moved: &Moved, name: &str, set: Option<&str>) -> Result<(), MountRefusal> {
        let properties = self.properties(name)?;
        let is_moved = properties.point != moved.properties.point;
        if let (true, MountPoint::At(old)) = (is_moved && !moved.properties.is_own, &moved.properties.point) {
            self.mounts.remove_folder(old);
        }
        if is_moved || properties.can_mount == super::CanMount::Off {
            // It was mounted beside the change, with what its properties were before.
            self.end_misplaced(&properties)?;
        }
        let is_set = set.is_some_and(|set| set == name || is_moved);
        let wanted = moved.was_mounted() || (is_set && properties.mounts_by_itself());
        if !wanted || self.mounted(name).is_some() {
            return Ok(());
        }
        if properties.point == MountPoint::Legacy && !is_moved {
            // It was mounted by hand: there again.
            return self.put_beside(&moved.was, name, &properties);
        }
        if properties.can_mount == super::CanMount::Off || properties.is_inconsistent {
            return Ok(());
        }
        // The place that its properties gave may have changed; places chosen by hand stay.
        let by_hand = moved.was.iter().filter(|(_, was)| was.options.by_hand).cloned().collect::<Vec<_>>();
        self.put(&properties, &properties.options)?;
        self.put_beside(&by_hand, name, &properties)
    }

    /// Mounts something under its name of now in places where it was.
    fn put_beside(
        &self,
        was: &[(usize, Mounted)],
        name: &str,
        properties: &MountProperties,
    ) -> Result<(), MountRefusal> {
        for (_, was) in was {
            let was = Mounted { dataset: name.to_owned(), ..was.clone() };
            let done = match self.mounted(name) {
                Some(_) => self.mounts.mount_beside(name, &was.at, &was.options).map_err(Obstacle::from),
                None => self.mount_on(name, &was.at, &was.options),
            };
            done.map_err(|why| super::mount_refusal(properties, why))?;
        }
        Ok(())
    }

    /// Applies changed properties to the mounts of a dataset and its descendants. Options that a command has set
    /// for a mount stay, unless one of these properties sets them. Options that the kernel takes only at mount time
    /// need a new mount; a mount that is in use keeps its options until it is mounted the next time.
    fn follow_properties(&self, dataset: &str, props: &[String]) -> Vec<MountRefusal> {
        let mut refusals = Vec::new();
        let all = self.list();
        for properties in self.properties_below(dataset).unwrap_or_default() {
            let Some(mut mount) = self.mounted(&properties.dataset) else { continue };
            let options = followed(&mount.options, &properties.options, props);
            // One that is in several places would be away from all of them meanwhile.
            let is_alone = all.iter().filter(|other| other.dataset == properties.dataset).count() == 1;
            if is_alone
                && self.mounts.wants_new_mount(&properties.dataset)
                && self.end(&mount, Unmount::Normal).is_ok()
            {
                mount.options = options;
                let again = self.mount_on(&mount.dataset, &mount.at, &mount.options);
                refusals.extend(again.err().map(|why| super::mount_refusal(&properties, why)));
                continue;
            }
            if mount.options == options {
                continue;
            }
            match self.mounts.remount(&properties.dataset, &options) {
                // Programs that are writing get errors from now on; the table of mounts shows it later.
                Ok(()) | Err(super::MountError::Busy { .. } | super::MountError::NotMounted) => {}
                Err(error) => refusals.push(super::mount_refusal(&properties, error.into())),
            }
        }
        refusals
    }

    // ---- names -------------------------------------------------------------------------------

    /// Call before a dataset is renamed with its descendants. With `stay` (`-u`) no file system is unmounted.
    ///
    /// # Errors
    /// The file system that cannot be unmounted; then the mounts are unchanged.
    pub(crate) fn before_rename(
        &self,
        from: &str,
        stay: bool,
        how: Unmount,
    ) -> Result<Pending, MountRefusal> {
        let mut pending = Pending { root: from.to_owned(), ..Pending::default() };
        if !stay && self.properties(from).is_ok() {
            pending.moved = self.take_down(&self.properties_below(from)?, how)?;
        }
        Ok(pending)
    }

    /// Calls `rename`, which gives a dataset and those below it new names, and lets their mounts follow, while no mount
    /// of the pool begins or ends.
    ///
    /// # Errors
    /// Those of `rename`; [`EditError::Busy`] if the caller no longer waits for mounts that are beginning or ending.
    pub(crate) fn rename(
        &self,
        from: &str,
        to: &str,
        rename: impl FnOnce() -> Result<(), EditError>,
    ) -> Result<(), EditError> {
        let held = self.mounts.hold_names(edit::pool_of(from));
        let _held = held.map_err(|_| EditError::Busy { name: from.to_owned() })?;
        rename()?;
        self.mounts.renamed(from, to);
        self.namespace.remounted().renamed(from, to);
        Ok(())
    }

    /// Call after [`Mounting::before_rename`]. `to` is the dataset's present name: the old one if the rename
    /// failed.
    pub(crate) fn after_rename(&self, pending: Pending, to: &str) -> Vec<MountRefusal> {
        let Pending { moved, root, .. } = pending;
        let mut refusals = Vec::new();
        for moved in moved {
            let rest = moved.properties.dataset.strip_prefix(&root).unwrap_or_default();
            refusals.extend(self.put_again(&moved, &format!("{to}{rest}"), None).err());
        }
        refusals
    }

    // ---- going -------------------------------------------------------------------------------

    /// Call before datasets are destroyed, in this order. Names of snapshots are ignored. Returns the mount points.
    ///
    /// # Errors
    /// The file system that cannot be unmounted; those unmounted before it stay unmounted.
    pub(crate) fn before_destroy(
        &self,
        datasets: &[String],
        how: Unmount,
    ) -> Result<Vec<PathBuf>, MountRefusal> {
        let mut folders = Vec::new();
        for dataset in datasets.iter().filter(|name| !name.contains(['@', '#'])) {
            let properties = self.properties(dataset).ok();
            if let Some(mount) = self.mounted(dataset) {
                self.end_all(dataset, how)?;
                if properties
                    .is_some_and(|properties| !properties.is_own && properties.point.path().is_some())
                {
                    folders.push(mount.at);
                }
            }
        }
        Ok(folders)
    }

    /// Call after datasets were destroyed: removes the directories that were created as their mount points.
    pub(crate) fn after_destroy(&self, folders: &[PathBuf]) {
        folders.iter().for_each(|at| self.mounts.remove_folder(at));
    }

    /// Call before a pool is exported or destroyed. When this returns, no file system of the pool is mounted.
    ///
    /// # Errors
    /// The file system that cannot be unmounted; those unmounted before it are mounted again.
    pub(crate) fn before_export(&self, pool: &str, how: Unmount) -> Result<Pending, MountRefusal> {
        let mut places = self.properties_below(pool).unwrap_or_default();
        let is_here = |mount: &Mounted| super::super::edit::pool_of(&mount.dataset) == pool;
        // Snapshots that were mounted by hand.
        for mount in self.list().into_iter().filter(is_here) {
            let head = mount.dataset.split_once('@').map(|(head, _)| head);
            if let Some(properties) =
                places.iter().find(|properties| Some(properties.dataset.as_str()) == head)
            {
                let point = MountPoint::Legacy;
                places.push(MountProperties {
                    dataset: mount.dataset,
                    point,
                    is_own: true,
                    ..properties.clone()
                });
            }
        }
        places.sort_by(|a, b| a.point.path().cmp(&b.point.path()));
        // Those that were mounted by hand may lie anywhere: they go by where they are.
        let order = |properties: &MountProperties| self.mounted(&properties.dataset).map(|mount| mount.at);
        places.sort_by_cached_key(order);
        places.dedup_by(|a, b| a.dataset == b.dataset);
        let moved = self.take_down(&places, how)?;
        Ok(Pending { moved, root: pool.to_owned(), ..Pending::default() })
    }

    /// Call after [`Mounting::before_export`]. `done`: the pool is gone, so directories created as mount points are
    /// removed; otherwise its file systems are mounted again.
    pub(crate) fn after_export(&self, pending: &Pending, done: bool) {
        if !done {
            return self.put_back_as_was(&pending.moved);
        }
        for moved in pending.moved.iter().rev().filter(|moved| !moved.properties.is_own) {
            if let Some(at) = moved.properties.point.path() {
                self.mounts.remove_folder(at);
            }
        }
    }

    /// Call after a pool was imported or created: mounts the file systems that mount automatically. Returns what
    /// could not be mounted.
    pub(crate) fn after_import(&self, pool: &str, options: &[String]) -> Vec<MountRefusal> {
        self.mount_all(Some(pool), &MountRequest { options: options.to_vec(), ..MountRequest::default() })
    }

    // ---- contents ----------------------------------------------------------------------------

    /// Call before the contents of a dataset are replaced: releases the dataset. Requests to its mount wait until
    /// the returned value is dropped. The caller must have checked that the replacement can succeed.
    ///
    /// # Errors
    /// Data of the mount could not be written; then the dataset is not released.
    pub(crate) fn before_replace(&self, dataset: &str) -> Result<Replacing<'_>, MountRefusal> {
        let suspended =
            self.mounts.suspend(dataset).map_err(|error| MountRefusal::unmount(dataset, error))?;
        Ok(Replacing { mounting: self, suspended, below: Vec::new() })
    }

    /// What is mounted below the places of a dataset, oldest first.
    fn below(&self, dataset: &str) -> Vec<Mounted> {
        let all = self.list();
        let places: Vec<PathBuf> =
            all.iter().filter(|one| one.dataset == dataset).map(|one| one.at.clone()).collect();
        let is_below =
            |one: &Mounted| places.iter().any(|place| one.at != *place && one.at.starts_with(place));
        all.into_iter().filter(is_below).collect()
    }

    /// Mounts those of these again that are not mounted any more.
    fn put_below(&self, was: &[Mounted]) {
        if was.is_empty() {
            return;
        }
        // The kernel ends such a mount when its path is walked the next time.
        let folders: Vec<io::Result<()>> = was.iter().map(|was| self.mounts.make_folder(&was.at)).collect();
        let still = self.list();
        let is_gone = |was: &Mounted| !still.iter().any(|one| one.dataset == was.dataset && one.at == was.at);
        for (was, folder) in was.iter().zip(folders).filter(|(was, _)| is_gone(was)) {
            let made = folder.map_err(|error| Obstacle::system(&error));
            if let Err(why) = made.and_then(|()| self.mount_as_was(was)) {
                tracing::warn!(dataset = was.dataset, "not mounted again: {why}");
            }
        }
    }

    /// Call after snapshots with these names were created, destroyed or renamed.
    pub(crate) fn after_snapshots<'n>(&self, names: impl IntoIterator<Item = &'n str>) {
        let mut datasets: Vec<&str> =
            names.into_iter().filter_map(|name| name.split_once('@')).map(|(dataset, _)| dataset).collect();
        datasets.sort_unstable();
        datasets.dedup();
        datasets.into_iter().for_each(|dataset| self.mounts.snapshots_changed(dataset));
    }
}

/// The options of a mount after these properties have changed to the values in `set`.
fn followed(mount: &MountOptions, set: &MountOptions, props: &[String]) -> MountOptions {
    let mut options = mount.clone();
    for prop in props {
        match prop.as_str() {
            "readonly" => options.read_only = set.read_only,
            "exec" => options.exec = set.exec,
            "setuid" => options.setuid = set.setuid,
            "devices" => options.devices = set.devices,
            "xattr" => options.xattrs = set.xattrs,
            "atime" | "relatime" => options.atime = set.atime,
            _ => {}
        }
        options.temporary.retain(|(name, _)| name != prop);
    }
    options
}

fn is_below(name: &str, above: &str) -> bool {
    name.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'))
}
