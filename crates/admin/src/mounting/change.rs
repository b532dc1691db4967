//! What is unmounted before datasets change, and mounted again after.

use super::{
    MountAction, MountOptions, MountPoint, MountProperties, MountRefusal, MountRequest, Mounted, Mounting,
    Unmount, unmount_words,
};
use crate::Suspended;
use std::collections::HashMap;
use std::path::PathBuf;

/// Properties that decide how a mount is.
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

/// What was unmounted, and is to be mounted again when the change is made or has failed.
#[derive(Debug, Default)]
#[must_use]
pub struct Pending {
    moved: Vec<Moved>,
    /// Where the change begins.
    root: String,
    /// What mounts by itself is mounted, whether it was or not.
    mounts_all: bool,
    /// The properties that are set, of those that mounts have to follow.
    follows: Vec<String>,
    /// What the kernel remembers of `.zfs` is old.
    shows: bool,
}

/// A dataset that is let go of while its contents are replaced; when this is dropped it is served again.
#[must_use]
pub struct Replacing<'m>(Option<Box<dyn Suspended + 'm>>);

impl Replacing<'_> {
    /// The contents were replaced, or may have been. Without this they are what they were.
    pub fn replaced(&mut self) {
        self.0.iter_mut().for_each(|suspended| suspended.replaced());
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
                // That one stays.
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
            // The verb tells why it failed; of what stays unmounted for that, the listing tells.
            let _ = self.mount_as_was(was);
        }
    }

    // ---- properties --------------------------------------------------------------------------

    /// Before properties of a dataset are set or inherited: `off` says that `canmount` becomes `off`.
    ///
    /// # Errors
    /// What would have to be unmounted and cannot be; nothing has changed then.
    pub fn before_set(&self, dataset: &str, props: &[&str], off: bool) -> Result<Pending, MountRefusal> {
        let mut pending = Pending { root: dataset.to_owned(), ..Pending::default() };
        // Of snapshots and volumes nothing is mounted by its properties.
        if self.properties(dataset).is_err() {
            return Ok(pending);
        }
        if props.contains(&"mountpoint") {
            pending.mounts_all = true;
            pending.moved = self.take_down(&self.inheriting(dataset)?, Unmount::Normal)?;
        } else if props.contains(&"canmount") && off {
            // What is mounted below its mount point has to step aside.
            pending.moved = self.take_down(&self.inheriting(dataset)?, Unmount::Normal)?;
        }
        if props.contains(&"readonly") {
            // What programs have written before still counts.
            for properties in self.properties_below(dataset)? {
                let failed = |error| MountRefusal::open(dataset, unmount_words(&error));
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

    /// After that: mounts what was unmounted, where it belongs now; `is_set`: some of them were. Returns what is not mounted,
    /// and why.
    pub fn after_set(&self, pending: Pending, is_set: bool) -> Vec<MountRefusal> {
        let Pending { moved, root, mounts_all, follows, shows } = pending;
        let mounts_all = mounts_all && is_set;
        let mut refusals = Vec::new();
        for moved in moved {
            let put = self.put_again(&moved, &moved.properties.dataset, mounts_all);
            // What was not mounted before, nobody has asked to mount: it may stay so.
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

    /// Mounts something again under its new name and in its new place.
    fn put_again(&self, moved: &Moved, name: &str, mounts_all: bool) -> Result<(), MountRefusal> {
        let properties = self.properties(name)?;
        let is_moved = properties.point != moved.properties.point;
        if let (true, MountPoint::At(old)) = (is_moved && !moved.properties.is_own, &moved.properties.point) {
            self.mounts.remove_folder(old);
        }
        let wanted = moved.was_mounted() || (mounts_all && properties.mounts_by_itself());
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
        // Where it was by its properties it may be no longer; where somebody has put it by hand it is again.
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
                Some(_) => self.mounts.mount_beside(name, &was.at, &was.options),
                None => self.mount_on(name, &was.at, &was.options),
            };
            done.map_err(|error| super::mount_words(properties, &error))?;
        }
        Ok(())
    }

    /// Mounts of a dataset and those below it become what these properties say now; what a command has set for a mount alone
    /// stays, where they say nothing of it. What the kernel was told when it mounted needs a new mount: one that is in use stays
    /// as it is, and is right the next time.
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
                refusals.extend(again.err().map(|error| super::mount_words(&properties, &error)));
                continue;
            }
            if mount.options == options {
                continue;
            }
            match self.mounts.remount(&properties.dataset, &options) {
                // Programs that are writing get errors from now on; the table of mounts shows it later.
                Ok(()) | Err(super::MountError::Busy { .. } | super::MountError::NotMounted) => {}
                Err(error) => refusals.push(super::mount_words(&properties, &error)),
            }
        }
        refusals
    }

    // ---- names -------------------------------------------------------------------------------

    /// Before a dataset is renamed, with all below it. With `stay` (`-u`) nothing is unmounted.
    ///
    /// # Errors
    /// What would have to be unmounted and cannot be; nothing has changed then.
    pub fn before_rename(&self, from: &str, stay: bool, how: Unmount) -> Result<Pending, MountRefusal> {
        let mut pending = Pending { root: from.to_owned(), ..Pending::default() };
        if !stay && self.properties(from).is_ok() {
            pending.moved = self.take_down(&self.properties_below(from)?, how)?;
        }
        Ok(pending)
    }

    /// After that: `to` is its name now, the old one if it was not renamed.
    pub fn after_rename(&self, pending: Pending, to: &str) -> Vec<MountRefusal> {
        let Pending { moved, root, .. } = pending;
        if root != to {
            self.mounts.renamed(&root, to);
            self.namespace.remounted().renamed(&root, to);
        }
        let mut refusals = Vec::new();
        for moved in moved {
            let rest = moved.properties.dataset.strip_prefix(&root).unwrap_or_default();
            refusals.extend(self.put_again(&moved, &format!("{to}{rest}"), false).err());
        }
        refusals
    }

    // ---- going -------------------------------------------------------------------------------

    /// Before datasets are destroyed, in this order; names of snapshots are passed over.
    ///
    /// # Errors
    /// What cannot be unmounted; what was unmounted before it stays so.
    pub fn before_destroy(&self, datasets: &[String], how: Unmount) -> Result<Vec<PathBuf>, MountRefusal> {
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

    /// After that: removes the folders that were made for them.
    pub fn after_destroy(&self, folders: &[PathBuf]) {
        folders.iter().for_each(|at| self.mounts.remove_folder(at));
    }

    /// Before a pool is exported or destroyed: nothing of it is mounted when this returns.
    ///
    /// # Errors
    /// What cannot be unmounted; what was unmounted is mounted again.
    pub fn before_export(&self, pool: &str, how: Unmount) -> Result<Pending, MountRefusal> {
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

    /// After that. `done`: the pool has gone, and the folders that were made for its mounts go; else they are mounted again.
    pub fn after_export(&self, pending: &Pending, done: bool) {
        if !done {
            return self.put_back_as_was(&pending.moved);
        }
        for moved in pending.moved.iter().rev().filter(|moved| !moved.properties.is_own) {
            if let Some(at) = moved.properties.point.path() {
                self.mounts.remove_folder(at);
            }
        }
    }

    /// After a pool was imported or made: mounts what mounts by itself. Returns what is not, and why.
    pub fn after_import(&self, pool: &str, options: &[String]) -> Vec<MountRefusal> {
        self.mount_all(Some(pool), &MountRequest { overlay: false, options: options.to_vec() })
    }

    // ---- contents ----------------------------------------------------------------------------

    /// Before the contents of a dataset are replaced: it is let go of, and who looks at it waits until what this
    /// returns is dropped, whether they were replaced or not. It is for the caller to have checked before that they will be.
    ///
    /// # Errors
    /// What could not be written; then nothing is let go of.
    pub fn before_replace(&self, dataset: &str) -> Result<Replacing<'_>, MountRefusal> {
        self.mounts.suspend(dataset).map(Replacing).map_err(|error| MountRefusal {
            action: MountAction::Unmount,
            what: dataset.to_owned(),
            why: unmount_words(&error),
        })
    }

    /// After snapshots with these names were made, destroyed or renamed.
    pub fn after_snapshots<'n>(&self, names: impl IntoIterator<Item = &'n str>) {
        let mut datasets: Vec<&str> =
            names.into_iter().filter_map(|name| name.split_once('@')).map(|(dataset, _)| dataset).collect();
        datasets.sort_unstable();
        datasets.dedup();
        datasets.into_iter().for_each(|dataset| self.mounts.snapshots_changed(dataset));
    }

    /// Where a path is: the mounted file system that has it, by the longest mount point above it.
    pub fn holding(&self, path: &std::path::Path) -> Option<Mounted> {
        let path = path.canonicalize().ok()?;
        let mounts = self.list().into_iter().rev().filter(|mount| path.starts_with(&mount.at));
        mounts.max_by_key(|mount| mount.at.as_os_str().len())
    }
}

/// The options of a mount after these properties have changed to what `set` says.
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
