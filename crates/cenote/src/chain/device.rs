//! The device of an index's pool. What the pool writes is compared with what the stream files have: a block that stands
//! in one of them is noted by its place there, and everything else is stored in the index.
//!
//! # What always holds
//! - A block is noted by its place only after its bytes were compared with those of the file.
//! - What was read is verified by the pool: a stream file that changes later gives errors, never other data.
//! - The pool writes a block as one part of a request, or in parts of [`PART`] bytes. If that changes, indexes become
//!   larger, and nothing else.
// Stream files and indexes are files of the user's.
#![allow(clippy::disallowed_types)]

use super::extents::{Extent, Extents, OWN};
use super::store::{self, Head};
use codec::checksum::compute;
use format::{ChecksumId, DeviceOffset, Endian};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, RwLock};
use vdev::device::IoOp;
use vdev::sync::{lock, read, write};
use vdev::{Device, DeviceError};

/// Most bytes of a part of a block that the pool writes at once.
const PART: usize = 1 << 20;
/// Most blocks that are noted by their places; later ones are stored. Some 50 bytes of memory each.
const REFERENCES_MAX: usize = 8 << 20;
/// Bytes that are written at once when nothing else is known of them: zeros are not stored.
const ZEROS: [u8; 4096] = [0; 4096];

fn failed(op: IoOp, at: u64, len: usize, error: &io::Error) -> DeviceError {
    let cause = Errno::from_io_error(error).unwrap_or(Errno::IO).into();
    DeviceError::Io { op, at: DeviceOffset(at), len, cause }
}

fn check(at: DeviceOffset, len: usize, size: u64) -> Result<(), DeviceError> {
    match at.0.checked_add(len as u64) {
        Some(end) if end <= size => Ok(()),
        _ => Err(DeviceError::OutOfRange { at, len: len as u64, size }),
    }
}

/// Fills a buffer that begins at `at` of the device from these extents; the rest is zeros.
fn fill(
    buffer: &mut [u8],
    at: u64,
    extents: impl Iterator<Item = Extent>,
    own: &File,
    files: &[Option<Arc<File>>],
) -> Result<(), DeviceError> {
    let missing = || io::Error::from(io::ErrorKind::NotFound);
    buffer.fill(0);
    for extent in extents {
        let start = (extent.at - at) as usize;
        let Some(part) = buffer.get_mut(start..start + extent.len as usize) else { continue };
        let done = match extent.file {
            OWN => own.read_exact_at(part, extent.pos),
            file => match files.get(file as usize - 1) {
                Some(Some(file)) => file.read_exact_at(part, extent.pos),
                _ => Err(missing()),
            },
        };
        done.map_err(|error| failed(IoOp::Read, extent.at, part.len(), &error))?;
    }
    Ok(())
}

/// Place of some bytes in a stream file.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// Number of the file among the extents.
    file: u32,
    pos: u64,
}

/// The device of an index that is being built.
#[derive(Debug)]
pub(super) struct Building {
    size: u64,
    own: File,
    files: Vec<Option<Arc<File>>>,
    state: RwLock<State>,
    /// Places of the payloads that were read lately, by their checksums.
    payloads: Mutex<HashMap<[u64; 4], Place>>,
}

#[derive(Debug, Default)]
struct State {
    extents: Extents,
    /// First byte of the index after what was stored.
    end: u64,
}

impl Building {
    /// A device of `size` bytes over an empty file, and the stream files whose blocks may be noted by their places.
    pub(super) fn new(size: u64, own: File, files: Vec<Option<Arc<File>>>) -> Building {
        Building { size, own, files, state: RwLock::default(), payloads: Mutex::default() }
    }

    /// Notes a payload that stands at `pos` of the stream file with number `file`.
    pub(super) fn note(&self, file: usize, pos: u64, payload: &[u8]) {
        if self.files.get(file).is_none_or(Option::is_none) {
            return;
        }
        let mut payloads = lock(&self.payloads);
        for (index, part) in payload.chunks(PART).enumerate() {
            let place = Place { file: file as u32 + 1, pos: pos + (index * PART) as u64 };
            payloads.extend(key(part).map(|key| (key, place)));
        }
    }

    /// Number of payloads that are noted.
    pub(super) fn noted(&self) -> usize {
        lock(&self.payloads).len()
    }

    /// Forgets the payloads: those that the pool has written are known, and others will not be written.
    pub(super) fn forget(&self) {
        lock(&self.payloads).clear();
    }

    /// The file of the index.
    pub(super) fn own(&self) -> &File {
        &self.own
    }

    /// Writes what completes the index.
    ///
    /// # Errors
    /// The error of the system.
    pub(super) fn finish(&self, head: Head) -> io::Result<()> {
        let state = read(&self.state);
        store::finish(&self.own, state.end, &state.extents, Head { device_size: self.size, ..head })
    }

