//! Whom a daemon answers, and what of the environment of others it looks at. What others may ask for stands beside the
//! verbs ([`crate::rights`]).
//!
//! # What always holds
//! - Root and the user whose daemon it is may everything; a user's daemon does nothing for anybody else.
//! - For others root's daemon looks at no variable that names a file.

use crate::zpool::SAID;
use serve::control::Peer;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

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

    #[test]
    fn variables_that_name_files_are_not_looked_at() {
        let harmless = |name: &str, value: &str| is_harmless(OsStr::new(name), OsStr::new(value));
        assert!(harmless("TZ", "Europe/Berlin") && harmless("TZ", "UTC0") && harmless("LC_ALL", "C"));
        assert!(!harmless("TZ", "/etc/shadow") && !harmless("TZ", ":x") && !harmless("TZ", "../../x"));
        assert!(!harmless("CENOTE_KEYS", "a=/etc/shadow") && !harmless("CENOTE_DEVICES", "/dev"));
    }
}
