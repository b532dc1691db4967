//! The properties of a file system that say where it belongs and how it is mounted.

use super::refusal::{MountRefusal, Obstacle, failed};
use crate::{AccessTimes, ImportSettings, MountOptions};
use cenote::Pool;
use dsl::keys::KeyStatus;
use dsl::prop::{self, PropValue, Source};
use dsl::{Dataset, Dir};
use std::path::{Path, PathBuf};

/// Property `mountpoint`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MountPoint {
    /// Nowhere.
    None,
    /// The caller of `mount(8)` chooses the place.
    Legacy,
    /// Here; the alternate root is part of it.
    At(PathBuf),
}

impl MountPoint {
    /// The folder, if there is one.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            MountPoint::At(path) => Some(path),
            MountPoint::None | MountPoint::Legacy => None,
        }
    }
}

/// Property `canmount`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CanMount {
    /// Never.
    Off,
    /// By a request that names it, and with all others.
    On,
    /// Only by a request that names it.
    NoAuto,
}

/// What the properties of a file system say of its mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountProperties {
    /// Its name.
    pub dataset: String,
    /// Where.
    pub point: MountPoint,
    /// The mount point is set on the file system itself.
    pub is_own: bool,
    /// Whether it may be mounted.
    pub can_mount: CanMount,
    /// How, by its properties.
    pub options: MountOptions,
    /// It is being received: there is nothing whole in it.
    pub is_inconsistent: bool,
    /// It is encrypted, and its key is not loaded.
    pub is_locked: bool,
    /// Its contents are only read, whatever the mount options say.
    pub is_unwritten: bool,
    /// It was received from a redacted stream: some blocks are missing.
    pub is_redacted: bool,
}

impl MountProperties {
    /// It is mounted with all others.
    pub(crate) fn mounts_by_itself(&self) -> bool {
        self.mounts_if_forced() && !self.is_redacted
    }

    /// It is mounted with all others if mounts are forced (`-f`): then those from redacted streams are, too.
    pub(super) fn mounts_if_forced(&self) -> bool {
        self.can_mount == CanMount::On && self.point.path().is_some() && !self.is_inconsistent
    }
}

/// The properties of a file system.
pub(super) fn of(
    pool: &Pool,
    settings: &ImportSettings,
    name: &str,
) -> Result<MountProperties, MountRefusal> {
    let refused = |error: dsl::DslError| failed(name, &error.into());
    let dataset = pool.dsl().dataset(name).map_err(refused)?;
    if dataset.is_snapshot() || dataset.is_volume().map_err(refused)? {
        return Err(MountRefusal::open(name, Obstacle::NotAFilesystem));
    }
    read(&dataset, settings).map_err(refused)
}

/// Where the file systems from this one on down belong, those above first.
pub(super) fn below(
    pool: &Pool,
    settings: &ImportSettings,
    name: &str,
) -> Result<Vec<MountProperties>, MountRefusal> {
    let refused = |error: dsl::DslError| failed(name, &error.into());
    let mut found = Vec::new();
    let mut stack = vec![pool.dsl().dir(name).map_err(refused)?];
    while let Some(dir) = stack.pop() {
        add(&dir, settings, &mut found).map_err(refused)?;
        let mut children = dir.children().map_err(refused)?;
        children.reverse();
        stack.extend(children);
    }
    Ok(found)
}

fn add(dir: &Dir, settings: &ImportSettings, found: &mut Vec<MountProperties>) -> Result<(), dsl::DslError> {
    // Directories of the pool's own have no head.
    let Some(head) = dir.head()? else { return Ok(()) };
    if !head.is_volume()? {
        found.push(read(&head, settings)?);
    }
    Ok(())
}

fn read(dataset: &Dataset, settings: &ImportSettings) -> Result<MountProperties, dsl::DslError> {
    let number = |name| -> Result<u64, dsl::DslError> {
        Ok(prop::get(dataset, name)?.and_then(|value| value.raw.number()).unwrap_or(0))
    };
    let mountpoint = prop::get(dataset, "mountpoint")?;
    let is_own = mountpoint.as_ref().is_some_and(|value| value.source == Source::Local);
    let point = match mountpoint.map(|value| value.raw) {
        Some(PropValue::String(path)) if path == "legacy" => MountPoint::Legacy,
        Some(PropValue::String(path)) if path.starts_with('/') => MountPoint::At(rooted(&path, settings)),
        _ => MountPoint::None,
    };
    let atime = match (number("atime")?, number("relatime")?) {
        (0, _) => AccessTimes::Never,
        (_, 0) => AccessTimes::Always,
        _ => AccessTimes::Relative,
    };
    let is_root = rustix::process::geteuid().is_root();
    let is_unwritten = dataset.unwritten()?.is_some();
    let options = MountOptions {
        read_only: settings.readonly || is_unwritten || number("readonly")? != 0,
        exec: number("exec")? != 0,
        setuid: number("setuid")? != 0,
        devices: number("devices")? != 0,
        xattrs: number("xattr")? != 0,
        atime,
        overlay: number("overlay")? != 0,
        // A user's are in a folder that no other user can enter, unless they are below an alternate root.
        allow_other: is_root || settings.altroot.is_none() && may_let_others_in(),
        temporary: Vec::new(),
        by_hand: false,
    };
    let can_mount = match number("canmount")? {
        0 => CanMount::Off,
        1 => CanMount::On,
        _ => CanMount::NoAuto,
    };
    let is_inconsistent = dataset.is_inconsistent();
    let is_locked = dataset.dir().dsl().keyring().status(dataset.dir())? == KeyStatus::Unavailable;
    let is_redacted = dataset.redact_snaps()?.is_some();
    Ok(MountProperties {
        dataset: dataset.name().to_owned(),
        point,
        is_own,
        can_mount,
        options,
        is_inconsistent,
        is_locked,
        is_unwritten,
        is_redacted,
    })
}

/// A mount point below the alternate root. A user's pools are mounted below a folder of the user's in any case: a
/// pool that came from elsewhere does not choose where.
fn rooted(stored: &str, settings: &ImportSettings) -> PathBuf {
    if let Some(path) = settings.mountpoint(stored) {
        return PathBuf::from(path);
    }
    if rustix::process::geteuid().is_root() {
        return PathBuf::from(stored);
    }
    let base = crate::change::state_folder().join("mnt");
    let below = stored.trim_start_matches('/');
    if may_let_others_in() { base.join(below) } else { base.join(flat(below)) }
}

/// Users may make mounts that others can enter, root among them.
fn may_let_others_in() -> bool {
    let settings = std::fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
    settings.lines().any(|line| line.trim() == "user_allow_other")
}

/// One name for a path: `fusermount3` runs as root, which a mount that is its user's alone does not let in, so none
/// can be made below another.
fn flat(path: &str) -> String {
    path.trim_end_matches('/').replace('%', "%25").replace('+', "%2B").replace('/', "+")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_users_lie_side_by_side() {
        assert_eq!((flat("tank/a/b"), flat("tank+a/b%/")), ("tank+a+b".into(), "tank%2Ba+b%25".into()));
    }
}
