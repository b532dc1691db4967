//! Errors as numbers of the system: the only place where they meet.

use crate::view::ViewError;
use cenote::files::{BeginError, ZplError};
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

/// The same for a file system that is open for writing.
pub(crate) fn zpl_errno(error: &ZplError) -> Errno {
    match error {
        ZplError::Exists { .. } | ZplError::XattrExists { .. } => Errno::EXIST,
        ZplError::NotFound { .. } => Errno::NOENT,
        ZplError::Stale { .. } => Errno::STALE,
        ZplError::NotEmpty { .. } => Errno::NOTEMPTY,
        ZplError::NameTooLong { .. } => Errno::NAMETOOLONG,
        ZplError::InvalidName => Errno::ILSEQ,
        ZplError::Invalid { .. } | ZplError::IntoItself { .. } | ZplError::CannotClone { .. } => Errno::INVAL,
        ZplError::NotPermitted { .. } => Errno::PERM,
        ZplError::OtherProject { .. } => Errno::XDEV,
        ZplError::TooManyLinks { .. } => Errno::MLINK,
        ZplError::OverQuota { .. } => Errno::DQUOT,
        ZplError::FileTooLarge { .. } => Errno::FBIG,
        ZplError::AttributeTooLarge { .. } => Errno::TOOBIG,
        ZplError::NoXattr { .. } => Errno::NODATA,
        ZplError::Unsupported { .. } => Errno::OPNOTSUPP,
        ZplError::NotYetWritten { .. } => Errno::AGAIN,
        ZplError::WrongKind { kind, expected, .. } => match (kind, *expected) {
            (_, "directory") => Errno::NOTDIR,
            (cenote::files::FileKind::Directory, _) => Errno::ISDIR,
            _ => Errno::INVAL,
        },
        ZplError::Begin(BeginError::NoSpace(_)) => Errno::NOSPC,
        full if full.is_full_directory() => Errno::NOSPC,
        ZplError::Begin(BeginError::Quota(_)) => Errno::DQUOT,
        ZplError::Begin(BeginError::ReadOnly) => Errno::ROFS,
        interrupted if interrupted.is_interrupted() => Errno::INTR,
        // A suspended pool, and damage.
        other => {
            tracing::error!(error = %other, "a request failed");
            Errno::IO
        }
    }
}
