//! Vectors of elements of the field of 256 elements (GF(256)).
//!
//! # What always holds
//! - A vector can be created only from a proof, and a proof only if the processor has the features that the
//!   vector's methods use. Therefore the methods are safe.

use crate::gf256::kernels::{self, Job, POLYNOMIAL, Vector, double};

/// Runs `job` with the widest vectors that the processor has.
pub(crate) fn run(job: &mut Job<'_, '_>) {
    #[cfg(target_arch = "x86_64")]
    {
        if let Some(proof) = x86::Gfni512::detect() {
            // SAFETY: the proof exists, so the processor has the features.
            return unsafe { x86::run_gfni512(proof, job) };
        }
        if let Some(proof) = x86::Gfni256::detect() {
            // SAFETY: as above.
            return unsafe { x86::run_gfni256(proof, job) };
        }
        if let Some(proof) = x86::Avx2::detect() {
            // SAFETY: as above.
            return unsafe { x86::run_avx2(proof, job) };
        }
    }
    kernels::run::<Portable>((), job);
}

/// Runs `job` with every kind of vector that the processor has; for tests.
#[cfg(test)]
pub(crate) fn run_each(job: &mut Job<'_, '_>, mut check: impl FnMut(&str, &mut Job<'_, '_>)) {
    kernels::run::<Portable>((), job);
    check("portable", job);
    #[cfg(target_arch = "x86_64")]
    {
        if let Some(proof) = x86::Avx2::detect() {
            kernels::run::<x86::Avx2>(proof, job);
            check("avx2", job);
        }
        if let Some(proof) = x86::Gfni256::detect() {
            kernels::run::<x86::Gfni256>(proof, job);
            check("gfni, 256 bits", job);
        }
        if let Some(proof) = x86::Gfni512::detect() {
            kernels::run::<x86::Gfni512>(proof, job);
            check("gfni, 512 bits", job);
        }
    }
}

/// An array of bytes: for processors without a vector type of their own; compilers vectorize it for most.
#[derive(Clone, Copy)]
struct Portable([u8; 32]);

impl Vector for Portable {
    type Proof = ();
    type Factor = u8;
    const BYTES: usize = 32;

    #[inline(always)]
    fn zero((): ()) -> Portable {
        Portable([0; 32])
    }

    #[inline(always)]
    fn load((): (), from: &[u8]) -> Portable {
        Portable(*from.first_chunk().expect(kernels::WHOLE_VECTOR))
    }

    #[inline(always)]
    fn store(self, to: &mut [u8]) {
        *to.first_chunk_mut().expect(kernels::WHOLE_VECTOR) = self.0;
    }

    #[inline(always)]
    fn add(mut self, other: Portable) -> Portable {
        for (a, b) in self.0.iter_mut().zip(other.0) {
            *a ^= b;
        }
        self
    }

    #[inline(always)]
    fn double(mut self) -> Portable {
        for byte in &mut self.0 {
            *byte = double(*byte);
        }
        self
    }

    #[inline(always)]
    fn factor((): (), factor: u8) -> u8 {
        factor
    }

    #[inline(always)]
    fn times(self, factor: u8) -> Portable {
        let mut out = [0; 32];
        for (to, from) in out.iter_mut().zip(self.0) {
            let mut power = from;
            for bit in 0..8 {
                *to ^= if factor >> bit & 1 != 0 { power } else { 0 };
                power = double(power);
            }
        }
        Portable(out)
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Job, POLYNOMIAL, Vector, kernels};
    use std::arch::x86_64::*;

    /// Multiplication by a constant as a matrix of bits, in the layout of GFNI: the byte for the lowest bit of the
    /// result is last.
    const fn matrix(factor: u8) -> i64 {
        let mut out = 0u64;
        let mut bit = 0;
        while bit < 8 {
            // Contribution of bit `column` of the operand to bit `bit` of the product.
            let mut row = 0u64;
            let mut column = 0;
            let mut power = factor;
            while column < 8 {
                row |= ((power >> bit & 1) as u64) << column;
                power = kernels::double(power);
                column += 1;
            }
            out |= row << (8 * (7 - bit));
            bit += 1;
        }
        out as i64
    }

