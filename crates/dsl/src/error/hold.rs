//! Errors of making and releasing holds.

/// Why a hold cannot be made or released.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HoldError {
    /// The snapshot is held by this tag.
    #[error("tag already exists on this dataset")]
    TagExists,
    /// The snapshot is not held by this tag.
    #[error("no such tag on this dataset")]
    NoSuchTag,
    /// The tag is empty or too long.
    #[error("tag too long")]
    TagTooLong,
    /// The dataset is no snapshot.
    #[error("operation not applicable to datasets of this type")]
    NotSnapshot,
}
