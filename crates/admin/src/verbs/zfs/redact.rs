//! `zfs redact`: makes a redaction bookmark of a snapshot, which lists the blocks that none of the redaction snapshots
//! has. A stream of the snapshot that is sent with it lacks these blocks.
//!
//! # Order
//! The names -> all snapshots are found -> the redaction snapshots descend from the snapshot -> the trees are compared
//! -> a task makes the bookmark, if the snapshot is still the same.
//!
//! Source: docs/on-disk/30-send-streams.md (section 10); the messages and exit codes of OpenZFS 2.3.2.

use super::operand::NotOpened;
use crate::Session;
use crate::edit::{self, EditError};
use crate::verbs::{Code, Reason, Refused, Right, Verb};
use cenote::{Dataset, Pool};
use dsl::bookmark::{Bookmark, BookmarkError, NewRedaction, unneeded};
use dsl::{DslError, name};
use serde::{Deserialize, Serialize};

/// A redaction bookmark to make.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// Full name of the snapshot.
    pub snapshot: String,
    /// Name of the bookmark: the part after `#`.
    pub bookmark: String,
    /// Full names of the redaction snapshots: later snapshots of the same dataset, of its clones, and so on; or heads, as
    /// they are now.
    pub redaction_snapshots: Vec<String>,
}

/// The bookmark is made.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Answer {
    /// Number of ranges of blocks in its list.
    pub ranges: u64,
}

/// Why no bookmark was made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    /// The caller may run no such verb.
    #[error("{0}")]
    Denied(Reason),
    /// One of the snapshots cannot be opened.
    #[error("{closed}\nprovided snapshot {} does not exist", closed.name)]
    Open {
        /// Which, and why.
        closed: NotOpened,
    },
    /// The name of the bookmark is a full one.
    #[error("redaction bookmark name must not contain '#'")]
    FullName,
    /// There is a bookmark of this name.
    #[error("specified redaction bookmark ({bookmark}) provided already exists")]
    Exists {
        /// The part of its name after `#`.
        bookmark: String,
    },
    /// A redaction snapshot is not later than the snapshot, or has another history.
    #[error("redaction snapshot must be descendent of snapshot being redacted")]
    NotDescendant {
        /// The redaction snapshot.
        snapshot: String,
    },
    /// A dataset was received from a redacted stream itself.
    #[error("attempted to redact redacted dataset or with respect to redacted dataset")]
    Redacted {
        /// The snapshot.
        snapshot: String,
    },
    /// The pool lacks the feature.
    #[error("redaction bookmarks feature not enabled")]
    NoFeature,
    /// Another reason.
    #[error("cannot redact '{snapshot}': {reason}")]
    NotMade {
        /// The snapshot.
        snapshot: String,
        /// Why.
        reason: Reason,
    },
}

from_denied!(Refusal, Refusal::Denied);

impl Refused for Refusal {
    fn reason(&self) -> Reason {
        let code = match self {
            Refusal::Denied(reason)
            | Refusal::Open { closed: NotOpened { reason, .. } }
            | Refusal::NotMade { reason, .. } => return reason.clone(),
            Refusal::FullName => Code::Name,
            Refusal::Exists { .. } => Code::Exists,
            Refusal::NoFeature => Code::Unsupported,
            Refusal::NotDescendant { .. } | Refusal::Redacted { .. } => Code::Refused,
        };
        Reason::new(code, self)
    }
}

impl Verb for Request {
    const NAME: &'static str = "zfs redact";
    const RIGHT: Right = Right::Administrator;
    type Answer = Answer;
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, Refusal> {
        if self.bookmark.contains('#') {
            return Err(Refusal::FullName);
        }
        let source = open(session, &self.snapshot)?;
        let mut by = Vec::new();
        for name in &self.redaction_snapshots {
            by.push(open(session, name)?);
        }
        let head = self.snapshot.split('@').next().unwrap_or_default().to_owned();
        let full = format!("{head}#{}", self.bookmark);
        name::check_new(&full).map_err(|error| self.not_made(error))?;
        let view = session.view(&self.snapshot).map_err(|error| self.not_made(error))?;
        if view.dsl().bookmark(&full).is_ok() {
            return Err(Refusal::Exists { bookmark: self.bookmark.clone() });
        }
        self.check_history(&source, &by)?;
        let list = self.list(&source, &by)?;
        let ranges = list.ranges.len() as u64;
        self.make(session, &view, &source, head, list)?;
        session.note_change(&self.snapshot);
        Ok(Answer { ranges })
    }
}

