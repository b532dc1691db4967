//! Fragmentation of free space, as `zpool list` shows it.

use crate::space::{Class, MetaslabSpace, VdevSpace};

pub(crate) fn of_vdev(_metaslabs: &[MetaslabSpace], _ashift: u32) -> Option<u64> {
    None
}

pub(crate) fn of_class(_vdevs: &[VdevSpace], _class: Class) -> Option<u64> {
    None
}
