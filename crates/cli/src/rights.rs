//! What one may ask for whose command runs here. A command of its own process may what the process may; one that a daemon
//! runs for somebody else may what stands beside its verb.
//!
//! # What always holds
//! - A verb that is in no table here is the administrator's: root's, and the daemon's own user's.
//! - Whether somebody may is asked after a verb and its options are known, not of the text of a command line.
//! - For others nothing is opened or looked up that they name: not by arguments, not by variables. What they name is
//!   compared as text.

use crate::console;
use crate::stop::Stop;
use admin::verbs;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Who may use a verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Right {
    /// It only reads pools.
    Anyone,
    /// Those to whom `zfs allow` has granted it; that is looked up where it is done.
    Granted,
    /// Root, and the user whose process this is.
    Administrator,
}

/// Of a subcommand of `zpool`.
pub(crate) fn zpool(subcommand: &str) -> Right {
    match verbs::right_of(&format!("zpool {subcommand}")) {
        Some(verbs::Right::Anyone) => Right::Anyone,
        Some(verbs::Right::Delegated(_)) => Right::Granted,
        Some(verbs::Right::Administrator) => Right::Administrator,
        // What only reads and has no verb.
        None if matches!(subcommand, "list" | "get" | "status" | "iostat" | "events" | "version") => {
            Right::Anyone
        }
        None => Right::Administrator,
    }
}

/// Of a subcommand of `zfs`.
pub(crate) fn zfs(subcommand: &str) -> Right {
    match verbs::right_of(&format!("zfs {subcommand}")) {
        Some(verbs::Right::Anyone) => Right::Anyone,
        Some(verbs::Right::Delegated(_)) => Right::Granted,
        Some(verbs::Right::Administrator) => Right::Administrator,
        None => match subcommand {
            "list" | "get" | "holds" | "userspace" | "groupspace" | "projectspace" | "version" | "wait" => {
                Right::Anyone
            }
            "diff" => Right::Granted,
            _ => Right::Administrator,
        },
    }
}

/// The one whose command runs here is the administrator.
pub(crate) fn is_administrator() -> bool {
    console::current().is_none_or(|console| console.caller.is_admin())
}

/// # Errors
/// What `refusal` says, if the one whose command runs here has not that right.
pub(crate) fn check(right: Right, refusal: impl FnOnce() -> String) -> Result<(), Stop> {
    if right != Right::Administrator || is_administrator() {
        return Ok(());
    }
    Err(Stop::failed(refusal()))
}

/// A path that an operand names: as it is for the administrator; for others whole and without `..`, as text.
pub(crate) fn path(operand: &Path) -> PathBuf {
    match console::current().filter(|console| !console.caller.is_admin()) {
        Some(console) => normal(&Path::new(&console.folder).join(operand)),
        None => operand.to_owned(),
    }
}

fn normal(path: &Path) -> PathBuf {
    use std::path::Component;
    let mut whole = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::ParentDir => drop(whole.pop()),
            Component::Normal(name) => whole.push(name),
            _ => {}
        }
    }
    whole
}

/// What is said to one who may not use a verb of `zpool`, in the words of OpenZFS where it has some.
pub(crate) fn zpool_refusal(subcommand: &str, args: &[OsString]) -> String {
    let operands: Vec<_> =
        args.iter().map(|arg| arg.to_string_lossy()).filter(|arg| !arg.starts_with('-')).collect();
    let (pool, last) = (operands.first(), operands.last());
    let pool = pool.map_or("", |text| text.as_ref());
    let what = match subcommand {
        "import" => "cannot discover pools".to_owned(),
        "scrub" => format!("cannot scrub {pool}"),
        "clear" => format!("cannot clear errors for {pool}"),
        "history" => format!("cannot show history for pool '{pool}'"),
        "set" => format!("cannot set property for '{}'", last.map_or("", |text| text.as_ref())),
        "add" => format!("cannot add to '{pool}'"),
        "offline" | "online" => {
            format!("cannot {subcommand} {}", operands.get(1).map_or("", |text| text.as_ref()))
        }
        "trim" | "initialize" => "operation failed".to_owned(),
        "create" | "destroy" | "export" | "reguid" | "checkpoint" | "reopen" | "split" => {
            format!("cannot {subcommand} '{pool}'")
        }
        _ => format!("zpool {subcommand}"),
    };
    format!("{what}: permission denied")
}

/// The same, of `zfs`.
pub(crate) fn zfs_refusal(subcommand: &str, args: &[OsString]) -> String {
    match (subcommand, args.last()) {
        ("send", Some(last)) => {
            format!("warning: cannot send '{}': permission denied", last.to_string_lossy())
        }
        _ => format!("zfs {subcommand}: permission denied"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_no_table_is_the_administrators() {
        use Right::{Administrator, Anyone, Granted};
        assert_eq!((zpool("status"), zpool("events"), zfs("list")), (Anyone, Anyone, Anyone));
        assert_eq!((zfs("create"), zfs("diff"), zfs("mount")), (Granted, Granted, Granted));
        for verb in ["create", "import", "history", "labelclear", "", "nosuch"] {
            assert_eq!(zpool(verb), Administrator, "{verb}");
        }
        for verb in ["load-key", "share", "unmount", "project", "send", "nosuch"] {
            assert_eq!(zfs(verb), Administrator, "{verb}");
        }
    }

    #[test]
    fn refusals_have_the_words_of_openzfs() {
        let said = |verb: &str, line: &str| {
            let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            zpool_refusal(verb, &args)
        };
        assert_eq!(said("create", "-f q /tmp/e"), "cannot create 'q': permission denied");
        assert_eq!(said("import", "-a"), "cannot discover pools: permission denied");
        assert_eq!(said("set", "comment=x t"), "cannot set property for 't': permission denied");
        assert_eq!(said("online", "t /tmp/d"), "cannot online /tmp/d: permission denied");
    }

    #[test]
    fn paths_of_others_are_text() {
        assert_eq!(normal(Path::new("/a/./b/../../c//d")), Path::new("/c/d"));
        assert_eq!(normal(Path::new("/../../etc")), Path::new("/etc"));
    }
}
