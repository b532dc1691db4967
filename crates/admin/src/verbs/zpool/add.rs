//! `zpool add`: adds vdevs to a pool.
//!
//! # Order
//! The pool is opened for reading -> the words are parsed into vdevs -> their devices are free and the vdevs agree with
//! those of the pool -> the pool is opened for change, the devices are opened alone, checked again and added.

use super::{Action, Refusal};
use crate::change::{self, Allow, ChangeError, LayoutError, NewVdevs, PoolLayout};
use crate::verbs::{Code, Reason, Right, Verb};
use crate::{OpenPool, Session};
use serde::{Deserialize, Serialize};

/// Vdevs to add.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Name of the pool.
    pub pool: String,
    /// The vdevs in the words of the command: `["mirror", "/dev/sda", "/dev/sdb"]`.
    pub vdevs: Vec<String>,
    /// log2 of the sector size; `None`: as the property of the pool says, `Some(0)`: as the devices like best.
    pub ashift: Option<u8>,
    /// Objections that do not count (`-f`, `--allow-…`).
    pub allow: Allow,
}

impl Request {
    /// Checks the request against the pool, which is open for reading: the vdevs to be added.
    ///
    /// # Errors
    /// [`Refusal::Vdevs`] with everything that is wrong.
    pub fn check(&self, pool: &OpenPool) -> Result<PoolLayout, Refusal> {
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
        let (pools, problems) = crate::open_pools(session.search(), std::slice::from_ref(&self.pool));
        let Some(pool) = pools.first() else {
            let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
            return Err(Refusal::Closed { message: lines.join("\n") });
        };
        let layout = self.check(pool)?;
        drop(pools);
        let new = NewVdevs { layout, ashift: self.ashift, allow: self.allow };
        change::add_vdevs(session.search(), &self.pool, &new, session.command_line())
            .map_err(|error| self.refused(error))
    }
}
