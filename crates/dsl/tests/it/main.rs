//! Tests of the crate from outside, in one program: a program of tests links all that is below it.

mod fuzz;
mod refusals;
mod world;
mod write;

use testkit::alloc::Counting;

/// The fuzz targets measure what an input makes them hold.
#[global_allocator]
static ALLOCATOR: Counting = Counting;
