//! The cache file: the pools that this machine has open, and the paths of their devices
//! (docs/on-disk/11-labels-config.md, section 8).
//!
//! # What always holds
//! - The file is a hint: devices are identified by their guids, whatever paths the file has.
//! - The file is replaced as a whole. Without pools there is no file.
//! - Processes change it one after the other: its folder is locked meanwhile.
#![allow(clippy::disallowed_types)] // It is no device.

use format::config::{ConfigForm, PoolConfig};
use format::names;
use format::nvlist::{NvList, NvValue};
use format::{DecodeError, PoolGuid};
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Most bytes of a cache file that are read.
const SIZE_MAX: u64 = 64 << 20;

/// Why the cache file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct CacheFileError {
    /// Path of the cache file.
    pub path: PathBuf,
    /// Why the file cannot be read or written.
    pub why: CacheFileFailure,
}

/// Why a cache file cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheFileFailure {
    /// An operation on the file or its folder failed.
    #[error("{}", crate::error::errno_text(.0))]
    Io(std::io::Error),
    /// The path leads to a directory, a device or a pipe.
    #[error("not a regular file")]
    NotAFile,
    /// The file is larger than any cache file.
    #[error("too large for a cache file")]
    TooLarge,
    /// The file does not hold a list of pools.
    #[error("not a cache file: {0}")]
    NotACacheFile(DecodeError),
    /// The entry of a pool has no vdev tree.
    #[error("pool '{pool}' has no vdev_tree")]
    NoTree {
        /// Name of the pool.
        pool: String,
    },
    /// The vdev tree of a pool is malformed.
    #[error("pool '{pool}': {why}")]
    Tree {
        /// Name of the pool.
        pool: String,
        /// What is wrong with it.
        why: DecodeError,
    },
}

/// A cache file: the list of pools that are opened again at the next start.
#[derive(Debug, Clone)]
pub struct CacheFile {
    path: PathBuf,
}

impl CacheFile {
    /// The file at this path, which need not exist.
    pub fn at(path: impl Into<PathBuf>) -> CacheFile {
        CacheFile { path: path.into() }
    }

