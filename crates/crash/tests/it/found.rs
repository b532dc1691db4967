//! Defects that random cuts have found, each with a test of its own.
#![allow(missing_docs)]

use crate::support::create;
use cenote_crash::disks::Disks;
use cenote_crash::run::{POOL, env, host, open_fs};
use dmu::log::Pending;
use format::ObjectId;
use format::zil::{Body, Create, CreateKind, LogTime};
use format::znode::Time;
use pool::ImportOptions;
use pool::LivePool;
use pool::Which;
use std::sync::Arc;
use vdev::device::sim::Fate;
use vdev::env::Env;
use zpl::{Allocate, Fs, FsOptions, HeadFs, NewAttrs, NewFile, RenameHow, WriteHow, XattrHow};
use zpl::{Attrs, FileKind};

/// Cuts the power: unflushed writes are lost. Opens the pool again.
fn cut(disks: &Disks) -> (Arc<LivePool>, Arc<HeadFs>) {
    let after = disks.after_cut(Fate::Lost, 1);
    let options = ImportOptions { host: host(), force: true, ..ImportOptions::default() };
    let which = Which::Name(POOL.to_owned());
    let pool = LivePool::import(&after.found(), &which, &options, env(2)).expect("imported");
    let fs = open_fs(&pool, 1).expect("replayed");
    (pool, fs)
}

/// The value was stored in a file of its own, and the log kept the records of that file apart from those of
/// its owner.
#[test]
fn large_attributes_are_durable_with_their_file() {
    let disks = Disks::new(1, 7);
    let (_pool, fs) = create(&disks, "single");
    let made = fs.fs.create(fs.fs.root(), b"f", &NewFile::of(FileKind::Regular, 0o644)).expect("made");
    let value = vec![7; 40_000];
    fs.fs.set_xattr(made.id, b"user.large", &value, XattrHow::Either).expect("set");
    fs.fsync(made.id).expect("durable");
    let (_pool, fs) = cut(&disks);
    let found = fs.fs.node(made.id).expect("there").xattr_values().expect("readable");
    assert!(found == [(b"user.large".to_vec(), value)], "{:?}", found.first().map(|(_, v)| v.len()));
}

