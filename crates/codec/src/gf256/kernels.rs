//! The loops of RAID-Z arithmetic, to be compiled by `simd` for several instruction sets.
//!
//! A strip of all columns is taken at a time, so that the sums stay in registers while the columns
//! stream by.

/// Bytes of a strip.
const STRIP: usize = 128;
/// The polynomial x^8 + x^4 + x^3 + x^2 + 1 without its highest term.
const POLYNOMIAL: u8 = 0x1d;

type Strip = [u8; STRIP];

#[inline(always)]
pub(crate) const fn double(x: u8) -> u8 {
    (x << 1) ^ (if x & 0x80 != 0 { POLYNOMIAL } else { 0 })
}

/// `strip` of `column`, zeros where the column has ended.
#[inline(always)]
fn strip_at<'a>(column: &'a [u8], at: usize, padded: &'a mut Strip) -> Option<&'a Strip> {
    let rest = column.get(at..)?;
    if let Some(strip) = rest.first_chunk() {
        return Some(strip);
    }
    if rest.is_empty() {
        return None;
    }
    *padded = [0; STRIP];
    padded[..rest.len()].copy_from_slice(rest);
    Some(padded)
}

/// `N` parity columns of `data`, by Horner's rule: P with factor 1, Q with 2, R with 4.
#[inline(always)]
pub(crate) fn parity<const N: usize>(data: &[&[u8]], parity: &mut [&mut [u8]; N]) {
    let len = parity.iter().map(|column| column.len()).min().unwrap_or(0);
    let mut padded = [0; STRIP];
    for at in (0..len).step_by(STRIP) {
        let mut sums = [[0u8; STRIP]; N];
        for column in data {
            if N > 1 {
                for byte in &mut sums[1] {
                    *byte = double(*byte);
                }
            }
            if N > 2 {
                for byte in &mut sums[2] {
                    *byte = double(double(*byte));
                }
            }
            if let Some(strip) = strip_at(column, at, &mut padded) {
                for sum in &mut sums {
                    for (byte, d) in sum.iter_mut().zip(strip) {
                        *byte ^= d;
                    }
                }
            }
        }
        for (column, sum) in parity.iter_mut().zip(&sums) {
            let rest = &mut column[at..];
            match rest.first_chunk_mut() {
                Some(whole) => *whole = *sum,
                None => rest.copy_from_slice(&sum[..rest.len()]),
            }
        }
    }
}

/// `out[i] ^= factor * from[i]`, over the shorter of both.
#[inline(always)]
pub(crate) fn multiply_add(factor: u8, from: &[u8], out: &mut [u8]) {
    for (to, x) in out.iter_mut().zip(from) {
        let mut power = *x;
        let mut product = 0;
        for bit in 0..8 {
            product ^= if factor >> bit & 1 != 0 { power } else { 0 };
            power = double(power);
        }
        *to ^= product;
    }
}
