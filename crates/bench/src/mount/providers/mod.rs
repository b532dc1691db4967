//! The systems that provide a measured file system: the kernel, an empty FUSE server, zfs-fuse, or Cenote.
//! All are taken down when dropped.

mod floor;
mod kernel;
mod ours;
mod zfs_fuse;

pub(super) use floor::Floor;
pub(super) use kernel::{Disk, Kernel};
pub(super) use ours::Ours;
pub(super) use zfs_fuse::ZfsFuse;

use super::device_use::DeviceUse;
use super::loop_image::LoopImage;
use super::tools::run;
use crate::Failure;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to come or to go.
const PATIENCE: Duration = Duration::from_secs(60);
/// The pool of those that have pools.
const POOL: &str = "cenotebench";

/// What a folder is for: where that can be chosen, records are as large as what is written.
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

    /// The folder to work in.
    fn folder(&self, purpose: Purpose) -> PathBuf;

    /// Everything that was done below a folder of this file system is on disk: a `sync` of all would wait for
    /// others.
    fn sync(&self, dir: &Path) -> Result<(), Failure> {
        Ok(rustix::fs::syncfs(std::fs::File::open(dir)?)?)
    }

    /// What is kept is still there after it was unmounted.
    fn is_lasting(&self) -> bool {
        true
    }

    /// The process that serves it.
    fn server(&self) -> Option<u32> {
        None
    }

    /// What its device did so far.
    fn device_use(&self, image: &LoopImage) -> Option<DeviceUse> {
        DeviceUse::of_disk(image.device())
    }
}

/// A process that serves file systems; killed if it is still there when this is dropped.
struct Server(Child);

impl Server {
    /// Starts one; what it says goes into a file.
    fn start(command: &mut Command, log: &Path) -> Result<Server, Failure> {
        let log = std::fs::File::create(log)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Ok(Server(command.spawn()?))
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Waits until something is so. An error if the server ends before, or it takes too long.
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

    /// Waits for the end of a server that has been asked for it.
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

/// Whether something is mounted on a directory.
fn is_mount_point(at: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let device = |path: &Path| std::fs::metadata(path).map(|meta| meta.dev()).ok();
    at.parent().is_some_and(|above| device(at).is_some() && device(at) != device(above))
}

/// Unmounts a directory if something is mounted there.
fn unmount(at: &Path) -> Result<(), Failure> {
    if is_mount_point(at) {
        run(Command::new("umount").arg(at))?;
    }
    Ok(())
}

/// Unmounts what cannot be unmounted in an orderly way.
fn let_go(at: &Path) {
    if unmount(at).is_err() {
        let _ = run(Command::new("umount").arg("--lazy").arg(at));
    }
}

/// Whether requests of the mounts of a server of ours come over io_uring: threads of that name wait for them.
fn is_over_uring(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut names = threads.map(|thread| std::fs::read_to_string(thread.path().join("comm")));
    names.any(|name| name.is_ok_and(|name| name.trim() == "fuse-ring"))
}

/// What was asked for must be what is measured: nothing falls back in silence.
fn check_transport(pid: u32, over_uring: bool) -> Result<(), Failure> {
    match (over_uring, is_over_uring(pid)) {
        (true, false) => Err("requests come through /dev/fuse, not over io_uring".into()),
        (false, true) => Err("requests come over io_uring, not through /dev/fuse".into()),
        _ => Ok(()),
    }
}
