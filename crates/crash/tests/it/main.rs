//! Tests of the crate from outside, in one program: a program of tests links all that is below it.
//! What sets a parameter of the process is in `pieces`.

mod cuts;
mod errors;
mod faults;
mod found;
mod logs;
mod reguid;
mod space;
mod support;
mod taken_back;
mod threads;
