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
        let is_missing = vdev.not_present && vdev.kind != "dspare";
        if is_missing { vdev.name() } else { self.of_present(vdev) }
    }

    /// [`Names::of`] for a vdev that is named by its path even if it is missing.
    pub(crate) fn of_present(self, vdev: &Vdev) -> String {
        let is_spare = vdev.kind == "dspare";
        match &vdev.path {
            _ if vdev.pool_name.is_some() => vdev.name(),
            _ if self.guid && !is_spare => vdev.guid.to_string(),
            Some(path) if !is_spare => self.path_of(path, vdev),
            _ => vdev.name_if_present(),
        }
    }

    fn path_of(self, path: &str, vdev: &Vdev) -> String {
        let real = if self.follow { std::fs::canonicalize(path).ok() } else { None };
        let path = real.map_or_else(|| path.to_owned(), |real| real.to_string_lossy().into_owned());
        if self.path { path } else { vdev.short_path(&path) }
    }
}

/// The groups after the data vdevs, in the order of `zpool status`, and their headings.
pub(crate) const GROUPS: [(Class, &str); 3] =
    [(Class::Dedup, "dedup"), (Class::Special, "special"), (Class::Log, "logs")];

/// The top-level vdevs of one class, without holes.
pub(crate) fn tops(root: &Vdev, class: Class) -> impl Iterator<Item = &Vdev> {
    root.children.iter().filter(move |v| v.class == class && v.kind != "hole")
}

/// `AVAIL`, `INUSE`, or what is wrong with a spare.
pub(crate) fn spare_word(vdev: &Vdev) -> &'static str {
    match (vdev.health, vdev.aux) {
        (admin::Health::Online, _) => "AVAIL",
        (_, admin::Aux::SpareInUse) => "INUSE",
        (health, _) => health.word(),
    }
}
