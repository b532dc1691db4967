//! Test support: files for pools, and checks by `zdb`.
#![allow(clippy::disallowed_types)] // Empty files are made here; `vdev` opens them.

use cenote_pool::LivePool;
use cenote_pool::space::Class;
use cenote_pool::{ImportOptions, Layout, LeafSpec, TopSpec};
use cenote_pool::{PoolError, Which};
use std::ops::Range;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use vdev::device::file::{Access, open_exclusive};
use vdev::env::Env;
use vdev::scan::Search;

/// Sparse files in a folder of their own.
pub(crate) struct Files {
    dir: tempfile::TempDir,
    paths: Vec<PathBuf>,
}

impl Files {
    pub(crate) fn new(count: usize, size: u64) -> Files {
        let dir = tempfile::tempdir().unwrap();
        let paths: Vec<PathBuf> = (0..count).map(|n| dir.path().join(format!("d{n}"))).collect();
        for path in &paths {
            std::fs::File::create(path).unwrap().set_len(size).unwrap();
        }
        Files { dir, paths }
    }

    /// A vdev of one more file.
    pub(crate) fn extra(&mut self, size: u64) -> TopSpec {
        let path = self.dir.path().join(format!("d{}", self.paths.len()));
        std::fs::File::create(&path).unwrap().set_len(size).unwrap();
        self.paths.push(path);
        self.top(Layout::Single, self.paths.len() - 1..self.paths.len())
    }

    /// Copies of the images of a golden pool.
    pub(crate) fn copy_of(fixture: &testkit::Fixture) -> Files {
        let dir = tempfile::tempdir().unwrap();
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(fixture.dir()).unwrap() {
            let from = entry.unwrap().path();
            let to = dir.path().join(from.file_name().unwrap());
            let status = Command::new("cp").arg("--sparse=always").arg(&from).arg(&to).status().unwrap();
            assert!(status.success());
            let mut permissions = std::fs::metadata(&to).unwrap().permissions();
            std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o600);
            std::fs::set_permissions(&to, permissions).unwrap();
            paths.push(to);
        }
        Files { dir, paths }
    }

    pub(crate) fn dir(&self) -> &std::path::Path {
        self.dir.path()
    }

    /// Opens a pool on the files for writing.
    pub(crate) fn import(&self, name: &str) -> Result<Arc<LivePool>, PoolError> {
        self.import_with(name, &ImportOptions { partly_supported: true, ..ImportOptions::default() })
    }

    pub(crate) fn import_with(&self, name: &str, opts: &ImportOptions) -> Result<Arc<LivePool>, PoolError> {
        let found = Search::in_paths([self.dir()]).run();
        LivePool::import(&found, &Which::Name(name.to_owned()), opts, Env::system())
    }

    /// Hides a file, so that its device is missing.
    pub(crate) fn hide(&self, which: usize) {
        std::fs::rename(&self.paths[which], self.aside(which)).unwrap();
    }

    /// Overwrites a range of a file, behind the back of the pool.
    pub(crate) fn damage(&self, which: usize, range: Range<u64>) {
        let file = std::fs::OpenOptions::new().write(true).open(&self.paths[which]).unwrap();
        let noise = vec![0xa5; (range.end - range.start) as usize];
        std::os::unix::fs::FileExt::write_all_at(&file, &noise, range.start).unwrap();
    }

    /// Restores a hidden file.
    pub(crate) fn show(&self, which: usize) {
        std::fs::rename(self.aside(which), &self.paths[which]).unwrap();
    }

    fn aside(&self, which: usize) -> PathBuf {
        let aside = self.dir.path().join("aside");
        std::fs::create_dir_all(&aside).unwrap();
        aside.join(which.to_string())
    }

    /// A vdev of some of the files.
    pub(crate) fn top(&self, layout: Layout, which: Range<usize>) -> TopSpec {
        let leaf = |path: &PathBuf| {
            let device = open_exclusive(path, Access::Cached).unwrap();
            LeafSpec::file(path.to_str().unwrap(), device)
        };
        let leaves = self.paths[which].iter().map(leaf).collect();
        TopSpec { layout, class: Class::Normal, ashift: None, leaves }
    }
}

/// Runs `zdb` on an exported pool; it must find no errors.
pub(crate) fn judge(files: &Files, name: &str) {
    testkit::assert_zdb_clean(files.dir(), name);
}

/// Script that runs `zhack` with a private `/dev`, which has the entries that it expects.
const NAMESPACE: &str = r#"
    set -e
    mount -t tmpfs tmpfs "$1"
    mknod "$1/null" c 1 3; mknod "$1/zero" c 1 5; mknod "$1/random" c 1 8; mknod "$1/urandom" c 1 9
    touch "$1/zfs"
    mount --bind "$1" /dev
    exec "$2" -d "$3" feature enable -d judged "$4" "$5"
"#;

/// Lets OpenZFS open an exported pool for writing, enable a feature, and export the pool. Returns false if
/// that is not possible on this machine.
pub(crate) fn write_by_other(files: &Files, name: &str, feature: &str) -> bool {
    let (Some(zhack), true) = (testkit::need_tool("zhack"), testkit::need_root()) else { return false };
    let Some(unshare) = testkit::need_tool("unshare") else { return false };
    let dev = tempfile::tempdir().unwrap();
    let mut command = Command::new(unshare);
    command.args(["-m", "sh", "-c", NAMESPACE, "sh"]).arg(dev.path()).arg(&zhack).arg(files.dir());
    let output = command.args([name, feature]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("mount") || errors.contains("unshare") || errors.contains("mknod") {
        testkit::skip("no namespace of its own for zhack");
        return false;
    }
    assert!(output.status.success(), "{errors}");
    true
}
