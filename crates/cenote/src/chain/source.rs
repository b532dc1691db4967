//! The files with streams.
// Streams are files of the user's, no devices.
#![allow(clippy::disallowed_types)]

use super::error::ChainError;
use super::store::{self, Identity};
use super::unpack::{Packing, unpacked};
use format::stream::{HEADER_SIZE, Header, Record, order_of};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes at both ends of a file that identify its streams.
const ENDS: u64 = 4096;

/// Where a stream comes from.
#[non_exhaustive]
pub enum Input {
    /// A file, compressed or not. A pipe that has a name is read once.
    File(PathBuf),
    /// A source that can be read once, such as standard input.
    Once {
        /// Its name for messages.
        name: PathBuf,
        /// The bytes of the stream.
        source: Box<dyn Read + Send>,
    },
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Input::File(path) => f.debug_tuple("File").field(path).finish(),
            Input::Once { name, .. } => f.debug_tuple("Once").field(name).finish(),
        }
    }
}

/// A stream that was opened.
pub(super) struct Source {
    /// Name for messages.
    pub(super) name: PathBuf,
    /// The file, if it can be read at any place.
    pub(super) file: Option<Arc<File>>,
    pub(super) packing: Packing,
    /// Identity of the file, if it can be looked into again.
    pub(super) identity: Option<Identity>,
    /// Seconds since the start of 1970 at which its first snapshot was made.
    pub(super) created: u64,
    once: Option<Box<dyn Read + Send>>,
}

impl Source {
    /// Opens a stream.
    pub(super) fn open(input: Input) -> Result<Source, ChainError> {
        match input {
            Input::File(name) => {
                Source::of_file(&name).map_err(|cause| ChainError::Read { file: name, cause })
            }
            Input::Once { name, source } => Source::of_once(name, source),
        }
    }

    fn of_once(name: PathBuf, source: Box<dyn Read + Send>) -> Result<Source, ChainError> {
        let opened = unpacked(source).map_err(|cause| ChainError::Read { file: name.clone(), cause });
        let (packing, once) = opened?;
        Ok(Source { name, file: None, packing, identity: None, created: 0, once: Some(once) })
    }

    fn of_file(name: &Path) -> io::Result<Source> {
        let file = File::open(name)?;
        let meta = file.metadata()?;
        if !meta.is_file() {
            let (packing, once) = unpacked(file)?;
            let name = name.to_owned();
            return Ok(Source { name, file: None, packing, identity: None, created: 0, once: Some(once) });
        }
        let file = Arc::new(file);
        let (packing, mut stream) = unpacked(FileReader { file: Arc::clone(&file), at: 0 })?;
        let mut head = Vec::new();
        stream.by_ref().take(HEADER_SIZE as u64).read_to_end(&mut head)?;
        let identity = Identity {
            size: meta.len(),
            changed: (meta.mtime(), meta.mtime_nsec()),
            ends: ends(&file, meta.len())?,
        };
        Ok(Source {
            name: name.to_owned(),
            file: Some(file),
            packing,
            identity: Some(identity),
            created: created(&head),
            once: None,
        })
    }

    /// The stream from its start. That of a source that can be read once is empty the second time.
    pub(super) fn read(&mut self) -> Result<Box<dyn Read + Send>, ChainError> {
        let Some(file) = &self.file else {
            return Ok(self.once.take().unwrap_or_else(|| Box::new(io::empty())));
        };
        let opened = unpacked(FileReader { file: Arc::clone(file), at: 0 });
        let opened = opened.map_err(|cause| ChainError::Read { file: self.name.clone(), cause });
        opened.map(|(_, stream)| stream)
    }

    /// The file, if blocks can be read from it where they stand in the stream.
    pub(super) fn plain(&self) -> Option<Arc<File>> {
        self.file.clone().filter(|_| self.packing == Packing::Plain)
    }
}

/// Time at which the snapshot of a stream with this first record was made; 0 if that is none.
fn created(head: &[u8]) -> u64 {
    let header = <&[u8; HEADER_SIZE]>::try_from(head).ok();
    let header = header.and_then(|bytes| Header::decode(bytes, order_of(bytes)?).ok());
    match header.map(|header| header.record) {
        Some(Record::Begin(begin)) => begin.creation_time,
        _ => 0,
    }
}

/// Checksum of both ends of a file.
fn ends(file: &File, size: u64) -> io::Result<[u64; 4]> {
    let len = size.min(ENDS);
    let mut bytes = vec![0; 2 * len as usize];
    let (first, last) = bytes.split_at_mut(len as usize);
    file.read_exact_at(first, 0)?;
    file.read_exact_at(last, size - len)?;
    Ok(store::sum(&bytes))
}

/// Reads a file without moving the place of its handle, which others read too.
struct FileReader {
    file: Arc<File>,
    at: u64,
}

impl Read for FileReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
