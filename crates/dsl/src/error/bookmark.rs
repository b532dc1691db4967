//! Bookmarks that cannot be made or destroyed.

/// Why a bookmark cannot be made or destroyed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BookmarkError {
    /// The head has one of this name.
    #[error("bookmark exists")]
    Exists,
    /// The head has none of this name.
    #[error("bookmark '{name}' does not exist")]
    NoSuch {
        /// The part of its name behind the `#`.
        name: String,
    },
    /// The snapshot or bookmark is no earlier point in the history of the head.
    #[error("source is not an ancestor of the new bookmark's dataset")]
    NotAncestor,
    /// Only snapshots and bookmarks can be made bookmarks of.
    #[error("source is not a snapshot or bookmark")]
    NotSnapshot,
}
