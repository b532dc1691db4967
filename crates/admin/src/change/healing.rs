//! Verbs that scrub and resilver, and that take devices out of service and back.
//!
//! A pool that stays open scrubs by itself once it was told to. One that is opened for this command only does all of it
//! before the command ends.

use super::ChangeError;
use super::pool_open::{change_even_suspended, change_then, scan_now};
use crate::tree::health;
use crate::{Health, OpenPool, Search};
use ::pool::{Grow, Offline, ScanRefusal};
use cenote::PoolWriter;
use format::VdevGuid;
use format::names;
use format::scan::ScanFunc;
use serde::{Deserialize, Serialize};

/// What `zpool scrub` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scrub {
    /// Begins, or goes on.
    Start,
    /// Looks only at what was written since the last one.
    Newer,
    /// Looks only at what stands in the error log, at once.
    Errors,
    /// Pauses.
    Pause,
    /// Stops for good.
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

/// A pool that is opened for the command scans all that there is to scan before it is closed.
fn change<T>(
    search: &Search,
    name: &str,
    command: &str,
    work: impl FnOnce(&PoolWriter) -> Result<T, ChangeError>,
) -> Result<T, ChangeError> {
    change_then(search, name, command, work, scan_now)
}

/// `zpool scrub`.
///
/// # Errors
/// [`ChangeError`], also if something else is under way.
pub fn scrub_pool(search: &Search, name: &str, what: Scrub, command: &str) -> Result<(), ChangeError> {
    change(search, name, command, |pool| {
        let live = pool.live();
        Ok(match what {
            Scrub::Start => live.start_scrub(false),
            Scrub::Newer => live.start_scrub(true),
            Scrub::Errors => live.scrub_errors(),
            Scrub::Pause => live.pause_scrub(),
            Scrub::Stop => live.stop_scrub(),
        }?)
    })
}

/// `zpool resilver`: begins it anew.
///
/// # Errors
/// [`ChangeError`].
pub fn resilver_pool(search: &Search, name: &str, command: &str) -> Result<(), ChangeError> {
    change(search, name, command, |pool| {
        if !pool.live().features().is_enabled("resilver_defer") {
            let why = "this action requires the resilver_defer feature";
            return Err(ChangeError::Property(why.to_owned()));
        }
        Ok(pool.live().start_resilver()?)
    })
}

/// `zpool clear`: of the whole pool or of one vdev.
///
/// # Errors
/// [`ChangeError`].
pub fn clear_pool(search: &Search, name: &str, vdev: Option<u64>, command: &str) -> Result<(), ChangeError> {
    let found = search.run()?;
    change_even_suspended(search, name, command, |pool| {
        Ok(pool.live().clear(vdev.map(VdevGuid), Some(&found))?)
    })
}

/// `zpool offline` of one leaf.
///
/// # Errors
/// [`ChangeError`], also if the others do not have everything.
pub fn offline_vdev(
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

/// `zpool online` of one leaf. Returns its state.
///
/// # Errors
/// [`ChangeError`].
pub fn online_vdev(
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

/// `zpool reopen`. `restart`: a scrub that is under way gives way to a resilver of what came back.
///
/// # Errors
/// [`ChangeError`].
pub fn reopen_pool(search: &Search, name: &str, restart: bool, command: &str) -> Result<(), ChangeError> {
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

/// What a pool is busy with in the background.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activities {
    /// Bytes that a scrub has still to read.
    pub scrub: u64,
    /// The same of a resilver.
    pub resilver: u64,
    /// Bytes of destroyed datasets that are still to be freed.
    pub free: u64,
}

/// What a pool is busy with, as of its last txg.
///
/// # Errors
/// If its own objects cannot be read.
pub fn activities(pool: &OpenPool) -> Result<Activities, ChangeError> {
    let spa = pool.pool().spa();
    let live = spa.scan_progress();
    let recorded = if live.is_some() { None } else { spa.scan()? };
    let under_way = live.map(|live| (live.phys, live.issued)).or_else(|| {
        let is_running = |phys: &format::scan::ScanPhys| phys.state == format::scan::ScanState::Scanning;
        recorded.filter(is_running).map(|phys| (phys, phys.examined.saturating_sub(phys.skipped)))
    });
    let mut all = Activities { free: spa.hidden_space(names::hidden::FREE)?, ..Activities::default() };
    if let Some((phys, issued)) = under_way.filter(|(phys, _)| !phys.is_paused()) {
        // Something is left until it has ended.
        let left = phys.to_examine.saturating_sub(phys.skipped).saturating_sub(issued).max(1);
        match phys.func {
            ScanFunc::Resilver => all.resilver = left,
            _ => all.scrub = left,
        }
    }
    if all.resilver == 0 && spa.is_resilver_due() {
        all.resilver = 1;
    }
    Ok(all)
}
