//! Rights to run commands. A command in a process of its own has the rights of the process; a command that
//! the daemon runs for another user needs the right that stands beside its verb ([`verbs::right_of`]).
//!
//! # What always holds
//! - A command that is not in the table of rights is for administrators: root and the daemon's own user.
//! - The right is checked after the verb and its options are known, not from the text of a command line.
//! - For other users no file is opened or looked up that an argument or variable names: names are compared as
//!   text.

use crate::console;
use crate::stop::Stop;
use admin::verbs;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The users that may run a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Right {
    /// Every user: the command only reads pools.
    Anyone,
    /// Users to whom `zfs allow` grants it; the verb checks each dataset.
    Granted,
    /// Root, and the user of this process.
    Administrator,
}

/// The right of a subcommand of `zpool`.
pub(crate) fn zpool(subcommand: &str) -> Right {
    of(&format!("zpool {subcommand}"))
}

/// The right of a subcommand of `zfs`.
pub(crate) fn zfs(subcommand: &str) -> Right {
    of(&format!("zfs {subcommand}"))
}

/// The right that stands beside a verb; a command without one is for administrators.
fn of(command: &str) -> Right {
    match verbs::right_of(command) {
        Some(verbs::Right::Anyone) => Right::Anyone,
        Some(verbs::Right::Delegated(_)) => Right::Granted,
        Some(verbs::Right::Administrator) | None => Right::Administrator,
    }
}

/// Whether the command runs for an administrator.
pub(crate) fn is_administrator() -> bool {
    console::current().is_none_or(|console| console.caller.is_admin())
}

/// Checks that the caller has a right.
///
/// # Errors
/// The message of `refusal`, if the right is for administrators and the caller is none.
pub(crate) fn check(right: Right, refusal: impl FnOnce() -> String) -> Result<(), Stop> {
    if right != Right::Administrator || is_administrator() {
        return Ok(());
    }
    Err(Stop::failed(refusal()))
}

/// A path that an operand names. For administrators it is unchanged; for others it is made absolute with the
/// client's working folder, and `..` is resolved, as text: no file is looked up.
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

/// The message for a caller without the right to a command of `zpool`, in the words of OpenZFS if it has a
/// message.
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
        "offline" | "online" | "remove" => {
            format!("cannot {subcommand} {}", operands.get(1).map_or("", |text| text.as_ref()))
        }
        "attach" | "replace" => {
            let at = |index: usize| operands.get(index).map_or("", |text| text.as_ref());
            match subcommand {
                "attach" => format!("cannot attach {} to {}", at(2), at(1)),
                _ => format!("cannot replace {} with {}", at(1), last.map_or("", |text| text.as_ref())),
            }
        }
        "detach" => format!("cannot detach {}", operands.get(1).map_or("", |text| text.as_ref())),
        "trim" | "initialize" => "operation failed".to_owned(),
        "create" | "destroy" | "export" | "reguid" | "checkpoint" | "reopen" | "split" => {
            format!("cannot {subcommand} '{pool}'")
        }
        _ => format!("zpool {subcommand}"),
    };
    format!("{what}: permission denied")
}

/// The message for a caller without the right to a command of `zfs`.
pub(crate) fn zfs_refusal(subcommand: &str) -> String {
    format!("zfs {subcommand}: permission denied")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_no_table_is_the_administrators() {
        use Right::{Administrator, Anyone, Granted};
        assert_eq!((zpool("status"), zpool("events"), zfs("list")), (Anyone, Anyone, Anyone));
        assert_eq!((zfs("create"), zfs("diff"), zfs("send")), (Granted, Granted, Granted));
        assert_eq!((zfs("receive"), zfs("mount")), (Granted, Granted));
        for verb in ["create", "import", "history", "labelclear", "", "nosuch"] {
            assert_eq!(zpool(verb), Administrator, "{verb}");
        }
        for verb in ["load-key", "share", "unmount", "project", "nosuch"] {
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
