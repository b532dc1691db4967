//! Golden pools with blocks of the other byte order, opened for writing: the same work gives the same files
//! as in the original pool, and zdb finds no error afterwards. A pool last written by a machine of the other
//! order is refused.
//!
//! More pools: `CENOTE_MUTATE_POOLS=single,legacy CENOTE_MUTATE_SEEDS=0..4 cargo test -p cenote-pool-mutate
//! --test it write`.

use crate::contents;
use admin::PoolVerbs;
use cenote::files::{FilesystemWriter, XattrHow};
use cenote::{DatasetKind, OpenOptions, Pool, PoolWriter, verify};
use cenote_pool_mutate::image::{Backing, Image};
use cenote_pool_mutate::swap::{Which, swap};
use std::ops::Range;
use std::path::Path;
use testkit::{Fixture, Scratch};

/// Pools with old and new file system versions, snapshots, clones and space to be freed.
const POOLS: [&str; 3] = ["snapshots", "cloned", "properties"];

fn pools() -> Vec<Fixture> {
    let list = std::env::var("CENOTE_MUTATE_POOLS").unwrap_or_else(|_| POOLS.join(","));
    list.split(',').map(Fixture::open).collect()
}

fn seeds() -> Range<u64> {
    let text = std::env::var("CENOTE_MUTATE_SEEDS").unwrap_or_else(|_| "0..1".into());
    let ends = text.split_once("..").and_then(|(a, b)| Some(a.parse().ok()?..b.parse().ok()?));
    ends.expect("CENOTE_MUTATE_SEEDS is FIRST..END")
}

/// A copy of the fixture, in the other byte order if `which` is given.
fn copy(fixture: &Fixture, which: Option<Which>) -> Scratch {
    let scratch = fixture.scratch();
    let Some(which) = which else { return scratch };
    let images = fixture.manifest().images.iter().map(|image| scratch.dir().join(&image.name)).collect();
    let image = Image::open(images, &fixture.manifest().pool, Backing::Files)
        .unwrap_or_else(|error| panic!("{}: {error}", fixture.name()));
    swap(&image, which).unwrap_or_else(|error| panic!("{}: {error}", fixture.name()));
    scratch
}

/// Writes, removes and renames in every file system, with snapshots before and after; returns a log of the
/// results.
fn work(pool: &PoolWriter, heads: &[String]) -> Vec<String> {
    let mut log = Vec::new();
    let mut note = |what: &str, name: &str, result: Result<(), String>| {
        log.push(format!("{what} {name}: {result:?}"));
    };
    for name in heads {
        let before = format!("{name}@before_work");
        note("snapshot", name, pool.snapshot(&[before]).map_err(|e| e.to_string()));
        match pool.filesystem(name) {
            Ok(fs) => work_in(&fs, &mut |what, result| note(what, name, result)),
            Err(error) => note("open", name, Err(error.to_string())),
        }
        let after = format!("{name}@after_work");
        note("snapshot", name, pool.snapshot(&[after]).map_err(|e| e.to_string()));
    }
    for name in heads.iter().step_by(2) {
        let before = format!("{name}@before_work");
        note("destroy", name, pool.destroy_dataset(&before).map_err(|e| e.to_string()));
    }
    log
}

fn work_in(fs: &FilesystemWriter, note: &mut dyn FnMut(&str, Result<(), String>)) {
    let reader = fs.reader();
    let root = reader.node(reader.root()).expect("a root");
    let mut entries: Vec<_> = root.entries().expect("entries").map(|e| e.expect("an entry")).collect();
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    for (i, entry) in entries.iter().enumerate().take(40) {
        let path = [b"/", &entry.name[..]].concat();
        let Ok(node) = reader.node(entry.id) else { continue };
        let renamed = [&path[..], b".renamed"].concat();
        let result = match i % 5 {
            0 if !node.is_dir() => fs.remove(&path),
            1 => fs.rename(&path, &renamed),
            2 => fs.set_xattr(&path, b"user.forged", b"a value", XattrHow::Either),
            _ if node.is_dir() => fs.write(&[&path[..], b"/new"].concat(), b"in an old directory"),
            3 => fs.open_file(&path).and_then(|file| file.write_at(777, b"over what was there")),
            _ => fs.hard_link(&path, &[&path[..], b".link"].concat()),
        };
        note(&format!("{} {i}", path.escape_ascii()), result.map_err(|error| error.to_string()));
    }
    let made = fs.create_dir(b"/made", 0o755).map(drop);
    note("create_dir", made.map_err(|error| error.to_string()));
    for i in 0..60_u32 {
        let content = vec![i as u8; 3000 * i as usize];
        if let Err(error) = fs.write(format!("/made/file {i}").as_bytes(), &content) {
            note("write", Err(error.to_string()));
        }
    }
}

