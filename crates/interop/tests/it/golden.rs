//! Golden pools of OpenZFS opened for writing. In pools that were copied while in use, the logs are replayed,
//! and the contents are then those of their manifests; the others are changed, after which `zdb` finds no
//! error; pools that cannot be written return the reason.
#![allow(missing_docs, clippy::disallowed_types)]

use cenote_interop::judge;
use cenote_interop::world::World;
use pool::LivePool;
use pool::{ImportOptions, Leave};
use pool::{PoolError, Which};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use testkit::{Fixture, sha256, sparse_sha256};
use vdev::env::Env;
use vdev::scan::Search;
use zpl::{Filesystem, Volume};

/// Writable copies of the images.
fn copy(fixture: &Fixture) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    for from in fixture.images() {
        let to = dir.path().join(from.file_name().expect("a name"));
        let status = Command::new("cp").arg("--sparse=always").arg(&from).arg(&to).status().expect("cp");
        assert!(status.success());
        let mut permissions = std::fs::metadata(&to).expect("there").permissions();
        permissions.set_mode(0o600);
        std::fs::set_permissions(&to, permissions).expect("ours");
    }
    dir
}

fn import(dir: &Path, name: &str, partly_supported: bool) -> Result<Arc<LivePool>, PoolError> {
    let found = Search::in_paths([dir]).run();
    let options = ImportOptions { force: true, partly_supported, ..ImportOptions::default() };
    LivePool::import(&found, &Which::Name(name.to_owned()), &options, Env::simulated(1).0)
}

/// Checksums of the devices.
fn sums(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut images: Vec<_> = entries.collect();
    images.sort();
    images.iter().map(|image| sparse_sha256(image)).collect()
}

/// Opens every head, which replays its log.
fn replay(dir: &Path, name: &str) {
    let pool = import(dir, name, true).unwrap_or_else(|error| panic!("{name}: {error}"));
    cenote_interop::world::open_every_head(&pool).unwrap_or_else(|error| panic!("{name}: {error}"));
    pool.export(Leave::Exported).expect("exported");
}

/// Compares the contents with the manifest.
fn compare(fixture: &Fixture, dir: &Path) {
    let pool = judge::open(dir, &fixture.manifest().pool).expect("opened");
    let dsl = pool.spa().dsl();
    for dataset in fixture.manifest().datasets.iter().filter(|d| d.volume_sha256.is_some()) {
        let set = dsl.dataset(&dataset.name).expect("there").open_objset().expect("opened");
        let volume = Volume::open(&set).expect("a volume");
        let mut bytes = vec![0; volume.size() as usize];
        volume.read_at(0, &mut bytes).expect("readable");
        assert_eq!(Some(sha256(&bytes)), dataset.volume_sha256, "{}", dataset.name);
    }
    let mut compared = 0;
    for entry in fixture.entries() {
        let what = format!("{} {}", entry.ds, entry.path_lossy());
        let set = dsl.dataset(&entry.ds).expect("there").open_objset().expect("opened");
        let fs = Filesystem::open(set).expect("a file system");
        let node = fs.resolve(&entry.path).unwrap_or_else(|error| panic!("{what}: {error}"));
        let node = node.unwrap_or_else(|| panic!("{what} is missing"));
        let attrs = node.attrs();
        assert_eq!(attrs.mode & 0o7777, entry.mode & 0o7777, "{what}: mode");
        let Some(expected) = entry.sha256.as_ref().filter(|_| !entry.hashes_segments()) else { continue };
        let mut bytes = vec![0; attrs.size as usize];
        node.read_at(0, &mut bytes).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(&sha256(&bytes), expected, "{what}: {} bytes", bytes.len());
        compared += 1;
    }
    println!("{}: {compared} files compared", fixture.name());
}

