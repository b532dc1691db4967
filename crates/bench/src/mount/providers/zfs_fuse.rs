//! zfs-fuse, with a pool on the image itself: I/O of its process is counted instead of the device's.

use super::{POOL, Provider, Purpose, Server, let_go};
use crate::Failure;
use crate::mount::device_use::DeviceUse;
use crate::mount::loop_image::LoopImage;
use crate::mount::tools::{self, run};
use std::path::{Path, PathBuf};

const DATABASE: &str = "database";

/// A pool of zfs-fuse on the device, with its server.
pub(in crate::mount) struct ZfsFuse {
    tools: tools::ZfsFuse,
    server: Server,
    dir: PathBuf,
    at: PathBuf,
}

impl ZfsFuse {
    /// Starts the server and makes a pool.
    pub(in crate::mount) fn make(image: &LoopImage) -> Result<ZfsFuse, Failure> {
        let tools = image.tools().zfs_fuse.clone();
        let tools = tools.ok_or("zfs-fuse is not here (cargo xtask bench mount unpacks it)")?;
        if run(tools.command("zpool").arg("list")).is_ok() {
            return Err("another zfs-fuse is running".into());
        }
        let log = image.dir().join("zfs-fuse.log");
        let mut server = Server::start(tools.server().arg("--no-daemon"), &log)?;
        server.wait_until(|_| run(tools.command("zpool").arg("list")).is_ok())?;
        let (dir, at) = (image.dir().to_path_buf(), image.mount_point());
        let made = ZfsFuse { tools, server, dir, at };
        let mut create = made.tools.command("zpool");
        create.args([
            "create",
            "-f",
            "-o",
            "cachefile=none",
            "-O",
            "atime=off",
            "-O",
            "compression=on",
            "-m",
        ]);
        run(create.arg(&made.at).arg(POOL).arg(image.path()))?;
        let database = format!("{POOL}/{DATABASE}");
        run(made.tools.command("zfs").args(["create", "-o", "recordsize=8k", &database]))?;
        Ok(made)
    }
}

impl Provider for ZfsFuse {
    fn mount(&mut self) -> Result<(), Failure> {
        if run(self.tools.command("zpool").args(["list", POOL])).is_err() {
            let mut import = self.tools.command("zpool");
            run(import.args(["import", "-o", "cachefile=none", "-d"]).arg(&self.dir).arg(POOL))?;
        }
        Ok(())
    }

    fn unmount(&mut self) -> Result<(), Failure> {
        run(self.tools.command("zpool").args(["export", POOL]))?;
        Ok(())
    }

    fn folder(&self, purpose: Purpose) -> PathBuf {
        match purpose {
            Purpose::Files => self.at.clone(),
            Purpose::Database => self.at.join(DATABASE),
        }
    }

    /// It has no `zpool sync`, and the kernel does not forward `syncfs` to it: this makes its intent log complete.
    fn sync(&self, dir: &Path) -> Result<(), Failure> {
        let dir = std::fs::File::open(dir)?;
        rustix::fs::syncfs(&dir)?;
        Ok(rustix::fs::fsync(dir)?)
    }

    fn server(&self) -> Option<u32> {
        Some(self.server.pid())
    }

    fn device_use(&self, _: &LoopImage) -> Option<DeviceUse> {
        DeviceUse::of_process(self.server.pid())
    }
}

impl Drop for ZfsFuse {
    fn drop(&mut self) {
        if self.unmount().is_err() {
            let _ = self.server.0.kill();
            [self.at.join(DATABASE), self.at.clone()].iter().for_each(|at| let_go(at));
        }
    }
}
