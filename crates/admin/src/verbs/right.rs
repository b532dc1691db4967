//! Rights: who may run a verb. They are data beside the verbs; this module collects them in one table.
//!
//! # What always holds
//! - A subcommand that is not in the table is the administrator's.

use super::{Reason, Refused, Verb, zfs, zpool};
use serde::{Deserialize, Serialize};

/// Who may run a verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    /// Every user: the verb only reads pools.
    Anyone,
    /// Users to whom `zfs allow` has granted these permissions; the verb asks for them at each dataset.
    Delegated(&'static [&'static str]),
    /// Root, and the user of this process.
    Administrator,
}

/// The caller does not have the right that a verb needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("permission denied")]
pub struct Denied;

/// For verbs that refuse nothing else.
impl Refused for Denied {
    fn reason(&self) -> Reason {
        (*self).into()
    }
}

/// The right of a subcommand, by the words that users type (`zfs snapshot`).
pub fn right_of(command: &str) -> Option<Right> {
    RIGHTS.iter().find(|(name, _)| *name == command).map(|(_, right)| *right)
}

/// Name and right of a verb. A subcommand that is told by its operands what to do (`zfs allow`, `zfs mount`,
/// `zfs upgrade`) has the row of the verb that changes; the verb that lists is anyone's.
const fn row<V: Verb>() -> (&'static str, Right) {
    (V::NAME, V::RIGHT)
}

/// Another name and the right of a verb that several subcommands run.
const fn also<V: Verb>(name: &'static str) -> (&'static str, Right) {
    (name, V::RIGHT)
}

/// The rights of all verbs and reading commands, by the words that users type.
const RIGHTS: &[(&str, Right)] = &[
    row::<zfs::allow::Request>(),
    row::<zfs::bookmark::Request>(),
    row::<zfs::clone::Request>(),
    row::<zfs::create::Request>(),
    row::<zfs::destroy::Request>(),
    row::<zfs::diff::Request>(),
    row::<zfs::get::Request>(),
    row::<zfs::hold::Request>(),
    row::<zfs::holds::Request>(),
    row::<zfs::inherit::Request>(),
    row::<zfs::list::Request>(),
    row::<zfs::mount::Request>(),
    row::<zfs::project::Request>(),
    row::<zfs::promote::Request>(),
    row::<zfs::release::Request>(),
    row::<zfs::rename::Request>(),
    row::<zfs::rollback::Request>(),
    row::<zfs::set::Request>(),
    row::<zfs::snapshot::Request>(),
    row::<zfs::space::Request>(),
    also::<zfs::space::Request>("zfs groupspace"),
    also::<zfs::space::Request>("zfs projectspace"),
    row::<zfs::unallow::Request>(),
    row::<zfs::unmount::Request>(),
    row::<zfs::upgrade::Request>(),
    row::<zfs::wait::Request>(),
    row::<zpool::add::Request>(),
    row::<zpool::clear::Request>(),
    row::<zpool::create::Request>(),
    row::<zpool::destroy::Request>(),
    row::<zpool::export::Request>(),
    row::<zpool::import::Request>(),
    row::<zpool::labelclear::Request>(),
    row::<zpool::offline::Request>(),
    row::<zpool::online::Request>(),
    row::<zpool::reguid::Request>(),
    row::<zpool::reopen::Request>(),
    row::<zpool::resilver::Request>(),
    row::<zpool::scrub::Request>(),
    row::<zpool::set::Request>(),
    row::<zpool::sync::Request>(),
    row::<zpool::upgrade::Request>(),
    row::<zpool::wait::Request>(),
    // Commands that only read and have no verb.
    ("zfs version", Right::Anyone),
    ("zpool events", Right::Anyone),
    ("zpool get", Right::Anyone),
    ("zpool iostat", Right::Anyone),
    ("zpool list", Right::Anyone),
    ("zpool status", Right::Anyone),
    ("zpool version", Right::Anyone),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_stand_beside_their_verbs() {
        assert!(matches!(right_of("zfs snapshot"), Some(Right::Delegated(_))));
        assert_eq!(right_of("zfs nosuch"), None);
    }
}
