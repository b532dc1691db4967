//! Verbs about mounts: which file system is mounted where, in which order, and what has to be unmounted and mounted
//! again around a change of datasets.
//!
//! The means are the [`Mounts`] of the [`Namespace`]; without them ([`Mounting::of`] gives `None`) nothing is mounted,
//! and no verb asks. `properties` reads the properties of file systems, `options` the words of `-o`, `change` goes around changes.
//!
//! # What always holds
//! - File systems above are mounted before those below. What was mounted last is unmounted first.
//! - A mount hides no other one of ours: what is mounted below steps aside, and is mounted again in it. When it is unmounted,
//!   what is in it for that reason returns to where it was (`remounted`).
//! - A verb that fails half-way mounts again what it has unmounted.
//! - What a mount was told for itself alone (`zfs mount -o`) holds until it is unmounted or a property of it that
//!   concerns mounts is set.
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
pub use refusal::{MountAction, MountRefusal};

use refusal::{LOCKED, failed, missing};

use super::edit::names::{self, Form};
use super::namespace::Opened;
use super::{ImportSettings, MountError, MountOptions, Mounted, Mounts, Namespace, Search, Unmount};
use cenote::{Error, Pool};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The mounts of a namespace, and what is known of its pools.
pub struct Mounting {
    namespace: Arc<Namespace>,
    mounts: Arc<dyn Mounts>,
    /// The caller may mount and unmount: as with OpenZFS on Linux only the administrator may.
    may_mount: bool,
}

/// The words for an error of the system.
fn errno_words(error: &io::Error) -> String {
    super::change::errno_text(error)
}

impl Mounting {
    /// The mounts that verbs with this search are about; `None`: none.
    pub fn of(search: &Search) -> Option<Mounting> {
        let namespace = search.namespace.as_ref()?;
        let mounts = namespace.mounts()?;
        let may_mount = search.caller.as_ref().is_none_or(super::Caller::is_admin);
        Some(Mounting { namespace: Arc::clone(namespace), mounts: Arc::clone(mounts), may_mount })
    }

    /// The caller may mount and unmount.
    pub fn may_mount(&self) -> bool {
        self.may_mount
    }

    /// What is mounted, oldest first.
    pub fn list(&self) -> Vec<Mounted> {
        self.mounts.list()
    }

    /// The means.
    pub fn mounts(&self) -> &Arc<dyn Mounts> {
        &self.mounts
    }

    /// The mount of a dataset.
    pub fn mounted(&self, dataset: &str) -> Option<Mounted> {
        self.mounts.mounted(dataset)
    }

    /// The pool of a dataset for reading, and how it was imported.
    fn view(&self, dataset: &str) -> Result<(Pool, Arc<ImportSettings>), MountRefusal> {
        let (entry, _) =
            self.namespace.entry(super::edit::pool_of(dataset)).ok_or_else(|| missing(dataset))?;
        let pool = match entry.opened() {
            Opened::Live(live) => {
                live.view().map(Pool::from).map_err(|error| failed(dataset, &error.into()))?
            }
            Opened::ReadOnly(pool, _) => pool.clone(),
        };
        Ok((pool, entry.settings()))
    }

    /// A user's file system with a mount point of its own is mounted elsewhere, as only root mounts where properties say: where.
    /// `None`: nowhere, or where it says, below an alternate root too.
    pub fn elsewhere(&self, dataset: &str) -> Option<PathBuf> {
        let (entry, _) = self.namespace.entry(super::edit::pool_of(dataset))?;
        if rustix::process::geteuid().is_root() || entry.settings().altroot.is_some() {
            return None;
        }
        self.mounted(dataset).map(|mounted| mounted.at)
    }

    /// Others than the administrator mount nothing.
    fn ask(&self, dataset: &str) -> Result<(), MountRefusal> {
        if self.may_mount { Ok(()) } else { Err(MountRefusal::mount(dataset, "Insufficient privileges")) }
    }

    /// Has a file system mounted by the means. What is mounted below would be hidden, and could not be unmounted any more:
    /// it steps aside, and is mounted again in the file system.
    fn mount_on(&self, dataset: &str, at: &Path, options: &MountOptions) -> Result<(), MountError> {
        self.namespace.remounted().placed(dataset, at);
        self.mount_over(dataset, at, options)
    }

