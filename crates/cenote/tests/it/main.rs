//! Tests of the crate from outside, in one program: a program of tests links all that is below it. What changes blocks
//! for the whole process is in `copy_hostile`.

mod foreign;
mod fuzz;
mod golden;

use testkit::alloc::Counting;

/// The fuzz targets measure what an input makes them hold.
#[global_allocator]
static ALLOCATOR: Counting = Counting;
