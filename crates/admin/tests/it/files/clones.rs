//! Copies within a pool share blocks.

use cenote::copy::Children;
use cenote::copy::import::{Options, import};
use cenote::files::FilesystemWriter;
use cenote::{Pool, PoolWriter};
use dsl::prop;
use dsl::prop::PropValue;
use dsl::snapshot::snapshot;
use zpl::{FileKind, Node};

use cenote_admin::PoolVerbs;
use cenote_admin::edit::{self, NewDataset};
use cenote_admin::verbs::zfs::destroy;
use cenote_admin::verbs::{Code, Refused};

use super::support::{Image, Told};

const SIZE: u64 = 512 << 20;

pub(crate) fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    vdev::env::Random::from_seed(seed).fill(&mut bytes);
    bytes
}

/// Bytes saved by shared blocks, as of the last txg.
fn saved(writer: &PoolWriter) -> u64 {
    writer.live().brt().saved()
}

fn copy(to: &FilesystemWriter, from: &Node, dataset: &str, name: &[u8]) {
    let mut told = Told::default();
    let (_, summary) = import(to, &Options::default(), &mut told, |importer| {
        let top = importer.top(to.fs().root(), b"").unwrap();
        let none: Option<&Children<'_>> = None;
        importer.copy_pool(from.filesystem(), from, (dataset, b""), (&top, Some(name)), none);
    });
    assert_eq!((told.0, summary.failures), (vec![], 0));
    to.sync().unwrap();
}

fn node(pool: &Pool, dataset: &str, path: &[u8]) -> Node {
    pool.dataset(dataset).unwrap().filesystem().unwrap().open(path).unwrap()
}

#[test]
fn in_one_dataset_across_two_and_out_of_a_snapshot() {
    let (image, writer) = Image::new(SIZE, &[]);
    edit::create(&writer, &NewDataset::filesystem("p/b")).unwrap();
    let a = writer.filesystem("p").unwrap();
    a.create_dir(b"/dir", 0o755).unwrap();
    let large = noise(1 << 20, 1);
    a.write(b"/dir/large", &large).unwrap();
    a.write(b"/dir/odd", &large[..70_001]).unwrap();
    a.write(b"/dir/tiny", b"x").unwrap();
    let sparse = a.create(b"/dir/sparse").unwrap();
    sparse.write_at(3 << 20, &large[..200_000]).unwrap();
    sparse.set_len(5 << 20).unwrap();
    drop(sparse);
    // Data that is not on disk yet is copied.
    copy(&a, &a.node(a.resolve(b"/dir").unwrap()).unwrap(), "p", b"early");
    assert_eq!(saved(&writer), 0);
    // The sparse file has two blocks; the second is compressed.
    let shared = (1 << 20) + 70_144 + (128 << 10) + 69_632;
    let rounded = |bytes: u64| bytes..bytes + (64 << 10);
    copy(&a, &a.node(a.resolve(b"/dir").unwrap()).unwrap(), "p", b"again");
    assert!(rounded(shared).contains(&saved(&writer)), "{}", saved(&writer));
    writer.run(|ctx| snapshot(ctx, &["p@s".to_owned()], &[]).map(|_| ())).unwrap();
    a.write(b"/dir/odd", b"changed").unwrap();
    a.sync().unwrap();
    let b = writer.filesystem("p/b").unwrap();
    let view = writer.view().unwrap();
    let before = saved(&writer);
    copy(&b, &node(&view, "p@s", b"/dir"), "p@s", b"old");
    assert!(rounded(shared).contains(&(saved(&writer) - before)));
    copy(&b, &node(&view, "p", b"/again"), "p", b"from-view");
    drop(view);

    let check = |fs: &FilesystemWriter, dir: &str, odd: &[u8]| {
        let read = |name: &str| fs.read(format!("/{dir}/{name}").as_bytes()).unwrap();
        assert!(read("large") == large && read("odd") == odd && read("tiny") == b"x", "{dir}");
        let mut wanted = vec![0; 5 << 20];
        wanted[3 << 20..][..200_000].copy_from_slice(&large[..200_000]);
        assert!(read("sparse") == wanted, "{dir}");
    };
    for (fs, dir) in [(&a, "early"), (&a, "again"), (&b, "old"), (&b, "from-view")] {
        check(fs, dir, &large[..70_001]);
    }
    // Shared blocks are changed and freed like others.
    a.write(b"/again/large", &noise(300_000, 2)).unwrap();
    a.remove(b"/dir/large").unwrap();
    b.remove(b"/old/odd").unwrap();
    a.sync().unwrap();
    assert!(b.read(b"/old/large").unwrap() == large);
    drop((a, b));
    writer.close().unwrap();
    image.judge();
}

