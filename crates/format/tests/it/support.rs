//! What all fuzz targets of this crate share.

use cenote_format::Endian;
use testkit::alloc::Counting;
use testkit::fuzz::Target;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The target of this name. An input may take 64 KiB and sixteen times its length.
pub(crate) fn target(name: &str) -> Target {
    Target::new(env!("CARGO_MANIFEST_DIR"), name)
}

/// Most structures do not tell their own byte order: the first byte of an input does, in bit 0. Its
/// other bits are for the target; the structure is behind it.
pub(crate) fn split(input: &[u8]) -> (u8, Endian, &[u8]) {
    let (first, rest) = input.split_first().unwrap_or((&0, &[]));
    (first >> 1, if first & 1 == 1 { Endian::Big } else { Endian::Little }, rest)
}
