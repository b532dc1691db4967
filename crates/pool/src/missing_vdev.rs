//! Vdevs that cannot be used, and which of their devices are the reason.

use crate::vdev_name::display_name;
use format::config::VdevKind;
use format::{VdevGuid, VdevId};
use std::fmt;
use std::path::PathBuf;
use vdev::tree::{Aux, VdevState, VdevStatus};

/// A vdev that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingVdev {
    /// Number of the vdev among its siblings.
    pub id: VdevId,
    /// Guid of the vdev.
    pub guid: VdevGuid,
    /// Name of the vdev as the commands show it; `None`: it is a top-level vdev of which only the number is known.
    pub name: Option<String>,
    /// True if the vdev is made of others; else its only device is the vdev itself.
    pub is_group: bool,
    /// The devices that it lacks.
    pub devices: Vec<MissingDevice>,
}

/// A device that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingDevice {
    /// Guid of the device.
    pub guid: VdevGuid,
    /// Name of the device as the commands show it.
    pub name: String,
    /// Path at which the device was, or is.
    pub path: Option<PathBuf>,
    /// Why it cannot be used.
    pub why: WhyMissing,
}

/// Why a device cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhyMissing {
    /// No device of the top-level vdev with this number was found.
    Unknown(VdevId),
    /// The device is smaller than it was.
    TooSmall {
        /// Its size in bytes.
        size: u64,
    },
    /// Another reason, as the state of the device says.
    State(Aux),
}

impl MissingVdev {
    /// A vdev of a pool, with those of its leaves that cannot be used.
    pub(crate) fn of(vdev: &VdevStatus) -> MissingVdev {
        let all = vdev.walk();
        let leaves = all.iter().filter(|v| v.children.is_empty() && v.state < VdevState::Degraded);
        MissingVdev {
            id: VdevId(vdev.id),
            guid: vdev.guid,
            name: (vdev.kind != VdevKind::Missing).then(|| display_name(vdev)),
            is_group: !vdev.children.is_empty(),
            devices: leaves.map(|leaf| MissingDevice::of(leaf)).collect(),
        }
    }
}

impl MissingDevice {
    fn of(leaf: &VdevStatus) -> MissingDevice {
        let why = match leaf.aux {
            _ if leaf.kind == VdevKind::Missing => WhyMissing::Unknown(VdevId(leaf.id)),
            Aux::TooSmall => WhyMissing::TooSmall { size: leaf.device_size },
            aux => WhyMissing::State(aux),
        };
        MissingDevice { guid: leaf.guid, name: display_name(leaf), path: leaf.path.clone(), why }
    }
}

impl fmt::Display for MissingVdev {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let devices = self.devices.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        match &self.name {
            Some(name) if self.is_group => write!(f, "{name} ({devices})"),
            _ => f.write_str(&devices),
        }
    }
}

impl fmt::Display for MissingDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match self.why {
            WhyMissing::Unknown(top) => write!(f, "no device of top-level vdev {} was found", top.0),
            WhyMissing::TooSmall { size } => write!(f, "{name}: too small, it has {size} bytes"),
            WhyMissing::State(aux) if aux.words().is_empty() => f.write_str(name),
            WhyMissing::State(aux) => write!(f, "{name}: {}", aux.words()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(why: WhyMissing) -> MissingDevice {
        MissingDevice {
            guid: VdevGuid(7),
            name: "/img/a: b (1)".into(),
            path: Some("/img/a: b (1)".into()),
            why,
        }
    }

    #[test]
    fn texts_name_vdevs_and_devices() {
        let vdev = |name: Option<&str>, is_group, why| MissingVdev {
            id: VdevId(1),
            guid: VdevGuid(9),
            name: name.map(str::to_owned),
            is_group,
            devices: vec![device(why)],
        };
        let gone = WhyMissing::State(Aux::OpenFailed);
        assert_eq!(vdev(Some("mirror-1"), true, gone).to_string(), "mirror-1 (/img/a: b (1): cannot open)");
        assert_eq!(vdev(Some("/img/a: b (1)"), false, gone).to_string(), "/img/a: b (1): cannot open");
        let unknown = vdev(None, false, WhyMissing::Unknown(VdevId(1)));
        assert_eq!(unknown.to_string(), "no device of top-level vdev 1 was found");
        let small = device(WhyMissing::TooSmall { size: 512 });
        assert_eq!(small.to_string(), "/img/a: b (1): too small, it has 512 bytes");
    }
}
