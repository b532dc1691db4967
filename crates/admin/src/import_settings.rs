//! Import settings that neither the devices of a pool nor the cache file records: alternate root, read-only,
//! temporary name, another cache file.
//!
//! They are stored in a file of our own beside the cache file and in the same format: the configuration of each
//! such pool, with our list in it. OpenZFS does not read this file.
//!
//! # What always holds
//! - Entries are valid until the machine is started again. After that, as in OpenZFS, only the pools of the cache
//!   file are imported again.

use super::AdminError;
use super::change::{prepare_folder, state_folder};
use ::pool::{CacheFile, CacheFileError, CacheFileFailure};
use format::NvList;
use format::config::PoolConfig;
use format::nvlist::NvValue;
use std::path::PathBuf;

/// File name.
const FILE: &str = "imports";
/// Key of our list in a pool's configuration; the keys within the list follow.
const LIST: &str = "cenote_import";
const BOOT: &str = "boot";
const ALTROOT: &str = "altroot";
const READ_ONLY: &str = "readonly";
const CACHE_FILE: &str = "cachefile";
const TEMPORARY: &str = "temporary_name";
const CHECKPOINT: &str = "at_checkpoint";
/// The kernel's random id of the current boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Settings of a pool's import.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImportSettings {
    /// Alternate root: a directory that is put before every mount point.
    pub altroot: Option<String>,
    /// The pool is read-only.
    pub readonly: bool,
    /// Value of the property `cachefile`: a path or `none`; `None`: the default cache file.
    pub cachefile: Option<String>,
    /// The name is temporary: the devices have another one.
    pub temporary: bool,
    /// The pool is shown as of its checkpoint. Only together with `readonly`.
    pub checkpoint: bool,
}

impl ImportSettings {
    /// Keeps a pool with an alternate root or a temporary name out of all cache files, unless the caller has named
    /// one.
    pub(crate) fn unlist(&mut self, names_cachefile: bool, is_temporary: bool) {
        if (self.altroot.is_some() || is_temporary) && !names_cachefile {
            self.cachefile = Some("none".to_owned());
        }
    }

    /// True if the default cache file lists the pool.
    pub(crate) fn is_listed(&self) -> bool {
        self.cachefile.is_none() && !self.readonly
    }

    /// The cache file that lists the pool instead of the default one.
    pub(crate) fn other_file(&self) -> Option<CacheFile> {
        let path = self.cachefile.as_deref().filter(|path| *path != "none" && !self.readonly)?;
        Some(CacheFile::at(path))
    }

    /// Mount point of a file system whose property `mountpoint` is `stored`, with the alternate root applied.
    pub(crate) fn mountpoint(&self, stored: &str) -> Option<String> {
        let root = self.altroot.as_deref().filter(|_| stored.starts_with('/'))?;
        Some(if stored == "/" { root.to_owned() } else { format!("{root}{stored}") })
    }

    /// Decodes our list in a pool's configuration. `None`: there is none, or it was written before the last boot.
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

/// Path of the file.
pub(super) fn path() -> PathBuf {
    state_folder().join(FILE)
}

/// Stores the settings of a pool. The name in `config` is the one under which it is imported.
pub(crate) fn put(mut config: PoolConfig, settings: &ImportSettings) -> Result<(), AdminError> {
    if *settings == ImportSettings::default() {
        return Ok(CacheFile::at(path()).take(config.pool_guid)?);
    }
    let path = path();
    prepare_folder(&path)
        .map_err(|error| CacheFileError { path: path.clone(), why: CacheFileFailure::Io(error) })?;
    config.raw.remove(LIST);
    config.raw.push(LIST, NvValue::List(settings.to_list()));
    Ok(CacheFile::at(path).put(&config)?)
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
