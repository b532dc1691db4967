//! [`Devices`]: a shared handle on a source of devices.

use super::interface::DeviceSource;
use super::system::SystemDevices;
use std::ops::Deref;
use std::sync::Arc;

/// A shared source of devices; the machine's own by default. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct Devices(Arc<dyn DeviceSource>);

impl Devices {
    /// The block devices and files of this machine.
    pub fn system() -> Devices {
        Devices::new(SystemDevices)
    }

    /// A source of another kind.
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
