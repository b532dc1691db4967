//! Tests of single operations.

use super::world::{World, sync_and};
use cenote_zpl::{
    AccessTimes, Allocate, CloneTable, FileRange, FsOptions, IntentLog, NewAttrs, NewFile, NewFilesystem,
    QuotaOf, RenameHow, WriteHow, XattrHow, XattrStorage, encode_posix,
};
use cenote_zpl::{CaseSensitivity, FileKind, SpaceKind, ZplError};
use dmu::log::LogData;
use dmu::{Limits, NewObject, Tx};
use format::acl::{POSIX_ACCESS, POSIX_DEFAULT, PosixEntry, PosixWho};
use format::zil::{Body, mask};
use format::znode::{
    FLAG_ARCHIVE, FLAG_HIDDEN, FLAG_IMMUTABLE, FLAG_NODUMP, FLAG_NOUNLINK, FLAG_OFFLINE, FLAG_PROJID,
    FLAG_PROJINHERIT, FLAG_READONLY, FLAG_REPARSE, FLAG_SPARSE, FLAG_SYSTEM, Time, dos_flags,
};
use format::{BlockPtr, ObjType, ObjectId};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

fn world() -> World {
    World::new(FsOptions::default())
}

fn file(world: &World, dir: ObjectId, name: &str) -> ObjectId {
    world.fs.create(dir, name.as_bytes(), &NewFile::of(FileKind::Regular, 0o644)).expect("made").id
}

fn dir(world: &World, parent: ObjectId, name: &str) -> ObjectId {
    world.fs.create(parent, name.as_bytes(), &NewFile::of(FileKind::Directory, 0o755)).expect("made").id
}

fn write(world: &World, id: ObjectId, offset: u64, data: &[u8]) {
    world.fs.write(id, offset, data, &WriteHow::default()).expect("written");
}

#[test]
fn a_new_file_system_is_empty_and_reads() {
    let world = world();
    world.sync();
    let read = world.reopened();
    let root = read.node(read.root()).expect("the root");
    let attrs = root.attrs();
    assert_eq!((attrs.mode, attrs.links, attrs.size), (0o04_0755, 2, 2));
    assert_eq!((attrs.parent, attrs.flags), (read.root(), 0x8408_0000_0144));
    assert_eq!(root.object().bonus().len(), 176);
    assert_eq!(root.acl().expect("a list").aces.len(), 3);
    assert_eq!(root.entries().expect("readable").count(), 0);
}

#[test]
fn files_of_all_kinds_read_again() {
    let world = world();
    let fs = &world.fs;
    let root = fs.root();
    for (name, kind) in [
        ("fifo", FileKind::Fifo),
        ("char", FileKind::CharDevice),
        ("block", FileKind::BlockDevice),
        ("socket", FileKind::Socket),
        ("dir", FileKind::Directory),
        ("file", FileKind::Regular),
        ("link", FileKind::Symlink),
    ] {
        let new =
            NewFile { uid: 10, gid: 20, rdev: (5, 1), target: b"to/somewhere", ..NewFile::of(kind, 0o4751) };
        fs.create(root, name.as_bytes(), &new).expect("made");
        assert!(matches!(fs.create(root, name.as_bytes(), &new), Err(ZplError::Exists { .. })));
    }
    world.sync();
    let read = world.reopened();
    let get = |name: &str| read.resolve(name.as_bytes()).expect("readable").expect("there");
    assert_eq!(get("char").attrs().rdev, (5, 1));
    assert_eq!(get("link").readlink().expect("a link"), b"to/somewhere");
    assert_eq!(get("link").attrs().size, 12);
    assert_eq!(get("file").attrs().mode, 0o10_4751);
    assert_eq!(get("file").attrs().flags, 0x8408_0000_0104);
    assert_eq!((get("dir").attrs().uid, get("dir").attrs().gid), (10, 20));
    let root = read.node(read.root()).expect("the root");
    assert_eq!((root.attrs().size, root.attrs().links), (9, 3));
    assert_eq!(
        read.space(SpaceKind::User).expect("counted").iter().find(|row| row.id == 10).map(|row| row.objects),
        Some(Some(7))
    );
}

#[test]
fn a_small_file_has_one_block_and_a_large_one_blocks_of_the_record_size() {
    let world = world();
    let fs = &world.fs;
    let id = file(&world, fs.root(), "f");
    write(&world, id, 0, &[1; 700]);
    assert_eq!(fs.node(id).expect("there").block_size(), 1024);
    write(&world, id, 700, &[2; 10_000]);
    assert_eq!(fs.node(id).expect("there").block_size(), 10_752);
    write(&world, id, 200_000, &[3; 10]);
    assert_eq!(fs.node(id).expect("there").block_size(), 131_072);
    let sparse = file(&world, fs.root(), "sparse");
    fs.truncate(sparse, 1 << 40, false).expect("extended");
    write(&world, sparse, 1 << 39, b"middle");
    world.sync();
    let read = world.reopened();
    let node = read.node(id).expect("there");
    let mut bytes = vec![0; 300_000];
    assert_eq!(node.read_at(0, &mut bytes).expect("read"), 200_010);
    let mut expected = vec![0; 300_000];
    expected[..700].fill(1);
    expected[700..10_700].fill(2);
    expected[200_000..200_010].fill(3);
    assert!(bytes == expected);
    let node = read.node(sparse).expect("there");
    assert_eq!(node.next_data(0).expect("search"), Some(1 << 39));
    assert_eq!(node.attrs().size, 1 << 40);
}

#[test]
fn stat_tells_what_the_file_itself_tells() {
    let world = world();
    let fs = &world.fs;
    let id = file(&world, fs.root(), "f");
    let is_unwritten = |id| {
        let (stat, node) = (fs.stat(id).expect("there"), fs.node(id).expect("there"));
        assert_eq!((stat.attrs, stat.block_size), (*node.attrs(), node.block_size()));
        assert!(stat.is_unwritten || stat.blocks_512 == node.blocks_512());
        stat.is_unwritten
    };
    let bytes = |id| fs.stat(id).expect("there").blocks_512 * 512;
    write(&world, id, 0, &[1; 5000]);
    assert!(is_unwritten(id) && !is_unwritten(fs.root()));
    assert!(bytes(id) >= 5000, "what has no holes must not look as if it had");
    world.sync();
    assert!(!is_unwritten(id));
    write(&world, id, 300_000, &[2; 100]);
    assert!(is_unwritten(id));
    assert!(bytes(id) < 300_000, "what has a hole looks so");
    world.sync();
    assert!(!is_unwritten(id) && fs.stat(id).expect("there").blocks_512 > 2);
}

