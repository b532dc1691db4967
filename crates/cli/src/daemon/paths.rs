//! The paths of a daemon: its socket, and its files in the state folder.

use super::error::DaemonError;
use admin::change::state_folder;
use rustix::process::Uid;
use serve::mounts::Record;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Socket of root's daemon.
const SYSTEM_SOCKET: &str = "/run/cenote/socket";
/// Names in the state folder.
const LOG_NAME: &str = "cenoted.log";
const RECORD_NAME: &str = "mounts";
/// Name, beside the socket, of the mount point of the control files.
const CONTROL_NAME: &str = "control";

/// The socket of this user's daemon: `CENOTE_SOCKET`; else `/run/cenote/socket` for root; else
/// `cenote/socket` below `$XDG_RUNTIME_DIR` or `/run/user/UID`, whichever exists and belongs to this user;
/// else `run/socket` in the state folder. Never a path at which another user could make a socket first. `env`
/// returns the value of a variable.
pub(crate) fn own_socket(env: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    socket_of(rustix::process::getuid(), env, Path::new("/run/user"), state_folder)
}

/// [`own_socket`] for any user. `users`: parent folder of the users' runtime folders, which end with their
/// sessions.
fn socket_of(
    uid: Uid,
    env: impl Fn(&str) -> Option<OsString>,
    users: &Path,
    state: impl FnOnce() -> PathBuf,
) -> PathBuf {
    let named = |name| env(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(path) = named("CENOTE_SOCKET") {
        return path;
    }
    if uid.is_root() {
        return SYSTEM_SOCKET.into();
    }
    let is_own = |folder: &PathBuf| {
        std::fs::symlink_metadata(folder)
            .is_ok_and(|found| found.is_dir() && found.uid() == uid.as_raw() && found.mode() & 0o022 == 0)
    };
    let usual = users.join(uid.as_raw().to_string());
    let folder = named("XDG_RUNTIME_DIR").into_iter().chain([usual]).find(is_own);
    match folder {
        Some(folder) => folder.join("cenote/socket"),
        None => state().join("run/socket"),
    }
}

/// Socket of root's daemon, for users without a daemon of their own; `None` if the environment names another
/// socket.
pub(crate) fn system_socket(env: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let is_named = env("CENOTE_SOCKET").is_some_and(|value| !value.is_empty());
    let is_root = rustix::process::getuid().is_root();
    (!is_named && !is_root).then(|| SYSTEM_SOCKET.into())
}

/// Device and inode number of the file at a path.
pub(super) fn identity(place: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(place).ok().map(|found| (found.dev(), found.ino()))
}

/// Whether a listening socket is the one at this path.
pub(super) fn is_at(listening: &OwnedFd, place: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let address = rustix::net::getsockname(listening).ok();
    let address = address.and_then(|address| rustix::net::SocketAddrUnix::try_from(address).ok());
    address.and_then(|address| address.path().map(|path| path.to_bytes() == place.as_os_str().as_bytes()))
        == Some(true)
}

/// Where the control files are mounted: `CENOTE_KSTAT` (empty: not mounted); else beside the socket, if
/// socket and state of the daemon are at their usual places.
pub(super) fn control_folder(env: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    if let Some(at) = env("CENOTE_KSTAT") {
        return (!at.is_empty()).then(|| at.into());
    }
    let is_set = |name| env(name).is_some_and(|value| !value.is_empty());
    if is_set("CENOTE_SOCKET") || is_set("CENOTE_STATE") {
        return None;
    }
    Some(own_socket(env).with_file_name(CONTROL_NAME))
}

/// Path of the log file of a daemon in the background.
pub(crate) fn log_path() -> PathBuf {
    state_folder().join(LOG_NAME)
}

/// The record of mounts in the state folder.
pub(super) fn mount_record() -> Record {
    Record::new(state_folder().join(RECORD_NAME))
}

/// Makes the folders of the socket and of the state.
///
/// # Errors
/// [`DaemonError::Folder`] if a folder cannot be made, or another user could make files in it.
pub(super) fn prepare(socket: &Path) -> Result<(), DaemonError> {
    // Every user may reach root's daemon, but no other user's.
    let mode = if rustix::process::getuid().is_root() { 0o755 } else { 0o700 };
    if let Some(folder) = socket.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        own_folder(folder, mode)?;
        if std::fs::symlink_metadata(folder).is_ok_and(|found| found.is_symlink()) {
            let source =
                io::Error::new(io::ErrorKind::NotADirectory, "it is a link, which clients do not follow");
            return Err(DaemonError::Folder { path: folder.to_owned(), source });
        }
    }
    own_folder(&state_folder(), 0o700)
}

