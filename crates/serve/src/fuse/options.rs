//! Options of a mount, and why there is none.

use std::io;
use std::path::PathBuf;

/// Transport of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transport {
    /// Over `/dev/fuse`; and, when the mount is busy, over io_uring, if the kernel offers that and few mounts
    /// have it. Mounts of users other than root, and all with kernels with which that was not tried, have it
    /// from the beginning.
    #[default]
    Best,
    /// Over io_uring from the beginning, if the kernel offers that and few mounts have it, else classic.
    Ring,
    /// Over `/dev/fuse` alone.
    Classic,
}

/// Options of a mount.
#[derive(Debug, Clone, Default)]
pub struct MountOptions {
    /// Source that the table of mounts shows: the dataset.
    pub source: String,
    /// Other users may look in. Their rights are checked then, as they are for root's mounts;
    /// a private mount of a user shows that user everything.
    pub allow_other: bool,
    /// The file system can be changed.
    pub writable: bool,
    /// Set-id bits and capabilities of files count. Only root's mounts. The kernel then takes them away by
    /// itself before it writes: left to the server ([`flag::HANDLE_KILLPRIV_V2`](super::flag::HANDLE_KILLPRIV_V2)),
    /// it would go on believing in them.
    pub setuid: bool,
    /// Device files are devices. Only root's mounts.
    pub devices: bool,
    /// Programs of the file system can be run.
    pub exec: bool,
    /// Most threads of the classic transport; `None`: as many as seem good.
    pub threads: Option<usize>,
    /// Transport of requests.
    pub transport: Transport,
    /// Mounts of one group wait for the same devices, and share what threads they may have: the guid of the
    /// pool.
    pub group: u64,
}

/// Why there is no mount.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// The kernel has no FUSE.
    #[error("/dev/fuse is not there: the kernel's FUSE module is not loaded")]
    NoFuse,
    /// Only root mounts without a helper, and there is none.
    #[error("fusermount3 is not installed (package fuse3): only root can mount without it")]
    NoHelper,
    /// The mount point is no directory.
    #[error("{}: not a directory", at.display())]
    NotADirectory {
        /// The mount point.
        at: PathBuf,
    },
    /// The kernel speaks an older protocol.
    #[error("the kernel speaks FUSE {major}.{minor}; 7.31 (Linux 5.4) is the oldest that is served")]
    OldKernel {
        /// Its version.
        major: u32,
        /// Its version.
        minor: u32,
    },
    /// The system refused.
    #[error("cannot mount on {}", at.display())]
    Refused {
        /// The mount point.
        at: PathBuf,
        /// Its reason.
        #[source]
        source: io::Error,
    },
}
