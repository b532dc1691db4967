//! Receiving one stream into a pool (docs/on-disk/30-send-streams.md, sections 8 and 9).

mod heal;

use crate::PoolWriter;
use dsl::receive::{self, Begin, Begun, Finish, RawStart};
use dsl::{DslError, ReceiveRefusal, TaskCtx};
use format::stream::{Record, feature, flag};
use format::{Endian, NvList, ObjectId};
use pool::PoolError;
use std::io::Read;
use std::sync::Arc;
use stream::receive::{Applier, ApplyError};
use stream::{Frame, Reader, StreamError};

/// Where and how a stream is received.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Receive {
    /// Full name of the file system or volume.
    pub dataset: String,
    /// Name of the snapshot that is made: the part after `@`.
    pub snapshot: String,
    /// What is newer than the start of the increment is lost (`-F`); a full stream replaces what is there.
    pub force: bool,
    /// A receive that is interrupted keeps what it has, to be resumed (`-s`).
    pub resumable: bool,
    /// Full name of the snapshot that a new dataset begins as a clone of (`-o origin=`, or found by its guid).
    pub origin: Option<String>,
    /// Damaged blocks of the existing snapshot are rewritten, and nothing else changes (`-c`).
    pub heal: bool,
}

/// What was received.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Received {
    /// Bytes of the stream, its start included.
    pub bytes: u64,
    /// Damaged blocks that were healed,
    pub healed: u64,
    /// and that could not be: the stream does not say how they were compressed.
    pub unhealed: u64,
}

/// Receives events of a receive.
pub trait Watch {
    /// A record was read, and its checksum is right. It is applied next.
    fn record(&mut self, frame: &Frame) {
        let _ = frame;
    }

    /// So many bytes of the stream were received by now. Called often.
    fn bytes(&mut self, bytes: u64) {
        let _ = bytes;
    }

    /// The dataset is there, and no record is applied yet: properties that are set now hold for what is written. Not called
    /// when a receive is resumed.
    fn begun(&mut self) {}

