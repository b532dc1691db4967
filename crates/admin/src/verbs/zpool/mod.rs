//! The verbs of `zpool`: pools as a whole, their devices and settings.
//!
//! A request to change something is about one pool; a command that names several runs one request for each. A request
//! to read may be about several: what cannot be opened stands in the answer ([`crate::Problem`]), beside the others.
//!
//! # What always holds
//! - A verb that reads opens no device for writing.
//! - A pool that changes is opened for the verb, changed, has the session's command line in its history, and is
//!   closed again; a pool that the process keeps open stays open.
//! - File systems of a pool are unmounted before the pool is exported or destroyed, and mounted again if it stays.

mod read_refusal;
mod refusal;

pub mod add;
pub mod attach;
pub mod checkpoint;
pub mod clear;
pub mod create;
pub mod destroy;
pub mod detach;
pub mod events;
pub mod export;
pub mod get;
pub mod history;
pub mod import;
pub mod importable;
pub mod iostat;
pub mod labelclear;
pub mod list;
pub mod offline;
pub mod online;
pub mod reguid;
pub mod remove;
pub mod reopen;
pub mod replace;
pub mod resilver;
pub mod scrub;
pub mod set;
pub mod status;
pub mod sync;
pub mod upgradable;
pub mod upgrade;
pub mod wait;

pub use read_refusal::ReadRefusal;
pub use refusal::{Action, Refusal};

use crate::change::{self, ChangeError};
use crate::{Health, OpenPool, Session, Unmount, Vdev, Vdevs};

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
        refusal,
    })?;
    let outcome = close();
    mounting.after_export(&pending, outcome.is_ok());
    outcome.map_err(failed)
}

/// A pool, open for reading.
fn open(session: &mut Session<'_>, pool: &str) -> Result<OpenPool, ReadRefusal> {
    let (pools, problems) = session.pools(&[pool.to_owned()]);
    pools.into_iter().next().ok_or(ReadRefusal::Closed { problems })
}

/// The vdev of a pool that `device` names: a path, the last part of a path, or a guid.
fn find_vdev(session: &mut Session<'_>, action: Action, pool: &str, device: &str) -> Result<Vdev, Refusal> {
    let opened = open(session, pool)?;
    let missing = || Refusal::NoDevice { action, pool: pool.to_owned(), device: device.to_owned() };
    let found = crate::find_vdev(&opened, device);
    found.map_err(|error| ReadRefusal::unreadable(pool, error, &[]))?.ok_or_else(missing)
}

/// Why a spare that is not in use is refused.
const RESERVED: &str = "device is reserved as a hot spare";

/// True if a name is that of a spare: its path, the last part of the path, or its guid.
fn names_spare(vdevs: &Vdevs, name: &str) -> bool {
    let is_it = |spare: &Vdev| {
        let path = spare.path.as_deref();
        path == Some(name)
            || path.is_some_and(|path| path.strip_prefix("/dev/") == Some(name))
            || spare.guid.to_string() == name
    };
    vdevs.spares.iter().any(is_it)
}

/// True for spares and cache devices, which hold no space of the pool.
fn is_reserve(vdev: &Vdev) -> bool {
    vdev.pool_name.is_none() && matches!(vdev.health.word(), "AVAIL" | "INUSE")
}

/// State words as answers carry them.
fn state_word(state: Option<Health>) -> Option<String> {
    state.map(|state| state.word().to_owned())
}
