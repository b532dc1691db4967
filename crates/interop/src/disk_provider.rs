//! Where the disks of a pool are: files in a folder, or what somebody else makes of it.

use crate::Failure;
use pool::LeafSpec;
use std::path::{Path, PathBuf};
use vdev::device::file::{Access, open_exclusive};
use vdev::scan::{Found, Search};

/// Bytes of each file that a pool is made of.
const DISK: u64 = 192 << 20;

/// Where the disks of a pool are.
pub trait DiskProvider {
    /// One more disk, empty.
    ///
    /// # Errors
    /// If there is no room for it.
    fn new_leaf(&mut self) -> Result<LeafSpec, Failure>;

    /// What a search for pools finds.
    fn found(&self) -> Found;

    /// Writes, flushes and discards so far, where somebody counts them.
    fn operations(&self) -> u64 {
        0
    }
}

/// Files in a folder.
pub struct FolderDisks {
    dir: PathBuf,
    number: usize,
    size: u64,
}

impl FolderDisks {
    /// This folder.
    pub fn new(dir: &Path) -> FolderDisks {
        FolderDisks { dir: dir.to_owned(), number: 0, size: DISK }
    }

    /// The same with disks of another size.
    pub fn with_disks_of(dir: &Path, size: u64) -> FolderDisks {
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
