//! `zfs receive`: makes snapshots, and the datasets that they belong to, of a send stream.
//!
//! The stream is the input of the session ([`Session::set_input`]); what happens is told event by event
//! ([`Session::each`]).
//!
//! # Order
//! The operand is checked -> the first record is read -> the properties of `-o` and `-x` are checked -> of a package:
//! its list is read, and with `-F` datasets get the shape that they have at the sender -> stream by stream: where it
//! goes, whether it can, the caller's permissions; missing datasets above are made; the engine receives it, and at the
//! end a dataset whose contents are replaced is taken from its users -> properties, properties of snapshots, holds ->
//! new file systems are mounted.
//!
//! # What always holds
//! - A stream is received completely or, without `-s`, not at all; streams of a package that were received before stay,
//!   with their properties.
//! - An increment that is here already is passed over.
//! - A dry run (`-n`) reads the stream and changes nothing.
//!
//! Source: docs/on-disk/30-send-streams.md (sections 5 and 9), 33-cli.md (sections 5 and 6). Tests:
//! `crates/conformance/tests/it/receive.rs`.

pub mod abort;
mod finish;
mod one;
mod options;
mod package;
mod place;
mod refusal;
mod reshape;
mod shape;

pub use place::Naming;
pub use refusal::{Problem, Refusal, StreamKind};

use super::NotMounted;
use crate::Session;
use crate::mounting::MountRefusal;
use crate::verbs::{Reason, Right, Streamed, Verb, collect};
use dsl::prop::receive::Effect;
use finish::Touched;
use format::stream::{Begin, Record};
use one::Incoming;
use options::Options;
use package::Package;
use place::Place;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::ops::ControlFlow;
use std::time::Duration;
use stream::Reader;

/// Where and how a stream is received.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// Full name of a file system, volume or snapshot.
    pub target: String,
    /// How names of datasets are made (`-d`, `-e`).
    pub naming: Naming,
    /// Goes back to the start of the increment, whatever came later; overwrites a dataset without snapshots; gives
    /// datasets the shape of an incremental package (`-F`).
    pub force: bool,
    /// What has arrived of an interrupted stream is kept (`-s`).
    pub resumable: bool,
    /// New file systems are not mounted (`-u`).
    pub unmounted: bool,
    /// The file system is unmounted even if it is in use (`-M`).
    pub force_unmount: bool,
    /// Reads the stream, and changes nothing (`-n`).
    pub dry_run: bool,
    /// Damaged blocks of the snapshot, which exists, are rewritten (`-c`).
    pub heal: bool,
    /// Holds in the stream are passed over (`-h`).
    pub skip_holds: bool,
    /// Full name of the snapshot that the dataset is a clone of (`-o origin=`).
    pub origin: Option<String>,
    /// Properties to set, names and values, as users type them (`-o`).
    pub properties: Vec<(String, String)>,
    /// Names of properties that are not to take effect (`-x`).
    pub excluded: Vec<String>,
}

/// Something that happens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A stream begins.
    Begins {
        /// What it makes.
        kind: StreamKind,
        /// Name of the snapshot at the sender.
        from: String,
        /// Full name of the snapshot here.
        into: String,
    },
    /// The stream was received.
    Received {
        /// Full name of the snapshot.
        snapshot: String,
        /// Bytes of the stream behind its first record.
        bytes: u64,
        /// Blocks that were healed.
        healed: u64,
        /// The time that it took.
        took: Duration,
    },
    /// The increment is passed over: the snapshot is here.
    Exists {
        /// Full name of the snapshot.
        snapshot: String,
    },
    /// A dataset or snapshot was destroyed, because the sender has it no more.
    Destroyed {
        /// Full name.
        name: String,
    },
    /// A dataset or snapshot was renamed, as at the sender.
    Renamed {
        /// Old full name.
        from: String,
        /// New full name.
        to: String,
    },
    /// A clone was promoted, as at the sender.
    Promoted {
        /// Full name.
        dataset: String,
    },
    /// Something that the sender has done cannot be done here.
    Unchanged {
        /// Full name.
        name: String,
        /// Why.
        message: String,
    },
    /// A property was not received.
    PropertyRefused {
        /// Full name of the dataset or snapshot.
        dataset: String,
        /// The property.
        property: String,
        /// Why.
        reason: Reason,
    },
    /// A hold was not made.
    HoldRefused {
        /// Full name of the snapshot.
        snapshot: String,
        /// The tag.
        tag: String,
        /// Why.
        reason: Reason,
    },
    /// A file system that was made is not mounted.
    NotMounted(NotMounted),
    /// A file system that was mounted is not mounted again.
    NotMountedAgain(MountRefusal),
}

