//! `zpool import`: which pools could be imported.

use super::{AdminError, Problem, Search, device_problems};
use ::pool::import::candidates_for;
pub use ::pool::import::{Candidate, CandidateVdev};

/// Pools that could be imported, by name and guid; with [`Search::destroyed`] those that were destroyed
/// instead. What could not be looked at comes second.
///
/// # Errors
/// If [`Search::cachefile`] is set and cannot be used.
pub fn import_list(search: &Search) -> Result<(Vec<Candidate>, Vec<Problem>), AdminError> {
    let found = search.run()?;
    let mut pools = candidates_for(&found, super::host_id());
    pools.retain(|pool| pool.is_destroyed() == search.destroyed);
    if let Some(namespace) = &search.namespace {
        pools.retain(|pool| !namespace.has(pool.guid));
    }
    Ok((pools, device_problems(&found)))
}
