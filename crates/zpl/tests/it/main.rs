//! Tests of the crate from outside, in one program: a program of tests links all that is below it.
//! `fuzz` and `hostile` change blocks for the whole process.

mod golden;
mod judged;
mod write;
