//! The running checksum of a stream (docs/on-disk/30-send-streams.md, section 3).

use codec::checksum::compute;
use format::{ChecksumId, Endian};

/// Bytes of a word of the checksum.
const WORD: usize = 4;
/// Bytes up to which one chain of sums is faster than several that are joined at the end: headers, and most bonuses.
const SHORT: usize = 1024;

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
        if bytes.len() <= SHORT {
            return self.add_short(bytes, order);
        }
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

    /// Adds whole words one by one.
    fn add_short(&mut self, bytes: &[u8], order: Endian) {
        let [mut a, mut b, mut c, mut d] = self.0;
        let mut add = |word: u32| {
            a = a.wrapping_add(u64::from(word));
            b = b.wrapping_add(a);
            c = c.wrapping_add(b);
            d = d.wrapping_add(c);
        };
        let words = bytes.as_chunks::<WORD>().0.iter();
        match order {
            Endian::Little => words.for_each(|word| add(u32::from_le_bytes(*word))),
            Endian::Big => words.for_each(|word| add(u32::from_be_bytes(*word))),
        }
        self.0 = [a, b, c, d];
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
