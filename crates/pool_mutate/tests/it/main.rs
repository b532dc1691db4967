//! Tests of the crate from outside, in one program: a program of tests links all that is below it.
//! `hostile` measures the memory of its whole process and changes what it reads.

mod contents;
mod swap;
mod write;
