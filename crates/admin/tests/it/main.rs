//! Tests of the crate through its public interface, in one program, because each test program links all crates
//! below.

mod embed;
mod files;
mod namespace;
mod pairs;
