//! Errors of creating and destroying bookmarks.

/// Why a bookmark cannot be created or destroyed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BookmarkError {
    /// The head has a bookmark of this name.
    #[error("bookmark exists")]
    Exists,
    /// The head has no bookmark of this name.
    #[error("bookmark '{name}' does not exist")]
    NoSuch {
        /// The part of its name behind the `#`.
        name: String,
    },
    /// The snapshot or bookmark is no earlier point in the history of the head.
    #[error("source is not an ancestor of the new bookmark's dataset")]
    NotAncestor,
    /// A redaction list would have too many entries.
    #[error("the list of redacted blocks has more than {limit} ranges")]
    TooManyRanges {
        /// The most that there may be.
        limit: usize,
    },
    /// The source is neither a snapshot nor a bookmark.
    #[error("source is not a snapshot or bookmark")]
    NotSnapshot,
}
