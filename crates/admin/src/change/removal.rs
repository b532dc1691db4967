//! Removal of devices from pools.

use super::ChangeError;
use super::pool_open::change_then;
use crate::{OpenPool, Search};
use ::pool::RemoveRefusal;
use format::VdevGuid;

/// What `zpool remove` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Removed {
    /// Removes the device with this guid.
    Device(u64),
    /// Cancels the running removal.
    Cancel,
}

impl From<RemoveRefusal> for ChangeError {
    fn from(refusal: RemoveRefusal) -> ChangeError {
        match refusal {
            RemoveRefusal::Pool(error) => (*error).into(),
            refusal => ChangeError::Property(refusal.to_string()),
        }
    }
}

/// `zpool remove`. In a pool that is open for this command only, the removal is completed before it ends.
///
/// # Errors
/// [`ChangeError`] if the pool cannot be changed or the device cannot be removed.
pub(crate) fn remove_vdev(
    search: &Search,
    name: &str,
    what: Removed,
    command: &str,
) -> Result<(), ChangeError> {
    let work = |pool: &cenote::PoolWriter| {
        match what {
            Removed::Device(guid) => pool.live().remove_device(VdevGuid(guid)),
            Removed::Cancel => pool.live().cancel_removal(),
        }?;
        Ok(())
    };
    change_then(search, name, command, work, |pool| match pool.is_kept_open() {
        true => Ok(()),
        false => Ok(pool.live().remove_to_end()?),
    })
}

/// Bytes of memory that the mapping of a vdev would take. `None`: it is no vdev that can be removed.
///
/// # Errors
/// The space maps of the pool cannot be read.
pub(crate) fn indirect_size(pool: &OpenPool, guid: u64) -> Result<Option<u64>, ChangeError> {
    let spa = pool.pool().spa();
    let guid = VdevGuid(guid);
    if let Some(size) = spa.indirect_size(guid)? {
        return Ok(Some(size));
    }
    let mut aux = spa.spares()?;
    aux.extend(spa.cache_devices()?);
    Ok(aux.iter().any(|aux| aux.node.guid == guid).then_some(0))
}
