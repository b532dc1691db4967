//! The cache file: the list of imported pools and, as a hint, the paths of their devices
//! (docs/on-disk/11-labels-config.md, section 8). A file of our own beside it has the import settings that the
//! cache file lacks ([`import_settings`]).

use super::import_settings::{self, ImportSettings};
use super::{AdminError, change};
use ::pool::{CacheFile, CacheFileError, CacheFileFailure};
use format::config::VdevNode;
use format::names;
use format::{PoolGuid, VdevGuid};
use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use vdev::scan::Leaf;

/// Keys of a pool's entry for its spares and cache devices. OpenZFS stores these only in the pool. Cenote also
/// lists them here, because a search of block devices does not find image files.
pub(super) const AUX: [&str; 2] = [names::directory::SPARES, names::directory::L2CACHE];
/// Key of a pool's entry: 1 if it was imported with missing log devices (`-m`).
pub(super) const WITHOUT_LOGS: &str = "imported_without_logs";
/// Key of a pool's entry: 1 if a command created or imported it in its own process.
pub(super) const IN_PROCESS: &str = "imported_in_process";

/// A pool that is listed as imported.
#[derive(Debug, Clone, PartialEq)]
pub struct ImportedPool {
    /// Name under which it is imported.
    pub name: String,
    /// Guid of the pool; 0 if the file does not have it.
    pub guid: PoolGuid,
    /// Its vdev tree.
    root: VdevNode,
    /// Spares and cache devices, which are not part of the tree.
    aux: Vec<VdevNode>,
    /// It was imported with missing log devices (`-m`); later openings allow that too.
    pub(crate) without_logs: bool,
    /// A command created or imported it in its own process. Such commands open it only while they run. A daemon
    /// opens it only when it is told to import it.
    pub(crate) in_process: bool,
    /// Settings of its import.
    pub settings: ImportSettings,
}

impl ImportedPool {
    /// Paths of its devices when the entry was written.
    pub fn paths(&self) -> impl Iterator<Item = PathBuf> {
        self.root.walk().chain(&self.aux).filter_map(|node| node.path.as_ref()).map(PathBuf::from)
    }

    /// True if the leaf is in its tree.
    pub(super) fn has_leaf(&self, leaf: VdevGuid) -> bool {
        self.root.leaves().any(|node| node.guid == leaf)
    }
}

/// The imported pools: those of the cache file, and those imported without it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Imported {
    /// The pools, without duplicates.
    pub pools: Vec<ImportedPool>,
}

impl Imported {
    /// Reads the cache file of this machine or user, and the file of import settings beside it. A missing file
    /// lists no pools.
    ///
    /// # Errors
    /// [`AdminError::CacheFile`] if a file exists and cannot be read or decoded.
    pub fn load() -> Result<Imported, AdminError> {
        let (listed, path) = (change::cache_path(), import_settings::path());
        let mut all = if listed.exists() { read(&listed, false)? } else { Imported::default() };
        let others = if path.exists() { read(&path, true)? } else { Imported::default() };
        all.pools.retain(|pool| others.by_guid(pool.guid).is_none());
        all.pools.extend(others.pools);
        Ok(all)
    }

    /// Name of the imported pool that a leaf belongs to.
    pub fn pool_of(&self, leaf: VdevGuid) -> Option<&str> {
        let has = |pool: &&ImportedPool| pool.root.leaves().chain(&pool.aux).any(|node| node.guid == leaf);
        self.pools.iter().find(has).map(|pool| pool.name.as_str())
    }

    /// The imported pool of this name.
    pub fn by_name(&self, name: &str) -> Option<&ImportedPool> {
        self.pools.iter().find(|pool| pool.name == name)
    }

    /// The imported pool with this guid.
    pub fn by_guid(&self, guid: PoolGuid) -> Option<&ImportedPool> {
        self.pools.iter().find(|pool| pool.guid == guid)
    }
}

/// Where the devices of the pools of a cache file are looked for, and which pools these are.
pub(super) struct DevicePaths {
    /// Devices that are there, then the folders of all: they may have been renamed, and others may have joined them.
    pub(super) paths: Vec<PathBuf>,
    pools: HashSet<PoolGuid>,
}

impl DevicePaths {
    /// Whether a device belongs to one of the pools.
    pub(super) fn has(&self, leaf: &Leaf) -> bool {
        leaf.probe.newest_config().is_some_and(|config| self.pools.contains(&config.pool_guid))
    }
}

