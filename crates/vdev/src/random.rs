//! Pseudo-random numbers, reproducible from a seed.

/// Pseudo-random numbers (SplitMix64): for tests and identities, not for keys.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The sequence of a seed, the same in every run.
    pub fn from_seed(seed: u64) -> Random {
        Random(seed)
    }

    /// A sequence seeded by the operating system, different in every run.
    pub(crate) fn from_system() -> Random {
        use std::hash::{BuildHasher, Hasher};
        // The standard library seeds its hash maps from the system's generator.
        Random(std::collections::hash_map::RandomState::new().build_hasher().finish())
    }

    /// The next number of the sequence, any of 2^64.
    #[allow(clippy::should_implement_trait)] // endless: an iterator would only add an Option
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`; 0 if `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    /// True once in `of` times, never if `of` is 0.
    pub fn one_in(&mut self, of: u64) -> bool {
        of != 0 && self.below(of) == 0
    }

    /// Fills a buffer with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let number = self.next().to_le_bytes();
            chunk.copy_from_slice(&number[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitmix_reference() {
        let mut random = Random::from_seed(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
    }
}
