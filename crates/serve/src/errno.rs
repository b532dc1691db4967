//! Errors as numbers of the system: the only place where they meet.

use crate::view::ViewError;
use rustix::io::Errno;

/// What the program that asked gets to see.
pub(crate) fn errno(error: &ViewError) -> Errno {
    match error {
        ViewError::Stale => Errno::STALE,
        ViewError::NotDir => Errno::NOTDIR,
        ViewError::IsDir => Errno::ISDIR,
        ViewError::WrongKind => Errno::INVAL,
        ViewError::BeyondEnd => Errno::NXIO,
        // What OpenZFS gives for a dataset whose key is not loaded.
        ViewError::NoKey { .. } => Errno::ACCESS,
        ViewError::TooMany => Errno::NFILE,
        ViewError::Damaged(_) => Errno::IO,
    }
}
