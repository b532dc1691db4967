//! Examines the structures of a pool: counts blocks and compares them with the space maps, finds unreferenced
//! objects, counts uses of features, and simulates deduplication.
//!
//! All functions only read, and a pool open for reading is sufficient. [`crate::verify`] finds contents with wrong
//! checksums; the structures of the pool as stored are in the crate `admin` (`debug`).

mod blocks;
mod census;
mod leaks;
mod simulate;

pub use blocks::{
    BlockCounts, BlockReport, BlockUse, Check, CountedBy, Damaged, Miscount, Problem, SIZE_ROWS, Space,
    Subject, Tally, blocks,
};
pub use census::{FeatureCount, census, removal_census};
pub use leaks::{LeakedObject, leaked_objects, space_map_counts};
pub use simulate::simulated_dedup;
