//! Integration tests in one program, because each test program links all crates below.

mod common;
mod crash;
mod devices;
mod fuzz;
mod label_write;
mod labels;
mod redundancy;
mod sources;
mod tree;
mod writing;

use testkit::alloc::Counting;

/// The fuzz targets measure what an input makes them hold.
#[global_allocator]
static ALLOCATOR: Counting = Counting;
