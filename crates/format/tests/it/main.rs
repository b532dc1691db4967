//! Tests of the crate through its public interface, in one program, because each test program links all crates
//! below.

mod fuzz;
mod fuzz_dsl;
mod fuzz_pool;
mod fuzz_zpl;
mod generate;
mod support;
