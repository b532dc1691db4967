//! Checksums of intent-log blocks (docs/on-disk/24-zil.md, section 3.1).
//!
//! The checksum words of a log block's *pointer* are not a checksum but the identity of the block in its chain;
//! they are the verifier of the checksum inside the block. Therefore an old block at the end of the chain is not
//! taken for the next block.

use super::trailer::{TRAILER_SIZE, order_of, substituted};
use super::{fletcher, is_shortened, mac_words, shorten};
use format::{BlockPtr, Checksum, ChecksumId, Endian};

/// Size of the chain structure in bytes: padding, next pointer, used bytes, checksum.
pub(crate) const CHAIN_SIZE: usize = 184;
/// Offset of `nused` in the chain structure.
const NUSED: usize = 136;
/// Offset of the checksum in the chain structure.
const EMBEDDED: usize = 144;
/// Unit in bytes in which blocks with the structure in front are written.
const WRITE_UNIT: usize = 4096;

/// Layout of a log block.
struct Layout {
    /// Start of the chain structure.
    chain: usize,
    /// Bytes from the start of the block that the checksum covers.
    covered: usize,
    /// The field `nused`, as stored: bytes in use.
    nused: usize,
}

/// Verifies a log block. Returns its byte order and `nused`. `None`: the block is incomplete or does not belong to
/// its pointer, which is how a chain ends.
///
/// `nused` is as stored, and within the block: with the chain structure in front (zilog2) it counts from the start
/// of the block, otherwise it counts the records only. The caller must check that the next pointer continues the
/// chain.
pub fn verify_zil(bp: &BlockPtr, block: &[u8]) -> Option<(Endian, usize)> {
    let id = bp.checksum_kind().ok()?;
    let chain = chain_start(id, block.len())?;
    let order = order_of(block, chain + EMBEDDED)?;
    let layout = layout(id, block, chain, order)?;
    let stored: [u64; 4] = order.words("log block", block, chain + EMBEDDED + 8).ok()?;
    let actual = compute(id, block, &layout, order, bp.checksum().0)?;
    let right = if is_shortened(bp) {
        let [a, b, ..] = stored;
        shorten(id, actual) == [a, b]
    } else {
        actual.0 == stored
    };
    right.then_some((order, layout.nused))
}

/// Writes magic number and checksum of a log block with complete contents, `nused` included, in little-endian
/// order; `mac` is that of an encrypted block. False if the block is not valid: `nused` exceeds it, or the pointer
/// has another checksum id.
pub fn write_zil(bp: &BlockPtr, block: &mut [u8], mac: Option<&[u8; 16]>) -> bool {
    let order = Endian::Little;
    let sealed = bp.checksum_kind().ok().and_then(|id| {
        let chain = chain_start(id, block.len())?;
        let layout = layout(id, block, chain, order)?;
        let actual = compute(id, block, &layout, order, bp.checksum().0)?;
        let words = match mac {
            Some(mac) => {
                let ([a, b], [c, d]) = (shorten(id, actual), mac_words(mac));
                [a, b, c, d]
            }
            None => actual.0,
        };
        Some((chain, words))
    });
    let Some((chain, words)) = sealed else { return false };
    let Some(place) = block.get_mut(chain + EMBEDDED..).and_then(|b| b.first_chunk_mut()) else {
        return false;
    };
    *place = substituted(order, words);
    true
}

fn chain_start(id: ChecksumId, len: usize) -> Option<usize> {
    match id {
        ChecksumId::Zilog2 if len >= CHAIN_SIZE => Some(0),
        ChecksumId::Zilog => len.checked_sub(CHAIN_SIZE),
        _ => None,
    }
}

fn layout(id: ChecksumId, block: &[u8], chain: usize, order: Endian) -> Option<Layout> {
    let nused = usize::try_from(order.get_u64(block, chain + NUSED)?).ok()?;
    let bounds = if id == ChecksumId::Zilog2 { CHAIN_SIZE..=block.len() } else { 0..=chain };
    if !bounds.contains(&nused) {
        return None;
    }
    let covered = match id {
        ChecksumId::Zilog2 => nused.next_multiple_of(WRITE_UNIT).min(block.len()),
        _ => block.len(),
    };
    Some(Layout { chain, covered, nused })
}

fn compute(
    id: ChecksumId,
    block: &[u8],
    layout: &Layout,
    order: Endian,
    verifier: [u64; 4],
) -> Option<Checksum> {
    let mut bytes = block.get(..layout.covered)?.to_vec();
    let trailer: &mut [u8; TRAILER_SIZE] =
        bytes.get_mut(layout.chain + EMBEDDED..).and_then(|b| b.first_chunk_mut())?;
    *trailer = substituted(order, verifier);
    Some(Checksum(match id {
        ChecksumId::Zilog2 => fletcher::fletcher4(&bytes, order),
        _ => fletcher::fletcher2(&bytes, order),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointer(id: ChecksumId) -> BlockPtr {
        BlockPtr::from_words([1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0x1111, 0x2222, 54, 3])
            .with_prop_bits(40, 8, id.id().into())
            .with_prop_bits(48, 8, 9)
    }

    #[test]
    fn both_layouts_round_trip_and_know_their_place_in_the_chain() {
        for (id, chain, nused) in [(ChecksumId::Zilog2, 0, 5000), (ChecksumId::Zilog, 8192 - 184, 5000)] {
            let bp = pointer(id);
            let mut block: Vec<u8> = (0..8192u32).map(|i| (i * 13) as u8).collect();
            block[chain + NUSED..chain + NUSED + 8].copy_from_slice(&(nused as u64).to_le_bytes());
            assert!(write_zil(&bp, &mut block, None));
            assert_eq!(verify_zil(&bp, &block), Some((Endian::Little, nused)));
            assert_eq!(verify_zil(&bp.with_word(15, 4), &block), None, "the next block of the chain");
            let protected = bp.with_prop_bits(61, 1, 1);
            assert!(write_zil(&protected, &mut block, Some(&[0xab; 16])));
            assert_eq!(verify_zil(&protected, &block), Some((Endian::Little, nused)));
            let mac_at = chain + EMBEDDED + 24;
            assert_eq!(block[mac_at..mac_at + 16], [0xab; 16]);
            block[300] ^= 1;
            assert_eq!(verify_zil(&protected, &block), None);
        }
    }

    #[test]
    fn old_contents_after_the_used_part_do_not_count() {
        let bp = pointer(ChecksumId::Zilog2);
        let mut block = vec![0u8; 8192];
        block[NUSED..NUSED + 8].copy_from_slice(&184u64.to_le_bytes());
        assert!(write_zil(&bp, &mut block, None));
        block[4096..].fill(0xee);
        assert_eq!(verify_zil(&bp, &block), Some((Endian::Little, 184)));
    }

    #[test]
    fn used_bytes_beyond_the_block_end_the_chain() {
        let bp = pointer(ChecksumId::Zilog2);
        for nused in [0u64, 183, 8193, u64::MAX] {
            let mut block = vec![0u8; 8192];
            block[NUSED..NUSED + 8].copy_from_slice(&nused.to_le_bytes());
            assert!(!write_zil(&bp, &mut block, None));
            block[EMBEDDED..EMBEDDED + TRAILER_SIZE].copy_from_slice(&substituted(Endian::Little, [0; 4]));
            assert_eq!(verify_zil(&bp, &block), None);
        }
    }
}
