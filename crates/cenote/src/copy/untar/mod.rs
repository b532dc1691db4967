//! Reads tar archives in the formats ustar, pax, GNU and v7.
//!
//! Extended headers of pax archives override the header: names of any length, sizes, ids, times with nanoseconds,
//! `SCHILY.xattr` and `SCHILY.acl` records, and all four versions of GNU's sparse format (old GNU, 0.0, 0.1, 1.0).
//! GNU's long names (`L`, `K`) and base-256 numbers are read too.
//!
//! # What always holds
//! - The archive is treated as hostile: sizes and maps are checked before use, memory is bounded, and errors in the
//!   archive do not cause panics.
//! - [`TarReader::next`] skips the data of a member that the caller has not read.
//! - Names are returned as they are in the archive; code that creates files sanitizes them ([`clean_name`]).

mod header;
mod pax;
mod sparse;
#[cfg(test)]
mod tests;

use std::io::{self, Read};

use super::meta::{Kind, Meta, Segment};
use header::Header;
use pax::Pax;

const BLOCK: usize = 512;
/// Maximum size of an extended header in bytes; a file may have many attributes of 64 KiB.
const EXTENDED_MAX: u64 = 64 << 20;
/// Maximum length of a GNU long name in bytes.
const LONG_NAME_MAX: u64 = 1 << 20;
/// Maximum number of bytes that are read after the end of the archive, so that a program that writes it to a pipe
/// can finish.
const TRAILER_MAX: u64 = 1 << 20;

/// Why an archive cannot be read further.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TarError {
    /// The input does not begin with a tar header.
    #[error("this does not look like a tar archive")]
    NotAnArchive,
    /// The input is compressed; holds the name of the program that can decompress it.
    #[error("the archive is compressed: decompress it first, as in `{0} -dc FILE | cenote tar -x ...`")]
    Compressed(&'static str),
    /// The archive has a damaged header.
    #[error("damaged header at byte {at}: {why}")]
    Header {
        /// Offset of the header in bytes.
        at: u64,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The archive ends in the middle of a member.
    #[error("unexpected end of the archive at byte {at}")]
    Truncated {
        /// Offset of the end in bytes.
        at: u64,
    },
    /// The input cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Kind of a member, with its link target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A file with data or attributes of its own, of kind [`Meta::kind`].
    File,
    /// A hard link to an earlier member, by its name.
    HardLink(Vec<u8>),
    /// A symbolic link with this target.
    Symlink(Vec<u8>),
}

/// A member of an archive.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    /// Name as in the archive.
    pub(crate) name: Vec<u8>,
    /// Kind of the member.
    pub(crate) entry: Entry,
    /// Its attributes. [`Meta::size`] is that of the file, holes included.
    pub(crate) meta: Meta,
    /// Ranges with data; the other bytes are zeros.
    pub(crate) segments: Vec<Segment>,
    /// It has an NFSv4 ACL, which is ignored.
    pub(crate) has_nfs4_acl: bool,
    /// Records that were not understood.
    pub(crate) ignored: Vec<String>,
}

/// Reads an archive from a stream.
pub struct TarReader<R: Read> {
    input: R,
    /// Number of bytes read so far.
    at: u64,
    /// Number of data bytes of the current member that are left, and of padding after them.
    left: u64,
    padding: u64,
    global: Pax,
    has_begun: bool,
    has_ended: bool,
}

impl<R: Read> TarReader<R> {
    /// Reads from `input`, which should be buffered.
    pub fn new(input: R) -> TarReader<R> {
        TarReader {
            input,
            at: 0,
            left: 0,
            padding: 0,
            global: Pax::default(),
            has_begun: false,
            has_ended: false,
        }
    }

    /// Number of bytes read so far.
    pub(crate) fn position(&self) -> u64 {
        self.at
    }

    /// The next member; `None` at the end.
    ///
    /// # Errors
    /// [`TarError`] if the archive cannot be read further.
    #[allow(clippy::should_implement_trait)] // Its data are read between two calls.
    pub(crate) fn next(&mut self) -> Result<Option<Member>, TarError> {
        self.skip(self.left + self.padding)?;
        (self.left, self.padding) = (0, 0);
        let (mut pax, mut long_name, mut long_link) = (Pax::default(), None, None);
        let mut has_extended = false;
        loop {
            let Some((start, header)) = self.header()? else {
                if has_extended {
                    return Err(TarError::Truncated { at: self.at });
                }
                return Ok(None);
            };
            match header.flag {
                b'x' | b'X' => pax.read(&self.blob(start, header.size, EXTENDED_MAX)?, start)?,
                b'g' => {
                    let bytes = self.blob(start, header.size, EXTENDED_MAX)?;
                    self.global.read(&bytes, start)?;
                }
                b'L' => long_name = Some(self.long(start, header.size)?),
                b'K' => long_link = Some(self.long(start, header.size)?),
                // Volume label.
                b'V' => self.skip(header.size.next_multiple_of(BLOCK as u64))?,
                b'M' => {
                    return Err(TarError::Header { at: start, why: "a part of a multi-volume archive" });
                }
                _ => {
                    let mut header = header;
                    header.name = long_name.unwrap_or(header.name);
                    header.link = long_link.unwrap_or(header.link);
                    return self.member(start, &header, &pax).map(Some);
                }
            }
            has_extended = true;
        }
    }

    /// Reads data of the current member, segment after segment; returns 0 at the end.
    ///
    /// # Errors
    /// [`TarError`] if the archive ends too early or cannot be read.
    pub(crate) fn read_data(&mut self, buf: &mut [u8]) -> Result<usize, TarError> {
        let len = usize::try_from(self.left).map_or(buf.len(), |left| left.min(buf.len()));
        let Some(buf) = buf.get_mut(..len) else { return Ok(0) };
        self.fill(buf)?;
        self.left -= len as u64;
        Ok(len)
    }

