//! `zfs receive -A`: discards what an interrupted `zfs receive -s` has left.
//!
//! Source: docs/on-disk/30-send-streams.md (section 8).

use crate::Session;
use crate::edit::{EditError, permit};
use crate::verbs::zfs::operand::{self, NotOpened};
use crate::verbs::{Code, Reason, Refused, Right, Verb};
use cenote::PoolWriter;
use cenote::receive::ReceiveError;
use serde::{Deserialize, Serialize};

/// A dataset that a stream was being received into.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// Full name of the file system or volume.
    pub dataset: String,
}

/// What was received in part is kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    /// The caller may run no such verb.
    #[error("{0}")]
    Denied(Reason),
    /// The dataset cannot be opened.
    #[error("{0}")]
    Open(NotOpened),
    /// No receive into it was interrupted.
    #[error("'{dataset}' does not have any resumable receive state to abort")]
    Nothing {
        /// Full name of the dataset.
        dataset: String,
    },
    /// It is not discarded.
    #[error("cannot destroy '{dataset}': {reason}")]
    NotDiscarded {
        /// Full name of the dataset.
        dataset: String,
        /// Why.
        reason: Reason,
    },
}

from_denied!(Refusal, Refusal::Denied);

impl Refused for Refusal {
    fn reason(&self) -> Reason {
        match self {
            Refusal::Denied(reason)
            | Refusal::Open(NotOpened { reason, .. })
            | Refusal::NotDiscarded { reason, .. } => reason.clone(),
            Refusal::Nothing { .. } => Reason::new(Code::Refused, self),
        }
    }
}

impl Verb for Request {
    const NAME: &'static str = "zfs receive -A";
    const RIGHT: Right = Right::Delegated(&["destroy", "mount"]);
    type Answer = ();
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<(), Refusal> {
        let name = self.dataset.as_str();
        operand::open_head(session, name).map_err(Refusal::Open)?;
        let kept = |reason: Reason| Refusal::NotDiscarded { dataset: name.to_owned(), reason };
        let pool = session.writer(name).map_err(|error| kept(error.into()))?;
        permit::ask(&pool, name, &["destroy", "mount"]).map_err(|error| kept(error.into()))?;
        discard(&pool, name)?;
        session.note_change(name);
        Ok(())
    }
}

fn discard(pool: &PoolWriter, name: &str) -> Result<(), Refusal> {
    let dataset = || name.to_owned();
    pool.discard_received(name).map_err(|error| match error {
        ReceiveError::NotResumable => Refusal::Nothing { dataset: dataset() },
        ReceiveError::Missing(_) => {
            Refusal::Open(NotOpened::new(name, EditError::NoDataset { name: dataset() }))
        }
        ReceiveError::Dsl(error) => {
            Refusal::NotDiscarded { dataset: dataset(), reason: EditError::from(error).into() }
        }
        other => Refusal::NotDiscarded { dataset: dataset(), reason: Reason::new(Code::Failed, other) },
    })
}
