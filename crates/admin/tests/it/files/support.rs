//! Pools on files, trees of files, and the comparison of two trees.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use cenote::copy::{Damaged, Extractor, HostTree, Observer, Problem};
use cenote::{OpenOptions, Pool, PoolWriter};
use dsl::DslError;
use dsl::prop::PropValue;
use format::Ashift;
use pool::LivePool;
use pool::space::Class;
use pool::{CreateSpec, Layout, LeafSpec, TopSpec};
use vdev::device::file::{Access, open_exclusive};
use vdev::env::Env;
use zpl::{NewFilesystem, make_filesystem};

/// A pool `p` on image files in a directory of its own.
pub(crate) struct Image {
    pub(crate) dir: tempfile::TempDir,
}

impl Image {
    /// Creates the pool on one file, with properties of its root file system.
    pub(crate) fn new(size: u64, props: &[(&str, u64)]) -> (Image, PoolWriter) {
        Image::of(&[("disk", Class::Normal)], size, props)
    }

    /// Creates the pool on several files.
    pub(crate) fn of(disks: &[(&str, Class)], size: u64, props: &[(&str, u64)]) -> (Image, PoolWriter) {
        Image::on_sectors(None, disks, size, props)
    }

    /// Creates the pool on files with sectors of this size.
    pub(crate) fn on_sectors(
        ashift: Option<Ashift>,
        disks: &[(&str, Class)],
        size: u64,
        props: &[(&str, u64)],
    ) -> (Image, PoolWriter) {
        let dir = tempfile::tempdir().expect("a folder");
        let top = |(name, class): &(&str, Class)| {
            let path = dir.path().join(name);
            std::fs::File::create(&path).and_then(|file| file.set_len(size)).expect("a file");
            let device = open_exclusive(&path, Access::Cached).expect("nobody else has it");
            let leaves = vec![LeafSpec::file(path.to_str().expect("plain names"), device)];
            TopSpec { layout: Layout::Single, class: *class, ashift, leaves }
        };
        let mut spec = CreateSpec::new("p", disks.iter().map(top).collect());
        spec.root.props =
            props.iter().map(|(name, value)| ((*name).to_owned(), PropValue::Number(*value))).collect();
        let env = Env::system();
        spec.root.fill = Box::new(move |set, tx| {
            let new = NewFilesystem { mode: 0o755, ..NewFilesystem::default() };
            make_filesystem(set, &new, &env, tx)
                .map(|_| ())
                .map_err(|error| DslError::Fill { source: Box::new(error) })
        });
        let live = LivePool::create(spec, Env::system()).expect("a pool");
        live.start();
        (Image { dir }, PoolWriter::of(live))
    }

    /// Opens the closed pool for reading.
    pub(crate) fn read(&self) -> Pool {
        Pool::open("p", &OpenOptions::new().search(self.dir.path())).expect("it was exported")
    }

    /// Copies the files of the pool's root file system to the host and describes them.
    pub(crate) fn contents(&self) -> BTreeMap<PathBuf, String> {
        let to = tempfile::tempdir().expect("a folder");
        let files = self.read().dataset("p").and_then(|p| p.filesystem()).expect("a file system");
        let tree = HostTree::open(to.path(), true).expect("a folder");
        let mut told = Told::default();
        let mut extractor = Extractor::new(tree, Damaged::LeaveOut, &mut told);
        let root = files.open(b"/").expect("a root");
        extractor.copy(files.filesystem(), &root, ("p", b""), None, None);
        assert_eq!(told.0, [""; 0]);
        describe(to.path())
    }

    /// Checks the exported pool with `zdb`.
    pub(crate) fn judge(&self) {
        testkit::assert_zdb_clean(self.dir.path(), "p");
    }
}

/// Collects the reported problems.
#[derive(Default)]
pub(crate) struct Told(pub(crate) Vec<String>);

impl Observer for Told {
    fn problem(&mut self, path: &[u8], problem: &Problem) {
        self.0.push(format!("{}: {problem}", path.escape_ascii()));
    }
}

impl cenote::files::TreeObserver for Told {
    fn problem(&mut self, path: &[u8], error: &zpl::ZplError) {
        self.0.push(format!("{}: {error}", path.escape_ascii()));
    }
}