    /// All was received, and the existing head is about to be replaced: it is taken from its users. An error ends the
    /// receive.
    ///
    /// # Errors
    /// A message for people.
    fn before_replace(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// The head was replaced, or may have been.
    fn replaced(&mut self) {}
}

/// Ignores what happens.
impl Watch for () {}

/// Why a stream is not received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The stream cannot be read, or breaks a rule.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The stream has features that are unknown: their bits.
    #[error("stream has unsupported feature, feature flags = {0:x}")]
    UnknownFeatures(u64),
    /// The pool lacks a feature that the stream needs.
    #[error("stream needs feature '{0}', which the pool does not have")]
    NeedsFeature(&'static str),
    /// Kinds of streams that are not received.
    #[error("{0}")]
    Unsupported(&'static str),
    /// The start of the stream does not fit the target (`EINVAL`).
    #[error("invalid stream: {0}")]
    Invalid(&'static str),
    /// The dataset exists, and the stream is a full one without `force`.
    #[error("destination '{0}' exists")]
    Exists(String),
    /// The snapshot exists.
    #[error("destination snapshot '{0}' exists")]
    SnapshotExists(String),
    /// The stream is an increment, and the dataset does not exist.
    #[error("destination '{0}' does not exist")]
    Missing(String),
    /// No snapshot of the dataset has the guid of the increment's start; or no snapshot is its origin.
    #[error("no snapshot matches the incremental source")]
    NoSource,
    /// The dataset has changed since its most recent snapshot, or has a newer snapshot.
    #[error("destination has been modified since most recent snapshot")]
    Modified,
    /// An earlier receive into the dataset was interrupted, and can be resumed.
    #[error("destination contains partially-complete state")]
    PartialState,
    /// The dataset is in use.
    #[error("dataset is busy")]
    Busy,
    /// The parent is no file system.
    #[error("parent is not a filesystem")]
    WrongParent,
    /// The target was received with large blocks, and the stream has none.
    #[error("incremental stream lacks large blocks")]
    LargeBlockMismatch,
    /// The dataset to be resumed has another stream, or none.
    #[error("nothing to resume")]
    NotResumable,
    /// The raw stream is of another encryption key than the dataset.
    #[error("inconsistent encryption keys: '{0}' has another key than the stream")]
    OtherKey(String),
    /// A raw increment from a snapshot that does not record the IV set guid that the increment starts from.
    #[error("IV set guid missing: '{0}', or the stream, does not tell from which raw snapshot it comes")]
    NoIvSet(String),
    /// A raw increment does not start from the same IV set as the snapshot.
    #[error("IV set guid mismatch: '{0}' was not received raw from the start of the stream")]
    OtherIvSet(String),
    /// A full stream would replace an encrypted dataset, or make one of a dataset that is not.
    #[error("'{0}' is or would become encrypted, and is not overwritten")]
    EncryptedOverwrite(String),
    /// A raw increment is for a dataset that is not encrypted.
    #[error("'{0}' is not encrypted, and the stream is raw")]
    NotEncrypted(String),
    /// The stream is for a redacted origin that the target lacks.
    #[error("redaction does not match")]
    Redacted,
    /// What [`Watch::before_replace`] has said.
    #[error("{0}")]
    Kept(String),
    /// Any other error of the dataset layer, such as a limit or full space.
    #[error(transparent)]
    Dsl(DslError),
    /// The pool cannot be read or written.
    #[error(transparent)]
    Pool(crate::Error),
}

/// Bytes of payload, and records, that are applied in one transaction.
const BATCH_BYTES: usize = 1 << 20;
const BATCH_RECORDS: usize = 2048;
/// Tries of a task that had to wait for the next txg.
const AGAIN_MAX: usize = 16;

impl From<DslError> for ReceiveError {
    fn from(error: DslError) -> ReceiveError {
        use ReceiveRefusal::{
            EncryptedOverwrite, Exists, Invalid, LargeBlocks, Missing, Modified, NoIvSet, NoSource,
            NotEncrypted, NotResumable, OtherIvSet, OtherKey, PartialState, Redacted, SnapshotExists,
        };
        match error {
            DslError::Receive(why) => match why {
                Exists { name } => ReceiveError::Exists(name),
                SnapshotExists { name } => ReceiveError::SnapshotExists(name),
                Missing { name } => ReceiveError::Missing(name),
                NoSource { .. } => ReceiveError::NoSource,
                Modified { .. } => ReceiveError::Modified,
                PartialState { .. } => ReceiveError::PartialState,
                NotResumable { .. } => ReceiveError::NotResumable,
                LargeBlocks { .. } => ReceiveError::LargeBlockMismatch,
                Redacted { .. } => ReceiveError::Redacted,
                OtherKey { name } => ReceiveError::OtherKey(name),
                NoIvSet { name } => ReceiveError::NoIvSet(name),
                EncryptedOverwrite { name } => ReceiveError::EncryptedOverwrite(name),
                NotEncrypted { name } => ReceiveError::NotEncrypted(name),
                OtherIvSet { name } => ReceiveError::OtherIvSet(name),
                Invalid(why) => ReceiveError::Invalid(why),
                other => ReceiveError::Dsl(DslError::Receive(other)),
            },
            DslError::Busy { .. } => ReceiveError::Busy,
            DslError::ParentNotFilesystem { .. } => ReceiveError::WrongParent,
            error => ReceiveError::Dsl(error),
        }
    }
}

impl From<crate::Error> for ReceiveError {
    fn from(error: crate::Error) -> ReceiveError {
        match error {
            crate::Error::Dsl(error) => error.into(),
            crate::Error::Pool(PoolError::Dsl(error)) => error.into(),
            error => ReceiveError::Pool(error),
        }
    }
}

impl From<ApplyError> for ReceiveError {
    fn from(error: ApplyError) -> ReceiveError {
        match error {
            ApplyError::Stream(error) => ReceiveError::Stream(error),
            ApplyError::Head(error) => error.into(),
            ApplyError::Object(error) => ReceiveError::Dsl(error.into()),
            other => ReceiveError::Pool(crate::Error::Dsl(DslError::Fill { source: Box::new(other) })),
        }
    }
}

impl PoolWriter {
    /// Receives the stream whose first record is `begin`, up to its end.
    ///
    /// # Errors
    /// [`ReceiveError`]. With [`Receive::resumable`] what has arrived before an error stays; otherwise the dataset is as
    /// before.
    pub fn receive<R: Read>(
        &self,
        begin: &Frame,
        reader: &mut Reader<R>,
        how: &Receive,
        watch: &mut dyn Watch,
    ) -> Result<Received, ReceiveError> {
        let Record::Begin(start) = &begin.header.record else {
            return Err(ReceiveError::Invalid("no start of a stream"));
        };
        if how.heal {
            check_kind(start, reader.order(), how)?;
            return self.heal(start, reader, how, watch);
        }
        let request = self.request(start, begin, reader.order(), how)?;
        let dataset = request.dataset.clone();
        // Data that only a kernel has would be a change that comes too late to be noticed.
        let handed = self.live().hand_over([dataset.as_str()]);
        handed.map_err(|error| ReceiveError::Kept(error.to_string()))?;
        let asked = request.clone();
        let begun = self.try_again(move |ctx| receive::begin(ctx, &asked))?;
        let done = self.receive_into(start, &request, &begun, reader, how, watch);
        if done.is_err() && !(request.is_resumable || begun.point.is_some()) {
            let _ = self.discard_head(&dataset, Some(begun.head));
        }
        done
    }

    /// Applies the records, and ends the receive.
    fn receive_into<R: Read>(
        &self,
        start: &format::stream::Begin,
        request: &Begin,
        begun: &Begun,
        reader: &mut Reader<R>,
        how: &Receive,
        watch: &mut dyn Watch,
    ) -> Result<Received, ReceiveError> {
        {
            let heads = self.live().heads();
            let mut applier = match &request.raw {
                Some(raw) => Applier::new_raw(&heads.open_raw(begun.head)?, start, begun.point, raw.set)?,
                None => {
                    let head = heads.open_partial(begun.head)?;
                    Applier::new(&head, start, begun.point).with_order(reader.order())
                }
            };
            // From here on the head is in use: the dataset keeps its name.
            if begun.point.is_none() {
                watch.begun();
            }
            apply_all(&mut applier, reader, watch)?;
            if request.from_guid == 0 && request.origin.is_some() {
                applier.free_beyond()?;
            }
        }
        let finish = Finish {
            dataset: request.dataset.clone(),
            head: begun.head,
            snapshot: request.snapshot.clone(),
            to_guid: request.to_guid,
            creation_time: start.creation_time,
            force: how.force,
            raw: request.raw.clone(),
        };
        if begun.replaces {
            let handed = self.live().hand_over([request.dataset.as_str()]);
            handed.map_err(|error| ReceiveError::Kept(error.to_string()))?;
            watch.before_replace().map_err(ReceiveError::Kept)?;
        }
        let finished = self.try_again(move |ctx| receive::finish(ctx, &finish));
        if begun.replaces {
            watch.replaced();
        }
        finished?;
        Ok(Received { bytes: reader.position(), ..Received::default() })
    }

    /// What is asked of the dataset layer, if the stream can be received into this pool at all.
    fn request(
        &self,
        start: &format::stream::Begin,
        begin: &Frame,
        order: Endian,
        how: &Receive,
    ) -> Result<Begin, ReceiveError> {
        check_kind(start, order, how)?;
        let features = start.features();
        for (bit, needed) in NEEDED {
            if features & bit != 0 && !self.live().features().is_enabled(needed) {
                return Err(ReceiveError::NeedsFeature(needed));
            }
        }
        if how.resumable && !self.live().features().is_enabled("extensible_dataset") {
            return Err(ReceiveError::NeedsFeature("extensible_dataset"));
        }
        let list = match begin.payload.is_empty() {
            true => NvList::new(),
            false => NvList::decode(&begin.payload)
                .map_err(|_| ReceiveError::Invalid("a list at the start that cannot be read"))?,
        };
        let has = |bit: u64| features & bit != 0;
        let resumes = match (has(feature::RESUMING), list.u64("resume_object"), list.u64("resume_offset")) {
            (false, ..) => None,
            (true, Some(object), Some(offset)) => Some((ObjectId(object), offset)),
            (true, ..) => return Err(ReceiveError::Invalid("a resumed stream without its place")),
        };
        let raw = if has(feature::RAW) { Some(RawStart::from_list(&list)?) } else { None };
        let snaps = |name: &str| list.u64s(name).map(<[u64]>::to_vec);
        let caller = self.caller();
        Ok(Begin {
            dataset: how.dataset.clone(),
            snapshot: how.snapshot.clone(),
            is_volume: start.objset_type == OBJSET_VOLUME,
            to_guid: start.to_guid,
            from_guid: start.from_guid,
            to_name: String::from_utf8_lossy(start.name()).into_owned(),
            is_clone: start.flags & flag::CLONE != 0,
            has_free_records: start.flags & flag::FREE_RECORDS != 0,
            is_case_insensitive: start.flags & flag::CASE_INSENSITIVE != 0,
            force: how.force,
            is_resumable: how.resumable,
            resumes,
            origin: how.origin.clone(),
            creator: (!caller.is_admin()).then_some(caller.uid),
            features: PER_DATASET.iter().filter(|(bit, _)| has(*bit)).map(|(_, name)| *name).collect(),
            has_large_blocks: has(feature::LARGE_BLOCKS),
            has_embedded: has(feature::EMBED_DATA),
            is_compressed: has(feature::COMPRESSED),
            raw,
            redact_snaps: has(feature::REDACTED).then(|| snaps("redact_snaps").unwrap_or_default()),
            redact_from_snaps: snaps("redact_from_snaps"),
        })
    }

    /// Discards what an interrupted receive into this dataset has left (`zfs receive -A`).
    ///
    /// # Errors
    /// [`ReceiveError::NotResumable`] if there is nothing.
    pub fn discard_received(&self, dataset: &str) -> Result<(), ReceiveError> {
        self.discard_head(dataset, None)
    }

    fn discard_head(&self, dataset: &str, only: Option<ObjectId>) -> Result<(), ReceiveError> {
        let dataset = dataset.to_owned();
        self.try_again(move |ctx| receive::discard(ctx, &dataset, only))
    }

    /// Runs a task; one that cannot be done in a txg is tried again in the next.
    fn try_again<T: Send + 'static>(
        &self,
        task: impl Fn(&mut TaskCtx<'_>) -> Result<T, DslError> + Send + Sync + 'static,
    ) -> Result<T, ReceiveError> {
        let (task, caller) = (Arc::new(task), self.caller());
        let caller = if caller.is_admin() { dsl::Caller::Root } else { dsl::Caller::User(caller.delegate()) };
        let mut tries = 1..=AGAIN_MAX;
        loop {
            let (once, is_last) = (Arc::clone(&task), tries.next().is_none());
            match self.live().run_as(caller.clone(), move |ctx| once(ctx)) {
                Err(PoolError::Dsl(error)) if !is_last && error.is_for_now() => {}
                done => return done.map_err(|error| crate::Error::from(error).into()),
            }
        }
    }
}

/// Type of the object set of a volume, in the start of a stream.
const OBJSET_VOLUME: u32 = 3;
/// Type of that of a file system.
const OBJSET_FILES: u32 = 2;

/// The features of the pool that features of a stream need.
const NEEDED: [(u64, &str); 9] = [
    (feature::EMBED_DATA, "embedded_data"),
    (feature::LZ4, "lz4_compress"),
    (feature::LARGE_BLOCKS, "large_blocks"),
    (feature::REDACTED, "redacted_datasets"),
    (feature::LARGE_DNODE, "large_dnode"),
    (feature::RAW, "encryption"),
    (feature::ZSTD, "zstd_compress"),
    (feature::LONGNAME, "longname"),
    (feature::LARGE_MICROZAP, "large_microzap"),
];

/// The features that a dataset has from the start, because no single block shows them.
const PER_DATASET: [(u64, &str); 2] =
    [(feature::LONGNAME, "longname"), (feature::LARGE_MICROZAP, "large_microzap")];

/// Checks that the stream is of a kind that is received.
fn check_kind(start: &format::stream::Begin, order: Endian, how: &Receive) -> Result<(), ReceiveError> {
    let features = start.features();
    let known = feature::NAMES.iter().fold(0, |all, (bit, _)| all | bit);
    let dedup = feature::DEDUP | feature::DEDUP_PROPS;
    if features & !known != 0 {
        return Err(ReceiveError::UnknownFeatures(features & !known));
    }
    if features & dedup != 0 {
        return Err(StreamError::Deduplicated.into());
    }
    if start.header_kind() != 1 || !matches!(start.objset_type, OBJSET_FILES | OBJSET_VOLUME) {
        return Err(ReceiveError::Invalid("no stream of a file system or volume"));
    }
    if start.flags & flag::CLONE != 0 && how.origin.is_none() && !how.heal {
        return Err(ReceiveError::Invalid("the stream of a clone, and no origin"));
    }
    if features & feature::RAW != 0 {
        check_raw(start, features)?;
    }
    if order == Endian::Big && features & feature::RAW != 0 {
        // What is encrypted cannot be turned, and is not written in the other order.
        return Err(ReceiveError::Unsupported("raw streams of big-endian senders are not received"));
    }
    if how.heal && how.force {
        return Err(ReceiveError::Invalid("a snapshot is healed as it is"));
    }
    Ok(())
}

/// Checks the start of a raw stream.
fn check_raw(start: &format::stream::Begin, features: u64) -> Result<(), ReceiveError> {
    if features & (feature::EMBED_DATA | feature::REDACTED) != 0 {
        return Err(ReceiveError::Invalid("a raw stream with embedded or redacted data"));
    }
    if start.flags & flag::SPILL_BLOCK == 0 {
        return Err(ReceiveError::Invalid("a raw stream that does not tell which objects have spill blocks"));
    }
    Ok(())
}

/// Applies all records up to the end of the stream.
fn apply_all<R: Read>(
    applier: &mut Applier,
    reader: &mut Reader<R>,
    watch: &mut dyn Watch,
) -> Result<(), ReceiveError> {
    loop {
        let (mut frames, end) = next_batch(reader);
        frames.iter().for_each(|frame| watch.record(frame));
        applier.apply(&mut frames)?;
        watch.bytes(reader.position());
        if end? {
            return Ok(());
        }
    }
}

/// Reads some records. The second part tells whether the stream has ended, or why no more can be read: the records
/// before that are good.
fn next_batch<R: Read>(reader: &mut Reader<R>) -> (Vec<Frame>, Result<bool, ReceiveError>) {
    let (mut frames, mut bytes) = (Vec::new(), 0);
    while bytes < BATCH_BYTES && frames.len() < BATCH_RECORDS {
        match reader.next_frame() {
            Ok(Some(frame)) if matches!(frame.header.record, Record::End(_)) => return (frames, Ok(true)),
            Ok(Some(frame)) => {
                bytes += frame.payload.len();
                frames.push(frame);
            }
            Ok(None) => return (frames, Err(StreamError::Cut { at: reader.position() }.into())),
            Err(error) => return (frames, Err(error.into())),
        }
    }
    (frames, Ok(false))
}
