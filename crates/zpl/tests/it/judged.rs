//! File systems and volumes in a pool on files, judged by `zdb`.
#![allow(clippy::disallowed_types)] // it makes the files of its pools
#![allow(missing_docs)]

use cenote_zpl::{
    Allocate, BeginError, CloneTable, FileRange, FsOptions, HeadFs, HeadVolume, NewAttrs, NewFile,
    NewFilesystem, PoolClones, RenameHow, WriteHow, XattrHow, make_filesystem, make_volume,
    upgrade_filesystem,
};
use cenote_zpl::{FileKind, ZplError};
use dmu::log::Pending;
use dsl::DslError;
use dsl::create::{NewHead, create};
use dsl::destroy::destroy;
use format::ObjectId;
use format::objset::ObjsetType;
use format::zil::{Body, CloneRange};
use pool::LivePool;
use pool::Which;
use pool::space::Class;
use pool::{CreateSpec, ImportOptions, Layout, LeafSpec, Leave, TopSpec};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use vdev::device::file::{Access, open_exclusive};
use vdev::env::Env;
use vdev::scan::Search;

fn new_pool(dir: &Path) -> Arc<LivePool> {
    let path: PathBuf = dir.join("disk");
    std::fs::File::create(&path).expect("made").set_len(512 << 20).expect("sized");
    let device = open_exclusive(&path, Access::Cached).expect("opened");
    let leaves = vec![LeafSpec::file(path.to_str().expect("text"), device)];
    let top = TopSpec { layout: Layout::Single, class: Class::Normal, ashift: None, leaves };
    LivePool::create(CreateSpec::new("tank", vec![top]), Env::system()).expect("made")
}

fn again(dir: &Path) -> Arc<LivePool> {
    let found = Search::in_paths([dir]).run();
    LivePool::import(&found, &Which::Name("tank".into()), &ImportOptions::default(), Env::system())
        .expect("imported")
}

fn broken(error: ZplError) -> DslError {
    match error {
        ZplError::Dmu(error) => DslError::Dmu(error),
        other => panic!("{other}"),
    }
}

fn zdb(dir: &Path, args: &[&str]) -> Option<String> {
    let zdb = testkit::need_tool("zdb")?;
    let output = testkit::hurried(zdb).args(["-e", "-p"]).arg(dir).args(args).output().expect("run");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}\n{errors}");
    Some(text + &errors)
}

fn judge(dir: &Path) {
    testkit::assert_zdb_clean(dir, "tank");
}

fn make_fs(pool: &Arc<LivePool>, name: &'static str) -> Arc<HeadFs> {
    let env = pool.env().clone();
    let id = pool
        .run(move |ctx| {
            create(ctx, NewHead::named(name), ObjsetType::Zfs, &mut |set, tx| {
                make_filesystem(set, &NewFilesystem::default(), &env, tx).map(drop).map_err(broken)
            })
        })
        .expect("created");
    let head = pool.heads().open(id).expect("opened");
    HeadFs::open(&head, FsOptions { posix_acls: true, ..FsOptions::default() }, pool.env()).expect("opened")
}

