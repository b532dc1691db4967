//! Transformations of a block between memory and disk: checksums, compression, encryption and RAID-Z arithmetic.
//! The ids of `format` select the algorithms.
//!
//! This crate does no I/O and keeps no state beyond scratch contexts and a bounded cache of derived
//! keys. `zio` calls it for every block, `vdev` for labels and parity, `dsl` for keys.
//!
//! # What always holds
//! - Input from disk is hostile. A wrong length, id, stream or tag is an error; nothing panics, writes
//!   past the output it was given, or allocates more than a small multiple of its input.
//! - Results are bit for bit those of the format, for blocks of either byte order.
//! - Key material is wiped when it is dropped, and is never printed.
//!
//! # Order
//! Reading: checksum, then decrypt, then decompress. Writing: the reverse.
//!
//! Speed comes from plain loops that vectorise; `simd` compiles them for several instruction sets and
//! is the only module with `unsafe`.
//!
//! Tests: vectors of `docs/on-disk` beside the code, `tests/it/golden.rs` (blocks of real pools),
//! `tests/it/fuzz.rs`; `cargo xtask bench codec` measures.

pub mod checksum;
pub mod compress;
pub mod crypt;
pub mod gf256;
#[allow(unsafe_code)]
mod simd;
