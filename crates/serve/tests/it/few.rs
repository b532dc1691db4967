//! Mounts that ask for rings when a resource for rings is exhausted: they are made, and served over
//! `/dev/fuse`.
//!
//! A process reads its limits once, so each test runs in a process of its own, which is this program again.
#![allow(clippy::disallowed_types)] // Tests use files as any program does.

use crate::common::transports::{transports, turn};
use crate::common::{TestMounts, options};
use admin::{Mounts, Unmount};
use cenote_serve::fuse::Transport;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::unix::fs::MetadataExt;
use std::process::Command;

/// Runs one of the ignored tests in a process of its own.
fn alone(test: &str) {
    // This also reports that there is nothing to test.
    if transports().contains(&Transport::Ring) {
        in_own_process(test);
    }
}

fn in_own_process(test: &str) {
    let ran = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("few::{test}"), "--ignored"])
        .output();
    let ran = ran.unwrap();
    let text = String::from_utf8_lossy(&ran.stdout);
    assert!(
        ran.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&ran.stderr)
    );
}

/// Sets the limit of open descriptors.
fn bound_descriptors(current: u64) {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum }).unwrap();
}

fn home(filesystems: &[&str]) -> Option<TestMounts> {
    let home = TestMounts::may_lack_rings(filesystems)?;
    for name in filesystems {
        home.folder(name.trim_start_matches("p/"));
    }
    Some(home)
}

/// A file is made in a mount, changed through its cache and around it, moved, and read as it is in the pool.
fn use_mount(home: &TestMounts, name: &str) {
    let at = home.path(name);
    let text = vec![7; 300_000];
    fs::write(at.join("file"), &text).unwrap();
    File::open(at.join("file")).unwrap().sync_all().unwrap();
    fs::rename(at.join("file"), at.join("moved")).unwrap();
    let mut file = File::open(at.join("moved")).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let mut found = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut found).unwrap();
    assert!(found == text, "{name}");
    let names: Vec<_> = fs::read_dir(&at).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["moved"]);
}

#[test]
fn mounts_are_served_without_rings_where_few_descriptors_are_allowed() {
    alone("few_descriptors_are_allowed");
}

#[test]
#[ignore = "runs in a process of its own"]
fn few_descriptors_are_allowed() {
    let Some(home) = home(&["p/a", "p/b"]) else { return };
    bound_descriptors(64);
    for name in ["a", "b"] {
        home.mount(&format!("p/{name}"), name, &options()).unwrap();
        assert!(!home.table.began_with_rings(&format!("p/{name}")));
        use_mount(&home, name);
    }
}

#[test]
fn mounts_are_served_without_rings_where_descriptors_have_run_out() {
    alone("descriptors_have_run_out");
}

#[test]
#[ignore = "runs in a process of its own"]
fn descriptors_have_run_out() {
    let Some(home) = home(&["p/first", "p/second", "p/third"]) else { return };
    // As many as there are sets of rings.
    drop(turn());
    home.mount("p/first", "first", &options()).unwrap();
    assert!(home.table.began_with_rings("p/first"));
    // Nearly all allowed descriptors are open: fewer are left than a set takes, which is at least two for
    // each processor.
    let open = fs::read_dir("/proc/self/fd").unwrap();
    let numbers = open.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse::<u64>().ok());
    bound_descriptors(numbers.max().unwrap() + 32);
    let null = File::open("/dev/null").unwrap();
    let mut taken: Vec<File> = std::iter::from_fn(|| null.try_clone().ok()).collect();
    // A mount takes its device, its directory and descriptors for making it.
    taken.truncate(taken.len() - 10);
    home.mount("p/second", "second", &options()).unwrap();
    assert!(!home.table.began_with_rings("p/second"));
    drop(taken);
    for name in ["first", "second"] {
        use_mount(&home, name);
    }
    // With free descriptors, mounts get rings again.
    drop(turn());
    home.mount("p/third", "third", &options()).unwrap();
    assert!(home.table.began_with_rings("p/third"));
    use_mount(&home, "third");
}

/// A process that cannot open the kernel's table of mounts does not take its mounts for unmounted.
#[test]
fn mounts_are_known_where_no_descriptor_is_left() {
    if testkit::need_file("/dev/fuse") {
        in_own_process("no_descriptor_is_left");
    }
}

#[test]
#[ignore = "runs in a process of its own"]
fn no_descriptor_is_left() {
    let Some(home) = home(&["p/a", "p/b"]) else { return };
    for name in ["a", "b"] {
        home.mount(&format!("p/{name}"), name, &options()).unwrap();
    }
    let above = fs::metadata(home.path("")).unwrap().dev();
    let is_mounted = |name: &str| fs::metadata(home.path(name)).unwrap().dev() != above;
    bound_descriptors(200);
    let null = File::open("/dev/null").unwrap();
    let mut taken: Vec<File> = std::iter::from_fn(|| null.try_clone().ok()).collect();
    for free in 0..8 {
        taken.truncate(taken.len() - free.min(1));
        let known: Vec<String> = home.table.list().into_iter().map(|mount| mount.dataset).collect();
        assert_eq!(known, ["p/a", "p/b"], "{free}");
        if home.table.unmount("p/a", Unmount::Normal).is_ok() {
            assert!(!is_mounted("a"), "{free}");
            break;
        }
        assert!(is_mounted("a"), "{free}");
    }
    drop(taken);
    home.table.unmount("p/b", Unmount::Normal).unwrap();
    assert!(!is_mounted("b"));
}

#[test]
fn mounts_are_served_without_rings_where_others_have_all() {
    alone("others_have_all_rings");
}

#[test]
#[ignore = "runs in a process of its own"]
fn others_have_all_rings() {
    /// More mounts than there are sets of rings.
    const MOUNTS: usize = 12;
    let names: Vec<String> = (0..MOUNTS).map(|number| format!("p/{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let Some(home) = home(&names) else { return };
    let has_rings = |number: usize| home.table.began_with_rings(names[number]);
    let mount = |number: usize| home.mount(names[number], &number.to_string(), &options()).unwrap();
    // On machines with many processors there are too few descriptors for one set.
    bound_descriptors(1024);
    (0..MOUNTS).for_each(mount);
    let with = (0..MOUNTS).filter(|number| has_rings(*number)).count();
    assert!(with < MOUNTS && (0..with).all(has_rings), "{with}");
    (0..MOUNTS).for_each(|number| use_mount(&home, &number.to_string()));
    if with > 0 {
        // The last mount gets the rings that the first one gives back.
        for number in [0, MOUNTS - 1] {
            home.table.unmount(names[number], Unmount::Normal).unwrap();
        }
        mount(MOUNTS - 1);
        assert!(has_rings(MOUNTS - 1));
        use_mount_again(&home, MOUNTS - 1);
    }
}

/// What was written before is there.
fn use_mount_again(home: &TestMounts, number: usize) {
    let moved = home.path(&number.to_string()).join("moved");
    assert_eq!(fs::read(&moved).unwrap(), vec![7; 300_000]);
    fs::remove_file(moved).unwrap();
    use_mount(home, &number.to_string());
}
