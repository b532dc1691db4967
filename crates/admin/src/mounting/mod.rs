//! Verbs on mounts: which file system is mounted where and in which order, and what is unmounted and mounted again
//! when datasets change.
//!
//! The means are the [`Mounts`] of the [`Namespace`]; without them ([`Mounting::of`] gives `None`) nothing is mounted,
//! and no verb asks. `properties` reads the properties of file systems, `options` the words of `-o`, `change` goes
//! around changes.
//!
//! # What always holds
//! - File systems are mounted parents first, and unmounted in the reverse order of mounting.
//! - A mount does not hide other mounts of Cenote: mounts below its mount point are moved inside the new file
//!   system. When it is unmounted, they return to their previous places (`remounted`).
//! - A verb that fails restores the mounts that it has ended.
//! - Options set for one mount (`zfs mount -o`) are in force until it is unmounted, or until a property that sets
//!   such an option is changed.
//!
//! Source: docs/on-disk/33-cli.md (sections 1.3, 7); fixtures/cli-transcripts; the tools' behaviour.

mod change;
mod keys;
mod options;
mod properties;
mod refusal;
pub(crate) mod remounted;

pub use change::{Pending, Replacing};
pub use keys::{KeyFormat, KeyLocation, WantedKey};
pub use options::MountRequest;
pub use properties::{CanMount, MountPoint, MountProperties};
pub use refusal::{MountAction, MountRefusal, Obstacle};

use refusal::failed;

use super::edit::names::{self, Form};
use super::namespace::Opened;
use super::{ImportSettings, MountError, MountOptions, Mounted, Mounts, Namespace, Search, Unmount};
use cenote::Pool;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The mounts of a namespace, and what is known of its pools.
pub struct Mounting {
    namespace: Arc<Namespace>,
    mounts: Arc<dyn Mounts>,
    /// The caller may mount and unmount. As with OpenZFS on Linux, only the administrator may.
    may_mount: bool,
}

impl Mounting {
    /// The mounts of the process that this search belongs to; `None`: the process has no mounts.
    pub fn of(search: &Search) -> Option<Mounting> {
        let namespace = search.namespace.as_ref()?;
        let mounts = namespace.mounts()?;
        let may_mount = search.caller.as_ref().is_none_or(super::Caller::is_admin);
        Some(Mounting { namespace: Arc::clone(namespace), mounts: Arc::clone(mounts), may_mount })
    }

    /// True if the caller may mount and unmount.
    pub fn may_mount(&self) -> bool {
        self.may_mount
    }

    /// All mounts, oldest first.
    pub(crate) fn list(&self) -> Vec<Mounted> {
        self.mounts.list()
    }

    /// The mount of a dataset, with its first place.
    pub fn mounted(&self, dataset: &str) -> Option<Mounted> {
        self.mounts.mounted(dataset)
    }

    /// The pool of a dataset, open for reading, and its import settings.
    fn view(&self, dataset: &str) -> Result<(Pool, Arc<ImportSettings>), MountRefusal> {
        let (entry, _) = self
            .namespace
            .entry(super::edit::pool_of(dataset))
            .ok_or_else(|| MountRefusal::open(dataset, Obstacle::NoDataset))?;
        let pool = match entry.opened() {
            Opened::Live(live) => {
                live.view().map(Pool::from).map_err(|error| failed(dataset, &error.into()))?
            }
            Opened::ReadOnly(pool, _) => pool.clone(),
        };
        Ok((pool, entry.settings()))
    }

    /// The directory at which a file system of an ordinary user is mounted instead of its mount point, because only
    /// root mounts at the places that properties name. `None`: it is not mounted, or is mounted at its mount point.
    pub fn elsewhere(&self, dataset: &str) -> Option<PathBuf> {
        let (entry, _) = self.namespace.entry(super::edit::pool_of(dataset))?;
        if rustix::process::geteuid().is_root() || entry.settings().altroot.is_some() {
            return None;
        }
        self.mounted(dataset).map(|mounted| mounted.at)
    }

    /// Refuses callers that are not administrators.
    fn ask(&self, dataset: &str) -> Result<(), MountRefusal> {
        if self.may_mount { Ok(()) } else { Err(MountRefusal::mount(dataset, Obstacle::Privileges)) }
    }

