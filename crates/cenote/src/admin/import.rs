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
    let mut pools = candidates_for(&found, hostid());
    pools.retain(|pool| pool.is_destroyed() == search.destroyed);
    Ok((pools, device_problems(&found)))
}

/// The id of this host, 0 if it has none (docs/on-disk/11-labels-config.md, section 7).
fn hostid() -> u64 {
    let bytes = std::fs::read("/etc/hostid").unwrap_or_default();
    bytes.first_chunk().map_or(0, |id| u64::from(u32::from_ne_bytes(*id)))
}
