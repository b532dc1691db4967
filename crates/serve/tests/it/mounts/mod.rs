//! The table of mounts: file systems of a pool are mounted and used in this process.
#![allow(clippy::disallowed_types)] // The tests look at the mounts as any program would.

use crate::common::transports::transports;
use crate::common::{TestMounts, options};
use admin::edit;
use admin::verbs::{Code, Refused};
use admin::{ADMIN_SNAPSHOT, AccessTimes, MountError, MountOptions, Mounts, PoolVerbs, Unmount};
use cenote_serve::fuse::Transport;
use rustix::io::Errno;
use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

mod maps;

/// With file systems `p/a` and `p/a/b`, and folders `a` and `b`. `None`: it cannot be done here, which has
/// been said.
fn home() -> Option<TestMounts> {
    home_over(Transport::Classic)
}

/// The same, asked over this transport.
fn home_over(transport: Transport) -> Option<TestMounts> {
    let home = TestMounts::with(transport, &["p/a", "p/a/b"])?;
    home.folder("a");
    home.folder("b");
    Some(home)
}

/// A parameter of the process decides whether snapshots can be made in `.zfs`: tests that depend on it run
/// one after the other.
struct AdminSnapshot(#[allow(dead_code)] MutexGuard<'static, ()>);

impl AdminSnapshot {
    fn set(is_on: bool) -> AdminSnapshot {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(ADMIN_SNAPSHOT.set(u64::from(is_on)));
        AdminSnapshot(guard)
    }
}

impl Drop for AdminSnapshot {
    fn drop(&mut self) {
        let _ = ADMIN_SNAPSHOT.set(0);
    }
}

fn is_mounted(at: &Path) -> bool {
    fs::metadata(at).unwrap().dev() != fs::metadata(at.parent().unwrap()).unwrap().dev()
}

#[test]
fn what_is_mounted_is_listed_and_ends_when_asked() {
    let Some(home) = home() else { return };
    home.mount("p/a", "a", &options()).unwrap();
    assert!(matches!(home.mount("p/a", "b", &options()), Err(MountError::AlreadyMounted)));
    fs::write(home.path("a/file"), "text").unwrap();
    fs::create_dir(home.path("a/inner")).unwrap();
    home.mount("p/a/b", "a/inner", &options()).unwrap();
    fs::write(home.path("a/inner/deep"), "deeper").unwrap();
    let named: Vec<String> = home.table.list().into_iter().map(|mount| mount.dataset).collect();
    assert_eq!(named, ["p/a", "p/a/b"]);
    // The parent is busy while a file system is mounted in it.
    assert!(matches!(home.table.unmount("p/a", Unmount::Normal), Err(MountError::Busy { .. })));
    home.table.unmount("p/a/b", Unmount::Normal).unwrap();
    home.table.unmount("p/a", Unmount::Normal).unwrap();
    assert!(matches!(home.table.unmount("p/a", Unmount::Normal), Err(MountError::NotMounted)));
    assert!(!is_mounted(&home.path("a")));
    // All written data are in the pool.
    let again = home.pool().view().unwrap().dataset("p/a/b").unwrap().filesystem().unwrap();
    assert_eq!(again.open(b"/deep").unwrap().attrs().size, 6);
    fs::write(home.path("a/in the way"), "").unwrap();
    assert!(matches!(home.mount("p/a", "a", &options()), Err(MountError::NotEmpty)));
    home.mount("p/a", "a", &MountOptions { overlay: true, ..options() }).unwrap();
    assert_eq!(fs::read_to_string(home.path("a/file")).unwrap(), "text");
}

/// Where a dataset is, oldest place first.
fn places(home: &TestMounts, dataset: &str) -> Vec<PathBuf> {
    let list = home.table.list().into_iter().filter(|mount| mount.dataset == dataset);
    list.map(|mount| mount.at).collect()
}

fn umount(at: &Path) {
    assert!(Command::new("umount").arg(at).status().unwrap().success());
}

#[test]
fn a_file_system_is_the_same_in_each_of_its_places() {
    let Some(home) = home() else { return };
    if !rustix::process::geteuid().is_root() {
        return testkit::skip("only root mounts in a second place");
    }
    let [a, b, c] = ["a", "b", "c"].map(|name| home.path(name));
    fs::create_dir(&c).unwrap();
    assert!(matches!(home.table.mount_beside("p/a", &b, &options()), Err(MountError::NotMounted)));
    home.mount("p/a", "a", &options()).unwrap();
    home.table.mount_beside("p/a", &b, &MountOptions { exec: false, ..options() }).unwrap();
    assert!(matches!(home.table.mount_beside("p/a", &b, &options()), Err(MountError::AlreadyMounted)));
    let read_only = MountOptions { read_only: true, ..options() };
    assert!(matches!(home.table.mount_beside("p/a", &c, &read_only), Err(MountError::Busy { .. })));
    assert_eq!(places(&home, "p/a"), [a.clone(), b.clone()]);
    fs::write(a.join("file"), "text").unwrap();
    assert_eq!(fs::read_to_string(b.join("file")).unwrap(), "text");
    assert_eq!(fs::metadata(a.join("file")).unwrap().ino(), fs::metadata(b.join("file")).unwrap().ino());
    // One place is unmounted alone; a program with an open file in the other place does not notice.
    let mut open = fs::File::open(b.join("file")).unwrap();
    home.table.unmount_from("p/a", &a, Unmount::Normal).unwrap();
    assert!(!is_mounted(&a));
    assert_eq!((places(&home, "p/a"), home.table.mounted("p/a").unwrap().at), (vec![b.clone()], b.clone()));
    assert!(matches!(home.table.unmount_from("p/a", &a, Unmount::Normal), Err(MountError::NotMounted)));
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "text");
    // A mount that is in use in one place stays in all.
    home.table.mount_beside("p/a", &c, &options()).unwrap();
    assert!(matches!(home.table.unmount("p/a", Unmount::Normal), Err(MountError::Busy { .. })));
    assert_eq!(places(&home, "p/a"), [b.clone(), c.clone()]);
    assert_eq!(fs::read_to_string(c.join("file")).unwrap(), "text");
    drop(open);
    // Another program unmounts it.
    umount(&b);
    assert_eq!(places(&home, "p/a"), *std::slice::from_ref(&c));
    home.table.mount_beside("p/a", &a, &options()).unwrap();
    home.table.unmount("p/a", Unmount::Normal).unwrap();
    assert!(!is_mounted(&a) && !is_mounted(&c) && home.table.list().is_empty());
    let again = home.pool().view().unwrap().dataset("p/a").unwrap().filesystem().unwrap();
    assert_eq!(again.open(b"/file").unwrap().attrs().size, 4);
}

