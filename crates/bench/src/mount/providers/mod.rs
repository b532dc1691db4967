//! The systems that provide a measured file system: the kernel, an empty FUSE server, zfs-fuse, or Cenote. All are
//! removed when dropped.

mod floor;
mod kernel;
mod ours;
mod zfs_fuse;

pub(super) use floor::Floor;
pub(super) use kernel::{Disk, Kernel};
pub(super) use ours::{Ours, asking};
pub(super) use zfs_fuse::ZfsFuse;

use super::device_use::DeviceUse;
use super::loop_image::LoopImage;
use super::tools::run;
use crate::Failure;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit for the start or end of a server.
const PATIENCE: Duration = Duration::from_secs(60);
/// Name of the pools.
const POOL: &str = "cenotebench";

/// Purpose of a directory; the record size matches the size of writes, if the system has such a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Files of all sizes: the default record size.
    Files,
    /// Database pages of 8 KiB: record size 8 KiB.
    Database,
}

/// Provides one measured file system.
pub(super) trait Provider {
    /// Mounts the file system.
    fn mount(&mut self) -> Result<(), Failure>;

    /// Everything is on disk after this, and nothing in the provider's memory.
    fn unmount(&mut self) -> Result<(), Failure>;

    /// The directory to work in.
    fn folder(&self, purpose: Purpose) -> PathBuf;

    /// Makes all changes below a directory of this file system durable; a `sync` of all file systems would wait for
    /// others.
    fn sync(&self, dir: &Path) -> Result<(), Failure> {
        Ok(rustix::fs::syncfs(std::fs::File::open(dir)?)?)
    }

    /// True if contents survive unmounting.
    fn is_lasting(&self) -> bool {
        true
    }

    /// Process id of the server; `None`: there is no server.
    fn server(&self) -> Option<u32> {
        None
    }

    /// What its device did so far.
    fn device_use(&self, image: &LoopImage) -> Option<DeviceUse> {
        DeviceUse::of_disk(image.device())
    }
}

/// A server process; killed if it is still running when the value is dropped.
struct Server(Child);

impl Server {
    /// Starts a server; its output goes to a file.
    fn start(command: &mut Command, log: &Path) -> Result<Server, Failure> {
        let log = std::fs::File::create(log)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Ok(Server(command.spawn()?))
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Waits until a condition is true. Fails if the server ends before, or after a time limit.
    fn wait_until(&mut self, mut is_so: impl FnMut(u32) -> bool) -> Result<(), Failure> {
        let start = Instant::now();
        while !is_so(self.0.id()) {
            if let Some(status) = self.0.try_wait()? {
                return Err(format!("the server ended: {status}").into());
            }
            if start.elapsed() > PATIENCE {
                return Err("the server did not begin to serve".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Waits for the end of a server that was asked to end.
    fn wait_for_end(&mut self) -> Result<(), Failure> {
        let start = Instant::now();
        while self.0.try_wait()?.is_none() {
            if start.elapsed() > PATIENCE {
                return Err("the server did not end".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// True if a file system is mounted on the directory.
fn is_mount_point(at: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let device = |path: &Path| std::fs::metadata(path).map(|meta| meta.dev()).ok();
    at.parent().is_some_and(|above| device(at).is_some() && device(at) != device(above))
}

/// Unmounts a directory if a file system is mounted there.
fn unmount(at: &Path) -> Result<(), Failure> {
    if is_mount_point(at) {
        run(Command::new("umount").arg(at))?;
    }
    Ok(())
}

/// Detaches a file system that cannot be unmounted normally.
fn let_go(at: &Path) {
    if unmount(at).is_err() {
        let _ = run(Command::new("umount").arg("--lazy").arg(at));
    }
}

/// True if requests to the mounts of a Cenote server use io_uring: threads with that name wait for them.
fn is_over_uring(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut names = threads.map(|thread| std::fs::read_to_string(thread.path().join("comm")));
    names.any(|name| name.is_ok_and(|name| name.trim() == "fuse-ring"))
}

/// Checks that the requested transport is in use, because a fallback would be measured otherwise.
fn check_transport(pid: u32, over_uring: bool) -> Result<(), Failure> {
    match (over_uring, is_over_uring(pid)) {
        (true, false) => Err("requests come through /dev/fuse, not over io_uring".into()),
        (false, true) => Err("requests come over io_uring, not through /dev/fuse".into()),
        _ => Ok(()),
    }
}
