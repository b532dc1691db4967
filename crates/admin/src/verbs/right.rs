//! Rights: which callers may run a verb. Each verb declares its right; this module collects them in one table.
//!
//! # What always holds
//! - A subcommand that is not in the table needs the administrator.

use super::{Verb, zfs, zpool};

/// The right that a caller of a verb needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    /// Every user: the verb only reads pools.
    Anyone,
    /// Users to whom `zfs allow` has granted these permissions; the verb checks them at each dataset.
    Delegated(&'static [&'static str]),
    /// Root, or the user of this process.
    Administrator,
}

/// The caller does not have the right that a verb needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("permission denied")]
pub struct Denied;

/// The right of a subcommand, given as users type it (`zfs snapshot`).
pub fn right_of(command: &str) -> Option<Right> {
    RIGHTS.iter().find(|(name, _)| *name == command).map(|(_, right)| *right)
}

/// Name and right of a verb.
const fn row<V: Verb>() -> (&'static str, Right) {
    (V::NAME, V::RIGHT)
}

/// The rights of all verbs and of the commands that only read, by the words that users type.
const RIGHTS: &[(&str, Right)] = &[
    row::<zfs::allow::Request>(),
    row::<zfs::bookmark::Request>(),
    row::<zfs::clone::Request>(),
    row::<zfs::create::Request>(),
    row::<zfs::destroy::Request>(),
    row::<zfs::hold::Request>(),
    row::<zfs::inherit::Request>(),
    row::<zfs::mount::Request>(),
    row::<zfs::promote::Request>(),
    row::<zfs::release::Request>(),
    row::<zfs::rename::Request>(),
    row::<zfs::rollback::Request>(),
    row::<zfs::set::Request>(),
    row::<zfs::snapshot::Request>(),
    row::<zfs::unallow::Request>(),
    row::<zfs::unmount::Request>(),
    row::<zfs::upgrade::Request>(),
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
    // Commands that only read and are not verbs.
    ("zfs diff", Right::Delegated(&["diff"])),
    ("zfs get", Right::Anyone),
    ("zfs groupspace", Right::Anyone),
    ("zfs holds", Right::Anyone),
    ("zfs list", Right::Anyone),
    ("zfs projectspace", Right::Anyone),
    ("zfs userspace", Right::Anyone),
    ("zfs version", Right::Anyone),
    ("zfs wait", Right::Anyone),
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
