//! `cenote cat`: the bytes of files and volumes to standard output.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::AsFd;

use ::cenote::copy::meta::Content;
use ::cenote::copy::source::known_segments;
use ::cenote::copy::tar::{Piece, read_in_blocks};
use rustix::fs::{FileType, OFlags, SeekFrom, fcntl_getfl, fstat, ftruncate, seek};

use super::open::{Found, Session, Source};
use super::{Failure, Outcome, code, term};
use crate::console::RawOut;

/// Write files, or the raw image of volumes, to standard output
///
/// Symbolic links are followed. Into a file, holes stay holes.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    source: Source,
    /// Go on behind what cannot be read, with zeros in its place, instead of stopping there
    #[arg(long)]
    partial: bool,
    /// POOL/DATASET[@SNAPSHOT]:/PATH, or a volume POOL/VOLUME[@SNAPSHOT]
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<OsString>,
}

pub(super) fn run(args: &Args) -> Outcome {
    let session = Session::new(&args.source);
    let mut out = Output::new();
    let mut failed = false;
    for target in &args.targets {
        let found = match session.find(target, true) {
            Ok(found) => found,
            Err(failure) => {
                failure.tell()?;
                failed = true;
                continue;
            }
        };
        let shown = term::escape(std::os::unix::ffi::OsStrExt::as_bytes(target.as_os_str()));
        let content: &dyn Content = match &found {
            Found::Volume(_, volume) => volume,
            Found::File(file) if file.node.is_dir() => {
                term::complain(format_args!("{shown}: Is a directory"));
                failed = true;
                continue;
            }
            Found::File(file) if file.node.kind() != ::cenote::copy::meta::Kind::Regular => {
                term::complain(format_args!("{shown}: is a {}", file.node.kind()));
                failed = true;
                continue;
            }
            Found::File(file) => &file.node,
        };
        failed |= out.content(content, &shown, args.partial)?;
    }
    out.finish()?;
    Ok(code(failed))
}

/// Standard output, which may be a file that can have holes.
struct Output {
    out: RawOut,
    can_seek: bool,
    /// The end was reached by skipping.
    ends_in_hole: bool,
}

impl Output {
    fn new() -> Output {
        let out = RawOut::new();
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
    fn content(&mut self, content: &dyn Content, shown: &str, partial: bool) -> Result<bool, Failure> {
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

    fn finish(self) -> io::Result<()> {
        if self.ends_in_hole {
            let end = seek(self.out.as_fd(), SeekFrom::Current(0))?;
            ftruncate(self.out.as_fd(), end)?;
        }
        Ok(())
    }
}
