//! OpenZFS as the judge: pools of every layout and mix of features and properties, with seeded work in
//! them, looked at by `zdb`, by our own check of every block, and by a model of their contents.
//!
//! A tool beside the house: nothing uses it but its own tests, `cargo xtask interop` and
//! `cargo xtask kernel-peer`.
//!
//! # What always holds
//! - A trial is reproduced by its seed, its rounds and its steps.
//! - An operation that is refused has changed nothing: the model goes on without it.
#![forbid(unsafe_code)]
// Sparse files are what the pools are made of, and the judges are programs.
#![allow(clippy::disallowed_types)]

pub mod content;
mod datasets;
mod files;
mod low_space;
pub mod history;
pub mod judge;
pub mod peer;
pub mod disk_provider;
pub mod plan;
#[path = "../../dsl/tests/it/world/check.rs"]
#[allow(unreachable_pub, missing_docs)]
mod sums;
pub mod trial;
pub mod world;

pub(crate) use ::dsl;

/// Why a trial failed: anything but what it expects is a bug.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Something is wrong, in words.
#[derive(Debug)]
pub struct Wrong(pub String);

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Wrong {}

/// A failure in words.
pub(crate) fn wrong<T>(text: impl Into<String>) -> Result<T, Failure> {
    Err(Box::new(Wrong(text.into())))
}

