//! `zfs send`: snapshots as a stream, from which `zfs receive` makes them again.
//!
//! [`Session::run`] tells what would be sent, and how many bytes about; [`Session::write`] sends it.
//!
//! # Order
//! The request is checked -> the caller's permission at each dataset, unless it only asks -> what is sent is planned
//! (`plan`: one part for each snapshot) -> the snapshots are held, so that nobody destroys them -> the header of a package (`package`) ->
//! the parts, one after the other -> the end of the package.
//!
//! # What always holds
//! - Nothing is written before everything is planned, permitted and held: what can be refused leaves no bytes.
//! - All parts come from one view of the pool, whose blocks are not reused meanwhile.
//!
//! Source: docs/on-disk/30-send-streams.md (sections 4 to 7), 33-cli.md (sections 5, 6).

mod from;
mod misuse;
mod package;
mod plan;
mod refusal;
mod resume;
#[cfg(test)]
mod tests;
mod tree;
mod write;

pub use misuse::Misuse;
pub use refusal::Refusal;
pub use write::SEND_CORRUPT_DATA;

use crate::verbs::{Right, Verb, Written};
use crate::{OpenPool, Session};
use plan::Plan;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::Write;
use std::ops::ControlFlow;

/// What is to be sent, and how.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// Full name of a snapshot; or of a file system or volume, which is sent as it is on disk. Empty with `resume`.
    pub dataset: String,
    /// Start of an increment: a snapshot or bookmark, by its full name or the part from `@` or `#` on; a word without
    /// either is a snapshot of the dataset.
    pub from: Option<String>,
    /// All snapshots since `from` are sent, not only the last (`-I`).
    pub intermediate: bool,
    /// Descendants, earlier snapshots and clones are sent too (`-R`).
    pub replicate: bool,
    /// Full names of datasets that are left out of `replicate`, with their descendants (`-X`).
    pub exclude: Vec<String>,
    /// Descendants that lack the snapshot are left out of `replicate`; otherwise they refuse it (`-s`).
    pub skip_missing: bool,
    /// Properties are sent too (`-p`).
    pub props: bool,
    /// Of properties, the values that were received are sent (`-b`).
    pub backup: bool,
    /// Holds are sent too (`-h`).
    pub holds: bool,
    /// Blocks of more than 128 KiB are sent whole (`-L`).
    pub large_blocks: bool,
    /// Blocks embedded in pointers are sent as they are (`-e`).
    pub embedded: bool,
    /// Compressed blocks are sent as they are (`-c`).
    pub compressed: bool,
    /// Blocks are sent as they are on disk, encrypted ones included (`-w`).
    pub raw: bool,
    /// What a file system has received of an interrupted stream is sent (`-S`).
    pub saved: bool,
    /// The token of an interrupted receive, which is continued (`-t`).
    pub resume: Option<String>,
    /// A redaction bookmark: what it lists is left out (`--redact`).
    pub redact: Option<String>,
    /// The sizes of the parts are estimated before they are sent; [`Session::run`] always does so.
    pub estimate: bool,
    /// Greatest number of bytes of the list that precedes a package; 0: any. `None`: 64 MiB.
    pub list_bytes_max: Option<u64>,
}

/// What is sent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Answer {
    /// In the order of the stream.
    pub parts: Vec<Part>,
    /// What `replicate` leaves out because the snapshot is missing, without its descendants.
    pub skipped: Vec<Skipped>,
    /// Full names of the snapshots that `replicate` leaves out because they are later than the one that is sent.
    pub later: Vec<String>,
}

/// One snapshot in a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Full name of the snapshot, file system or volume.
    pub name: String,
    /// Start of the increment: a full name, or `@snapshot` of the same dataset in a package. `None`: all is sent.
    pub from: Option<String>,
    /// Bytes: estimated before, counted after it was sent. `None`: not estimated.
    pub bytes: Option<u64>,
}

/// A dataset that lacks the snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Full name.
    pub dataset: String,
    /// Name of the snapshot: the part after `@`.
    pub snapshot: String,
    /// The dataset is newer than the snapshot.
    pub is_newer: bool,
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Skipped { dataset, snapshot, is_newer } = self;
        match is_newer {
            true => write!(f, "skipping dataset {dataset}: snapshot {snapshot} does not exist"),
            false => write!(
                f,
                "WARNING: skipping dataset {dataset} and its children: snapshot {snapshot} does not exist"
            ),
        }
    }
}

