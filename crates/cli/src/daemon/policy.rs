//! What a daemon does for whom.
//!
//! # What always holds
//! - Root and the user whose daemon it is may everything; a user's daemon does nothing for anybody else.
//! - For others root's daemon opens no path that they name: not by arguments, not by variables.

use crate::zpool::SAID;
use serve::control::Peer;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

/// Subcommands of `zpool` that only read the pools.
const ZPOOL_READS: [&str; 10] =
    ["list", "get", "status", "iostat", "events", "wait", "version", "prefetch", "help", "sync"];
/// Subcommands of `zfs` that only read.
const ZFS_READS: [&str; 9] =
    ["list", "get", "holds", "userspace", "groupspace", "projectspace", "version", "diff", "wait"];
/// Subcommands of `zfs` that `zfs allow` can grant; who was granted what is looked up where they are done.
const ZFS_GRANTABLE: [&str; 17] = [
    "create", "destroy", "snapshot", "snap", "rollback", "clone", "promote", "rename", "set", "inherit",
    "hold", "release", "bookmark", "allow", "unallow", "upgrade", "mount",
];

/// The daemon's own user, or root.
pub(super) fn is_trusted(peer: &Peer) -> bool {
    peer.uid == 0 || peer.uid == rustix::process::geteuid().as_raw()
}

/// Whether a client may ask anything.
pub(super) fn admit(peer: &Peer) -> Result<(), String> {
    if is_trusted(peer) || rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err("permission denied: this is another user's cenoted".to_owned())
}

/// Whether one who is not trusted may ask for this. `has_run_scripts`: what the scripts of `-c` say comes along.
pub(super) fn check(program: &str, args: &[OsString], has_run_scripts: bool) -> Result<(), String> {
    let word = args.first().and_then(|arg| arg.to_str()).unwrap_or_default();
    let may = match program {
        "zpool" => ZPOOL_READS.contains(&word),
        "zfs" => ZFS_READS.contains(&word) || ZFS_GRANTABLE.contains(&word),
        "fsstat" => true,
        // It writes nothing but to standard output.
        "cenote" => word == "metrics",
        _ => false,
    };
    if !may {
        return Err(refusal(program, word, args));
    }
    // Scripts, files with lists, keys: all are read by whoever runs the command.
    if program == "zpool" && has_option(args, 'c') && !has_run_scripts {
        return Err(format!("{program} {word}: permission denied: -c runs programs"));
    }
    let names_a_file = |arg: &OsString| {
        let text = arg.to_string_lossy();
        text.contains("keylocation=file:") || text.contains("compatibility=/")
    };
    if args.iter().any(names_a_file) {
        return Err(format!("{program} {word}: permission denied: files are read for root only"));
    }
    Ok(())
}

/// What is said to one who may not, in the words of OpenZFS where it has some.
fn refusal(program: &str, word: &str, args: &[OsString]) -> String {
    let operands: Vec<_> =
        args.iter().skip(1).map(|arg| arg.to_string_lossy()).filter(|arg| !arg.starts_with('-')).collect();
    let (pool, last) = (operands.first(), operands.last());
    let pool = pool.map_or("", |text| text.as_ref());
    let what = match (program, word) {
        ("zpool", "import") => "cannot discover pools".to_owned(),
        ("zpool", "scrub") => format!("cannot scrub {pool}"),
        ("zpool", "clear") => format!("cannot clear errors for {pool}"),
        ("zpool", "history") => format!("cannot show history for pool '{pool}'"),
        ("zpool", "set") => format!("cannot set property for '{}'", last.map_or("", |text| text.as_ref())),
        ("zpool", "add") => format!("cannot add to '{pool}'"),
        ("zpool", "offline" | "online") => {
            format!("cannot {word} {}", operands.get(1).map_or("", |text| text.as_ref()))
        }
        ("zpool", "trim" | "initialize") => "operation failed".to_owned(),
        ("zpool", "create" | "destroy" | "export" | "reguid" | "checkpoint" | "reopen" | "split") => {
            format!("cannot {word} '{pool}'")
        }
        ("zfs", "send") => format!("warning: cannot send '{}'", last.map_or("", |text| text.as_ref())),
        _ => format!("{program} {word}"),
    };
    format!("{what}: permission denied")
}

/// An option of one letter among the arguments, alone or with others.
fn has_option(args: &[OsString], letter: char) -> bool {
    let is_cluster = |text: &str| text.starts_with('-') && !text.starts_with("--") && text.contains(letter);
    args.iter().any(|arg| arg.to_str().is_some_and(is_cluster))
}

/// The variables of one who is not trusted: those that name files are left out.
pub(super) fn harmless(env: BTreeMap<OsString, OsString>) -> BTreeMap<OsString, OsString> {
    env.into_iter().filter(|(name, value)| is_harmless(name, value)).collect()
}

fn is_harmless(name: &OsStr, value: &OsStr) -> bool {
    let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
    match &*name {
        // A zone by its name. Rules of its own have no slash.
        "TZ" => !value.starts_with([':', '/']) && !value.contains(".."),
        "COLUMNS" | "LINES" | "TERM" | "NO_COLOR" | "ZFS_COLOR" | "LANG" | "POSIXLY_CORRECT" | SAID => true,
        name => name.starts_with("LC_") || name.starts_with("ZPOOL_VDEV_NAME_"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may(program: &str, line: &str) -> bool {
        let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        check(program, &args, false).is_ok()
    }

    #[test]
    fn others_read_and_ask_for_what_can_be_granted() {
        for line in ["list -v", "status tank", "get all tank", "iostat 1", "events"] {
            assert!(may("zpool", line), "{line}");
        }
        for line in
            ["create tank /tmp/x", "import", "export tank", "history", "labelclear x", "", "status -c x"]
        {
            assert!(!may("zpool", line), "{line}");
        }
        for line in ["list", "get all", "snapshot tank@x", "set atime=off tank"] {
            assert!(may("zfs", line), "{line}");
        }
        for line in ["load-key tank", "create -o keylocation=file:///etc/shadow tank/x", "share -a"] {
            assert!(!may("zfs", line), "{line}");
        }
        assert!(!may("cenote", "ls tank:/"));
        let scripts = ["status", "-c", "x"].map(OsString::from);
        assert!(check("zpool", &scripts, true).is_ok());
    }

    #[test]
    fn refusals_have_the_words_of_openzfs() {
        let said = |line: &str| {
            let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            check("zpool", &args, false).expect_err("not for others")
        };
        assert_eq!(said("create -f q /tmp/e"), "cannot create 'q': permission denied");
        assert_eq!(said("import -a"), "cannot discover pools: permission denied");
        assert_eq!(said("set comment=x t"), "cannot set property for 't': permission denied");
        assert_eq!(said("online t /tmp/d"), "cannot online /tmp/d: permission denied");
    }

    #[test]
    fn variables_that_name_files_are_not_looked_at() {
        let harmless = |name: &str, value: &str| is_harmless(OsStr::new(name), OsStr::new(value));
        assert!(harmless("TZ", "Europe/Berlin") && harmless("TZ", "UTC0") && harmless("LC_ALL", "C"));
        assert!(!harmless("TZ", "/etc/shadow") && !harmless("TZ", ":x") && !harmless("TZ", "../../x"));
        assert!(!harmless("CENOTE_KEYS", "a=/etc/shadow") && !harmless("CENOTE_DEVICES", "/dev"));
    }
}
