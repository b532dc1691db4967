//! Tests of the crate from outside, in one program: each test program links all crates below it.

mod golden;
mod trials;