#[test]
fn files_as_zdb_sees_them() {
    let dir = tempfile::tempdir().expect("a folder");
    let pool = new_pool(dir.path());
    let open = make_fs(&pool, "tank/fs");
    let fs = &open.fs;
    let root = fs.root();
    let new = |kind, mode| NewFile {
        uid: 1000,
        gid: 100,
        rdev: (5, 1),
        target: b"some/where",
        ..NewFile::of(kind, mode)
    };
    let make = |dir, name: &str, kind| fs.create(dir, name.as_bytes(), &new(kind, 0o644)).expect("made").id;
    let sub = make(root, "sub", FileKind::Directory);
    let file = make(sub, "file", FileKind::Regular);
    fs.write(file, 0, &[7; 300_000], &WriteHow::default()).expect("written");
    let link = make(root, "link", FileKind::Symlink);
    let device = make(root, "device", FileKind::CharDevice);
    fs.set_xattr(file, b"user.small", b"value", XattrHow::Either).expect("set");
    fs.set_xattr(device, b"user.spilled", &[b'x'; 3000], XattrHow::Either).expect("set");
    fs.set_xattr(link, b"user.large", &[b'y'; 60_000], XattrHow::Either).expect("set");
    fs.set_attrs(file, &NewAttrs { project: Some(42), mode: Some(0o6751), ..Default::default() })
        .expect("changed");
    for i in 0..3000 {
        make(sub, &format!("many{i}"), FileKind::Regular);
    }
    fs.rename(sub, b"many7", root, b"moved", RenameHow::Replace).expect("moved");
    fs.unlink(sub, b"many8").expect("removed");
    pool.sync().expect("synced");
    drop(open);
    pool.export(Leave::Exported).expect("exported");
    judge(dir.path());
    let shown = |id: ObjectId| zdb(dir.path(), &["-ddddd", "tank/fs", &id.to_string()]);
    let Some(text) = shown(file) else { return };
    for wanted in [
        "path\t/sub/file",
        "uid     1000",
        "gid     100",
        "mode\t106751",
        "size\t300000",
        "links\t1",
        "projid\t42",
        "user.small = value",
        "dblk",
    ] {
        assert!(text.contains(wanted), "{wanted} is missing: {text}");
    }
    let text = shown(link).expect("there");
    assert!(text.contains("target\tsome/where") && text.contains("xattr\t"), "{text}");
    let text = shown(device).expect("there");
    assert!(text.contains("rdev\t0x") && text.contains("user.spilled") && text.contains("SPILL"), "{text}");
    let text = shown(sub).expect("there");
    assert!(text.contains("Fat ZAP") && text.contains("size\t3001"), "{text}");
    let text = zdb(dir.path(), &["-dddd", "tank/fs"]).expect("there");
    assert!(
        text.contains("ZFS master node") && !text.contains("unable to") && !text.contains("failed"),
        "{text}"
    );
}

/// More blocks than one transaction frees.
#[test]
fn much_is_freed_in_steps() {
    let dir = tempfile::tempdir().expect("a folder");
    let pool = new_pool(dir.path());
    let open = make_fs(&pool, "tank/fs");
    let fs = &open.fs;
    fs.set_options(FsOptions { record_size: 512, ..FsOptions::default() });
    let files = [b"cut", b"hit"].map(|name| {
        let id = fs.create(fs.root(), name, &NewFile::of(FileKind::Regular, 0o644)).expect("made").id;
        fs.write(id, 0, &[9; 18 << 20], &WriteHow::default()).expect("written");
        id
    });
    pool.sync().expect("synced");
    fs.truncate(files[0], 1 << 20, false).expect("cut");
    fs.fallocate(files[1], 700, 17 << 20, Allocate::Punch).expect("punched");
    drop(open);
    pool.sync().expect("synced");
    pool.export(Leave::Exported).expect("exported");
    judge(dir.path());
    let blocks = |id: ObjectId| zdb(dir.path(), &["-dddddd", "tank/fs", &id.to_string()]);
    let Some(text) = blocks(files[0]) else { return };
    assert!(text.contains("size\t1048576") && text.contains("maxblkid: 2047"), "{text}");
    assert!(blocks(files[1]).expect("there").contains("size\t18874368"));
}

