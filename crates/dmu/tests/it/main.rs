//! Integration tests in one program, because each test program links all crates below. `shuttle` needs a
//! build of its own.

mod fuzz_zap;
mod live;
mod log;

use testkit::alloc::Counting;

/// The fuzz targets measure what an input makes them hold.
#[global_allocator]
static ALLOCATOR: Counting = Counting;
