//! The compared systems, each created for a run and then removed.

use super::device_use::DeviceUse;
use super::loop_image::{LoopImage, drop_caches};
use super::providers::{Disk, Floor, Kernel, Ours, Provider, Purpose, ZfsFuse};
use super::tools::Tools;
use crate::Failure;
use clap::ValueEnum;
use std::path::PathBuf;

/// Systems that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum System {
    /// The bare device: streams only.
    Disk,
    /// ext4.
    Ext4,
    /// XFS, with default options.
    Xfs,
    /// The kernel's own with copies and checksums.
    Btrfs,
    /// ZFS through FUSE, of 2011 and later.
    ZfsFuse,
    /// An empty file system through /dev/fuse.
    Floor,
    /// An empty file system over io_uring.
    FloorUring,
    /// Cenote through /dev/fuse.
    Cenote,
    /// Cenote over io_uring.
    CenoteUring,
}

impl System {
    pub(super) fn name(self) -> &'static str {
        match self {
            System::Disk => "disk",
            System::Ext4 => "ext4",
            System::Xfs => "xfs",
            System::Btrfs => "btrfs",
            System::ZfsFuse => "zfs-fuse",
            System::Floor => "floor",
            System::FloorUring => "floor-uring",
            System::Cenote => "cenote",
            System::CenoteUring => "cenote-uring",
        }
    }
}

impl LoopImage {
    /// Makes a file system and mounts it.
    pub(crate) fn open(&self, kind: System) -> Result<Site<'_>, Failure> {
        self.wipe()?;
        let kernel = |kind, mkfs: &[&str], options| Kernel::make(self, kind, mkfs, options);
        let mut provider: Box<dyn Provider + '_> = match kind {
            System::Disk => Box::new(Disk::new(self)),
            System::Ext4 => Box::new(kernel("ext4", &["mkfs.ext4", "-q", "-F", "-E", "nodiscard"], "")?),
            System::Xfs => Box::new(kernel("xfs", &["mkfs.xfs", "-q", "-f", "-K"], "")?),
            // Without this option mkfs discards blocks of the image, which the other systems then lack.
            System::Btrfs => Box::new(kernel("btrfs", &["mkfs.btrfs", "-q", "-f", "-K"], ",nodiscard")?),
            System::ZfsFuse => Box::new(ZfsFuse::make(self)?),
            System::Floor => Box::new(Floor::make(self, false)?),
            System::FloorUring => Box::new(Floor::make(self, true)?),
            System::Cenote => Box::new(Ours::make(self, false)?),
            System::CenoteUring => Box::new(Ours::make(self, true)?),
        };
        provider.mount()?;
        Ok(Site { kind, image: self, provider, purpose: Purpose::Files })
    }
}

/// A mounted file system with its measurements.
pub(crate) struct Site<'g> {
    pub(super) kind: System,
    image: &'g LoopImage,
    provider: Box<dyn Provider + 'g>,
    purpose: Purpose,
}

impl Site<'_> {
    /// The directory to work in; for the bare device, the device.
    pub(crate) fn dir(&self) -> PathBuf {
        self.provider.folder(self.purpose)
    }

    /// The directories for all purposes.
    pub(super) fn folders(&self) -> [PathBuf; 2] {
        [Purpose::Files, Purpose::Database].map(|purpose| self.provider.folder(purpose))
    }

    pub(super) fn server_pid(&self) -> Option<u32> {
        self.provider.server()
    }

    pub(super) fn device_use(&self) -> Option<DeviceUse> {
        self.provider.device_use(self.image)
    }

    pub(super) fn tools(&self) -> &Tools {
        self.image.tools()
    }

    /// Selects the directory for this purpose.
    pub(super) fn prepare(&mut self, purpose: Purpose) {
        self.purpose = purpose;
    }

    /// Makes all changes durable.
    pub(crate) fn sync(&self) -> Result<(), Failure> {
        self.provider.sync(&self.dir())
    }

    /// Removes what a failed workload has left, so that the next one has space.
    pub(super) fn clear(&mut self) {
        for purpose in [Purpose::Files, Purpose::Database] {
            self.prepare(purpose);
            // An entry that cannot be removed is a mount, or stays.
            for entry in std::fs::read_dir(self.dir()).into_iter().flatten().flatten() {
                let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
                let path = entry.path();
                let _ = if is_folder { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
            }
        }
    }

    /// Makes all data durable and empties the caches of the system and the kernel. A system without a disk is not
    /// changed.
    pub(crate) fn cool(&mut self) -> Result<(), Failure> {
        rustix::fs::sync();
        if self.provider.is_lasting() {
            self.provider.unmount()?;
            self.provider.mount()?;
        }
        drop_caches()
    }
}
