//! The table of mounts as [`admin::Mounts`]: the verbs that mount, unmount, remount and suspend, and the
//! queries.

use super::mount::Backend;
use super::paused::PausedMount;
use super::record::ByHand;
use super::walk::MountPoint;
use super::{MountTable, Record, SNAPSHOT_DIR, in_use, is_busy, is_made_writable, is_root, kernel, users};
use crate::export::LiveExport;
use crate::fuse::{self, FileCounters, LiveService, Service};
use admin::sync::lock;
use admin::{FileOps, MountError, MountOptions, Mounted, MountedByHand, Mounts, Suspended, Unmount};
use cenote::files::FilesystemWriter;
use cenote::{LivePool, Pool};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

impl Mounts for MountTable {
    fn list(&self) -> Vec<Mounted> {
        self.inner.let_go_of_unmounted();
        self.inner.told(|_| true)
    }

    fn mounted(&self, dataset: &str) -> Option<Mounted> {
        self.inner.find_mounted(dataset).map(|mount| mount.told_first())
    }

    fn below(&self, at: &Path) -> Vec<Mounted> {
        let Ok(at) = self.past_dead(|| MountPoint::find(at)).and_then(|place| place.path()) else {
            return Vec::new();
        };
        self.inner.told(|path| path != at && kernel::is_within(path, &at))
    }

    fn make_folder(&self, at: &Path) -> io::Result<()> {
        let (place, was_made) = self.past_dead(|| MountPoint::make(at))?;
        if was_made {
            let node = place.top()?.node;
            self.tell_record(|record| record.made(at, node));
        }
        Ok(())
    }

    fn remove_folder(&self, at: &Path) {
        let made = self.inner.record.as_ref().and_then(|record| record.folder(at));
        let Some((node, place)) = made.zip(MountPoint::find(at).ok()) else { return };
        if place.is_mount_point().is_ok_and(|is| !is) && place.remove(node).is_ok() {
            self.tell_record(|record| record.removed(at, node));
        }
    }

    fn stats(&self, dataset: &str) -> Option<FileOps> {
        let mount = self.inner.find(dataset)?;
        mount.live().and_then(|(_, service)| service.counters()).map(FileCounters::sample)
    }

    fn mount(
        &self,
        pool: &Arc<LivePool>,
        dataset: &str,
        at: &Path,
        options: &MountOptions,
    ) -> Result<(), MountError> {
        let (_claim, _placing, place) = self.claim_free(dataset, at, options)?;
        if dataset.contains('@') {
            return self.start_snapshot(pool, dataset, &place, options);
        }
        let live = MountTable::live(FilesystemWriter::open_for_mount(pool, dataset)?, options);
        let export = Arc::new(LiveExport::with_snapshots(live));
        let service = Arc::new(LiveService::new(export, self.settings.writeback).counted());
        let serves: Arc<dyn Service> = Arc::clone(&service) as _;
        self.start(dataset, &place, options, &serves, Backend::Live { pool: Arc::clone(pool), service })
    }

    fn mount_view(
        &self,
        pool: &Pool,
        dataset: &str,
        at: &Path,
        options: &MountOptions,
    ) -> Result<(), MountError> {
        let (_claim, _placing, place) = self.claim_free(dataset, at, options)?;
        self.start_view(
            &pool.dataset(dataset)?,
            &place,
            options,
            Backend::View { pool: pool.guid(), hold: Mutex::new(None) },
        )
    }

    fn mount_beside(&self, dataset: &str, at: &Path, options: &MountOptions) -> Result<(), MountError> {
        let _claim = self.inner.claim(dataset)?;
        let mount = self.inner.find_mounted(dataset).ok_or(MountError::NotMounted)?;
        let _placing = self.inner.placing();
        self.put_beside(&mount, &self.ready_directory(at, options.overlay)?, options)
    }

    fn unmount(&self, dataset: &str, how: Unmount) -> Result<(), MountError> {
        let _claim = self.inner.claim(dataset)?;
        let mount = self.inner.find(dataset).ok_or(MountError::NotMounted)?;
        self.unmount_spots(&mount, &mount.spots(), how)
    }

