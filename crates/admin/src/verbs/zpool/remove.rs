//! `zpool remove`: takes a device out of a pool, or cancels the removal that is running.
//!
//! A vdev with data is emptied in the background; in a pool that is open for this command alone, before the
//! command ends.

use super::{Action, ReadRefusal, Refusal, find_vdev};
use crate::change::{self, Removed};
use crate::verbs::{Right, Verb};
use crate::{Session, Vdev, tree};
use serde::{Deserialize, Serialize};

/// What is to be removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Name of the pool.
    pub pool: String,
    /// The device: a path, the last part of a path, the name of a vdev, or a guid. `None`: the running removal
    /// is canceled (`-s`).
    #[serde(default)]
    pub device: Option<String>,
}

impl Request {
    /// The bytes of memory that the mapping of the device would take (`-n`). Changes nothing.
    ///
    /// # Errors
    /// [`Refusal::Denied`]; [`Refusal::NoDevice`] if the pool has no such device.
    pub fn memory(&self, session: &mut Session<'_>) -> Result<u64, Refusal> {
        session.check_right::<Request>()?;
        let action = Action::IndirectSize;
        let device = self.device.clone().unwrap_or_default();
        let vdev = find(session, action, &self.pool, &device)?;
        let pool = super::open(session, &self.pool)?;
        let size = change::indirect_size(&pool, vdev.guid);
        let size = size.map_err(|error| Refusal::failed(action, &device, error))?;
        size.ok_or(Refusal::NoDevice { action, pool: self.pool.clone(), device })
    }
}

/// The device of a pool that `device` names; spares and cache devices too.
fn find(session: &mut Session<'_>, action: Action, pool: &str, device: &str) -> Result<Vdev, Refusal> {
    let vdevs = tree::vdevs(&super::open(session, pool)?);
    let vdevs = vdevs.map_err(|error| ReadRefusal::unreadable(pool, error, &[]))?;
    let is_it = |v: &&Vdev| {
        let path = v.path.as_deref();
        let short = path.and_then(|path| path.strip_prefix("/dev/"));
        path == Some(device) || short == Some(device) || v.guid.to_string() == device
    };
    match vdevs.cache.iter().chain(&vdevs.spares).find(is_it) {
        Some(vdev) => Ok(vdev.clone()),
        None => find_vdev(session, action, pool, device),
    }
}

impl Verb for Request {
    const NAME: &'static str = "zpool remove";
    const RIGHT: Right = Right::Administrator;
    type Answer = ();
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<(), Refusal> {
        let Some(device) = &self.device else {
            // Tells of a pool that is not there by its own words.
            super::open(session, &self.pool).map_err(|refusal: ReadRefusal| Refusal::from(refusal))?;
            return change::remove_vdev(
                session.search(),
                &self.pool,
                Removed::Cancel,
                session.command_line(),
            )
            .map_err(|error| Refusal::failed(Action::CancelRemoval, &self.pool, error));
        };
        let vdev = find(session, Action::Remove, &self.pool, device)?;
        let what = Removed::Device(vdev.guid);
        change::remove_vdev(session.search(), &self.pool, what, session.command_line())
            .map_err(|error| Refusal::failed(Action::Remove, device, error))
    }
}