    /// The same of one that only returns to its place.
    fn mount_over(&self, dataset: &str, at: &Path, options: &MountOptions) -> Result<(), MountError> {
        let below = self.mounts.below(at);
        self.step_aside(&below)?;
        let done = self.mount_alone(dataset, at, options);
        let above = self.list().into_iter().rev().find(|mount| mount.dataset == dataset);
        if let (Ok(()), Some(above)) = (&done, above) {
            self.namespace.remounted().note(&above, &below);
        }
        done.and(self.mount_all_there_again(&below))
    }

    /// Unmounts these, which are in order of age. If one cannot be, they are all where they were.
    fn step_aside(&self, mounts: &[Mounted]) -> Result<(), MountError> {
        for (index, mount) in mounts.iter().enumerate().rev() {
            if let Err(error) = self.mounts.unmount_from(&mount.dataset, &mount.at, Unmount::Normal) {
                // What was in the way is the reason to tell.
                let _ = self.mount_all_there_again(mounts.get(index + 1..).unwrap_or_default());
                let why = format!("'{}' is mounted below: {}", mount.dataset, unmount_words(&error));
                return Err(MountError::Refused { why });
            }
        }
        Ok(())
    }

    /// Mounts these where they were; the first error.
    fn mount_all_there_again(&self, mounts: &[Mounted]) -> Result<(), MountError> {
        let mut outcome = Ok(());
        for mount in mounts {
            outcome = outcome.and(self.mount_there_again(mount));
        }
        outcome
    }

    fn mount_there_again(&self, mount: &Mounted) -> Result<(), MountError> {
        let told = |why: String| MountError::Refused { why: format!("'{}' below it: {why}", mount.dataset) };
        self.mounts.make_folder(&mount.at).map_err(|error| told(errno_words(&error)))?;
        self.mount_as_was(mount).map_err(|error| told(error.to_string()))
    }

    /// Mounts something where it was, beside other places of the same dataset.
    fn mount_as_was(&self, was: &Mounted) -> Result<(), MountError> {
        match self.mounts.mounted(&was.dataset) {
            Some(_) => self.mounts.mount_beside(&was.dataset, &was.at, &was.options),
            None => self.mount_over(&was.dataset, &was.at, &was.options),
        }
    }

    fn mount_alone(&self, dataset: &str, at: &Path, options: &MountOptions) -> Result<(), MountError> {
        if let Some((head, _)) = dataset.split_once('@') {
            let (view, _) = self.view(head).map_err(|refusal| MountError::Refused { why: refusal.why })?;
            return self.mounts.mount_view(&view, dataset, at, options);
        }
        let pool = super::edit::pool_of(dataset);
        let Some((entry, _)) = self.namespace.entry(pool) else { return Err(MountError::NotMounted) };
        match entry.opened() {
            Opened::Live(live) => self.mounts.mount(live, dataset, at, options),
            Opened::ReadOnly(pool, _) => self.mounts.mount_view(pool, dataset, at, options),
        }
    }

    /// Where a file system belongs, by its properties.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn properties(&self, dataset: &str) -> Result<MountProperties, MountRefusal> {
        names::check(dataset, Form::Head).map_err(|error| MountRefusal::open(dataset, error.to_string()))?;
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
    /// Why it is not mounted.
    pub fn mount(&self, dataset: &str, request: &MountRequest) -> Result<(), MountRefusal> {
        let properties = self.properties(dataset)?;
        let refused = |why: &str| Err(MountRefusal::mount(dataset, why));
        let parsed = options::parse_options(&properties, request)
            .ok_or_else(|| MountRefusal::mount(dataset, "Invalid argument"))?;
        match (&properties.point, properties.can_mount) {
            (MountPoint::Legacy, _) => {
                return refused("legacy mountpoint\nuse mount(8) to mount this filesystem");
            }
            (MountPoint::None, _) => return refused("no mountpoint set"),
            (_, CanMount::Off) => return refused("'canmount' property is set to 'off'"),
            (MountPoint::At(_), _) => {}
        }
        if parsed.remount {
            self.ask(dataset)?;
            return self.mounts.remount(dataset, &parsed.options).map_err(|e| mount_words(&properties, &e));
        }
        if self.mounted(dataset).is_some() {
            return refused("filesystem already mounted");
        }
        if properties.is_inconsistent {
            return refused(
                "Contains partially-completed state from \"zfs receive -s\", which can be resumed with \"zfs send -t\"",
            );
        }
        self.put(&properties, &parsed.options)
    }

