//! What imports were told that is written neither on the devices of their pools nor in the cache file: where
//! mount points begin, that a pool is only read, its temporary name, another cache file.
//!
//! It stands in a file of our own beside the cache file, in the same form: the configuration of each such pool,
//! and our list in it. OpenZFS never looks at it.
//!
//! # What always holds
//! - It holds until the machine is started again: as in OpenZFS, what then comes back is what the cache file
//!   lists.

use super::AdminError;
use super::change::{cache_error, prepare_folder, state_folder};
use ::pool::CacheFile;
use format::NvList;
use format::config::PoolConfig;
use format::nvlist::NvValue;
use std::path::PathBuf;

/// Name of the file.
const FILE: &str = "imports";
/// Key of our list in a pool's configuration, and keys in it.
const LIST: &str = "cenote_import";
const BOOT: &str = "boot";
const ALTROOT: &str = "altroot";
const READ_ONLY: &str = "readonly";
const CACHE_FILE: &str = "cachefile";
const TEMPORARY: &str = "temporary_name";
const CHECKPOINT: &str = "at_checkpoint";
/// Tells one start of the machine from the next.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// How a pool was imported.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImportSettings {
    /// The folder below which everything is mounted.
    pub altroot: Option<String>,
    /// Nothing may be changed.
    pub readonly: bool,
    /// The property `cachefile`: a path or `none`; `None`: the usual file.
    pub cachefile: Option<String>,
    /// The name is not the one that the devices have.
    pub temporary: bool,
    /// The pool is shown as it was when its checkpoint was taken. Only together with `readonly`.
    pub checkpoint: bool,
}

impl ImportSettings {
    /// A pool with an alternate root or a temporary name is in no cache file, unless the caller has named one.
    pub(crate) fn unlist(&mut self, names_cachefile: bool, is_temporary: bool) {
        if (self.altroot.is_some() || is_temporary) && !names_cachefile {
            self.cachefile = Some("none".to_owned());
        }
    }

    /// The usual cache file lists the pool.
    pub(crate) fn is_listed(&self) -> bool {
        self.cachefile.is_none() && !self.readonly
    }

    /// The other cache file that lists it.
    pub(crate) fn other_file(&self) -> Option<CacheFile> {
        let path = self.cachefile.as_deref().filter(|path| *path != "none" && !self.readonly)?;
        Some(CacheFile::at(path))
    }

    /// Where a file system with this mount point is mounted.
    pub(crate) fn mountpoint(&self, stored: &str) -> Option<String> {
        let root = self.altroot.as_deref().filter(|_| stored.starts_with('/'))?;
        Some(if stored == "/" { root.to_owned() } else { format!("{root}{stored}") })
    }

    /// From the list in a configuration; `None` if there is none, or another start of the machine wrote it.
    pub(super) fn of_entry(entry: &NvList) -> Option<ImportSettings> {
        let list = entry.list(LIST).filter(|list| list.str(BOOT) == Some(&boot_id()))?;
        let text = |key: &str| list.str(key).map(str::to_owned);
        Some(ImportSettings {
            altroot: text(ALTROOT),
            readonly: list.u64(READ_ONLY) == Some(1),
            cachefile: text(CACHE_FILE),
            temporary: list.u64(TEMPORARY) == Some(1),
            checkpoint: list.u64(CHECKPOINT) == Some(1),
        })
    }

    fn to_list(&self) -> NvList {
        let mut list = NvList::new();
        list.push(BOOT, boot_id());
        for (key, text) in [(ALTROOT, &self.altroot), (CACHE_FILE, &self.cachefile)] {
            if let Some(text) = text {
                list.push(key, text.as_str());
            }
        }
        let flags = [(READ_ONLY, self.readonly), (TEMPORARY, self.temporary), (CHECKPOINT, self.checkpoint)];
        flags.into_iter().for_each(|(key, flag)| list.push(key, u64::from(flag)));
        list
    }
}

/// Where it is.
pub(super) fn path() -> PathBuf {
    state_folder().join(FILE)
}

/// Remembers how a pool was imported; `config` has the name by which it is known.
pub(crate) fn put(mut config: PoolConfig, settings: &ImportSettings) -> Result<(), AdminError> {
    if *settings == ImportSettings::default() {
        return CacheFile::at(path()).take(config.pool_guid).map_err(|e| cache_error(&e));
    }
    let path = path();
    prepare_folder(&path).map_err(|e| AdminError::CacheFile {
        path: path.display().to_string(),
        why: super::change::errno_text(&e),
    })?;
    config.raw.remove(LIST);
    config.raw.push(LIST, NvValue::List(settings.to_list()));
    CacheFile::at(path).put(&config).map_err(|e| cache_error(&e))
}

fn boot_id() -> String {
    std::fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_begin_at_the_alternate_root() {
        let at = |root: &str, stored: &str| {
            ImportSettings { altroot: Some(root.to_owned()), ..ImportSettings::default() }.mountpoint(stored)
        };
        assert_eq!(at("/mnt", "/tank").as_deref(), Some("/mnt/tank"));
        assert_eq!(at("/mnt/", "/a/b").as_deref(), Some("/mnt//a/b"));
        assert_eq!(at("/mnt", "/").as_deref(), Some("/mnt"));
        assert_eq!(at("/mnt", "none"), None);
        assert_eq!(ImportSettings::default().mountpoint("/tank"), None);
    }

    #[test]
    fn what_another_start_of_the_machine_wrote_is_forgotten() {
        let settings = ImportSettings { readonly: true, ..ImportSettings::default() };
        let mut list = settings.to_list();
        let entry = |list: &NvList| {
            let mut entry = NvList::new();
            entry.push(LIST, NvValue::List(list.clone()));
            entry
        };
        assert_eq!(ImportSettings::of_entry(&entry(&list)), Some(settings));
        list.remove(BOOT);
        list.push(BOOT, "another");
        assert_eq!(ImportSettings::of_entry(&entry(&list)), None);
    }
}
