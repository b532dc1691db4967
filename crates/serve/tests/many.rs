//! What a mount takes that nobody uses: of this process, which therefore has one test.
#![allow(clippy::disallowed_types)] // The test looks at the mounts as any program would.

use cenote::Pool;
use cenote::admin::change::NewPool;
use cenote::admin::{AccessTimes, MountOptions, Mounts, Unmount};
use cenote_serve::fuse::Transport;
use cenote_serve::mounts::{MountTable, TableSettings};
use std::fs;

/// Mounts that are counted.
const MANY: usize = 48;
/// Threads that mounts which nobody uses may have, all together.
const THREADS: usize = 8;

fn count(what: &str) -> usize {
    fs::read_dir(format!("/proc/self/{what}")).unwrap().count()
}

#[test]
fn a_mount_that_nobody_uses_takes_one_descriptor_and_no_thread() {
    if !rustix::process::geteuid().is_root() || !testkit::need_file("/dev/fuse") {
        return testkit::skip("only root mounts without a helper");
    }
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk");
    fs::File::create(&disk).unwrap().set_len(256 << 20).unwrap();
    let pool = Pool::create(&NewPool::new("p", &[disk.to_str().unwrap()]).unwrap()).unwrap();
    for n in 0..=MANY {
        pool.create_filesystem(&format!("p/{n}"), &[]).unwrap();
        fs::create_dir(dir.path().join(n.to_string())).unwrap();
    }
    let table = MountTable::new(TableSettings { transport: Transport::Classic, ..TableSettings::default() });
    let options = MountOptions {
        xattrs: true,
        read_only: false,
        exec: true,
        setuid: true,
        devices: true,
        atime: AccessTimes::Relative,
        overlay: false,
        allow_other: true,
        temporary: Vec::new(),
    };
    let mount = |n: usize| {
        table.mount(pool.live(), &format!("p/{n}"), &dir.path().join(n.to_string()), &options).unwrap();
    };
    mount(0);
    let (threads, descriptors) = (count("task"), count("fd"));
    (1..=MANY).for_each(mount);
    let (more_threads, more_descriptors) =
        (count("task").saturating_sub(threads), count("fd").saturating_sub(descriptors));
    // All of them answer all the same.
    for n in 0..=MANY {
        let file = dir.path().join(format!("{n}/file"));
        fs::write(&file, n.to_string()).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), n.to_string());
    }
    let mounts = table.list();
    for mount in mounts.iter().rev() {
        table.unmount(&mount.dataset, Unmount::Force).unwrap();
    }
    let left = table.list();
    drop(table);
    pool.close().unwrap();
    assert_eq!((mounts.len(), left), (MANY + 1, Vec::new()));
    assert!(more_threads <= THREADS, "{more_threads} threads");
    assert!(more_descriptors <= MANY + THREADS, "{more_descriptors} descriptors");
}