/// What a cache file says of where its pools are.
pub(super) fn device_paths(file: &Path) -> Result<DevicePaths, AdminError> {
    let pools = read(file, false)?.pools;
    let all: Vec<PathBuf> = pools.iter().flat_map(ImportedPool::paths).collect();
    let folders: BTreeSet<&Path> = all.iter().filter_map(|path| path.parent()).collect();
    let folders = folders.into_iter().filter(|folder| folder.is_dir()).map(Path::to_path_buf);
    let paths = all.iter().filter(|path| path.exists()).cloned().chain(folders).collect();
    Ok(DevicePaths { paths, pools: pools.iter().map(|pool| pool.guid).collect() })
}

/// The pools of a cache file. `is_own`: the file is our own file of import settings, whose outdated
/// entries are left out.
pub(super) fn read(file: &Path, is_own: bool) -> Result<Imported, AdminError> {
    let failed = |why| AdminError::from(CacheFileError { path: file.to_path_buf(), why });
    let lists = CacheFile::at(file).decode()?;
    let mut pools = Vec::new();
    for (name, _) in lists.iter() {
        let config = lists.list(name);
        let settings = config.and_then(ImportSettings::of_entry);
        if is_own && settings.is_none() {
            continue;
        }
        let settings = settings.filter(|_| is_own).unwrap_or_default();
        let guid =
            config.and_then(|config| config.u64(names::config::POOL_GUID)).map_or(PoolGuid(0), PoolGuid);
        let tree = config.and_then(|config| config.list(names::config::VDEV_TREE));
        let tree = tree.ok_or_else(|| failed(CacheFileFailure::NoTree { pool: name.to_owned() }))?;
        let root = VdevNode::from_nvlist(tree)
            .map_err(|why| failed(CacheFileFailure::Tree { pool: name.to_owned(), why }))?;
        let lists =
            AUX.iter().flat_map(|key| config.and_then(|config| config.lists(key)).unwrap_or_default());
        let aux = lists.filter_map(|list| VdevNode::from_nvlist(list).ok()).collect();
        let without_logs = config.and_then(|config| config.u64(WITHOUT_LOGS)) == Some(1);
        let in_process = config.and_then(|config| config.u64(IN_PROCESS)) == Some(1);
        let name = name.to_owned();
        pools.push(ImportedPool { name, guid, root, aux, without_logs, in_process, settings });
    }
    Ok(Imported { pools })
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::NvList;
    use format::nvlist::NvValue;

    fn list(pairs: Vec<(&str, NvValue)>) -> NvList {
        let mut list = NvList::new();
        pairs.into_iter().for_each(|(name, value)| list.push(name, value));
        list
    }

    /// A cache file with one pool of one leaf.
    fn cache(leaf: &Path) -> NvList {
        let number = NvValue::Uint64;
        let path = leaf.to_str().expect("text").to_owned();
        let leaf = list(vec![
            ("type", "file".into()),
            ("id", number(0)),
            ("guid", number(2)),
            ("path", path.as_str().into()),
            ("ashift", number(9)),
            ("asize", number(64 << 20)),
            ("metaslab_shift", number(24)),
        ]);
        let root = list(vec![
            ("type", "root".into()),
            ("id", number(0)),
            ("guid", number(1)),
            ("children", NvValue::ListArray(vec![leaf])),
        ]);
        list(vec![("tank", NvValue::List(list(vec![("vdev_tree", NvValue::List(root))])))])
    }

    #[test]
    fn devices_that_are_there_and_their_folders_in_either_encoding() {
        let folder = tempfile::tempdir().expect("a folder");
        let leaf = folder.path().join("d0.img");
        let file = folder.path().join("zpool.cache");
        let cache = cache(&leaf);
        for bytes in [cache.encode_native(), cache.encode_xdr()] {
            std::fs::write(&file, bytes).expect("written");
            let _ = std::fs::remove_file(&leaf);
            assert_eq!(device_paths(&file).expect("a cache file").paths, [folder.path()]);
            std::fs::write(&leaf, b"").expect("written");
            assert_eq!(device_paths(&file).expect("a cache file").paths, [&leaf, folder.path()]);
        }
    }

    #[test]
    fn what_is_no_cache_file_says_so() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("zpool.cache");
        std::fs::write(&file, b"not a list").expect("written");
        let text = device_paths(&file).err().expect("no list").to_string();
        assert!(text.contains("not a cache file"), "{text}");
        assert!(device_paths(&folder.path().join("nosuch")).is_err());
    }
}
