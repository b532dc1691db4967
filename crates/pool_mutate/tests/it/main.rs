//! Tests of the crate from outside, in one program: each test program links all crates below it. `hostile` is
//! a program of its own, because it measures the memory of the whole process and changes the blocks that it
//! reads.

mod contents;
mod receive;
mod send;
mod swap;
mod write;