    /// The place of these bytes in a stream file, if they stand in one.
    fn place_of(&self, bytes: &[u8]) -> Option<Place> {
        let place = key(bytes).and_then(|key| lock(&self.payloads).get(&key).copied())?;
        let file = self.files.get(place.file as usize - 1)?.as_ref()?;
        let mut there = vec![0; bytes.len()];
        let is_same = file.read_exact_at(&mut there, place.pos).is_ok() && there == bytes;
        is_same.then_some(place)
    }

    fn store(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let (len, end) = (bytes.len() as u64, at + bytes.len() as u64);
        let mut state = write(&self.state);
        let there = state.extents.within(at, end).next();
        if let Some(there) = there.filter(|there| there.file == OWN && (there.at, there.len) == (at, len)) {
            return self.own.write_all_at(bytes, there.pos);
        }
        if bytes.chunks(ZEROS.len()).all(|chunk| chunk == &ZEROS[..chunk.len()]) {
            state.extents.punch(at, end);
            return Ok(());
        }
        self.own.write_all_at(bytes, state.end)?;
        let pos = state.end;
        state.end += len;
        state.extents.put(Extent { at, len, file: OWN, pos });
        Ok(())
    }
}

/// What payloads are found by; `None` for bytes that are no block.
fn key(bytes: &[u8]) -> Option<[u64; 4]> {
    let is_block = !bytes.is_empty() && bytes.len().is_multiple_of(512);
    let sum = is_block.then(|| compute(ChecksumId::Fletcher4, bytes, Endian::Little, None));
    sum?.ok().map(|sum| sum.0)
}

impl Device for Building {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, buf: &mut [u8], at: DeviceOffset) -> Result<(), DeviceError> {
        check(at, buf.len(), self.size)?;
        let state = read(&self.state);
        let extents = state.extents.within(at.0, at.0 + buf.len() as u64);
        fill(buf, at.0, extents, &self.own, &self.files)
    }

    fn write_at(&self, buf: &[u8], at: DeviceOffset) -> Result<(), DeviceError> {
        check(at, buf.len(), self.size)?;
        let has_room = || read(&self.state).extents.len() < REFERENCES_MAX;
        if let Some(Place { file, pos }) = self.place_of(buf).filter(|_| has_room()) {
            let extent = Extent { at: at.0, len: buf.len() as u64, file, pos };
            write(&self.state).extents.put(extent);
            return Ok(());
        }
        self.store(buf, at.0).map_err(|error| failed(IoOp::Write, at.0, buf.len(), &error))
    }

    fn write_parts(&self, parts: &[IoSlice<'_>], at: DeviceOffset) -> Result<(), DeviceError> {
        let mut at = at;
        for part in parts {
            self.write_at(part, at)?;
            at = DeviceOffset(at.0 + part.len() as u64);
        }
        Ok(())
    }

    fn discard(&self, at: DeviceOffset, len: u64) -> Result<(), DeviceError> {
        check(at, usize::try_from(len).unwrap_or(usize::MAX), self.size)?;
        write(&self.state).extents.punch(at.0, at.0 + len);
        Ok(())
    }
}

/// Pages of extents that are kept in memory.
const PAGES_MAX: usize = 256;

/// The device of an index that is complete. Read-only.
#[derive(Debug)]
pub(super) struct Indexed {
    own: File,
    files: Vec<Option<Arc<File>>>,
    head: Head,
    pages: Mutex<HashMap<usize, Arc<Vec<Extent>>>>,
}

impl Indexed {
    /// The device of the index in `own`, with its stream files.
    pub(super) fn new(own: File, files: Vec<Option<Arc<File>>>, head: Head) -> Indexed {
        Indexed { own, files, head, pages: Mutex::default() }
    }

    fn page(&self, index: usize) -> io::Result<Arc<Vec<Extent>>> {
        if let Some(page) = lock(&self.pages).get(&index) {
            return Ok(Arc::clone(page));
        }
        let page = Arc::new(store::read_page(&self.own, &self.head, index)?);
        let mut pages = lock(&self.pages);
        if pages.len() >= PAGES_MAX {
            pages.clear();
        }
        pages.insert(index, Arc::clone(&page));
        Ok(page)
    }

    /// The parts of extents within a range.
    fn within(&self, from: u64, to: u64) -> io::Result<Vec<Extent>> {
        let first = self.head.pages.partition_point(|page| *page <= from).saturating_sub(1);
        let mut found = Vec::new();
        for (index, start) in self.head.pages.iter().enumerate().skip(first) {
            if *start >= to {
                break;
            }
            found.extend(self.page(index)?.iter().filter_map(|extent| extent.within(from, to)));
        }
        Ok(found)
    }
}

impl Device for Indexed {
    fn size(&self) -> u64 {
        self.head.device_size
    }

    fn read_at(&self, buf: &mut [u8], at: DeviceOffset) -> Result<(), DeviceError> {
        check(at, buf.len(), self.size())?;
        let extents = self.within(at.0, at.0 + buf.len() as u64);
        let extents = extents.map_err(|error| failed(IoOp::Read, at.0, buf.len(), &error))?;
        fill(buf, at.0, extents.into_iter(), &self.own, &self.files)
    }

    fn is_read_only(&self) -> bool {
        true
    }
}