#[test]
fn cut_and_grown_again_is_zeros() {
    let world = world();
    let fs = &world.fs;
    let id = file(&world, fs.root(), "f");
    write(&world, id, 0, &[9; 300_000]);
    world.sync();
    fs.truncate(id, 1000, false).expect("cut");
    fs.truncate(id, 300_000, false).expect("grown");
    let mut bytes = vec![1; 300_000];
    assert_eq!(fs.read(id, 0, &mut bytes).expect("read"), 300_000);
    assert!(bytes[..1000].iter().all(|b| *b == 9) && bytes[1000..].iter().all(|b| *b == 0));
    write(&world, id, 0, &[8; 300_000]);
    fs.fallocate(id, 100, 200_000, Allocate::Punch).expect("punched");
    fs.fallocate(id, 299_000, 2000, Allocate::Zero { keep_size: false }).expect("zeroed");
    fs.fallocate(id, 0, 400_000, Allocate::Reserve { keep_size: true }).expect("reserved");
    world.sync();
    let node = world.reopened().node(id).expect("there");
    let mut bytes = vec![1; 301_000];
    assert_eq!(node.read_at(0, &mut bytes).expect("read"), 301_000);
    for (i, byte) in bytes.iter().enumerate() {
        let is_data = i < 100 || (200_100..299_000).contains(&i);
        assert_eq!(*byte, if is_data { 8 } else { 0 }, "{i}");
    }
}

#[test]
fn an_open_file_outlives_its_name() {
    let world = world();
    let fs = &world.fs;
    let id = file(&world, fs.root(), "f");
    write(&world, id, 0, b"still here");
    let hold = fs.hold(id).expect("held");
    fs.unlink(fs.root(), b"f").expect("removed");
    world.sync();
    assert_eq!(world.reopened().unlinked().expect("set"), [id]);
    let mut bytes = [0; 10];
    fs.read(id, 0, &mut bytes).expect("read");
    assert_eq!(&bytes, b"still here");
    assert!(matches!(fs.link(id, fs.root(), b"again"), Err(ZplError::Stale { .. })));
    drop(hold);
    assert!(matches!(fs.attrs(id), Err(ZplError::Stale { .. })));
    world.sync();
    let read = world.reopened();
    assert!(read.unlinked().expect("set").is_empty());
    assert!(read.node(id).is_err());
}

#[test]
fn what_was_unlinked_before_a_crash_is_freed_after_it() {
    let mut world = world();
    let fs = std::sync::Arc::clone(&world.fs);
    let id = file(&world, fs.root(), "f");
    write(&world, id, 0, &[1; 1000]);
    fs.set_xattr(id, b"user.big", &[1; 50_000], XattrHow::Either).expect("set");
    let hold = fs.hold(id).expect("held");
    fs.unlink(fs.root(), b"f").expect("removed");
    world.sync();
    let again = world.remounted(FsOptions::default());
    std::mem::forget(hold);
    assert!(again.drain(100).expect("drained"));
    assert!(again.attrs(id).is_err());
    assert!(again.reader().unlinked().expect("set").is_empty());
}

#[test]
fn a_file_without_a_name_gets_one_or_goes() {
    let world = world();
    let fs = &world.fs;
    let new = NewFile::of(FileKind::Regular, 0o600);
    let (named, lost) =
        (fs.tmpfile(fs.root(), &new).expect("made"), fs.tmpfile(fs.root(), &new).expect("made"));
    let ids = (named.id(), lost.id());
    write(&world, named.id(), 0, b"x");
    fs.link(named.id(), fs.root(), b"name").expect("linked");
    drop((named, lost));
    world.sync();
    let read = world.reopened();
    assert_eq!(read.node(ids.0).expect("there").attrs().links, 1);
    assert!(read.node(ids.1).is_err() && read.unlinked().expect("set").is_empty());
}

#[test]
fn renames_of_all_kinds() {
    let world = world();
    let fs = &world.fs;
    let root = fs.root();
    let (a, b) = (dir(&world, root, "a"), dir(&world, root, "b"));
    let f = file(&world, a, "f");
    let g = file(&world, b, "g");
    let sub = dir(&world, a, "sub");
    assert!(matches!(fs.rename(root, b"a", sub, b"x", RenameHow::Replace), Err(ZplError::IntoItself { .. })));
    assert!(matches!(fs.rename(a, b"f", b, b"g", RenameHow::NoReplace), Err(ZplError::Exists { .. })));
    fs.rename(a, b"f", b, b"g", RenameHow::Exchange).expect("exchanged");
    assert_eq!((fs.lookup(a, b"f").expect("read"), fs.lookup(b, b"g").expect("read")), (Some(g), Some(f)));
    assert_eq!(fs.attrs(f).expect("there").parent, b);
    fs.rename(a, b"f", b, b"g", RenameHow::Replace).expect("replaced");
    assert!(fs.attrs(f).is_err());
    fs.rename(a, b"sub", b, b"moved", RenameHow::Replace).expect("moved");
    assert_eq!((fs.attrs(a).expect("there").links, fs.attrs(b).expect("there").links), (2, 3));
    assert_eq!((fs.attrs(a).expect("there").size, fs.attrs(b).expect("there").size), (2, 4));
    fs.rename(b, b"g", a, b"w", RenameHow::Whiteout { uid: 0, gid: 0 }).expect("moved");
    let whiteout = fs.lookup(b, b"g").expect("read").expect("a whiteout");
    assert_eq!(
        (fs.attrs(whiteout).expect("there").mode, fs.attrs(whiteout).expect("there").rdev),
        (0o02_0000, (0, 0))
    );
    assert!(matches!(fs.rmdir(root, b"b"), Err(ZplError::NotEmpty { .. })));
    let (c, d) = (dir(&world, root, "c"), file(&world, root, "d"));
    assert!(matches!(fs.rename(root, b"d", root, b"c", RenameHow::Replace), Err(ZplError::WrongKind { .. })));
    assert!(matches!(fs.rename(root, b"c", root, b"d", RenameHow::Replace), Err(ZplError::WrongKind { .. })));
    fs.rename(root, b"b", root, b"c", RenameHow::Replace).expect("replaced");
    assert!(fs.attrs(c).is_err() && fs.attrs(d).is_ok());
    assert_eq!(fs.attrs(root).expect("there").links, 4);
    // Two names of one file: a rename has no effect.
    fs.link(d, root, b"e").expect("linked");
    fs.rename(root, b"d", root, b"e", RenameHow::Replace).expect("nothing");
    assert!(fs.lookup(root, b"d").expect("read").is_some());
    world.sync();
    assert_eq!(world.reopened().path_of(sub).expect("read"), Some(b"/c/moved".to_vec()));
}

