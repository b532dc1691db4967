//! The operations of the commands on a pool, with results ignored.

use admin::debug::{self, SpaceMap, zil};
use cenote::copy::{Archiver, Damaged, Observer, Problem, TarWriter};
use cenote::inspect::{self, Check};
use cenote::{Dataset, Node, OpenOptions, Pool, verify};
use std::io::{self, Write};
use testkit::{Fixture, keys};
use zpl::SpaceKind;

/// Files examined in each dataset; a changed directory may name any number.
const FILES_MAX: usize = 100;
/// Datasets examined in each pool.
const DATASETS_MAX: usize = 12;
/// Bytes after which writing of an archive stops.
const ARCHIVE_MAX: usize = 4 << 20;
/// Bytes of block cache.
const CACHE: usize = 48 << 20;

/// The stages that a run reached.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Depth {
    /// The pool opened.
    pub(crate) opened: bool,
    /// The datasets could be listed.
    pub(crate) listed: bool,
    /// File systems and volumes opened.
    pub(crate) filesystems: u64,
    /// Files with readable contents.
    pub(crate) files: u64,
    /// Bytes verified.
    pub(crate) verified: u64,
}

/// Opens the pool and performs every operation of the commands; errors are ignored.
pub(crate) fn exercise(fixture: &Fixture) -> Depth {
    let paths = fixture.images();
    let options = paths.into_iter().fold(OpenOptions::new().cache_bytes(CACHE), OpenOptions::search);
    match Pool::open(&fixture.manifest().pool, &options) {
        Ok(pool) => exercise_pool(&pool, fixture),
        Err(_) => Depth::default(),
    }
}

/// Performs every operation of the commands on an open pool; errors are ignored.
pub(crate) fn exercise_pool(pool: &Pool, fixture: &Fixture) -> Depth {
    let mut depth = Depth { opened: true, ..Depth::default() };
    for dataset in &fixture.manifest().datasets {
        let is_root = dataset.property("encryptionroot") == Some(dataset.name.as_str());
        if let (true, Some(material)) = (is_root, dataset.property("keyformat").and_then(keys::material)) {
            let _ = pool.load_key(&dataset.name, &material);
        }
    }
    exercise_pool_facts(pool);
    let datasets = pool.datasets();
    depth.listed = datasets.is_ok();
    // If the listing fails, the datasets are looked up by name.
    let by_name = || fixture.manifest().datasets.iter().filter_map(|d| pool.dataset(&d.name).ok()).collect();
    for dataset in datasets.unwrap_or_else(|_| by_name()).iter().take(DATASETS_MAX) {
        exercise_dataset(dataset, &mut depth);
    }
    let options = verify::Options { threads: 2, every_copy: false, ..verify::Options::default() };
    depth.verified = verify::verify(pool, &options, &()).totals.bytes;
    depth
}

fn exercise_pool_facts(pool: &Pool) {
    let spa = pool.spa();
    let _ = (spa.space(), spa.vdev_spaces(), spa.history(), spa.error_log(), spa.properties());
    let _ = (spa.user_properties(), spa.scan(), spa.error_scrub(), spa.removal(), spa.condensing());
    let _ = (spa.dedup_tables(), spa.dedup_histogram(), spa.clone_tables(), spa.expansions());
    let _ = (spa.checkpoint(), spa.spares(), spa.cache_devices());
    if let Ok(maps) = spa.log_space_maps() {
        for (_, id) in maps.iter().take(4) {
            let _ = SpaceMap::open(pool.spa().mos(), *id).and_then(|map| map.for_each_entry(&mut |_| Ok(())));
        }
    }
    let _ = (inspect::census(pool), debug::metaslabs(pool), inspect::leaked_objects(pool));
    let _ = (inspect::removal_census(pool), debug::dirty_times(pool), inspect::space_map_counts(pool));
    let _ = inspect::blocks(pool, Check::Nothing, true);
}

fn exercise_dataset(dataset: &Dataset, depth: &mut Depth) {
    let dsl = dataset.dsl();
    let _ = (dsl.holds(), dsl.bookmarks(), dsl.clones(), dsl.chain().take(100).count());
    let _ = (dsl.features(), dsl.redact_snaps(), dsl.available(), dsl.written(), dsl.used_by());
    let _ = (dsl::prop::all(dsl), dsl::prop::all_user(dsl), dsl.dir().allowed(), dsl::resume::token_of(dsl));
    for list in [dsl.deadlist(), dsl.remap_deadlist()] {
        if let Ok(Some(list)) = list {
            let _ = list.for_each(&mut |_, _| Ok(()));
        }
    }
    if let Ok(objset) = dataset.objset() {
        let _ = zil::walk(&objset, &mut |_, records| {
            records.flatten().filter_map(|record| record.decode().ok()).count() < 1000
        });
    }
    if let Ok(volume) = dataset.volume() {
        depth.filesystems += 1;
        depth.files += u64::from(volume.read_at(0, &mut [0; 8192]).is_ok());
        let _ = volume.next_data(0).and_then(|at| volume.next_hole(at.unwrap_or(0)));
    }
    let Ok(fs) = dataset.filesystem() else { return };
    depth.filesystems += 1;
    let mut todo = vec![fs.root()];
    let mut seen = 0;
    while let Some(id) = todo.pop() {
        seen += 1;
        let Ok(node) = fs.node(id) else { continue };
        depth.files += u64::from(exercise_node(&node));
        let _ = fs.path_of(id);
        if let (true, Ok(entries)) = (node.is_dir(), node.entries()) {
            for entry in entries.flatten().take(FILES_MAX) {
                let _ = fs.lookup(&node, &entry.name);
                if seen + todo.len() < FILES_MAX {
                    todo.push(entry.id);
                }
            }
        }
    }
    for kind in [SpaceKind::User, SpaceKind::Group, SpaceKind::Project] {
        let _ = fs.space(kind);
    }
    let _ = fs.unlinked();
    if let Ok(root) = fs.node(fs.root()) {
        archive(dataset.name(), &fs, &root);
    }
}

/// Reads a file and its metadata; true if the content could be read.
fn exercise_node(node: &Node) -> bool {
    let mut buf = vec![0; 16384];
    let read = node.read_at(0, &mut buf);
    let _ = node.read_at(node.attrs().size.saturating_sub(5000), &mut buf);
    let _ = node.next_data(1).and_then(|at| node.next_hole(at.unwrap_or(0)));
    let _ = (node.readlink(), node.xattr_values(), node.acl());
    let _ = debug::segments(node.object());
    read.is_ok_and(|len| len > 0)
}

struct SilentObserver;

impl Observer for SilentObserver {
    fn problem(&mut self, _: &[u8], _: &Problem) {}
}

/// Discards an archive, and fails after [`ARCHIVE_MAX`] bytes.
struct Sink(usize);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        if self.0 > ARCHIVE_MAX { Err(io::Error::other("enough")) } else { Ok(bytes.len()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn archive(name: &str, fs: &std::sync::Arc<cenote::Filesystem>, root: &Node) {
    let mut observer = SilentObserver;
    let tar = TarWriter::new(Sink(0), true);
    let mut archiver = Archiver::new(tar, Damaged::ZeroFill, &mut observer);
    if archiver.add(fs, root, (name, b""), b"", None).is_ok() {
        let _ = archiver.finish();
    }
}
