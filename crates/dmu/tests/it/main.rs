//! Tests of the crate from outside, in one program: a program of tests links all that is below it.
//! `shuttle` needs a build of its own.

mod fuzz_zap;
mod live;
mod log;

use testkit::alloc::Counting;

/// The fuzz targets measure what an input makes them hold.
#[global_allocator]
static ALLOCATOR: Counting = Counting;