    /// `mount -t fuse.cenote`: on a directory of the caller's choice, whatever the mount point says.
    ///
    /// # Errors
    /// Why it is not mounted.
    pub fn mount_at(&self, dataset: &str, at: &Path, options: &[String]) -> Result<(), MountRefusal> {
        if let Some((head, _)) = dataset.split_once('@') {
            return self.mount_snapshot(dataset, head, at, options);
        }
        let properties = self.properties(dataset)?;
        let request = MountRequest { overlay: true, options: options.to_vec() };
        let parsed = options::parse_options(&properties, &request)
            .ok_or_else(|| MountRefusal::mount(dataset, "Invalid argument"))?;
        if properties.point != MountPoint::Legacy && !parsed.by_tool && !parsed.remount {
            return Err(MountRefusal {
                action: MountAction::Mount,
                what: dataset.to_owned(),
                why: format!(
                    "it cannot be mounted using 'mount'.\nUse 'zfs set mountpoint=legacy {dataset}' or \
                     'zfs mount {dataset}'.\nSee zfs(8) for more information."
                ),
            });
        }
        if parsed.remount {
            self.ask(dataset)?;
            return self.mounts.remount(dataset, &parsed.options).map_err(|e| mount_words(&properties, &e));
        }
        self.ask(dataset)?;
        let options = MountOptions { by_hand: true, ..parsed.options };
        let mounted = match self.mounted(dataset) {
            Some(_) => {
                self.namespace.remounted().placed(dataset, at);
                self.mounts.mount_beside(dataset, at, &options)
            }
            None => self.mount_on(dataset, at, &options),
        };
        mounted.map_err(|error| {
            mount_words(&MountProperties { point: MountPoint::At(at.to_owned()), ..properties }, &error)
        })
    }

    /// Mounts what was mounted by hand when the daemon before this one ended, of the pools that are there. What cannot be is
    /// not tried again: it is told of, and why.
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

    /// The daemon ends: what was mounted by hand is to be there again when the next one begins.
    pub fn leaving(&self) {
        self.mounts.leaving();
    }

    /// The same of a snapshot, which can only be read.
    fn mount_snapshot(
        &self,
        name: &str,
        head: &str,
        at: &Path,
        options: &[String],
    ) -> Result<(), MountRefusal> {
        names::check(name, Form::Snapshot).map_err(|error| MountRefusal::open(name, error.to_string()))?;
        let mut properties = self.properties(head)?;
        let (view, _) = self.view(head)?;
        view.dataset(name).map_err(|error| failed(name, &error))?;
        properties.options.read_only = true;
        let request = MountRequest { overlay: true, options: options.to_vec() };
        let parsed = options::parse_options(&properties, &request)
            .ok_or_else(|| MountRefusal::mount(name, "Invalid argument"))?;
        self.ask(head)?;
        if parsed.remount {
            let why = "a snapshot cannot be mounted for writing";
            return if parsed.options.read_only { Ok(()) } else { Err(MountRefusal::mount(name, why)) };
        }
        let options =
            MountOptions { read_only: true, temporary: Vec::new(), by_hand: true, ..parsed.options };
        let properties =
            MountProperties { dataset: name.to_owned(), point: MountPoint::At(at.to_owned()), ..properties };
        self.mounts.mount_view(&view, name, at, &options).map_err(|error| mount_words(&properties, &error))
    }

