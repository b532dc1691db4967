//! Verbs that scrub and resilver pools, and that take devices offline and online.
//!
//! A pool that stays open scrubs in the background. In a pool that is open for one command only, the scan is
//! completed before the command ends.

use super::ChangeError;
use super::pool_open::{change_even_suspended, change_then, scan_now};
use crate::tree::health;
use crate::{Health, OpenPool, Search};
use ::pool::{Grow, Offline, ScanRefusal};
use cenote::PoolWriter;
use format::VdevGuid;
use format::config::VdevKind;
use format::names;
use format::scan::ScanFunc;
use serde::{Deserialize, Serialize};

/// Variant of `zpool scrub`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scrub {
    /// Start, or resume a paused scrub.
    Start,
    /// Scrub only blocks written since the last scrub.
    Newer,
    /// Scrub only blocks in the error log, immediately.
    Errors,
    /// Pause the scrub.
    Pause,
    /// Cancel the scrub.
    Stop,
}

impl From<ScanRefusal> for ChangeError {
    fn from(refusal: ScanRefusal) -> ChangeError {
        match refusal {
            ScanRefusal::Pool(error) => (*error).into(),
            refusal => ChangeError::Property(refusal.to_string()),
        }
    }
}

/// Runs a verb; in a pool that is open for this command only, then completes all scans.
pub(super) fn change<T>(
    search: &Search,
    name: &str,
    command: &str,
    work: impl FnOnce(&PoolWriter) -> Result<T, ChangeError>,
) -> Result<T, ChangeError> {
    change_then(search, name, command, work, scan_now)
}

/// `zpool scrub`. Returns whether the pool has a checkpoint.
///
/// # Errors
/// [`ChangeError`], also if another scan is in progress.
pub(crate) fn scrub_pool(
    search: &Search,
    name: &str,
    what: Scrub,
    command: &str,
) -> Result<bool, ChangeError> {
    change(search, name, command, |pool| {
        let live = pool.live();
        match what {
            Scrub::Start => live.start_scrub(false),
            Scrub::Newer => live.start_scrub(true),
            Scrub::Errors => live.scrub_errors(),
            Scrub::Pause => live.pause_scrub(),
            Scrub::Stop => live.stop_scrub(),
        }?;
        Ok(live.view()?.checkpoint()?.is_some())
    })
}

/// `zpool resilver`: starts a resilver anew.
///
/// # Errors
/// [`ChangeError`] if the pool cannot be changed.
pub(crate) fn resilver_pool(search: &Search, name: &str, command: &str) -> Result<(), ChangeError> {
    change(search, name, command, |pool| {
        if !pool.live().features().is_enabled("resilver_defer") {
            let why = "this action requires the resilver_defer feature";
            return Err(ChangeError::Property(why.to_owned()));
        }
        Ok(pool.live().start_resilver()?)
    })
}

/// `zpool clear` of a whole pool or of one vdev.
///
/// # Errors
/// [`ChangeError`] if the pool cannot be changed or the vdev does not exist.
pub(crate) fn clear_pool(
    search: &Search,
    name: &str,
    vdev: Option<u64>,
    command: &str,
) -> Result<(), ChangeError> {
    let found = search.run()?;
    change_even_suspended(search, name, command, |pool| {
        Ok(pool.live().clear(vdev.map(VdevGuid), Some(&found))?)
    })
}

/// `zpool offline` of one leaf.
///
/// # Errors
/// [`ChangeError`], also if the remaining devices do not have all data.
pub(crate) fn offline_vdev(
    search: &Search,
    name: &str,
    vdev: u64,
    how: Offline,
    command: &str,
) -> Result<(), ChangeError> {
    change(search, name, command, |pool| {
        if pool.live().take_offline(VdevGuid(vdev), how)? {
            Ok(())
        } else {
            Err(ChangeError::Property("no valid replicas".to_owned()))
        }
    })
}

/// `zpool online` of one leaf. Returns the leaf's new state.
///
/// # Errors
/// [`ChangeError`] if the pool cannot be changed or the leaf does not exist.
pub(crate) fn online_vdev(
    search: &Search,
    name: &str,
    vdev: u64,
    expand: bool,
    command: &str,
) -> Result<Option<Health>, ChangeError> {
    let found = search.run()?;
    change_even_suspended(search, name, command, |pool| {
        let state = pool.live().bring_online(VdevGuid(vdev), Some(&found))?;
        if expand {
            pool.live().grow(Grow::With(VdevGuid(vdev)))?;
        }
        Ok(state.map(health))
    })
}

/// `zpool reopen`. `restart`: a running scrub is replaced by a resilver of the devices that came back.
///
/// # Errors
/// [`ChangeError`] if the pool cannot be changed.
pub(crate) fn reopen_pool(
    search: &Search,
    name: &str,
    restart: bool,
    command: &str,
) -> Result<(), ChangeError> {
    let found = search.run()?;
    change_even_suspended(search, name, command, |pool| {
        let live = pool.live();
        live.reopen_devices(Some(&found))?;
        if restart || live.scan_progress().is_none() {
            live.resilver_if_needed()?;
        }
        Ok(())
    })
}

/// Remaining work of a pool's background jobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activities {
    /// Bytes that a scrub has still to read; 0: no scrub is running.
    pub scrub: u64,
    /// Bytes that a resilver has still to read; 0: no resilver is running.
    pub resilver: u64,
    /// Bytes that the resilver has still to read before devices are replaced; 0: none is being replaced.
    pub replace: u64,
    /// Bytes of destroyed datasets that have still to be freed.
    pub free: u64,
    /// Bytes that a discarded checkpoint held, and that have still to be freed; at least 1 until that has ended.
    #[serde(default)]
    pub discard: u64,
    /// Bytes of a vdev that is being removed that have still to be copied; 0: no removal is running.
    #[serde(default)]
    pub remove: u64,
}

/// The remaining work of a pool as of its last txg.
///
/// # Errors
/// The pool's own objects cannot be read.
pub(crate) fn activities(pool: &OpenPool) -> Result<Activities, ChangeError> {
    let spa = pool.pool().spa();
    let live = spa.scan_progress();
    let recorded = if live.is_some() { None } else { spa.scan()? };
    let under_way = live.map(|live| (live.phys, live.issued)).or_else(|| {
        let is_running = |phys: &format::scan::ScanPhys| phys.state == format::scan::ScanState::Scanning;
        recorded.filter(is_running).map(|phys| (phys, phys.examined.saturating_sub(phys.skipped)))
    });
    let mut all = Activities { free: spa.hidden_space(names::hidden::FREE)?, ..Activities::default() };
    if spa.features().is_active("zpool_checkpoint") && spa.checkpoint()?.is_none() {
        all.discard = spa.space()?.checkpoint.max(1);
    }
    if let Some((phys, issued)) = under_way.filter(|(phys, _)| !phys.is_paused()) {
        // At least 1 until the scan has ended.
        let left = phys.to_examine.saturating_sub(phys.skipped).saturating_sub(issued).max(1);
        match phys.func {
            ScanFunc::Resilver => all.resilver = left,
            _ => all.scrub = left,
        }
    }
    if let Some(removal) = spa.removal()?.filter(|r| r.state == format::scan::ScanState::Scanning) {
        // At least 1 until the removal has ended.
        all.remove = removal.to_copy.saturating_sub(removal.copied).max(1);
    }
    if all.resilver == 0 && spa.is_resilver_due() {
        all.resilver = 1;
    }
    if spa.config().vdev_tree.walk().any(|node| node.kind == VdevKind::Replacing) {
        all.replace = all.resilver;
    }
    Ok(all)
}
