//! Errors as numbers of the system: the only place where they meet.

use fuser::Errno;

use crate::view::ViewError;

/// What the program that asked gets to see.
pub(crate) fn errno(error: &ViewError) -> Errno {
    match error {
        ViewError::Stale => Errno::ESTALE,
        ViewError::NotDir => Errno::ENOTDIR,
        ViewError::IsDir => Errno::EISDIR,
        ViewError::WrongKind => Errno::EINVAL,
        ViewError::BeyondEnd => Errno::ENXIO,
        // What OpenZFS gives for a dataset whose key is not loaded.
        ViewError::NoKey { .. } => Errno::EACCES,
        ViewError::TooMany => Errno::ENFILE,
        ViewError::Damaged(_) => Errno::EIO,
    }
}