#[test]
fn what_was_mounted_by_hand_is_remembered_until_somebody_unmounts_it() {
    let Some(home) = home() else { return };
    if !rustix::process::geteuid().is_root() {
        return testkit::skip("only root mounts by hand");
    }
    let by_hand = MountOptions {
        by_hand: true,
        read_only: true,
        temporary: vec![("readonly".into(), "on".into()), ("exec".into(), "off".into())],
        ..options()
    };
    let known = || home.table.by_hand().into_iter().map(|was| (was.dataset, was.at)).collect::<Vec<_>>();
    let (a, b) = (home.path("a"), home.path("b"));
    home.mount("p/a", "a", &by_hand).unwrap();
    home.table.mount_beside("p/a", &b, &by_hand).unwrap();
    assert_eq!(home.table.by_hand()[0].temporary, by_hand.temporary);
    umount(&a);
    assert_eq!(places(&home, "p/a"), *std::slice::from_ref(&b));
    assert_eq!(known(), [("p/a".to_owned(), b.clone())]);
    home.table.renamed("p/a", "p/r");
    assert_eq!(known(), [("p/r".to_owned(), b.clone())]);
    home.table.renamed("p/r", "p/a");
    home.table.unmount("p/a", Unmount::Normal).unwrap();
    assert_eq!(known(), []);
    home.mount("p/a", "a", &by_hand).unwrap();
    home.table.leaving();
    home.table.unmount("p/a", Unmount::Normal).unwrap();
    assert_eq!(known(), [("p/a".to_owned(), a.clone())], "it is to be there again");
    home.table.not_by_hand(&a);
    assert_eq!(known(), []);
}

#[test]
fn who_uses_a_mount_is_named_and_thrown_out_by_force() {
    let Some(home) = home() else { return };
    home.mount("p/a", "a", &options()).unwrap();
    fs::write(home.path("a/file"), "text").unwrap();
    let mut child =
        Command::new("sleep").arg("1000").current_dir(home.path("a")).stdin(Stdio::null()).spawn().unwrap();
    match home.table.unmount("p/a", Unmount::Normal) {
        Err(MountError::Busy { by, .. }) => {
            assert!(by.iter().any(|(pid, name)| *pid == child.id() && name == "sleep"), "{by:?}");
        }
        other => panic!("{other:?}"),
    }
    let mut open = fs::File::options().read(true).write(true).open(home.path("a/file")).unwrap();
    open.write_all(b"last words").unwrap();
    home.table.unmount("p/a", Unmount::Force).unwrap();
    assert!(!is_mounted(&home.path("a")));
    let mut text = String::new();
    assert!(open.read_to_string(&mut text).is_err());
    child.kill().unwrap();
    child.wait().unwrap();
    home.mount("p/a", "a", &options()).unwrap();
    assert_eq!(fs::read_to_string(home.path("a/file")).unwrap(), "last words");
}

/// Makes `at`, and bind-mounts `from` there.
fn bind(from: &Path, at: &Path) {
    fs::create_dir_all(at).unwrap();
    assert!(Command::new("mount").arg("--bind").arg(from).arg(at).status().unwrap().success());
}

#[test]
fn what_programs_have_bound_elsewhere_is_busy() {
    if !rustix::process::geteuid().is_root() {
        return testkit::skip("only root can bind");
    }
    let Some(home) = home() else { return };
    home.mount("p/a", "a", &options()).unwrap();
    fs::create_dir(home.path("a/sub")).unwrap();
    for (from, at) in [("a/sub", "elsewhere"), ("a", "whole"), ("a", "a")] {
        let at = home.path(at);
        bind(&home.path(from), &at);
        let mut open = fs::File::create(home.path("a/sub/file")).unwrap();
        for _ in 0..2 {
            match home.table.unmount("p/a", Unmount::Normal) {
                Err(MountError::Busy { also_at, .. }) => assert_eq!(also_at, [at.as_path()], "{from}"),
                other => panic!("{from}: {other:?}"),
            }
        }
        open.write_all(b"goes on").unwrap();
        open.sync_all().unwrap();
        drop(open);
        assert_eq!(fs::read_to_string(home.path("a/sub/file")).unwrap(), "goes on");
        umount(&at);
    }
    home.table.unmount("p/a", Unmount::Normal).unwrap();
}

#[test]
fn a_copy_that_goes_with_a_mount_does_not_keep_it() {
    if !rustix::process::geteuid().is_root() {
        return testkit::skip("only root can bind");
    }
    let Some(home) = home() else { return };
    let (tree, copy) = (home.path("tree"), home.path("copy"));
    fs::create_dir_all(tree.join("a")).unwrap();
    bind(&tree, &tree);
    assert!(Command::new("mount").arg("--make-shared").arg(&tree).status().unwrap().success());
    bind(&tree, &copy);
    home.mount("p/a", "tree/a", &options()).unwrap();
    let is_copied = is_mounted(&home.path("copy/a"));
    let ended = home.table.unmount("p/a", Unmount::Normal);
    let is_left = is_mounted(&home.path("copy/a"));
    umount(&copy);
    umount(&tree);
    assert!(is_copied && ended.is_ok() && !is_left, "{is_copied} {ended:?} {is_left}");
}

#[test]
fn what_somebody_else_unmounts_is_noticed() {
    let Some(home) = home() else { return };
    home.mount("p/a", "a", &options()).unwrap();
    let status = if rustix::process::geteuid().is_root() {
        Command::new("umount").arg(home.path("a")).status().unwrap()
    } else {
        Command::new("fusermount3").arg("-u").arg(home.path("a")).status().unwrap()
    };
    assert!(status.success());
    while !home.table.list().is_empty() {
        std::thread::yield_now();
    }
    home.mount("p/a", "a", &options()).unwrap();
}

#[test]
fn options_change_in_place() {
    let Some(home) = home() else { return };
    if !rustix::process::geteuid().is_root() {
        return testkit::skip("only root changes options in place");
    }
    home.mount("p/a", "a", &options()).unwrap();
    fs::write(home.path("a/file"), "text").unwrap();
    home.table.remount("p/a", &MountOptions { read_only: true, exec: false, ..options() }).unwrap();
    assert_eq!(
        fs::write(home.path("a/other"), "").unwrap_err().raw_os_error(),
        Some(Errno::ROFS.raw_os_error())
    );
    let here = home.path("a").display().to_string();
    let flags = |text: &str| {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let line = mounts.lines().find(|line| line.split(' ').nth(1) == Some(here.as_str())).unwrap();
        line.split(' ').nth(3).unwrap().split(',').any(|word| word == text)
    };
    assert!(flags("ro") && flags("noexec") && !flags("nosuid"));
    home.table.remount("p/a", &options()).unwrap();
    fs::write(home.path("a/other"), "").unwrap();
    assert!(flags("rw") && !flags("noexec"));
    let mount = home.table.list().remove(0);
    assert_eq!((mount.at, mount.options), (home.path("a"), options()));
}

