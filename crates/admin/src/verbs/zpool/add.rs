//! `zpool add`: adds vdevs to a pool.
//!
//! # Order
//! The pool is opened for reading -> the words are parsed into vdevs -> their devices are free and the vdevs agree with
//! those of the pool -> the pool is opened for change, the devices are opened alone, checked again and added.

use super::{Action, ReadRefusal, Refusal};
use crate::change::{self, Allow, ChangeError, LayoutError, NewVdevs, PoolLayout};
use crate::verbs::{Code, Reason, Right, Verb};
use crate::{OpenPool, Session, Vdevs, tree};
use serde::{Deserialize, Serialize};

/// Vdevs to add.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Name of the pool.
    pub pool: String,
    /// The vdevs in the words of the command: `["mirror", "/dev/sda", "/dev/sdb"]`.
    #[serde(default)]
    pub vdevs: Vec<String>,
    /// log2 of the sector size; `None`: as the property of the pool says, `Some(0)`: as the devices like best.
    #[serde(default)]
    pub ashift: Option<u8>,
    /// Objections that do not count (`-f`, `--allow-…`).
    pub allow: Allow,
}

/// What adding vdevs would make of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The vdevs that the pool has.
    pub pool: Vdevs,
    /// The vdevs that would be added.
    pub added: PoolLayout,
}

impl Request {
    /// Checks the request and changes nothing (`-n`).
    ///
    /// # Errors
    /// [`Refusal::Denied`], [`Refusal::Read`]; [`Refusal::Vdevs`] with everything that is wrong.
    pub fn plan(&self, session: &mut Session<'_>) -> Result<Plan, Refusal> {
        session.check_right::<Request>()?;
        let pool = super::open(session, &self.pool)?;
        let added = self.check(&pool)?;
        let vdevs = tree::vdevs(&pool);
        let pool = vdevs.map_err(|error| ReadRefusal::unreadable(&self.pool, error, &[]))?;
        Ok(Plan { pool, added })
    }

    /// The vdevs to be added to a pool that is open for reading, checked against it.
    fn check(&self, pool: &OpenPool) -> Result<PoolLayout, Refusal> {
        let vdevs = PoolLayout::parse(&self.vdevs, &mut change::find_device)
            .map_err(|error: LayoutError| Refusal::Vdevs(Reason::new(Code::Refused, error)))?;
        change::check_layout(&vdevs, Some(change::config_tree(pool)), self.allow)
            .map_err(|error| self.refused(error))?;
        Ok(vdevs)
    }

    fn refused(&self, error: ChangeError) -> Refusal {
        match error {
            ChangeError::Vdevs { .. } => Refusal::Vdevs(error.into()),
            error => Refusal::failed(Action::Add, &self.pool, error),
        }
    }
}

impl Verb for Request {
    const NAME: &'static str = "zpool add";
    const RIGHT: Right = Right::Administrator;
    type Answer = ();
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<(), Refusal> {
        let layout = self.check(&super::open(session, &self.pool)?)?;
        let new = NewVdevs { layout, ashift: self.ashift, allow: self.allow };
        change::add_vdevs(session.search(), &self.pool, &new, session.command_line())
            .map_err(|error| self.refused(error))
    }
}
