//! Tests of the public interface, as used by programs that embed Cenote.
#![allow(clippy::disallowed_types)] // it makes the files of its pools
#![allow(missing_docs)]

mod handles;
mod pools;
mod reading;
mod storm;
mod support;
mod written;