#[test]
fn case_and_normalization_are_the_file_systems() {
    let new = NewFilesystem { case: CaseSensitivity::Insensitive, normalization: 0x10, ..Default::default() };
    let world = World::with(FsOptions::default(), &new, Limits::default());
    let fs = &world.fs;
    let root = fs.root();
    let id = file(&world, root, "Straße-É");
    assert_eq!(fs.lookup(root, "STRAßE-e\u{301}".as_bytes()).expect("read"), Some(id));
    let other = NewFile::of(FileKind::Regular, 0o644);
    assert!(matches!(fs.create(root, "straße-é".as_bytes(), &other), Err(ZplError::Exists { .. })));
    assert!(matches!(fs.create(root, b"\xFF", &other), Err(ZplError::InvalidName)));
    fs.rename(root, "straße-é".as_bytes(), root, "STRAßE-É".as_bytes(), RenameHow::Replace).expect("respelt");
    let names: Vec<_> = fs.read_dir(root, 0, 10).expect("read").into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["STRAßE-É".as_bytes()]);
    assert_eq!(fs.attrs(root).expect("there").size, 3);
    fs.unlink(root, "strasse".as_bytes()).expect_err("no such name");
    fs.unlink(root, "straße-é".as_bytes()).expect("removed");
}

#[test]
fn extended_attributes_in_both_forms() {
    let world = world();
    let fs = &world.fs;
    let id = file(&world, fs.root(), "f");
    let set = |name: &[u8], value: &[u8]| fs.set_xattr(id, name, value, XattrHow::Either).expect("set");
    set(b"user.a", b"1");
    set(b"user.empty", b"");
    assert!(matches!(fs.set_xattr(id, b"user.a", b"2", XattrHow::Create), Err(ZplError::XattrExists { .. })));
    assert!(matches!(fs.set_xattr(id, b"user.z", b"2", XattrHow::Replace), Err(ZplError::NoXattr { .. })));
    // Spilled, then too large for the packed list, then small again.
    set(b"user.large", &[7; 3000]);
    assert!(fs.node(id).expect("there").object().spill().expect("read").is_some());
    set(b"user.huge", &[8; 60_000]);
    assert!(fs.attrs(id).expect("there").xattr_dir.is_some());
    world.sync();
    let read = world.reopened();
    let node = read.node(id).expect("there");
    assert_eq!(node.xattr(b"user.huge").expect("read"), Some(vec![8; 60_000]));
    assert_eq!(node.xattr(b"user.large").expect("read"), Some(vec![7; 3000]));
    assert_eq!(node.xattr(b"user.empty").expect("read"), Some(Vec::new()));
    let hidden = node.xattr_directory().expect("read").expect("there");
    assert_eq!(
        (hidden.attrs().mode, hidden.attrs().flags & 0x145, hidden.attrs().size),
        (0o04_1777, 0x145, 3)
    );
    set(b"user.huge", b"small");
    set(b"user.large", b"small");
    for name in [&b"user.a"[..], b"user.empty"] {
        fs.remove_xattr(id, name).expect("removed");
    }
    world.sync();
    let read = world.reopened();
    let node = read.node(id).expect("there");
    assert!(node.object().spill().expect("read").is_none());
    let mut names = node.xattrs().expect("read");
    names.sort();
    assert_eq!(names, [&b"user.huge"[..], b"user.large"]);
    assert_eq!(node.xattr_directory().expect("read").expect("there").entry_count().expect("read"), 0);
    // Stored as files, and freed with their owner.
    fs.set_options(FsOptions { xattrs: XattrStorage::Directory, ..FsOptions::default() });
    set(b"user.huge", b"in a file");
    assert!(!fs.node(id).expect("there").packed_xattrs().expect("read").0.has("user.huge"));
    let hidden = fs.attrs(id).expect("there").xattr_dir.expect("there");
    fs.unlink(fs.root(), b"f").expect("removed");
    while !fs.drain(10).expect("drained") {}
    world.sync();
    assert!(world.reopened().node(hidden).is_err());
    assert!(world.reopened().unlinked().expect("set").is_empty());
}

#[test]
fn posix_lists_and_modes_say_the_same() {
    let world = World::new(FsOptions { posix_acls: true, ..FsOptions::default() });
    let fs = &world.fs;
    let entry = |who, perm| PosixEntry { who, perm };
    let list = |mask| {
        encode_posix(&[
            entry(PosixWho::UserObj, 7),
            entry(PosixWho::User(1001), 7),
            entry(PosixWho::GroupObj, 5),
            entry(PosixWho::Mask, mask),
            entry(PosixWho::Other, 0),
        ])
    };
    let d = dir(&world, fs.root(), "d");
    let access = POSIX_ACCESS.as_bytes();
    fs.set_xattr(d, access, &list(5), XattrHow::Either).expect("set");
    assert_eq!(fs.attrs(d).expect("there").mode, 0o04_0750);
    fs.set_attrs(d, &NewAttrs { mode: Some(0o711), ..Default::default() }).expect("changed");
    let now =
        format::acl::decode_posix(&fs.node(d).expect("there").xattr(access).expect("read").expect("there"));
    assert_eq!(now.expect("a list")[3], entry(PosixWho::Mask, 1));
    fs.set_xattr(d, POSIX_DEFAULT.as_bytes(), &list(6), XattrHow::Either).expect("set");
    let new = NewFile { umask: 0o077, ..NewFile::of(FileKind::Regular, 0o666) };
    let f = fs.create(d, b"f", &new).expect("made");
    assert_eq!(f.attrs.mode, 0o10_0660);
    assert!(fs.node(f.id).expect("there").xattr(access).expect("read").is_some());
    let sub = dir(&world, d, "sub");
    assert!(fs.node(sub).expect("there").xattr(POSIX_DEFAULT.as_bytes()).expect("read").is_some());
    let minimal =
        encode_posix(&[entry(PosixWho::UserObj, 6), entry(PosixWho::GroupObj, 4), entry(PosixWho::Other, 4)]);
    fs.set_xattr(f.id, access, &minimal, XattrHow::Either).expect("set");
    assert_eq!(fs.attrs(f.id).expect("there").mode, 0o10_0644);
    assert!(fs.node(f.id).expect("there").xattr(access).expect("read").is_none());
    world.sync();
    assert_eq!(world.reopened().node(f.id).expect("there").acl().expect("a list").aces[0].mask, 0x1E_019F);
}

