//! Whether this kernel takes the rings of a mount that is served over `/dev/fuse`: tried out once, on a mount of our own that
//! nobody else can reach, while programs use it.
//!
//! # What always holds
//! - Whatever comes of it, nothing of it is left: a request that is not answered ends with the connection.

use super::hall::{self, How, Requests};
use super::rings::{self, RING_THREAD};
use super::service::{Answer, Caller, Known, Life, Lines, Service};
use super::{MountOptions, connections, greet, mount, ring};
use crate::view::{Attr, Kind, Seek, SpaceInfo, Time};
use rustix::fs::{Mode, OFlags, fcntl_setfl, open, openat};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How long the kernel has for it.
const PATIENCE: Duration = Duration::from_secs(5);
/// Programs that ask meanwhile.
const PROGRAMS: usize = 4;
/// Requests that have to come before there are rings, and over them.
const ENOUGH: usize = 200;

/// Whether it does. The first caller waits until that is known.
pub(super) fn takes_late_rings() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    *KNOWN.get_or_init(|| {
        let tried = try_out();
        match &tried {
            Ok(true) => {}
            Ok(false) => tracing::info!(
                "this kernel does not take rings of a mount that is served: all come over /dev/fuse"
            ),
            Err(error) => tracing::info!(%error, "whether rings can come later could not be tried out"),
        }
        tried.unwrap_or(false)
    })
}

/// Knows no name, and who has asked for them.
#[derive(Default)]
struct Probe {
    over_rings: AtomicUsize,
    over_device: AtomicUsize,
}

impl Service for Probe {
    fn abilities(&self, _: u64) -> u64 {
        0
    }

    fn lookup(&self, _: &Caller, _: u64, _: &[u8]) -> Answer<Option<Known>> {
        let is_ring = std::thread::current().name() == Some(RING_THREAD);
        let count = if is_ring { &self.over_rings } else { &self.over_device };
        count.fetch_add(1, Ordering::Relaxed);
        Ok(None)
    }

    fn absent_life(&self) -> Life {
        // Each is asked for.
        Life::None
    }

    fn attr(&self, node: u64, _: Option<u64>) -> Answer<(Attr, Life)> {
        let none = Time::default();
        let attr = Attr {
            ino: node,
            generation: 0,
            kind: Kind::Directory,
            perm: 0o700,
            nlink: 2,
            uid: 0,
            gid: 0,
            size: 0,
            blocks: 0,
            block_size: 4096,
            rdev: (0, 0),
            atime: none,
            mtime: none,
            ctime: none,
            crtime: none,
        };
        Ok((attr, Life::default()))
    }

    fn read_link(&self, _: u64) -> Answer<Vec<u8>> {
        Err(Errno::NOSYS)
    }

    fn read(&self, _: u64, _: u64, _: u64, _: &mut [u8]) -> Answer<usize> {
        Err(Errno::NOSYS)
    }

    fn read_dir(&self, _: u64, _: u64, _: &mut dyn Lines) -> Answer<()> {
        Err(Errno::NOSYS)
    }

    fn space(&self, _: u64) -> Answer<SpaceInfo> {
        Err(Errno::NOSYS)
    }

    fn xattr_names(&self, _: u64) -> Answer<Vec<Vec<u8>>> {
        Err(Errno::NOSYS)
    }

    fn xattr(&self, _: u64, _: &[u8]) -> Answer<Option<Vec<u8>>> {
        Err(Errno::NOSYS)
    }

    fn seek(&self, _: u64, _: u64, _: Seek) -> Answer<u64> {
        Err(Errno::NOSYS)
    }
}

/// Ends the connection when it is dropped, whoever waits for an answer.
struct Abort((u32, u32));

impl Drop for Abort {
    fn drop(&mut self) {
        let (major, minor) = self.0;
        let number = u64::from(major) << 20 | u64::from(minor);
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let switch =
            connections::files(number).and_then(|files| Ok(openat(files, "abort", flags, Mode::empty())?));
        // One that is gone is as good.
        let _ = switch.and_then(|switch| Ok(rustix::io::write(switch, b"1")?));
    }
}

fn wait_for(until: Instant, is_so: impl Fn() -> bool) -> bool {
    while !is_so() {
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

fn try_out() -> io::Result<bool> {
    let device: OwnedFd = open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let options = MountOptions { source: "cenote-probe".to_owned(), ..MountOptions::default() };
    let apart = Arc::new(mount::Apart::new(&device, &options)?);
    let _abort = Abort(apart.number);
    let (probe, device) = (Arc::new(Probe::default()), Arc::new(device));
    let service: Arc<dyn Service> = Arc::clone(&probe) as _;
    greet(&*service, &device, 0, false).map_err(|_| io::Error::other("no greeting"))?;
    fcntl_setfl(&*device, OFlags::RDWR | OFlags::NONBLOCK)?;
    let how = How { requests: Requests::All, threads: PROGRAMS, gets_rings: false, group: u64::MAX };
    let served = hall::serve(&service, device, how)?;
    let stop = Arc::new(AtomicBool::new(false));
    let mut programs = Vec::new();
    for _ in 0..PROGRAMS {
        let (apart, stop) = (Arc::clone(&apart), Arc::clone(&stop));
        programs.push(super::spawn_anywhere("fuse-probe", move || {
            while !stop.load(Ordering::Relaxed) {
                if apart.open_below("name") != Err(Errno::NOENT) {
                    return false;
                }
            }
            true
        })?);
    }
    let until = Instant::now() + PATIENCE;
    let enough = |count: &AtomicUsize| count.load(Ordering::Relaxed) >= ENOUGH;
    let goes = wait_for(until, || enough(&probe.over_device));
    let share = ring::Share::take_least(ring::queues()?);
    let given = goes && share.is_some_and(|share| rings::give_so_many(&served, share).is_ok());
    let is_used = given && wait_for(until, || enough(&probe.over_rings));
    stop.store(true, Ordering::Relaxed);
    let all_answered = wait_for(until, || programs.iter().all(std::thread::JoinHandle::is_finished));
    if !all_answered {
        return Ok(false);
    }
    let all_right = programs.into_iter().all(|program| program.join().unwrap_or(false));
    Ok(is_used && all_right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_tried_out_leaves_nothing() {
        if !testkit::need_root() || !testkit::need_file("/dev/fuse") || !ring::is_enabled() {
            return;
        }
        let begun = Instant::now();
        let tried = try_out();
        assert!(tried.is_ok(), "{tried:?}");
        assert!(begun.elapsed() < 3 * PATIENCE);
        let threads = || std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let is_left = || {
            threads().any(|thread| {
                let name = std::fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
                name.trim() == "fuse-probe" || name.trim() == RING_THREAD
            })
        };
        assert!(wait_for(Instant::now() + PATIENCE, || !is_left()));
    }
}
