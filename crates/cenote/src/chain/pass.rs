//! The pass over all streams that makes an index: each stream is received into the pool of the index, in the order in
//! which they follow each other.
//!
//! # Order
//! Every file is read up to the start of its first snapshot -> of the streams that can be received now, the one of the
//! dataset that comes first -> its file is read up to the next start -> until all files are at their ends.

use super::device::Building;
use super::error::ChainError;
use super::names::{self, Names};
use super::source::Source;
use super::store::ChainSnapshot;
use crate::PoolWriter;
use crate::receive::{Receive, Watch};
use dsl::create::{NewHead, create};
use format::objset::ObjsetType;
use format::stream::{Begin, HEADER_SIZE, Record, flag};
use pool::LivePool;
use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stream::{Frame, Reader, StreamError};

/// Type of the object set of a volume.
const OBJSET_VOLUME: u32 = 3;
/// Payloads that are noted before the pool is made to write all of them.
const NOTED_MAX: usize = 1 << 15;

/// Told how far a pass is: the file, and the bytes of it that were read.
pub type Progress<'p> = &'p mut dyn FnMut(&Path, u64);

/// A file within a pass.
pub(super) struct Cursor {
    number: usize,
    file: PathBuf,
    reader: Reader<Box<dyn Read + Send>>,
    /// The start of the next snapshot; `None`: the file is at its end.
    next: Option<Frame>,
    is_package: bool,
    has_snapshot: bool,
}

impl Cursor {
    /// Reads a file up to the start of its first snapshot.
    pub(super) fn new(number: usize, source: &mut Source) -> Result<Cursor, ChainError> {
        let (file, reader) = (source.name.clone(), Reader::new(source.read()?));
        let mut cursor = Cursor { number, file, reader, next: None, is_package: false, has_snapshot: false };
        cursor.advance()?;
        if cursor.next.is_none() {
            return Err(ChainError::Empty { file: cursor.file });
        }
        Ok(cursor)
    }

    fn stream_error(&self, cause: StreamError) -> ChainError {
        ChainError::Stream { file: self.file.clone(), cause }
    }

    fn frame(&mut self) -> Result<Option<Frame>, ChainError> {
        self.reader.next_frame().map_err(|cause| ChainError::Stream { file: self.file.clone(), cause })
    }

    /// Reads up to the start of the next snapshot.
    fn advance(&mut self) -> Result<(), ChainError> {
        self.next = None;
        while let Some(frame) = self.frame()? {
            match &frame.header.record {
                Record::Begin(begin) if begin.is_package() => self.is_package = true,
                Record::Begin(_) => {
                    (self.next, self.has_snapshot) = (Some(frame), true);
                    return Ok(());
                }
                // The end of the header of a package, or of the package.
                Record::End(end) if self.is_package => {
                    if end.to_guid == 0 && self.has_snapshot {
                        self.is_package = false;
                    }
                }
                _ => {
                    let problem = "a record outside of a stream";
                    return Err(self.stream_error(StreamError::Invalid { at: frame.at, problem }));
                }
            }
        }
        if self.is_package && self.has_snapshot {
            return Err(self.stream_error(StreamError::Cut { at: self.reader.position() }));
        }
        Ok(())
    }

    /// Passes over the present stream.
    fn skip(&mut self) -> Result<(), ChainError> {
        while let Some(frame) = self.frame()? {
            if matches!(frame.header.record, Record::End(_)) {
                return self.advance();
            }
        }
        Err(self.stream_error(StreamError::Cut { at: self.reader.position() }))
    }

    /// The start of the next snapshot.
    pub(super) fn begin(&self) -> Option<&Begin> {
        match &self.next.as_ref()?.header.record {
            Record::Begin(begin) => Some(begin),
            _ => None,
        }
    }
}

