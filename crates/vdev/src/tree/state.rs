//! States of vdevs, and the reasons for them.

/// State of a vdev, from worst to best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VdevState {
    /// Taken offline by the administrator.
    Offline,
    /// The device was pulled out of the running machine.
    Removed,
    /// The device cannot be opened, or too few children can.
    Unavail,
    /// Not used: it had too many errors, or the administrator declared it faulted.
    Faulted,
    /// Works with less redundancy or more errors than it should.
    Degraded,
    /// Works, and has all its data.
    Online,
}

/// Why a vdev is in its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Aux {
    /// The state needs no reason.
    None,
    /// No device was found, or it could not be opened.
    OpenFailed,
    /// Fewer children work than the vdev needs.
    NoReplicas,
    /// The device is smaller than the vdev.
    TooSmall,
    /// The configuration records too many errors.
    ErrExceeded,
    /// Declared faulted by the administrator.
    External,
    /// All its children are offline.
    ChildrenOffline,
    /// A removed vdev whose mapping was not read.
    CorruptData,
}

impl Aux {
    /// The text that `zpool status` prints after the state.
    pub fn words(self) -> &'static str {
        match self {
            Aux::None => "",
            Aux::OpenFailed => "cannot open",
            Aux::NoReplicas => "insufficient replicas",
            Aux::TooSmall | Aux::CorruptData => "corrupted data",
            Aux::ErrExceeded => "too many errors",
            Aux::External => "external device fault",
            Aux::ChildrenOffline => "all children offline",
        }
    }
}
