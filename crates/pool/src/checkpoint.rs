//! The pool checkpoint: an old uberblock that is kept together with all blocks that it references
//! (docs/on-disk/15-space.md, section 5).

use crate::directory::Directory;
use crate::error::PoolError;
use format::Endian;
use format::names;
use format::uberblock::{UBERBLOCK_WORDS, Uberblock};

/// The uberblock of the checkpoint, if there is one.
pub(crate) fn uberblock(directory: &Directory) -> Result<Option<Uberblock>, PoolError> {
    let words = directory.words(names::directory::ZPOOL_CHECKPOINT)?;
    if words.is_empty() {
        return Ok(None);
    }
    let malformed = || PoolError::Directory { entry: names::directory::ZPOOL_CHECKPOINT.to_owned() };
    let words: &[u64; UBERBLOCK_WORDS] = words[..].try_into().map_err(|_| malformed())?;
    Uberblock::from_words(words, Endian::Little).map(Some).map_err(|_| malformed())
}