    /// Mounts a file system. Mounts below its mount point would be hidden and could not be unmounted any more; they
    /// are moved inside it.
    fn mount_on(&self, dataset: &str, at: &Path, options: &MountOptions) -> Result<(), Obstacle> {
        self.namespace.remounted().placed(dataset, at);
        self.mount_over(dataset, at, options)
    }

    /// Like [`Mounting::mount_on`], for a mount that is restored to its place.
    fn mount_over(&self, dataset: &str, at: &Path, options: &MountOptions) -> Result<(), Obstacle> {
        let below = self.mounts.below(at);
        self.step_aside(&below)?;
        let done = self.mount_alone(dataset, at, options);
        let above = self.list().into_iter().rev().find(|mount| mount.dataset == dataset);
        if let (Ok(()), Some(above)) = (&done, above) {
            self.namespace.remounted().note(&above, &below);
        }
        done.and(self.mount_all_there_again(&below))
    }

    /// Unmounts these mounts, which are in the order of their age. If one fails, all are restored.
    fn step_aside(&self, mounts: &[Mounted]) -> Result<(), Obstacle> {
        for (index, mount) in mounts.iter().enumerate().rev() {
            if let Err(error) = self.mounts.unmount_from(&mount.dataset, &mount.at, Unmount::Normal) {
                // The first error is the one to report.
                let _ = self.mount_all_there_again(mounts.get(index + 1..).unwrap_or_default());
                let why = Box::new(error.into());
                return Err(Obstacle::MountedBelow { dataset: mount.dataset.clone(), why });
            }
        }
        Ok(())
    }

    /// Restores these mounts; returns the first error.
    fn mount_all_there_again(&self, mounts: &[Mounted]) -> Result<(), Obstacle> {
        let mut outcome = Ok(());
        for mount in mounts {
            outcome = outcome.and(self.mount_there_again(mount));
        }
        outcome
    }

    fn mount_there_again(&self, mount: &Mounted) -> Result<(), Obstacle> {
        let folder = self.mounts.make_folder(&mount.at).map_err(|error| Obstacle::system(&error));
        folder
            .and_then(|()| self.mount_as_was(mount))
            .map_err(|why| Obstacle::NotMountedBelow { dataset: mount.dataset.clone(), why: Box::new(why) })
    }

    /// Restores a mount, also if the dataset is mounted in other places.
    fn mount_as_was(&self, was: &Mounted) -> Result<(), Obstacle> {
        match self.mounts.mounted(&was.dataset) {
            Some(_) => Ok(self.mounts.mount_beside(&was.dataset, &was.at, &was.options)?),
            None => self.mount_over(&was.dataset, &was.at, &was.options),
        }
    }

    fn mount_alone(&self, dataset: &str, at: &Path, options: &MountOptions) -> Result<(), Obstacle> {
        let pool = super::edit::pool_of(dataset);
        // A use of the pool until the file system is in the table of mounts: an export waits, and looks there again.
        let Some((entry, _user)) = self.namespace.entry(pool) else { return Err(Obstacle::NotMounted) };
        match entry.opened() {
            Opened::Live(live) => self.mounts.mount(live, dataset, at, options)?,
            Opened::ReadOnly(pool, _) => self.mounts.mount_view(pool, dataset, at, options)?,
        }
        Ok(())
    }

    /// Mount point and mount options of a file system.
    ///
    /// # Errors
    /// There is none of this name.
    pub(crate) fn properties(&self, dataset: &str) -> Result<MountProperties, MountRefusal> {
        names::check(dataset, Form::Head).map_err(|error| MountRefusal::open(dataset, error))?;
        let (view, settings) = self.view(dataset)?;
        properties::of(&view, &settings, dataset)
    }

    /// Where a file system and all below it belong, those above first.
    fn properties_below(&self, dataset: &str) -> Result<Vec<MountProperties>, MountRefusal> {
        let (view, settings) = self.view(dataset)?;
        properties::below(&view, &settings, dataset)
    }

    // ---- mounting ----------------------------------------------------------------------------