#[test]
fn contents_are_replaced_under_a_mount() {
    let Some(home) = home() else { return };
    home.mount("p/a", "a", &options()).unwrap();
    fs::write(home.path("a/kept"), "one").unwrap();
    fs::create_dir(home.path("a/dir")).unwrap();
    home.table.write_back("p/a").unwrap();
    home.pool().snapshot(&["p/a@1"]).unwrap();
    fs::write(home.path("a/kept"), "two, longer").unwrap();
    fs::write(home.path("a/new"), "new").unwrap();
    fs::write(home.path("a/dir/inner"), "inner").unwrap();
    let mut new = fs::File::open(home.path("a/new")).unwrap();
    let mut kept = fs::File::open(home.path("a/kept")).unwrap();
    let standing = rustix::fs::open(
        home.path("a/dir"),
        rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::RDONLY,
        rustix::fs::Mode::empty(),
    )
    .unwrap();
    assert_eq!(fs::read_to_string(home.path("a/kept")).unwrap(), "two, longer");

    let mut paused = home.table.suspend("p/a").unwrap().expect("mounted");
    home.pool().rollback("p/a@1").unwrap();
    paused.replaced();
    drop(paused);

    assert_eq!(fs::read_to_string(home.path("a/kept")).unwrap(), "one");
    assert_eq!(fs::metadata(home.path("a/new")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    assert_eq!(fs::read_dir(home.path("a/dir")).unwrap().count(), 0);
    let mut text = String::new();
    assert!(new.read_to_string(&mut text).is_err(), "a file that is no more: {text:?}");
    kept.read_to_string(&mut text).unwrap();
    assert_eq!(text, "one");
    let inner = rustix::fs::statat(&standing, "inner", rustix::fs::AtFlags::empty());
    assert_eq!(inner.err(), Some(Errno::NOENT));
    fs::write(home.path("a/later"), "works").unwrap();
    assert_eq!(fs::read_to_string(home.path("a/later")).unwrap(), "works");
}

/// A rollback may be refused when the mount is suspended already.
#[test]
fn contents_that_were_not_replaced_are_what_they_were() {
    for transport in transports() {
        let Some(home) = home_over(transport) else { return };
        home.mount("p/a", "a", &options()).unwrap();
        let file = home.path("a/file");
        fs::write(&file, vec![1; 1 << 20]).unwrap();
        let open = fs::File::options().read(true).write(true).open(&file).unwrap();
        // It has no name any more.
        let nameless = home.path("a/nameless");
        fs::write(&nameless, "text").unwrap();
        let mut unlinked = fs::File::options().read(true).write(true).open(&nameless).unwrap();
        fs::remove_file(nameless).unwrap();
        for round in 2..8_u8 {
            std::thread::scope(|scope| {
                let paused = home.table.suspend("p/a").unwrap().expect("mounted");
                let writer =
                    scope.spawn(|| std::os::unix::fs::FileExt::write_all_at(&open, &[round; 1 << 20], 0));
                // The kernel has some of the written data, and some requests wait.
                std::thread::sleep(std::time::Duration::from_millis(20));
                drop(paused);
                writer.join().unwrap().unwrap();
            });
            open.sync_all().unwrap();
            assert!(fs::read(&file).unwrap() == vec![round; 1 << 20], "{transport:?}, round {round}");
            let mut text = String::new();
            std::io::Seek::rewind(&mut unlinked).unwrap();
            unlinked.read_to_string(&mut text).unwrap();
            assert_eq!(text, "text");
            unlinked.sync_all().unwrap();
        }
        drop(unlinked);
    }
}

/// With `zfs rename -u` at the same time.
#[test]
fn a_mount_that_got_another_name_while_it_was_let_go_of_is_served_again() {
    let Some(home) = home() else { return };
    home.mount("p/a", "a", &options()).unwrap();
    fs::write(home.path("a/file"), "text").unwrap();
    for (from, to) in [("p/a", "p/c"), ("p/c", "p/a")] {
        let paused = home.table.suspend(from).unwrap().expect("mounted");
        home.pool().rename(from, to).unwrap();
        home.table.renamed(from, to);
        drop(paused);
        assert_eq!(fs::read_to_string(home.path("a/file")).unwrap(), "text");
        // The table is told later.
        let paused = home.table.suspend(to).unwrap().expect("mounted");
        home.pool().rename(to, from).unwrap();
        drop(paused);
        assert_eq!(fs::read_to_string(home.path("a/file")).unwrap(), "text");
        home.table.renamed(to, from);
        home.pool().rename(from, to).unwrap();
        home.table.renamed(from, to);
    }
}

/// With `zfs mount -a` at the same time: the mount waits for the name, and finds that the dataset is mounted.
#[test]
fn a_dataset_that_is_being_renamed_is_not_mounted_a_second_time() {
    let Some(home) = home() else { return };
    home.mount("p/a", "a", &options()).unwrap();
    let renamed = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        let second = scope.spawn(|| {
            renamed.wait();
            home.mount("p/c", "c", &options())
        });
        let held = home.table.hold_names("p").unwrap();
        home.pool().rename("p/a", "p/c").unwrap();
        renamed.wait();
        std::thread::sleep(std::time::Duration::from_millis(200));
        home.table.renamed("p/a", "p/c");
        drop(held);
        let second = second.join().unwrap();
        assert!(matches!(second, Err(MountError::AlreadyMounted)), "{second:?}");
    });
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let at = home.dir.path().to_str().unwrap().to_owned();
    assert_eq!(table.lines().filter(|line| line.contains(&at)).count(), 1, "{table}");
}

