//! Where a file system belongs and how it is mounted: its properties, and the words of `-o`.

use super::{MountRefusal, MountRequest, failed};
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
    /// Whoever mounts it by `mount(8)` says where.
    Legacy,
    /// Here; the alternate root is part of it.
    At(PathBuf),
}

impl MountPoint {
    /// The folder, if there is one.
    pub fn path(&self) -> Option<&Path> {
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
    /// When somebody asks for it by name, and with all others.
    On,
    /// Only when somebody asks for it by name.
    NoAuto,
}

/// A file system and where it belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
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
}

impl Place {
    /// It is mounted with all others.
    pub fn mounts_by_itself(&self) -> bool {
        self.can_mount == CanMount::On && self.point.path().is_some() && !self.is_inconsistent
    }
}

/// Where a file system belongs.
pub(super) fn of(pool: &Pool, settings: &ImportSettings, name: &str) -> Result<Place, MountRefusal> {
    let refused = |error: dsl::DslError| failed(name, &error.into());
    let dataset = pool.dsl().dataset(name).map_err(refused)?;
    if dataset.is_snapshot() || dataset.is_volume().map_err(refused)? {
        return Err(MountRefusal::open(name, "operation not applicable to datasets of this type"));
    }
    read(&dataset, settings).map_err(refused)
}

