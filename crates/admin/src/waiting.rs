//! What `zfs wait` waits for.

use super::{AdminError, Kind, Search, find, open_pools};
use cenote::Error;

/// Files of a file system that have lost their last name and wait to be freed: they are large, or somebody has them open.
/// None where it is not mounted, as nothing frees them then.
///
/// # Errors
/// There is no such file system, or it cannot be read.
pub fn files_to_free(search: &Search, name: &str) -> Result<u64, AdminError> {
    let failed = |error: Error| AdminError::from(error);
    let pool_name = name.split('/').next().unwrap_or_default();
    if let Some(live) = search.namespace.as_ref().and_then(|namespace| namespace.live(pool_name)) {
        // What was removed a moment ago is in the set on disk then.
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