#[test]
fn what_is_mounted_below_stays_when_contents_are_replaced() {
    let Some(home) = home() else { return };
    home.mount("p/a", "a", &options()).unwrap();
    fs::create_dir_all(home.path("a/dir/inner")).unwrap();
    fs::write(home.path("a/file"), "one").unwrap();
    home.mount("p/a/b", "a/dir/inner", &options()).unwrap();
    fs::write(home.path("a/dir/inner/deep"), "deeper").unwrap();
    home.table.write_back("p/a").unwrap();
    home.pool().snapshot(&["p/a@1"]).unwrap();
    fs::write(home.path("a/file"), "two, longer").unwrap();
    fs::rename(home.path("a/file"), home.path("a/moved")).unwrap();
    let moved = fs::File::open(home.path("a/moved")).unwrap();

    let mut paused = home.table.suspend("p/a").unwrap().expect("mounted");
    home.pool().rollback("p/a@1").unwrap();
    paused.replaced();
    drop(paused);

    assert_eq!(fs::read_to_string(home.path("a/file")).unwrap(), "one");
    assert!(is_mounted(&home.path("a/dir/inner")));
    assert_eq!(fs::read_to_string(home.path("a/dir/inner/deep")).unwrap(), "deeper");
    // A name that was in use, and no longer exists.
    assert_eq!(fs::metadata(home.path("a/moved")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    drop(moved);
}

/// The kernel unmounts file systems from names that it is told to drop, including a folder that was looked up
/// before and is mounted on afterwards.
#[test]
fn what_is_being_mounted_while_contents_are_replaced_stays() {
    let Some(home) = home() else { return };
    if !rustix::process::geteuid().is_root() {
        return testkit::skip("only root mounts on a folder that is open");
    }
    home.mount("p/a", "a", &options()).unwrap();
    fs::create_dir(home.path("a/inner")).unwrap();
    fs::write(home.path("a/file"), "one").unwrap();
    home.table.write_back("p/a").unwrap();
    home.pool().snapshot(&["p/a@1"]).unwrap();
    fs::write(home.path("a/file"), "two, longer").unwrap();

    let placing = home.table.placing();
    let (flags, mode) = (rustix::fs::OFlags::PATH, rustix::fs::Mode::empty());
    let folder = rustix::fs::open(home.path("a/inner"), flags, mode).unwrap();
    let mut paused = home.table.suspend("p/a").unwrap().expect("mounted");
    home.pool().rollback("p/a@1").unwrap();
    paused.replaced();
    drop(paused);
    let at = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&folder));
    rustix::mount::mount("none", &at, "tmpfs", rustix::mount::MountFlags::empty(), None).unwrap();
    drop((placing, folder));

    let stays = is_mounted(&home.path("a/inner"));
    let _ = rustix::mount::unmount(home.path("a/inner"), rustix::mount::UnmountFlags::empty());
    assert!(stays, "it was mounted, and is not");
    assert_eq!(fs::read_to_string(home.path("a/file")).unwrap(), "one");
}

/// Expected contents of a file of this name.
fn content(name: &str) -> String {
    name.repeat(500)
}

/// Whether a program may get this error while contents are replaced.
fn is_due(error: &std::io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::STALE))
}

/// Makes, reads and removes files of its own until told to stop, and reads files that always exist.
fn use_files(at: &Path, me: usize, stop: &AtomicBool) -> usize {
    let (mut state, mut rounds) = (0x9e37_79b9_7f4a_7c15_u64 ^ (me as u64) << 20, 0);
    let mut open: VecDeque<(String, fs::File)> = VecDeque::new();
    let check = |name: &str, text: &[u8], may_be_empty: bool| {
        let is_right = text == content(name).as_bytes() || (may_be_empty && text.is_empty());
        assert!(
            is_right,
            "{name} gives {:?}, {} bytes",
            String::from_utf8_lossy(text.get(..20).unwrap_or_default()),
            text.len()
        );
    };
    while !stop.load(Ordering::Relaxed) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let number = state >> 20 & 7;
        let own = format!("own-{me}-{number}");
        // The first two are changed and renamed meanwhile.
        let old = format!("old-{}", 2 + number % 6);
        let done = match state >> 32 & 7 {
            0 | 1 => fs::write(at.join(&own), content(&own)),
            2 | 3 => fs::read(at.join(&own)).map(|text| check(&own, &text, true)),
            4 => fs::remove_file(at.join(&own)),
            5 => fs::read(at.join(&old)).map(|text| check(&old, &text, false)),
            6 => fs::File::open(at.join(&own)).map(|file| {
                open.push_back((own.clone(), file));
                open.truncate(9);
            }),
            _ => open.pop_front().map_or(Ok(()), |(name, mut file)| {
                let mut text = Vec::new();
                file.read_to_end(&mut text).map(|_| check(&name, &text, true))
            }),
        };
        if let Err(error) = done {
            assert!(is_due(&error), "{own}, {old}: {error}");
        }
        rounds += 1;
    }
    rounds
}

/// Stops the other threads when dropped, also when a thread has failed: they would be waited for without end.
struct Stops<'s>(&'s AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Rolls back again and again under programs; each time nothing of what was made since is there, and
/// everything else is what it was.
fn roll_back_under_load(home: &TestMounts, rounds: usize) {
    let at = home.path("a");
    for number in 0..8 {
        let name = format!("old-{number}");
        fs::write(at.join(&name), content(&name)).unwrap();
    }
    home.table.write_back("p/a").unwrap();
    home.pool().snapshot(&["p/a@1"]).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (at, stop) = (&at, &stop);
        let stops = Stops(stop);
        let users: Vec<_> = (0..3).map(|me| scope.spawn(move || use_files(at, me, stop))).collect();
        for round in 0..rounds {
            // If a thread has failed, joining it reports the failure.
            if users.iter().any(std::thread::ScopedJoinHandle::is_finished) {
                break;
            }
            let names: Vec<String> = (0..6).map(|file| format!("new-{}", (round + file) % 7)).collect();
            for name in &names {
                // The kernel has cached neither the name nor its absence from before.
                let mut file =
                    fs::File::options().write(true).create(true).truncate(false).open(at.join(name)).unwrap();
                file.write_all(content(name).as_bytes()).unwrap();
                assert_eq!(fs::read_to_string(at.join(name)).unwrap(), content(name));
            }
            let mut kept = fs::File::options().read(true).write(true).open(at.join("old-0")).unwrap();
            kept.write_all(b"changed").unwrap();
            fs::rename(at.join("old-1"), at.join("moved")).unwrap();

            let mut paused = home.table.suspend("p/a").unwrap().expect("mounted");
            home.pool().rollback("p/a@1").unwrap();
            paused.replaced();
            drop(paused);

            for name in names.iter().map(String::as_str).chain(["moved"]) {
                let found = fs::metadata(at.join(name)).map_err(|error| error.kind());
                assert_eq!(found.err(), Some(std::io::ErrorKind::NotFound), "round {round}: {name}");
            }
            let mut text = String::new();
            std::io::Seek::rewind(&mut kept).unwrap();
            kept.read_to_string(&mut text).unwrap();
            assert_eq!(text, content("old-0"), "round {round}");
            for name in ["old-0", "old-1"] {
                assert_eq!(fs::read_to_string(at.join(name)).unwrap(), content(name), "round {round}");
            }
            let is_new = |entry: fs::DirEntry| entry.file_name().to_string_lossy().starts_with("new");
            assert!(!fs::read_dir(at).unwrap().any(|entry| is_new(entry.unwrap())), "round {round}");
        }
        drop(stops);
        let done: Vec<usize> = users.into_iter().map(|user| user.join().unwrap()).collect();
        assert!(done.iter().all(|rounds| *rounds > 0));
    });
}

