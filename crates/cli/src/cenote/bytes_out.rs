//! Writes the bytes of files and volumes, one after the other: `cenote cat`, and `cenote cp` onto a device.

use std::io::{self, Write};
use std::os::fd::BorrowedFd;

use ::cenote::copy::{Content, Piece, known_segments, read_in_blocks};
use rustix::fs::{FileType, OFlags, SeekFrom, fcntl_getfl, fstat, ftruncate, seek};

use super::{Failure, term};
use crate::console::RawOut;

/// An output in which zero bytes may be left out as holes.
pub(super) trait Sink: Write {
    /// The descriptor of the output, if it belongs to this process.
    fn own(&self) -> Option<BorrowedFd<'_>>;

    /// Has the client leave out `len` zero bytes, or write them.
    ///
    /// # Errors
    /// The output belongs to this process, or the client is gone.
    fn hole(&self, len: u64) -> io::Result<()>;
}

impl Sink for RawOut {
    fn own(&self) -> Option<BorrowedFd<'_>> {
        RawOut::own(self)
    }

    fn hole(&self, len: u64) -> io::Result<()> {
        RawOut::hole(self, len)
    }
}

/// The target of the bytes: a stream, a device, or a file that can have holes.
pub(super) struct Output<W> {
    out: W,
    can_seek: bool,
    /// The last bytes were left out: the length of the file must be set at the end.
    ends_in_hole: bool,
}

impl<W: Sink> Output<W> {
    pub(super) fn new(out: W) -> Output<W> {
        let can_seek = out.own().is_some_and(can_have_holes);
        Output { out, can_seek, ends_in_hole: false }
    }

    /// Writes one file. Returns whether a part of it could not be read.
    pub(super) fn content(
        &mut self,
        content: &dyn Content,
        shown: &str,
        partial: bool,
    ) -> Result<bool, Failure> {
        let mut lost = false;
        let mut at = 0;
        for segment in known_segments(content) {
            self.hole(segment.offset - at)?;
            let mut stopped = false;
            read_in_blocks(content, segment, &mut |piece| match piece {
                _ if stopped => Ok(()),
                Piece::Data(_, bytes) => self.bytes(bytes),
                Piece::Bad(bad) => {
                    lost = true;
                    stopped = !partial;
                    let end = bad.offset + bad.len - 1;
                    term::complain(format_args!(
                        "{shown}: bytes {}-{end}: {}",
                        bad.offset,
                        term::chain(&bad.error)
                    ));
                    if partial { self.hole(bad.len) } else { Ok(()) }
                }
            })?;
            if stopped {
                return Ok(true);
            }
            at = segment.offset + segment.len;
        }
        self.hole(content.size() - at)?;
        Ok(lost)
    }

    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.ends_in_hole = false;
        self.out.write_all(bytes)
    }

    fn hole(&mut self, mut len: u64) -> io::Result<()> {
        static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
        let Some(own) = self.out.own() else {
            return if len > 0 { self.out.hole(len) } else { Ok(()) };
        };
        if len > 0 && self.can_seek && i64::try_from(len).is_ok() {
            seek(own, SeekFrom::Current(len as i64))?;
            self.ends_in_hole = true;
            return Ok(());
        }
        while len > 0 {
            let n = len.min(ZEROS.len() as u64);
            self.bytes(&ZEROS[..n as usize])?;
            len -= n;
        }
        Ok(())
    }

    pub(super) fn finish(self) -> io::Result<()> {
        match self.out.own() {
            Some(own) if self.ends_in_hole => end_in_hole(own),
            _ => Ok(()),
        }
    }
}

/// Whether bytes after the position of a descriptor may be left out: it is a regular file with no data there.
pub(crate) fn can_have_holes(out: BorrowedFd<'_>) -> bool {
    let is_file = |stat: &rustix::fs::Stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let appends = fcntl_getfl(out).is_ok_and(|flags| flags.contains(OFlags::APPEND));
    match (seek(out, SeekFrom::Current(0)), fstat(out)) {
        (Ok(at), Ok(stat)) => {
            is_file(&stat) && !appends && u64::try_from(stat.st_size).is_ok_and(|size| size <= at)
        }
        _ => false,
    }
}

/// Sets the length of a file to its position.
pub(crate) fn end_in_hole(out: BorrowedFd<'_>) -> io::Result<()> {
    let end = seek(out, SeekFrom::Current(0))?;
    Ok(ftruncate(out, end)?)
}
