//! Why a device could not be opened, read or written.

use format::DeviceOffset;
use rustix::io::Errno;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// The operation of a device that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IoOp {
    /// Reading a range.
    Read,
    /// Writing a range.
    Write,
    /// Making what was written durable.
    Flush,
    /// Declaring a range unused, so that the device may discard it.
    Discard,
    /// Having the kernel read the partition table again.
    RereadPartitions,
}

/// The holder of a device that is in use, as far as its source knows it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Holder {
    /// A handle of the same source, in this process.
    SameSource,
    /// Block devices that are built on it, such as `dm-0` or `md1`.
    Devices(Vec<String>),
    /// A process, by its id.
    Process(u32),
}

/// An error of a source that is not the operating system, such as the answer of an object store. Two of them
/// are equal if they are the same error.
#[derive(Debug, Clone)]
pub struct SourceError(Arc<dyn Error + Send + Sync>);

impl SourceError {
    /// Wraps an error of a source. Its text must say what the source refused.
    pub fn new(error: impl Error + Send + Sync + 'static) -> SourceError {
        SourceError(Arc::new(error))
    }
}

impl PartialEq for SourceError {
    fn eq(&self, other: &SourceError) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for SourceError {}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for SourceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

/// What refused a request: the operating system, or a source of another kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// An error number of the operating system.
    #[error(transparent)]
    System(#[from] Errno),
    /// The error of a source that is not the operating system.
    #[error(transparent)]
    Source(#[from] SourceError),
}

/// Why a device could not be opened, read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The name does not exist.
    #[error("No such file or directory")]
    NotFound,
    /// The name leads to a folder.
    #[error("Is a directory")]
    IsFolder,
    /// The name is that of neither a file nor a block device.
    #[error("Block device required")]
    NotADevice,
    /// The caller has no permission to open the device.
    #[error("Permission denied")]
    Denied,
    /// The source failed to open the device, for another reason.
    #[error("{cause}")]
    Open {
        /// What the operating system or the source reported.
        #[source]
        cause: Cause,
    },
    /// A request failed in the operating system, in the source, or on a simulated disk.
    #[error("{len} bytes at {at}: {cause}")]
    Io {
        /// The operation that failed.
        op: IoOp,
        /// First byte of the request.
        at: DeviceOffset,
        /// Number of bytes of the request.
        len: usize,
        /// What the operating system or the source reported.
        #[source]
        cause: Cause,
    },
    /// The request reaches past the end of the device.
    #[error("{len} bytes at {at} are not within a device of {size}")]
    OutOfRange {
        /// First byte of the request.
        at: DeviceOffset,
        /// Number of bytes of the request.
        len: u64,
        /// Number of bytes of the device.
        size: u64,
    },
    /// The device is shorter than it was when it was opened.
    #[error("the device ends at {at}, within a request")]
    Truncated {
        /// Offset of the first byte that is missing.
        at: DeviceOffset,
    },
    /// The device is open for reading only.
    #[error("the device is read-only")]
    ReadOnly,
    /// Another handle of the device is open for writing, in this process or another.
    #[error("the device is in use")]
    Busy {
        /// The holder, if it is known.
        holder: Option<Holder>,
    },
    /// The device disappeared: it was unplugged, or its name leads to another device.
    #[error("the device is gone")]
    Gone,
    /// The power of the simulated machine is off.
    #[error("the power is off")]
    PowerOff,
    /// No device has served the read.
    #[error("not read")]
    NotRead,
    /// No device has served the write, or a write was lost before a flush.
    #[error("not written")]
    NotWritten,
}

impl DeviceError {
    /// Whether the device is in use by another holder.
    pub fn is_busy(&self) -> bool {
        matches!(self, DeviceError::Busy { .. })
    }
}

/// Result of a flush: success if the device reports that it has no volatile cache to flush.
pub(crate) fn flush_is_supported(outcome: Result<(), DeviceError>) -> Result<(), DeviceError> {
    match outcome {
        Err(DeviceError::Io { op: IoOp::Flush, cause: Cause::System(Errno::OPNOTSUPP), .. }) => Ok(()),
        outcome => outcome,
    }
}
