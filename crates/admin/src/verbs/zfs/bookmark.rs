//! `zfs bookmark`: makes a bookmark of a snapshot or of another bookmark.
//!
//! Source: docs/on-disk/33-cli.md (section 7), 22-mos-dsl.md (section 5).

use super::operand::NotOpened;
use crate::Session;
use crate::edit::names::{self, Form, NameError};
use crate::edit::{self, EditError};
use crate::verbs::{Code, Reason, Refused, Right, Verb};
use serde::{Deserialize, Serialize};

/// A bookmark to make.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// Full name of the snapshot or bookmark that it is made of.
    pub source: String,
    /// Full name of the new bookmark.
    pub name: String,
}

/// Why no bookmark was made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    /// The caller may run no such verb.
    #[error("{0}")]
    Denied(Reason),
    /// The source cannot be opened.
    #[error("{0}")]
    Open(NotOpened),
    /// The bookmark cannot be made.
    #[error("cannot create bookmark '{name}': {reason}")]
    NotMade {
        /// Full name of the bookmark.
        name: String,
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
            | Refusal::NotMade { reason, .. } => reason.clone(),
        }
    }
}

impl Verb for Request {
    const NAME: &'static str = "zfs bookmark";
    const RIGHT: Right = Right::Delegated(&["bookmark"]);
    type Answer = ();
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<(), Refusal> {
        self.check_source(session)?;
        let refused = |code, message: &str| self.not_made(Reason::new(code, message));
        match names::check(&self.name, Form::Bookmark) {
            Ok(()) => {}
            Err(error @ NameError::TooLong) => return Err(self.not_made(error)),
            Err(_) => return Err(refused(Code::Name, "invalid argument")),
        }
        if edit::pool_of(&self.name) != edit::pool_of(&self.source) {
            return Err(match session.writer(&self.name) {
                Ok(_) => refused(Code::Refused, "bookmark is in a different pool"),
                Err(_) => refused(Code::NoDataset, "dataset does not exist"),
            });
        }
        let pool = session.writer(&self.source).map_err(|error| self.not_made(error))?;
        edit::bookmark(&pool, &self.source, &self.name).map_err(|error| self.not_made(error))?;
        session.note_change(&self.source);
        Ok(())
    }
}

impl Request {
    fn not_made(&self, reason: impl Into<Reason>) -> Refusal {
        Refusal::NotMade { name: self.name.clone(), reason: reason.into() }
    }

    fn check_source(&self, session: &mut Session<'_>) -> Result<(), Refusal> {
        let source = self.source.as_str();
        let closed = |error: EditError| Refusal::Open(NotOpened::new(source, error));
        let view = session.view(source).map_err(closed)?;
        if source.contains('#') {
            names::check(source, Form::Bookmark).map_err(|error| closed(error.into()))?;
            let missing = |_| {
                let reason = Reason::new(Code::NoDataset, "no such pool or dataset");
                Refusal::Open(NotOpened { name: source.to_owned(), reason })
            };
            view.dsl().bookmark(source).map(drop).map_err(missing)
        } else {
            names::check(source, Form::Snapshot).map_err(|error| closed(error.into()))?;
            view.dataset(source).map(drop).map_err(|error| closed(error.into()))
        }
    }
}