    /// Path of the cache file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn error(&self, why: CacheFileFailure) -> CacheFileError {
        CacheFileError { path: self.path.clone(), why }
    }

    fn read(&self) -> Result<NvList, CacheFileError> {
        match self.bytes() {
            Ok(bytes) if bytes.is_empty() => Ok(NvList::new()),
            Err(CacheFileFailure::Io(error)) if error.kind() == ErrorKind::NotFound => Ok(NvList::new()),
            bytes => bytes.and_then(|bytes| lists(&bytes)).map_err(|why| self.error(why)),
        }
    }

    /// The lists of the file, by pool.
    ///
    /// # Errors
    /// [`CacheFileError`] if the file does not exist, cannot be read, is too large, or is no cache file.
    pub fn decode(&self) -> Result<NvList, CacheFileError> {
        self.bytes().and_then(|bytes| lists(&bytes)).map_err(|why| self.error(why))
    }

    /// The bytes of the file. A device or a pipe, which may have no end, is not read.
    fn bytes(&self) -> Result<Vec<u8>, CacheFileFailure> {
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(flags).open(&self.path);
        let file = file.map_err(CacheFileFailure::Io)?;
        let meta = file.metadata().map_err(CacheFileFailure::Io)?;
        if !meta.is_file() {
            return Err(CacheFileFailure::NotAFile);
        }
        let mut bytes = Vec::new();
        file.take(SIZE_MAX + 1).read_to_end(&mut bytes).map_err(CacheFileFailure::Io)?;
        match bytes.len() as u64 > SIZE_MAX {
            true => Err(CacheFileFailure::TooLarge),
            false => Ok(bytes),
        }
    }

    /// The pools that the file lists. Malformed configurations are skipped.
    ///
    /// # Errors
    /// [`CacheFileError`] if the file cannot be read, is too large, or is no cache file.
    pub fn pools(&self) -> Result<Vec<PoolConfig>, CacheFileError> {
        let list = self.read()?;
        let config = |(name, _): (&str, &NvValue)| PoolConfig::from_nvlist(list.list(name)?).ok();
        Ok(list.iter().filter_map(config).collect())
    }

    /// Adds or updates a pool. An entry of another pool of this name is replaced.
    ///
    /// # Errors
    /// [`CacheFileError`] if the file cannot be read or written.
    pub fn put(&self, config: &PoolConfig) -> Result<(), CacheFileError> {
        let _lock = self.lock()?;
        let mut list = self.read()?;
        remove(&mut list, |name, guid| name == config.name || guid == Some(config.pool_guid.0));
        list.push(&config.name, NvValue::List(config.to_nvlist(ConfigForm::Mos)));
        self.write(&list)
    }

    /// Removes a pool. Does nothing if the file does not exist or lacks the pool.
    ///
    /// # Errors
    /// [`CacheFileError`] if the file cannot be read or written.
    pub fn take(&self, pool: PoolGuid) -> Result<(), CacheFileError> {
        if !self.path.exists() {
            return Ok(());
        }
        let _lock = self.lock()?;
        let mut list = self.read()?;
        if remove(&mut list, |_, guid| guid == Some(pool.0)) { self.write(&list) } else { Ok(()) }
    }

    /// Takes the lock under which a process changes the file.
    fn lock(&self) -> Result<File, CacheFileError> {
        let folder = match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let lock = || {
            let folder = File::open(folder)?;
            folder.lock()?;
            Ok(folder)
        };
        lock().map_err(|error: std::io::Error| self.error(CacheFileFailure::Io(error)))
    }

    fn write(&self, list: &NvList) -> Result<(), CacheFileError> {
        if list.is_empty() {
            return match std::fs::remove_file(&self.path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    Err(self.error(CacheFileFailure::Io(error)))
                }
                _ => Ok(()),
            };
        }
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let new = self.path.with_file_name(name);
        let write = || -> std::io::Result<()> {
            let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).open(&new)?;
            file.write_all(&list.encode_native())?;
            file.sync_all()?;
            std::fs::rename(&new, &self.path)
        };
        write().map_err(|error| self.error(CacheFileFailure::Io(error)))
    }
}

fn lists(bytes: &[u8]) -> Result<NvList, CacheFileFailure> {
    NvList::decode(bytes).map_err(CacheFileFailure::NotACacheFile)
}

/// Removes entries, chosen by name and guid. Returns whether there were any.
fn remove(list: &mut NvList, is_it: impl Fn(&str, Option<u64>) -> bool) -> bool {
    let is_it = |name: &str, value: &NvValue| {
        let guid = if let NvValue::List(entry) = value { entry.u64(names::config::POOL_GUID) } else { None };
        is_it(name, guid)
    };
    let names: Vec<String> =
        list.iter().filter(|(name, value)| is_it(name, value)).map(|(name, _)| name.to_owned()).collect();
    for name in &names {
        list.remove(name);
    }
    !names.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reading a device would not end, and reading a pipe would wait for its writer.
    #[test]
    fn only_regular_files_are_read() {
        let folder = tempfile::tempdir().expect("made");
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("run");
        assert!(made.success());
        for path in [Path::new("/dev/zero"), folder.path(), &pipe] {
            let file = CacheFile::at(path);
            for refused in [file.decode().map(drop), file.pools().map(drop)] {
                assert!(
                    matches!(refused, Err(CacheFileError { why: CacheFileFailure::NotAFile, .. })),
                    "{path:?}: {refused:?}"
                );
            }
        }
    }

    #[test]
    fn a_file_that_is_not_there_lists_nothing_and_cannot_be_decoded() {
        let folder = tempfile::tempdir().expect("made");
        let file = CacheFile::at(folder.path().join("none"));
        assert!(file.pools().expect("read").is_empty());
        let refused = file.decode().expect_err("not there").to_string();
        assert!(refused.ends_with("none: No such file or directory"), "{refused}");
    }
}
