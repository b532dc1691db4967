//! Which clients a daemon serves, and which variables of other users it reads. The rights of other users
//! stand beside the verbs ([`crate::rights`]).
//!
//! # What always holds
//! - Root and the daemon's own user have all rights; a user's daemon serves no other user.
//! - For other users, root's daemon reads no variable that names a file.

use crate::zpool::SAID;
use serve::control::Peer;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

/// Whether a client is root or the daemon's own user.
pub(super) fn is_trusted(peer: &Peer) -> bool {
    peer.uid == 0 || peer.uid == rustix::process::geteuid().as_raw()
}

/// Whether a client may send requests. The error is a sentence for the client.
pub(super) fn admit(peer: &Peer) -> Result<(), String> {
    if is_trusted(peer) || rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err("permission denied: this is another user's cenoted".to_owned())
}

/// The variables of an untrusted client, without those that name files.
pub(super) fn harmless(env: BTreeMap<OsString, OsString>) -> BTreeMap<OsString, OsString> {
    env.into_iter().filter(|(name, value)| is_harmless(name, value)).collect()
}

fn is_harmless(name: &OsStr, value: &OsStr) -> bool {
    let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
    match &*name {
        // A zone by its name. A zone's own rules contain no slash.
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
