//! Tests of the crate from outside, in one program: a program of tests links all that is below it.

mod fuzz;
mod fuzz_dsl;
mod fuzz_pool;
mod fuzz_zpl;
mod generate;
mod support;
