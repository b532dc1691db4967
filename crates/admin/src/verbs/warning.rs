//! Warnings: what a user should know of a request that is done all the same.

use serde::{Deserialize, Serialize};

/// A warning of a verb. `Display` gives what the command says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Warning {
    /// A feature is enabled that the pool's `compatibility` leaves out.
    #[error("Warning: feature \"{feature}\" enabled but is not in specified 'compatibility' feature set.")]
    FeatureOutsideSet {
        /// Short name of the feature.
        feature: String,
    },
    /// A device or pool cannot be looked at.
    #[error("{message}")]
    Problem {
        /// The line that says which, and why.
        message: String,
    },
    /// The pool has no devices for the small blocks that a property sends there.
    #[error("special_small_blocks: property requires a special device in the pool")]
    NoSpecialDevice,
    /// Blocks of a volume are so small that they cost space.
    #[error(
        "Warning: volblocksize ({block_size}) is less than the default minimum block size ({recommended}).\nTo reduce wasted space a volblocksize of {recommended} is recommended."
    )]
    SmallVolumeBlock {
        /// Bytes of a block.
        block_size: u64,
        /// Bytes of a block that costs no space.
        recommended: u64,
    },
    /// The new `compatibility` of a pool leaves out features that the pool has.
    #[error(
        "Warning: one or more features already enabled on pool '{pool}'\nare not present in this compatibility set."
    )]
    EnabledOutsideSet {
        /// Name of the pool.
        pool: String,
    },
}