/// `CENOTE_ROLLBACKS` sets the number of rounds.
#[test]
fn no_name_gives_another_files_content_around_rollbacks() {
    let rounds = std::env::var("CENOTE_ROLLBACKS").ok().and_then(|text| text.parse().ok()).unwrap_or(8);
    for transport in transports() {
        // With a mount below, names cannot be dropped all at once, as with old kernels.
        for has_below in [false, true] {
            let Some(home) = home_over(transport) else { return };
            home.mount("p/a", "a", &options()).unwrap();
            if has_below {
                fs::create_dir(home.path("a/inner")).unwrap();
                home.mount("p/a/b", "a/inner", &options()).unwrap();
            }
            roll_back_under_load(&home, rounds);
            assert_eq!(has_below, home.path("a/inner").exists() && is_mounted(&home.path("a/inner")));
        }
    }
}

#[test]
fn a_snapshot_with_the_number_of_one_that_was_destroyed_is_another() {
    for transport in transports() {
        let Some(home) = home_over(transport) else { return };
        home.mount("p/a", "a", &options()).unwrap();
        let shown = home.path("a/.zfs/snapshot");
        let mut numbers = BTreeSet::new();
        let mut repeated = 0;
        let mut before: Option<String> = None;
        for round in 0..24 {
            fs::write(home.path("a/file"), format!("{round}")).unwrap();
            // Each name is used again, too.
            let name = format!("s{}", round % 5);
            home.pool().snapshot(&[format!("p/a@{name}")]).unwrap();
            home.table.snapshots_changed("p/a");
            let id = home.pool().view().unwrap().dataset(&format!("p/a@{name}")).unwrap().dsl().id();
            repeated += usize::from(!numbers.insert(id));
            let text = fs::read_to_string(shown.join(&name).join("file")).map_err(|error| error.to_string());
            assert_eq!(text, Ok(format!("{round}")), "{transport:?}, {name}, object {id}");
            if let Some(before) = before.replace(name) {
                home.pool().destroy_dataset(&format!("p/a@{before}")).unwrap();
                home.table.snapshots_changed("p/a");
                let found = fs::metadata(shown.join(before)).map_err(|error| error.kind());
                assert_eq!(found.err(), Some(std::io::ErrorKind::NotFound));
            }
        }
        assert!(repeated > 0, "no number came again");
    }
}

/// Bytes that do not compress, different for each seed.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = vec![0; len];
    for word in bytes.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_ne_bytes());
    }
    bytes
}

/// Copies a whole file as programs do that restore it from a snapshot: by a clone if the kernel passes clones
/// to servers, else by ranges; calls `each` after each range. Returns how many bytes were copied, and the
/// error if there was one.
fn restore(from: &fs::File, to: &fs::File, each: impl Fn()) -> (u64, Option<Errno>) {
    match rustix::fs::ioctl_ficlone(to, from) {
        Ok(()) => {
            each();
            return (from.metadata().unwrap().len(), None);
        }
        Err(error) => assert_eq!(error, Errno::OPNOTSUPP),
    }
    let (mut at, mut end) = (0, 0);
    loop {
        match rustix::fs::copy_file_range(from, Some(&mut at), to, Some(&mut end), 128 << 10) {
            Ok(0) => return (end, None),
            Ok(_) => each(),
            Err(error) => return (end, Some(error)),
        }
    }
}

#[test]
fn what_is_copied_out_of_a_snapshot_stays_when_the_snapshot_is_destroyed() {
    const LEN: usize = 1 << 20;
    const ROUNDS: u64 = 8;
    for transport in transports() {
        let Some(home) = home_over(transport) else { return };
        home.pool().set("p", &[("recordsize", "16k"), ("compression", "off")]).unwrap();
        let mount = || home.mount("p/a", "a", &options()).unwrap();
        mount();
        // Freed blocks are soon reused.
        let view = home.pool().view().unwrap();
        let free = view.dataset("p/a").unwrap().dsl().available().unwrap();
        drop(view);
        fs::write(home.path("a/ballast"), vec![1; usize::try_from(free).unwrap() - (64 << 20)]).unwrap();
        let sync = || {
            home.pool().live().sync().unwrap();
        };
        let mut copied: Vec<(String, u64, u64)> = Vec::new();
        for round in 0..ROUNDS {
            fs::write(home.path("a/file"), noise(round, LEN)).unwrap();
            home.pool().snapshot(&["p/a@s"]).unwrap();
            home.table.snapshots_changed("p/a");
            let from = fs::File::open(home.path("a/.zfs/snapshot/s/file")).unwrap();
            // From now on only the snapshot has these contents.
            fs::write(home.path("a/file"), noise(round + 1000, LEN)).unwrap();
            sync();
            let create = |name: &str| fs::File::create_new(home.path("a").join(name)).unwrap();
            let destroy = || home.pool().destroy_dataset("p/a@s").unwrap();
            let (before, during) = (format!("before-{round}"), format!("during-{round}"));
            assert_eq!(restore(&from, &create(&before), || ()), (LEN as u64, None), "{transport:?}");
            let (tell, told) = std::sync::mpsc::sync_channel(1);
            let each = || {
                let _ = tell.try_send(());
            };
            let (len, why) = std::thread::scope(|scope| {
                let copies = scope.spawn(|| restore(&from, &create(&during), each));
                told.recv().unwrap();
                destroy();
                copies.join().unwrap()
            });
            assert!(len == LEN as u64 || why == Some(Errno::STALE), "{transport:?}: {len}, {why:?}");
            copied.extend([(before, round, LEN as u64), (during, round, len)]);
            home.table.snapshots_changed("p/a");
            // A program with an open file of a destroyed snapshot cannot copy other contents either.
            let (more, _) = restore(&from, &create(&format!("after-{round}")), || ());
            copied.push((format!("after-{round}"), round, more));
            drop(from);
            sync();
            let others = home.path(&format!("a/others-{}", round % 2));
            fs::write(others, noise(round + 2000, 12 << 20)).unwrap();
            (0..3).for_each(|_| sync());
            // Compared with the state in the pool.
            home.table.unmount("p/a", Unmount::Normal).unwrap_or_else(|error| panic!("{error}"));
            mount();
            for (name, seed, len) in &copied {
                let found = fs::read(home.path("a").join(name)).unwrap();
                let whole = noise(*seed, LEN);
                let len = usize::try_from(*len).unwrap();
                assert!(found.len() == len && found == whole[..len], "{transport:?}, round {round}: {name}");
            }
        }
        home.judge();
    }
}