#[test]
fn logs_are_replayed_and_clones_counted() {
    let dir = tempfile::tempdir().expect("a folder");
    let pool = new_pool(dir.path());
    let open = make_fs(&pool, "tank/fs");
    let fs = Arc::clone(&open.fs);
    let root = fs.root();
    let make = |name: &[u8]| fs.create(root, name, &NewFile::of(FileKind::Regular, 0o644)).expect("made").id;
    let source = make(b"source");
    let mut noise = vec![0; 512 << 10];
    vdev::env::Random::from_seed(9).fill(&mut noise);
    fs.write(source, 0, &noise, &WriteHow::default()).expect("written");
    let copy = make(b"copy");
    let clones = PoolClones::new(pool.brt());
    let (from, to) = (FileRange { id: source, offset: 0 }, FileRange { id: copy, offset: 0 });
    let table: &dyn CloneTable = &clones;
    assert!(matches!(fs.clone_range(&fs, from, to, 512 << 10, table), Err(ZplError::NotYetWritten { .. })));
    pool.sync().expect("synced");
    assert_eq!(fs.clone_range(&fs, from, to, 512 << 10, table).expect("cloned"), 512 << 10);
    pool.sync().expect("synced");
    // The following changes are only in the log.
    let logged = make(b"logged");
    fs.write(logged, 5, b"in the log", &WriteHow::default()).expect("written");
    fs.set_xattr(logged, b"user.a", b"b", XattrHow::Either).expect("set");
    fs.rename(root, b"logged", root, b"renamed", RenameHow::Replace).expect("moved");
    fs.unlink(root, b"source").expect("removed");
    fs.truncate(copy, 400_000, false).expect("cut");
    open.fsync(logged).expect("durable");
    open.fsync(copy).expect("durable");
    let copied = tempfile::tempdir().expect("a folder");
    std::fs::copy(dir.path().join("disk"), copied.path().join("disk")).expect("copied");
    drop((open, fs));
    drop(pool);

    let pool = again(copied.path());
    let head = pool.heads().open_by_name("tank/fs").expect("opened");
    let open = HeadFs::open(&head, FsOptions::default(), pool.env()).expect("replayed");
    let fs = &open.fs;
    assert_eq!(fs.lookup(root, b"source").expect("read"), None);
    assert_eq!(fs.lookup(root, b"renamed").expect("read"), Some(logged));
    let mut bytes = [0; 15];
    assert_eq!(fs.read(logged, 0, &mut bytes).expect("read"), 15);
    assert_eq!(&bytes, b"\0\0\0\0\0in the log");
    assert_eq!(fs.node(logged).expect("there").xattr(b"user.a").expect("read").as_deref(), Some(&b"b"[..]));
    let mut bytes = vec![0; 512 << 10];
    assert_eq!(fs.read(copy, 0, &mut bytes).expect("read"), 400_000);
    assert!(bytes[..400_000] == noise[..400_000]);
    drop(open);
    drop(head);
    pool.export(Leave::Exported).expect("exported");
    judge(copied.path());
}

/// Leaves a disk with clones that only the intent log of `tank/fs` has: one into `copy`, and one into a file
/// that does not exist, so that its record is skipped.
fn crashed_with_logged_clones() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    let pool = new_pool(dir.path());
    let open = make_fs(&pool, "tank/fs");
    let fs = Arc::clone(&open.fs);
    let make =
        |name: &[u8]| fs.create(fs.root(), name, &NewFile::of(FileKind::Regular, 0o644)).expect("made").id;
    let source = make(b"source");
    let mut noise = vec![0; 256 << 10];
    vdev::env::Random::from_seed(9).fill(&mut noise);
    fs.write(source, 0, &noise, &WriteHow::default()).expect("written");
    let copy = make(b"copy");
    open.fsync(copy).expect("durable");
    pool.sync().expect("synced");
    let (from, to) = (FileRange { id: source, offset: 0 }, FileRange { id: copy, offset: 0 });
    fs.clone_range(&fs, from, to, 256 << 10, &PoolClones::new(pool.brt())).expect("cloned");
    let head = pool.heads().open_by_name("tank/fs").expect("opened");
    let file = head.set.object(source).expect("there");
    let pointers = (0..2).filter_map(|n| file.pointer_on_disk(format::BlockId(n)).expect("read")).collect();
    let (object, block_size) = (ObjectId(1 << 30), 128 << 10);
    let lost = CloneRange { object, offset: 0, length: 256 << 10, block_size, pointers };
    head.log.push(&pool.txgs().begin().expect("open"), Pending::Body(Body::CloneRange(lost)));
    head.log.commit(None).expect("durable");
    let copied = tempfile::tempdir().expect("a folder");
    std::fs::copy(dir.path().join("disk"), copied.path().join("disk")).expect("copied");
    copied
}