/// No log record can make such a file, and the log had no record of it when another file was made durable: it
/// ended where a later record named the file.
#[test]
fn what_follows_the_name_of_a_nameless_file_is_durable() {
    let disks = Disks::new(1, 8);
    let (_pool, fs) = create(&disks, "single");
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

/// The log recorded directories only on their own fsync, but files that inherit from them at once.
#[test]
fn what_a_durable_file_inherited_it_still_has() {
    let disks = Disks::new(1, 9);
    let (_pool, fs) = create(&disks, "single");
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

/// Other implementations reuse an object number while the txg that freed it is being written: the log makes a
/// file where there is still one that waits to be freed. All later records were lost.
#[test]
fn a_log_may_use_the_number_of_a_file_without_a_name() {
    let disks = Disks::new(1, 11);
    let (pool, fs) = create(&disks, "single");
    let root = fs.fs.root();
    let file = NewFile::of(FileKind::Regular, 0o644);
    let old = fs.fs.create(root, b"old", &file).expect("made");
    let held = fs.fs.hold(old.id).expect("held");
    fs.fs.unlink(root, b"old").expect("removed");
    pool.sync().expect("synced");
    // The first use of a log waits for a txg.
    let first = fs.fs.create(root, b"first", &file).expect("made");
    fs.fsync(first.id).expect("durable");
    let record = Create {
        what: CreateKind::File,
        dir: root,
        object: old.id,
        slots: 1,
        mode: 0o100_644,
        uid: 0,
        gid: 0,
        generation: 1000,
        crtime: LogTime { secs: 1, nanos: 0 },
        rdev: 0,
        xvattr: None,
        acl: None,
        domains: Vec::new(),
        name: b"new".to_vec(),
        target: Vec::new(),
    };
    let tx = fs.head().begin_waiting(dsl::Cost::metadata()).expect("begun");
    fs.head().log.push(&tx, Pending::Body(Body::Create(Box::new(record))));
    drop(tx);
    let other = fs.fs.create(root, b"other", &file).expect("made");
    fs.fsync(other.id).expect("durable");
    let (_pool, after) = cut(&disks);
    drop(held);
    let found = |name: &[u8]| after.fs.lookup(after.fs.root(), name).expect("readable");
    assert_eq!((found(b"new"), found(b"other")), (Some(old.id), Some(other.id)));
}

/// The data of a large write was read again when its record was written, after the file had been truncated:
/// zeros. Or after it had been overwritten by a larger write: a part of that.
#[test]
fn what_is_replayed_of_a_large_write_is_what_was_written() {
    let disks = Disks::new(1, 12);
    let (pool, fs) = create(&disks, "single");
    let root = fs.fs.root();
    let make =
        |name: &[u8]| fs.fs.create(root, name, &NewFile::of(FileKind::Regular, 0o644)).expect("made").id;
    let write = |id, len, byte| fs.fs.write(id, 0, &vec![byte; len], &WriteHow::default()).expect("written");
    let [cut_off, overwritten, moved, other] = [b"cut", b"new", b"old", b"one"].map(|name| make(name));
    write(cut_off, 100_000, 1);
    write(overwritten, 100_000, 1);
    fs.fsync(moved).expect("durable");
    pool.sync().expect("synced");
    fs.fsync(moved).expect("durable");
    write(cut_off, 90_000, 2);
    write(overwritten, 90_000, 2);
    // A rename makes sure that earlier writes are logged before it.
    fs.fs.rename(root, b"old", root, b"renamed", RenameHow::Replace).expect("moved");
    fs.fs.truncate(cut_off, 0, false).expect("cut");
    write(overwritten, 150_000, 3);
    write(other, 10, 4);
    fs.fsync(other).expect("durable");
    let (_pool, after) = cut(&disks);
    let mut expected = vec![2; 90_000];
    expected.resize(100_000, 1);
    for id in [cut_off, overwritten] {
        let mut found = vec![9; 200_000];
        let len = after.fs.read(id, 0, &mut found).expect("readable");
        assert!(found[..len] == expected, "{id}: {len} bytes, {:?}", &found[..4]);
    }
}

/// A replay restores all attributes, times to the nanosecond, except the time of the last change of
/// attributes, which no record holds. Before, they had the time of the replay.
#[test]
fn attributes_are_replayed_as_they_were() {
    let disks = Disks::new(1, 13);
    let (pool, first) = create(&disks, "single");
    drop(first);
    let (env, clock) = Env::simulated(1);
    let tick = || clock.advance(std::time::Duration::new(1_700_000, 123_456_789));
    tick();
    let head = pool.heads().open_by_name(POOL).expect("opened");
    let options = FsOptions { record_size: 8192, ..FsOptions::default() };
    let open = HeadFs::open(&head, options, &env).expect("opened");
    let (fs, root) = (&open.fs, open.fs.root());
    let make = |i: u8| {
        tick();
        let made = fs.create(root, &[b'a' + i], &NewFile::of(FileKind::Regular, 0o6755)).expect("made");
        fs.write(made.id, 0, &[7; 30_000], &WriteHow::default()).expect("written");
        made.id
    };
    let ids: Vec<ObjectId> = (0..9).map(make).collect();
    open.fsync(ids[0]).expect("durable");
    pool.sync().expect("synced");
    let set = |i: usize, new: NewAttrs| {
        tick();
        fs.set_attrs(ids[i], &new).expect("set");
    };
    let none = NewAttrs::default();
    set(0, NewAttrs { uid: Some(5), gid: Some(6), ..none });
    set(1, NewAttrs { size: Some(20_000), clear_set_ids: true, ..none });
    set(2, NewAttrs { mode: Some(0o1640), ..none });
    let given = |secs| Some(Time { secs, nanos: 987_654_321 });
    set(3, NewAttrs { atime: given(77), mtime: given(-5), ..none });
    set(4, NewAttrs { size: Some(100_000), mtime: given(99), ..none });
    tick();
    fs.truncate(ids[5], 10_000, true).expect("cut");
    tick();
    fs.fallocate(ids[6], 100, 20_000, Allocate::Punch).expect("punched");
    for at in [0, 20_000, 9000] {
        tick();
        let how = WriteHow { clear_set_ids: true, ..WriteHow::default() };
        fs.write(ids[7], at, &[8; 9000], &how).expect("written");
    }
    set(7, NewAttrs { atime: given(5), ..none });
    tick();
    fs.fallocate(ids[8], 0, 1000, Allocate::Reserve { keep_size: true }).expect("reserved");
    tick();
    let new = fs.create(root, b"new", &NewFile::of(FileKind::Regular, 0o644)).expect("made").id;
    let ids: Vec<ObjectId> = ids.into_iter().chain([new, root]).collect();
    let all = |fs: &Fs| -> Vec<Attrs> {
        let attrs = ids.iter().map(|id| fs.attrs(*id).expect("there"));
        attrs.map(|attrs| Attrs { ctime: Time::default(), ..attrs }).collect()
    };
    let before = all(fs);
    open.sync().expect("durable");
    let (_pool, after) = cut(&disks);
    for (before, after) in before.iter().zip(all(&after.fs)) {
        assert_eq!(*before, after);
    }
}