#[test]
fn modes_owners_times_flags_and_projects() {
    let world = world();
    let fs = &world.fs;
    let f = file(&world, fs.root(), "f");
    let set = |new: NewAttrs| fs.set_attrs(f, &new);
    set(NewAttrs { mode: Some(0o6755), ..Default::default() }).expect("changed");
    let attrs = set(NewAttrs { uid: Some(7), gid: Some(8), project: Some(9), ..Default::default() })
        .expect("changed");
    assert_eq!((attrs.mode, attrs.uid, attrs.gid, attrs.projid), (0o10_0755, 7, 8, 9));
    set(NewAttrs { mode: Some(0o4755), ..Default::default() }).expect("changed");
    fs.write(f, 0, b"x", &WriteHow { clear_set_ids: true, ..Default::default() }).expect("written");
    assert_eq!(fs.attrs(f).expect("there").mode, 0o10_0755);
    set(NewAttrs { linux_flags: Some(0x10), ..Default::default() }).expect("immutable");
    assert!(fs.attrs(f).expect("there").flags & FLAG_IMMUTABLE != 0);
    assert!(matches!(fs.write(f, 0, b"y", &WriteHow::default()), Err(ZplError::NotPermitted { .. })));
    assert!(matches!(fs.unlink(fs.root(), b"f"), Err(ZplError::NotPermitted { .. })));
    assert!(matches!(
        set(NewAttrs { mode: Some(0), ..Default::default() }),
        Err(ZplError::NotPermitted { .. })
    ));
    assert!(set(NewAttrs { linux_flags: Some(0x8000), ..Default::default() }).is_err());
    set(NewAttrs { linux_flags: Some(0x20), ..Default::default() }).expect("append only");
    assert!(fs.write(f, 0, b"y", &WriteHow::default()).is_err());
    assert_eq!(fs.write(f, 0, b"y", &WriteHow { append: true, ..Default::default() }).expect("appended"), 1);
    set(NewAttrs { linux_flags: Some(0), ..Default::default() }).expect("free again");
    // A project that is passed on.
    let d = dir(&world, fs.root(), "d");
    let flags = NewAttrs { project: Some(77), linux_flags: Some(0x2000_0000), ..Default::default() };
    fs.set_attrs(d, &flags).expect("changed");
    let sub = dir(&world, d, "sub");
    let attrs = fs.attrs(sub).expect("there");
    assert_eq!((attrs.projid, attrs.flags & FLAG_PROJINHERIT), (77, FLAG_PROJINHERIT));
    assert!(matches!(
        fs.rename(fs.root(), b"f", d, b"f", RenameHow::Replace),
        Err(ZplError::OtherProject { .. })
    ));
    assert!(matches!(fs.link(f, d, b"f"), Err(ZplError::OtherProject { .. })));
    // Set-gid directories.
    fs.set_attrs(d, &NewAttrs { mode: Some(0o2755), gid: Some(55), ..Default::default() }).expect("changed");
    let sub = fs.create(d, b"sub2", &NewFile::of(FileKind::Directory, 0o700)).expect("made");
    assert_eq!((sub.attrs.mode, sub.attrs.gid), (0o04_2700, 55));
    world.sync();
    let read = world.reopened();
    assert_eq!(read.node(f).expect("there").attrs().projid, 9);
    let projects = read.space(SpaceKind::Project).expect("counted");
    assert_eq!(projects.iter().find(|row| row.id == 77).and_then(|row| row.objects), Some(3));
}

#[test]
fn dos_attributes_are_kept_and_some_bind() {
    let world = world();
    let fs = &world.fs;
    let f = file(&world, fs.root(), "f");
    let set = |flags| fs.set_attrs(f, &NewAttrs { dos_flags: Some(flags), ..Default::default() });
    let shown = || dos_flags(fs.attrs(f).expect("there").flags);
    assert_eq!(shown(), FLAG_ARCHIVE);
    let stored = FLAG_READONLY | FLAG_HIDDEN | FLAG_SYSTEM | FLAG_OFFLINE | FLAG_SPARSE;
    set(stored).expect("set");
    assert_eq!(shown(), stored);
    // Write permission is not checked in this layer.
    fs.write(f, 0, b"x", &WriteHow::default()).expect("written");
    assert_eq!(shown(), stored | FLAG_ARCHIVE);
    for no_flag in [FLAG_REPARSE, FLAG_PROJID, 1] {
        assert!(matches!(set(no_flag), Err(ZplError::Unsupported { .. })), "{no_flag:#x}");
    }
    set(FLAG_NOUNLINK | FLAG_NODUMP).expect("set");
    assert!(matches!(fs.unlink(fs.root(), b"f"), Err(ZplError::NotPermitted { .. })));
    set(FLAG_IMMUTABLE).expect("set");
    assert!(matches!(fs.write(f, 0, b"x", &WriteHow::default()), Err(ZplError::NotPermitted { .. })));
    world.sync();
    assert_eq!(dos_flags(world.reopened().node(f).expect("there").attrs().flags), FLAG_IMMUTABLE);
    set(0).expect("set");
    fs.unlink(fs.root(), b"f").expect("removed");
}

#[test]
fn attributes_in_files_go_to_the_project_of_their_owner() {
    let world = World::new(FsOptions { xattrs: XattrStorage::Directory, ..FsOptions::default() });
    let fs = &world.fs;
    let f = file(&world, fs.root(), "f");
    let put = |from: usize, to: usize| {
        for i in from..to {
            fs.set_xattr(f, format!("user.{i}").as_bytes(), b"value", XattrHow::Either).expect("set");
        }
    };
    let give = |project| {
        fs.set_attrs(f, &NewAttrs { project: Some(project), ..Default::default() }).expect("given");
        world.sync();
    };
    let objects = |project| {
        let rows = world.reopened().space(SpaceKind::Project).expect("counted");
        rows.iter().find(|row| row.id == project).and_then(|row| row.objects).unwrap_or(0)
    };
    // More attributes than are changed in one transaction.
    put(0, 150);
    give(7);
    assert_eq!(objects(7), 152);
    // New ones have no project until then, as in OpenZFS.
    put(150, 153);
    world.sync();
    assert_eq!(objects(7), 152);
    give(8);
    assert_eq!((objects(7), objects(8)), (0, 155));
}

