//! `zfs unallow`: takes permissions back.
//!
//! Source: docs/on-disk/33-cli.md (section 8).

use super::allow::{Grants, Refusal, change};
use crate::Session;
use crate::edit;
use crate::verbs::{Right, Verb};
use serde::{Deserialize, Serialize};

/// Permissions to take back.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// Full name of a file system or volume.
    pub dataset: String,
    /// The permissions, their holders, and where they hold.
    pub grant: Grants,
    /// Also at all datasets below (`-r`).
    pub recursive: bool,
}

impl Verb for Request {
    const NAME: &'static str = "zfs unallow";
    const RIGHT: Right = Right::Delegated(&["allow"]);
    type Answer = ();
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<(), Refusal> {
        let grant = (&self.grant).into();
        change(session, &self.dataset, |pool| edit::unallow(pool, &self.dataset, &grant, self.recursive))
    }
}
