//! `zpool attach`: makes a device a mirror, or gives a mirror one more side. What `zpool replace` has in common with
//! it is here, too.
//!
//! # Order
//! The pool is opened for reading -> the new device exists and is free -> the old device is found -> the pool is opened
//! for change and agrees -> the new device is opened alone, partitioned if it is a whole disk, and attached.

use super::{Action, ReadRefusal, Refusal};
use crate::change::{self, ChangeError, DeviceName, LayoutError, NewDevice, PoolLayout, Purpose};
use crate::verbs::{Code, Reason, Right, Verb};
use crate::{Session, tree};
use format::VdevGuid;
use serde::{Deserialize, Serialize};

/// A device to attach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Name of the pool.
    pub pool: String,
    /// The device in the pool: a path, the last part of a path, or a guid.
    pub device: String,
    /// The new device: a path, or a name in `/dev`.
    pub new_device: String,
    /// The new device may belong to a pool that is not imported, or contain a file system (`-f`).
    #[serde(default)]
    pub force: bool,
    /// A sequential rebuild instead of a resilver (`-s`).
    #[serde(default)]
    pub sequential: bool,
}

impl Verb for Request {
    const NAME: &'static str = "zpool attach";
    const RIGHT: Right = Right::Administrator;
    type Answer = ();
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<(), Refusal> {
        let Request { pool, device, new_device, force, sequential } = self;
        let target = format!("{new_device} to {device}");
        let (action, purpose) = (Action::Attach, Purpose::Mirror);
        Attachment {
            pool,
            device,
            new_device,
            force: *force,
            sequential: *sequential,
            action,
            purpose,
            target,
        }
        .run(session)
    }
}

/// What `attach` and `replace` have in common.
pub(super) struct Attachment<'r> {
    pub(super) pool: &'r str,
    pub(super) device: &'r str,
    pub(super) new_device: &'r str,
    pub(super) force: bool,
    pub(super) sequential: bool,
    pub(super) action: Action,
    pub(super) purpose: Purpose,
    /// Both devices, as messages name them.
    pub(super) target: String,
}

impl Attachment<'_> {
    pub(super) fn run(&self, session: &mut Session<'_>) -> Result<(), Refusal> {
        let opened = super::open(session, self.pool)?;
        let new = NewDevice { name: self.new_name()?, force: self.force };
        let unreadable = |error| ReadRefusal::unreadable(self.pool, error, &[]);
        let vdevs = tree::vdevs(&opened).map_err(unreadable)?;
        let spares: Vec<_> =
            vdevs.spares.iter().map(|spare| (VdevGuid(spare.guid), spare.path.clone())).collect();
        new.check_free(self.purpose, &spares).map_err(|error| self.refused(error))?;
        if self.sequential {
            let what = "a sequential rebuild (-s) is".to_owned();
            return Err(self.refused(ChangeError::Unsupported { what }));
        }
        let Some(vdev) = crate::find_vdev(&opened, self.device).map_err(unreadable)? else {
            let is_spare = super::names_spare(&vdevs, self.device);
            let why = if is_spare { super::RESERVED } else { "no such device in pool" };
            return Err(self.refused(ChangeError::Property(why.to_owned())));
        };
        drop(opened);
        change::attach_device(
            session.search(),
            self.pool,
            vdev.guid,
            &new,
            self.purpose,
            session.command_line(),
        )
        .map_err(|error| self.refused(error))
    }

    /// The new device, read as a vdev of one device, so that other words get the message of a vdev.
    fn new_name(&self) -> Result<DeviceName, Refusal> {
        let words = [self.new_device.to_owned()];
        let layout = PoolLayout::parse(&words, &mut change::find_device)
            .map_err(|error| Refusal::Vdevs(Reason::new(Code::Refused, error)))?;
        let mut leaves = layout.tops.into_iter().flat_map(|top| top.leaves);
        let missing = || Refusal::Vdevs(Reason::new(Code::Refused, LayoutError::Nothing));
        leaves.next().ok_or_else(missing)
    }

    fn refused(&self, error: ChangeError) -> Refusal {
        match error {
            ChangeError::Vdevs { .. } => Refusal::Vdevs(error.into()),
            error => Refusal::failed(self.action, &self.target, error),
        }
    }
}
