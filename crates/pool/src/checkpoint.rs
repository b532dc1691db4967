//! The pool's checkpoint: an old uberblock that is kept, with everything it leads to
//! (docs/on-disk/15-space.md, section 5).

use crate::PoolError;
use crate::directory::Directory;
use format::Endian;
use format::uberblock::{UBERBLOCK_WORDS, Uberblock};

const ENTRY: &str = "com.delphix:zpool_checkpoint";

/// The uberblock of the checkpoint, if there is one.
pub(crate) fn uberblock(directory: &Directory) -> Result<Option<Uberblock>, PoolError> {
    let words = directory.words(ENTRY)?;
    if words.is_empty() {
        return Ok(None);
    }
    let malformed = || PoolError::Directory { entry: ENTRY.to_owned() };
    let words: &[u64; UBERBLOCK_WORDS] = words[..].try_into().map_err(|_| malformed())?;
    Uberblock::from_words(words, Endian::Little).map(Some).map_err(|_| malformed())
}
