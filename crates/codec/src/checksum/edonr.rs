//! Edon-R-512 with the tweak of the format, keyed by a prefix block made of the salt
//! (docs/on-disk/13-checksums-compression.md, section 1.7).

const BLOCK: usize = 128;
const ADD_S: u64 = 0xAAAA_AAAA_AAAA_AAAA;
const ADD_T: u64 = 0x5555_5555_5555_5555;

type Half = [u64; 8];

/// The two halves of the state.
#[derive(Clone, Copy)]
struct State {
    low: Half,
    high: Half,
}

/// The state after the prefix block: the same for every block of a pool.
#[derive(Clone)]
pub(crate) struct Keyed {
    state: State,
}

impl Keyed {
    pub(crate) fn new(salt: &[u8; 32]) -> Keyed {
        let once = finish(State::INITIAL, 0, salt);
        let twice = finish(State::INITIAL, 0, &once);
        let mut prefix = [0; BLOCK];
        prefix[..64].copy_from_slice(&once);
        prefix[64..].copy_from_slice(&twice);
        Keyed { state: State::INITIAL.absorb(&prefix) }
    }

    /// The first 32 bytes of the digest.
    pub(crate) fn mac(&self, message: &[u8]) -> [u8; 32] {
        let digest = finish(self.state, BLOCK as u64, message);
        let mut head = [0; 32];
        head.copy_from_slice(&digest[..32]);
        head
    }
}

/// The digest of `data` appended to `before` bytes, a multiple of the block, already in `state`.
fn finish(mut state: State, before: u64, data: &[u8]) -> [u8; 64] {
    let (blocks, tail) = data.as_chunks::<BLOCK>();
    for block in blocks {
        state = state.absorb(block);
    }
    let mut last = [0; 2 * BLOCK];
    last[..tail.len()].copy_from_slice(tail);
    last[tail.len()] = 0x80;
    let end = if tail.len() < BLOCK - 8 { BLOCK } else { 2 * BLOCK };
    let bits = before.wrapping_add(data.len() as u64).wrapping_mul(8);
    last[end - 8..end].copy_from_slice(&bits.to_le_bytes());
    for block in last[..end].as_chunks::<BLOCK>().0 {
        state = state.absorb(block);
    }
    let mut digest = [0; 64];
    for (bytes, word) in digest.as_chunks_mut::<8>().0.iter_mut().zip(state.high) {
        *bytes = word.to_le_bytes();
    }
    digest
}

impl State {
    /// Bytes 0x80 to 0xff read as big-endian words.
    const INITIAL: State = State { low: State::run_from(0x80), high: State::run_from(0xc0) };

    const fn run_from(first: u8) -> Half {
        let mut words = [0; 8];
        let mut i = 0;
        while i < 8 {
            let b = first + 8 * i as u8;
            words[i] = u64::from_be_bytes([b, b + 1, b + 2, b + 3, b + 4, b + 5, b + 6, b + 7]);
            i += 1;
        }
        words
    }

    #[inline]
    fn absorb(self, block: &[u8; BLOCK]) -> State {
        let mut d = [0u64; 16];
        for (word, raw) in d.iter_mut().zip(block.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*raw);
        }
        let lo: Half = std::array::from_fn(|i| d[i]);
        let hi: Half = std::array::from_fn(|i| d[8 + i]);
        let mut a = product(&reversed(&hi), &lo);
        let mut b = product(&a, &hi);
        a = product(&self.high, &a);
        b = product(&a, &b);
        a = product(&a, &self.low);
        b = product(&b, &a);
        a = product(&reversed(&lo), &a);
        b = product(&a, &b);
        State {
            low: std::array::from_fn(|i| self.low[i] ^ hi[i] ^ a[i]),
            high: std::array::from_fn(|i| self.high[i] ^ lo[i] ^ b[i]),
        }
    }
}

fn reversed(x: &Half) -> Half {
    std::array::from_fn(|i| x[7 - i])
}

/// The quasigroup product of Edon-R.
#[inline(always)]
fn product(x: &Half, y: &Half) -> Half {
    macro_rules! sum {
        ($of:ident, $start:expr, $rotate:literal, $($j:literal)*) => {
            ($start$(.wrapping_add($of[$j]))*).rotate_left($rotate)
        };
    }
    let s = [
        sum!(x, ADD_S, 0, 0 1 2 4 7),
        sum!(x, 0u64, 5, 0 1 3 4 7),
        sum!(x, 0u64, 15, 0 1 4 6 7),
        sum!(x, 0u64, 22, 2 3 5 6 7),
        sum!(x, 0u64, 31, 1 2 3 5 6),
        sum!(x, 0u64, 40, 0 2 3 4 5),
        sum!(x, 0u64, 50, 0 1 5 6 7),
        sum!(x, 0u64, 59, 2 3 4 5 6),
    ];
    let t = [
        sum!(y, ADD_T, 0, 0 1 2 5 7),
        sum!(y, 0u64, 10, 0 1 3 4 6),
        sum!(y, 0u64, 19, 0 1 2 3 5),
        sum!(y, 0u64, 29, 2 3 4 6 7),
        sum!(y, 0u64, 36, 0 1 3 4 5),
        sum!(y, 0u64, 44, 2 4 5 6 7),
        sum!(y, 0u64, 48, 1 2 5 6 7),
        sum!(y, 0u64, 55, 0 3 4 6 7),
    ];
    macro_rules! out {
        ($a:literal $b:literal $c:literal; $d:literal $e:literal $f:literal) => {
            (s[$a] ^ s[$b] ^ s[$c]).wrapping_add(t[$d] ^ t[$e] ^ t[$f])
        };
    }
    [
        out!(0 1 4; 0 1 5),
        out!(0 4 7; 2 6 7),
        out!(1 6 7; 0 1 3),
        out!(2 3 4; 0 3 4),
        out!(0 1 7; 1 2 5),
        out!(3 5 6; 3 4 6),
        out!(2 5 6; 2 5 7),
        out!(2 3 5; 4 6 7),
    ]
}
