//! Verbs that attach devices to others, replace them and detach them.
//!
//! # What always holds
//! - The pool has agreed to the change before anything is written to the new device, a partition table included.

use super::ChangeError;
use super::healing::change;
use super::in_use::InUse;
use super::pool_devices::{held_leaf, open_leaf};
use super::pool_layout::DeviceUse;
use super::pool_path::{DeviceName, first_partition};
use crate::{Imported, Search};
use ::pool::{LivePool, NewSide, Purpose};
use cenote::PoolWriter;
use format::VdevGuid;
use std::path::Path;
use std::sync::Arc;
use vdev::Device;
use vdev::tree::VdevState;

/// The spares of a pool, with their paths.
pub(crate) type Spares = [(VdevGuid, Option<String>)];

/// A device to be attached to another one.
#[derive(Debug, Clone)]
pub(crate) struct NewDevice {
    /// The device.
    pub name: DeviceName,
    /// It may belong to a pool that is not imported, or contain a file system (`-f`).
    pub force: bool,
}

impl NewDevice {
    /// Checks that nobody uses the device. A spare of the pool may replace a device.
    ///
    /// # Errors
    /// [`ChangeError::Vdevs`] with the use.
    pub(crate) fn check_free(&self, purpose: Purpose, spares: &Spares) -> Result<(), ChangeError> {
        if purpose == Purpose::Replace && self.spare_among(spares).is_some() {
            return Ok(());
        }
        let used = super::in_use::usage_of(&self.name, DeviceUse::Vdev, &Imported::load()?);
        let counts = |usage: &InUse| !self.force || usage.is_final();
        ChangeError::in_use(self.force, &used.into_iter().filter(counts).collect::<Vec<_>>())
    }

    /// The spare that the device is.
    fn spare_among(&self, spares: &Spares) -> Option<VdevGuid> {
        let paths = [self.name.path.clone(), first_partition(&self.name.path)];
        let paths = if self.name.is_whole_disk { &paths[..] } else { &paths[..1] };
        let is_own = |path: &str| paths.iter().any(|own| own.to_str() == Some(path));
        spares.iter().find(|(_, path)| path.as_deref().is_some_and(is_own)).map(|(guid, _)| *guid)
    }
}

/// `zpool attach` and `zpool replace`.
///
/// # Errors
/// [`ChangeError`]; the pool is unchanged.
pub(crate) fn attach_device(
    search: &Search,
    name: &str,
    to: u64,
    new: &NewDevice,
    purpose: Purpose,
    command: &str,
) -> Result<(), ChangeError> {
    change(search, name, command, |pool| {
        let (live, to) = (pool.live(), VdevGuid(to));
        let new = match new.spare_among(&spares_of(pool)?).filter(|_| purpose == Purpose::Replace) {
            Some(spare) => NewSide::Spare(spare),
            None => NewSide::Device(opened(live, to, &new.name, purpose)?),
        };
        live.release()?;
        Ok(live.attach(to, new, purpose)?)
    })
}

/// The new device, open for writing, after the pool has agreed to it.
fn opened(
    live: &LivePool,
    to: VdevGuid,
    name: &DeviceName,
    purpose: Purpose,
) -> Result<::pool::LeafSpec, ChangeError> {
    let agree = |device: &dyn Device| Ok(live.check_attach(to, device, purpose)?);
    let opened = open_leaf(name, &agree);
    if matches!(opened, Err(ChangeError::DeviceBusy { .. }))
        && purpose == Purpose::Replace
        && let Some(device) = held_for(live, to, &name.path)
    {
        // The leaf never uses it again: the clearing of its labels would hit those of the new leaf.
        live.let_go(to)?;
        return held_leaf(name, device, &agree);
    }
    opened
}

/// The device at this path, if the pool has it open for a leaf that is out of service: it may have been wiped in place.
fn held_for(live: &LivePool, leaf: VdevGuid, path: &Path) -> Option<Arc<dyn Device>> {
    let tree = live.tree();
    let status = tree.status();
    let found = status.find(leaf)?;
    let is_out = matches!(found.state, VdevState::Offline | VdevState::Faulted | VdevState::Removed);
    tree.device(leaf).filter(|_| is_out && found.path.as_deref() == Some(path))
}

fn spares_of(pool: &PoolWriter) -> Result<Vec<(VdevGuid, Option<String>)>, ChangeError> {
    let spares = pool.view()?.spa().spares().map_err(ChangeError::from)?;
    Ok(spares.into_iter().map(|spare| (spare.node.guid, spare.node.path)).collect())
}

/// `zpool detach`.
///
/// # Errors
/// [`ChangeError`]; the pool is unchanged.
pub(crate) fn detach_device(
    search: &Search,
    name: &str,
    leaf: u64,
    command: &str,
) -> Result<(), ChangeError> {
    change(search, name, command, |pool| {
        pool.live().release()?;
        Ok(pool.live().detach(VdevGuid(leaf))?)
    })
}
