//! Where this machine remembers which pools are imported: the cache file.
//!
//! A pool is imported if a cache file lists it. For root, where no kernel module could import our pools
//! behind our back, that is OpenZFS's own file; else one in the state folder.

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// OpenZFS's cache file.
const SYSTEM_CACHE: &str = "/etc/zfs/zpool.cache";
/// Exists while the kernel module is loaded.
const MODULE: &str = "/sys/module/zfs";
/// Name of our own cache file.
const CACHE_NAME: &str = "zpool.cache";

/// The folder with what outlives a command: `CENOTE_STATE`, else `/var/lib/cenote` for root, else
/// `$XDG_STATE_HOME/cenote`, else `/tmp/cenote-UID`.
pub fn state_folder() -> PathBuf {
    if let Some(folder) = named("CENOTE_STATE") {
        return folder;
    }
    if is_root() {
        return PathBuf::from("/var/lib/cenote");
    }
    match named("XDG_STATE_HOME") {
        Some(folder) => folder.join("cenote"),
        None => PathBuf::from(format!("/tmp/cenote-{}", rustix::process::getuid().as_raw())),
    }
}

/// The cache file of this machine, or of this user.
pub fn cache_path() -> PathBuf {
    let is_own = named("CENOTE_STATE").is_some() || !is_root() || Path::new(MODULE).exists();
    if is_own { state_folder().join(CACHE_NAME) } else { PathBuf::from(SYSTEM_CACHE) }
}

/// Makes the folder of a cache file, if it is our own. Others must not be able to put a file there that we
/// would believe.
///
/// # Errors
/// If it cannot be made, or belongs to somebody else.
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

/// The id of this host, 0 if it has none (docs/on-disk/11-labels-config.md, section 7).
pub fn host_id() -> u64 {
    let bytes = std::fs::read("/etc/hostid").unwrap_or_default();
    bytes.first_chunk().map_or(0, |id| u64::from(u32::from_ne_bytes(*id)))
}

/// The name of this host.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
