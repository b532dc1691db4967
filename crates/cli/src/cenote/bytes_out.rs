//! The bytes of files and volumes, one after the other, to wherever bytes can go: `cenote cat`, and `cenote cp` onto
//! a device.

use std::io::{self, Write};
use std::os::fd::AsFd;

use ::cenote::copy::meta::Content;
use ::cenote::copy::source::known_segments;
use ::cenote::copy::tar::{Piece, read_in_blocks};
use rustix::fs::{FileType, OFlags, SeekFrom, fcntl_getfl, fstat, ftruncate, seek};

use super::{Failure, term};

/// Where bytes go: a stream, a device, or a file that can have holes.
pub(super) struct Output<W> {
    out: W,
    can_seek: bool,
    /// The end was reached by skipping.
    ends_in_hole: bool,
}

impl<W: Write + AsFd> Output<W> {
    pub(super) fn new(out: W) -> Output<W> {
        let is_file = fstat(out.as_fd())
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
        let appends = fcntl_getfl(out.as_fd()).is_ok_and(|flags| flags.contains(OFlags::APPEND));
        // What is already there behind our position would show through the holes.
        let at_end = match (seek(out.as_fd(), SeekFrom::Current(0)), fstat(out.as_fd())) {
            (Ok(at), Ok(stat)) => u64::try_from(stat.st_size).is_ok_and(|size| size <= at),
            _ => false,
        };
        Output { out, can_seek: is_file && !appends && at_end, ends_in_hole: false }
    }

    /// Writes one file. True if something of it could not be read.
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
        if len > 0 && self.can_seek && i64::try_from(len).is_ok() {
            seek(self.out.as_fd(), SeekFrom::Current(len as i64))?;
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
        if self.ends_in_hole {
            let end = seek(self.out.as_fd(), SeekFrom::Current(0))?;
            ftruncate(self.out.as_fd(), end)?;
        }
        Ok(())
    }
}
