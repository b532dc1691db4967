//! `zpool checkpoint`.
//!
//! A pool that stays open frees in the background what a checkpoint held. In a pool that is open for one command only,
//! that is done before the command ends.

use super::ChangeError;
use super::pool_open::{change_then, scan_now};
use crate::Search;

/// Makes a checkpoint, or discards it.
///
/// # Errors
/// [`ChangeError`], also if there is one already, or none.
pub(crate) fn checkpoint_pool(
    search: &Search,
    name: &str,
    discard: bool,
    command: &str,
) -> Result<(), ChangeError> {
    let work = |pool: &cenote::PoolWriter| {
        let live = pool.live();
        Ok(if discard { live.discard_checkpoint() } else { live.make_checkpoint() }?)
    };
    change_then(search, name, command, work, scan_now)
}