/// A snapshot that was received.
struct Known {
    /// Full name of its dataset in the pool.
    dataset: String,
    /// Name of the snapshot.
    snapshot: String,
    /// The file with its stream, and its name there.
    file: PathBuf,
    name: String,
    /// The snapshot that followed it in the same dataset: its guid.
    followed_by: Option<u64>,
}

/// The pass.
pub(super) struct Pass<'p> {
    pub(super) pool: &'p PoolWriter,
    pub(super) device: &'p Arc<Building>,
    pub(super) progress: Progress<'p>,
    names: Names,
    known: HashMap<u64, Known>,
    /// Datasets of the pool: those received, and their parents.
    datasets: HashSet<String>,
    /// The guid of the full stream of each dataset.
    starts: HashMap<String, u64>,
    snapshots: Vec<ChainSnapshot>,
}

impl<'p> Pass<'p> {
    /// A pass into a new pool.
    pub(super) fn new(pool: &'p PoolWriter, device: &'p Arc<Building>, progress: Progress<'p>) -> Pass<'p> {
        Pass {
            pool,
            device,
            progress,
            names: Names::new(pool.name()),
            known: HashMap::new(),
            datasets: HashSet::from([pool.name().to_owned()]),
            starts: HashMap::new(),
            snapshots: Vec::new(),
        }
    }

    /// Receives all streams. Returns the snapshots, in the order in which they were received.
    pub(super) fn run(mut self, mut cursors: Vec<Cursor>) -> Result<Vec<ChainSnapshot>, ChainError> {
        while let Some(index) = self.next(&cursors)? {
            let Some(cursor) = cursors.get_mut(index) else { break };
            if cursor.begin().is_some_and(|begin| self.known.contains_key(&begin.to_guid)) {
                cursor.skip()?;
            } else {
                self.receive(cursor)?;
                cursor.advance()?;
            }
        }
        Ok(self.snapshots)
    }

    /// The file whose next stream can be received; `None`: all are at their ends.
    fn next(&self, cursors: &[Cursor]) -> Result<Option<usize>, ChainError> {
        let pending = || cursors.iter().enumerate().filter_map(|(index, c)| Some((index, c, c.begin()?)));
        let is_ready = |begin: &Begin| begin.from_guid == 0 || self.known.contains_key(&begin.from_guid);
        let ready = pending().filter(|(.., begin)| is_ready(begin));
        // Of several ways to a snapshot, one that fits is taken; the others are passed over then.
        let first = ready.min_by_key(|(.., begin)| {
            let dataset = names::dataset_of(begin);
            (!self.fits(begin, &dataset), dataset, begin.creation_time)
        });
        match (first, pending().next()) {
            (Some((index, ..)), _) => Ok(Some(index)),
            (None, None) => Ok(None),
            (None, Some((_, cursor, begin))) => Err(ChainError::Gap {
                file: cursor.file.clone(),
                snapshot: names::shown(begin.name()),
                guid: begin.from_guid,
            }),
        }
    }

    /// Whether a stream that is ready starts a dataset, or goes on where one ends.
    fn fits(&self, begin: &Begin, dataset: &str) -> bool {
        match self.known.get(&begin.from_guid).filter(|_| begin.from_guid != 0) {
            Some(from) if begin.flags & flag::CLONE == 0 => from.followed_by.is_none(),
            _ => !self.starts.contains_key(&self.names.placed(dataset)),
        }
    }

    /// Receives the next stream of a file.
    fn receive(&mut self, cursor: &mut Cursor) -> Result<(), ChainError> {
        let (Some(frame), Some(begin)) = (cursor.next.clone(), cursor.begin().cloned()) else {
            return Ok(());
        };
        let (sent, snapshot) = names::split(&begin, &cursor.file)?;
        let shown = format!("{sent}@{snapshot}");
        let how = self.place(&begin, &cursor.file, &sent, &snapshot)?;
        let dataset = how.dataset.clone();
        let mut notes = Notes {
            device: self.device,
            pool: Arc::clone(self.pool.live()),
            number: cursor.number,
            file: &cursor.file,
            progress: &mut *self.progress,
        };
        let received = self.pool.receive(&frame, &mut cursor.reader, &how, &mut notes);
        received.map_err(|cause| {
            let (file, snapshot) = (cursor.file.clone(), shown.clone());
            ChainError::Apply { file, snapshot, cause: Box::new(cause) }
        })?;
        if let Some(before) = self.known.get_mut(&begin.from_guid)
            && before.dataset == dataset
        {
            before.followed_by = Some(begin.to_guid);
        }
        self.snapshots.push(ChainSnapshot {
            dataset: self.names.sent(&dataset),
            snapshot: snapshot.clone(),
            guid: begin.to_guid,
            is_volume: begin.objset_type == OBJSET_VOLUME,
            created: begin.creation_time,
        });
        let (file, name) = (cursor.file.clone(), shown);
        self.known.insert(begin.to_guid, Known { dataset, snapshot, file, name, followed_by: None });
        Ok(())
    }

    /// Where a stream is received, if it fits those before it.
    fn place(
        &mut self,
        begin: &Begin,
        file: &Path,
        sent: &str,
        snapshot: &str,
    ) -> Result<Receive, ChainError> {
        let mut how = Receive { snapshot: snapshot.to_owned(), force: true, ..Receive::default() };
        let second = || (file.to_owned(), format!("{sent}@{snapshot}"));
        if let Some(from) = self.known.get(&begin.from_guid).filter(|_| begin.from_guid != 0) {
            if begin.flags & flag::CLONE == 0 {
                how.dataset.clone_from(&from.dataset);
                let Some(other) = from.followed_by.and_then(|guid| self.known.get(&guid)) else {
                    return Ok(how);
                };
                let (second_file, second) = second();
                return Err(ChainError::Branches {
                    from: from.name.clone(),
                    first_file: other.file.clone(),
                    first: other.name.clone(),
                    second_file,
                    second,
                });
            }
            how.origin = Some(format!("{}@{}", from.dataset, from.snapshot));
        }
        how.dataset = self.names.placed(sent);
        if let Some(first) = self.starts.get(&how.dataset).and_then(|guid| self.known.get(guid)) {
            let (second_file, second) = second();
            let (first_file, first) = (first.file.clone(), first.name.clone());
            return Err(ChainError::TwoStarts { first_file, first, second_file, second });
        }
        self.make_parents(&how.dataset)?;
        self.datasets.insert(how.dataset.clone());
        self.starts.insert(how.dataset.clone(), begin.to_guid);
        Ok(how)
    }

    /// Makes the parents of a dataset that are not in the streams, or not yet: they have no files.
    fn make_parents(&mut self, dataset: &str) -> Result<(), ChainError> {
        for (at, _) in dataset.match_indices('/') {
            let parent = dataset.get(..at).unwrap_or_default().to_owned();
            if self.datasets.insert(parent.clone()) {
                self.pool.run(move |ctx| {
                    create(ctx, NewHead::named(&parent), ObjsetType::Zfs, &mut |_, _| Ok(())).map(drop)
                })?;
            }
        }
        Ok(())
    }
}

/// Notes where the blocks of a stream are in its file.
struct Notes<'n> {
    device: &'n Building,
    pool: Arc<LivePool>,
    number: usize,
    file: &'n Path,
    progress: Progress<'n>,
}

impl Watch for Notes<'_> {
    fn record(&mut self, frame: &Frame) {
        if matches!(frame.header.record, Record::Write(_)) {
            self.device.note(self.number, frame.at + HEADER_SIZE as u64, &frame.payload);
        }
    }

    fn bytes(&mut self, bytes: u64) {
        (self.progress)(self.file, bytes);
        // An error is that of the receive, too.
        if self.device.noted() > NOTED_MAX && self.pool.sync().is_ok() {
            self.device.forget();
        }
    }
}
