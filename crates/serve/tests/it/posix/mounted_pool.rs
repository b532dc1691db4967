//! A pool with a file system, mounted by this process; unmounted and judged at the end.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::transports::{Turn, turn_for};
use cenote::PoolWriter;
use cenote::files::FilesystemWriter;
use cenote_serve::export::{LiveExport, LiveFs};
use cenote_serve::fuse::{LiveService, MountOptions, Mounted, Service, Transport, mount};
use dsl::DslError;
use dsl::prop::PropValue;
use pool::LivePool;
use pool::space::Class;
use pool::{CreateSpec, Layout, LeafSpec, TopSpec};
use vdev::device::file::{Access, open_exclusive};
use vdev::env::Env;
use zpl::{NewFilesystem, make_filesystem};

/// A mounted file system. Dropped in the middle of a failed test, it is unmounted all the same.
pub(crate) struct MountedPool {
    dir: tempfile::TempDir,
    mounted: Option<Mounted>,
    pool: Option<PoolWriter>,
    transport: Transport,
    _turn: Option<Turn>,
}

impl MountedPool {
    /// A pool of `size` MiB, with properties of its root file system; `writeback`: the kernel keeps what is
    /// written. `None`: it cannot be mounted here, which has been said.
    pub(crate) fn new(size: u64, props: &[(&str, u64)], writeback: bool) -> Option<MountedPool> {
        MountedPool::over(Transport::Best, size, props, writeback)
    }

    /// [`Home::new`] over this transport.
    pub(crate) fn over(
        transport: Transport,
        size: u64,
        props: &[(&str, u64)],
        writeback: bool,
    ) -> Option<MountedPool> {
        if !testkit::need_file("/dev/fuse") {
            return None;
        }
        let turn = turn_for(transport);
        let dir = tempfile::tempdir().unwrap();
        for name in ["images", "at"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        // All users may enter the folder above the mount.
        rustix::fs::chmod(dir.path(), rustix::fs::Mode::from_raw_mode(0o755)).unwrap();
        let path = dir.path().join("images/disk");
        std::fs::File::create(&path).unwrap().set_len(size << 20).unwrap();
        let device = open_exclusive(&path, Access::Cached).unwrap();
        let leaves = vec![LeafSpec::file(path.to_str().unwrap(), device)];
        let top = TopSpec { layout: Layout::Single, class: Class::Normal, ashift: None, leaves };
        let mut spec = CreateSpec::new("p", vec![top]);
        let number = |(name, value): &(&str, u64)| ((*name).to_owned(), PropValue::Number(*value));
        spec.root.props = props.iter().map(number).collect();
        let env = Env::system();
        spec.root.fill = Box::new(move |set, tx| {
            let new = NewFilesystem { mode: 0o755, ..NewFilesystem::default() };
            let made = make_filesystem(set, &new, &env, tx);
            made.map(drop).map_err(|error| DslError::Fill { source: Box::new(error) })
        });
        let live = LivePool::create(spec, Env::system()).unwrap();
        live.start();
        let pool = Some(PoolWriter::of(live));
        let mut home = MountedPool { dir, mounted: None, pool, transport, _turn: turn };
        home.mount(writeback).then_some(home)
    }

    pub(crate) fn at(&self) -> PathBuf {
        self.dir.path().join("at")
    }

    pub(crate) fn pool(&self) -> &PoolWriter {
        self.pool.as_ref().unwrap()
    }

    /// A folder beside the mount.
    pub(crate) fn beside(&self) -> &Path {
        self.dir.path()
    }

    /// The service of the file system.
    pub(crate) fn service(&self, writeback: bool) -> LiveService {
        let fs = FilesystemWriter::open(self.pool.as_ref().unwrap().live(), "p").unwrap();
        LiveService::new(Arc::new(LiveExport::new(LiveFs::new(fs))), writeback)
    }

    /// Mounts it; returns whether that was possible.
    pub(crate) fn mount(&mut self, writeback: bool) -> bool {
        let service: Arc<dyn Service> = Arc::new(self.service(writeback));
        let is_root = rustix::process::geteuid().is_root();
        let source = "p".to_owned();
        let options = MountOptions {
            source,
            writable: true,
            exec: true,
            setuid: true,
            devices: true,
            allow_other: is_root,
            transport: self.transport,
            ..MountOptions::default()
        };
        match mount(&service, &self.at(), &options) {
            Ok(mounted) => {
                assert!(self.transport != Transport::Ring || mounted.is_over_io_uring(), "no rings");
                self.mounted = Some(mounted);
            }
            Err(error) => testkit::skip(&format!("{error}: {:?}", std::error::Error::source(&error))),
        }
        self.mounted.is_some()
    }

    /// Writes all changes to the devices.
    pub(crate) fn sync(&self) {
        self.pool.as_ref().unwrap().live().sync().unwrap();
    }

    pub(crate) fn unmount(&mut self) {
        if let Some(mounted) = self.mounted.take() {
            mounted.unmount().unwrap();
        }
    }

    /// Checks that `zdb` finds no error in the pool.
    pub(crate) fn judge(mut self) {
        self.unmount();
        self.pool.take().unwrap().close().unwrap();
        testkit::assert_zdb_clean(&self.dir.path().join("images"), "p");
    }
}

impl Drop for MountedPool {
    fn drop(&mut self) {
        if let Some(mounted) = self.mounted.take() {
            let _ = mounted.unmount();
        }
    }
}
