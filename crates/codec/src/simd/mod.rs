//! Compiles the same loop for several instruction sets.
//!
//! A kernel is ordinary safe Rust with `#[inline(always)]`. The sums of `checksum::fletcher_lanes` vectorize as
//! they are; those of `gf256` would not stay in registers, so they use the vector types of [`gf`]. Each kernel is
//! compiled with wider vectors enabled, and the widest version that the processor supports is called.
//!
//! # What always holds
//! - A version is called only if the processor has all features that it was compiled for.
//! - All versions are the same code, so they give the same result.

pub(crate) mod gf;

use crate::checksum::fletcher_lanes as fletcher;

macro_rules! versions {
    ($(#[$doc:meta])* $name:ident ( $($arg:ident : $ty:ty),* ) $(-> $ret:ty)? = $kernel:expr) => {
        $(#[$doc])*
        pub(crate) fn $name($($arg: $ty),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2")]
                fn with_avx512($($arg: $ty),*) $(-> $ret)? { $kernel($($arg),*) }
                #[target_feature(enable = "avx2,bmi2")]
                fn with_avx2($($arg: $ty),*) $(-> $ret)? { $kernel($($arg),*) }
                if has_avx512() {
                    // SAFETY: the processor has every feature the function is compiled for.
                    return unsafe { with_avx512($($arg),*) };
                }
                if has_avx2() {
                    // SAFETY: as above.
                    return unsafe { with_avx2($($arg),*) };
                }
            }
            $kernel($($arg),*)
        }
    };
}

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    has_avx2()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2")
}

versions! {
    /// Sums of whole groups of little-endian words.
    fletcher4_little(groups: &[[[u8; 4]; fletcher::LANES4]]) -> fletcher::Lanes4 = fletcher::lanes4::<false>
}
versions! {
    /// Sums of whole groups of big-endian words.
    fletcher4_big(groups: &[[[u8; 4]; fletcher::LANES4]]) -> fletcher::Lanes4 = fletcher::lanes4::<true>
}
versions! {
    /// Sums of whole groups of little-endian words.
    fletcher2_little(groups: &[[[u8; 8]; fletcher::LANES2]]) -> fletcher::Lanes2 = fletcher::lanes2::<false>
}
versions! {
    /// Sums of whole groups of big-endian words.
    fletcher2_big(groups: &[[[u8; 8]; fletcher::LANES2]]) -> fletcher::Lanes2 = fletcher::lanes2::<true>
}
