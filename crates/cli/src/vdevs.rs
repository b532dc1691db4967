//! Names and groups of vdevs in the output of the tools.

use admin::{Class, Vdev};

/// Options for the names of leaves.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Names {
    /// `-g`: leaves are named by guid.
    pub(crate) guid: bool,
    /// `-L`: symbolic links are resolved.
    pub(crate) follow: bool,
    /// `-P`: full paths instead of last components.
    pub(crate) path: bool,
}

impl Names {
    /// The options that environment variables set.
    pub(crate) fn from_env() -> Names {
        let on = |name: &str| {
            let value = crate::console::env(name);
            value.is_some_and(|v| matches!(v.to_str(), Some("YES" | "yes" | "1" | "ON" | "on" | "true")))
        };
        Names {
            guid: on("ZPOOL_VDEV_NAME_GUID"),
            follow: on("ZPOOL_VDEV_NAME_FOLLOW_LINKS"),
            path: on("ZPOOL_VDEV_NAME_PATH"),
        }
    }

    /// The name of a vdev.
    pub(crate) fn of(self, vdev: &Vdev) -> String {
        if let Some(pool) = &vdev.pool_name {
            return pool.clone();
        }
        if vdev.not_present && vdev.kind != "dspare" {
            return vdev.guid.to_string();
        }
        self.of_present(vdev)
    }

    /// [`Names::of`] for a vdev that is named by its path even if it is missing.
    pub(crate) fn of_present(self, vdev: &Vdev) -> String {
        if let Some(pool) = &vdev.pool_name {
            return pool.clone();
        }
        if self.guid && vdev.kind != "dspare" {
            return vdev.guid.to_string();
        }
        match (&vdev.path, vdev.kind.as_str()) {
            (Some(path), "dspare") => path.clone(),
            (Some(path), _) => self.path_of(path, vdev),
            (None, "raidz") => format!("raidz{}-{}", vdev.nparity, vdev.id),
            (None, "draid") => draid_name(vdev),
            (None, kind) => format!("{kind}-{}", vdev.id),
        }
    }

    fn path_of(self, path: &str, vdev: &Vdev) -> String {
        let mut name = path.to_owned();
        if self.follow
            && let Ok(real) = std::fs::canonicalize(path)
        {
            name = real.to_string_lossy().into_owned();
        }
        if self.path {
            return name;
        }
        let is_disk = vdev.kind == "disk";
        if let Some(short) = name.strip_prefix("/dev/").filter(|_| is_disk) {
            name = short.rsplit('/').next().unwrap_or(short).to_owned();
            if vdev.whole_disk {
                name = without_partition(&name).to_owned();
            }
        }
        name
    }
}

fn draid_name(vdev: &Vdev) -> String {
    match vdev.draid {
        Some((data, children, spares)) => {
            format!("draid{}:{data}d:{children}c:{spares}s-{}", vdev.nparity, vdev.id)
        }
        None => format!("draid{}-{}", vdev.nparity, vdev.id),
    }
}

/// The name of a disk without its partition: `sda1` is `sda`, `nvme0n1p1` is `nvme0n1`, `wwn-1-part1` is
/// `wwn-1`.
fn without_partition(name: &str) -> &str {
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    let Some(stem) = name.get(..name.len() - digits).filter(|_| digits > 0) else { return name };
    if let Some(disk) = stem.strip_suffix("-part") {
        return disk;
    }
    let disk_prefix = ["hd", "sd", "vd", "xvd", "ubd"].iter().any(|p| stem.starts_with(p));
    match stem.strip_suffix('p') {
        Some(disk) if disk.ends_with(|c: char| c.is_ascii_digit()) => disk,
        _ if disk_prefix => stem,
        _ => name,
    }
}

/// The groups after the data vdevs, in the order of `zpool status`, and their headings.
pub(crate) const GROUPS: [(Class, &str); 3] =
    [(Class::Dedup, "dedup"), (Class::Special, "special"), (Class::Log, "logs")];

/// The top-level vdevs of one class, without holes.
pub(crate) fn tops(root: &Vdev, class: Class) -> impl Iterator<Item = &Vdev> {
    root.children.iter().filter(move |v| v.class == class && v.kind != "hole")
}

#[cfg(test)]
mod tests {
    use super::without_partition;

    #[test]
    fn partitions_of_whole_disks_are_not_named() {
        for (name, disk) in [
            ("sda1", "sda"),
            ("vdb1", "vdb"),
            ("nvme0n1p1", "nvme0n1"),
            ("wwn-0x5000-part1", "wwn-0x5000"),
            ("dm-3", "dm-3"),
            ("sda", "sda"),
        ] {
            assert_eq!(without_partition(name), disk);
        }
    }
}