/// Names that differ in case are different names for the kernel: it drops a file by one name that is open by
/// the other.
#[test]
fn open_files_stay_when_the_kernel_forgets_them_by_another_name() {
    const FILES: usize = 200;
    for transport in transports() {
        let Some(home) = home_over(transport) else { return };
        home.pool().create_filesystem("p/i", &[("casesensitivity", "insensitive")]).unwrap();
        home.folder("i");
        home.mount("p/i", "i", &options()).unwrap();
        let at = |letter: &str, number: usize| home.path("i").join(format!("{letter}{number}"));
        let unlinked = |number: usize| {
            fs::write(at("a", number), "replaced").unwrap();
            fs::write(at("b", number), format!("text {number}")).unwrap();
            fs::metadata(at("a", number)).unwrap();
            let file = fs::File::options().read(true).write(true).open(at("b", number)).unwrap();
            fs::rename(at("B", number), at("A", number)).unwrap();
            let _ = fs::metadata(at("a", number));
            fs::remove_file(at("A", number)).unwrap();
            file
        };
        let open: Vec<fs::File> = (0..FILES).map(unlinked).collect();
        for (number, mut file) in open.iter().enumerate() {
            rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
            let mut text = String::new();
            let read = file.sync_all().and_then(|()| file.read_to_string(&mut text));
            let wrote = file.write_all(b"more").and_then(|()| file.sync_all());
            assert!(read.is_ok() && wrote.is_ok(), "{transport:?}, {number}: {read:?}, {wrote:?}");
            assert_eq!(text, format!("text {number}"), "{transport:?}");
        }
    }
}

/// The slot of a snapshot is above the object numbers in node numbers.
#[test]
fn places_of_snapshots_that_were_listed_and_destroyed_come_back() {
    let Some(home) = home() else { return };
    home.mount("p/a", "a", &options()).unwrap();
    fs::write(home.path("a/file"), "text").unwrap();
    let mut highest = 0;
    for round in 0..16 {
        let name = format!("p/a@s{round}");
        let dir = home.path("a/.zfs/snapshot").join(format!("s{round}"));
        home.pool().snapshot(&[&name]).unwrap();
        home.table.snapshots_changed("p/a");
        highest = highest.max(fs::metadata(&dir).unwrap().ino() >> 48);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
        home.pool().destroy_dataset(&name).unwrap();
        home.table.snapshots_changed("p/a");
        assert!(fs::metadata(&dir).is_err());
        // The kernel sends FORGET requests some time later.
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!((1..=8).contains(&highest), "{highest} places");
}

/// Writes a range with asynchronous I/O, and waits for the result.
#[allow(unsafe_code)] // A ring is filled by hand.
fn write_unordered(ring: &mut io_uring::IoUring, file: &fs::File, data: &[u8]) {
    use std::os::fd::AsRawFd;
    let len = u32::try_from(data.len()).unwrap();
    let write = io_uring::opcode::Write::new(io_uring::types::Fd(file.as_raw_fd()), data.as_ptr(), len);
    // SAFETY: the bytes and the descriptor are borrowed until the operation has ended, which this function
    // waits for.
    unsafe { ring.submission().push(&write.offset(0).build()) }.unwrap();
    ring.submit_and_wait(1).unwrap();
    assert_eq!(ring.completion().next().unwrap().result(), data.len() as i32);
}

#[test]
fn what_was_written_unordered_around_the_cache_is_seen_through_it() {
    use std::os::unix::fs::{FileExt, OpenOptionsExt};
    const PAGE: usize = 4096;
    let Ok(mut ring) = io_uring::IoUring::new(2) else {
        testkit::skip("no io_uring here");
        return;
    };
    for transport in transports() {
        let Some(home) = home_over(transport) else { return };
        home.mount("p/a", "a", &options()).unwrap();
        let path = home.path("a/f");
        fs::write(&path, [0; PAGE]).unwrap();
        let direct = rustix::fs::OFlags::DIRECT.bits().cast_signed();
        let around = fs::File::options().write(true).custom_flags(direct).open(&path).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let stops = Stops(&stop);
            for _ in 0..2 {
                scope.spawn(|| {
                    let (mut page, through) = ([0; PAGE], fs::File::open(&path).unwrap());
                    while !stop.load(Ordering::Relaxed) {
                        through.read_exact_at(&mut page, 0).unwrap();
                    }
                });
            }
            let through = fs::File::open(&path).unwrap();
            let seen = (1..=1600_u16).map(|round| {
                let mut page = [round as u8; PAGE];
                write_unordered(&mut ring, &around, &page);
                through.read_exact_at(&mut page, 0).unwrap();
                (round, page == [round as u8; PAGE])
            });
            let old: Vec<u16> = seen.filter(|(_, is_new)| !is_new).map(|(round, _)| round).collect();
            drop(stops);
            assert!(old.is_empty(), "{transport:?}: old pages in rounds {old:?}");
        });
    }
}

