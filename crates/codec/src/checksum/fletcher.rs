//! Fletcher-2 and Fletcher-4 (docs/on-disk/13-checksums-compression.md, sections 1.1 and 1.2).
//!
//! Both are chains of running sums. One chain would allow one addition per cycle, so the words are distributed over
//! lanes with a chain each, and the lanes are joined at the end. The word that is t-th from the end of lane `i` of
//! `k` is `s = k*t - i`-th from the end of all words, and has the weights `s`, `s(s+1)/2`, `s(s+1)(s+2)/6` in the
//! higher sums. Expressed by the lanes' own weights, which are the same polynomials of `t`, this gives the
//! constants below. All sums are modulo 2^64.

use super::fletcher_lanes::{LANES2, LANES4, Lanes4};
use crate::simd;
use format::Endian;

/// Binomial coefficient: `n` choose 2.
const fn choose2(n: u64) -> u64 {
    n * n.saturating_sub(1) / 2
}

/// Binomial coefficient: `n` choose 3.
const fn choose3(n: u64) -> u64 {
    n * n.saturating_sub(1) * n.saturating_sub(2) / 6
}

/// Joins the sums of the lanes.
fn join4(lanes: &Lanes4) -> [u64; 4] {
    const K: u64 = LANES4 as u64;
    let [la, lb, lc, ld] = lanes;
    let mut sums = [0u64; 4];
    for (n, (((&a, &b), &c), &d)) in la.iter().zip(lb).zip(lc).zip(ld).enumerate() {
        let i = n as u64;
        let terms = [
            a,
            K.wrapping_mul(b).wrapping_sub(i.wrapping_mul(a)),
            (K * K)
                .wrapping_mul(c)
                .wrapping_sub((choose2(K + i) - choose2(i)).wrapping_mul(b))
                .wrapping_add(choose2(i).wrapping_mul(a)),
            (K * K * K)
                .wrapping_mul(d)
                .wrapping_sub((choose3(2 * K + i) + choose3(i) - 2 * choose3(K + i)).wrapping_mul(c))
                .wrapping_add((choose3(K + i) - choose3(i)).wrapping_mul(b))
                .wrapping_sub(choose3(i).wrapping_mul(a)),
        ];
        for (sum, term) in sums.iter_mut().zip(terms) {
            *sum = sum.wrapping_add(term);
        }
    }
    sums
}

/// Fletcher-4 of `data`, whose 32-bit words are in `order`. Trailing bytes that are not a whole word are ignored;
/// callers pass whole words.
pub(crate) fn fletcher4(data: &[u8], order: Endian) -> [u64; 4] {
    let (words, _) = data.as_chunks::<4>();
    let (groups, tail) = words.as_chunks::<LANES4>();
    let lanes = match order {
        Endian::Little => simd::fletcher4_little(groups),
        Endian::Big => simd::fletcher4_big(groups),
    };
    let [mut a, mut b, mut c, mut d] = join4(&lanes);
    for raw in tail {
        let word = match order {
            Endian::Little => u32::from_le_bytes(*raw),
            Endian::Big => u32::from_be_bytes(*raw),
        };
        a = a.wrapping_add(u64::from(word));
        b = b.wrapping_add(a);
        c = c.wrapping_add(b);
        d = d.wrapping_add(c);
    }
    [a, b, c, d]
}

/// Fletcher-2 of `data`, whose 64-bit words are in `order`. Trailing bytes that are not a pair of words are
/// ignored; callers pass whole pairs.
pub(crate) fn fletcher2(data: &[u8], order: Endian) -> [u64; 4] {
    const K: u64 = (LANES2 / 2) as u64;
    let (words, _) = data.as_chunks::<8>();
    let (groups, tail) = words.as_chunks::<LANES2>();
    let [lane_a, lane_b] = match order {
        Endian::Little => simd::fletcher2_little(groups),
        Endian::Big => simd::fletcher2_big(groups),
    };
    let mut a = [0u64; 2];
    let mut b = [0u64; 2];
    for (n, (&x, &y)) in lane_a.iter().zip(&lane_b).enumerate() {
        let (i, half) = ((n / 2) as u64, n % 2);
        a[half] = a[half].wrapping_add(x);
        b[half] = b[half].wrapping_add(K.wrapping_mul(y)).wrapping_sub(i.wrapping_mul(x));
    }
    let (pairs, _) = tail.as_chunks::<2>();
    for pair in pairs {
        for (half, raw) in pair.iter().enumerate() {
            let word = match order {
                Endian::Little => u64::from_le_bytes(*raw),
                Endian::Big => u64::from_be_bytes(*raw),
            };
            a[half] = a[half].wrapping_add(word);
            b[half] = b[half].wrapping_add(a[half]);
        }
    }
    [a[0], a[1], b[0], b[1]]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain4(data: &[u8], order: Endian) -> [u64; 4] {
        let [mut a, mut b, mut c, mut d] = [0u64; 4];
        for at in (0..data.len() / 4 * 4).step_by(4) {
            a = a.wrapping_add(order.get_u32(data, at).unwrap().into());
            b = b.wrapping_add(a);
            c = c.wrapping_add(b);
            d = d.wrapping_add(c);
        }
        [a, b, c, d]
    }

    fn plain2(data: &[u8], order: Endian) -> [u64; 4] {
        let [mut a0, mut a1, mut b0, mut b1] = [0u64; 4];
        for at in (0..data.len() / 16 * 16).step_by(16) {
            a0 = a0.wrapping_add(order.get_u64(data, at).unwrap());
            a1 = a1.wrapping_add(order.get_u64(data, at + 8).unwrap());
            b0 = b0.wrapping_add(a0);
            b1 = b1.wrapping_add(a1);
        }
        [a0, a1, b0, b1]
    }

    #[test]
    fn lanes_give_the_same_sums_as_one_chain() {
        let data: Vec<u8> =
            (0..70_000u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
        for len in (0..1200).chain([4096, 65_536, 69_999]) {
            for order in [Endian::Little, Endian::Big] {
                let data = &data[..len];
                assert_eq!(fletcher4(data, order), plain4(data, order), "len={len}");
                assert_eq!(fletcher2(data, order), plain2(data, order), "len={len}");
            }
        }
        let ones = vec![0xff; 1 << 20];
        assert_eq!(fletcher4(&ones, Endian::Little), plain4(&ones, Endian::Little));
        assert_eq!(fletcher2(&ones, Endian::Big), plain2(&ones, Endian::Big));
    }
}