fn export(pool: Arc<LivePool>, dir: &Path) {
    pool.export(Leave::Exported).expect("exported");
    judge(dir);
}

#[test]
fn claimed_clones_go_when_the_log_was_replayed() {
    let crashed = crashed_with_logged_clones();
    let pool = again(crashed.path());
    pool.sync().expect("claimed");
    assert_eq!(pool.brt().saved(), 512 << 10, "both records have their references");
    export(pool, crashed.path());
    let pool = again(crashed.path());
    let head = pool.heads().open_by_name("tank/fs").expect("opened");
    let open = HeadFs::open(&head, FsOptions::default(), pool.env()).expect("replayed");
    pool.sync().expect("synced");
    assert_eq!((pool.brt().used(), pool.brt().saved()), (256 << 10, 256 << 10), "that of the copy");
    open.fs.unlink(open.fs.root(), b"source").expect("removed");
    pool.sync().expect("synced");
    assert_eq!((pool.brt().used(), pool.brt().saved()), (0, 0));
    drop((open, head));
    export(pool, crashed.path());
}

#[test]
fn claimed_clones_go_with_their_dataset() {
    let crashed = crashed_with_logged_clones();
    let pool = again(crashed.path());
    pool.sync().expect("claimed");
    pool.run(|ctx| destroy(ctx, "tank/fs")).expect("destroyed");
    for _ in 0..3 {
        pool.sync().expect("freed");
    }
    assert_eq!((pool.brt().used(), pool.brt().saved()), (0, 0));
    export(pool, crashed.path());
}

/// A log as other systems leave it: its header points at records that the pool knows since a txg, with blocks
/// that were freed since. It is claimed, replayed and freed, and blocks no txg and no mount.
#[test]
fn a_claimed_log_of_what_was_freed_keeps_nobody_out() {
    let dir = tempfile::tempdir().expect("a folder");
    let pool = new_pool(dir.path());
    let open = make_fs(&pool, "tank/fs");
    let fs = Arc::clone(&open.fs);
    let make =
        |name: &[u8]| fs.create(fs.root(), name, &NewFile::of(FileKind::Regular, 0o644)).expect("made").id;
    let (source, copy) = (make(b"source"), make(b"copy"));
    let mut noise = vec![0; 512 << 10];
    vdev::env::Random::from_seed(9).fill(&mut noise);
    fs.write(source, 0, &noise, &WriteHow::default()).expect("written");
    pool.sync().expect("synced");
    let head = pool.heads().open_by_name("tank/fs").expect("opened");
    let file = head.set.object(source).expect("there");
    let pointers: Vec<_> =
        (0..4).filter_map(|n| file.pointer_on_disk(format::BlockId(n)).expect("read")).collect();
    drop(file);
    // A log that is not registered with the pool: its header moves only on request.
    let log = dmu::log::IntentLog::new(&head.set, pool.txgs());
    let push = |body| {
        log.push(&pool.txgs().begin().expect("open"), Pending::Body(body));
        log.commit(None).expect("durable");
    };
    let clone = |object, pointers: &[format::BlockPtr]| {
        let (length, block_size) = ((pointers.len() as u64) << 17, 128 << 10);
        Body::CloneRange(CloneRange { object, offset: 0, length, block_size, pointers: pointers.to_vec() })
    };
    push(clone(copy, &pointers));
    let synced = Arc::clone(&log);
    pool.run(move |ctx| {
        synced.sync(ctx.tx);
        Ok(())
    })
    .expect("the head of the chain is on disk");
    push(clone(copy, &pointers));
    push(clone(ObjectId(1 << 30), &pointers[..2]));
    fs.unlink(fs.root(), b"source").expect("removed");
    for _ in 0..3 {
        pool.sync().expect("freed");
    }
    push(Body::Truncate { object: copy, offset: 77, length: 0 });
    let crashed = tempfile::tempdir().expect("a folder");
    std::fs::copy(dir.path().join("disk"), crashed.path().join("disk")).expect("copied");
    drop((log, head, open, fs, pool));

    let pool = again(crashed.path());
    pool.sync().expect("claimed");
    assert_eq!(pool.brt().saved(), 768 << 10, "as others count them");
    export(pool, crashed.path());
    for _ in 0..2 {
        let pool = again(crashed.path());
        let head = pool.heads().open_by_name("tank/fs").expect("opened");
        let open = HeadFs::open(&head, FsOptions::default(), pool.env()).expect("replayed");
        assert_eq!(open.fs.node(copy).expect("there").attrs().size, 77);
        pool.sync().expect("synced");
        assert_eq!((pool.brt().used(), pool.brt().saved()), (0, 0));
        drop((open, head));
        export(pool, crashed.path());
    }
}

