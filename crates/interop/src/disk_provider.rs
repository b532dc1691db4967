//! Providers of disks for a pool: files in a directory, or simulated disks of another crate.

use crate::Failure;
use pool::LeafSpec;
use std::path::{Path, PathBuf};
use vdev::device::file::{Access, open_exclusive};
use vdev::scan::{Found, Search};

/// Default size of each file in bytes.
const DISK_SIZE: u64 = 192 << 20;

/// Provider of the disks of a pool.
pub trait DiskProvider {
    /// Provides one more empty disk.
    ///
    /// # Errors
    /// There are no more disks, or a file cannot be created.
    fn new_leaf(&mut self) -> Result<LeafSpec, Failure>;

    /// The devices that a search for pools finds.
    fn found(&self) -> Found;

    /// Number of writes, flushes and discards so far; 0 if they are not counted.
    fn operations(&self) -> u64 {
        0
    }
}

/// Disks that are files in a directory.
pub(crate) struct FolderDisks {
    dir: PathBuf,
    number: usize,
    size: u64,
}

impl FolderDisks {
    /// Disks in the directory `dir`, of the default size.
    pub(crate) fn new(dir: &Path) -> FolderDisks {
        FolderDisks { dir: dir.to_owned(), number: 0, size: DISK_SIZE }
    }

    /// Disks of `size` bytes in the directory `dir`.
    pub(crate) fn with_disks_of(dir: &Path, size: u64) -> FolderDisks {
        FolderDisks { size, ..FolderDisks::new(dir) }
    }
}

impl DiskProvider for FolderDisks {
    fn new_leaf(&mut self) -> Result<LeafSpec, Failure> {
        let path = self.dir.join(format!("disk{}", self.number));
        self.number += 1;
        std::fs::File::create(&path)?.set_len(self.size)?;
        Ok(LeafSpec::file(path.to_string_lossy(), open_exclusive(&path, Access::Cached)?))
    }

    fn found(&self) -> Found {
        Search::in_paths([&self.dir]).run()
    }
}
