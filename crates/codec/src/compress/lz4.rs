//! LZ4 blocks with a big-endian length in front
//! (docs/on-disk/13-checksums-compression.md, section 2.5).

use super::DecompressError;
use format::CompressionId;
use lz4_flex::block;

const ID: CompressionId = CompressionId::Lz4;
const HEADER: usize = 4;

pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> Result<(), DecompressError> {
    let short = DecompressError::Truncated { id: ID, have: src.len() };
    let (header, rest) = src.split_first_chunk::<HEADER>().ok_or(short)?;
    let len = usize::try_from(u32::from_be_bytes(*header)).map_err(|_| short)?;
    let stream = rest.get(..len).ok_or(short)?;
    match block::decompress_into(stream, dst) {
        Ok(written) if written == dst.len() => Ok(()),
        Ok(_) | Err(block::DecompressError::OutputTooSmall { .. }) => {
            Err(DecompressError::Size { id: ID, expected: dst.len() })
        }
        Err(_) => Err(DecompressError::Corrupt { id: ID }),
    }
}

pub(super) fn compress(src: &[u8], limit: usize) -> Option<Vec<u8>> {
    // The encoder wants room for the worst case; a limit is a matter of the format, not of memory.
    let mut out = vec![0; HEADER + block::get_maximum_output_size(src.len())];
    let (header, body) = out.split_first_chunk_mut::<HEADER>()?;
    let len = block::compress_into(src, body).ok()?;
    *header = u32::try_from(len).ok()?.to_be_bytes();
    if HEADER + len > limit {
        return None;
    }
    out.truncate(HEADER + len);
    Some(out)
}