/// Describes the files of a directory, without the attributes that no copy keeps.
pub(crate) fn describe(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut names: BTreeMap<(u64, u64), PathBuf> = BTreeMap::new();
    let mut todo = vec![folder.to_path_buf()];
    while let Some(path) = todo.pop() {
        let stat = std::fs::symlink_metadata(&path).expect("it is there");
        let name = path.strip_prefix(folder).expect("it is below").to_path_buf();
        let content = if stat.is_symlink() {
            std::fs::read_link(&path).expect("a link").display().to_string()
        } else if stat.is_file() {
            // The first of several names of a file represents all.
            let bytes = std::fs::read(&path).expect("readable");
            format!("{} bytes {}", bytes.len(), testkit::sha256(&bytes))
        } else {
            String::new()
        };
        let xattrs = xattrs(&path);
        let text = format!(
            "{:o} {}:{} {} {}.{} {:x} {content} {xattrs:?}",
            stat.mode(),
            stat.uid(),
            stat.gid(),
            if stat.is_dir() { 0 } else { stat.nlink() },
            stat.mtime(),
            stat.mtime_nsec(),
            stat.rdev(),
        );
        names.entry((stat.dev(), stat.ino())).or_insert_with(|| name.clone());
        all.insert(name, text);
        if stat.is_dir() {
            let entries = std::fs::read_dir(&path).expect("a folder");
            todo.extend(entries.map(|entry| entry.expect("an entry").path()));
        }
    }
    all
}

fn xattrs(path: &Path) -> Vec<(String, usize, String)> {
    let mut buf = vec![0; 4096];
    let n = rustix::fs::llistxattr(path, &mut buf).unwrap_or(0);
    let names = buf[..n].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let mut all: Vec<_> = names
        .map(|name| {
            let mut value = vec![0; 70_000];
            let n = rustix::fs::lgetxattr(path, name, &mut value).unwrap_or(0);
            (String::from_utf8_lossy(name).into_owned(), n, testkit::sha256(&value[..n]))
        })
        .collect();
    all.sort();
    all
}

/// Fills a directory with a file of every kind.
pub(crate) fn rich(folder: &Path) {
    let path = |name: &str| folder.join(name);
    std::fs::create_dir_all(path("a/b/c")).expect("folders");
    std::fs::create_dir(path("empty")).expect("a folder");
    std::fs::write(path("a/small"), b"hello").expect("a file");
    std::fs::write(path("a/nothing"), b"").expect("a file");
    let mut random = vdev::env::Random::from_seed(7);
    let mut noise = vec![0; 3 << 20];
    random.fill(&mut noise);
    std::fs::write(path("a/large"), &noise[..(3 << 20) - 77]).expect("a file");
    std::fs::hard_link(path("a/small"), path("a/b/again")).expect("a link");
    std::fs::hard_link(path("a/large"), path("empty-not")).expect("a link");
    std::os::unix::fs::symlink("../a/small", path("a/b/link")).expect("a link");
    std::os::unix::fs::symlink("/nowhere", path("dangling")).expect("a link");
    let sparse = std::fs::File::create(path("sparse")).expect("a file");
    std::os::unix::fs::FileExt::write_all_at(&sparse, &noise[..5000], 10 << 20).expect("room");
    sparse.set_len(40 << 20).expect("room");
    for i in 0..500 {
        std::fs::write(path(&format!("a/b/c/f{i}")), vec![i as u8; i * 7]).expect("a file");
    }
    let _ = rustix::fs::setxattr(path("a/small"), "user.colour", b"blue", rustix::fs::XattrFlags::empty());
    let _ = rustix::fs::setxattr(path("a/b"), "user.long", &noise[..3000], rustix::fs::XattrFlags::empty());
    set_mode(&path("a/small"), 0o4750);
    set_mode(&path("a/b"), 0o2770);
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, path("pipe"), fifo, rustix::fs::Mode::from_raw_mode(0o600), 0)
        .expect("a pipe");
    let long: PathBuf = path(&"n".repeat(255));
    std::fs::write(&long, b"x").expect("a file");
    let status = Command::new("touch").args(["-h", "-d", "1965-02-03 04:05:06.789"]).arg(&long).status();
    assert!(status.expect("touch runs").success());
    let status = Command::new("touch").args(["-d", "2001-02-03 04:05:06.789"]).arg(path("a/b")).status();
    assert!(status.expect("touch runs").success());
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("our own file");
}

/// The live pool of a writer.
pub(crate) fn live(writer: &PoolWriter) -> &Arc<LivePool> {
    writer.live()
}
