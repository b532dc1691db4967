//! Set-id bits: which files have them, and which a change of the contents takes away.

use super::caller::Caller;
use cenote::files::{Attrs, FileKind, without_set_ids};

const SET_IDS: u32 = 0o6000;
const SET_GID: u32 = 0o2000;
const GROUP_EXECUTES: u32 = 0o0010;

/// Whether a file has a set-group-id bit but its group cannot execute it. Such a bit goes only if the caller
/// that changes the file is not in that group.
fn is_bare_set_gid(attrs: &Attrs) -> bool {
    FileKind::from_mode(attrs.mode) == Some(FileKind::Regular)
        && attrs.mode & (SET_GID | GROUP_EXECUTES) == SET_GID
}

/// The mode of a file after a change by a caller that may not keep its set-id bits.
pub(super) fn without(caller: &Caller, attrs: &Attrs) -> u32 {
    let mode = without_set_ids(attrs.mode);
    if is_bare_set_gid(attrs) && !caller.is_in(attrs.posix_gid()) { mode & !SET_GID } else { mode }
}

/// Whether a file lends the rights of its owner or its group to programs.
pub(crate) fn lends_rights(attrs: &Attrs) -> bool {
    FileKind::from_mode(attrs.mode) == Some(FileKind::Regular) && attrs.mode & SET_IDS != 0
}
