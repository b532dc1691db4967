//! Cenote as programs use it that embed it: the public interface, and nothing else.
#![allow(clippy::disallowed_types)] // it makes the files of its pools
#![allow(missing_docs)]

mod handles;
mod pools;
mod storm;
mod support;
mod written;
