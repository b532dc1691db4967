//! The count of files to free, which `zfs wait` waits for.

use super::{AdminError, Kind, Search, find, open_pools};
use cenote::Error;

/// Number of files of a file system that are unlinked and wait to be freed, because they are large or still open. 0
/// if the file system is not mounted: then no process frees them.
///
/// # Errors
/// The file system does not exist or cannot be read.
pub fn files_to_free(search: &Search, name: &str) -> Result<u64, AdminError> {
    let failed = |error: Error| AdminError::from(error);
    let pool_name = name.split('/').next().unwrap_or_default();
    if let Some(live) = search.namespace.as_ref().and_then(|namespace| namespace.live(pool_name)) {
        // The sync brings files that were unlinked a moment ago into the set on disk.
        live.sync().map_err(|error| failed(error.into()))?;
    }
    let (pools, _) = open_pools(search, &[pool_name.to_owned()]);
    if find(&pools, name)?.kind() != Kind::Filesystem {
        return Err(AdminError::NotAFilesystem { name: name.to_owned() });
    }
    let is_mounted = |mounted: &std::collections::BTreeMap<_, _>| mounted.contains_key(name);
    let Some(pool) = pools.first().filter(|pool| pool.mounted.as_deref().is_some_and(is_mounted)) else {
        return Ok(0);
    };
    let files = pool.pool.dataset(name).and_then(|dataset| dataset.filesystem()).map_err(failed)?;
    Ok(files.filesystem().unlinked().map_err(|error| failed(error.into()))?.len() as u64)
}