    /// `zfs mount FILESYSTEM`.
    ///
    /// # Errors
    /// Why the file system is not mounted.
    pub(crate) fn mount(&self, dataset: &str, request: &MountRequest) -> Result<(), MountRefusal> {
        let properties = self.properties(dataset)?;
        let refused = |why: Obstacle| Err(MountRefusal::mount(dataset, why));
        let parsed = options::parse_options(&properties, request)
            .ok_or_else(|| MountRefusal::mount(dataset, Obstacle::Option))?;
        match (&properties.point, properties.can_mount) {
            (MountPoint::Legacy, _) => return refused(Obstacle::Legacy(MountAction::Mount)),
            (MountPoint::None, _) => return refused(Obstacle::NoMountPoint),
            (_, CanMount::Off) => return refused(Obstacle::CanMountOff),
            (MountPoint::At(_), _) => {}
        }
        if parsed.remount {
            self.ask(dataset)?;
            return self
                .mounts
                .remount(dataset, &parsed.options)
                .map_err(|e| mount_refusal(&properties, e.into()));
        }
        if self.mounted(dataset).is_some() {
            return refused(Obstacle::AlreadyMounted);
        }
        if properties.is_inconsistent {
            return refused(Obstacle::PartlyReceived);
        }
        if properties.is_redacted && !request.force {
            return refused(Obstacle::Redacted);
        }
        self.put(&properties, &parsed.options)
    }

    /// `mount -t fuse.cenote`: mounts on a directory of the caller's choice, whatever the property `mountpoint`
    /// says.
    ///
    /// # Errors
    /// Why the file system is not mounted.
    pub(crate) fn mount_at(&self, dataset: &str, at: &Path, options: &[String]) -> Result<(), MountRefusal> {
        if let Some((head, _)) = dataset.split_once('@') {
            return self.mount_snapshot(dataset, head, at, options);
        }
        let properties = self.properties(dataset)?;
        let request = MountRequest { overlay: true, force: true, options: options.to_vec() };
        let parsed = options::parse_options(&properties, &request)
            .ok_or_else(|| MountRefusal::mount(dataset, Obstacle::Option))?;
        if properties.point != MountPoint::Legacy && !parsed.by_tool && !parsed.remount {
            return Err(MountRefusal::mount(dataset, Obstacle::NotLegacy { dataset: dataset.to_owned() }));
        }
        if parsed.remount {
            self.ask(dataset)?;
            return self
                .mounts
                .remount(dataset, &parsed.options)
                .map_err(|e| mount_refusal(&properties, e.into()));
        }
        self.ask(dataset)?;
        let options = MountOptions { by_hand: true, ..parsed.options };
        let mounted = match self.mounted(dataset) {
            Some(_) => {
                self.namespace.remounted().placed(dataset, at);
                self.mounts.mount_beside(dataset, at, &options).map_err(Obstacle::from)
            }
            None => self.mount_on(dataset, at, &options),
        };
        mounted.map_err(|error| {
            mount_refusal(&MountProperties { point: MountPoint::At(at.to_owned()), ..properties }, error)
        })
    }

    /// Makes again the mounts by hand that the previous daemon had, for pools that are imported. A mount that fails
    /// is not tried again; it is returned with the reason.
    pub fn mount_by_hand_again(&self) -> Vec<MountRefusal> {
        let (mounted, pools) = (self.list(), self.namespace.names());
        let mut refusals = Vec::new();
        for was in self.mounts.by_hand() {
            let is_there = mounted.iter().any(|mount| mount.dataset == was.dataset && mount.at == was.at);
            if is_there || !pools.iter().any(|pool| pool == super::edit::pool_of(&was.dataset)) {
                continue;
            }
            let words = was.temporary.iter().filter_map(|(name, value)| options::word(name, value));
            let options: Vec<String> = words.chain(["zfsutil"]).map(str::to_owned).collect();
            if let Err(refusal) = self.mount_at(&was.dataset, &was.at, &options) {
                self.mounts.not_by_hand(&was.at);
                refusals.push(refusal);
            }
        }
        refusals
    }

    /// Announces that the daemon ends: mounts by hand are recorded for the next daemon.
    pub fn leaving(&self) {
        self.mounts.leaving();
    }

