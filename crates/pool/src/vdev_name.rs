//! Names of vdevs as the tools show them.

use format::VdevGuid;
use format::config::{VdevKind, VdevNode};
use vdev::tree::VdevStatus;

/// The name of a leaf: its path without `/dev/` and without the partition of a whole disk.
pub(crate) fn leaf_name(path: Option<&str>, whole_disk: bool, guid: VdevGuid) -> String {
    let Some(path) = path else { return guid.to_string() };
    let Some(device) = path.strip_prefix("/dev/") else { return path.to_owned() };
    // The folders of links (`disk/by-id/` and others) are removed too.
    let device = device.rsplit('/').next().unwrap_or(device);
    if whole_disk { without_partition(device).to_owned() } else { device.to_owned() }
}

/// `sda1` without its `1`, `nvme0n1p1` without its `p1`, `…-part1` without its `-part1`.
fn without_partition(device: &str) -> &str {
    let stem = device.trim_end_matches(|c: char| c.is_ascii_digit());
    if stem.len() == device.len() {
        return device;
    }
    if let Some(disk) = stem.strip_suffix("-part") {
        return disk;
    }
    match stem.strip_suffix('p') {
        Some(disk) if disk.ends_with(|c: char| c.is_ascii_digit()) => disk,
        _ if ["sd", "hd", "vd", "xvd"].iter().any(|kind| device.starts_with(kind)) => stem,
        _ => device,
    }
}

/// The path of a top-level vdev as the history has it: that of a single device, else a dash.
pub(crate) fn path_of_top(top: &VdevNode) -> String {
    top.path.clone().unwrap_or_else(|| "-".to_owned())
}

/// The name of a vdev as the tools show it.
pub(crate) fn display_name(status: &VdevStatus) -> String {
    let id = status.id;
    match status.kind {
        VdevKind::Raidz => format!("raidz{}-{id}", status.nparity),
        VdevKind::Draid => {
            let shape = status.draid;
            let (data, spares) = shape.map_or((0, 0), |s| (s.ndata, s.nspares));
            let children = status.children.len();
            format!("draid{}:{data}d:{children}c:{spares}s-{id}", status.nparity)
        }
        VdevKind::Disk | VdevKind::File | VdevKind::DistributedSpare => {
            let path = status.path.as_ref().map(|path| path.to_string_lossy().into_owned());
            leaf_name(path.as_deref(), status.whole_disk, status.guid)
        }
        kind => format!("{}-{id}", kind.name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_leaves() {
        let name = |path, whole| leaf_name(Some(path), whole, VdevGuid(7));
        assert_eq!(name("/disks/c0t1d0", false), "/disks/c0t1d0");
        assert_eq!(name("/dev/sda1", true), "sda");
        assert_eq!(name("/dev/sda1", false), "sda1");
        assert_eq!(name("/dev/nvme0n1p1", true), "nvme0n1");
        assert_eq!(name("/dev/disk/by-id/ata-X_1-part1", true), "ata-X_1");
        assert_eq!(name("/dev/ubdb", true), "ubdb");
        assert_eq!(leaf_name(None, false, VdevGuid(7)), "7");
    }
}