/// Makes a folder if it does not exist; it must belong to this user or to root.
fn own_folder(folder: &Path, mode: u32) -> Result<(), DaemonError> {
    let failed = |source| DaemonError::Folder { path: folder.to_owned(), source };
    let denied = |why: String| failed(io::Error::new(io::ErrorKind::PermissionDenied, why));
    std::fs::DirBuilder::new().recursive(true).mode(mode).create(folder).map_err(failed)?;
    // A link that another user has put there belongs to that user.
    let found = std::fs::metadata(folder).map_err(failed)?;
    for owner in [std::fs::symlink_metadata(folder).map_err(failed)?.uid(), found.uid()] {
        if owner != rustix::process::geteuid().as_raw() && owner != 0 {
            return Err(denied(format!("it belongs to user {owner}")));
        }
    }
    if found.mode() & 0o022 != 0 && found.mode() & 0o1000 == 0 {
        return Err(denied("others may write there".to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_is_where_the_environment_says() {
        let env = |pairs: &'static [(&str, &str)]| {
            move |name: &str| {
                pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
            }
        };
        assert_eq!(own_socket(env(&[("CENOTE_SOCKET", "/x/s")])), Path::new("/x/s"));
        assert_eq!(system_socket(env(&[("CENOTE_SOCKET", "/x/s")])), None);
    }

    #[test]
    fn a_user_has_the_socket_where_nobody_else_can_make_it_first() {
        use std::os::unix::fs::PermissionsExt;
        let own = rustix::process::getuid();
        // Root makes folders for another user.
        let uid = if own.is_root() { Uid::from_raw(4711) } else { own };
        let folder = tempfile::tempdir().expect("a folder");
        let made = |name: &str, mode: u32| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(&path).expect("made");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("set");
            rustix::fs::chown(&path, Some(uid), None).expect("given");
            path
        };
        let (runtime, open) = (made("runtime", 0o700), made("open", 0o777));
        let users = made("users", 0o755);
        let found = |uid: Uid, runtime: Option<&Path>| {
            let env = |name: &str| runtime.filter(|_| name == "XDG_RUNTIME_DIR").map(Into::into);
            socket_of(uid, env, &users, || "/home/a/state".into())
        };
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&runtime, &link).expect("made");
        let state = Path::new("/home/a/state/run/socket");
        assert_eq!(found(uid, Some(&runtime)), runtime.join("cenote/socket"));
        // Missing, open to other users, a link, another user's, and writable by all.
        for bad in [None, Some(&*folder.path().join("none")), Some(&open), Some(&link)] {
            assert_eq!(found(uid, bad), state, "{bad:?}");
        }
        for others in ["/usr", "/tmp", "/"] {
            assert_eq!(found(uid, Some(Path::new(others))), state, "{others}");
        }
        let usual = made(&format!("users/{}", uid.as_raw()), 0o700);
        for bad in [None, Some(&*open), Some(Path::new("/tmp"))] {
            assert_eq!(found(uid, bad), usual.join("cenote/socket"), "{bad:?}");
        }
        assert_eq!(found(uid, Some(&runtime)), runtime.join("cenote/socket"));
        // Root's socket has a fixed place, whatever the environment says.
        assert_eq!(found(Uid::ROOT, Some(&runtime)), Path::new(SYSTEM_SOCKET));
    }

    #[test]
    fn counters_are_beside_the_usual_socket_or_where_they_are_wanted() {
        let env = |pairs: &'static [(&str, &str)]| {
            move |name: &str| {
                pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
            }
        };
        assert_eq!(control_folder(env(&[("CENOTE_KSTAT", "/x/c")])).as_deref(), Some(Path::new("/x/c")));
        assert_eq!(control_folder(env(&[("CENOTE_KSTAT", "")])), None);
        assert_eq!(control_folder(env(&[("CENOTE_SOCKET", "/x/s")])), None);
        assert_eq!(control_folder(env(&[("CENOTE_STATE", "/x")])), None);
        let usual = control_folder(env(&[])).expect("a place");
        assert_eq!(usual.parent(), own_socket(env(&[])).parent());
    }

    #[test]
    fn a_folder_that_others_can_write_to_is_not_taken() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let inner = folder.path().join("a/b");
        own_folder(&inner, 0o700).expect("made");
        own_folder(&inner, 0o700).expect("there already");
        std::fs::set_permissions(&inner, std::fs::Permissions::from_mode(0o777)).expect("set");
        assert!(own_folder(&inner, 0o700).is_err());
        std::fs::set_permissions(&inner, std::fs::Permissions::from_mode(0o1777)).expect("set");
        own_folder(&inner, 0o700).expect("as /tmp is");
    }
}