    /// Products of a factor with the low and the high four bits of a byte.
    fn nibble_tables(factor: u8) -> [[u8; 16]; 2] {
        let product = |x: u8| {
            let mut power = factor;
            (0..8).fold(0, |sum, bit| {
                let term = if x >> bit & 1 != 0 { power } else { 0 };
                power = kernels::double(power);
                sum ^ term
            })
        };
        [std::array::from_fn(|i| product(i as u8)), std::array::from_fn(|i| product((i as u8) << 4))]
    }

    macro_rules! vectors {
        (
            $(#[$doc:meta])* $name:ident, $proof:ident, $run:ident, $register:ident, $bytes:literal,
            [$($feature:tt),*], $enable:literal,
            zero: $zero:ident, load: $load:ident, store: $store:ident, xor: $xor:ident,
            factor: $factor:ty,
            { $($methods:item)* }
        ) => {
            $(#[$doc])*
            #[derive(Clone, Copy)]
            pub(super) struct $name($register);

            /// Proof that the processor has the features of the vector type of this name.
            #[derive(Clone, Copy)]
            pub(super) struct $proof(());

            impl $name {
                pub(super) fn detect() -> Option<$proof> {
                    ($(is_x86_feature_detected!($feature))&&*).then_some($proof(()))
                }
            }

            #[target_feature(enable = $enable)]
            pub(super) fn $run(proof: $proof, job: &mut Job<'_, '_>) {
                kernels::run::<$name>(proof, job);
            }

            impl Vector for $name {
                type Proof = $proof;
                type Factor = $factor;
                const BYTES: usize = $bytes;

                #[inline(always)]
                fn zero(_: $proof) -> $name {
                    // SAFETY: the proof exists, so the processor has the features.
                    $name(unsafe { $zero() })
                }

                #[inline(always)]
                fn load(_: $proof, from: &[u8]) -> $name {
                    let from: &[u8; $bytes] = from.first_chunk().expect(kernels::WHOLE_VECTOR);
                    // SAFETY: the proof exists; the bytes are there, and the load needs no alignment.
                    $name(unsafe { $load(from.as_ptr().cast()) })
                }

                #[inline(always)]
                fn store(self, to: &mut [u8]) {
                    let to: &mut [u8; $bytes] = to.first_chunk_mut().expect(kernels::WHOLE_VECTOR);
                    // SAFETY: a vector exists, so a proof did; there is room, and the store needs no
                    // alignment.
                    unsafe { $store(to.as_mut_ptr().cast(), self.0) }
                }

                #[inline(always)]
                fn add(self, other: $name) -> $name {
                    // SAFETY: a vector exists, so a proof did.
                    $name(unsafe { $xor(self.0, other.0) })
                }

                $($methods)*
            }
        };
    }

    vectors! {
        /// 64 bytes, multiplied by GFNI matrices.
        Gfni512, ProofGfni512, run_gfni512, __m512i, 64,
        ["avx512f", "avx512bw", "avx512vl", "avx2", "gfni"], "avx512f,avx512bw,avx512vl,avx2,gfni",
        zero: _mm512_setzero_si512, load: _mm512_loadu_si512, store: _mm512_storeu_si512, xor: _mm512_xor_si512,
        factor: __m512i,
        {
            #[inline(always)]
            fn double(self) -> Gfni512 {
                // SAFETY: a vector exists, so a proof did.
                Gfni512(unsafe { _mm512_gf2p8affine_epi64_epi8::<0>(self.0, _mm512_set1_epi64(matrix(2))) })
            }

            #[inline(always)]
            fn quadruple(self) -> Gfni512 {
                // SAFETY: a vector exists, so a proof did.
                Gfni512(unsafe { _mm512_gf2p8affine_epi64_epi8::<0>(self.0, _mm512_set1_epi64(matrix(4))) })
            }

            #[inline(always)]
            fn factor(_: ProofGfni512, factor: u8) -> __m512i {
                // SAFETY: the proof exists, so the processor has the features.
                unsafe { _mm512_set1_epi64(matrix(factor)) }
            }

            #[inline(always)]
            fn times(self, factor: __m512i) -> Gfni512 {
                // SAFETY: a vector exists, so a proof did.
                Gfni512(unsafe { _mm512_gf2p8affine_epi64_epi8::<0>(self.0, factor) })
            }
        }
    }

    vectors! {
        /// 32 bytes, multiplied by GFNI matrices.
        Gfni256, ProofGfni256, run_gfni256, __m256i, 32,
        ["avx2", "gfni"], "avx2,gfni",
        zero: _mm256_setzero_si256, load: _mm256_loadu_si256, store: _mm256_storeu_si256, xor: _mm256_xor_si256,
        factor: __m256i,
        {
            #[inline(always)]
            fn double(self) -> Gfni256 {
                // SAFETY: a vector exists, so a proof did.
                Gfni256(unsafe { _mm256_gf2p8affine_epi64_epi8::<0>(self.0, _mm256_set1_epi64x(matrix(2))) })
            }

            #[inline(always)]
            fn quadruple(self) -> Gfni256 {
                // SAFETY: a vector exists, so a proof did.
                Gfni256(unsafe { _mm256_gf2p8affine_epi64_epi8::<0>(self.0, _mm256_set1_epi64x(matrix(4))) })
            }

            #[inline(always)]
            fn factor(_: ProofGfni256, factor: u8) -> __m256i {
                // SAFETY: the proof exists, so the processor has the features.
                unsafe { _mm256_set1_epi64x(matrix(factor)) }
            }

            #[inline(always)]
            fn times(self, factor: __m256i) -> Gfni256 {
                // SAFETY: a vector exists, so a proof did.
                Gfni256(unsafe { _mm256_gf2p8affine_epi64_epi8::<0>(self.0, factor) })
            }
        }
    }

    vectors! {
        /// 32 bytes, multiplied through tables of 16 products, which a shuffle instruction looks up.
        Avx2, ProofAvx2, run_avx2, __m256i, 32,
        ["avx2"], "avx2",
        zero: _mm256_setzero_si256, load: _mm256_loadu_si256, store: _mm256_storeu_si256, xor: _mm256_xor_si256,
        factor: [__m256i; 2],
        {
            #[inline(always)]
            fn double(self) -> Avx2 {
                // SAFETY: a vector exists, so a proof did.
                Avx2(unsafe {
                    let carries = _mm256_cmpgt_epi8(_mm256_setzero_si256(), self.0);
                    let folded = _mm256_and_si256(carries, _mm256_set1_epi8(POLYNOMIAL as i8));
                    _mm256_xor_si256(_mm256_add_epi8(self.0, self.0), folded)
                })
            }

            #[inline(always)]
            fn factor(_: ProofAvx2, factor: u8) -> [__m256i; 2] {
                nibble_tables(factor).map(|table| {
                    // SAFETY: the proof exists; the load reads the 16 bytes of the table.
                    unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast())) }
                })
            }

            #[inline(always)]
            fn times(self, [low, high]: [__m256i; 2]) -> Avx2 {
                // SAFETY: a vector exists, so a proof did.
                Avx2(unsafe {
                    let mask = _mm256_set1_epi8(0x0f);
                    let low_half = _mm256_and_si256(self.0, mask);
                    let high_half = _mm256_and_si256(_mm256_srli_epi16::<4>(self.0), mask);
                    _mm256_xor_si256(_mm256_shuffle_epi8(low, low_half), _mm256_shuffle_epi8(high, high_half))
                })
            }
        }
    }
}
