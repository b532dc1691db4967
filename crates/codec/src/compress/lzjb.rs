//! LZJB (docs/on-disk/13-checksums-compression.md, section 2.2).
//!
//! A control byte precedes eight items, one for each of its bits from the lowest: a literal byte, or two bytes with
//! the length and distance of a match.

use super::error::DecompressError;
use format::CompressionId;

const ID: CompressionId = CompressionId::Lzjb;
const MATCH_MIN: usize = 3;
const MATCH_MAX: usize = 66;
/// A distance has ten bits.
const DISTANCE_MASK: usize = 0x3ff;
const HASH_SIZE: usize = 1024;
/// Maximum size of a group in bytes: a control byte and eight matches.
const GROUP_MAX: usize = 17;

pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> Result<(), DecompressError> {
    let short = DecompressError::Truncated { id: ID, have: src.len() };
    let mut input = src.iter();
    let mut at = 0;
    while at < dst.len() {
        let control = *input.next().ok_or(short)?;
        for bit in 0..8 {
            if at >= dst.len() {
                break;
            }
            let first = *input.next().ok_or(short)?;
            if control >> bit & 1 == 0 {
                if let Some(to) = dst.get_mut(at) {
                    *to = first;
                }
                at += 1;
                continue;
            }
            let second = *input.next().ok_or(short)?;
            let len = usize::from(first >> 2) + MATCH_MIN;
            let distance = usize::from(first & 3) << 8 | usize::from(second);
            at = copy_back(dst, at, distance, len).ok_or(DecompressError::Corrupt { id: ID })?;
        }
    }
    Ok(())
}

/// Copies the match at `distance` before `at`, cut at the end of the block. Returns the new position.
fn copy_back(dst: &mut [u8], at: usize, distance: usize, len: usize) -> Option<usize> {
    if distance == 0 {
        return None;
    }
    let from = at.checked_sub(distance)?;
    let end = dst.len().min(at + len);
    if distance >= len {
        // Source and target do not overlap: one copy is sufficient.
        dst.copy_within(from..from + (end - at), at);
    } else {
        let window = dst.get_mut(from..end)?;
        for i in distance..window.len() {
            window[i] = window[i - distance];
        }
    }
    Some(end)
}

/// Makes the same choices as the reference encoder, so that equal data written by both deduplicates.
pub(super) fn compress(src: &[u8], limit: usize) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(limit.min(src.len()));
    let mut seen = [0u16; HASH_SIZE];
    let mut at = 0;
    while at < src.len() {
        if out.len() + GROUP_MAX > limit {
            return None;
        }
        let control_at = out.len();
        out.push(0);
        let mut control = 0u8;
        for bit in 0..8 {
            let Some(&literal) = src.get(at) else { break };
            match find(src, at, &mut seen) {
                Some((distance, len)) => {
                    control |= 1 << bit;
                    out.push(((len - MATCH_MIN) as u8) << 2 | (distance >> 8) as u8);
                    out.push(distance as u8);
                    at += len;
                }
                None => {
                    out.push(literal);
                    at += 1;
                }
            }
        }
        if let Some(place) = out.get_mut(control_at) {
            *place = control;
        }
    }
    Some(out)
}

/// Distance and length of the match at `at`; records `at` for later matches.
fn find(src: &[u8], at: usize, seen: &mut [u16; HASH_SIZE]) -> Option<(usize, usize)> {
    // A match must not extend beyond the end of the input.
    if at > src.len().checked_sub(MATCH_MAX)? {
        return None;
    }
    let here = src.get(at..)?;
    let &[a, b, c] = here.first_chunk()?;
    let mut hash = (usize::from(a) << 16) + (usize::from(b) << 8) + usize::from(c);
    hash += hash >> 9;
    hash += hash >> 5;
    let slot = &mut seen[hash % HASH_SIZE];
    let distance = at.wrapping_sub(usize::from(*slot)) & DISTANCE_MASK;
    *slot = at as u16;
    let before = src.get(at.checked_sub(distance)?..)?;
    if distance == 0 || before.first_chunk() != Some(&[a, b, c]) {
        return None;
    }
    let equal = here.iter().zip(before).take(MATCH_MAX).take_while(|(x, y)| x == y).count();
    Some((distance, equal))
}
