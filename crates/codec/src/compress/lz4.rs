//! LZ4 blocks, preceded by a big-endian length
//! (docs/on-disk/13-checksums-compression.md, section 2.5).

use super::error::DecompressError;
use format::CompressionId;
use lz4_flex::block;
use std::cell::RefCell;

const ID: CompressionId = CompressionId::Lz4;
const HEADER: usize = 4;
/// Compression ratio from which [`expand`] is used. Such data has long runs: indirect blocks and space maps that
/// are mostly empty. The library copies runs byte by byte; [`expand`] doubles the copied length.
const RUNS_RATIO: usize = 24;
/// Minimum length of a match; lengths are stored less this.
const MATCH_MIN: usize = 4;
/// Maximum size of the scratch buffer that a thread keeps, in bytes. The encoder needs space for the worst case; a
/// sync compresses thousands of blocks, and a new buffer for each would be newly mapped memory.
const SCRATCH_MAX: usize = 256 << 10;
/// Results are padded to the write unit of devices, so that padding needs no further buffer.
const FILLED_TO: usize = 4096;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> Result<(), DecompressError> {
    let short = DecompressError::Truncated { id: ID, have: src.len() };
    let (header, rest) = src.split_first_chunk::<HEADER>().ok_or(short)?;
    let len = usize::try_from(u32::from_be_bytes(*header)).map_err(|_| short)?;
    let stream = rest.get(..len).ok_or(short)?;
    if stream.len().saturating_mul(RUNS_RATIO) < dst.len() {
        return if expand(stream, dst).is_some() { Ok(()) } else { Err(DecompressError::Corrupt { id: ID }) };
    }
    match block::decompress_into(stream, dst) {
        Ok(written) if written == dst.len() => Ok(()),
        Ok(_) | Err(block::DecompressError::OutputTooSmall { .. }) => {
            Err(DecompressError::Size { id: ID, expected: dst.len() })
        }
        Err(_) => Err(DecompressError::Corrupt { id: ID }),
    }
}

/// Decompresses a stream of unknown size, which must fit into `dst`. Returns the size.
pub(super) fn decompress_some(src: &[u8], dst: &mut [u8]) -> Result<usize, DecompressError> {
    let short = DecompressError::Truncated { id: ID, have: src.len() };
    let (header, rest) = src.split_first_chunk::<HEADER>().ok_or(short)?;
    let len = usize::try_from(u32::from_be_bytes(*header)).map_err(|_| short)?;
    let stream = rest.get(..len).ok_or(short)?;
    block::decompress_into(stream, dst).map_err(|_| DecompressError::Corrupt { id: ID })
}

pub(super) fn compress(src: &[u8], limit: usize) -> Option<Vec<u8>> {
    let room = block::get_maximum_output_size(src.len());
    if room > SCRATCH_MAX {
        return compress_in(&mut vec![0; room], src, limit);
    }
    SCRATCH.with_borrow_mut(|scratch| {
        if scratch.len() < room {
            scratch.resize(room, 0);
        }
        compress_in(scratch, src, limit)
    })
}

/// Compresses through `scratch`, which has space for the worst case. `limit` is a rule of the format.
fn compress_in(scratch: &mut [u8], src: &[u8], limit: usize) -> Option<Vec<u8>> {
    let len = block::compress_into(src, scratch).ok()?;
    if HEADER + len > limit {
        return None;
    }
    let mut image = Vec::with_capacity((HEADER + len).next_multiple_of(FILLED_TO));
    image.extend_from_slice(&u32::try_from(len).ok()?.to_be_bytes());
    image.extend_from_slice(scratch.get(..len)?);
    Some(image)
}

/// Decodes a stream that fills `dst` exactly. `None`: it does not, or is not valid.
fn expand(stream: &[u8], dst: &mut [u8]) -> Option<()> {
    let mut rest = stream;
    let mut at = 0_usize;
    loop {
        let (token, tail) = rest.split_first()?;
        rest = tail;
        let literals = length(usize::from(token >> 4), &mut rest)?;
        let (literal, tail) = rest.split_at_checked(literals)?;
        dst.get_mut(at..at.checked_add(literals)?)?.copy_from_slice(literal);
        at += literals;
        rest = tail;
        if rest.is_empty() {
            return (at == dst.len()).then_some(());
        }
        let (offset, tail) = rest.split_first_chunk::<2>()?;
        let offset = usize::from(u16::from_le_bytes(*offset));
        rest = tail;
        let len = length(usize::from(token & 15), &mut rest)?.checked_add(MATCH_MIN)?;
        let end = at.checked_add(len).filter(|end| *end <= dst.len())?;
        if offset == 0 || offset > at {
            return None;
        }
        // The match repeats itself: each copy doubles the length that can be copied at once.
        let from = at - offset;
        while at < end {
            let part = (at - from).min(end - at);
            dst.copy_within(from..from + part, at);
            at += part;
        }
    }
}

/// A length, given its first four bits; 15 means that more bytes follow.
fn length(bits: usize, rest: &mut &[u8]) -> Option<usize> {
    let mut length = bits;
    if bits == 15 {
        loop {
            let (byte, tail) = rest.split_first()?;
            *rest = tail;
            length = length.checked_add(usize::from(*byte))?;
            if *byte != u8::MAX {
                break;
            }
        }
    }
    Some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_expand_to_what_the_library_makes_of_them() {
        let mut state = 1_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize
        };
        for _ in 0..300 {
            let mut plain = vec![0_u8; 1 + random() % 200_000];
            for _ in 0..random() % 8 {
                let at = random() % plain.len();
                let end = plain.len().min(at + random() % 300);
                let period = 1 + random() % 7;
                for (i, byte) in plain[at..end].iter_mut().enumerate() {
                    *byte = (i % period) as u8;
                }
            }
            let stream = block::compress(&plain);
            let (mut ours, mut theirs) = (vec![9; plain.len()], vec![9; plain.len()]);
            assert_eq!(expand(&stream, &mut ours), Some(()));
            assert_eq!(block::decompress_into(&stream, &mut theirs).ok(), Some(plain.len()));
            assert!(ours == plain && theirs == plain);
            // Outputs that are longer and shorter than the data, and truncated streams: an error, never a panic.
            assert_eq!(expand(&stream, &mut vec![0; plain.len() + 1]), None);
            assert_eq!(expand(&stream[..stream.len() - 1], &mut ours), None);
            let mut broken = stream.clone();
            let at = random() % broken.len();
            broken[at] ^= 1 << (random() % 8);
            let _ = expand(&broken, &mut ours);
        }
    }
}
