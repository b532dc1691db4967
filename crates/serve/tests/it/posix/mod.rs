//! A mount behaves like other file systems: tables of calls are run in it and in a folder of this machine
//! (ext4, XFS, btrfs or tmpfs), by root and by other users, and each outcome must be the same.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // The tests use the mount as any program would.

mod around;
mod control;
mod fsx;
mod mounted_pool;
mod random;
mod rights;
mod run;
mod stress;
mod tables;
use mounted_pool::MountedPool;
use random::Chance;
use run::Runner;
use std::path::Path;

/// Properties `xattr=sa` and `acltype=posix`.
const PROPERTIES: [(&str, u64); 2] = [("xattr", 2), ("acltype", 1)];

const GROUP_BIT: &str =
    "FUSE: the bit, with which nothing is run, stays when the kernel keeps what is written";

/// Lines of tables for which file systems of the machine differ among themselves, or from ZFS: table, line,
/// and reason.
const DIFFERENT: &[(&str, usize, &str)] = &[
    ("truncate and sizes", 4, "files of ZFS may have that size"),
    ("set-id bits without a change", 18, "FUSE: this call is not told from the end of somebody's write"),
    ("holes and copies", 5, "holes are whole records"),
    ("set-id bits of written files", 20, GROUP_BIT),
    ("set-group-id bits that nobody executes", 6, GROUP_BIT),
    ("set-group-id bits that nobody executes", 30, GROUP_BIT),
];

/// The outcomes of the lines of a table, in an empty folder that every user may enter.
fn outcomes(root: &Path, table: &str) -> Vec<String> {
    std::fs::create_dir(root).unwrap();
    rustix::fs::chmod(root, rustix::fs::Mode::from_raw_mode(0o777)).unwrap();
    let mut runner = Runner::new(root);
    table.lines().filter(|line| !line.is_empty()).map(|line| runner.run(line)).collect()
}