/// Where the file systems from this one on down belong, those above first.
pub(super) fn below(pool: &Pool, settings: &ImportSettings, name: &str) -> Result<Vec<Place>, MountRefusal> {
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

fn add(dir: &Dir, settings: &ImportSettings, found: &mut Vec<Place>) -> Result<(), dsl::DslError> {
    // Directories of the pool's own have no head.
    let Some(head) = dir.head()? else { return Ok(()) };
    if !head.is_volume()? {
        found.push(read(&head, settings)?);
    }
    Ok(())
}

fn read(dataset: &Dataset, settings: &ImportSettings) -> Result<Place, dsl::DslError> {
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
    let options = MountOptions {
        read_only: settings.readonly || number("readonly")? != 0,
        exec: number("exec")? != 0,
        setuid: number("setuid")? != 0,
        devices: number("devices")? != 0,
        xattrs: number("xattr")? != 0,
        atime,
        overlay: number("overlay")? != 0,
        // A user's are in a folder that nobody else can enter, unless they are below an alternate root.
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
    let dataset = dataset.name().to_owned();
    Ok(Place { dataset, point, is_own, can_mount, options, is_inconsistent, is_locked })
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

/// What the words of `-o` make of a mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parsed {
    /// How it is mounted.
    pub(super) options: MountOptions,
    /// It is mounted already, and changes.
    pub(super) remount: bool,
    /// It was `zfs mount` that called (`zfsutil`).
    pub(super) by_tool: bool,
}

/// Takes the words of `-o`; `None`: one of them is unknown.
pub(super) fn parse_options(place: &Place, request: &MountRequest) -> Option<Parsed> {
    let mut parsed = Parsed { options: place.options.clone(), remount: false, by_tool: false };
    parsed.options.overlay |= request.overlay;
    let words = || request.options.iter().flat_map(|list| list.split(',')).map(str::trim);
    let is_sloppy = words().any(|word| word == "sloppy");
    for word in words() {
        if take(&mut parsed, word).is_none() && !is_sloppy {
            return None;
        }
    }
    // What the properties say anyway is not temporary.
    let before = &place.options;
    let now = parsed.options.clone();
    let differs = |name: &str| match name {
        "readonly" => before.read_only != now.read_only,
        "exec" => before.exec != now.exec,
        "setuid" => before.setuid != now.setuid,
        "devices" => before.devices != now.devices,
        "xattr" => before.xattrs != now.xattrs,
        _ => before.atime != now.atime,
    };
    let said = std::mem::take(&mut parsed.options.temporary);
    parsed.options.temporary = said.into_iter().filter(|(name, _)| differs(name)).collect();
    Some(parsed)
}

/// The word of `-o` that says this of a mount for itself alone.
pub(super) fn word(name: &str, value: &str) -> Option<&'static str> {
    Some(match (name, value == "on") {
        ("readonly", true) => "ro",
        ("readonly", false) => "rw",
        ("exec", true) => "exec",
        ("exec", false) => "noexec",
        ("setuid", true) => "setuid",
        ("setuid", false) => "nosetuid",
        ("devices", true) => "devices",
        ("devices", false) => "nodevices",
        ("atime", true) => "atime",
        ("atime", false) => "noatime",
        ("relatime", true) => "relatime",
        ("relatime", false) => "norelatime",
        ("xattr", false) => "noxattr",
        _ => return None,
    })
}

fn take(parsed: &mut Parsed, word: &str) -> Option<()> {
    let options = &mut parsed.options;
    let mut say = |name: &str, on: bool| {
        options.temporary.retain(|(known, _)| known != name);
        options.temporary.push((name.to_owned(), if on { "on" } else { "off" }.to_owned()));
    };
    match word {
        "ro" | "rw" => {
            say("readonly", word == "ro");
            options.read_only = word == "ro";
        }
        "exec" | "noexec" => {
            say("exec", word == "exec");
            options.exec = word == "exec";
        }
        "suid" | "setuid" | "nosuid" | "nosetuid" => {
            let on = !word.starts_with("no");
            say("setuid", on);
            options.setuid = on;
        }
        "dev" | "devices" | "nodev" | "nodevices" => {
            let on = !word.starts_with("no");
            say("devices", on);
            options.devices = on;
        }
        "atime" | "noatime" => {
            say("atime", word == "atime");
            options.atime = match (word, options.atime) {
                ("noatime", _) => AccessTimes::Never,
                (_, AccessTimes::Never) => AccessTimes::Relative,
                (_, other) => other,
            };
        }
        "relatime" | "norelatime" | "strictatime" => {
            let on = word == "relatime";
            say("relatime", on);
            if options.atime != AccessTimes::Never || word == "strictatime" {
                options.atime = if on { AccessTimes::Relative } else { AccessTimes::Always };
            }
        }
        "noxattr" => {
            say("xattr", false);
            options.xattrs = false;
        }
        "remount" => parsed.remount = true,
        "zfsutil" => parsed.by_tool = true,
        "" | "defaults" | "auto" | "noauto" | "user" | "nouser" | "users" | "nofail" | "_netdev"
        | "xattr" | "saxattr" | "dirxattr" | "nbmand" | "nonbmand" | "mand" | "nomand" | "async"
        | "quiet" | "loud" | "diratime" | "nodiratime" | "acl" | "noacl" | "posixacl" | "silent"
        | "sloppy" | "lazytime" | "nolazytime" | "iversion" | "noiversion" => {}
        "allow_other" => options.allow_other = true,
        other => {
            let ignored = ["x-", "X-", "comment=", "context=", "fscontext=", "defcontext=", "rootcontext="];
            ignored.iter().any(|prefix| other.starts_with(prefix)).then_some(())?;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place {
        Place {
            dataset: "p/a".into(),
            point: MountPoint::At("/p/a".into()),
            is_own: false,
            can_mount: CanMount::On,
            options: MountOptions::default(),
            is_inconsistent: false,
            is_locked: false,
        }
    }

    fn parse(words: &str) -> Option<Parsed> {
        parse_options(&place(), &MountRequest { overlay: false, options: vec![words.to_owned()] })
    }

    #[test]
    fn mounts_of_users_lie_side_by_side() {
        assert_eq!((flat("tank/a/b"), flat("tank+a/b%/")), ("tank+a+b".into(), "tank%2Ba+b%25".into()));
    }

    #[test]
    fn words_of_options_are_temporary_properties() {
        let parsed = parse("ro,noexec,rw,nosuid,noatime").expect("known words");
        assert!(!parsed.options.read_only && !parsed.options.exec && !parsed.options.setuid);
        assert_eq!(parsed.options.atime, AccessTimes::Never);
        let named: Vec<&str> = parsed.options.temporary.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(named, ["exec", "setuid", "atime"]);
        let again: Vec<_> =
            parsed.options.temporary.iter().map(|(name, value)| word(name, value).expect("known")).collect();
        assert_eq!(parse(&again.join(",")).expect("known words"), parsed);
        assert!(parse("remount,dev").expect("known words").remount);
        assert_eq!(parse("x-systemd.automount,defaults").expect("known words").options, place().options);
        assert_eq!(parse("foo"), None);
        assert!(parse("foo,ro,sloppy").expect("what is unknown does not count").options.read_only);
        assert_eq!(parse("bar=1"), None);
    }
}
