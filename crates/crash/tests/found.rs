//! What random cuts have found, each on its own.
#![allow(missing_docs)]

use cenote_crash::disks::{Disks, Layout};
use cenote_crash::workload::{POOL, env, host, open_fs};
use pool::Which;
use pool::live::{ImportOptions, LivePool};
use std::sync::Arc;
use vdev::device::sim::Fate;
use zpl::FileKind;
use zpl::write::{HeadFs, NewAttrs, NewFile, NewFilesystem, XattrHow, make_filesystem};

/// A pool on one disk, and its root file system.
fn create(disks: &Disks) -> (Arc<LivePool>, HeadFs) {
    let layout: Layout = "single".parse().expect("a layout");
    let mut spec = disks.spec(POOL, layout);
    let fill_env = env(1);
    spec.root.fill = Box::new(move |set, tx| {
        make_filesystem(set, &NewFilesystem::default(), &fill_env, tx)
            .map(drop)
            .map_err(|error| dsl::DslError::Fill { source: Box::new(error) })
    });
    spec.host = host();
    let pool = LivePool::create(spec, env(1)).expect("made");
    let fs = open_fs(&pool, 1).expect("opened");
    pool.sync().expect("synced");
    (pool, fs)
}

/// The power goes off: nothing is left that was not flushed. The pool is opened again.
fn cut(disks: &Disks) -> (Arc<LivePool>, HeadFs) {
    let after = disks.after_cut(Fate::Lost, 1);
    let options = ImportOptions { host: host(), force: true, ..ImportOptions::default() };
    let which = Which::Name(POOL.to_owned());
    let pool = LivePool::import(&after.found(), &which, &options, env(2)).expect("imported");
    let fs = open_fs(&pool, 1).expect("replayed");
    (pool, fs)
}

/// The value is in a file of its own, and the log kept what it told of that apart from its owner.
#[test]
fn large_attributes_are_durable_with_their_file() {
    let disks = Disks::new(1, 7);
    let (_pool, fs) = create(&disks);
    let made = fs.fs.create(fs.fs.root(), b"f", &NewFile::of(FileKind::Regular, 0o644)).expect("made");
    let value = vec![7; 40_000];
    fs.fs.set_xattr(made.id, b"user.large", &value, XattrHow::Either).expect("set");
    fs.fsync(made.id).expect("durable");
    let (_pool, fs) = cut(&disks);
    let found = fs.fs.node(made.id).expect("there").xattr_values().expect("readable");
    assert!(found == [(b"user.large".to_vec(), value)], "{:?}", found.first().map(|(_, v)| v.len()));
}

/// No record can make the file, and the log knew nothing of that when another file was made durable: it ended
/// where a later record named it.
#[test]
fn what_follows_the_name_of_a_nameless_file_is_durable() {
    let disks = Disks::new(1, 8);
    let (_pool, fs) = create(&disks);
    let root = fs.fs.root();
    let held = fs.fs.tmpfile(root, &NewFile::of(FileKind::Regular, 0o644)).expect("made");
    fs.fs.link(held.id(), root, b"named").expect("linked");
    fs.fs.link(held.id(), root, b"named twice").expect("linked");
    fs.fs.unlink(root, b"named").expect("removed");
    let other = fs.fs.create(root, b"other", &NewFile::of(FileKind::Regular, 0o644)).expect("made");
    fs.fsync(other.id).expect("durable");
    let (_pool, fs) = cut(&disks);
    let found = |name: &[u8]| fs.fs.lookup(fs.fs.root(), name).expect("readable");
    assert_eq!((found(b"named"), found(b"named twice")), (None, Some(held.id())));
    assert_eq!(found(b"other"), Some(other.id));
}

/// The log told of directories only when somebody asked for them, and of files that inherit from them at once.
#[test]
fn what_a_durable_file_inherited_it_still_has() {
    let disks = Disks::new(1, 9);
    let (_pool, fs) = create(&disks);
    let root = fs.fs.root();
    let dir = fs.fs.create(root, b"dir", &NewFile::of(FileKind::Directory, 0o755)).expect("made");
    let setgid = NewAttrs { mode: Some(0o2755), gid: Some(77), ..NewAttrs::default() };
    fs.fs.set_attrs(dir.id, &setgid).expect("set");
    let made = fs.fs.create(dir.id, b"file", &NewFile::of(FileKind::Regular, 0o644)).expect("made");
    let deeper = fs.fs.create(dir.id, b"deeper", &NewFile::of(FileKind::Directory, 0o755)).expect("made");
    fs.fsync(made.id).expect("durable");
    let before = [dir.id, made.id, deeper.id].map(|id| fs.fs.attrs(id).expect("there"));
    let (_pool, fs) = cut(&disks);
    let after = [dir.id, made.id, deeper.id].map(|id| fs.fs.attrs(id).expect("there"));
    assert_eq!(after.map(|a| (a.mode, a.gid)), before.map(|a| (a.mode, a.gid)));
}
