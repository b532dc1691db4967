//! Support for all fuzz targets of this crate.

use cenote_format::Endian;
use testkit::alloc::Counting;
use testkit::fuzz::Target;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The target of this name. An input may allocate 64 KiB and sixteen times its length.
pub(crate) fn target(name: &str) -> Target {
    Target::new(env!("CARGO_MANIFEST_DIR"), name)
}

/// Most structures do not contain their byte order: bit 0 of the first byte of an input is the order, its other
/// bits are options of the target, and the structure follows.
pub(crate) fn split(input: &[u8]) -> (u8, Endian, &[u8]) {
    let (first, rest) = input.split_first().unwrap_or((&0, &[]));
    (first >> 1, if first & 1 == 1 { Endian::Big } else { Endian::Little }, rest)
}