#[test]
fn a_volume_as_zdb_sees_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let pool = new_pool(dir.path());
    let env = pool.env().clone();
    let id = pool
        .run(move |ctx| {
            create(ctx, NewHead::named("tank/vol"), ObjsetType::Zvol, &mut |set, tx| {
                make_volume(set, 64 << 20, 16 << 10, &env, tx).map_err(broken)
            })
        })
        .expect("created");
    let head = pool.heads().open(id).expect("opened");
    let open = HeadVolume::open(&head).expect("opened");
    open.volume.write_at(1 << 20, &[1; 1 << 20]).expect("written");
    open.volume.trim(1 << 20, 512 << 10).expect("trimmed");
    open.flush().expect("durable");
    open.volume.write_at(5, b"synced").expect("written");
    pool.sync().expect("synced");
    drop((open, head));
    pool.export(Leave::Exported).expect("exported");
    judge(dir.path());
    if let Some(text) = zdb(dir.path(), &["-ddddd", "tank/vol"]) {
        assert!(text.contains("size = 67108864") && text.contains("zvol object"), "{text}");
    }
}

/// Lists all files of a file system, from the root on.
fn all_files(read: &Arc<cenote_zpl::Filesystem>) -> Vec<(ObjectId, Vec<u8>, ObjectId)> {
    let mut files = Vec::new();
    let mut todo = vec![read.root()];
    while let Some(dir) = todo.pop() {
        for entry in read.node(dir).expect("a directory").entries().expect("readable") {
            let entry = entry.expect("readable");
            files.push((dir, entry.name, entry.id));
            if read.node(entry.id).expect("there").is_dir() {
                todo.push(entry.id);
            }
        }
    }
    files
}

/// Reads all data and attributes of a file.
fn read_all(node: &cenote_zpl::Node) {
    match node.kind() {
        FileKind::Regular => {
            let mut at = 0;
            let mut bytes = vec![0; 1 << 20];
            while let Some(data) = node.next_data(at).expect("readable") {
                let read = node.read_at(data, &mut bytes).expect("readable");
                at = data + (read as u64).max(1);
            }
        }
        FileKind::Symlink => drop(node.readlink().expect("readable")),
        _ => {}
    }
    node.acl().expect("readable");
    node.xattr_values().expect("readable");
}

