//! ZLE: runs of zeros (docs/on-disk/13-checksums-compression.md, section 2.3).
//!
//! A length byte below 64 is followed by that many literal bytes and one more; any other length byte is a run of
//! zeros.

use super::error::DecompressError;
use format::CompressionId;

const ID: CompressionId = CompressionId::Zle;
const LITERALS: usize = 64;
const ZEROS: usize = 256 - LITERALS;

pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> Result<(), DecompressError> {
    let short = DecompressError::Truncated { id: ID, have: src.len() };
    let too_long = DecompressError::Size { id: ID, expected: dst.len() };
    let (mut src, mut dst) = (src, dst);
    while !dst.is_empty() {
        let (&length, rest) = src.split_first().ok_or(short)?;
        src = rest;
        let length = usize::from(length) + 1;
        let count = if length > LITERALS { length - LITERALS } else { length };
        let (run, after) = dst.split_at_mut_checked(count).ok_or(too_long)?;
        dst = after;
        if length > LITERALS {
            run.fill(0);
        } else {
            let (literals, rest) = src.split_at_checked(count).ok_or(short)?;
            run.copy_from_slice(literals);
            src = rest;
        }
    }
    Ok(())
}

/// Ends of the runs in a stream: the possible sizes of its block.
pub(super) fn ends(src: &[u8]) -> impl Iterator<Item = usize> + '_ {
    let (mut src, mut at) = (src, 0_usize);
    std::iter::from_fn(move || {
        let (&length, rest) = src.split_first()?;
        let length = usize::from(length) + 1;
        if length > LITERALS {
            at += length - LITERALS;
            src = rest;
        } else {
            at += length;
            src = rest.get(length..)?;
        }
        Some(at)
    })
}

pub(super) fn compress(src: &[u8], limit: usize) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(limit.min(src.len()));
    let mut rest = src;
    while let Some(&first) = rest.first() {
        let zeros = rest.iter().take(ZEROS).take_while(|byte| **byte == 0).count();
        let taken = if first == 0 {
            out.push((zeros + LITERALS - 1) as u8);
            zeros
        } else {
            let count = literals(rest);
            out.push((count - 1) as u8);
            out.extend(rest.iter().take(count));
            count
        };
        if out.len() > limit {
            return None;
        }
        rest = rest.get(taken..)?;
    }
    Some(out)
}

/// Number of literal bytes. A single zero between other bytes does not end the literals: a run would be as long.
fn literals(src: &[u8]) -> usize {
    let run = src.get(..src.len().min(LITERALS)).unwrap_or(src);
    let pairs = run.iter().zip(src.iter().skip(1).map(Some).chain([None]));
    let mut count = 0;
    for (byte, next) in pairs {
        if *byte == 0 && next.is_none_or(|next| *next == 0) {
            break;
        }
        count += 1;
    }
    count
}
