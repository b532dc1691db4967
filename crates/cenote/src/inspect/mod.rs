//! What a pool is made of: every block counted and compared with the pool's own books, objects that nothing
//! refers to, active features counted, and what deduplication would save.
//!
//! Everything here reads only, and needs no pool that is open for writing. Contents that fail their checksum
//! are in [`crate::verify`]; the structures of the pool as they are stored are in the crate `admin`
//! (`debug`).

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
