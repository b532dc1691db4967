//! Skein-512-256 as a MAC, keyed with 32 bytes
//! (docs/on-disk/13-checksums-compression.md, section 1.5): version 1.3, no tree.

const WORDS: usize = 8;
const BLOCK: usize = 64;
/// Parity word of the key schedule.
const PARITY: u64 = 0x1BD1_1BDA_A9FC_1A22;
const FIRST: u64 = 1 << 62;
const FINAL: u64 = 1 << 63;

/// Type of a chain of blocks: bits 56 to 61 of the second tweak word.
#[derive(Clone, Copy)]
enum Purpose {
    Key = 0,
    Config = 4,
    Message = 48,
    Output = 63,
}

/// Rotations of the mix function by round modulo 8 and pair.
const ROTATE: [[u32; 4]; 8] = [
    [46, 36, 19, 37],
    [33, 27, 14, 42],
    [17, 49, 36, 39],
    [44, 9, 54, 56],
    [39, 30, 34, 24],
    [13, 50, 10, 17],
    [25, 29, 39, 43],
    [8, 35, 56, 22],
];

/// The chaining value after the key and the configuration: the same for every block of a pool.
#[derive(Clone)]
pub(crate) struct Keyed {
    chain: [u64; WORDS],
}

impl Keyed {
    pub(crate) fn new(key: &[u8; 32]) -> Keyed {
        let keyed = chain([0; WORDS], Purpose::Key, key);
        let mut config = [0; 32];
        config[..8].copy_from_slice(&[b'S', b'H', b'A', b'3', 1, 0, 0, 0]);
        config[8..16].copy_from_slice(&256u64.to_le_bytes());
        Keyed { chain: chain(keyed, Purpose::Config, &config) }
    }

    pub(crate) fn mac(&self, message: &[u8]) -> [u8; 32] {
        let done = chain(self.chain, Purpose::Message, message);
        let out = chain(done, Purpose::Output, &0u64.to_le_bytes());
        let mut digest = [0; 32];
        for (bytes, word) in digest.as_chunks_mut::<8>().0.iter_mut().zip(out) {
            *bytes = word.to_le_bytes();
        }
        digest
    }
}

/// One UBI chain over `data`; an empty input is one block of zeros.
fn chain(mut state: [u64; WORDS], purpose: Purpose, data: &[u8]) -> [u64; WORDS] {
    let kind = (purpose as u64) << 56;
    let whole = data.len().saturating_sub(1) / BLOCK * BLOCK;
    let (body, last) = data.split_at(whole);
    let mut position = 0u64;
    let mut first = FIRST;
    for block in body.as_chunks::<BLOCK>().0 {
        position += BLOCK as u64;
        state = compress(&state, block, [position, kind | first]);
        first = 0;
    }
    let mut block = [0; BLOCK];
    for (to, from) in block.iter_mut().zip(last) {
        *to = *from;
    }
    compress(&state, &block, [position + last.len() as u64, kind | first | FINAL])
}

/// Threefish-512 of the block under the chaining value, fed forward.
#[inline]
fn compress(chain: &[u64; WORDS], block: &[u8; BLOCK], tweak: [u64; 2]) -> [u64; WORDS] {
    let mut message = [0u64; WORDS];
    for (word, raw) in message.iter_mut().zip(block.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*raw);
    }
    let mut key = [PARITY; WORDS + 1];
    for (k, c) in key.iter_mut().zip(chain) {
        *k = *c;
    }
    key[WORDS] = chain.iter().fold(PARITY, |acc, word| acc ^ word);
    let tweaks = [tweak[0], tweak[1], tweak[0] ^ tweak[1]];

    let mut v = message;
    macro_rules! inject {
        ($s:expr) => {
            for i in 0..WORDS {
                v[i] = v[i].wrapping_add(key[($s + i) % 9]);
            }
            v[5] = v[5].wrapping_add(tweaks[$s % 3]);
            v[6] = v[6].wrapping_add(tweaks[($s + 1) % 3]);
            v[7] = v[7].wrapping_add($s as u64);
        };
    }
    macro_rules! mix {
        ($a:literal, $b:literal, $r:expr) => {
            v[$a] = v[$a].wrapping_add(v[$b]);
            v[$b] = v[$b].rotate_left($r) ^ v[$a];
        };
    }
    // The permutation of the words is expressed by their names: after four rounds it is the identity.
    macro_rules! four_rounds {
        ($at:literal) => {
            mix!(0, 1, ROTATE[$at][0]);
            mix!(2, 3, ROTATE[$at][1]);
            mix!(4, 5, ROTATE[$at][2]);
            mix!(6, 7, ROTATE[$at][3]);
            mix!(2, 1, ROTATE[$at + 1][0]);
            mix!(4, 7, ROTATE[$at + 1][1]);
            mix!(6, 5, ROTATE[$at + 1][2]);
            mix!(0, 3, ROTATE[$at + 1][3]);
            mix!(4, 1, ROTATE[$at + 2][0]);
            mix!(6, 3, ROTATE[$at + 2][1]);
            mix!(0, 5, ROTATE[$at + 2][2]);
            mix!(2, 7, ROTATE[$at + 2][3]);
            mix!(6, 1, ROTATE[$at + 3][0]);
            mix!(0, 7, ROTATE[$at + 3][1]);
            mix!(2, 5, ROTATE[$at + 3][2]);
            mix!(4, 3, ROTATE[$at + 3][3]);
        };
    }
    macro_rules! eight_rounds {
        ($($s:literal)*) => {$(
            inject!(2 * $s);
            four_rounds!(0);
            inject!(2 * $s + 1);
            four_rounds!(4);
        )*};
    }
    eight_rounds!(0 1 2 3 4 5 6 7 8);
    inject!(18);
    for (word, plain) in v.iter_mut().zip(message) {
        *word ^= plain;
    }
    v
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_around_a_block_differ_from_zero_padding() {
        let keyed = Keyed::new(&[7; 32]);
        let zeros = [0u8; 200];
        let mut seen = std::collections::HashSet::new();
        for len in [0, 1, 63, 64, 65, 127, 128, 129, 200] {
            assert!(seen.insert(keyed.mac(&zeros[..len])), "len={len}");
        }
    }
}
