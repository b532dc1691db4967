//! The file of an index while it is made: without a name, so that nothing is left of one that is not completed.
// Indexes are files of the user's, no devices.
#![allow(clippy::disallowed_types)]

use super::error::ChainError;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, open};
use std::fs::{File, OpenOptions, remove_file, rename};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Attempts to find a name that no other file has.
const NAMES_MAX: u32 = 64;
/// Only its owner reads an index: streams are often more secret than the folder they are in.
const MODE: u32 = 0o600;

/// Opens an existing index: a regular file of this user or of root that nobody else can write to. What others put at its
/// place, in a folder that all may write to, would replace the contents of the streams.
pub(super) fn open_own(place: &Path) -> io::Result<File> {
    const OTHERS_WRITE: u32 = 0o022;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(open(place, flags, Mode::empty())?);
    let found = file.metadata()?;
    let is_own = [0, rustix::process::geteuid().as_raw()].contains(&found.uid());
    if !found.is_file() || !is_own || found.mode() & OTHERS_WRITE != 0 {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "an index of another user"));
    }
    Ok(file)
}

/// The file of an index that is being made.
pub(super) struct NewFile {
    file: File,
    /// The name that it gets when it is complete; `None`: it gets none.
    place: Option<PathBuf>,
    /// The name that it has until then, where files without names cannot be made.
    part: Option<PathBuf>,
    /// Name for messages.
    name: PathBuf,
}

impl NewFile {
    /// A file that is to be at `place`; if there is no place, or no file can be made there and `is_wanted` is not set,
    /// one in the folder for temporary files that gets no name.
    pub(super) fn create(place: Option<&Path>, is_wanted: bool) -> Result<NewFile, ChainError> {
        if let Some(place) = place {
            match NewFile::at(place) {
                Err(cause) if is_wanted => return Err(ChainError::Index { file: place.to_owned(), cause }),
                Err(_) => {}
                Ok(new) => return Ok(new),
            }
        }
        let folder = std::env::temp_dir();
        let made = NewFile::at(&folder.join("index")).and_then(|mut new| {
            new.part.take().map_or(Ok(()), remove_file)?;
            new.place = None;
            Ok(new)
        });
        made.map_err(|cause| ChainError::Index { file: folder, cause })
    }

    fn at(place: &Path) -> io::Result<NewFile> {
        let folder = place.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let (file, part) = match open(folder, flags, Mode::from_raw_mode(MODE)) {
            Ok(file) => (File::from(file), None),
            // Not every file system has files without names.
            Err(_) => with_free_name(place, |part| {
                OpenOptions::new().read(true).write(true).create_new(true).mode(MODE).open(part)
            })
            .map(|(file, part)| (file, Some(part)))?,
        };
        Ok(NewFile { file, place: Some(place.to_owned()), part, name: place.to_owned() })
    }

    /// The open file.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Its name for messages.
    pub(super) fn name(&self) -> &Path {
        &self.name
    }

    /// Gives the complete file its name.
    pub(super) fn keep(mut self) -> Result<File, ChainError> {
        let kept = self.named();
        let file = kept.and_then(|()| self.file.try_clone());
        file.map_err(|cause| ChainError::Index { file: self.name.clone(), cause })
    }

    fn named(&mut self) -> io::Result<()> {
        let Some(place) = self.place.take() else { return Ok(()) };
        if self.part.is_none() {
            let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            let linked = with_free_name(&place, |part| {
                Ok(linkat(CWD, own.as_str(), CWD, part, AtFlags::SYMLINK_FOLLOW)?)
            });
            self.part = Some(linked?.1);
        }
        let Some(part) = &self.part else { return Ok(()) };
        rename(part, &place)?;
        self.part = None;
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // It is of no use to anyone; a failure cannot be reported.
        let _ = self.part.take().map(remove_file);
    }
}

/// Calls a closure with names beside `place`, until it makes a file of one that none has yet.
fn with_free_name<T>(place: &Path, mut make: impl FnMut(&Path) -> io::Result<T>) -> io::Result<(T, PathBuf)> {
    let mut attempt = 0;
    loop {
        let mut name = place.as_os_str().to_owned();
        name.push(format!(".{}-{attempt}", std::process::id()));
        match make(Path::new(&name)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempt < NAMES_MAX => attempt += 1,
            made => return Ok((made?, name.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_appears_when_it_is_complete() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().join("x.idx");
        let count = || std::fs::read_dir(folder.path()).expect("listed").count();
        drop(NewFile::create(Some(&place), true).expect("made"));
        assert_eq!(count(), 0);
        for _ in 0..2 {
            NewFile::create(Some(&place), true).and_then(NewFile::keep).expect("kept");
            assert_eq!((count(), place.exists()), (1, true));
        }
    }

    #[test]
    fn where_none_can_be_made_it_is_elsewhere_unless_it_is_wanted_there() {
        let place = Path::new("/proc/no-such-folder/x.idx");
        assert!(NewFile::create(Some(place), false).and_then(NewFile::keep).is_ok());
        assert!(matches!(NewFile::create(Some(place), true), Err(ChainError::Index { .. })));
    }
}
