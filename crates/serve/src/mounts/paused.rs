//! A mount whose file system was closed so that its contents can be replaced.
//!
//! # What always holds
//! - No other verb changes the mount meanwhile, and its requests wait.
//! - The mount and its dataset stay the same, whatever name the dataset has when it is served again.
//! - The kernel's caches are kept if the contents were not replaced, and dropped if they may have been.

use super::mount::Mount;
use super::{Claim, MountTable, kernel, users};
use crate::export::{FileId, LiveFs, Names, names_to};
use crate::fuse::{self, LiveService};
use admin::served::ServedFilesystem;
use admin::sync::lock;
use admin::{MountError, Suspended};
use cenote::files::FilesystemWriter;
use cenote::{LivePool, interrupt};
use format::ObjectId;
use rustix::io::Errno;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

/// Time for the kernel to drop a number of files, after which calls about names are answered in any case.
/// Data in its pages that programs wrote to the old contents are lost until then, and are written to the new
/// contents from then on.
const FORGETTING: Duration = Duration::from_secs(2);

/// A mount that waits for its file system.
pub(super) struct PausedMount<'t> {
    table: &'t MountTable,
    _claim: Claim<'t>,
    mount: Arc<Mount>,
    pool: Arc<LivePool>,
    service: Arc<LiveService>,
    dataset: ObjectId,
    /// The names that lead to files in use, and to mount points below.
    names: Names,
    /// The unlinked files that the kernel knows.
    unlinked: Vec<FileId>,
    is_replaced: bool,
}

impl<'t> PausedMount<'t> {
    /// Closes the file system of a mount. `None`: the dataset is not mounted for writing.
    ///
    /// # Errors
    /// Some data could not be written; then the mount is served as before.
    pub(super) fn begin(
        table: &'t MountTable,
        claim: Claim<'t>,
        mount: &Arc<Mount>,
    ) -> Result<Option<PausedMount<'t>>, MountError> {
        let Some((pool, service)) = mount.live() else { return Ok(None) };
        if pool.suspended().is_some() {
            // The file system is still open, so this can wait as long as the client does.
            pool.sync().map_err(cenote::Error::from)?;
        }
        mount.write_back()?;
        // The kernel drops what no program uses.
        let spots = mount.spots();
        mount.shrink(fuse::mount_flags(&table.fuse_options("", &mount.first().options)));
        // The only error is that the caller no longer waits.
        let live = service.export().pause().map_err(|_| MountError::System(Errno::INTR.into()))?;
        let Some(live) = live else { return Ok(None) };
        let mut paused = PausedMount {
            table,
            _claim: claim,
            mount: Arc::clone(mount),
            pool: Arc::clone(pool),
            service: Arc::clone(service),
            dataset: live.writer().dataset_id(),
            names: Names::new(),
            unlinked: live.leave_unlinked(),
            is_replaced: false,
        };
        let lines = match kernel::table() {
            Ok(lines) => lines,
            Err(error) => {
                // It is opened again when `paused` is dropped.
                drop(live);
                return Err(MountError::System(error));
            }
        };
        let below: Vec<PathBuf> = lines.into_iter().map(|line| line.at).collect();
        for spot in &spots {
            let used = users::files(&spot.at);
            let paths = used.paths.iter().chain(&below).map(PathBuf::as_path);
            paused.names.append(&mut names_to(&live, &spot.at, paths));
        }
        drop(live);
        // The head is closed after all its data were written.
        pool.sync().map_err(cenote::Error::from)?;
        Ok(Some(paused))
    }

    fn serve_again(&self) {
        let options = self.mount.first().options;
        let live = match FilesystemWriter::open_for_mount_by_id(&self.pool, self.dataset) {
            Ok(writer) => MountTable::live(writer, &options),
            Err(error) => {
                let dataset = self.mount.told_first().dataset;
                tracing::error!(dataset, %error, "a mounted file system is gone");
                self.service.export().end();
                return;
            }
        };
        let export = self.service.export();
        self.service.contents_return();
        if self.is_replaced {
            self.enter(live, fuse::mount_flags(&self.table.fuse_options("", &options)));
        } else {
            export.resume(live, &self.unlinked);
        }
        export.name().iter().for_each(|name| export.snapshots_changed(name));
        self.mount.forget_snapshots();
    }

    /// Has the kernel drop the old contents while the new ones are entered.
    fn enter(&self, live: LiveFs, flags: rustix::mount::MountFlags) {
        let (mount, export) = (&self.mount, self.service.export());
        let nodes = export.nodes();
        // All names at once, unless something is mounted below or is about to be: it would be unmounted.
        let mut has_forgotten_names = false;
        export.enter(live, || {
            // A thread that begins to mount waits for this lock, and then looks up the folder anew.
            let placing = lock(&self.table.inner.placing);
            let has_mounts = || mount.spots().iter().any(|spot| kernel::has_mounts_below(&spot.at));
            has_forgotten_names = *placing == 0 && !has_mounts() && mount.notifier.forget_names();
        });
        let forgetting = mount.start_forgetting(nodes.clone(), flags);
        // If all threads of the mount answered calls about names, none would be left for the pages that the
        // kernel waits for.
        let waits = forgetting.as_ref().is_ok_and(|(_, told)| {
            loop {
                match told.recv_timeout(FORGETTING) {
                    Ok(()) => {}
                    Err(error) => break error == RecvTimeoutError::Timeout,
                }
            }
        });
        export.entered();
        if waits {
            let dataset = mount.told_first().dataset;
            tracing::debug!(dataset, "the kernel forgets what a file system had while it is used again");
        }
        if let Ok((thread, _)) = forgetting {
            let _ = thread.join();
        }
        // One by one, and only names in use: those on the way to files that programs have open.
        if !has_forgotten_names {
            self.names.iter().for_each(|(dir, name)| mount.notifier.look_again(*dir, name));
            mount.shrink(flags);
        }
        // Answers about the old contents that the kernel had not processed yet.
        nodes.iter().for_each(|node| mount.notifier.forget_attributes(*node));
    }
}

impl Suspended for PausedMount<'_> {
    fn replaced(&mut self) {
        self.is_replaced = true;
    }
}

impl Drop for PausedMount<'_> {
    fn drop(&mut self) {
        // Even if the client that asked for the change no longer waits, the mount is served again.
        interrupt::shielded(|| self.serve_again());
    }
}