/// What has happened.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Answer {
    /// The events, in order.
    pub events: Vec<Event>,
}

impl Verb for Request {
    const NAME: &'static str = "zfs receive";
    const RIGHT: Right = Right::Delegated(&["receive", "create", "mount"]);
    type Answer = Answer;
    type Refusal = Refusal;

    fn run(&self, session: &mut Session<'_>) -> Result<Answer, Refusal> {
        collect(self, session).map(|events| Answer { events })
    }
}

impl Streamed for Request {
    type Item = Event;

    /// The sink cannot end the verb: who does not want more ends the input.
    fn each(
        &self,
        session: &mut Session<'_>,
        sink: &mut dyn FnMut(Event) -> ControlFlow<()>,
    ) -> Result<(), Refusal> {
        let input = session.take_input().ok_or_else(|| Problem::Unread.of(None))?;
        // Headers are read one by one.
        let reader = Reader::new(std::io::BufReader::with_capacity(BUFFER, input));
        let mut reader = match session.is_administrator() {
            true => reader,
            false => reader.with_list_max(LIST_OF_OTHERS_MAX),
        };
        Receiving::start(self, session, sink, &mut reader)
    }
}

/// Largest list of a package in bytes that a caller who is no administrator may send: a decoded list takes several times
/// its size in the memory of the server.
const LIST_OF_OTHERS_MAX: u64 = 8 << 20;

/// Bytes that are read at once: what a client of the daemon sends in one piece.
const BUFFER: usize = 64 << 10;

impl Request {
    /// One stream, into a dataset or snapshot of this name.
    pub fn of(target: impl Into<String>) -> Request {
        Request { target: target.into(), ..Request::default() }
    }
}

/// A receive in progress.
struct Receiving<'r, 's, 'p> {
    request: &'r Request,
    session: &'s mut Session<'p>,
    sink: &'r mut dyn FnMut(Event) -> ControlFlow<()>,
    options: Options,
    place: Place,
    package: Option<Package>,
    /// Datasets into which streams were received, in this order.
    touched: Vec<Touched>,
    /// Names and guids of the snapshots that a dry run would have made, by dataset.
    imagined: BTreeMap<String, BTreeSet<(String, u64)>>,
}

