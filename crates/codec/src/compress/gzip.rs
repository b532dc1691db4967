//! zlib streams, called gzip-1 to gzip-9 (docs/on-disk/13-checksums-compression.md, section 2.4).

use super::error::DecompressError;
use format::CompressionId;
use std::cell::RefCell;
use zlib_rs::{Deflate, DeflateFlush, Inflate, InflateFlush, Status};

/// Binary logarithm of the window size: the maximum, because only the stream tells readers the size.
const WINDOW_BITS: u8 = 15;

thread_local! {
    /// The decoder's tables and window, reused because setting them up takes longer than decoding a small block.
    static INFLATE: RefCell<Inflate> = RefCell::new(Inflate::new(true, WINDOW_BITS));
}

pub(super) fn decompress(id: CompressionId, src: &[u8], dst: &mut [u8]) -> Result<(), DecompressError> {
    INFLATE.with_borrow_mut(|inflate| {
        inflate.reset(true);
        let status = inflate.decompress(src, dst, InflateFlush::Finish);
        let complete = usize::try_from(inflate.total_out()).is_ok_and(|written| written == dst.len());
        match status {
            Ok(Status::StreamEnd) if complete => Ok(()),
            Ok(Status::StreamEnd) => Err(DecompressError::Size { id, expected: dst.len() }),
            // The output is full, or the input is used up, before the end of the stream.
            Ok(_) if complete => Err(DecompressError::Size { id, expected: dst.len() }),
            Ok(_) => Err(DecompressError::Truncated { id, have: src.len() }),
            Err(_) => Err(DecompressError::Corrupt { id }),
        }
    })
}

/// Decompresses a stream of unknown size, which must fit into `dst`. Returns the size.
pub(super) fn decompress_some(
    id: CompressionId,
    src: &[u8],
    dst: &mut [u8],
) -> Result<usize, DecompressError> {
    INFLATE.with_borrow_mut(|inflate| {
        inflate.reset(true);
        match inflate.decompress(src, dst, InflateFlush::Finish) {
            Ok(Status::StreamEnd) => {
                usize::try_from(inflate.total_out()).map_err(|_| DecompressError::Corrupt { id })
            }
            Ok(_) => Err(DecompressError::Truncated { id, have: src.len() }),
            Err(_) => Err(DecompressError::Corrupt { id }),
        }
    })
}

pub(super) fn compress(id: CompressionId, src: &[u8], limit: usize) -> Option<Vec<u8>> {
    let level = i32::from(id.id()) - i32::from(CompressionId::Gzip1.id()) + 1;
    let mut deflate = Deflate::new(level, true, WINDOW_BITS);
    let mut out = vec![0; limit.min(zlib_rs::compress_bound(src.len()))];
    let status = deflate.compress(src, &mut out, DeflateFlush::Finish).ok()?;
    if !matches!(status, Status::StreamEnd) {
        return None;
    }
    out.truncate(usize::try_from(deflate.total_out()).ok()?);
    Some(out)
}
