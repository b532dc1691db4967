//! A pool whose file systems tests mount in their own process.

use admin::change::NewPool;
use admin::{MountError, MountOptions, Mounts, PoolVerbs, Unmount};
use cenote::PoolWriter;
use cenote_serve::fuse::Transport;
use cenote_serve::mounts::{MountTable, Record, TableSettings};
use std::fs;
use std::path::PathBuf;
use transports::{Turn, turn_for};

#[allow(dead_code)] // Not every program of tests asks over all of them.
pub(crate) mod transports;

/// A pool `p`, and a table of mounts. At the end everything is unmounted, and the pool is closed.
pub(crate) struct TestMounts {
    pub(crate) table: MountTable,
    pub(crate) pool: Option<PoolWriter>,
    pub(crate) dir: tempfile::TempDir,
    /// Held by tests that need rings.
    turn: Option<Turn>,
}

#[allow(dead_code)] // No program of tests needs all of it.
impl TestMounts {
    /// With these file systems, asked over this transport, and a record of what is mounted. `None`: it cannot
    /// be done here, which has been said.
    pub(crate) fn with(transport: Transport, filesystems: &[&str]) -> Option<TestMounts> {
        TestMounts::set(
            TableSettings { transport, threads: Some(3), ..TableSettings::default() },
            filesystems,
        )
    }

    /// The same over io_uring, as far as there are rings.
    pub(crate) fn may_lack_rings(filesystems: &[&str]) -> Option<TestMounts> {
        let settings =
            TableSettings { transport: Transport::Ring, threads: Some(3), ..TableSettings::default() };
        TestMounts::made(settings, filesystems, None)
    }

    /// The same with settings of its own.
    pub(crate) fn set(settings: TableSettings, filesystems: &[&str]) -> Option<TestMounts> {
        TestMounts::made(settings, filesystems, turn_for(settings.transport))
    }

    fn made(settings: TableSettings, filesystems: &[&str], turn: Option<Turn>) -> Option<TestMounts> {
        if !testkit::need_file("/dev/fuse") {
            return None;
        }
        if !rustix::process::geteuid().is_root() && testkit::need_tool("fusermount3").is_none() {
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let disk = dir.path().join("disk");
        fs::File::create(&disk).unwrap().set_len(256 << 20).unwrap();
        let pool = NewPool::new("p", &[disk.to_str().unwrap()]).unwrap().create().unwrap();
        for name in filesystems {
            pool.create_filesystem(name, &[]).unwrap();
        }
        let table = MountTable::new(settings).recorded(Record::new(dir.path().join("record")));
        Some(TestMounts { table, pool: Some(pool), dir, turn })
    }

    pub(crate) fn pool(&self) -> &PoolWriter {
        self.pool.as_ref().unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    /// Makes a folder to mount on.
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        let at = self.path(name);
        fs::create_dir(&at).unwrap();
        at
    }

    pub(crate) fn mount(&self, dataset: &str, at: &str, options: &MountOptions) -> Result<(), MountError> {
        self.table.mount(self.pool().live(), dataset, &self.path(at), options)?;
        // A mount over /dev/fuse would test only what other tests have tested.
        assert!(self.turn.is_none() || self.table.began_with_rings(dataset), "no rings: {dataset}");
        Ok(())
    }

    /// Checks that `zdb` finds no error in the pool.
    pub(crate) fn judge(mut self) {
        self.unmount_all();
        self.pool.take().unwrap().close().unwrap();
        testkit::assert_zdb_clean(self.dir.path(), "p");
    }

    /// Unmounts all file systems, the newest first.
    pub(crate) fn unmount_all(&self) {
        for mount in self.table.list().iter().rev() {
            let _ = self.table.unmount_from(&mount.dataset, &mount.at, Unmount::Force);
        }
    }
}

impl Drop for TestMounts {
    fn drop(&mut self) {
        self.unmount_all();
        if let Some(pool) = self.pool.take() {
            let closed = pool.close();
            assert!(closed.is_ok() || std::thread::panicking(), "{closed:?}");
        }
    }
}

/// Options for a writable mount, for all users where possible.
pub(crate) fn options() -> MountOptions {
    MountOptions {
        overlay: false,
        allow_other: rustix::process::geteuid().is_root(),
        ..MountOptions::default()
    }
}
