//! Translation of errors of an export to error numbers: the only place where the two meet.

use crate::export::ExportError;
use cenote::files::{BeginError, FileKind, ZplError};
use rustix::io::Errno;

/// The error number for the program that made the request. Errors that the program did not cause are logged.
pub(super) fn errno(error: &ExportError) -> Errno {
    match error {
        ExportError::FileSystem(error) => zpl_errno(error),
        ExportError::Stale => Errno::STALE,
        ExportError::NotFound => Errno::NOENT,
        ExportError::Exists => Errno::EXIST,
        ExportError::NotDir => Errno::NOTDIR,
        ExportError::IsDir => Errno::ISDIR,
        ExportError::Invalid => Errno::INVAL,
        ExportError::NameTooLong => Errno::NAMETOOLONG,
        ExportError::NotUtf8 => Errno::ILSEQ,
        ExportError::BeyondEnd => Errno::NXIO,
        // OpenZFS returns this for a dataset whose key is not loaded.
        ExportError::NoKey { .. } | ExportError::NotAllowed => Errno::ACCESS,
        ExportError::TooMany => Errno::NFILE,
        ExportError::ReadOnly => Errno::ROFS,
        ExportError::NotPermitted => Errno::PERM,
        ExportError::CrossDevice => Errno::XDEV,
        ExportError::Unsupported => Errno::OPNOTSUPP,
        ExportError::Busy => Errno::BUSY,
        ExportError::NoSpace => Errno::NOSPC,
        ExportError::LendsRights => Errno::TXTBSY,
        ExportError::Ended => Errno::NODEV,
        ExportError::Interrupted => Errno::INTR,
        // The adapter of the view logs damage together with the file.
        ExportError::Damaged(_) => Errno::IO,
        ExportError::NotDurable(_) | ExportError::Snapshot(_) | ExportError::SnapshotChange(_) => {
            let cause = std::error::Error::source(error);
            tracing::error!(%error, cause, "a request failed");
            Errno::IO
        }
    }
}

/// The number for an error of a file system that is open for writing.
fn zpl_errno(error: &ZplError) -> Errno {
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
            (FileKind::Directory, _) => Errno::ISDIR,
            _ => Errno::INVAL,
        },
        ZplError::Begin(BeginError::NoSpace(_)) => Errno::NOSPC,
        full if full.is_full_directory() => Errno::NOSPC,
        ZplError::Begin(BeginError::Quota(_)) => Errno::DQUOT,
        ZplError::Begin(BeginError::ReadOnly) => Errno::ROFS,
        interrupted if interrupted.is_interrupted() => Errno::INTR,
        // A suspended pool, or damage.
        other => {
            tracing::error!(error = %other, "a request failed");
            Errno::IO
        }
    }
}