    /// Mounts a snapshot, read-only, at a directory of the caller's choice.
    fn mount_snapshot(
        &self,
        name: &str,
        head: &str,
        at: &Path,
        options: &[String],
    ) -> Result<(), MountRefusal> {
        names::check(name, Form::Snapshot).map_err(|error| MountRefusal::open(name, error))?;
        let mut properties = self.properties(head)?;
        let (view, _) = self.view(head)?;
        view.dataset(name).map_err(|error| failed(name, &error))?;
        properties.options.read_only = true;
        let request = MountRequest { overlay: true, force: true, options: options.to_vec() };
        let parsed = options::parse_options(&properties, &request)
            .ok_or_else(|| MountRefusal::mount(name, Obstacle::Option))?;
        self.ask(head)?;
        if parsed.remount {
            return match parsed.options.read_only {
                true => Ok(()),
                false => Err(MountRefusal::mount(name, Obstacle::ReadOnly)),
            };
        }
        let options =
            MountOptions { read_only: true, temporary: Vec::new(), by_hand: true, ..parsed.options };
        let properties =
            MountProperties { dataset: name.to_owned(), point: MountPoint::At(at.to_owned()), ..properties };
        self.mount_alone(name, at, &options).map_err(|why| mount_refusal(&properties, why))
    }

    /// Call after a snapshot was renamed: its mount has the new name.
    pub(crate) fn after_snapshot_rename(&self, from: &str, to: &str) {
        self.mounts.renamed(from, to);
    }

