//! Where this server, or the one before it, has mounted something: so that what a server that has died left behind is
//! known from what belongs to others.
//!
//! # What always holds
//! - A place is in the record before anything is mounted there.
//! - Only places in the record are detached, and only those whose server is gone.

use super::kernel;
use crate::fuse;
use rustix::fs::{Mode, OFlags, open};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// A file of places, each followed by a zero byte.
#[derive(Debug, Clone)]
pub struct Record {
    file: PathBuf,
}

impl Record {
    /// The record in this file, which need not be there yet.
    #[must_use]
    pub fn new(file: PathBuf) -> Record {
        Record { file }
    }

    /// Something is about to be mounted there.
    ///
    /// # Errors
    /// If that cannot be written down: it would be left behind if this server died.
    pub fn note(&self, at: &Path) -> io::Result<()> {
        let mut line = at.as_os_str().as_bytes().to_vec();
        line.push(0);
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC;
        let file = open(&self.file, flags, Mode::RUSR | Mode::WUSR)?;
        // One call: lines of several threads stay whole.
        match rustix::io::write(&file, &line)? {
            written if written == line.len() => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    /// Detaches the mounts of the server before this one: what is below them answers nothing but errors. To be called
    /// before anything is mounted. Returns where they were.
    ///
    /// # Errors
    /// If the record cannot be read or begun anew.
    pub fn detach_dead(&self) -> io::Result<Vec<PathBuf>> {
        let known = match std::fs::read(&self.file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let is_known = |at: &Path| {
            known.split(|byte| *byte == 0).any(|place| OsStr::from_bytes(place) == at.as_os_str())
        };
        // Those that lie in others first.
        let lines = kernel::table().into_iter().rev();
        let ours = lines.filter(|line| line.kind == kernel::KIND && is_known(&line.at));
        let dead = ours.filter(|line| kernel::is_dead(&line.at) && fuse::unmount_at(&line.at, true).is_ok());
        let detached = dead.map(|line| line.at).collect();
        std::fs::write(&self.file, b"")?;
        Ok(detached)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_begins_anew_when_it_was_read() {
        let dir = tempfile::tempdir().expect("a folder");
        let record = Record::new(dir.path().join("mounts"));
        assert!(record.detach_dead().expect("read").is_empty());
        record.note(Path::new("/nothing/is/mounted\nhere")).expect("written");
        record.note(Path::new("/b")).expect("written");
        assert_eq!(std::fs::read(&record.file).expect("there"), b"/nothing/is/mounted\nhere\0/b\0");
        assert!(record.detach_dead().expect("read").is_empty());
        assert!(std::fs::read(&record.file).expect("there").is_empty());
    }
}
