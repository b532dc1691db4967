//! The running checksum of a stream (docs/on-disk/30-send-streams.md, section 3).

use codec::checksum::compute;
use format::{ChecksumId, Endian};

/// Bytes of a word of the checksum.
const WORD: usize = 4;

/// Fletcher-4 of the bytes of a stream so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Running([u64; 4]);

impl Running {
    pub(crate) fn words(&self) -> [u64; 4] {
        self.0
    }

    /// Adds bytes; those after the last whole word are ignored, as senders do.
    pub(crate) fn add(&mut self, bytes: &[u8], order: Endian) {
        let whole = bytes.len() / WORD * WORD;
        let bytes = bytes.get(..whole).unwrap_or_default();
        let Ok(added) = compute(ChecksumId::Fletcher4, bytes, order, None) else { return };
        // Of n more words, each earlier sum takes part once for every word, every pair of words, and so on.
        let n = (whole / WORD) as u128;
        let pairs = n * (n + 1) / 2;
        let triples = pairs * (n + 2) / 3;
        let [n, pairs, triples] = [n, pairs, triples].map(|count| count as u64);
        let ([a, b, c, d], [add_a, add_b, add_c, add_d]) = (self.0, added.0);
        let sum = |terms: &[u64]| terms.iter().fold(0u64, |sum, term| sum.wrapping_add(*term));
        self.0 = [
            sum(&[a, add_a]),
            sum(&[b, n.wrapping_mul(a), add_b]),
            sum(&[c, n.wrapping_mul(b), pairs.wrapping_mul(a), add_c]),
            sum(&[d, n.wrapping_mul(c), pairs.wrapping_mul(b), triples.wrapping_mul(a), add_d]),
        ];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_the_checksum_of_the_whole() {
        let bytes: Vec<u8> = (0..40_000u32).map(|i| ((i * i) >> 3) as u8).collect();
        for order in [Endian::Little, Endian::Big] {
            let whole = compute(ChecksumId::Fletcher4, &bytes, order, None).unwrap().0;
            for part in [4, 280, 4096, 39_996] {
                let mut running = Running::default();
                bytes.chunks(part).for_each(|chunk| running.add(chunk, order));
                assert_eq!(running.words(), whole, "{order:?}, parts of {part}");
            }
        }
    }

    #[test]
    fn bytes_after_the_last_word_do_not_count() {
        let (mut one, mut other) = (Running::default(), Running::default());
        one.add(&[1, 2, 3, 4], Endian::Little);
        other.add(&[1, 2, 3, 4, 5, 6, 7], Endian::Little);
        assert_eq!(one, other);
    }
}
