//! Tests of the crate through its public interface, in one program, because each test program links all crates
//! below. Tests that set a mutator of blocks, which is global to the process, are in `copy_hostile`.

mod chain;
mod foreign;
mod fuzz;
mod golden;
mod index;
mod receive;
mod receive_raw;
mod resend;
mod send;

use testkit::alloc::Counting;

/// The fuzz targets measure the memory that an input allocates.
#[global_allocator]
static ALLOCATOR: Counting = Counting;
