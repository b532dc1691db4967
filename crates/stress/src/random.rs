//! Random numbers decided by a seed.

/// A SplitMix64 stream.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The stream of a seed.
    #[must_use]
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Derives an independent stream from the current state and a number.
    #[must_use]
    pub(crate) fn branch(&self, number: u64) -> Random {
        let mut branch = Random(self.0 ^ number.wrapping_mul(0xd129_0d3c_5a3f_9b17));
        branch.draw();
        branch
    }

    /// The next number of the stream, in the full range of `u64`.
    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `end`, which must not be 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.draw() % end
    }

    /// True with a probability of one in `times`.
    pub(crate) fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// A random element; the slice must not be empty.
    pub(crate) fn of<'t, T>(&mut self, all: &'t [T]) -> &'t T {
        &all[self.below(all.len() as u64) as usize]
    }

    /// Returns `count` random bytes.
    pub(crate) fn bytes(&mut self, count: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count as usize + 8);
        while (bytes.len() as u64) < count {
            bytes.extend(self.draw().to_le_bytes());
        }
        bytes.truncate(count as usize);
        bytes
    }
}