impl Receiving<'_, '_, '_> {
    fn start<R: Read>(
        request: &Request,
        session: &mut Session<'_>,
        sink: &mut dyn FnMut(Event) -> ControlFlow<()>,
        reader: &mut Reader<R>,
    ) -> Result<(), Refusal> {
        let target = request.target.as_str();
        place::check(target, request.naming).map_err(|error| named(target, error))?;
        ask_first(request, session)?;
        let frame = match reader.next_frame() {
            Ok(Some(frame)) => frame,
            Ok(None) => return Err(Problem::Unread.of(None)),
            Err(error) => return Err(Problem::of_stream(&error, true).of(None)),
        };
        let incoming = Incoming::new(frame).ok_or_else(|| Problem::NotAStream.of(None))?;
        let package = match incoming.begin.is_package() {
            true => Some(read_list(&incoming, reader)?),
            false => None,
        };
        let top = package.as_ref().map_or(incoming.dataset()?, |package| &package.top).to_owned();
        let mut receiving = Receiving {
            options: Options::check(request, &incoming.begin, package.as_ref())?,
            place: Place::new(target, request.naming, &top),
            package,
            request,
            session,
            sink,
            touched: Vec::new(),
            imagined: BTreeMap::new(),
        };
        receiving.check_target()?;
        let outcome = match receiving.package {
            None => receiving.receive(&incoming, reader),
            Some(_) => receiving.receive_package(reader),
        };
        // What was received by now has its properties, whatever came later.
        outcome.and(receiving.finish())
    }

    /// Tells an event.
    fn tell(&mut self, event: Event) {
        let _ = (self.sink)(event);
    }

    /// The operand of `-d` and `-e` exists; that of a package with several snapshots names none.
    fn check_target(&mut self) -> Result<(), Refusal> {
        let is_several = self.package.as_ref().is_some_and(|package| !package.is_single());
        if is_several && self.place.names_snapshot() {
            return Err(Problem::SeveralSnapshots.of(None));
        }
        if self.place.makes_ancestors() {
            let base = self.place.base().to_owned();
            super::operand::open_head(self.session, &base).map_err(|parent| Refusal::NoParent { parent })?;
        }
        Ok(())
    }

    /// Receives the streams of a package, up to its end.
    fn receive_package<R: Read>(&mut self, reader: &mut Reader<R>) -> Result<(), Refusal> {
        self.reshape()?;
        loop {
            let frame = reader.next_frame().map_err(|error| Problem::of_stream(&error, false).of(None))?;
            let frame = frame.ok_or_else(|| Problem::Incomplete.of(None))?;
            match frame.header.record {
                Record::End(_) => return Ok(()),
                Record::Begin(ref begin) if !begin.is_package() => {}
                _ => return Err(Problem::Invalid { detail: "no start of a stream".into() }.of(None)),
            }
            if let Some(incoming) = Incoming::new(frame) {
                self.receive(&incoming, reader)?;
            }
        }
    }
}

/// Asks for the permissions of a caller before anything is read: those to receive at the operand or at what there is above
/// it, and to set the properties of `-o`.
fn ask_first(request: &Request, session: &mut Session<'_>) -> Result<(), Refusal> {
    if session.is_administrator() || request.dry_run {
        return Ok(());
    }
    let target = request.target.as_str();
    let refused = |error: crate::edit::EditError| Problem::from(error).of(None);
    let pool = session.writer(target).map_err(refused)?;
    let Some(permit) = crate::edit::permit::of(&pool).map_err(refused)? else { return Ok(()) };
    let view = crate::edit::view(&pool).map_err(refused)?;
    let mut at = target.split('@').next().unwrap_or(target);
    while let (Err(_), Some((above, _))) = (view.dataset(at), at.rsplit_once('/')) {
        at = above;
    }
    let props =
        request.properties.iter().map(|(name, _)| crate::edit::permit::to_set(name)).collect::<Vec<_>>();
    let wanted: Vec<&str> =
        ["receive"].into_iter().chain(props.iter().map(std::convert::AsRef::as_ref)).collect();
    permit.ask(at, &wanted).map_err(refused)
}

/// The refusal of an operand.
fn named(name: &str, error: crate::edit::EditError) -> Refusal {
    Problem::Name { name: name.to_owned(), reason: error.into() }.of(None)
}

/// The list of a package whose start was read, and its end.
fn read_list<R: Read>(incoming: &Incoming, reader: &mut Reader<R>) -> Result<Package, Refusal> {
    let end = reader.next_frame().map_err(|error| Problem::of_stream(&error, false).of(None))?;
    match end.map(|frame| frame.header.record) {
        Some(Record::End(_)) => {}
        Some(_) => return Err(Problem::Invalid { detail: "no end of the list".into() }.of(None)),
        None => return Err(Problem::Incomplete.of(None)),
    }
    Package::decode(incoming.dataset()?, incoming.payload()).ok_or_else(|| Problem::List.of(None))
}

/// Whether the stream makes a new dataset.
fn kind_of(begin: &Begin) -> StreamKind {
    match begin.from_guid == 0 || is_clone(begin) {
        true => StreamKind::New,
        false => StreamKind::Incremental,
    }
}

/// The stream is the increment of a clone since its origin.
fn is_clone(begin: &Begin) -> bool {
    begin.flags & format::stream::flag::CLONE != 0
}
