//! Why a stream is not received, in the words of OpenZFS (docs/on-disk/33-cli.md, section 6).

use super::super::operand::NotOpened;
use crate::edit::EditError;
use crate::mounting::MountRefusal;
use crate::verbs::{Code, Reason, Refused};
use cenote::error::chain;
use cenote::receive::ReceiveError;
use dsl::DslError;
use serde::{Deserialize, Serialize};
use std::fmt;
use stream::StreamError;

/// What a stream makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StreamKind {
    /// A new file system or volume: a full stream, or that of a clone.
    New,
    /// A later snapshot of a dataset that exists.
    Incremental,
}

/// Why not all of a stream was received. What was received before it stays.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    /// The caller may run no such verb.
    #[error("{0}")]
    Denied(Reason),
    /// The dataset above a new one cannot be opened.
    #[error("{parent}\ncannot receive new filesystem stream: unable to restore to destination")]
    NoParent {
        /// The dataset above.
        parent: NotOpened,
    },
    /// A file system cannot be unmounted (`-M`).
    #[error("{0}")]
    Mount(MountRefusal),
    /// The stream as a whole, or one in it, is not received.
    #[error("cannot receive{}: {problem}", of_kind(*kind))]
    Stream {
        /// What the stream makes, as far as that is known.
        kind: Option<StreamKind>,
        /// Why it is not received.
        problem: Problem,
    },
}

fn of_kind(kind: Option<StreamKind>) -> &'static str {
    match kind {
        Some(StreamKind::New) => " new filesystem stream",
        Some(StreamKind::Incremental) => " incremental stream",
        None => "",
    }
}

from_denied!(Refusal, Refusal::Denied);