#[test]
fn access_times_follow_the_property() {
    let world = world();
    let fs = &world.fs;
    let f = file(&world, fs.root(), "f");
    let time = || fs.attrs(f).expect("there").atime.secs;
    let start = time();
    let pass = |secs| world.clock.advance(std::time::Duration::from_secs(secs));
    pass(10);
    fs.accessed(f).expect("noted");
    assert_eq!(time(), start + 10);
    pass(10);
    fs.accessed(f).expect("noted");
    assert_eq!(time(), start + 10);
    pass(90_000);
    fs.accessed(f).expect("noted");
    assert_eq!(time(), start + 90_020);
    fs.set_options(FsOptions { access_times: AccessTimes::Never, ..FsOptions::default() });
    pass(90_000);
    fs.accessed(f).expect("noted");
    assert_eq!(time(), start + 90_020);
}

#[test]
fn quotas_stop_their_owners_only() {
    let mut world = world();
    let fs = std::sync::Arc::clone(&world.fs);
    fs.set_quota(SpaceKind::User, QuotaOf::Objects, 10, 3).expect("set");
    fs.set_quota(SpaceKind::Group, QuotaOf::Space, 20, 100_000).expect("set");
    let new = NewFile { uid: 10, ..NewFile::of(FileKind::Regular, 0o644) };
    let make = |name: &str, new: &NewFile<'_>| fs.create(fs.root(), name.as_bytes(), new);
    for i in 0..3 {
        make(&format!("a{i}"), &new).expect("made");
    }
    world.sync();
    assert!(matches!(make("a3", &new), Err(ZplError::OverQuota { kind: "user", id: 10 })));
    let grouped = NewFile { gid: 20, ..NewFile::of(FileKind::Regular, 0o644) };
    let f = make("b", &grouped).expect("another user").id;
    let mut noise = vec![0; 200_000];
    vdev::env::Random::from_seed(3).fill(&mut noise);
    write(&world, f, 0, &noise);
    world.sync();
    assert!(matches!(
        fs.write(f, 0, b"x", &WriteHow::default()),
        Err(ZplError::OverQuota { kind: "group", .. })
    ));
    fs.set_quota(SpaceKind::Group, QuotaOf::Space, 20, 0).expect("removed");
    write(&world, f, 0, b"x");
    fs.set_default_quota(SpaceKind::User, QuotaOf::Objects, 1).expect("set");
    world.sync();
    let again = world.remounted(FsOptions::default());
    assert!(matches!(again.create(again.root(), b"c", &new), Err(ZplError::OverQuota { .. })));
}

/// A user over the limit may still give a file to another user: only the new owner's limits count.
#[test]
fn limits_of_new_owners() {
    let world = world();
    let fs = &world.fs;
    let new = NewFile { uid: 10, gid: 20, ..NewFile::of(FileKind::Regular, 0o644) };
    let f = fs.create(fs.root(), b"f", &new).expect("made").id;
    world.sync();
    fs.set_quota(SpaceKind::User, QuotaOf::Objects, 10, 1).expect("set");
    fs.set_quota(SpaceKind::Group, QuotaOf::Objects, 21, 1).expect("set");
    let give = |new: NewAttrs| fs.set_attrs(f, &new);
    give(NewAttrs { uid: Some(10), gid: Some(21), ..NewAttrs::default() }).expect("nobody has one more");
    world.sync();
    let other = fs.create(fs.root(), b"g", &NewFile::of(FileKind::Regular, 0o644)).expect("made").id;
    for taken in
        [NewAttrs { uid: Some(10), ..NewAttrs::default() }, NewAttrs { gid: Some(21), ..NewAttrs::default() }]
    {
        assert!(matches!(fs.set_attrs(other, &taken), Err(ZplError::OverQuota { .. })), "{taken:?}");
    }
    give(NewAttrs { uid: Some(11), gid: Some(20), ..NewAttrs::default() }).expect("given away");
}

#[derive(Default)]
struct Records(Mutex<Vec<Body>>);

impl IntentLog for Records {
    fn log(&self, _: &Tx, record: Body) {
        self.0.lock().expect("nobody panics").push(record);
    }

    fn log_write(&self, _: &Tx, _: ObjectId, _: u64, _: LogData, _: Option<Time>) {}

    fn log_by_txg(&self, _: &Tx, _: ObjectId) {}
}

/// A program changed by a user other than its owner must not get its set-id bits back after a crash.
#[test]
fn cleared_set_id_bits_are_logged() {
    let world = world();
    let (fs, log) = (&world.fs, Arc::new(Records::default()));
    fs.set_log(Arc::clone(&log) as Arc<dyn IntentLog>);
    let modes = |change: &dyn Fn(ObjectId)| -> Vec<u64> {
        let name = format!("program{}", fs.read_dir(fs.root(), 0, 100).expect("readable").len());
        let new = NewFile::of(FileKind::Regular, 0o6755);
        let id = fs.create(fs.root(), name.as_bytes(), &new).expect("made").id;
        write(&world, id, 0, b"some bytes");
        log.0.lock().expect("nobody panics").clear();
        change(id);
        assert_eq!(fs.attrs(id).expect("there").mode & 0o7777, 0o755);
        let records = log.0.lock().expect("nobody panics");
        let mode = |body: &Body| match body {
            Body::SetAttr(set) if set.mask & 1 != 0 => Some(set.mode & 0o7777),
            _ => None,
        };
        records.iter().filter_map(mode).collect()
    };
    let how = WriteHow { clear_set_ids: true, ..WriteHow::default() };
    let overwrite = |id| fs.write(id, 0, b"other", &how).map(|_| ()).expect("written");
    assert_eq!(modes(&overwrite), [0o755]);
    assert_eq!(modes(&|id| fs.truncate(id, 3, true).expect("cut")), [0o755]);
    let cut = NewAttrs { size: Some(3), clear_set_ids: true, ..NewAttrs::default() };
    assert_eq!(modes(&|id| fs.set_attrs(id, &cut).map(|_| ()).expect("cut")), [0o755]);
}

/// A whiteout belongs to the project of a directory that passes its own on.
#[test]
fn whiteouts_inherit_the_project() {
    let world = world();
    let fs = &world.fs;
    let d = dir(&world, fs.root(), "d");
    let flags = NewAttrs { project: Some(7), linux_flags: Some(0x2000_0000), ..NewAttrs::default() };
    fs.set_attrs(d, &flags).expect("set");
    file(&world, d, "f");
    fs.rename(d, b"f", d, b"g", RenameHow::Whiteout { uid: 0, gid: 0 }).expect("moved");
    let whiteout = fs.lookup(d, b"f").expect("readable").expect("there");
    assert_eq!(fs.attrs(whiteout).expect("there").projid, 7);
}

