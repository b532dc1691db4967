//! Rights: who may run a verb. They are data beside the verbs; this module collects them in one table.
//!
//! # What always holds
//! - A subcommand that is not in the table is the administrator's.

use super::{Verb, zfs, zpool};

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("permission denied")]
pub struct Denied;

/// The right of a subcommand, by the words that users type (`zfs snapshot`).
pub fn right_of(command: &str) -> Option<Right> {
    RIGHTS.iter().find(|(name, _)| *name == command).map(|(_, right)| *right)
}

/// Name and right of a verb.
const fn row<V: Verb>() -> (&'static str, Right) {
    (V::NAME, V::RIGHT)
}

/// The rights of all verbs and reading commands, by the words that users type.
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
    row::<zpool::events::Request>(),
    row::<zpool::events::ClearRequest>(),
    row::<zpool::export::Request>(),
    row::<zpool::get::Request>(),
    row::<zpool::history::Request>(),
    row::<zpool::import::Request>(),
    row::<zpool::iostat::Request>(),
    row::<zpool::labelclear::Request>(),
    row::<zpool::list::Request>(),
    row::<zpool::offline::Request>(),
    row::<zpool::online::Request>(),
    row::<zpool::reguid::Request>(),
    row::<zpool::reopen::Request>(),
    row::<zpool::resilver::Request>(),
    row::<zpool::scrub::Request>(),
    row::<zpool::set::Request>(),
    row::<zpool::status::Request>(),
    row::<zpool::sync::Request>(),
    row::<zpool::upgrade::Request>(),
    row::<zpool::wait::Request>(),
    // Commands that only read and have no verb.
    ("zfs diff", Right::Delegated(&["diff"])),
    ("zfs get", Right::Anyone),
    ("zfs groupspace", Right::Anyone),
    ("zfs holds", Right::Anyone),
    ("zfs list", Right::Anyone),
    ("zfs projectspace", Right::Anyone),
    ("zfs userspace", Right::Anyone),
    ("zfs version", Right::Anyone),
    ("zfs wait", Right::Anyone),
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
