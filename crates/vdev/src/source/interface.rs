//! [`DeviceSource`]: the interface of every source of devices.

use crate::device::file::Access;
use crate::device::{Device, DeviceError};
use std::ffi::OsString;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Access for which a device is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Reading. Other handles may write to the device meanwhile.
    Read,
    /// Reading and writing, with no other writer.
    Exclusive,
}

/// A device to be examined by a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Name by which the source opens the device.
    pub path: PathBuf,
    /// Whether the caller named this device, rather than a folder that contains it: then a failure to open it
    /// is a problem.
    pub is_named: bool,
}

/// Result of listing some places.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    /// The devices, each once, in an order that does not depend on timing.
    pub candidates: Vec<Candidate>,
    /// Places that could not be listed, each with the reason.
    pub problems: Vec<(PathBuf, DeviceError)>,
}

/// Identity of a device: equal for two names of one device of the same source.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId(OsString);

impl DeviceId {
    /// An identity: any text that no other device of the source has.
    pub fn new(id: impl Into<OsString>) -> DeviceId {
        DeviceId(id.into())
    }
}

/// A source of devices: opens them by name, lists them, and identifies them.
pub trait DeviceSource: Send + Sync + Debug {
    /// Opens a device. `access` selects the path of its bytes through the kernel; a source without a kernel
    /// below it ignores that.
    ///
    /// # Errors
    /// [`DeviceError::NotFound`] if the name does not exist, [`DeviceError::Busy`] if another handle is
    /// exclusive, otherwise the reason why it cannot be opened.
    fn open(&self, path: &Path, mode: Mode, access: Access) -> Result<Arc<dyn Device>, DeviceError>;

    /// Lists the devices in these places, which are names of devices or of folders; without places, all
    /// devices that the source searches by default.
    fn list(&self, places: &[PathBuf]) -> Listing;

    /// Identity of the device with a name; `None` if there is none.
    fn identity(&self, path: &Path) -> Option<DeviceId>;

    /// Whether a handle of the device is exclusive, in this process or another. The answer may be out of date
    /// when it is returned.
    ///
    /// # Errors
    /// If the device cannot be opened for another reason.
    fn is_held(&self, path: &Path) -> Result<bool, DeviceError> {
        match self.open(path, Mode::Exclusive, Access::Auto) {
            Ok(_) => Ok(false),
            Err(DeviceError::Busy { .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }
}