/// What is wrong with a stream, or with the dataset that it is received into.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Problem {
    /// There is no stream, or it cannot be read.
    #[error("failed to read from stream")]
    Unread,
    /// The first record is not the start of a stream.
    #[error("invalid stream (bad magic number)")]
    NotAStream,
    /// The name in the stream is not that of a snapshot.
    #[error("invalid stream (bad snapshot name)")]
    SentName,
    /// The list at the start of a package is malformed.
    #[error("invalid stream (malformed nvlist)")]
    List,
    /// The stream is damaged.
    #[error("invalid stream (checksum mismatch)")]
    Checksum,
    /// A record breaks a rule.
    #[error("invalid backup stream")]
    Invalid {
        /// The violation.
        detail: String,
    },
    /// The stream ends too early.
    #[error("incomplete stream")]
    Incomplete,
    /// The stream is damaged or ends too early; what has arrived is kept (`-s`).
    #[error(
        "checksum mismatch or incomplete stream.\nPartially received snapshot is saved.\n\
         A resuming stream can be generated on the sending system by running:\n    zfs send -t {token}"
    )]
    Saved {
        /// The resume token.
        token: String,
    },
    /// The stream refers to earlier blocks.
    #[error("stream is deduplicated\nuse 'zstream redup' to make a stream without references of it")]
    Deduplicated,
    /// The stream has features that are unknown.
    #[error("stream has unsupported feature, feature flags = {flags:x} (unknown flags = {unknown:x})")]
    UnknownFeatures {
        /// All feature flags of the stream.
        flags: u64,
        /// The unknown ones.
        unknown: u64,
    },
    /// The pool lacks a feature.
    #[error("pool must be upgraded to receive this stream.\nthe stream needs the feature '{feature}'")]
    NeedsFeature {
        /// The feature.
        feature: String,
    },
    /// This version does not receive such streams.
    #[error("{what}")]
    Unsupported {
        /// What is not received.
        what: String,
    },
    /// A package has several snapshots, and one name was given.
    #[error("cannot specify snapshot name for multi-snapshot stream")]
    SeveralSnapshots,
    /// A name that no dataset can have.
    #[error("{reason}: '{name}'")]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        reason: Reason,
    },
    /// A property of `-o` or `-x` that cannot be set.
    #[error("{reason}")]
    Property {
        /// The property, as users type it.
        property: String,
        /// Why.
        reason: Reason,
    },
    /// The dataset exists.
    #[error("destination '{dataset}' exists\nmust specify -F to overwrite it")]
    Exists {
        /// Full name.
        dataset: String,
    },
    /// The dataset has snapshots, which are not overwritten.
    #[error("destination has snapshots (eg. {snapshot})\nmust destroy them to overwrite it")]
    HasSnapshots {
        /// Full name of one of them.
        snapshot: String,
    },
    /// The dataset is a clone, which is not overwritten.
    #[error("destination '{dataset}' is a clone\nmust destroy it to overwrite it")]
    IsClone {
        /// Full name.
        dataset: String,
    },
    /// There is another snapshot of this name.
    #[error("destination snapshot '{snapshot}' already exists")]
    SnapshotExists {
        /// Full name.
        snapshot: String,
    },
    /// The dataset of an increment does not exist.
    #[error("destination '{dataset}' does not exist")]
    Missing {
        /// Full name.
        dataset: String,
    },
    /// The origin of a clone is not here.
    #[error("local origin for clone {snapshot} does not exist")]
    NoOrigin {
        /// Full name of the clone's snapshot.
        snapshot: String,
    },
    /// The increment does not begin with a snapshot of the dataset.
    #[error("most recent snapshot of {dataset} does not\nmatch incremental source")]
    NoSource {
        /// Full name.
        dataset: String,
    },
    /// The dataset has changed.
    #[error("destination {dataset} has been modified\nsince most recent snapshot")]
    Modified {
        /// Full name.
        dataset: String,
    },
    /// An earlier receive can be resumed.
    #[error("destination {dataset} contains partially-complete state from \"zfs receive -s\".")]
    PartialState {
        /// Full name.
        dataset: String,
    },
    /// There is nothing that the stream continues.
    #[error("destination {dataset} has no state that this stream resumes")]
    NotResumable {
        /// Full name.
        dataset: String,
    },
    /// The dataset is in use.
    #[error("destination '{dataset}' is busy: {why}")]
    Busy {
        /// Full name.
        dataset: String,
        /// What uses it.
        why: String,
    },
    /// A quota of the dataset, or of one above it, is used up.
    #[error("destination {dataset} space quota exceeded.")]
    Quota {
        /// Full name.
        dataset: String,
    },
    /// The parent is no file system.
    #[error("parent of '{dataset}' is not a filesystem")]
    WrongParent {
        /// Full name.
        dataset: String,
    },
    /// The dataset was received with large blocks, and the stream has none.
    #[error("incremental send stream requires -L (--large-block), to match previous receive.")]
    LargeBlocks,
    /// The raw stream is of another encryption key than the dataset.
    #[error("encryption key does not match existing key")]
    OtherKey {
        /// Full name of the dataset.
        dataset: String,
    },
    /// The snapshot from which a raw increment starts does not record its IV set.
    #[error("IV set guid missing. See errata 4 at https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-ER.")]
    NoIvSet,
    /// A raw increment starts from a snapshot that was not received raw.
    #[error(
        "IV set guid mismatch. See the 'zfs receive' man page section
 discussing the limitations of raw encrypted send streams."
    )]
    OtherIvSet,
    /// A full stream would replace an encrypted dataset, or make one of a dataset that is not.
    #[error(
        "zfs receive -F cannot be used to destroy an encrypted filesystem or overwrite an unencrypted one with an encrypted one"
    )]
    EncryptedOverwrite {
        /// Full name of the dataset.
        dataset: String,
    },
    /// A raw increment is for a dataset that is not encrypted.
    #[error("cannot perform raw receive on top of existing unencrypted dataset")]
    NotEncrypted {
        /// Full name of the dataset.
        dataset: String,
    },
    /// The redaction of the stream does not match.
    #[error("stream has redaction that {dataset} does not match")]
    Redacted {
        /// Full name.
        dataset: String,
    },
    /// Another reason of a layer below.
    #[error("{reason}")]
    Other {
        /// The reason.
        reason: Reason,
    },
}

