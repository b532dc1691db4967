//! File systems of the kernel, and the bare device.

use super::{Provider, Purpose, let_go, unmount};
use crate::Failure;
use crate::mount::loop_image::LoopImage;
use crate::mount::tools::run;
use std::path::PathBuf;
use std::process::Command;

/// A file system of the kernel on the device.
pub(in crate::mount) struct Kernel {
    kind: &'static str,
    /// Mount options in addition to `noatime`.
    options: &'static str,
    device: PathBuf,
    at: PathBuf,
}

impl Kernel {
    /// Creates a file system. `mkfs` is its program with options.
    pub(in crate::mount) fn make(
        image: &LoopImage,
        kind: &'static str,
        mkfs: &[&str],
        options: &'static str,
    ) -> Result<Kernel, Failure> {
        let (program, words) = mkfs.split_first().ok_or("no mkfs")?;
        run(Command::new(program).args(words).arg(image.device()))?;
        Ok(Kernel { kind, options, device: image.device().to_path_buf(), at: image.mount_point() })
    }
}

impl Provider for Kernel {
    fn mount(&mut self) -> Result<(), Failure> {
        let options = format!("noatime{}", self.options);
        run(Command::new("mount").args(["-t", self.kind, "-o", &options]).arg(&self.device).arg(&self.at))?;
        Ok(())
    }

    fn unmount(&mut self) -> Result<(), Failure> {
        unmount(&self.at)
    }

    fn folder(&self, _: Purpose) -> PathBuf {
        self.at.clone()
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        let_go(&self.at);
    }
}

/// The bare device: upper bound for streams.
pub(in crate::mount) struct Disk(PathBuf);

impl Disk {
    pub(in crate::mount) fn new(image: &LoopImage) -> Disk {
        Disk(image.device().to_path_buf())
    }
}

impl Provider for Disk {
    fn mount(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn unmount(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Path of the device itself.
    fn folder(&self, _: Purpose) -> PathBuf {
        self.0.clone()
    }
}
