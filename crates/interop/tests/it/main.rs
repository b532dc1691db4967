//! Tests of the crate from outside, in one program: a program of tests links all that is below it.

mod golden;
mod trials;