    fn unmount_from(&self, dataset: &str, at: &Path, how: Unmount) -> Result<(), MountError> {
        let _claim = self.inner.claim(dataset)?;
        let mount = self.inner.find(dataset).ok_or(MountError::NotMounted)?;
        let mut spots = mount.spots();
        spots.retain(|spot| spot.at == at);
        if spots.is_empty() { Err(MountError::NotMounted) } else { self.unmount_spots(&mount, &spots, how) }
    }

    fn by_hand(&self) -> Vec<MountedByHand> {
        let known = self.inner.record.as_ref().map(Record::by_hand).unwrap_or_default();
        let pair = |word: &str| word.split_once('=').map(|(name, on)| (name.to_owned(), on.to_owned()));
        let told = |ByHand { dataset, at, words }: ByHand| MountedByHand {
            dataset,
            at,
            temporary: words.split(',').filter_map(pair).collect(),
        };
        known.into_iter().map(told).collect()
    }

    fn not_by_hand(&self, at: &Path) {
        self.tell_record(|record| record.not_by_hand(at));
    }

    fn leaving(&self) {
        // Mounts that were unmounted before this point must not be made again.
        self.inner.let_go_of_unmounted();
        self.inner.is_leaving.store(true, Ordering::Release);
    }

    fn remount(&self, dataset: &str, options: &MountOptions) -> Result<(), MountError> {
        let _claim = self.inner.claim(dataset)?;
        let mount = self.inner.find(dataset).ok_or(MountError::NotMounted)?;
        let before = mount.first();
        let flags = |options| fuse::mount_flags(&self.fuse_options(dataset, options));
        if flags(&before.options) != flags(options) && is_root() {
            match mount.remount(flags(options)) {
                Ok(()) => {}
                Err(error) if is_busy(&error) => return Err(in_use(&before.at)),
                Err(error) => return Err(MountError::System(error)),
            }
        }
        mount.set_options(options);
        if let Some((_, service)) = mount.live() {
            service.export().set_writable_anyway(is_made_writable(options));
        }
        Ok(())
    }

    fn wants_new_mount(&self, dataset: &str) -> bool {
        let Some(mount) = self.inner.find(dataset) else { return false };
        mount.live().is_some_and(|(_, service)| service.wants_new_mount())
    }

    fn write_back(&self, name: &str) -> Result<(), MountError> {
        let is_pool = !name.contains('/');
        for mount in self.inner.all() {
            let of = lock(&mount.name).clone();
            let below = of.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'));
            if of == name || (is_pool && below) {
                mount.write_back()?;
            }
        }
        Ok(())
    }

    fn suspend(&self, dataset: &str) -> Result<Option<Box<dyn Suspended + '_>>, MountError> {
        let claim = self.inner.claim(dataset)?;
        let Some(mount) = self.inner.find(dataset) else { return Ok(None) };
        let paused = PausedMount::begin(self, claim, &mount)?;
        Ok(paused.map(|paused| Box::new(paused) as Box<dyn Suspended>))
    }

    fn snapshots_in_use(&self, dataset: &str) -> Vec<String> {
        let Some(mount) = self.inner.find(dataset) else { return Vec::new() };
        let mut names = BTreeSet::new();
        for spot in mount.spots() {
            let at = spot.at.join(SNAPSHOT_DIR);
            let first = |path: &PathBuf| {
                let name = path.strip_prefix(&at).ok()?.components().next()?;
                Some(name.as_os_str().to_string_lossy().into_owned())
            };
            names.extend(users::files(&at).paths.iter().filter_map(first));
        }
        names.into_iter().collect()
    }

    fn snapshots_changed(&self, dataset: &str) {
        let Some(mount) = self.inner.find(dataset) else { return };
        if let Some((_, service)) = mount.live() {
            service.export().snapshots_changed(dataset);
        }
        mount.forget_snapshots();
    }

    fn hold_names(&self, pool: &str) -> Result<Box<dyn Send + '_>, MountError> {
        Ok(Box::new(self.inner.hold_names(pool)?))
    }

    fn renamed(&self, from: &str, to: &str) {
        for mount in self.inner.all() {
            let mut name = lock(&mount.name);
            let rest = name.strip_prefix(from).map(str::to_owned);
            if let Some(rest) = rest.filter(|rest| rest.is_empty() || rest.starts_with(['/', '@'])) {
                *name = format!("{to}{rest}");
                for spot in mount.spots() {
                    self.inner.note_by_hand(&name, &spot.at, &spot.options);
                }
            }
        }
    }
}