    /// Those of these snapshots that somebody uses: they are mounted, or a program stands in them or has a file of
    /// theirs open, through `.zfs`.
    pub fn snapshots_in_use<'n>(&self, names: &'n [String]) -> Vec<&'n str> {
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

    /// Mounts what can be mounted by itself: below a dataset, or of all pools. What lacks its key is passed over, as
    /// OpenZFS does. Returns what else was not mounted, and why.
    pub fn mount_all(&self, below: Option<&str>, request: &MountRequest) -> Vec<MountRefusal> {
        self.mount_all_telling(below, request, &mut |_, _| {})
    }

    /// The same; before each mount, `tell` hears which it is, from 1, and of how many.
    pub fn mount_all_telling(
        &self,
        below: Option<&str>,
        request: &MountRequest,
        tell: &mut dyn FnMut(usize, usize),
    ) -> Vec<MountRefusal> {
        let (places, mut refusals) = self.unmounted(below);
        for (index, properties) in places.iter().enumerate() {
            tell(index + 1, places.len());
            let done = match options::parse_options(properties, request) {
                Some(parsed) => self.put(properties, &parsed.options),
                None => Err(MountRefusal::mount(&properties.dataset, "Invalid argument")),
            };
            if let Some(refusal) = done.err().filter(|refusal| !refusal.is_locked()) {
                self.namespace.not_mounted().insert(properties.dataset.clone(), refusal.why.clone());
                refusals.push(refusal);
            }
        }
        refusals
    }

    /// File systems of a pool that were to be mounted by themselves, could not be, and still are not; and why.
    pub fn not_mounted(&self, pool: &str) -> Vec<(String, String)> {
        let known = self.namespace.not_mounted().clone();
        let of_pool = known.into_iter().filter(|(dataset, _)| super::edit::pool_of(dataset) == pool);
        let is_still = |(dataset, _): &(String, String)| {
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
    fn unmounted(&self, below: Option<&str>) -> (Vec<MountProperties>, Vec<MountRefusal>) {
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
            properties.mounts_by_itself() && self.mounted(&properties.dataset).is_none()
        });
        (places, refusals)
    }

    /// Mounts a file system that was just made, if it mounts by itself.
    ///
    /// # Errors
    /// Why it is not mounted.
    pub fn mount_new(&self, dataset: &str) -> Result<(), MountRefusal> {
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
            return Err(MountRefusal::mount(&properties.dataset, LOCKED));
        }
        if let Err(error) = self.mounts.make_folder(at) {
            let why = format!("failed to create mountpoint: {}", errno_words(&error));
            return Err(MountRefusal::mount(shown, why));
        }
        let mounted = self.mount_on(&properties.dataset, at, options);
        mounted.map_err(|error| mount_words(properties, &error))
    }

    // ---- unmounting --------------------------------------------------------------------------

    /// `zfs unmount FILESYSTEM`, with those below it, wherever they are; legacy mounts stay.
    ///
    /// # Errors
    /// Why it is not unmounted.
    pub fn unmount(&self, dataset: &str, how: Unmount) -> Result<(), MountRefusal> {
        let properties = self.properties(dataset)?;
        if properties.point == MountPoint::Legacy {
            let why = "legacy mountpoint\nuse umount(8) to unmount this filesystem";
            return Err(MountRefusal::unmount(dataset, why));
        }
        if self.mounted(dataset).is_none() {
            return Err(MountRefusal::unmount(dataset, "not currently mounted"));
        }
        let mut below = self.properties_below(dataset)?;
        below.retain(|properties| properties.point != MountPoint::Legacy);
        self.take_down(&below, how).map(drop)
    }

    /// `zfs unmount PATH`.
    ///
    /// # Errors
    /// Why it is not unmounted.
    pub fn unmount_path(&self, path: &Path, how: Unmount) -> Result<(), MountRefusal> {
        let shown = path.display().to_string();
        let at = path.canonicalize().map_err(|error| {
            let words = errno_words(&error);
            let more = format!("{words}\nwarning: {shown} not in/proc/self/mounts\n{shown}: {words}");
            MountRefusal::open(&shown, more)
        })?;
        let mounts = self.list();
        if let Some(mount) = mounts.iter().rev().find(|mount| mount.at == at) {
            let is_beside = mounts.iter().any(|other| other.dataset == mount.dataset && other.at != at);
            // One of several places is as a mount that others have nothing to do with.
            return if is_beside { self.end(mount, how) } else { self.unmount(&mount.dataset.clone(), how) };
        }
        let is_below = mounts.iter().any(|mount| at.starts_with(&mount.at));
        let why = if is_below { "not a mountpoint" } else { "not a ZFS filesystem" };
        Err(MountRefusal::unmount(shown, why))
    }

    /// Unmounts everything, or everything of a pool; unless `by_hand`, what is mounted by hand stays: legacy mounts and those
    /// with `canmount=noauto`. Returns what was not, and why.
    pub fn unmount_all(&self, pool: Option<&str>, by_hand: bool, how: Unmount) -> Vec<MountRefusal> {
        let is_meant = |mount: &Mounted| pool.is_none_or(|pool| super::edit::pool_of(&mount.dataset) == pool);
        let mut refusals = Vec::new();
        // What was mounted later may lie in, or on, what was mounted before; never the other way round.
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

    /// Ends a mount in one of its places.
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

    /// Ends a mount in these places. What is inside them only because they were mounted over it returns to where it was.
    fn end_by(
        &self,
        places: &[Mounted],
        how: Unmount,
        end: impl FnOnce() -> Result<(), MountError>,
    ) -> Result<(), MountRefusal> {
        let Some(first) = places.first() else { return Ok(()) };
        let refused = |why: String| Err(MountRefusal::unmount(first.at.display().to_string(), why));
        if !self.may_mount {
            return refused("permission denied".to_owned());
        }
        let inside = self.remounted_in(places);
        let aside = match self.step_aside(&inside) {
            Ok(()) => inside,
            // It disappears with what it has mounted in it, whoever uses that.
            Err(_) if how == Unmount::Lazy => Vec::new(),
            Err(error) => return refused(error.to_string()),
        };
        let ended = match end() {
            // Somebody else was faster.
            Ok(()) | Err(MountError::NotMounted) => Ok(()),
            Err(error) => refused(unmount_words(&error)),
        };
        for mount in &aside {
            if let Err(error) = self.mount_there_again(mount) {
                tracing::warn!(dataset = mount.dataset, at = %mount.at.display(), %error, "not mounted again");
                self.namespace.not_mounted().insert(mount.dataset.clone(), error.to_string());
            }
        }
        ended
    }

    /// What is inside one of these mounts only because they were mounted over its place, oldest first.
    fn remounted_in(&self, places: &[Mounted]) -> Vec<Mounted> {
        let mut mounts = self.list();
        let noted = self.namespace.remounted();
        mounts.retain(|mount| places.iter().any(|above| noted.is_inside(mount, above)));
        mounts
    }
}

