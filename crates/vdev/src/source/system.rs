//! The block devices and files of this machine.
//!
//! A folder is listed one level deep, as `zpool import -d` does; without places, the block devices that the
//! kernel lists are searched.

use super::interface::{Candidate, DeviceId, DeviceSource, Listing, Mode};
use crate::device::file::{self, Access, FileDevice};
use crate::device::{Device, DeviceError};
use rustix::io::Errno;
use std::collections::HashSet;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The folder in which the kernel lists block devices.
const SYS_BLOCK: &str = "/sys/class/block";

/// The block devices and files of this machine, by their paths in the file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemDevices;

impl DeviceSource for SystemDevices {
    fn open(&self, path: &Path, mode: Mode, access: Access) -> Result<Arc<dyn Device>, DeviceError> {
        match mode {
            Mode::Read => Ok(Arc::new(FileDevice::open(path, access)?)),
            Mode::Exclusive => file::open_exclusive(path, access),
        }
    }

    fn list(&self, places: &[PathBuf]) -> Listing {
        let mut listing = Listing::default();
        if places.is_empty() {
            listing.candidates = block_devices();
        }
        for place in places {
            let listed = std::fs::metadata(place).and_then(|meta| {
                let named = || vec![Candidate { path: place.clone(), is_named: true }];
                if meta.is_dir() { in_folder(place) } else { Ok(named()) }
            });
            match listed {
                Ok(candidates) => listing.candidates.extend(candidates),
                Err(error) => listing.problems.push((place.clone(), list_error(&error))),
            }
        }
        let mut seen = HashSet::new();
        listing.candidates.retain(|candidate| {
            let real = std::fs::canonicalize(&candidate.path).unwrap_or_else(|_| candidate.path.clone());
            seen.insert(real)
        });
        listing
    }

    fn identity(&self, path: &Path) -> Option<DeviceId> {
        Some(DeviceId::new(std::fs::canonicalize(path).ok()?))
    }
}

/// The entries of a folder that could be leaves, sorted by name.
fn in_folder(folder: &Path) -> std::io::Result<Vec<Candidate>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        // Links are followed: /dev/disk/by-id is made of them.
        let Ok(meta) = std::fs::metadata(&path) else { continue };
        // May be smaller than a leaf, but large enough for the front of a truncated one.
        let is_big_file = meta.is_file() && meta.len() >= format::label::LABEL_SIZE;
        if is_big_file || meta.file_type().is_block_device() {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths.into_iter().map(|path| Candidate { path, is_named: false }).collect())
}

/// All block devices of the machine, partitions before their disks.
fn block_devices() -> Vec<Candidate> {
    let Ok(entries) = std::fs::read_dir(SYS_BLOCK) else { return Vec::new() };
    let mut devices: Vec<(bool, PathBuf)> = entries
        .filter_map(Result::ok)
        .map(|entry| {
            let is_disk = !entry.path().join("partition").exists();
            (is_disk, Path::new("/dev").join(entry.file_name()))
        })
        .collect();
    devices.sort();
    devices.into_iter().map(|(_, path)| Candidate { path, is_named: false }).collect()
}

fn list_error(error: &std::io::Error) -> DeviceError {
    match Errno::from_io_error(error) {
        Some(Errno::NOENT) => DeviceError::NotFound,
        Some(Errno::ACCESS | Errno::PERM) => DeviceError::Denied,
        cause => DeviceError::Open { cause: cause.unwrap_or(Errno::IO).into() },
    }
}
