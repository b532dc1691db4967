//! Why a stream is not sent, or not wholly.

use super::super::operand::NotOpened;
use super::Misuse;
use crate::AdminError;
use crate::edit::EditError;
use crate::verbs::{Code, Reason, Refused};
use cenote::error::chain;
use cenote::stream::send::SendError;
use dsl::DslError;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;

/// Why nothing is sent, or not all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    /// The caller may run no such verb.
    #[error("{0}")]
    Denied(Reason),
    /// The request contradicts itself.
    #[error("{0}")]
    Misuse(Misuse),
    /// The dataset cannot be opened.
    #[error("{0}")]
    Open(NotOpened),
    /// The token is none, or what it names is gone.
    #[error("cannot resume send: {problem}")]
    Token {
        /// What is wrong with it.
        problem: String,
    },
    /// What is to be left out is no dataset below a pool.
    #[error("-X {name}: not a valid non-root dataset name.")]
    Exclude {
        /// The name.
        name: String,
    },
    /// There is no such bookmark to start from.
    #[error("warning: cannot send '{name}': incremental source ({from}) does not exist")]
    NoSource {
        /// Full name of what is sent.
        name: String,
        /// Full name of the missing bookmark.
        from: String,
    },
    /// In a package, the start of an increment is the end of it, or later.
    #[error("WARNING: could not send {name}:\nincremental source ({from}) is not earlier than it")]
    SourceNotEarlier {
        /// Full name of the snapshot that is sent.
        name: String,
        /// Full name of the start.
        from: String,
    },
    /// A descendant lacks the snapshot.
    #[error(
        "cannot send {root} recursively: snapshot {dataset}@{snapshot} does not exist\n\
         warning: cannot send '{root}': backup failed"
    )]
    Missing {
        /// Full name of the snapshot that is sent.
        root: String,
        /// Full name of the descendant.
        dataset: String,
        /// Name of the missing snapshot.
        snapshot: String,
    },
    /// Properties of an encrypted dataset belong to its encrypted contents.
    #[error(
        "cannot send {root}: encrypted dataset {dataset} may not be sent with properties without the raw flag\n\
         warning: cannot send '{root}': backup failed"
    )]
    Encrypted {
        /// Full name of the snapshot that is sent.
        root: String,
        /// Full name of the encrypted dataset.
        dataset: String,
    },
    /// The list of snapshots and properties is too long for receivers.
    #[error(
        "warning: cannot send {root}: the list of snapshots and properties has {bytes} bytes, of at most {max}.\n\
         Select a smaller number of snapshots to send.\n\
         warning: cannot send '{root}': backup failed"
    )]
    ListTooLong {
        /// Full name of the snapshot that is sent.
        root: String,
        /// Bytes of the list.
        bytes: u64,
        /// The most that is permitted.
        max: u64,
    },
    /// A part cannot be sent. What was written until then is a stream without its end.
    #[error("warning: cannot send '{name}': {reason}")]
    NotSent {
        /// Full name of what is sent.
        name: String,
        /// Why.
        reason: Reason,
    },
    /// Nobody reads the stream any more.
    #[error("warning: cannot send '{name}': Broken pipe")]
    NoReader {
        /// Full name of what was being sent.
        name: String,
    },
    /// The caller has ended it.
    #[error("warning: cannot send '{name}': signal received")]
    Cancelled {
        /// Full name of what was being sent.
        name: String,
    },
}

from_denied!(Refusal, Refusal::Denied);

impl Refused for Refusal {
    fn reason(&self) -> Reason {
        match self {
            Refusal::Denied(reason)
            | Refusal::Open(NotOpened { reason, .. })
            | Refusal::NotSent { reason, .. } => reason.clone(),
            Refusal::NoSource { from, .. } => AdminError::NoDataset { name: from.clone() }.into(),
            Refusal::SourceNotEarlier { from, .. } => AdminError::NotEarlier { name: from.clone() }.into(),
            Refusal::Missing { dataset, snapshot, .. } => {
                AdminError::NoDataset { name: format!("{dataset}@{snapshot}") }.into()
            }
            Refusal::Misuse(_)
            | Refusal::Exclude { .. }
            | Refusal::Token { .. }
            | Refusal::Encrypted { .. }
            | Refusal::ListTooLong { .. }
            | Refusal::Cancelled { .. } => Reason::new(Code::Refused, self),
            Refusal::NoReader { .. } => Reason::new(Code::Failed, self),
        }
    }
}

/// `name` cannot be opened.
pub(super) fn open(name: &str, error: impl Into<Reason>) -> Refusal {
    Refusal::Open(NotOpened::new(name, error))
}

pub(super) fn no_dataset(name: &str) -> Refusal {
    open(name, AdminError::NoDataset { name: name.to_owned() })
}

/// `name` cannot be sent, because of an error of a layer below.
pub(super) fn not_sent(name: &str, error: impl Into<Reason>) -> Refusal {
    Refusal::NotSent { name: name.to_owned(), reason: error.into() }
}

/// `name` cannot be sent, because its dataset cannot be read.
pub(super) fn unreadable(name: &str, error: DslError) -> Refusal {
    not_sent(name, EditError::from(error))
}

/// What is sent does not come from the start of the increment.
pub(super) fn not_earlier(name: &str) -> Refusal {
    not_sent(name, Reason::new(Code::Refused, "not an earlier snapshot from the same fs"))
}

/// From an error of the engine.
pub(super) fn of_engine(name: &str, error: SendError) -> Refusal {
    let name = name.to_owned();
    match error {
        SendError::Write(cause) if cause.kind() == ErrorKind::BrokenPipe => Refusal::NoReader { name },
        SendError::Write(cause) => not_written(name, &cause),
        SendError::Cancelled => Refusal::Cancelled { name },
        SendError::Refused(why) => Refusal::NotSent { name, reason: Reason::new(Code::Refused, why) },
        other => Refusal::NotSent { name, reason: Reason::new(Code::Failed, chain(&other)) },
    }
}

/// The target cannot be written.
fn not_written(name: String, cause: &std::io::Error) -> Refusal {
    Refusal::NotSent { name, reason: Reason::new(Code::Failed, cenote::error::errno_text(cause)) }
}
