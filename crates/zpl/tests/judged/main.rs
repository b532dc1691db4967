//! File systems and volumes in a pool on files, judged by `zdb`.
#![allow(missing_docs)]

use cenote_zpl::write::{
    CloneTable, FileRange, FsOptions, HeadFs, HeadVolume, NewAttrs, NewFile, NewFilesystem, PoolClones,
    RenameHow, WriteHow, XattrHow, make_filesystem, make_volume,
};
use cenote_zpl::{FileKind, ZplError};
use dsl::DslError;
use dsl::write::create::{NewHead, create};
use format::ObjectId;
use format::objset::ObjsetType;
use pool::Which;
use pool::live::{CreateSpec, ImportOptions, Layout, LeafSpec, Leave, LivePool, TopSpec};
use pool::space::Class;
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
    let output = Command::new(zdb).args(["-e", "-p"]).arg(dir).args(args).output().expect("run");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}\n{errors}");
    Some(text + &errors)
}

fn judge(dir: &Path) {
    let Some(text) = zdb(dir, &["-bcc", "tank"]) else { return };
    assert!(text.contains("No leaks"), "{text}");
}

fn make_fs(pool: &Arc<LivePool>, name: &'static str) -> HeadFs {
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
    // What follows is only in the log.
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