#[test]
fn long_names_only_where_they_are_allowed() {
    let world = world();
    let fs = &world.fs;
    let new = NewFile::of(FileKind::Regular, 0o644);
    let long = [b'n'; 256];
    assert!(matches!(fs.create(fs.root(), &long, &new), Err(ZplError::NameTooLong { .. })));
    fs.set_options(FsOptions { long_names: true, ..FsOptions::default() });
    fs.create(fs.root(), &long, &new).expect("made");
    assert!(matches!(fs.create(fs.root(), b".zfs", &new), Err(ZplError::Exists { .. })));
    assert!(matches!(fs.create(fs.root(), b"a/b", &new), Err(ZplError::InvalidName)));
    assert!(matches!(fs.create(fs.root(), b"..", &new), Err(ZplError::Exists { .. })));
}

#[test]
fn a_large_file_is_freed_in_steps() {
    let world = World::new(FsOptions { record_size: 512, ..FsOptions::default() });
    let fs = &world.fs;
    let f = file(&world, fs.root(), "f");
    let data = vec![5; 1 << 20];
    for i in 0..40 {
        write(&world, f, i << 20, &data);
    }
    world.sync();
    fs.unlink(fs.root(), b"f").expect("removed");
    while !fs.drain(1).expect("drained") {}
    assert!(fs.attrs(f).is_err());
    world.sync();
    assert!(world.reopened().node(f).is_err());
}

#[test]
fn a_directory_of_many_entries() {
    let world = world();
    let fs = &world.fs;
    let d = dir(&world, fs.root(), "d");
    for i in 0..3000 {
        file(&world, d, &format!("name-of-a-file-{i}"));
        if i % 1000 == 999 {
            world.sync();
        }
    }
    for i in (0..3000).step_by(3) {
        fs.unlink(d, format!("name-of-a-file-{i}").as_bytes()).expect("removed");
    }
    world.sync();
    let node = world.reopened().node(d).expect("there");
    assert_eq!((node.entry_count().expect("read"), node.attrs().size), (2000, 2002));
    let mut count = 0;
    let mut cursor = 0;
    loop {
        let batch = fs.read_dir(d, cursor, 100).expect("read");
        let Some(last) = batch.last() else { break };
        cursor = last.cursor;
        count += batch.len();
    }
    assert_eq!(count, 2000);
}

/// A directory listing reads each entry once, however many fit into a page; and a listing during creations
/// and removals has each entry that existed all the time exactly once.
#[test]
fn pages_of_a_directory_that_is_changed_are_read_once() {
    let world = world();
    let fs = &world.fs;
    let d = dir(&world, fs.root(), "d");
    let stays: BTreeSet<Vec<u8>> = (0..3000).map(|i| format!("stays-{i}").into_bytes()).collect();
    // The directory changes from a micro ZAP to a fat ZAP while it is listed.
    for (made, room) in [(10, 20), (1500, 100), (2040, 640), (3000, 4000)] {
        let new = stays.iter().filter(|name| fs.lookup(d, name).expect("read").is_none());
        let new: Vec<&Vec<u8>> =
            new.take(made - fs.read_dir(d, 0, usize::MAX).expect("read").len()).collect();
        for name in new {
            file(&world, d, std::str::from_utf8(name).expect("text"));
        }
        let there: BTreeSet<Vec<u8>> =
            fs.read_dir(d, 0, usize::MAX).expect("read").into_iter().map(|entry| entry.name).collect();
        let (mut seen, mut cursor, mut round) = (Vec::new(), 0, 0);
        loop {
            let (mut asked, mut left) = (0, room);
            let mut takes = |name: usize| {
                asked += 1;
                let fits = name <= left;
                left = left.saturating_sub(name);
                fits
            };
            let page = fs.read_dir_page(d, cursor, &mut takes).expect("read");
            assert!(asked <= page.len() + 1, "{asked} were read for {} of a page", page.len());
            let Some(last) = page.len().checked_sub(1).and_then(|last| page.get(last)) else { break };
            cursor = last.cursor;
            for (name, entry) in page.iter() {
                assert_eq!(fs.lookup(d, name).expect("read"), Some(entry.id));
                seen.push(name.to_vec());
            }
            // Another program removes its files, and creates more.
            for i in 0..7 {
                if round > 0 {
                    fs.unlink(d, format!("goes-{}-{i}", round - 1).as_bytes()).expect("removed");
                }
                file(&world, d, &format!("goes-{round}-{i}"));
            }
            round += 1;
        }
        for i in 0..7 {
            fs.unlink(d, format!("goes-{}-{i}", round - 1).as_bytes()).expect("removed");
        }
        seen.retain(|name| name.starts_with(b"stays"));
        let once: BTreeSet<Vec<u8>> = seen.iter().cloned().collect();
        assert_eq!((seen.len(), once), (there.len(), there));
    }
}

/// A bonus as file systems before version 5 wrote it.
fn legacy_znode(mode: u64, size: u64, parent: u64, target: &[u8]) -> Vec<u8> {
    let mut raw = vec![0; 264];
    let mut put = |at: usize, value: u64| raw[at..at + 8].copy_from_slice(&value.to_le_bytes());
    for (i, at) in [0, 16, 32, 48].into_iter().enumerate() {
        put(at, 1_000_000 + i as u64);
    }
    for (at, value) in [(64, 5), (72, mode), (80, size), (88, parent), (96, 1), (128, 31), (136, 41)] {
        put(at, value);
    }
    // An ACL of the first version, with two entries inline: owner and everyone.
    put(184, 2);
    put(192, 0);
    raw[188..190].copy_from_slice(&0_u16.to_le_bytes());
    for (i, (flags, mask)) in [(0x1000_u16, 0x1E_01BF_u32), (0x4000, 0x12_0088)].into_iter().enumerate() {
        let at = 192 + 12 * i;
        raw[at + 4..at + 8].copy_from_slice(&mask.to_le_bytes());
        raw[at + 8..at + 10].copy_from_slice(&flags.to_le_bytes());
    }
    raw.extend(target);
    raw
}

