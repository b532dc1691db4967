//! Interoperability tests: pools of every layout and mix of features and properties, filled by seeded
//! workloads, are checked by OpenZFS's `zdb`, by our own check of every block, and against a model of their
//! contents.
//!
//! This crate is a tool: only its own tests, `crash`, `cargo xtask interop` and `cargo xtask kernel-peer` use
//! it.
//!
//! # What always holds
//! - A trial is reproduced by its seed, its rounds and its steps.
//! - A refused operation changes neither the pool nor the model.
#![forbid(unsafe_code)]
// The disks of the pools are sparse files, and the judges are programs.
#![allow(clippy::disallowed_types)]

pub mod content;
mod datasets;
pub mod disk_provider;
mod files;
pub mod history;
pub mod judge;
mod low_space;
pub mod peer;
pub mod plan;
#[path = "../../dsl/tests/it/world/check.rs"]
#[allow(unreachable_pub, missing_docs)]
mod sums;
pub mod trial;
pub mod world;

pub(crate) use ::dsl;

/// Error of a trial: any unexpected error is a bug.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A deviation, described by its text.
#[derive(Debug)]
pub(crate) struct Wrong(pub String);

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Wrong {}

/// A [`Failure`] with this text.
pub(crate) fn wrong<T>(text: impl Into<String>) -> Result<T, Failure> {
    Err(Box::new(Wrong(text.into())))
}
