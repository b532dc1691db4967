//! The layout of a block on the children of its top-level vdev: pure functions of
//! numbers (docs/on-disk/14-vdevs.md, sections 2 to 5).
//!
//! A [`BlockMap`] is a list of rows, each with its own parity. RAID-Z has one row per block, with
//! columns as high as the block needs; a block of an expanded RAID-Z has one row per stripe,
//! one sector high; a dRAID block that crosses the end of a group has two.
//!
//! # What always holds
//! - The data columns of a map cover the block exactly once, in whole sectors.
//! - No two columns of a row are on the same child.
//! - A map has at most as many columns as the block has sectors, times the parity overhead.
//!
//! Tests: every line of `docs/on-disk/14-geometry-vectors.tsv` and `14-draid-maps.tsv`.

mod draid;
mod draid_maps;
mod map;
mod raidz;

pub use draid::{Draid, DraidError, DraidParams};
pub(crate) use map::mirror_asize;
pub use map::{BlockMap, Column, Row};
pub use raidz::{Expansion, Raidz, ReflowState};

#[cfg(test)]
mod tests;
