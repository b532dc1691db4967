//! Rights: who may run a verb. They are data beside the verbs; this module collects them in one table, with what runs
//! each verb by its name.
//!
//! # What always holds
//! - A subcommand that is not in the table needs the administrator.

use super::call::{self, Runner};
use super::{Reason, Refused, Verb, zfs, zpool};
use serde::{Deserialize, Serialize};

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
    VERBS.iter().find(|row| row.name == command).map(|row| row.right)
}

/// A verb or reading command.
pub(super) struct Row {
    /// The words that users type.
    pub(super) name: &'static str,
    pub(super) right: Right,
    /// Runs the verb with a request in JSON; `None`: a command without a verb, or another name of one.
    pub(super) run: Option<Runner>,
}

/// The row of a verb. A subcommand whose operands say whether it changes or lists (`zfs allow`, `zfs mount`,
/// `zfs upgrade`) has the row of the verb that changes; the verb that lists has a name of its own (`zfs allowed`).
const fn row<V: Verb>() -> Row {
    Row { name: V::NAME, right: V::RIGHT, run: Some(call::run_as::<V>) }
}

/// The row of another subcommand that runs a verb.
const fn also<V: Verb>(name: &'static str) -> Row {
    Row { name, right: V::RIGHT, run: None }
}

/// The row of a command that has no verb.
const fn command(name: &'static str, right: Right) -> Row {
    Row { name, right, run: None }
}

/// All verbs and reading commands, by the words that users type.
pub(super) const VERBS: &[Row] = &[
    row::<zfs::allow::Request>(),
    row::<zfs::allowed::Request>(),
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
    row::<zfs::mounted::Request>(),
    row::<zfs::outdated::Request>(),
    row::<zfs::project::Request>(),
    row::<zfs::promote::Request>(),
    row::<zfs::receive::Request>(),
    row::<zfs::receive::abort::Request>(),
    row::<zfs::redact::Request>(),
    row::<zfs::release::Request>(),
    row::<zfs::rename::Request>(),
    row::<zfs::rollback::Request>(),
    row::<zfs::send::Request>(),
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
    row::<zpool::checkpoint::Request>(),
    row::<zpool::attach::Request>(),
    row::<zpool::clear::Request>(),
    row::<zpool::create::Request>(),
    row::<zpool::destroy::Request>(),
    row::<zpool::detach::Request>(),
    row::<zpool::events::Request>(),
    row::<zpool::events::ClearRequest>(),
    row::<zpool::export::Request>(),
    row::<zpool::get::Request>(),
    row::<zpool::history::Request>(),
    row::<zpool::import::Request>(),
    row::<zpool::importable::Request>(),
    row::<zpool::iostat::Request>(),
    row::<zpool::labelclear::Request>(),
    row::<zpool::list::Request>(),
    row::<zpool::offline::Request>(),
    row::<zpool::remove::Request>(),
    row::<zpool::online::Request>(),
    row::<zpool::reguid::Request>(),
    row::<zpool::reopen::Request>(),
    row::<zpool::replace::Request>(),
    row::<zpool::resilver::Request>(),
    row::<zpool::scrub::Request>(),
    row::<zpool::set::Request>(),
    row::<zpool::status::Request>(),
    row::<zpool::sync::Request>(),
    row::<zpool::upgradable::Request>(),
    row::<zpool::upgrade::Request>(),
    row::<zpool::wait::Request>(),
    // Commands that only read and have no verb.
    command("zfs version", Right::Anyone),
    command("zpool version", Right::Anyone),
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