fn mount_words(properties: &MountProperties, error: &MountError) -> MountRefusal {
    let at = properties.point.path().map(|path| path.display().to_string());
    let dataset = properties.dataset.clone();
    match error {
        MountError::NotEmpty => MountRefusal::mount(at.unwrap_or(dataset), "directory is not empty"),
        MountError::Busy { .. } => MountRefusal::mount(dataset, "mountpoint or dataset is busy"),
        MountError::Open(error)
            if matches!(**error, Error::Locked { .. } | Error::Dsl(dsl::DslError::Encrypted { .. })) =>
        {
            MountRefusal::mount(dataset, LOCKED)
        }
        MountError::Open(error) => MountRefusal::mount(dataset, super::chain(&**error)),
        other => MountRefusal::mount(dataset, other.to_string()),
    }
}

/// Why something is not unmounted; what keeps it stands on lines of its own.
fn unmount_words(error: &MountError) -> String {
    let mut words = error.to_string();
    if let MountError::Busy { by, also_at } = error {
        let places: Vec<String> = also_at.iter().map(|at| at.display().to_string()).collect();
        let users: Vec<String> = by.iter().map(|(pid, name)| format!("{name} ({pid})")).collect();
        for (what, which) in [("also mounted on", places), ("in use by", users)] {
            if !which.is_empty() {
                words += &format!("\n{what}: {}", which.join(", "));
            }
        }
    }
    words
}