fn open(session: &mut Session<'_>, name: &str) -> Result<Dataset, Refusal> {
    let found = session.view(name).and_then(|view| Ok(view.dataset(name)?));
    found.map_err(|error| Refusal::Open { closed: NotOpened::new(name, error) })
}

impl Request {
    fn not_made(&self, reason: impl Into<EditError>) -> Refusal {
        Refusal::NotMade { snapshot: self.snapshot.clone(), reason: reason.into().into() }
    }

    fn check_history(&self, source: &Dataset, by: &[Dataset]) -> Result<(), Refusal> {
        let read = |error: DslError| self.not_made(error);
        let id = source.dsl().id();
        for (dataset, name) in by.iter().zip(&self.redaction_snapshots) {
            let mut descends = false;
            // Object numbers of another pool tell nothing.
            if edit::pool_of(name) != edit::pool_of(&self.snapshot) {
                return Err(Refusal::NotDescendant { snapshot: name.clone() });
            }
            let mut at = dataset.dsl().previous().map_err(read)?;
            while let Some(previous) = at.filter(|_| source.dsl().is_snapshot()) {
                if previous.id() == id {
                    descends = true;
                    break;
                }
                at = previous.previous().map_err(read)?;
            }
            if !descends {
                return Err(Refusal::NotDescendant { snapshot: name.clone() });
            }
        }
        let all = by.iter().zip(&self.redaction_snapshots).chain([(source, &self.snapshot)]);
        for (dataset, name) in all {
            if dataset.dsl().redact_snaps().map_err(read)?.is_some() {
                return Err(Refusal::Redacted { snapshot: name.clone() });
            }
        }
        Ok(())
    }

    fn list(&self, source: &Dataset, by: &[Dataset]) -> Result<NewRedaction, Refusal> {
        let find = || -> Result<NewRedaction, DslError> {
            let open = |dataset: &Dataset| dataset.dsl().open_objset();
            let sets = by.iter().map(open).collect::<Result<Vec<_>, _>>()?;
            let ranges = unneeded(&open(source)?, &sets)?;
            Ok(NewRedaction {
                snapshots: by.iter().map(|dataset| dataset.dsl().phys().guid).collect(),
                ranges,
            })
        };
        find().map_err(|error| self.not_made(error))
    }

    fn make(
        &self,
        session: &mut Session<'_>,
        view: &Pool,
        source: &Dataset,
        head: String,
        list: NewRedaction,
    ) -> Result<(), Refusal> {
        let pool = session.writer(view.name()).map_err(|error| self.not_made(error))?;
        let (snapshot, mark) = (self.snapshot.clone(), self.bookmark.clone());
        let guid = source.dsl().phys().guid;
        let made = edit::run(&pool, move |ctx| {
            let dsl = ctx.dsl()?;
            let missing = || DslError::NotFound { name: snapshot.clone() };
            // It may have been destroyed, and another one have its name.
            let found = dsl.dataset(&snapshot)?;
            let dataset =
                dsl.dir(&head)?.head()?.filter(|_| found.phys().guid == guid).ok_or_else(missing)?;
            Bookmark::create_redaction(ctx.m(), dataset.id(), found.id(), &mark, &list)?;
            let (txg, id) = (found.phys().creation_txg, found.id());
            let list = Bookmark::get(ctx.m(), dataset.id(), &mark)?.and_then(|phys| phys.v2?.redaction);
            let list = list.map_or(0, |object| object.0);
            let text = format!("name={mark} creation_txg={txg} target_snap={id} redact_obj={list}");
            ctx.note("bookmark", Some((&head, dataset.id())), text);
            Ok(())
        });
        made.map_err(|error| match error {
            EditError::Refused(DslError::FeatureDisabled { .. }) => Refusal::NoFeature,
            EditError::Refused(DslError::Bookmark(BookmarkError::Exists)) => {
                Refusal::Exists { bookmark: self.bookmark.clone() }
            }
            error => Refusal::NotMade { snapshot: self.snapshot.clone(), reason: error.into() },
        })
    }
}
