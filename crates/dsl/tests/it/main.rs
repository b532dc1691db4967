//! Integration tests in one program, because each test program links all crates below.

mod fuzz;
mod refusals;
mod world;
mod write;

use testkit::alloc::Counting;

/// The fuzz targets measure what an input makes them hold.
#[global_allocator]
static ALLOCATOR: Counting = Counting;