#[test]
fn files_of_the_old_form_become_new_when_they_are_changed() {
    let world = world();
    let set = fs_set(&world);
    let tx = world.home.txgs.begin().expect("open");
    let root = world.fs.root();
    let old = |obj_type, bonus| NewObject::of(obj_type).with_bonus(ObjType::ZNODE, bonus);
    let file =
        set.allocate(&old(ObjType::PLAIN_FILE, legacy_znode(0o10_0640, 5, root.0, b"")), &tx).expect("made");
    file.write_at(0, b"12345", &tx).expect("written");
    let link = legacy_znode(0o12_0777, 6, root.0, b"target");
    let link = set.allocate(&old(ObjType::PLAIN_FILE, link), &tx).expect("made");
    let entries = set.object(root).expect("there").zap(&tx).expect("a directory");
    entries.insert(b"file", file.id().0 | 8 << 60).expect("named");
    entries.insert(b"link", link.id().0).expect("named");
    drop(entries);
    drop(tx);
    world.sync();
    let fs = &world.fs;
    assert_eq!(fs.attrs(file.id()).expect("there").uid, 31);
    fs.write(file.id(), 5, b"678", &WriteHow::default()).expect("written");
    fs.set_xattr(file.id(), b"user.a", b"b", XattrHow::Either).expect("set");
    fs.set_attrs(link.id(), &NewAttrs { uid: Some(99), ..Default::default() }).expect("changed");
    world.sync();
    let read = world.reopened();
    let node = read.node(file.id()).expect("there");
    assert_eq!(node.object().dnode().bonus_type, ObjType::SA);
    let attrs = node.attrs();
    assert_eq!((attrs.mode, attrs.size, attrs.uid, attrs.gid), (0o10_0640, 8, 31, 41));
    assert_eq!((attrs.generation, attrs.crtime.secs, attrs.atime.secs), (5, 1_000_003, 1_000_000));
    let acl = node.acl().expect("a list");
    assert_eq!(acl.aces.iter().map(|ace| ace.mask).collect::<Vec<_>>(), [0x1E_01BF, 0x12_0088]);
    let mut bytes = [0; 8];
    node.read_at(0, &mut bytes).expect("read");
    assert_eq!(&bytes, b"12345678");
    let node = read.node(link.id()).expect("there");
    assert_eq!((node.readlink().expect("a link"), node.attrs().uid), (b"target".to_vec(), 99));
}

fn fs_set(world: &World) -> std::sync::Arc<dmu::LiveSet> {
    std::sync::Arc::clone(world.fs.set())
}

#[test]
fn a_file_system_of_an_old_version_is_upgraded() {
    let mut world = world();
    let set = fs_set(&world);
    let root = world.fs.root();
    let tx = world.home.txgs.begin().expect("open");
    let master = set.object(ObjectId(1)).expect("there").zap(&tx).expect("a ZAP");
    master.update(b"VERSION", 4_u64).expect("changed");
    master.remove(b"SA_ATTRS").expect("removed");
    drop(master);
    let object = set.object(root).expect("there");
    object.set_bonus_type(ObjType::ZNODE, &tx);
    object.set_bonus(&legacy_znode(0o04_0755, 2, root.0, b""), &tx);
    drop(tx);
    world.sync();
    let home = std::sync::Arc::clone(&world.home) as std::sync::Arc<dyn cenote_zpl::Backing>;
    let refused = cenote_zpl::Fs::open(home, FsOptions::default(), &world.env);
    assert!(matches!(refused, Err(ZplError::Version { version: 4, .. })));
    let tx = world.home.txgs.begin().expect("open");
    cenote_zpl::upgrade_filesystem(&set, &world.env, &tx).expect("upgraded");
    drop(tx);
    world.sync();
    let fs = world.remounted(FsOptions::default());
    let id = file(&world, fs.root(), "new");
    world.sync();
    let read = world.reopened();
    assert_eq!(read.version(), 5);
    assert_eq!(read.lookup(&read.node(root).expect("there"), b"new").expect("read"), Some(id));
    assert_eq!(read.node(root).expect("there").attrs().size, 3);
}

#[test]
fn sizes_are_reported_and_projects_bounded() {
    let world = world();
    let fs = &world.fs;
    let d = dir(&world, fs.root(), "d");
    fs.set_attrs(d, &NewAttrs { project: Some(5), linux_flags: Some(0x2000_0000), ..Default::default() })
        .expect("set");
    fs.set_quota(SpaceKind::Project, QuotaOf::Space, 5, 1 << 20).expect("set");
    world.sync();
    let stats = fs.stats(1000, 1 << 30, fs.root()).expect("reported");
    assert_eq!((stats.block_size, stats.blocks, stats.blocks_free), (4096, 262_145, 262_144));
    assert_eq!((stats.files_free, stats.files), (1 << 21, (1 << 21) + fs.set().object_count()));
    let in_project = fs.stats(1000, 1 << 30, d).expect("reported").blocks_free;
    assert!((200..256).contains(&in_project), "{in_project} units of a mebibyte");
}

#[test]
fn a_file_that_lost_its_name_is_kept_and_its_times_are_only_in_memory() {
    let world = world();
    let fs = &world.fs;
    let id = file(&world, fs.root(), "f");
    write(&world, id, 0, &[1; 100]);
    let kept = fs.unlink_kept(fs.root(), b"f").expect("removed").expect("kept");
    assert_eq!((kept.id(), kept.attrs().links), (id, 0));
    world.sync();
    let when = format::znode::Time { secs: 7, nanos: 8 };
    let times = NewAttrs { mtime: Some(when), ctime: Some(when), ..NewAttrs::default() };
    let version = fs.set().object(id).expect("there").version();
    assert_eq!(fs.set_attrs(id, &times).expect("set").mtime, when);
    assert_eq!((fs.attrs(id).expect("there").ctime, kept.attrs().mtime), (when, when));
    assert_eq!(fs.set().object(id).expect("there").version(), version, "nothing is written for it");
    let cut = NewAttrs { size: Some(10), ..times };
    assert_eq!(fs.set_attrs(id, &cut).expect("cut").size, 10);
    drop(kept);
    assert!(matches!(fs.attrs(id), Err(ZplError::Stale { .. })));
    assert!(matches!(fs.unlink_kept(fs.root(), b"f"), Err(ZplError::NotFound { .. })));

    let sub = dir(&world, fs.root(), "d");
    let kept = fs.rmdir_kept(fs.root(), b"d").expect("removed").expect("kept");
    assert_eq!(fs.attrs(sub).expect("kept").links, 0);
    drop(kept);
    assert!(matches!(fs.attrs(sub), Err(ZplError::Stale { .. })));
}

