//! Mounts that get rings while they are used. The test counts the threads of its process, so this program has
//! one test.
#![allow(clippy::disallowed_types)] // Tests use files as any program does.

#[path = "it/common/mod.rs"]
mod common;

use cenote_serve::fuse::Transport;
use common::{TestMounts, options};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Number of programs that use a mount.
const PROGRAMS: u64 = 4;
/// Longest time until a busy mount has rings.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time for which it is used afterwards.
const AFTER: Duration = Duration::from_secs(3);

fn ring_threads() -> usize {
    let threads = fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = threads.map(|thread| fs::read_to_string(thread.path().join("comm")).unwrap_or_default());
    names.filter(|name| name.trim() == "fuse-ring").count()
}

fn content(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (seed.wrapping_mul(0x9e37_79b9) >> 7).wrapping_add(at * 7) as u8).collect()
}

/// Makes, writes, reads and removes files until told to stop; returns the number of rounds.
fn use_files(at: &Path, me: u64, stop: &AtomicBool, slowest: &AtomicU64) -> u64 {
    let mut round = 0;
    while !stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        round += 1;
        let path = at.join(format!("{me}-{round}"));
        let len = [10, 5000, 140_000, 0][(round % 4) as usize];
        let bytes = content(me << 32 | round, len);
        let mut file = File::options().create_new(true).read(true).write(true).open(&path).unwrap();
        file.write_all(&bytes).unwrap();
        if round.is_multiple_of(16) {
            file.sync_all().unwrap();
        }
        let mut end = vec![0; len.min(100)];
        let at_end = len - end.len();
        file.read_exact_at(&mut end, at_end as u64).unwrap();
        assert_eq!(end, bytes[at_end..], "{path:?}");
        drop(file);
        // Under a name that is new to the kernel, and without its pages.
        let other = at.join(format!("{me}-{round}-moved"));
        fs::rename(&path, &other).unwrap();
        let mut all = Vec::new();
        File::open(&other).unwrap().read_to_end(&mut all).unwrap();
        assert!(all == bytes, "{other:?}");
        assert_eq!(fs::metadata(&path).unwrap_err().kind(), std::io::ErrorKind::NotFound);
        if round > 8 {
            fs::remove_file(at.join(format!("{me}-{}-moved", round - 8))).unwrap();
        }
        slowest.fetch_max(u64::try_from(begun.elapsed().as_millis()).unwrap(), Ordering::Relaxed);
    }
    round
}

#[test]
fn a_busy_mount_gets_rings_while_it_is_used_and_no_request_is_lost() {
    let is_enabled = fs::read_to_string("/sys/module/fuse/parameters/enable_uring");
    if !rustix::process::geteuid().is_root() || !is_enabled.is_ok_and(|text| text.trim() == "Y") {
        testkit::skip("FUSE over io_uring is not enabled, or the user is not root");
        return;
    }
    let names = ["p/busy", "p/other"];
    let Some(home) = TestMounts::with(Transport::Best, &names) else { return };
    for name in ["busy", "other"] {
        home.folder(name);
        home.mount(&format!("p/{name}"), name, &options()).unwrap();
    }
    if home.table.began_with_rings("p/busy") {
        return testkit::skip("with this kernel mounts have rings from their beginning");
    }
    assert_eq!(ring_threads(), 0, "a mount begins without");
    fs::write(home.path("other/file"), "x").unwrap();
    let (stop, slowest) = (AtomicBool::new(false), AtomicU64::new(0));
    let at = home.path("busy");
    let rounds = std::thread::scope(|scope| {
        let (at, stop, slowest) = (&at, &stop, &slowest);
        let programs: Vec<_> =
            (0..PROGRAMS).map(|me| scope.spawn(move || use_files(at, me, stop, slowest))).collect();
        let begun = Instant::now();
        let is_whole = |threads: usize| threads > 2;
        while !is_whole(ring_threads()) && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(20));
        }
        let had_rings = is_whole(ring_threads());
        std::thread::sleep(AFTER);
        stop.store(true, Ordering::Relaxed);
        let rounds: u64 = programs.into_iter().map(|program| program.join().unwrap()).sum();
        assert!(had_rings, "{rounds} rounds");
        rounds
    });
    let slowest = slowest.into_inner();
    println!("{rounds} rounds, the slowest took {slowest} ms");
    assert_eq!(fs::read_to_string(home.path("other/file")).unwrap(), "x");
    home.unmount_all();
    let begun = Instant::now();
    while ring_threads() > 0 && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(ring_threads(), 0, "they end with the mount");
}
