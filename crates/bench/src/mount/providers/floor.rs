//! The empty file system, served by this program.

use super::{Provider, Purpose, Server, check_transport, is_mount_point, is_over_uring, let_go, unmount};
use crate::Failure;
use crate::mount::device_use::DeviceUse;
use crate::mount::loop_image::LoopImage;
use std::path::PathBuf;
use std::process::Command;

/// A mounted empty file system: the lower bound of FUSE.
pub(in crate::mount) struct Floor {
    server: Server,
    at: PathBuf,
}

impl Floor {
    /// Mounts an empty file system.
    pub(in crate::mount) fn make(image: &LoopImage, over_uring: bool) -> Result<Floor, Failure> {
        let at = image.mount_point();
        let log = image.dir().join("floor.log");
        let server = image.with_uring(over_uring, || {
            let mut command = Command::new(std::env::current_exe()?);
            let mut server = Server::start(command.arg("null-mount").arg(&at), &log)?;
            server.wait_until(|pid| is_mount_point(&at) && (!over_uring || is_over_uring(pid)))?;
            Ok(server)
        })?;
        let floor = Floor { server, at };
        check_transport(floor.server.pid(), over_uring)?;
        Ok(floor)
    }
}

impl Provider for Floor {
    /// It has been mounted since it was made.
    fn mount(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn unmount(&mut self) -> Result<(), Failure> {
        unmount(&self.at)?;
        self.server.wait_for_end()
    }

    fn folder(&self, _: Purpose) -> PathBuf {
        self.at.clone()
    }

    fn is_lasting(&self) -> bool {
        false
    }

    fn server(&self) -> Option<u32> {
        Some(self.server.pid())
    }

    fn device_use(&self, _: &LoopImage) -> Option<DeviceUse> {
        None
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        let_go(&self.at);
    }
}