    /// Those of these snapshots that are in use: they are mounted, or a program has its working directory or an
    /// open file in them through `.zfs`.
    pub(crate) fn snapshots_in_use<'n>(&self, names: &'n [String]) -> Vec<&'n str> {
        let mounts = self.list();
        let mut known: Option<(&str, Vec<String>)> = None;
        let mut in_use = |name: &&'n str| {
            let Some((head, snapshot)) = name.split_once('@') else { return false };
            if known.as_ref().is_none_or(|(known, _)| *known != head) {
                known = Some((head, self.mounts.snapshots_in_use(head)));
            }
            let through_dir =
                known.as_ref().is_some_and(|(_, used)| used.iter().any(|used| used == snapshot));
            through_dir || mounts.iter().any(|mount| mount.dataset == **name)
        };
        names.iter().map(String::as_str).filter(|name| in_use(name)).collect()
    }

    /// Mounts the file systems that mount automatically, below a dataset or in all pools. As in OpenZFS, those
    /// without their keys are skipped. Returns the other failures.
    pub fn mount_all(&self, below: Option<&str>, request: &MountRequest) -> Vec<MountRefusal> {
        self.mount_all_telling(below, request, &mut |_, _| {})
    }

    /// Like [`Mounting::mount_all`]. `tell` is called before each mount with its number, from 1, and the number of
    /// mounts.
    pub(crate) fn mount_all_telling(
        &self,
        below: Option<&str>,
        request: &MountRequest,
        tell: &mut dyn FnMut(usize, usize),
    ) -> Vec<MountRefusal> {
        let (places, mut refusals) = self.unmounted(below, request.force);
        for (index, properties) in places.iter().enumerate() {
            tell(index + 1, places.len());
            let done = match options::parse_options(properties, request) {
                Some(parsed) => self.put(properties, &parsed.options),
                None => Err(MountRefusal::mount(&properties.dataset, Obstacle::Option)),
            };
            if let Some(refusal) = done.err().filter(|refusal| !refusal.is_locked()) {
                self.namespace.not_mounted().insert(properties.dataset.clone(), refusal.why.clone());
                refusals.push(refusal);
            }
        }
        refusals
    }

    /// File systems of a pool that failed to mount automatically and are still not mounted, with the reasons.
    pub(crate) fn not_mounted(&self, pool: &str) -> Vec<(String, Obstacle)> {
        let known = self.namespace.not_mounted().clone();
        let of_pool = known.into_iter().filter(|(dataset, _)| super::edit::pool_of(dataset) == pool);
        let is_still = |(dataset, _): &(String, Obstacle)| {
            let is_wanted = self.properties(dataset).is_ok_and(|properties| properties.mounts_by_itself());
            let is_still = is_wanted && self.mounted(dataset).is_none();
            if !is_still {
                self.namespace.not_mounted().remove(dataset);
            }
            is_still
        };
        of_pool.filter(is_still).collect()
    }

    /// What mounts by itself and is not mounted, in the order in which it can be; and what could not be looked at.
    fn unmounted(&self, below: Option<&str>, force: bool) -> (Vec<MountProperties>, Vec<MountRefusal>) {
        let roots = match below {
            Some(dataset) => vec![dataset.to_owned()],
            None => self.namespace.names(),
        };
        let mut refusals = Vec::new();
        let mut places = Vec::new();
        for root in roots {
            match self.properties_below(&root) {
                Ok(found) => places.extend(found),
                Err(refusal) => refusals.push(refusal),
            }
        }
        places.sort_by(|a, b| a.point.path().cmp(&b.point.path()));
        places.retain(|properties| {
            let mounts = if force { properties.mounts_if_forced() } else { properties.mounts_by_itself() };
            mounts && self.mounted(&properties.dataset).is_none()
        });
        (places, refusals)
    }

    /// Mounts a new file system, if it mounts automatically.
    ///
    /// # Errors
    /// Why the file system is not mounted.
    pub(crate) fn mount_new(&self, dataset: &str) -> Result<(), MountRefusal> {
        let properties = self.properties(dataset)?;
        if properties.mounts_by_itself() && self.mounted(dataset).is_none() {
            self.put(&properties, &properties.options)?;
        }
        Ok(())
    }

    fn put(&self, properties: &MountProperties, options: &MountOptions) -> Result<(), MountRefusal> {
        let MountPoint::At(at) = &properties.point else { return Ok(()) };
        let shown = at.display().to_string();
        self.ask(&properties.dataset)?;
        if properties.is_locked {
            return Err(MountRefusal::mount(&properties.dataset, Obstacle::Locked));
        }
        if let Err(error) = self.mounts.make_folder(at) {
            let error = super::change::errno_text(&error);
            return Err(MountRefusal::mount(shown, Obstacle::Folder { error }));
        }
        let mounted = self.mount_on(&properties.dataset, at, options);
        mounted.map_err(|why| mount_refusal(properties, why))?;
        self.correct(properties)
    }

    /// Call after a mount for which these properties were read. A verb that has changed them since may have looked at
    /// the mounts before this one was among them: the mount is corrected.
    fn correct(&self, read: &MountProperties) -> Result<(), MountRefusal> {
        // The file system may have been destroyed or renamed since.
        let Ok(now) = self.properties(&read.dataset) else { return Ok(()) };
        let is_off = now.can_mount == CanMount::Off && read.can_mount != CanMount::Off;
        if now.point == read.point && !is_off {
            return Ok(());
        }
        self.end_misplaced(&now)?;
        if is_off {
            return Err(MountRefusal::mount(&now.dataset, Obstacle::CanMountOff));
        }
        match self.mounted(&now.dataset) {
            Some(_) => Ok(()),
            None => self.put(&now, &now.options),
        }
    }

    /// Ends mounts of a file system that its properties forbid or place elsewhere. Mounts by hand stay.
    fn end_misplaced(&self, properties: &MountProperties) -> Result<(), MountRefusal> {
        let is_off = properties.can_mount == CanMount::Off;
        let is_misplaced = |mount: &&Mounted| {
            mount.dataset == properties.dataset
                && !mount.options.by_hand
                && (is_off || properties.point.path() != Some(&mount.at))
        };
        self.list().iter().filter(is_misplaced).try_for_each(|mount| self.end(mount, Unmount::Normal))
    }

    // ---- unmounting --------------------------------------------------------------------------

    /// `zfs unmount FILESYSTEM`: unmounts a file system and its descendants from all places, except legacy mounts.
    ///
    /// # Errors
    /// Why a file system is not unmounted.
    pub(crate) fn unmount(&self, dataset: &str, how: Unmount) -> Result<(), MountRefusal> {
        let properties = self.properties(dataset)?;
        if properties.point == MountPoint::Legacy {
            return Err(MountRefusal::unmount(dataset, Obstacle::Legacy(MountAction::Unmount)));
        }
        if self.mounted(dataset).is_none() {
            return Err(MountRefusal::unmount(dataset, Obstacle::NotMounted));
        }
        let mut below = self.properties_below(dataset)?;
        below.retain(|properties| properties.point != MountPoint::Legacy);
        self.take_down(&below, how).map(drop)
    }

    /// `zfs unmount PATH`.
    ///
    /// # Errors
    /// Why the file system is not unmounted.
    pub(crate) fn unmount_path(&self, path: &Path, how: Unmount) -> Result<(), MountRefusal> {
        let shown = path.display().to_string();
        let at = path.canonicalize().map_err(|error| {
            let error = super::change::errno_text(&error);
            MountRefusal::open(&shown, Obstacle::NoPath { path: shown.clone(), error })
        })?;
        let mounts = self.list();
        if let Some(mount) = mounts.iter().rev().find(|mount| mount.at == at) {
            let is_beside = mounts.iter().any(|other| other.dataset == mount.dataset && other.at != at);
            // One of several places is independent of the others.
            return if is_beside { self.end(mount, how) } else { self.unmount(&mount.dataset.clone(), how) };
        }
        let is_below = mounts.iter().any(|mount| at.starts_with(&mount.at));
        let why = if is_below { Obstacle::NotAMountPoint } else { Obstacle::NotZfs };
        Err(MountRefusal::unmount(shown, why))
    }

    /// Unmounts all file systems, or those of one pool. Unless `by_hand`, mounts by hand stay: legacy mounts and
    /// those with `canmount=noauto`. Returns the failures.
    pub fn unmount_all(&self, pool: Option<&str>, by_hand: bool, how: Unmount) -> Vec<MountRefusal> {
        let is_meant = |mount: &Mounted| pool.is_none_or(|pool| super::edit::pool_of(&mount.dataset) == pool);
        let mut refusals = Vec::new();
        // A later mount may be inside an earlier one; the reverse is impossible.
        for mount in self.list().into_iter().rev().filter(is_meant) {
            let is_by_hand = |properties: MountProperties| {
                properties.point == MountPoint::Legacy || properties.can_mount == CanMount::NoAuto
            };
            if by_hand || !self.properties(&mount.dataset).is_ok_and(is_by_hand) {
                refusals.extend(self.end(&mount, how).err());
            }
        }
        refusals
    }

    /// Ends one place of a mount.
    fn end(&self, mount: &Mounted, how: Unmount) -> Result<(), MountRefusal> {
        let places = std::slice::from_ref(mount);
        self.end_by(places, how, || self.mounts.unmount_from(&mount.dataset, &mount.at, how))
    }

    /// Ends the mount of a dataset in all its places, if it is mounted.
    fn end_all(&self, dataset: &str, how: Unmount) -> Result<(), MountRefusal> {
        let mut places = self.list();
        places.retain(|mount| mount.dataset == dataset);
        self.end_by(&places, how, || self.mounts.unmount(dataset, how))
    }

    /// Ends a mount in these places. Mounts that were moved inside it return to their previous places.
    fn end_by(
        &self,
        places: &[Mounted],
        how: Unmount,
        end: impl FnOnce() -> Result<(), MountError>,
    ) -> Result<(), MountRefusal> {
        let Some(first) = places.first() else { return Ok(()) };
        let refused = |why: Obstacle| Err(MountRefusal::unmount(first.at.display().to_string(), why));
        if !self.may_mount {
            return refused(Obstacle::Denied);
        }
        let inside = self.remounted_in(places);
        let aside = match self.step_aside(&inside) {
            Ok(()) => inside,
            // A lazy unmount takes the mounts inside along, even if they are in use.
            Err(_) if how == Unmount::Lazy => Vec::new(),
            Err(why) => return refused(why),
        };
        let ended = match end() {
            // Another caller has already unmounted it.
            Ok(()) | Err(MountError::NotMounted) => Ok(()),
            Err(error) => refused(error.into()),
        };
        for mount in &aside {
            if let Err(why) = self.mount_there_again(mount) {
                tracing::warn!(dataset = mount.dataset, at = %mount.at.display(), %why, "not mounted again");
                self.namespace.not_mounted().insert(mount.dataset.clone(), why);
            }
        }
        ended
    }

    /// Mounts that were moved inside one of these mounts, oldest first.
    fn remounted_in(&self, places: &[Mounted]) -> Vec<Mounted> {
        let mut mounts = self.list();
        let noted = self.namespace.remounted();
        mounts.retain(|mount| places.iter().any(|above| noted.is_inside(mount, above)));
        mounts
    }
}

/// The refusal for a file system that is not mounted at the mount point of `properties`.
fn mount_refusal(properties: &MountProperties, why: Obstacle) -> MountRefusal {
    let dataset = properties.dataset.clone();
    match why {
        Obstacle::NotEmpty => {
            let at = properties.point.path().map(|path| path.display().to_string());
            MountRefusal::mount(at.unwrap_or(dataset), Obstacle::NotEmpty)
        }
        Obstacle::InUse { .. } => MountRefusal::mount(dataset, Obstacle::Occupied),
        why => MountRefusal::mount(dataset, why),
    }
}