/// The facts that do not depend on the time of the work: names, contents, sizes, rights, extended attributes.
fn files(pool: &Pool) -> Vec<String> {
    // The first eight lines describe the pool. Between `generation` and `flags` are the parent, a device and
    // times.
    let lines = contents::of(pool).into_iter().skip(8).filter(|line| line.contains(" Attrs {"));
    let mut all: Vec<String> = lines
        .map(|line| {
            let (_, after) = line.split_once("}, flags:").expect("flags");
            let (before, _) = line.split_once("generation:").expect("a generation");
            format!("{before} flags:{after}")
        })
        .collect();
    all.sort();
    all
}

/// Opens for writing, works, scrubs, exports; returns the log of the work and the files afterwards.
fn run(fixture: &Fixture, folder: &Path, what: &str) -> (Vec<String>, Vec<String>) {
    let name = &fixture.manifest().pool;
    let options = OpenOptions::new().search(folder);
    let reader = Pool::open(name, &options).unwrap_or_else(|error| panic!("{what}: {error}"));
    let is_head = |d: &cenote::Dataset| {
        d.dsl().snapshot_name().is_none() && d.kind().is_ok_and(|k| k == DatasetKind::Filesystem)
    };
    let heads: Vec<String> = reader
        .datasets()
        .expect("datasets")
        .iter()
        .filter(|d| is_head(d))
        .map(|d| d.name().to_owned())
        .collect();
    drop(reader);
    let pool = Pool::open_rw(name, &options).unwrap_or_else(|error| panic!("{what}: {error}"));
    let log = work(&pool, &heads);
    pool.live().start_scrub(false).unwrap_or_else(|error| panic!("{what}: {error}"));
    pool.live().scan_to_end().unwrap_or_else(|error| panic!("{what}: {error}"));
    pool.close().unwrap_or_else(|error| panic!("{what}: {error}"));
    let pool = Pool::open(name, &options).unwrap_or_else(|error| panic!("{what}: {error}"));
    let report = verify::verify(&pool, &verify::Options { threads: 2, ..verify::Options::default() }, &());
    assert!(report.is_whole() && report.is_space_right(), "{what}: {report:#?}");
    (log, files(&pool))
}

#[test]
fn what_a_machine_of_the_other_order_wrote_last_is_refused_by_name() {
    let fixture = Fixture::open("single");
    let scratch = copy(&fixture, Some(Which::All));
    let options = OpenOptions::new().search(scratch.dir());
    let error = Pool::open_rw("t_single", &options).expect_err("it is refused");
    assert!(error.to_string().contains("it was written by a big-endian machine"), "{error}");
    assert!(Pool::open("t_single", &options).is_ok(), "it can be read");
}

#[test]
fn blocks_of_the_other_order_are_written_like_any() {
    for fixture in pools() {
        let plain = copy(&fixture, None);
        let expected = run(&fixture, plain.dir(), fixture.name());
        assert!(expected.0.iter().filter(|line| line.ends_with("Ok(())")).count() > 5, "{:#?}", expected.0);
        for which in std::iter::once(Which::Below).chain(seeds().map(|seed| Which::Half(2 * seed))) {
            let what = format!("{} {which:?}", fixture.name());
            let scratch = copy(&fixture, Some(which));
            let found = run(&fixture, scratch.dir(), &what);
            let pairs = [(&expected.0, &found.0), (&expected.1, &found.1)];
            for (before, after) in pairs {
                let first = before.iter().zip(after).find(|(a, b)| a != b);
                assert!(first.is_none() && before.len() == after.len(), "{what}: {first:#?}");
            }
            testkit::assert_zdb_clean(scratch.dir(), &fixture.manifest().pool);
        }
    }
}
