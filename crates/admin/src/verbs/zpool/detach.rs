//! `zpool detach`: takes a device from a mirror, a replacement or a spare, if the others hold everything.

use super::{Action, ReadRefusal, Refusal};
use crate::change::{self, ChangeError};
use crate::verbs::{Right, Verb};
use crate::{Session, tree};
use serde::{Deserialize, Serialize};

/// A device to detach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Name of the pool.
    pub pool: String,
    /// The device: a path, the last part of a path, or a guid.
    pub device: String,
}

impl Verb for Request {
    const NAME: &'static str = "zpool detach";
    const RIGHT: Right = Right::Administrator;
    type Answer = ();
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<(), Refusal> {
        let refused = |error: ChangeError| Refusal::failed(Action::Detach, &self.device, error);
        let opened = super::open(session, &self.pool)?;
        let unreadable = |error| ReadRefusal::unreadable(&self.pool, error, &[]);
        let Some(vdev) = crate::find_vdev(&opened, &self.device).map_err(unreadable)? else {
            let vdevs = tree::vdevs(&opened).map_err(unreadable)?;
            let is_spare = super::names_spare(&vdevs, &self.device);
            let why = if is_spare { super::RESERVED } else { "no such device in pool" };
            return Err(refused(ChangeError::Property(why.to_owned())));
        };
        drop(opened);
        change::detach_device(session.search(), &self.pool, vdev.guid, session.command_line())
            .map_err(refused)
    }
}
