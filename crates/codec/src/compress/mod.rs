//! Compression of blocks (docs/on-disk/13-checksums-compression.md, section 2).
//!
//! An *image* is the stored form of a block, on disk or in an embedded pointer: the compressor's output with the
//! framing of the format (a length for lz4 and zstd) and, on disk, zeros up to the block's physical size.
//!
//! # What always holds
//! - Decompression gives exactly the block's logical size or an error. It does not read beyond the image or write
//!   beyond the output; the contents of the output after an error are unspecified.
//! - Memory used beyond the output is a constant per algorithm and thread: zstd decodes straight into
//!   the output, so that no window is allocated for any window size of a frame.
//! - Bytes after the end of a stream are padding and are ignored, for every algorithm whose streams have an end.

mod error;
mod gzip;
mod lz4;
mod lzjb;
mod zle;
mod zstd;

pub use error::DecompressError;

pub use self::zstd::{ZstdHeader, level_from_byte as zstd_level_from_byte};

use format::CompressionId;

/// Decompresses the image `src` into `dst`, which has the block's logical size.
///
/// # Errors
/// If the image is damaged, does not give exactly `dst.len()` bytes, or the algorithm is not one that a block
/// can have.
pub fn decompress(id: CompressionId, src: &[u8], dst: &mut [u8]) -> Result<(), DecompressError> {
    match id {
        CompressionId::Off => {
            if src.len() != dst.len() {
                return Err(DecompressError::Size { id, expected: dst.len() });
            }
            dst.copy_from_slice(src);
            Ok(())
        }
        CompressionId::Lzjb => lzjb::decompress(src, dst),
        CompressionId::Zle => zle::decompress(src, dst),
        CompressionId::Lz4 => lz4::decompress(src, dst),
        CompressionId::Zstd => zstd::decompress(src, dst),
        CompressionId::Gzip1
        | CompressionId::Gzip2
        | CompressionId::Gzip3
        | CompressionId::Gzip4
        | CompressionId::Gzip5
        | CompressionId::Gzip6
        | CompressionId::Gzip7
        | CompressionId::Gzip8
        | CompressionId::Gzip9 => gzip::decompress(id, src, dst),
        CompressionId::Inherit | CompressionId::On | CompressionId::Empty => {
            Err(DecompressError::Algorithm { id })
        }
    }
}

/// Decompresses the image `src` of a block of unknown size, which must fit into `dst`. Returns the block's size.
///
/// # Errors
/// As [`decompress`]. Not for lzjb and zle, whose streams have no end; see [`zle_ends`].
pub fn decompress_some(id: CompressionId, src: &[u8], dst: &mut [u8]) -> Result<usize, DecompressError> {
    match id {
        CompressionId::Lz4 => lz4::decompress_some(src, dst),
        CompressionId::Zstd => zstd::decompress_some(src, dst),
        id if (CompressionId::Gzip1..=CompressionId::Gzip9).contains(&id) => {
            gzip::decompress_some(id, src, dst)
        }
        id => Err(DecompressError::Algorithm { id }),
    }
}

/// Ends of the runs in a zle image: the possible sizes of its block.
pub fn zle_ends(src: &[u8]) -> impl Iterator<Item = usize> + '_ {
    zle::ends(src)
}

/// Compresses `src` to an image of at most `limit` bytes. `None`: it does not fit, or `id` does not compress.
///
/// `level` is used only for zstd, in zstd's own numbers: 1 to 19, negative for the fast levels, 0 for the default.
/// Any other value is replaced by the nearest one that the format can store.
pub fn compress(id: CompressionId, level: i32, src: &[u8], limit: usize) -> Option<Vec<u8>> {
    match id {
        CompressionId::Lzjb => lzjb::compress(src, limit),
        CompressionId::Zle => zle::compress(src, limit),
        CompressionId::Lz4 => lz4::compress(src, limit),
        CompressionId::Zstd => zstd::compress(level, src, limit),
        CompressionId::Gzip1
        | CompressionId::Gzip2
        | CompressionId::Gzip3
        | CompressionId::Gzip4
        | CompressionId::Gzip5
        | CompressionId::Gzip6
        | CompressionId::Gzip7
        | CompressionId::Gzip8
        | CompressionId::Gzip9 => gzip::compress(id, src, limit),
        CompressionId::Inherit | CompressionId::On | CompressionId::Off | CompressionId::Empty => None,
    }
}

/// True if every byte is zero: such a block is stored as a hole.
pub fn is_zero(data: &[u8]) -> bool {
    let (chunks, tail) = data.as_chunks::<64>();
    chunks.iter().all(|chunk| chunk.iter().fold(0, |acc, byte| acc | byte) == 0)
        && tail.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests;
