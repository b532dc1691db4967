//! Warnings: messages about a request that is carried out nevertheless.

use serde::{Deserialize, Serialize};

/// A warning of a verb. `Display` gives the message of the command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Warning {
    /// An enabled feature is not in the pool's `compatibility` sets.
    #[error("Warning: feature \"{feature}\" enabled but is not in specified 'compatibility' feature set.")]
    FeatureOutsideSet {
        /// Short name of the feature.
        feature: String,
    },
    /// A device or pool could not be examined.
    #[error("{message}")]
    Problem {
        /// The message, with the name and the reason.
        message: String,
    },
    /// A property sends small blocks to special devices, and the pool has none.
    #[error("special_small_blocks: property requires a special device in the pool")]
    NoSpecialDevice,
    /// The block size of a volume is so small that space is wasted.
    #[error(
        "Warning: volblocksize ({block_size}) is less than the default minimum block size ({recommended}).\nTo reduce wasted space a volblocksize of {recommended} is recommended."
    )]
    SmallVolumeBlock {
        /// The block size in bytes.
        block_size: u64,
        /// The smallest block size, in bytes, that wastes no space.
        recommended: u64,
    },
    /// The new `compatibility` of a pool does not include features that are already enabled.
    #[error(
        "Warning: one or more features already enabled on pool '{pool}'\nare not present in this compatibility set."
    )]
    EnabledOutsideSet {
        /// Name of the pool.
        pool: String,
    },
}