impl Problem {
    /// From an error of reading the stream.
    pub(super) fn of_stream(error: &StreamError, is_first: bool) -> Problem {
        match error {
            StreamError::TooShort if is_first => Problem::Unread,
            StreamError::NotAStream | StreamError::TooShort => Problem::NotAStream,
            StreamError::Read { .. } | StreamError::Cut { .. } if is_first => Problem::Unread,
            StreamError::Read { .. } | StreamError::Cut { .. } => Problem::Incomplete,
            StreamError::Checksum { .. } => Problem::Checksum,
            StreamError::Deduplicated => Problem::Deduplicated,
            other => Problem::Invalid { detail: chain(other) },
        }
    }

    /// From an error of receiving a stream with these features into a dataset.
    pub(super) fn of_receive(error: ReceiveError, dataset: &str, snapshot: &str, features: u64) -> Problem {
        let named = || dataset.to_owned();
        match error {
            ReceiveError::Stream(error) => Problem::of_stream(&error, false),
            ReceiveError::UnknownFeatures(unknown) => Problem::UnknownFeatures { flags: features, unknown },
            ReceiveError::NeedsFeature(feature) => Problem::NeedsFeature { feature: feature.to_owned() },
            ReceiveError::Unsupported(what) => Problem::Unsupported { what: what.to_owned() },
            ReceiveError::Invalid(detail) => Problem::Invalid { detail: detail.to_owned() },
            ReceiveError::Exists(dataset) => Problem::Exists { dataset },
            ReceiveError::SnapshotExists(_) => {
                Problem::SnapshotExists { snapshot: format!("{dataset}@{snapshot}") }
            }
            ReceiveError::Missing(_) => Problem::Missing { dataset: named() },
            ReceiveError::NoSource => Problem::NoSource { dataset: named() },
            ReceiveError::Modified => Problem::Modified { dataset: named() },
            ReceiveError::PartialState => Problem::PartialState { dataset: named() },
            ReceiveError::Busy => Problem::Busy { dataset: named(), why: "it is in use".into() },
            ReceiveError::Kept(why) => Problem::Busy { dataset: named(), why },
            ReceiveError::WrongParent => Problem::WrongParent { dataset: named() },
            ReceiveError::LargeBlockMismatch => Problem::LargeBlocks,
            ReceiveError::NotResumable => Problem::NotResumable { dataset: named() },
            ReceiveError::OtherKey(_) => Problem::OtherKey { dataset: named() },
            ReceiveError::NoIvSet(_) => Problem::NoIvSet,
            ReceiveError::OtherIvSet(_) => Problem::OtherIvSet,
            ReceiveError::EncryptedOverwrite(_) => Problem::EncryptedOverwrite { dataset: named() },
            ReceiveError::NotEncrypted(_) => Problem::NotEncrypted { dataset: named() },
            ReceiveError::Redacted => Problem::Redacted { dataset: named() },
            ReceiveError::Dsl(DslError::Quota { .. }) => Problem::Quota { dataset: named() },
            ReceiveError::Dsl(error) => EditError::from(error).into(),
            ReceiveError::Pool(error) => EditError::from(error).into(),
            other => Problem::Other { reason: Reason::new(Code::Failed, chain(&other)) },
        }
    }

    /// The stream is damaged, or ends too early.
    pub(super) fn is_of_transfer(&self) -> bool {
        matches!(self, Problem::Incomplete | Problem::Checksum)
    }

    fn code(&self) -> Code {
        match self {
            Problem::Name { .. } | Problem::SentName => Code::Name,
            Problem::Property { reason, .. } | Problem::Other { reason } => reason.code,
            Problem::Exists { .. } | Problem::SnapshotExists { .. } | Problem::HasSnapshots { .. } => {
                Code::Exists
            }
            Problem::Missing { .. } | Problem::NoOrigin { .. } => Code::NoDataset,
            Problem::Busy { .. } => Code::Busy,
            Problem::Quota { .. } => Code::NoSpace,
            Problem::WrongParent { .. } => Code::ParentNotFilesystem,
            Problem::Unsupported { .. } => Code::Unsupported,
            Problem::Unread | Problem::Checksum | Problem::Incomplete | Problem::Saved { .. } => Code::Failed,
            _ => Code::Refused,
        }
    }
}

