//! Tests of the crate from outside, in one program: each test program links all crates below it. Tests that
//! set a parameter of the process are in `pieces`.

mod actors;
mod cuts;
mod errors;
mod faults;
mod found;
mod logs;
mod receive;
mod reguid;
mod space;
mod support;
mod taken_back;
