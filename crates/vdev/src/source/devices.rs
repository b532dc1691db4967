//! [`Devices`]: a shared handle on a source of devices.

use super::interface::DeviceSource;
use super::system::SystemDevices;
use std::ops::Deref;
use std::sync::Arc;

/// A shared source of devices; by default the machine's own. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Devices(Arc<dyn DeviceSource>);

impl Devices {
    /// The source of this machine's block devices and files.
    pub fn system() -> Devices {
        Devices::new(SystemDevices)
    }

    /// Wraps another source.
    pub fn new(source: impl DeviceSource + 'static) -> Devices {
        Devices(Arc::new(source))
    }
}

impl Default for Devices {
    fn default() -> Devices {
        Devices::system()
    }
}

impl From<Arc<dyn DeviceSource>> for Devices {
    fn from(source: Arc<dyn DeviceSource>) -> Devices {
        Devices(source)
    }
}

impl Deref for Devices {
    type Target = dyn DeviceSource;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}