/// Changes one thing of each kind; returns the number of changes.
fn change_all(open: &HeadFs) -> usize {
    let fs = &open.fs;
    while !fs.drain(100).expect("drained") {}
    let is_fine = |result: Result<(), ZplError>| match result {
        Ok(()) => 1,
        Err(ZplError::NotPermitted { .. } | ZplError::Unsupported { .. } | ZplError::NotEmpty { .. }) => 0,
        // Some of these pools are small.
        Err(ZplError::Begin(BeginError::NoSpace(_))) => 0,
        Err(error) => panic!("{error}: {:?}", std::error::Error::source(&error)),
    };
    let mut done = 0;
    let new = |kind| NewFile { target: b"target", ..NewFile::of(kind, 0o750) };
    for (i, (dir, name, id)) in all_files(fs.reader()).into_iter().enumerate().take(400) {
        let kind = fs.node(id).expect("there").kind();
        done += is_fine(
            fs.set_attrs(id, &NewAttrs { mode: Some(0o604), uid: Some(7), ..Default::default() }).map(drop),
        );
        done += is_fine(fs.set_xattr(id, b"user.cenote", &vec![5; 10 * i], XattrHow::Either));
        if kind == FileKind::Regular {
            done += is_fine(fs.write(id, 3, b"changed", &WriteHow::default()).map(drop));
            let how = WriteHow { append: true, ..WriteHow::default() };
            done += is_fine(fs.write(id, 0, &[1; 3000], &how).map(drop));
        }
        if i % 5 == 1 && kind != FileKind::Directory {
            done += is_fine(fs.unlink(dir, &name));
        }
        if i % 7 == 3 {
            let renamed = format!("renamed-{i}");
            done += is_fine(match fs.lookup(dir, &name).expect("readable") {
                Some(_) => fs.rename(dir, &name, dir, renamed.as_bytes(), RenameHow::NoReplace),
                None => Ok(()),
            });
        }
        if kind == FileKind::Directory {
            for kind in [FileKind::Regular, FileKind::Directory, FileKind::Symlink, FileKind::Fifo] {
                let name = format!("new-{kind}");
                done += is_fine(fs.create(id, name.as_bytes(), &new(kind)).map(drop));
            }
        }
    }
    done
}

fn copy_of(name: &str) -> tempfile::TempDir {
    let fixture = testkit::Fixture::open(name);
    let dir = tempfile::tempdir().expect("a folder");
    for entry in std::fs::read_dir(fixture.dir()).expect("there") {
        let from = entry.expect("there").path();
        let to = dir.path().join(from.file_name().expect("a name"));
        let copied = Command::new("cp").arg("--sparse=always").arg(&from).arg(&to).status().expect("run");
        assert!(copied.success());
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&to, mode).expect("writable");
    }
    dir
}

/// File systems of OpenZFS are changed, and read by it afterwards.
#[test]
fn golden_file_systems_are_changed() {
    let usual = "single dnodes posixacl names fileflags holes recordsize deleteq longname legacy version1 version10 compat-2.0";
    let wanted = std::env::var("CENOTE_FIXTURES").unwrap_or_else(|_| usual.into());
    for name in wanted.split_whitespace() {
        let fixture = testkit::Fixture::open(name);
        let pool_name = fixture.manifest().pool.clone();
        let dir = copy_of(name);
        let import = || {
            let found = Search::in_paths([dir.path()]).run();
            LivePool::import(
                &found,
                &Which::Name(pool_name.clone()),
                &ImportOptions::default(),
                Env::system(),
            )
        };
        let pool = match import() {
            Ok(pool) => pool,
            Err(error) => {
                println!("{name}: not imported: {error}");
                continue;
            }
        };
        let mut changed = Vec::new();
        for dataset in &fixture.manifest().datasets {
            if dataset.name.contains(['@', '#']) || dataset.volume_sha256.is_some() {
                continue;
            }
            let head = match pool.heads().open_by_name(&dataset.name) {
                Ok(head) => head,
                Err(error) => {
                    println!("{}: {error}", dataset.name);
                    continue;
                }
            };
            let view = pool.view().expect("readable");
            let options =
                cenote_zpl::options_of(&view.dsl().dataset(&dataset.name).expect("there"), pool.features());
            let upgraded = {
                let tx = head.txgs().begin().expect("open");
                upgrade_filesystem(&head.set, pool.env(), &tx)
            };
            upgraded.expect("upgraded");
            match HeadFs::open(&head, options.expect("readable"), pool.env()) {
                Ok(open) => {
                    let done = change_all(&open);
                    pool.sync().expect("synced");
                    println!("{}: {done} changes", dataset.name);
                    while !open.fs.drain(100).expect("drained") {}
                    changed.push(dataset.name.clone());
                }
                Err(error) => println!("{}: {error}", dataset.name),
            }
        }
        pool.export(Leave::Exported).expect("exported");
        let found = Search::in_paths([dir.path()]).run();
        let pool = pool::Pool::open(found, &Which::Name(pool_name.clone()), &pool::OpenOptions::default());
        let pool = pool.expect("opened");
        for name in &changed {
            let objset = pool.dsl().dataset(name).expect("there").open_objset().expect("opened");
            let read = cenote_zpl::Filesystem::open(objset).expect("a file system");
            for (_, _, id) in all_files(&read) {
                read_all(&read.node(id).expect("there"));
            }
        }
        drop(pool);
        testkit::assert_zdb_clean(dir.path(), &pool_name);
        for name in &changed {
            if let Some(text) = zdb(dir.path(), &["-dddd", name]) {
                assert!(!text.contains("unable to") && !text.contains("failed"), "{name}: {text}");
            }
        }
    }
}

