//! The verbs of `zfs`: datasets, their properties, permissions and mounts.

pub mod snapshot;
