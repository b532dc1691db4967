//! The verbs of `zpool`: pools as a whole, their devices and settings.
//!
//! A request is about one pool; a command that names several runs one request for each.
//!
//! # What always holds
//! - A pool is opened for the verb, changed, has the session's command line in its history, and is closed again; a pool
//!   that the process keeps open stays open.
//! - File systems of a pool are unmounted before the pool is exported or destroyed, and mounted again if it stays.

mod refusal;

pub mod add;
pub mod clear;
pub mod create;
pub mod destroy;
pub mod export;
pub mod import;
pub mod labelclear;
pub mod offline;
pub mod online;
pub mod reguid;
pub mod reopen;
pub mod resilver;
pub mod scrub;
pub mod set;
pub mod sync;
pub mod upgrade;
pub mod wait;

pub use refusal::{Action, Refusal};

use crate::change::{self, ChangeError};
use crate::{Health, Session, Unmount, Vdev};

/// Unmounts the file systems of a pool and lets the pool go by `close`; mounts them again if the pool stays.
fn let_go(
    session: &Session<'_>,
    pool: &str,
    action: Action,
    force: bool,
    close: impl FnOnce() -> Result<(), ChangeError>,
) -> Result<(), Refusal> {
    let failed = |error: ChangeError| Refusal::failed(action, pool, error);
    change::before_close(session.search(), pool, force).map_err(failed)?;
    change::check_admin(session.search()).map_err(failed)?;
    let Some(mounting) = session.mounting() else { return close().map_err(failed) };
    let pending = mounting.before_export(pool, Unmount::Normal).map_err(|refusal| Refusal::NotUnmounted {
        action,
        pool: pool.to_owned(),
        message: refusal.to_string(),
    })?;
    let outcome = close();
    mounting.after_export(&pending, outcome.is_ok());
    outcome.map_err(failed)
}

/// The vdev of a pool that `device` names: a path, the last part of a path, or a guid.
fn find_vdev(session: &Session<'_>, action: Action, pool: &str, device: &str) -> Result<Vdev, Refusal> {
    let closed = |message: String| Refusal::Closed { message };
    let (pools, problems) = crate::open_pools(session.search(), &[pool.to_owned()]);
    let Some(opened) = pools.first() else {
        return Err(closed(problems.first().map_or_else(String::new, ToString::to_string)));
    };
    let missing = || Refusal::NoDevice { action, pool: pool.to_owned(), device: device.to_owned() };
    crate::find_vdev(opened, device).map_err(|error| closed(error.to_string()))?.ok_or_else(missing)
}

/// True for spares and cache devices, which hold no space of the pool.
fn is_reserve(vdev: &Vdev) -> bool {
    vdev.pool_name.is_none() && matches!(vdev.health.word(), "AVAIL" | "INUSE")
}

/// State words as answers carry them.
fn state_word(state: Option<Health>) -> Option<String> {
    state.map(|state| state.word().to_owned())
}
