//! The words of `-o`: how a mount differs from what the properties of its file system say.

use super::properties::MountProperties;
use crate::{AccessTimes, MountOptions};

/// What a command says beside the properties.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MountRequest {
    /// `-O`.
    pub overlay: bool,
    /// `-f`: file systems from redacted streams are mounted, too.
    pub force: bool,
    /// `-o`: words in order.
    pub options: Vec<String>,
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
pub(super) fn parse_options(properties: &MountProperties, request: &MountRequest) -> Option<Parsed> {
    let mut parsed = Parsed { options: properties.options.clone(), remount: false, by_tool: false };
    parsed.options.overlay |= request.overlay;
    let words = || request.options.iter().flat_map(|list| list.split(',')).map(str::trim);
    let is_sloppy = words().any(|word| word == "sloppy");
    for word in words() {
        if take(&mut parsed, word).is_none() && !is_sloppy {
            return None;
        }
    }
    parsed.options.read_only |= properties.is_unwritten;
    // What the properties say anyway is not temporary.
    let before = &properties.options;
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
    use super::super::properties::{CanMount, MountPoint};
    use super::*;

    fn properties() -> MountProperties {
        MountProperties {
            dataset: "p/a".into(),
            point: MountPoint::At("/p/a".into()),
            is_own: false,
            can_mount: CanMount::On,
            options: MountOptions::default(),
            is_inconsistent: false,
            is_unwritten: false,
            is_redacted: false,
            is_locked: false,
        }
    }

    fn parse(words: &str) -> Option<Parsed> {
        parse_options(
            &properties(),
            &MountRequest { options: vec![words.to_owned()], ..MountRequest::default() },
        )
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
        assert_eq!(parse("x-systemd.automount,defaults").expect("known words").options, properties().options);
        assert_eq!(parse("foo"), None);
        assert!(parse("foo,ro,sloppy").expect("what is unknown does not count").options.read_only);
        assert_eq!(parse("bar=1"), None);
    }
}