/// Blocks are not shared with a dataset of another record size, or without the feature.
#[test]
fn only_where_records_are_of_one_size() {
    let (image, writer) = Image::new(SIZE, &[]);
    edit::create(&writer, &NewDataset::filesystem("p/b")).unwrap();
    writer.run(|ctx| prop::change::set(ctx, "p/b", "recordsize", &PropValue::Number(64 << 10))).unwrap();
    let (a, b) = (writer.filesystem("p").unwrap(), writer.filesystem("p/b").unwrap());
    let content = noise(1 << 20, 3);
    a.write(b"/large", &content).unwrap();
    a.write(b"/small", &content[..60_000]).unwrap();
    a.sync().unwrap();
    let of = |name: &[u8]| a.node(a.resolve(name).unwrap()).unwrap();
    copy(&b, &of(b"/large"), "p", b"large");
    assert_eq!(saved(&writer), 0);
    assert_eq!(b.node(b.resolve(b"/large").unwrap()).unwrap().block_size(), 64 << 10);
    copy(&b, &of(b"/small"), "p", b"small");
    assert!(saved(&writer) >= 60_000);
    assert!(b.read(b"/large").unwrap() == content && b.read(b"/small").unwrap() == content[..60_000]);
    assert_eq!(of(b"/small").kind(), FileKind::Regular);
    drop((a, b));
    writer.close().unwrap();
    image.judge();
}

/// Destroys a snapshot as soon as data was copied.
struct Destroyer<'p> {
    writer: &'p PoolWriter,
    outcome: Option<Result<(), destroy::Refusal>>,
    problems: Vec<String>,
}

impl cenote::copy::Observer for Destroyer<'_> {
    fn problem(&mut self, path: &[u8], problem: &cenote::copy::Problem) {
        self.problems.push(format!("{}: {problem}", path.escape_ascii()));
    }

    fn copied(&mut self, _: u64) {
        let writer = self.writer;
        self.outcome.get_or_insert_with(|| writer.destroy_dataset("p@s"));
    }
}

/// A snapshot that is being copied from cannot be destroyed; the files of a destroyed snapshot do not share blocks.
#[test]
fn out_of_a_snapshot_that_is_destroyed() {
    let (image, writer) = Image::new(SIZE, &[]);
    edit::create(&writer, &NewDataset::filesystem("p/b")).unwrap();
    let (a, b) = (writer.filesystem("p").unwrap(), writer.filesystem("p/b").unwrap());
    a.create_dir(b"/dir", 0o755).unwrap();
    let content = |n: u64| noise(256 << 10, 10 + n);
    let fill = || {
        for n in 0..12 {
            a.write(format!("/dir/{n}").as_bytes(), &content(n)).unwrap();
        }
    };
    let taken = || writer.run(|ctx| snapshot(ctx, &["p@s".to_owned()], &[]).map(|_| ())).unwrap();
    let empty = || (0..12).for_each(|n| a.remove(format!("/dir/{n}").as_bytes()).unwrap());
    fill();
    taken();
    empty();
    a.sync().unwrap();
    let view = writer.view().unwrap();
    let from = node(&view, "p@s", b"/dir");
    let mut watch = Destroyer { writer: &writer, outcome: None, problems: Vec::new() };
    import(&b, &Options::default(), &mut watch, |importer| {
        let top = importer.top(b.fs().root(), b"").unwrap();
        importer.copy_pool(from.filesystem(), &from, ("p@s", b""), (&top, Some(b"held")), None);
    });
    assert_eq!(watch.problems, [""; 0]);
    let refused = watch.outcome.expect("tried").expect_err("it is read");
    assert_eq!(refused.reason().code, Code::Busy, "{refused:?}");
    writer.destroy_dataset("p@s").unwrap();

    fill();
    taken();
    empty();
    a.sync().unwrap();
    let view = writer.view().unwrap();
    let from = node(&view, "p@s", b"/dir");
    writer.destroy_dataset("p@s").unwrap();
    for _ in 0..3 {
        writer.sync().unwrap();
    }
    // Another snapshot, possibly with the object id of the first.
    taken();
    let before = saved(&writer);
    copy(&b, &from, "p@s", b"gone");
    assert_eq!(saved(&writer), before);
    // Freed space is used again.
    fill();
    a.sync().unwrap();
    for dir in ["held", "gone"] {
        for n in 0..12 {
            assert!(b.read(format!("/{dir}/{n}").as_bytes()).unwrap() == content(n), "{dir}/{n}");
        }
    }
    drop((from, view, a, b));
    writer.close().unwrap();
    image.judge();
}