/// Runs tables in a mount and beside it.
fn compare(home: &MountedPool, tables: &[(&str, &str)]) {
    let beside = home.beside().join("reference");
    std::fs::create_dir(&beside).unwrap();
    let mut wrong = Vec::new();
    for (at, (name, table)) in tables.iter().enumerate() {
        let ours = outcomes(&home.at().join(format!("table{at}")), table);
        let theirs = outcomes(&beside.join(format!("table{at}")), table);
        let lines = table.lines().filter(|line| !line.is_empty());
        for (number, (line, (ours, theirs))) in lines.zip(ours.iter().zip(&theirs)).enumerate() {
            let is_known = DIFFERENT.iter().any(|(table, known, _)| (*table, *known) == (*name, number + 1));
            if ours != theirs && !is_known {
                wrong.push(format!("{name}, {}: {line}\n    here:  {ours}\n    there: {theirs}", number + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        testkit::skip("only root can act as several users");
    }
    is_root
}

/// Makes all calls of the tables in a mount and beside it, after something else was done there.
fn compare_tables(writeback: bool, before: impl FnOnce(&MountedPool)) {
    if !is_root() {
        return;
    }
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let Some(home) = MountedPool::new(512, &PROPERTIES, writeback) else { return };
    before(&home);
    compare(&home, tables::TABLES);
    home.judge();
}

#[test]
fn calls_have_the_outcomes_that_they_have_elsewhere() {
    compare_tables(true, |_| ());
}

#[test]
fn the_same_with_writes_through_the_cache() {
    compare_tables(false, |_| ());
}

/// After many files were made, further files are made and opened by separate requests.
#[test]
fn the_same_where_many_files_were_made_before() {
    compare_tables(false, |home| around::make_many(&home.at()));
}

/// Runs lines by chance in a mount and beside it, and looks at all files now and then.
fn compare_by_chance(home: &MountedPool, seed: u64, lines: u64) {
    let (ours, theirs) =
        (home.at().join(format!("chance{seed}")), home.beside().join(format!("chance{seed}")));
    for root in [&ours, &theirs] {
        std::fs::create_dir(root).unwrap();
        rustix::fs::chmod(root, rustix::fs::Mode::from_raw_mode(0o777)).unwrap();
    }
    let (mut here, mut there) = (Runner::new(&ours), Runner::new(&theirs));
    let mut chance = Chance::new(seed);
    let mut so_far = Vec::new();
    for number in 0..lines {
        let line = random::line(&mut chance);
        let looks = if number % 32 == 0 { random::state() } else { Vec::new() };
        for line in std::iter::once(line).chain(looks) {
            let (ours, theirs) = (here.run(&line), there.run(&line));
            so_far.push(format!("{line} -> {theirs}"));
            let last = so_far.len().saturating_sub(150);
            assert_eq!(ours, theirs, "seed {seed}: {line}, after\n{}", so_far[last..].join("\n"));
        }
    }
}

#[test]
fn calls_by_chance_have_the_outcomes_that_they_have_elsewhere() {
    if !is_root() {
        return;
    }
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let Some(home) = MountedPool::new(512, &PROPERTIES, true) else { return };
    for seed in 0..4 {
        compare_by_chance(&home, seed, 300);
    }
    home.judge();
}

#[test]
fn one_file_in_all_ways_is_what_its_model_is() {
    for (props, writeback) in [(("recordsize", 16_384), true), (("recordsize", 131_072), false)] {
        let Some(mut home) = MountedPool::new(1024, &[props], writeback) else { return };
        let left = fsx::run_many(&home, 0..3, 300);
        home.unmount();
        assert!(home.mount(writeback));
        left.check();
        home.judge();
    }
}

#[test]
fn many_programs_at_the_same_time() {
    for writeback in [true, false] {
        let Some(mut home) = MountedPool::new(1024, &[], writeback) else { return };
        let files = stress::run(&home.at(), 8, 150);
        stress::check(&home.at(), &files);
        home.unmount();
        assert!(home.mount(writeback));
        stress::check(&home.at(), &files);
        home.judge();
    }
}

/// Bytes that the file system says are taken, of those in an open file that was not synced.
fn taken_of_unsynced(home: &MountedPool) -> u64 {
    let free = || rustix::fs::statvfs(home.at()).map(|stats| stats.f_bfree * stats.f_bsize).unwrap();
    let before = free();
    let content: Vec<u8> = (0..8_u32 << 20).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let file = std::fs::File::create(home.at().join("open")).unwrap();
    std::io::Write::write_all(&mut &file, &content).unwrap();
    cenote_serve::fuse::write_back(&home.at()).unwrap();
    home.sync();
    drop(file);
    before.saturating_sub(free())
}

#[test]
fn what_programs_wrote_is_there_when_it_is_asked_for() {
    for writeback in [true, false] {
        let Some(home) = MountedPool::new(1024, &[("compression", 2)], writeback) else { return };
        let taken = taken_of_unsynced(&home);
        assert!(taken >= 8 << 20, "all of it was written back: {taken} bytes");
        home.judge();
    }
}

#[test]
fn who_writes_is_told_that_there_is_no_room() {
    use std::io::Write;
    let Some(home) = MountedPool::new(1024, &[("quota", 40 << 20), ("compression", 2)], true) else { return };
    let mut file = std::fs::File::create(home.at().join("large")).unwrap();
    let block = vec![0x5a; 1 << 20];
    let error = (0..100).find_map(|_| file.write_all(&block).err());
    let error = error.and_then(|error| error.raw_os_error());
    assert_eq!(error, Some(rustix::io::Errno::DQUOT.raw_os_error()));
    drop(file);
    std::fs::remove_file(home.at().join("large")).unwrap();
    home.judge();
}

#[test]
fn files_are_found_by_handles_as_long_as_they_are_there() {
    use cenote_serve::export::{Caller, Kind, NewNode};
    use cenote_serve::fuse::Service;
    use rustix::io::Errno;
    let Some(mut home) = MountedPool::new(256, &[], false) else { return };
    home.unmount();
    let live = home.service(false);
    let caller = Caller::default();
    let new = |kind| NewNode { kind, mode: 0o755, rdev: (0, 0), target: &[] };
    let dir = live.make(&caller, 1, b"d", &new(Kind::Directory)).unwrap().entry;
    let file = live.make(&caller, dir.node, b"f", &new(Kind::Regular)).unwrap().entry;
    let find =
        |node, name: &[u8]| live.lookup(&caller, node, name).map(|found| found.map(|known| known.entry));
    let same = |one: cenote_serve::export::Entry, other: cenote_serve::export::Entry| {
        (one.node, one.attr.generation) == (other.node, other.attr.generation)
    };
    assert!(same(find(file.node, b".").unwrap().unwrap(), file));
    assert!(same(find(dir.node, b".").unwrap().unwrap(), dir));
    assert_eq!(find(dir.node, b"..").unwrap().unwrap().node, 1);
    assert_eq!(find(1, b".").unwrap().unwrap().node, 1);
    live.unlink(&caller, dir.node, b"f").unwrap();
    live.forget(file.node, 2);
    assert_eq!(find(file.node, b".").map(drop), Err(Errno::STALE));
    assert_eq!(find(1 << 40, b".").map(drop), Err(Errno::STALE));
    drop(live);
    home.judge();
}

#[test]
fn a_file_without_a_name_stays_until_it_was_forgotten_as_often_as_it_was_told_of() {
    use cenote_serve::export::{Caller, Kind, NewNode};
    use cenote_serve::fuse::Service;
    use rustix::io::Errno;
    let Some(mut home) = MountedPool::new(256, &[], false) else { return };
    home.unmount();
    let live = home.service(false);
    let caller = Caller::default();
    let new = NewNode { kind: Kind::Regular, mode: 0o644, rdev: (0, 0), target: &[] };
    let file = live.make(&caller, 1, b"f", &new).unwrap().entry.node;
    // The kernel has dropped the file, and its FORGET is still on its way; then it looks the file up again,
    // opens it, and unlinks it.
    assert_eq!(live.lookup(&caller, 1, b"f").unwrap().unwrap().entry.node, file);
    live.unlink(&caller, 1, b"f").unwrap();
    live.forget(file, 1);
    assert_eq!(live.attr(file, None).map(|(attr, _)| attr.nlink), Ok(0));
    live.forget(file, 1);
    assert_eq!(live.attr(file, None).map(drop), Err(Errno::STALE));
    // A request to make an existing name has the kernel look again.
    live.make(&caller, 1, b"g", &new).unwrap();
    assert_eq!(live.make(&caller, 1, b"g", &new).map(drop), Err(Errno::STALE));
    drop(live);
    home.judge();
}

#[test]
fn a_pool_that_was_full_and_was_emptied_has_room() {
    let Some(home) = MountedPool::new(128, &[("compression", 2)], false) else { return };
    let room = || rustix::fs::statvfs(home.at()).unwrap();
    let all = room().f_bavail;
    assert_eq!((room().f_bsize, room().f_frsize), (4096, 4096));
    let mut file = std::fs::File::create(home.at().join("large")).unwrap();
    let block: Vec<u8> = (0..1_u32 << 20).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    while std::io::Write::write_all(&mut file, &block).is_ok() {}
    drop(file);
    home.sync();
    assert!(room().f_bavail < all / 10, "{} of {all} units", room().f_bavail);
    std::fs::remove_file(home.at().join("large")).unwrap();
    // No further changes. The kernel sends the close some time later.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while room().f_bavail <= all / 10 * 9 && std::time::Instant::now() < until {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(room().f_bavail > all / 10 * 9, "{} of {all} units", room().f_bavail);
    home.judge();
}

#[test]
fn names_of_extended_attributes_may_have_slashes() {
    for storage in [1, 2] {
        let Some(home) = MountedPool::new(256, &[("xattr", storage)], false) else { return };
        let file = home.at().join("f");
        std::fs::write(&file, "").unwrap();
        let flags = rustix::fs::XattrFlags::empty();
        for name in ["user.a/b", "user./", "user.plain"] {
            rustix::fs::setxattr(&file, name, name.as_bytes(), flags).unwrap();
        }
        let mut run = run::Runner::new(&home.at());
        assert_eq!(run.run("listx f"), "user./ user.a/b user.plain");
        assert_eq!(run.run("getx f user.a/b"), "8 user.a/b");
        assert_eq!(run.run("delx f user.a/b"), "ok");
        assert_eq!(run.run("listx f"), "user./ user.plain");
        assert!(run.run("setx f user.a/b @60000").ends_with(" 7"), "E2BIG");
        drop(run);
        home.judge();
    }
}

#[test]
fn more_than_there_is_cannot_be_reserved() {
    use rustix::fs::{FallocateFlags, fallocate};
    let Some(home) = MountedPool::new(256, &[("quota", 40 << 20)], false) else { return };
    let file = std::fs::File::create(home.at().join("file")).unwrap();
    for how in [FallocateFlags::empty(), FallocateFlags::KEEP_SIZE] {
        assert_eq!(fallocate(&file, how, 0, 100 << 20), Err(rustix::io::Errno::NOSPC));
    }
    assert_eq!(file.metadata().unwrap().len(), 0);
    fallocate(&file, FallocateFlags::empty(), 0, 20 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 20 << 20);
    drop(file);
    home.judge();
}

#[test]
fn dos_attributes_are_the_owners_and_roots() {
    use cenote_serve::export::{Caller, Kind, NewNode};
    use cenote_serve::fuse::Service;
    use rustix::io::Errno;
    const GET: u32 = 0x8008_8301;
    const SET: u32 = 0x4008_8302;
    let [readonly, archive, immutable, reparse] = [32, 35, 36, 43].map(|bit| 1u64 << bit);
    let Some(mut home) = MountedPool::new(256, &[], false) else { return };
    home.unmount();
    let live = home.service(false);
    let [root, owner, other] = [0, 1000, 1001].map(|uid| Caller { uid, ..Caller::default() });
    let new = NewNode { kind: Kind::Regular, mode: 0o666, rdev: (0, 0), target: &[] };
    let file = live.make(&owner, 1, b"f", &new).unwrap().entry.node;
    let get = || {
        let mut word = [0; 8];
        assert_eq!(live.ioctl(&other, file, GET, &[], &mut word), Ok(8));
        u64::from_ne_bytes(word)
    };
    let set = |who: &Caller, flags: u64| live.ioctl(who, file, SET, &flags.to_ne_bytes(), &mut []).map(drop);
    assert_eq!(get(), archive);
    assert_eq!(set(&owner, readonly), Ok(()));
    assert_eq!(get(), readonly);
    assert_eq!(set(&other, 0), Err(Errno::PERM));
    assert_eq!(set(&owner, immutable), Err(Errno::PERM));
    assert_eq!(set(&root, immutable), Ok(()));
    assert_eq!(set(&owner, 0), Err(Errno::PERM));
    assert_eq!(set(&root, 0), Ok(()));
    assert_eq!(set(&root, reparse), Err(Errno::OPNOTSUPP));
    assert_eq!(live.ioctl(&owner, file, SET, &[0; 4], &mut []), Err(Errno::INVAL));
    assert_eq!(live.ioctl(&owner, file, GET, &[], &mut [0; 4]), Err(Errno::INVAL));
    assert_eq!(get(), 0);
    drop(live);
    home.judge();
}

/// If the kernel caches writes, it knows data and the end of the file before the server does.
#[test]
fn what_the_kernel_keeps_is_found_by_seek() {
    use rustix::fs::{SeekFrom, ftruncate, seek};
    use rustix::io::Errno;
    const MIB: u64 = 1 << 20;
    let Some(home) = MountedPool::new(128, &[], true) else { return };
    let path = home.at().join("file");
    let file = std::fs::File::options().read(true).write(true).create_new(true).open(path).unwrap();
    rustix::io::pwrite(&file, &[7; 4096], MIB).unwrap();
    assert_eq!(seek(&file, SeekFrom::Data(0)), Ok(MIB));
    assert_eq!(seek(&file, SeekFrom::Hole(MIB)), Ok(MIB + 4096), "the end");
    ftruncate(&file, 8 * MIB).unwrap();
    rustix::io::pwrite(&file, &[7; 4096], 4 * MIB).unwrap();
    assert_eq!(seek(&file, SeekFrom::Data(2 * MIB)), Ok(4 * MIB));
    assert_eq!(seek(&file, SeekFrom::Data(5 * MIB)), Err(Errno::NXIO));
    assert_eq!(seek(&file, SeekFrom::Data(9 * MIB)), Err(Errno::NXIO), "behind the end");
    drop(file);
    home.judge();
}
