//! The pools that `zpool import` lists.

use super::{AdminError, Problem, Search, device_problems};
use ::pool::import::candidates_for;
pub use ::pool::import::{Candidate, CandidateVdev};

/// Finds the pools that could be imported, sorted by name and guid; with [`Search::destroyed`], destroyed pools
/// instead. The second value lists what could not be examined.
///
/// # Errors
/// [`AdminError::CacheFile`] if [`Search::cachefile`] is set and cannot be used.
pub fn import_list(search: &Search) -> Result<(Vec<Candidate>, Vec<Problem>), AdminError> {
    let found = search.run()?;
    let mut pools = candidates_for(&found, super::host_id());
    pools.retain(|pool| pool.is_destroyed() == search.destroyed);
    if let Some(namespace) = &search.namespace {
        pools.retain(|pool| !namespace.has(pool.guid));
    }
    Ok((pools, device_problems(&found)))
}