#[test]
fn logs_are_replayed() {
    for name in ["zil", "zil-raidz", "zil-slog", "zil-zvol", "crash-nolog", "deleteq"] {
        let fixture = Fixture::open(name);
        let dir = copy(&fixture);
        replay(dir.path(), &fixture.manifest().pool);
        compare(&fixture, dir.path());
        let pool = judge::open(dir.path(), &fixture.manifest().pool).expect("opened");
        judge::verify(&pool).unwrap_or_else(|why| panic!("{name}: {why}"));
        if name == "zil-slog" {
            judge::zdb(dir.path(), &fixture.manifest().pool, &["-bcc"]).unwrap_or_else(|why| panic!("{why}"));
        }
    }
}

/// No head is opened for writing afterwards: before, volumes were replayed only when they were first written.
#[test]
fn an_import_replays_all_logs() {
    for name in ["zil", "zil-zvol"] {
        let fixture = Fixture::open(name);
        let (dir, name) = (copy(&fixture), &fixture.manifest().pool);
        // The pool belongs to another host: the import takes it over first.
        import(dir.path(), name, false).expect("claimed").export(Leave::Exported).expect("exported");
        let options = cenote::OpenOptions::new().search(dir.path());
        let pool = cenote::Pool::open_rw(name, &options).expect("imported");
        pool.close().expect("exported");
        compare(&fixture, dir.path());
    }
}

/// Changes each golden pool that can be written, and checks it. `CENOTE_FIXTURES` selects others.
#[test]
fn golden_pools_stay_clean() {
    let usual = "snapshots cloned classes raidz-expanded compression names properties dedup-fast raidz-expanding zvol \
                 removed-vdev removed-mirror";
    let wanted = std::env::var("CENOTE_FIXTURES").unwrap_or_else(|_| usual.to_owned());
    for name in wanted.split_whitespace() {
        let fixture = Fixture::open(name);
        let (dir, pool) = (copy(&fixture), fixture.manifest().pool.clone());
        // OpenZFS itself has leaked an object in one of them.
        let leaks = judge::leaks(&judge::open(dir.path(), &pool).expect("opened")).expect("listed");
        let mut world = match World::open_named(dir.path(), &pool, 1) {
            Ok(world) => world,
            Err(error) => {
                assert!(error.to_string().contains("cannot"), "{name}: {error}");
                println!("{name}: {error}");
                continue;
            }
        };
        world.touch_everything().unwrap_or_else(|error| panic!("{name}: {error}"));
        world.export().unwrap_or_else(|error| panic!("{name}: {error}"));
        let read = judge::open(dir.path(), &pool).expect("opened");
        judge::verify(&read).unwrap_or_else(|why| panic!("{name}: {why}"));
        let new: Vec<String> =
            judge::leaks(&read).expect("listed").into_iter().filter(|leak| !leaks.contains(leak)).collect();
        assert!(new.is_empty(), "{name}: nobody's: {new:?}");
        drop(read);
        if std::env::var_os("CENOTE_FIXTURES").is_some()
            || matches!(name, "cloned" | "classes" | "removed-vdev" | "removed-mirror")
        {
            judge::zdb(dir.path(), &pool, &["-bcc"]).unwrap_or_else(|why| panic!("{name}: {why}"));
        }
    }
}

#[test]
fn pools_that_cannot_be_written_say_why() {
    let reasons = [
        ("dedup-fast", "dedup"),
        ("dedup-legacy", "dedup"),
        ("draid1", "dRAID"),
        ("encryption", "dedup"),
        ("version1", "version"),
        ("version10", "version"),
        ("zil-encrypted", "encrypted"),
    ];
    for (name, reason) in reasons {
        let fixture = Fixture::open(name);
        let dir = copy(&fixture);
        let before = sums(dir.path());
        match import(dir.path(), &fixture.manifest().pool, false) {
            Err(PoolError::NotWritable { why, .. }) => {
                assert!(why.to_string().contains(reason), "{name}: {why}")
            }
            Err(error) => panic!("{name}: {error}"),
            Ok(_) => panic!("{name} was opened"),
        }
        assert!(sums(dir.path()) == before, "{name}: its devices have changed");
        judge::verify(&judge::open(dir.path(), &fixture.manifest().pool).expect("readable"))
            .unwrap_or_else(|why| panic!("{name}: {why}"));
    }
}