#[test]
fn what_a_rename_replaces_is_kept() {
    let world = world();
    let (fs, root) = (&world.fs, world.fs.root());
    let [a, b] = ["a", "b"].map(|name| file(&world, root, name));
    let kept = fs.rename_kept((root, b"a"), (root, b"b"), RenameHow::Replace).expect("moved").expect("kept");
    assert_eq!((kept.id(), fs.attrs(b).expect("kept").links), (b, 0));
    drop(kept);
    assert!(matches!(fs.attrs(b), Err(ZplError::Stale { .. })));
    assert_eq!(fs.lookup(root, b"b").expect("looked up"), Some(a));
    assert!(fs.rename_kept((root, b"b"), (root, b"c"), RenameHow::Replace).expect("moved").is_none());
    // Directories: the replaced one is locked too, and may be the one that is moved from.
    let [d, e] = ["d", "e"].map(|name| dir(&world, root, name));
    let kept = fs.rename_kept((root, b"d"), (root, b"e"), RenameHow::Replace).expect("moved").expect("kept");
    assert_eq!((kept.id(), fs.lookup(root, b"e").expect("looked up")), (e, Some(d)));
    drop(kept);
    let f = file(&world, d, "f");
    let refused = fs.rename_kept((d, b"f"), (root, b"e"), RenameHow::Replace);
    assert!(matches!(refused, Err(ZplError::WrongKind { .. })));
    assert_eq!(fs.lookup(d, b"f").expect("looked up"), Some(f));
}

/// Number of objects on disk.
fn objects(world: &World) -> usize {
    let read = world.reopened();
    let (mut count, mut from) = (0, ObjectId(1));
    while let Some(object) = read.objset().next_object(from).expect("readable") {
        (count, from) = (count + 1, ObjectId(object.id().0 + 1));
    }
    count
}

#[test]
fn a_name_that_is_taken_costs_no_object() {
    let world = world();
    let fs = &world.fs;
    let id = file(&world, fs.root(), "f");
    world.sync();
    let before = objects(&world);
    for kind in [FileKind::Regular, FileKind::Directory] {
        let again = fs.create(fs.root(), b"f", &NewFile::of(kind, 0o644));
        assert!(matches!(again, Err(ZplError::Exists { .. })));
    }
    world.sync();
    assert_eq!(objects(&world), before);
    assert_eq!(fs.lookup(fs.root(), b"f").expect("looked up"), Some(id));
}

#[test]
fn attributes_are_found_wherever_they_are() {
    for xattrs in [XattrStorage::SystemAttributes, XattrStorage::Directory] {
        let world = World::new(FsOptions { xattrs, ..FsOptions::default() });
        let fs = &world.fs;
        let id = file(&world, fs.root(), "f");
        let has = |name: &[u8]| fs.xattr(id, name).expect("asked").map(|value| value.len());
        assert_eq!(has(b"security.capability"), None);
        // One that fits beside the others, and one that does not.
        for (name, len) in [(&b"user.a"[..], 10), (b"user.b", 3000)] {
            fs.set_xattr(id, name, &vec![7; len], XattrHow::Create).expect("set");
            assert_eq!(has(name), Some(len), "{xattrs:?}");
        }
        fs.forget();
        assert_eq!(
            (has(b"user.a"), has(b"user.b"), has(b"user.c")),
            (Some(10), Some(3000), None),
            "{xattrs:?}"
        );
    }
}

/// A clone table that counts no references.
struct Uncounted;

impl CloneTable for Uncounted {
    fn note_source(&self, _: u64, _: &Tx) {}

    fn add(&self, _: &[BlockPtr], _: &Tx) -> Result<(), ZplError> {
        Ok(())
    }
}

/// Readers see the blocks of a txg as soon as they are written. The log would contain pointers to them, and
/// after a crash before the txg is on disk that record and all later ones could not be replayed.
#[test]
fn blocks_are_cloned_when_their_txg_is_on_disk() {
    let world = world();
    let fs = &world.fs;
    let [source, target] = [b"source", b"target"]
        .map(|name| fs.create(fs.root(), name, &NewFile::of(FileKind::Regular, 0o644)).expect("made").id);
    fs.write(source, 0, &[7; 256 << 10], &WriteHow::default()).expect("written");
    let range = |id| FileRange { id, offset: 0 };
    let clone = || fs.clone_range(fs, range(source), range(target), 256 << 10, &Uncounted);
    assert!(matches!(clone(), Err(ZplError::NotYetWritten { .. })), "in memory");
    sync_and(&world.store, &world.home, || {
        assert!(matches!(clone(), Err(ZplError::NotYetWritten { .. })), "written, but not yet in the pool");
    });
    assert_eq!(clone().expect("in the pool"), 256 << 10);
}

/// A replay does exactly what a record says: set-id bits that were cleared with the owner used to stay, and
/// the mtime of a new size was that of the record, which had none.
#[test]
fn records_hold_what_changed_along() {
    let world = world();
    let fs = &world.fs;
    let file = NewFile::of(FileKind::Regular, 0o6755);
    let id = fs.create(fs.root(), b"f", &file).expect("made").id;
    let records = Arc::new(Records::default());
    fs.set_log(Arc::clone(&records) as Arc<dyn IntentLog>);
    let last = || match records.0.lock().expect("nobody panics").pop() {
        Some(Body::SetAttr(set)) => (set.mask, set.mode, Time::from_words([set.mtime.secs, set.mtime.nanos])),
        other => panic!("{other:?}"),
    };
    let mtime = || fs.attrs(id).expect("there").mtime;
    let later = || world.clock.advance(std::time::Duration::new(3, 5));
    let set_ids = || fs.set_attrs(id, &NewAttrs { mode: Some(0o6755), ..NewAttrs::default() }).map(drop);

    fs.set_attrs(id, &NewAttrs { uid: Some(5), gid: Some(6), ..NewAttrs::default() }).expect("given away");
    assert_eq!(last(), (mask::UID | mask::GID | mask::MODE, 0o755, mtime()));
    set_ids().expect("set");
    later();
    let cut = NewAttrs { size: Some(0), clear_set_ids: true, ..NewAttrs::default() };
    fs.set_attrs(id, &cut).expect("cut");
    assert_eq!(last(), (mask::SIZE | mask::MODE | mask::MTIME, 0o755, mtime()));
    set_ids().expect("set");
    later();
    fs.truncate(id, 100, true).expect("grown");
    assert_eq!(last(), (mask::MODE | mask::MTIME, 0o755, mtime()));
    later();
    fs.fallocate(id, 10, 20, Allocate::Punch).expect("punched");
    assert_eq!(last(), (mask::MTIME, 0o755, mtime()));
}
