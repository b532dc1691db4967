//! The cache file of imported pools, as a hint where devices are
//! (docs/on-disk/11-labels-config.md, section 8).

use super::AdminError;
use format::NvList;
use format::config::VdevNode;
use std::path::{Path, PathBuf};

/// Bytes of a cache file: room for thousands of pools.
const SIZE_MAX: u64 = 64 << 20;

/// The paths of all devices that the file names and that are there.
pub(super) fn devices(file: &Path) -> Result<Vec<PathBuf>, AdminError> {
    let failed = |why: String| AdminError::CacheFile { path: file.display().to_string(), why };
    let size = std::fs::metadata(file).map_err(|e| failed(e.to_string()))?.len();
    if size > SIZE_MAX {
        return Err(failed(format!("{size} bytes are too many for a cache file")));
    }
    let bytes = std::fs::read(file).map_err(|e| failed(e.to_string()))?;
    let pools = NvList::decode(&bytes).map_err(|e| failed(format!("not a cache file: {e}")))?;
    let mut paths = Vec::new();
    for (name, _) in pools.iter() {
        let tree = pools.list(name).and_then(|config| config.list("vdev_tree"));
        let tree = tree.ok_or_else(|| failed(format!("pool '{name}' has no vdev_tree")))?;
        let root = VdevNode::from_nvlist(tree).map_err(|e| failed(format!("pool '{name}': {e}")))?;
        let leaves = root.walk().filter_map(|node| node.path.as_ref()).map(PathBuf::from);
        paths.extend(leaves.filter(|path| path.exists()));
    }
    Ok(paths)
}
