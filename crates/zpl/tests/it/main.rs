//! Integration tests in one program, because each test program links all crates below. `fuzz` and `hostile`
//! change blocks for the whole process, so they are programs of their own.

mod golden;
mod judged;
mod write;
