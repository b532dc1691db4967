//! Tests of the crate from outside, in one program: each test program links all crates below it. `many` and
//! `rings` are programs of their own, because they count the threads and descriptors of their process.
#![allow(clippy::disallowed_types)] // Tests use files as any program does.

mod common;
mod few;
mod fuse;
mod mounts;
mod posix;