#[test]
fn snapshots_are_seen_below_zfs() {
    let _admin = AdminSnapshot::set(false);
    let Some(home) = home() else { return };
    home.mount("p/a", "a", &options()).unwrap();
    let (zfs, snapshots) = (home.path("a/.zfs"), home.path("a/.zfs/snapshot"));
    let names = |dir: &Path| {
        let mut names: Vec<String> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    fs::write(home.path("a/file"), "one").unwrap();
    fs::create_dir(home.path("a/dir")).unwrap();
    fs::write(home.path("a/dir/inner"), "inner one").unwrap();
    assert_eq!(names(&zfs), ["shares", "snapshot"]);
    assert!(names(&snapshots).is_empty());
    let changed = || fs::metadata(&snapshots).unwrap().mtime();
    assert_eq!(changed(), 0, "never");
    home.table.write_back("p/a").unwrap();
    home.pool().snapshot(&["p/a@1"]).unwrap();
    home.table.snapshots_changed("p/a");
    assert_eq!(names(&snapshots), ["1"]);
    let known = home.pool().view().unwrap().dataset("p/a").unwrap().dsl().dir().snapshots_changed().unwrap();
    assert_eq!(known.map(|(secs, _)| secs), Some(changed().cast_unsigned()));
    fs::write(home.path("a/file"), "two").unwrap();
    fs::remove_file(home.path("a/dir/inner")).unwrap();
    home.table.write_back("p/a").unwrap();
    home.pool().snapshot(&["p/a@2"]).unwrap();
    home.table.snapshots_changed("p/a");
    assert_eq!(names(&snapshots), ["1", "2"]);
    assert_eq!(fs::read_to_string(snapshots.join("1/file")).unwrap(), "one");
    assert_eq!(fs::read_to_string(snapshots.join("2/file")).unwrap(), "two");
    assert_eq!(names(&snapshots.join("1/dir")), ["inner"]);
    assert_eq!(names(&snapshots.join("2")), ["dir", "file"]);
    let ino = |path: &str| fs::metadata(home.path("a").join(path)).unwrap().ino();
    let numbers = [ino("file"), ino(".zfs/snapshot/1/file"), ino(".zfs/snapshot/2/file")];
    assert_eq!(numbers.map(|ino| ino & 0xFFFF_FFFF_FFFF), [numbers[0]; 3]);
    assert!(numbers[0] != numbers[1] && numbers[1] != numbers[2]);
    let errno =
        |result: std::io::Result<()>| result.unwrap_err().raw_os_error().map(Errno::from_raw_os_error);
    assert_eq!(errno(fs::write(snapshots.join("1/new"), "")), Some(Errno::ROFS));
    assert_eq!(errno(fs::remove_file(snapshots.join("1/file"))), Some(Errno::ROFS));
    assert_eq!(errno(fs::create_dir(&zfs)), Some(Errno::EXIST));
    assert_eq!(errno(fs::create_dir(zfs.join("x"))), Some(Errno::PERM));
    assert_eq!(errno(fs::create_dir(snapshots.join("3"))), Some(Errno::ACCESS));
    assert_eq!(errno(fs::rename(snapshots.join("1/file"), home.path("a/back"))), Some(Errno::XDEV));
    fs::copy(snapshots.join("1/file"), home.path("a/back")).unwrap();
    assert_eq!(fs::read_to_string(home.path("a/back")).unwrap(), "one");

    assert!(ADMIN_SNAPSHOT.set(1));
    fs::create_dir(snapshots.join("3")).unwrap();
    assert_eq!(fs::read_to_string(snapshots.join("3/back")).unwrap(), "one");
    assert!(home.pool().view().unwrap().dataset("p/a@3").is_ok());
    let before = ino(".zfs/snapshot/3/back");
    fs::rename(snapshots.join("3"), snapshots.join("three")).unwrap();
    assert_eq!(ino(".zfs/snapshot/three/back"), before);
    assert_eq!(names(&snapshots), ["1", "2", "three"]);
    let mut open = fs::File::open(snapshots.join("three/file")).unwrap();
    fs::remove_dir(snapshots.join("three")).unwrap();
    assert!(home.pool().view().unwrap().dataset("p/a@three").is_err());
    assert_eq!(names(&snapshots), ["1", "2"]);
    assert!(open.read_to_string(&mut String::new()).is_err());
    assert_eq!(errno(fs::metadata(snapshots.join("three")).map(drop)), Some(Errno::NOENT));

    assert!(!names(&home.path("a")).contains(&".zfs".to_owned()));
    home.pool().set("p/a", &[("snapdir", "visible")]).unwrap();
    home.table.snapshots_changed("p/a");
    assert!(names(&home.path("a")).contains(&".zfs".to_owned()));
    home.pool().set("p/a", &[("snapdir", "disabled")]).unwrap();
    home.table.snapshots_changed("p/a");
    assert_eq!(errno(fs::metadata(&zfs).map(drop)), Some(Errno::NOENT));
    assert!(!names(&home.path("a")).contains(&".zfs".to_owned()));
}

/// Otherwise its blocks are used again, and the mount gives errors.
#[test]
fn a_mounted_snapshot_is_not_destroyed() {
    let Some(home) = home() else { return };
    home.pool().snapshot(&["p/a@1"]).unwrap();
    let at = home.path("a");
    home.table.mount(home.pool().live(), "p/a@1", &at, &options()).unwrap();
    assert!(is_mounted(&at));
    let kept = home.pool().destroy_dataset("p/a@1").unwrap_err();
    assert_eq!(kept.reason().code, Code::Busy, "{kept}");
    // Under its new name, too.
    home.pool().rename("p/a", "p/c").unwrap();
    home.table.renamed("p/a", "p/c");
    assert!(home.pool().destroy_dataset("p/c@1").is_err());
    home.table.unmount("p/c@1", Unmount::Normal).unwrap();
    home.pool().destroy_dataset("p/c@1").unwrap();
    // A snapshot that is gone by the time of its mount.
    let gone = home.table.mount(home.pool().live(), "p/c@1", &at, &options());
    assert!(matches!(gone, Err(MountError::Open(_))), "{gone:?}");
    assert!(!is_mounted(&at));
    home.judge();
}

#[test]
fn what_a_mount_was_told_of_times_goes_before_the_property() {
    let Some(home) = home() else { return };
    home.pool().set("p/a", &[("atime", "off")]).unwrap();
    let told = vec![("atime".to_owned(), "on".to_owned())];
    let always = MountOptions { atime: AccessTimes::Always, temporary: told, ..options() };
    home.mount("p/a", "a", &always).unwrap();
    let files = [("a/file", "text"), ("a/empty", "")];
    for (file, text) in files {
        fs::write(home.path(file), text).unwrap();
    }
    let atimes = || {
        files.map(|(file, _)| {
            let stat = fs::metadata(home.path(file)).unwrap();
            (stat.atime(), stat.atime_nsec())
        })
    };
    let before = atimes();
    home.table.unmount("p/a", Unmount::Normal).unwrap();
    home.mount("p/a", "a", &always).unwrap();
    // So many that the kernel would not send OPEN any more, but for the access times.
    for _ in 0..300 {
        drop(fs::File::open(home.path("a/file")).unwrap());
    }
    for (file, text) in files {
        assert_eq!(fs::read_to_string(home.path(file)).unwrap(), text);
    }
    home.table.unmount("p/a", Unmount::Normal).unwrap();
    home.mount("p/a", "a", &options()).unwrap();
    let after = atimes();
    assert!(after.iter().zip(&before).all(|(after, before)| after > before), "{after:?} {before:?}");
}

#[test]
fn the_first_read_after_a_change_is_noted_of_empty_files_too() {
    // Older kernels do not send opens for execution, unless every read counts.
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    if (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) < (6, 18) {
        return testkit::skip("needs Linux 6.18");
    }
    let Some(home) = home() else { return };
    let relative = MountOptions { atime: AccessTimes::Relative, ..options() };
    home.pool().set("p/a", &[("atime", "on"), ("relatime", "on")]).unwrap();
    home.mount("p/a", "a", &relative).unwrap();
    let file = home.path("a/empty");
    fs::write(&file, "").unwrap();
    let times = || fs::metadata(&file).map(|stat| (stat.atime(), stat.atime_nsec())).unwrap();
    let made = times();
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(fs::read(&file).unwrap(), b"");
    let first = times();
    assert!(first > made, "{first:?} {made:?}");
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(fs::read(&file).unwrap(), b"");
    assert_eq!(times(), first);
}

#[test]
fn another_namespace_that_has_a_mount_does_not_keep_it() {
    if !rustix::process::geteuid().is_root() {
        return testkit::skip("only root can make a mount namespace");
    }
    let Some(home) = home() else { return };
    let Some(unshare) = testkit::need_tool("unshare") else { return };
    home.mount("p/a", "a", &options()).unwrap();
    fs::write(home.path("a/file"), "text").unwrap();
    let mut other = Command::new(unshare)
        .args(["--mount", "--propagation", "private", "sh", "-c", "echo; exec sleep 1000"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    other.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let ended = home.table.unmount("p/a", Unmount::Normal);
    let again = home.mount("p/a", "a", &options());
    let text = fs::read_to_string(home.path("a/file"));
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(ended.is_ok() && again.is_ok(), "{ended:?} {again:?}");
    assert_eq!(text.unwrap(), "text");
}

#[test]
fn whoever_was_granted_it_takes_snapshots_by_name() {
    if !rustix::process::geteuid().is_root() {
        return testkit::skip("only root can act as several users");
    }
    let Some(home) = home() else { return };
    fs::set_permissions(home.dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    home.mount("p/a", "a", &options()).unwrap();
    let snapshots = home.path("a/.zfs/snapshot");
    let _admin = AdminSnapshot::set(true);
    // By its further group: the kernel's request names only the first.
    let as_user = |name: &str, group: u32, call: fn(&Path) -> Result<(), Errno>| {
        let path = snapshots.join(name);
        std::thread::spawn(move || {
            rustix::thread::set_thread_groups(&[rustix::fs::Gid::from_raw(group)]).unwrap();
            let gid = rustix::fs::Gid::from_raw(65_501);
            rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
            let uid = rustix::fs::Uid::from_raw(65_501);
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            call(&path)
        })
        .join()
        .unwrap()
    };
    let made = |name: &str, group: u32| {
        as_user(name, group, |path| rustix::fs::mkdir(path, rustix::fs::Mode::from_raw_mode(0o755)))
    };
    assert_eq!(made("no", 65_510), Err(Errno::PERM));
    let grant = edit::Grant {
        who: vec![dsl::delegation::Who::Group(65_510)],
        scopes: vec![dsl::delegation::Scope::Local],
        permissions: vec!["snapshot".to_owned(), "mount".to_owned()],
    };
    edit::allow(home.pool(), "p/a", &grant).unwrap();
    assert_eq!(made("yes", 65_510), Ok(()));
    assert_eq!(made("other", 65_511), Err(Errno::PERM));
    let taken: Vec<_> = fs::read_dir(&snapshots).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(taken, ["yes"]);
    // A user without the permission does not learn that a snapshot is held, or that a name is bad.
    let hold = admin::verbs::zfs::hold::Request {
        tag: "kept".into(),
        snapshots: vec!["p/a@yes".into()],
        ..Default::default()
    };
    admin::Session::over(home.pool()).run(&hold).unwrap();
    assert_eq!(as_user("yes", 65_510, |path| rustix::fs::rmdir(path)), Err(Errno::PERM));
    let renamed = as_user("yes", 65_510, |path| rustix::fs::rename(path, path.with_file_name("bad,name")));
    assert_eq!(renamed, Err(Errno::PERM));
    assert_eq!(rustix::fs::rmdir(snapshots.join("yes")), Err(Errno::BUSY));
}

#[test]
fn long_names_are_found_when_no_more_may_be_made() {
    let Some(home) = home() else { return };
    home.pool().set("p/a", &[("longname", "on")]).unwrap();
    home.mount("p/a", "a", &options()).unwrap();
    let (long, other) = ("x".repeat(600), "y".repeat(600));
    fs::write(home.path("a").join(&long), "text").unwrap();
    home.table.unmount("p/a", Unmount::Normal).unwrap();
    home.pool().set("p/a", &[("longname", "off")]).unwrap();
    home.mount("p/a", "a", &options()).unwrap();
    assert_eq!(fs::read_to_string(home.path("a").join(&long)).unwrap(), "text");
    let errno = |error: std::io::Error| error.raw_os_error().map(Errno::from_raw_os_error);
    for refused in
        [fs::write(home.path("a").join(&other), ""), fs::metadata(home.path("a").join(&other)).map(drop)]
    {
        assert_eq!(errno(refused.unwrap_err()), Some(Errno::NAMETOOLONG));
    }
    fs::rename(home.path("a").join(&long), home.path("a/short")).unwrap();
    fs::remove_file(home.path("a/short")).unwrap();
}

#[test]
fn what_was_removed_is_room_at_once() {
    let Some(home) = home() else { return };
    // All but some megabytes are taken by another file system.
    let view = home.pool().view().unwrap();
    let free = view.dataset("p/a").unwrap().dsl().available().unwrap();
    drop(view);
    home.pool().set("p", &[("recordsize", "128k"), ("compression", "off")]).unwrap();
    home.pool().set("p/a/b", &[("reservation", &format!("{}", free - (12 << 20)))]).unwrap();
    home.mount("p/a", "a", &options()).unwrap();
    let content = vec![7; 256 << 10];
    let name = |n: u32| home.path(&format!("a/old{n}"));
    (0..12).for_each(|n| fs::write(name(n), &content).unwrap());
    let mut rest = fs::File::create(home.path("a/rest")).unwrap();
    while rest.write_all(&content[..64 << 10]).is_ok() {}
    for n in 0..12 {
        fs::remove_file(name(n)).unwrap();
        let new = fs::File::create(home.path(&format!("a/new{n}"))).unwrap();
        if n % 2 == 0 {
            let done = rustix::fs::fallocate(&new, rustix::fs::FallocateFlags::empty(), 0, 192 << 10);
            done.unwrap_or_else(|error| panic!("{n}: fallocate: {error}"));
        }
        (&new).write_all(&content[..128 << 10]).unwrap_or_else(|error| panic!("{n}: {error}"));
    }
}
