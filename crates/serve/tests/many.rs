//! Resources of idle mounts. They are counted for the whole process, so this program has one test.
#![allow(clippy::disallowed_types)] // The test looks at the mounts as any program would.

#[path = "it/common/mod.rs"]
mod common;

use admin::Mounts;
use cenote_serve::fuse::Transport;
use common::{TestMounts, options};
use std::fs;

/// Number of mounts that are counted.
const MANY: usize = 48;
/// Most threads of all idle mounts together.
const THREADS: usize = 8;
/// Most bytes of the pool's cache for an idle file system.
const CACHE: usize = 256 << 10;

fn count(what: &str) -> usize {
    fs::read_dir(format!("/proc/self/{what}")).unwrap().count()
}

#[test]
fn a_mount_that_nobody_uses_takes_one_descriptor_and_no_thread() {
    let names: Vec<String> = (0..=MANY).map(|n| format!("p/{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let Some(home) = TestMounts::with(Transport::Classic, &names) else { return };
    let mount = |n: usize| {
        home.folder(&n.to_string());
        home.mount(&format!("p/{n}"), &n.to_string(), &options()).unwrap();
    };
    mount(0);
    let cached = || home.pool().live().store().cache().bytes();
    let (threads, descriptors) = (count("task"), count("fd"));
    (1..=MANY).for_each(mount);
    let (more_threads, more_descriptors) =
        (count("task").saturating_sub(threads), count("fd").saturating_sub(descriptors));
    let cache = cached();
    // All of them still answer requests.
    for n in 0..=MANY {
        let file = home.path(&format!("{n}/file"));
        fs::write(&file, n.to_string()).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), n.to_string());
    }
    let mounts = home.table.list().len();
    home.unmount_all();
    assert_eq!((mounts, home.table.list()), (MANY + 1, Vec::new()));
    assert!(more_threads <= THREADS, "{more_threads} threads");
    assert!(more_descriptors <= MANY + THREADS, "{more_descriptors} descriptors");
    assert!(cache <= (MANY + 1) * CACHE, "{cache} bytes in the cache");
}
