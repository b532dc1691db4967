//! Paths of the cache file and the state directory.
//!
//! A pool is imported if a cache file lists it. For root on a machine without the ZFS kernel module, which could
//! otherwise import the pools too, this is OpenZFS's own file; else a file in the state directory.

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// OpenZFS's cache file.
const SYSTEM_CACHE: &str = "/etc/zfs/zpool.cache";
/// Exists while the ZFS kernel module is loaded.
const MODULE: &str = "/sys/module/zfs";
/// Name of our own cache file.
const CACHE_NAME: &str = "zpool.cache";

/// The state directory, whose files survive a reboot: `CENOTE_STATE`, else `/var/lib/cenote` for root, else
/// `$XDG_STATE_HOME/cenote`, else `~/.local/state/cenote`.
pub fn state_folder() -> PathBuf {
    state_folder_of(is_root(), named, home)
}

/// The state directory of any user. `named`: environment variables that are not empty.
fn state_folder_of(
    is_root: bool,
    named: impl Fn(&str) -> Option<PathBuf>,
    home: impl FnOnce() -> PathBuf,
) -> PathBuf {
    if let Some(folder) = named("CENOTE_STATE") {
        return folder;
    }
    if is_root {
        return PathBuf::from("/var/lib/cenote");
    }
    let folder = named("XDG_STATE_HOME").filter(|folder| folder.is_absolute());
    folder.unwrap_or_else(|| home().join(".local/state")).join("cenote")
}

/// Home directory of the user: `$HOME` if the user owns it, else the one in `/etc/passwd`. After some ways to
/// become another user, `$HOME` still belongs to the previous one.
fn home() -> PathBuf {
    let uid = rustix::process::getuid().as_raw();
    let is_own = |folder: &PathBuf| std::fs::metadata(folder).is_ok_and(|found| found.uid() == uid);
    let named = named("HOME").filter(|folder| folder.is_absolute());
    if let Some(folder) = named.clone().filter(is_own) {
        return folder;
    }
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    home_of(&users, uid).or(named).unwrap_or_else(|| "/nonexistent".into())
}

/// Home directory of a user, from the text of `/etc/passwd`.
fn home_of(users: &str, uid: u32) -> Option<PathBuf> {
    let mut fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let user = fields.find(|user| user.get(2).is_some_and(|number| number.parse() == Ok(uid)))?;
    user.get(5).filter(|home| home.starts_with('/')).map(PathBuf::from)
}

/// The default cache file of this machine, or of this user.
pub(crate) fn cache_path() -> PathBuf {
    let is_own = named("CENOTE_STATE").is_some() || !is_root() || Path::new(MODULE).exists();
    if is_own { state_folder().join(CACHE_NAME) } else { PathBuf::from(SYSTEM_CACHE) }
}

/// Creates the directory of a cache file if it is in the state directory. Other users must not be able to put a
/// file there, because Cenote trusts it.
///
/// # Errors
/// The directory cannot be created, or belongs to another user.
pub(crate) fn prepare_folder(cache: &Path) -> io::Result<()> {
    let Some(folder) = cache.parent() else { return Ok(()) };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let owner = std::fs::metadata(folder)?.uid();
    if owner != rustix::process::getuid().as_raw() && owner != 0 {
        let why = format!("{} belongs to user {owner}", folder.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(())
}

fn named(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_stands_in_the_list_of_users() {
        let users = "root:x:0:0:root:/root:/bin/sh\nodd\na:x:7:7:A,,,:/home/a:/bin/sh\nb:x:8:8:::\n";
        assert_eq!(home_of(users, 7), Some(PathBuf::from("/home/a")));
        assert_eq!((home_of(users, 8), home_of(users, 9)), (None, None));
    }

    #[test]
    fn what_outlives_a_reboot_is_in_a_folder_of_its_user() {
        let folder = |is_root, set: &[(&str, &str)]| {
            // Both are emptied when the machine starts.
            let all = [set, &[("TMPDIR", "/tmp"), ("XDG_RUNTIME_DIR", "/run/user/7")]].concat();
            let named = |name: &str| all.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
            let found = state_folder_of(is_root, named, || "/home/a".into());
            found.to_str().expect("text").to_owned()
        };
        for is_root in [true, false] {
            assert_eq!(folder(is_root, &[("CENOTE_STATE", "/x"), ("XDG_STATE_HOME", "/y")]), "/x");
        }
        assert_eq!(folder(true, &[]), "/var/lib/cenote");
        assert_eq!(folder(true, &[("XDG_STATE_HOME", "/y")]), "/var/lib/cenote");
        assert_eq!(folder(false, &[("XDG_STATE_HOME", "/y")]), "/y/cenote");
        for set in [&[][..], &[("XDG_STATE_HOME", "tmp")]] {
            assert_eq!(folder(false, set), "/home/a/.local/state/cenote");
        }
    }

    #[test]
    fn a_cache_file_in_the_folder_of_somebody_else_is_not_believed() {
        let folder = tempfile::tempdir().expect("a folder");
        let own = folder.path().join("a/b");
        prepare_folder(&own.join(CACHE_NAME)).expect("made");
        assert_eq!(std::fs::metadata(&own).expect("there").mode() & 0o777, 0o700);
        prepare_folder(&own.join(CACHE_NAME)).expect("there already");
        if !testkit::need_root() {
            return;
        }
        rustix::fs::chown(&own, Some(rustix::process::Uid::from_raw(4711)), None).expect("given away");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&own, &link).expect("made");
        for path in [own, link] {
            let refused = prepare_folder(&path.join(CACHE_NAME)).expect_err("somebody else's");
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied, "{refused}");
            assert!(refused.to_string().contains("4711"), "{refused}");
        }
    }

    #[test]
    fn nothing_that_outlives_a_reboot_is_in_a_folder_that_does_not() {
        if !is_root() && named("CENOTE_STATE").is_none() && named("XDG_STATE_HOME").is_none() {
            assert!(!state_folder().starts_with("/tmp"), "{}", state_folder().display());
        }
        assert!(!home().starts_with("/tmp") || named("HOME").is_some());
    }
}