/// Calls a function once, when data was copied.
struct Once<F> {
    act: Option<F>,
    problems: Vec<String>,
}

impl<F: FnOnce()> cenote::copy::Observer for Once<F> {
    fn problem(&mut self, path: &[u8], problem: &cenote::copy::Problem) {
        self.problems.push(format!("{}: {problem}", path.escape_ascii()));
    }

    fn copied(&mut self, _: u64) {
        if let Some(act) = self.act.take() {
            act();
        }
    }
}

/// Two pools share no blocks, whatever happens to the snapshot: a file is copied completely, or the copy reports a
/// problem.
#[test]
fn into_another_pool_out_of_a_snapshot_that_is_destroyed() {
    let ((one, from), (other, to)) = (Image::new(SIZE, &[]), Image::new(SIZE, &[]));
    let (a, b) = (from.filesystem("p").unwrap(), to.filesystem("p").unwrap());
    a.create_dir(b"/dir", 0o755).unwrap();
    let content = |n: u64| noise(256 << 10, 10 + n);
    for n in 0..12 {
        a.write(format!("/dir/{n}").as_bytes(), &content(n)).unwrap();
    }
    from.run(|ctx| snapshot(ctx, &["p@s".to_owned()], &[]).map(|_| ())).unwrap();
    (0..12).for_each(|n| a.remove(format!("/dir/{n}").as_bytes()).unwrap());
    a.sync().unwrap();
    let view = from.view().unwrap();
    let dir = node(&view, "p@s", b"/dir");
    let mut is_destroyed = false;
    let act = || {
        is_destroyed = from.destroy_dataset("p@s").is_ok();
        // Other files take the space, if it is free.
        for n in 0..12 {
            a.write(format!("/dir/{n}").as_bytes(), &content(100 + n)).unwrap();
            a.sync().unwrap();
        }
    };
    let mut watch = Once { act: Some(act), problems: Vec::new() };
    import(&b, &Options::default(), &mut watch, |importer| {
        let top = importer.top(b.fs().root(), b"").unwrap();
        importer.copy_pool(dir.filesystem(), &dir, ("p@s", b""), (&top, Some(b"dir")), None);
    });
    let problems = std::mem::take(&mut watch.problems);
    drop(watch);
    b.sync().unwrap();
    assert_eq!((saved(&from), saved(&to)), (0, 0));
    for n in 0..12 {
        let name = format!("/dir/{n}");
        let is_told = problems.iter().any(|problem| problem.starts_with(&format!("{name}:")));
        assert!(is_told || b.read(name.as_bytes()).unwrap() == content(n), "{name}: {problems:?}");
    }
    assert!(problems.is_empty() || is_destroyed, "{problems:?}");
    drop((dir, view, a, b));
    from.close().unwrap();
    to.close().unwrap();
    one.judge();
    other.judge();
}
