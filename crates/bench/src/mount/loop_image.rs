//! The common ground of all measurements: an image, completely written before, and its loop device.

use super::tools::{Tools, run};
use crate::Failure;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The kernel parameter for FUSE over io_uring.
pub(super) const URING: &str = "/sys/module/fuse/parameters/enable_uring";
/// Names of the files that store the parameter's previous value, and the image.
pub(super) const URING_BEFORE: &str = "enable_uring";
pub(super) const IMAGE: &str = "image";

/// Touches this many bytes of memory, or half of the free memory: a virtual machine gets unused memory back from
/// its host page by page, which would slow the first measured system.
pub(super) fn warm_memory(bytes: u64) -> Result<(), Failure> {
    let info = rustix::system::sysinfo();
    let free = info.freeram as u64 * u64::from(info.mem_unit) / 2;
    let memory = rustix::fs::memfd_create("warm", rustix::fs::MemfdFlags::CLOEXEC)?;
    rustix::fs::fallocate(&memory, rustix::fs::FallocateFlags::empty(), 0, bytes.min(free).max(1))?;
    Ok(())
}

/// The folder of a run with its image, and the loop device.
pub(crate) struct LoopImage {
    dir: PathBuf,
    device: PathBuf,
    tools: Tools,
}

impl LoopImage {
    /// Makes an image of so many bytes in `dir`, filled so that the file system below has nothing to allocate
    /// later. The loop device over it keeps no cache of its own.
    pub(crate) fn new(dir: PathBuf, bytes: u64, tools: Tools) -> Result<LoopImage, Failure> {
        let image = dir.join(IMAGE);
        let mut file = std::fs::File::create(&image)?;
        let zeros = vec![0; 4 << 20];
        for _ in 0..bytes / zeros.len() as u64 {
            file.write_all(&zeros)?;
        }
        file.sync_all()?;
        let text = run(Command::new("losetup").args(["--find", "--show", "--direct-io=on"]).arg(&image))?;
        std::fs::create_dir_all(dir.join("mnt"))?;
        Ok(LoopImage { dir, device: PathBuf::from(text.trim()), tools })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Directory where file systems are mounted.
    pub(crate) fn mount_point(&self) -> PathBuf {
        self.dir.join("mnt")
    }

    /// Our program, which asks the daemon that [`System::Cenote`](super::System) has on this image.
    pub(crate) fn cenote(&self) -> Command {
        super::providers::asking(self)
    }

    pub(super) fn path(&self) -> PathBuf {
        self.dir.join(IMAGE)
    }

    pub(crate) fn device(&self) -> &Path {
        &self.device
    }

    pub(super) fn tools(&self) -> &Tools {
        &self.tools
    }

    /// Removes the traces of a system from device and cache, so that the next does not find them.
    pub(super) fn wipe(&self) -> Result<(), Failure> {
        run(Command::new("wipefs").args(["--all", "--quiet"]).arg(&self.device))?;
        rustix::fs::sync();
        drop_caches()
    }

    /// Runs an action that mounts while the kernel offers io_uring or does not. A mount keeps its transport.
    pub(super) fn with_uring<T>(
        &self,
        on: bool,
        mount: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let Ok(before) = std::fs::read_to_string(URING) else {
            return if on { Err("this kernel has no FUSE over io_uring".into()) } else { mount() };
        };
        std::fs::write(URING, if on { "Y" } else { "N" })?;
        let done = mount();
        std::fs::write(URING, before.trim())?;
        done
    }
}

impl Drop for LoopImage {
    fn drop(&mut self) {
        let _ = run(Command::new("losetup").arg("--detach").arg(&self.device));
    }
}

/// Makes the kernel drop cached data and names.
pub(super) fn drop_caches() -> Result<(), Failure> {
    Ok(std::fs::write("/proc/sys/vm/drop_caches", "3")?)
}
