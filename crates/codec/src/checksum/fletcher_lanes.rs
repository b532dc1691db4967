//! The inner loops of Fletcher-2 and Fletcher-4: sums in independent lanes. `simd` compiles them for several
//! instruction sets; `fletcher` joins the lanes.

/// Number of interleaved chains of Fletcher-4.
pub(crate) const LANES4: usize = 16;
/// Number of interleaved chains of Fletcher-2: half for even words, half for odd words.
pub(crate) const LANES2: usize = 16;

/// The four sums of each chain.
pub(crate) type Lanes4 = [[u64; LANES4]; 4];
/// The two sums of each chain.
pub(crate) type Lanes2 = [[u64; LANES2]; 2];

#[inline(always)]
pub(crate) fn lanes4<const BIG: bool>(groups: &[[[u8; 4]; LANES4]]) -> Lanes4 {
    let [mut a, mut b, mut c, mut d] = [[0u64; LANES4]; 4];
    for group in groups {
        for i in 0..LANES4 {
            let word = if BIG { u32::from_be_bytes(group[i]) } else { u32::from_le_bytes(group[i]) };
            a[i] = a[i].wrapping_add(u64::from(word));
            b[i] = b[i].wrapping_add(a[i]);
            c[i] = c[i].wrapping_add(b[i]);
            d[i] = d[i].wrapping_add(c[i]);
        }
    }
    [a, b, c, d]
}

#[inline(always)]
pub(crate) fn lanes2<const BIG: bool>(groups: &[[[u8; 8]; LANES2]]) -> Lanes2 {
    let [mut a, mut b] = [[0u64; LANES2]; 2];
    for group in groups {
        for i in 0..LANES2 {
            let word = if BIG { u64::from_be_bytes(group[i]) } else { u64::from_le_bytes(group[i]) };
            a[i] = a[i].wrapping_add(word);
            b[i] = b[i].wrapping_add(a[i]);
        }
    }
    [a, b]
}