/// A clone is newer than its bytes: snapshots taken between the two do not hold it.
#[test]
fn clones_between_snapshots() {
    use dsl::destroy::destroy_snapshots;
    use dsl::snapshot::snapshot;
    let dir = tempfile::tempdir().expect("a folder");
    let pool = new_pool(dir.path());
    let open = make_fs(&pool, "tank/fs");
    let fs = Arc::clone(&open.fs);
    let root = fs.root();
    let make = |name: &[u8]| fs.create(root, name, &NewFile::of(FileKind::Regular, 0o644)).expect("made").id;
    let take = |name: &'static str| {
        pool.run(move |ctx| snapshot(ctx, &[name.to_owned()], &[]).map(|_| ())).expect("taken");
    };
    let source = make(b"source");
    let mut noise = vec![0; 512 << 10];
    vdev::env::Random::from_seed(9).fill(&mut noise);
    fs.write(source, 0, &noise, &WriteHow::default()).expect("written");
    take("tank/fs@a");
    let clones = PoolClones::new(pool.brt());
    let clone = |name: &[u8]| {
        let (from, to) = (FileRange { id: source, offset: 0 }, FileRange { id: make(name), offset: 0 });
        assert_eq!(fs.clone_range(&fs, from, to, 512 << 10, &clones).expect("cloned"), 512 << 10);
        to.id
    };
    let (kept, cut) = (clone(b"kept"), clone(b"cut"));
    // Overwritten before it is on disk: as if it had not been cloned.
    fs.write(cut, 0, &noise[..300 << 10], &WriteHow::default()).expect("written");
    fs.truncate(cut, 400 << 10, false).expect("cut");
    take("tank/fs@b");
    fs.unlink(root, b"source").expect("removed");
    fs.truncate(kept, 200 << 10, false).expect("cut");
    clone_again(&fs, kept, make(b"again"), &clones, &pool);
    take("tank/fs@c");
    fs.unlink(root, b"kept").expect("removed");
    drop((open, fs));
    pool.export(Leave::Exported).expect("exported");
    judge(dir.path());
    for name in ["tank/fs@b", "tank/fs@a", "tank/fs@c"] {
        let pool = again(dir.path());
        pool.run(move |ctx| destroy_snapshots(ctx, &[name.to_owned()], false)).expect("destroyed");
        pool.export(Leave::Exported).expect("exported");
        judge(dir.path());
    }
}

fn clone_again(
    fs: &Arc<cenote_zpl::Fs>,
    from: ObjectId,
    to: ObjectId,
    clones: &PoolClones,
    pool: &Arc<LivePool>,
) {
    pool.sync().expect("synced");
    let (from, to) = (FileRange { id: from, offset: 0 }, FileRange { id: to, offset: 0 });
    assert_eq!(fs.clone_range(fs, from, to, 128 << 10, clones).expect("cloned"), 128 << 10);
}
