//! Tests of the crate from outside, in one program: a program of tests links all that is below it.
//! `many` and `rings` count the threads and descriptors of their process.
#![allow(clippy::disallowed_types)] // Tests use files as any program does.

mod common;
mod few;
mod fuse;
mod mounts;
mod posix;
