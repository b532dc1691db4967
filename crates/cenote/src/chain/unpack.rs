//! Streams that were compressed as files, with zstd or gzip.

use std::io::{self, BufRead, BufReader, Cursor, Read};
use zlib_rs::{Inflate, InflateFlush, Status};

/// First bytes of files that are compressed with zstd and gzip.
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// Number of bytes for which streams are buffered: headers are small, and large payloads pass the buffer by.
const BUFFER: usize = 16 << 10;
/// Window size of gzip as a power of two, and the mark of its header.
const GZIP_WINDOW: u8 = 15 + 16;

/// How a stream lies in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Packing {
    /// As it is.
    Plain,
    /// Compressed with zstd.
    Zstd,
    /// Compressed with gzip.
    Gzip,
}

/// The stream in a file, decompressed if its first bytes say that it is compressed.
///
/// # Errors
/// The error of the source.
pub fn unpacked<'r>(mut source: impl Read + Send + 'r) -> io::Result<(Packing, Box<dyn Read + Send + 'r>)> {
    let mut head = Vec::new();
    source.by_ref().take(ZSTD.len() as u64).read_to_end(&mut head)?;
    let packing = match &head {
        head if head.starts_with(&ZSTD) => Packing::Zstd,
        head if head.starts_with(&GZIP) => Packing::Gzip,
        _ => Packing::Plain,
    };
    let whole = BufReader::with_capacity(BUFFER, Cursor::new(head).chain(source));
    Ok((
        packing,
        match packing {
            Packing::Plain => Box::new(whole),
            Packing::Zstd => {
                let plain = zstd::stream::read::Decoder::with_buffer(whole)?;
                Box::new(BufReader::with_capacity(BUFFER, plain))
            }
            Packing::Gzip => Box::new(BufReader::with_capacity(BUFFER, Gunzip::new(whole))),
        },
    ))
}

/// Decompresses the members of a gzip file, whose checksums are verified.
struct Gunzip<R> {
    source: R,
    inflate: Inflate,
    /// Nothing of the present member was read yet.
    is_between: bool,
}

impl<R: BufRead> Gunzip<R> {
    fn new(source: R) -> Gunzip<R> {
        Gunzip { source, inflate: Inflate::new(true, GZIP_WINDOW), is_between: true }
    }
}

impl<R: BufRead> Read for Gunzip<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let input = self.source.fill_buf()?;
            if input.is_empty() || buffer.is_empty() {
                let is_cut = !self.is_between && !buffer.is_empty();
                return if is_cut { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(0) };
            }
            let (read, written) = (self.inflate.total_in(), self.inflate.total_out());
            let status = self.inflate.decompress(input, buffer, InflateFlush::NoFlush);
            let status =
                status.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "damaged gzip data"))?;
            let used = (self.inflate.total_in() - read) as usize;
            let made = (self.inflate.total_out() - written) as usize;
            self.is_between = status == Status::StreamEnd;
            self.source.consume(used);
            if self.is_between {
                self.inflate = Inflate::new(true, GZIP_WINDOW);
            } else if used == 0 && made == 0 {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "damaged gzip data"));
            }
            if made > 0 {
                return Ok(made);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `printf 'hello hello hello\n' | gzip -n` writes.
    const HELLO: [u8; 29] = [
        0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x03, 0xcb, 0x48, 0xcd, 0xc9, 0xc9, 0x57, 0xc8,
        0x40, 0x90, 0x5c, 0x00, 0x3b, 0x7c, 0x8a, 0xdf, 0x12, 0x00, 0x00, 0x00,
    ];

    fn unpack(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut plain = Vec::new();
        unpacked(bytes)?.1.read_to_end(&mut plain)?;
        Ok(plain)
    }

    #[test]
    fn plain_bytes_stay_as_they_are() {
        assert_eq!(unpack(b"abc").expect("read"), b"abc");
        assert_eq!(unpack(b"").expect("read"), b"");
    }

    #[test]
    fn gzip_files_are_read_with_all_members_and_checked() {
        let twice = [HELLO, HELLO].concat();
        assert_eq!(unpack(&twice).expect("read"), b"hello hello hello\nhello hello hello\n");
        let mut damaged = HELLO;
        damaged[22] ^= 1;
        assert_eq!(unpack(&damaged).expect_err("damaged").kind(), io::ErrorKind::InvalidData);
        assert_eq!(unpack(&HELLO[..20]).expect_err("cut").kind(), io::ErrorKind::UnexpectedEof);
    }
}