impl From<EditError> for Problem {
    fn from(error: EditError) -> Problem {
        Problem::Other { reason: error.into() }
    }
}

impl Problem {
    /// The refusal of a stream of this kind.
    pub(super) fn of(self, kind: Option<StreamKind>) -> Refusal {
        Refusal::Stream { kind, problem: self }
    }
}

impl Refused for Refusal {
    fn reason(&self) -> Reason {
        match self {
            Refusal::Denied(reason) | Refusal::NoParent { parent: NotOpened { reason, .. } } => {
                reason.clone()
            }
            Refusal::Mount(refusal) => refusal.into(),
            Refusal::Stream { problem, .. } => {
                let about = match problem {
                    Problem::Exists { dataset }
                    | Problem::Quota { dataset }
                    | Problem::IsClone { dataset }
                    | Problem::Missing { dataset }
                    | Problem::NoSource { dataset }
                    | Problem::Modified { dataset }
                    | Problem::PartialState { dataset } => vec![dataset.clone()],
                    Problem::SnapshotExists { snapshot } | Problem::HasSnapshots { snapshot } => {
                        vec![snapshot.clone()]
                    }
                    _ => Vec::new(),
                };
                Reason { code: problem.code(), about, message: problem.to_string() }
            }
        }
    }
}

impl fmt::Display for StreamKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StreamKind::New => "full",
            StreamKind::Incremental => "incremental",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::carried;

    #[test]
    fn refusals_are_in_the_words_of_openzfs() {
        let text = |kind, problem: Problem| carried(&problem.of(kind)).to_string();
        let (new, incremental) = (Some(StreamKind::New), Some(StreamKind::Incremental));
        let dataset = || "tank/r".to_owned();
        assert_eq!(
            text(new, Problem::Exists { dataset: dataset() }),
            "cannot receive new filesystem stream: destination 'tank/r' exists\nmust specify -F to overwrite it"
        );
        assert_eq!(
            text(new, Problem::HasSnapshots { snapshot: "tank/r@a".into() }),
            "cannot receive new filesystem stream: destination has snapshots (eg. tank/r@a)\n\
             must destroy them to overwrite it"
        );
        assert_eq!(
            text(incremental, Problem::Modified { dataset: dataset() }),
            "cannot receive incremental stream: destination tank/r has been modified\n\
             since most recent snapshot"
        );
        assert_eq!(
            text(incremental, Problem::NoSource { dataset: dataset() }),
            "cannot receive incremental stream: most recent snapshot of tank/r does not\n\
             match incremental source"
        );
        assert_eq!(
            text(incremental, Problem::Missing { dataset: dataset() }),
            "cannot receive incremental stream: destination 'tank/r' does not exist"
        );
        assert_eq!(text(None, Problem::Unread), "cannot receive: failed to read from stream");
        assert_eq!(text(None, Problem::NotAStream), "cannot receive: invalid stream (bad magic number)");
        assert_eq!(text(new, Problem::Incomplete), "cannot receive new filesystem stream: incomplete stream");
        assert_eq!(
            text(new, Problem::Saved { token: "1-a-b-c".into() }),
            "cannot receive new filesystem stream: checksum mismatch or incomplete stream.\n\
             Partially received snapshot is saved.\n\
             A resuming stream can be generated on the sending system by running:\n    zfs send -t 1-a-b-c"
        );
        let reason = Reason::from(EditError::NoDataset { name: "tank/none".into() });
        let parent = NotOpened { name: "tank/none".into(), reason };
        assert_eq!(
            carried(&Refusal::NoParent { parent }).to_string(),
            "cannot open 'tank/none': dataset does not exist\n\
             cannot receive new filesystem stream: unable to restore to destination"
        );
    }
}