/// What happens while a stream is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// All is planned, and nothing was written yet.
    Planned(Answer),
    /// The part with this number, from 0, begins.
    Begins(usize),
    /// So many bytes of this part were written by now. Comes often.
    Bytes(u64),
}

impl Answer {
    /// Sum of the bytes of all parts.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().filter_map(|part| part.bytes).fold(0, u64::saturating_add)
    }
}

impl Verb for Request {
    const NAME: &'static str = "zfs send";
    const RIGHT: Right = Right::Delegated(&["send"]);
    type Answer = Answer;
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, Refusal> {
        let (_pools, plan) = self.plan(session, true)?;
        plan.answer(session, true)
    }
}

impl Written for Request {
    type Event = Event;

    fn write(
        &self,
        session: &mut Session<'_>,
        out: &mut dyn Write,
        on: &mut dyn FnMut(Event) -> ControlFlow<()>,
    ) -> Result<Answer, Refusal> {
        let (pools, plan) = self.plan(session, false)?;
        write::write(&plan, &pools, session, self.estimate, out, on)
    }
}

impl Request {
    /// A full stream of a snapshot, or of a file system or volume.
    pub fn of(dataset: impl Into<String>) -> Request {
        Request { dataset: dataset.into(), ..Request::default() }
    }

    /// Checks the request and plans the stream. The pools are to be kept as long as the plan.
    fn plan(&self, session: &mut Session<'_>, dry: bool) -> Result<(Vec<OpenPool>, Plan), Refusal> {
        misuse::check(self)?;
        if let Some(token) = &self.resume {
            return resume::of_token(self, token, session, dry);
        }
        let pools = plan::open(session, &self.dataset)?;
        let plan = match (pools.first(), self.saved) {
            (None, _) => return Err(refusal::no_dataset(&self.dataset)),
            (Some(pool), true) => resume::saved(self, session, pool, dry)?,
            (Some(pool), false) => plan::plan(self, session, pool, dry)?,
        };
        Ok((pools, plan))
    }

    /// It may be about several snapshots.
    fn is_several(&self) -> bool {
        self.replicate || self.intermediate
    }

    /// Properties, holds or the tree are listed before the parts.
    fn has_list(&self) -> bool {
        self.replicate || self.props || self.backup || self.holds
    }

    /// The stream is a package: it has a header.
    fn is_package(&self) -> bool {
        self.has_list() || self.intermediate
    }
}

#[cfg(test)]
mod data_tests {
    use super::*;
    use crate::verbs::{Code, Refused, carried};

    #[test]
    fn requests_answers_and_refusals_cross_a_process() {
        carried(&Request { from: Some("@1".into()), exclude: vec!["t/b".into()], ..Request::of("t/a@2") });
        let part = |bytes| Part { name: "t/a@2".into(), from: Some("@1".into()), bytes: Some(bytes) };
        let skipped = Skipped { dataset: "t/b".into(), snapshot: "2".into(), is_newer: true };
        let later = vec!["t/a@3".into()];
        let answer = Answer { parts: vec![part(5), part(7)], skipped: vec![skipped], later };
        assert_eq!(carried(&answer).bytes(), 12);
        assert_eq!(answer.skipped[0].to_string(), "skipping dataset t/b: snapshot 2 does not exist");
        carried(&Event::Planned(answer));
        let refusal = carried(&Refusal::Misuse(Misuse::ManyFromBookmark));
        assert_eq!(refusal.to_string(), "Error: multiple snapshots cannot be sent from a bookmark.");
        assert_eq!(refusal.reason().code, Code::Refused);
        let refusal = refusal::not_earlier("t/a@1");
        let text = "warning: cannot send 't/a@1': not an earlier snapshot from the same fs";
        assert_eq!(carried(&refusal).to_string(), text);
        assert_eq!(refusal::no_dataset("t/a@x").to_string(), "cannot open 't/a@x': dataset does not exist");
    }
}
