//! `zfs clone`: makes a file system or volume that begins as a snapshot is, and mounts it.
//!
//! # Order
//! The snapshot is opened, the new name is checked -> missing ancestors are made and mounted (`-p`) -> the caller's
//! permissions, and the clone, in one transaction group -> the clone is mounted (not with `-u`).
//!
//! Source: docs/on-disk/33-cli.md (section 7), 22-mos-dsl.md (section 5).

use super::operand::{self, NotOpened};
use super::{AfterAncestors, NotMounted, mounts, set};
use crate::Session;
use crate::edit::names::{self, Form};
use crate::edit::{self, CloneSpec, EditError};
use crate::verbs::{Code, Reason, Refused, Right, Verb};
use serde::{Deserialize, Serialize};

/// A clone to make.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// Full name of the snapshot.
    pub origin: String,
    /// Full name of the clone.
    pub name: String,
    /// Properties of the clone (`-o`).
    pub properties: Vec<(String, String)>,
    /// Missing file systems above the clone are made; a dataset that exists already is no error (`-p`).
    pub parents: bool,
    /// The clone is not mounted (`-u`).
    pub unmounted: bool,
}

/// The clone exists.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Answer {
    /// Ancestors that were made and are not mounted.
    pub ancestors_not_mounted: Vec<NotMounted>,
    /// The clone, if it is not mounted and should be.
    pub not_mounted: Vec<NotMounted>,
}

/// Why there is no clone, with the ancestors that were made and are not mounted.
pub type Refusal = AfterAncestors<Why>;

/// Why there is no clone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Why {
    /// The caller may run no such verb.
    #[error("{0}")]
    Denied(Reason),
    /// The snapshot cannot be opened.
    #[error("{0}")]
    Open(NotOpened),
    /// The new name is in another pool.
    #[error("cannot create '{name}': source and target pools differ")]
    OtherPool {
        /// Full name of the clone.
        name: String,
    },
    /// The clone cannot be made.
    #[error("cannot create '{name}': {reason}")]
    NotMade {
        /// Full name of the clone.
        name: String,
        /// Why.
        reason: Reason,
    },
}

from_denied!(Why, Why::Denied);

impl From<Why> for Refusal {
    fn from(why: Why) -> Refusal {
        AfterAncestors { ancestors_not_mounted: Vec::new(), why }
    }
}

impl Refused for Why {
    fn reason(&self) -> Reason {
        match self {
            Why::Denied(reason) | Why::Open(NotOpened { reason, .. }) | Why::NotMade { reason, .. } => {
                reason.clone()
            }
            Why::OtherPool { .. } => Reason::new(Code::Refused, "source and target pools differ"),
        }
    }
}

impl Verb for Request {
    const NAME: &'static str = "zfs clone";
    const RIGHT: Right = Right::Delegated(&["clone"]);
    type Answer = Answer;
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, Refusal> {
        let view = operand::open(session, &self.origin, Form::Snapshot).map_err(Why::Open)?;
        let is_volume =
            view.dataset(&self.origin).is_ok_and(|origin| origin.dsl().is_volume().unwrap_or(false));
        if self.parents && self.name.contains('/') && view.dataset(&self.name).is_ok() {
            return Ok(Answer::default());
        }
        names::check_new(&self.name).map_err(|error| self.not_made(error.into()))?;
        let pool = session.writer(&self.name).map_err(|error| self.not_made(error))?;
        if edit::pool_of(&self.name) != edit::pool_of(&self.origin) {
            return Err(Why::OtherPool { name: self.name.clone() }.into());
        }
        set::small_blocks(&self.properties, &view).into_iter().for_each(|warning| session.warn(warning));
        let mut answer = Answer::default();
        if self.parents {
            let made = mounts::make_ancestors(session, &pool, &self.name);
            answer.ancestors_not_mounted = made.map_err(|error| self.not_made(error))?;
        }
        let spec = CloneSpec {
            origin: self.origin.clone(),
            name: self.name.clone(),
            props: self.properties.clone(),
        };
        if let Err(error) = edit::clone(&pool, &spec) {
            let ancestors_not_mounted = answer.ancestors_not_mounted;
            return Err(AfterAncestors { ancestors_not_mounted, why: self.not_made(error) });
        }
        session.note_change(&self.name);
        if !self.unmounted && !is_volume {
            answer.not_mounted = mounts::mount_new(session, std::slice::from_ref(&self.name));
        }
        Ok(answer)
    }
}

impl Request {
    fn not_made(&self, error: EditError) -> Why {
        Why::NotMade { name: self.name.clone(), reason: error.into() }
    }
}