    fn member(&mut self, start: u64, header: &Header, own: &Pax) -> Result<Member, TarError> {
        let bad = |why| TarError::Header { at: start, why };
        let pax = self.global.with(own);
        let stored = pax.number("size").unwrap_or(header.size);
        let mut meta = header.meta();
        let mut name = pax.name("path").unwrap_or(header.name.clone());
        let link = pax.name("linkpath").unwrap_or(header.link.clone());
        let entry = match header.flag {
            b'1' => Entry::HardLink(link),
            b'2' => Entry::Symlink(link),
            _ => Entry::File,
        };
        // Regular files have data after the header; in pax archives, hard links may too.
        let has_data = meta.kind == Kind::Regular && (entry == Entry::File || !own.is_empty());
        let stored = if has_data || header.flag == b'D' { stored } else { 0 };
        let padded = stored.checked_next_multiple_of(BLOCK as u64).filter(|len| *len < 1 << 62);
        let padded = padded.ok_or_else(|| bad("an impossible size"))?;
        (self.left, self.padding) = (stored, padded - stored);
        pax.apply(&mut meta);
        meta.size = stored;
        let mut segments = match stored {
            0 => Vec::new(),
            len => vec![Segment { offset: 0, len }],
        };
        if meta.kind != Kind::Regular {
            self.skip(padded)?;
            (self.left, self.padding, meta.size) = (0, 0, 0);
            segments.clear();
        } else if entry == Entry::File
            && let Some(found) = self.sparse(start, header, &pax)?
        {
            meta.size = found.size;
            segments = found.segments;
            name = pax.name("GNU.sparse.name").unwrap_or(name);
        }
        if name.is_empty() || name.contains(&0) {
            return Err(bad("no name"));
        }
        let has_nfs4_acl = pax.text("SCHILY.acl.ace").is_some();
        Ok(Member { name, entry, meta, segments, has_nfs4_acl, ignored: pax.ignored() })
    }

    /// The next header and its offset; `None` at the end of the archive.
    fn header(&mut self) -> Result<Option<(u64, Header)>, TarError> {
        if self.has_ended {
            return Ok(None);
        }
        let start = self.at;
        let mut block = [0; BLOCK];
        if !self.block_or_end(&mut block)? {
            // An empty input is not an archive; an archive may lack its final zeros.
            self.has_ended = true;
            return if self.has_begun { Ok(None) } else { Err(TarError::NotAnArchive) };
        }
        if block.iter().all(|byte| *byte == 0) {
            self.has_ended = true;
            self.drain();
            return Ok(None);
        }
        let header = Header::decode(&block).map_err(|why| match self.has_begun {
            true => TarError::Header { at: start, why },
            false => header::compressed_by(&block).map_or(TarError::NotAnArchive, TarError::Compressed),
        })?;
        self.has_begun = true;
        Ok(Some((start, header)))
    }

    /// Reads a block. False: the input is at its end.
    fn block_or_end(&mut self, block: &mut [u8; BLOCK]) -> Result<bool, TarError> {
        let mut done = 0;
        while let Some(rest) = block.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.input.read(rest) {
                Ok(0) if done == 0 => return Ok(false),
                Ok(0) if !self.has_begun => return Err(TarError::NotAnArchive),
                Ok(0) => return Err(TarError::Truncated { at: self.at + done as u64 }),
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.at += BLOCK as u64;
        Ok(true)
    }

    /// The data of a header that describes the next one.
    fn blob(&mut self, start: u64, len: u64, max: u64) -> Result<Vec<u8>, TarError> {
        if len > max {
            return Err(TarError::Header { at: start, why: "an extended header that is too large" });
        }
        // The buffer grows with the data: the announced size alone must not allocate memory.
        let mut bytes = Vec::new();
        let got = (&mut self.input).take(len).read_to_end(&mut bytes)? as u64;
        self.at += got;
        if got < len {
            return Err(TarError::Truncated { at: self.at });
        }
        self.skip(len.next_multiple_of(BLOCK as u64) - len)?;
        Ok(bytes)
    }

    fn long(&mut self, start: u64, len: u64) -> Result<Vec<u8>, TarError> {
        let mut bytes = self.blob(start, len, LONG_NAME_MAX)?;
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        bytes.truncate(end);
        Ok(bytes)
    }

    fn fill(&mut self, buf: &mut [u8]) -> Result<(), TarError> {
        self.input.read_exact(buf).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => TarError::Truncated { at: self.at },
            _ => error.into(),
        })?;
        self.at += buf.len() as u64;
        Ok(())
    }

    fn skip(&mut self, len: u64) -> Result<(), TarError> {
        let skipped = io::copy(&mut (&mut self.input).take(len), &mut io::sink())?;
        self.at += skipped;
        if skipped < len { Err(TarError::Truncated { at: self.at }) } else { Ok(()) }
    }

    fn drain(&mut self) {
        // Data after the end is irrelevant, and so are errors in reading it.
        let _ = io::copy(&mut (&mut self.input).take(TRAILER_MAX), &mut io::sink());
    }
}

/// A member's name as a path below the target: without leading and trailing slashes, `.` components and empty
/// components. `None`: the name contains `..` and could lead out of the target.
#[must_use]
pub(crate) fn clean_name(name: &[u8]) -> Option<Vec<&[u8]>> {
    let parts = name.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".");
    let parts: Vec<&[u8]> = parts.collect();
    (!parts.contains(&&b".."[..])).then_some(parts)
}
