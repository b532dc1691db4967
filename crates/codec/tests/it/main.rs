//! Tests of the crate through its public interface, in one program, because each test program links all crates
//! below.

mod fuzz;
mod golden;

use testkit::alloc::Counting;

/// The fuzz targets measure the memory that an input allocates.
#[global_allocator]
static ALLOCATOR: Counting = Counting;
