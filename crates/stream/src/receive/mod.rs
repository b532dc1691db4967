//! Receiving: the records of a stream, applied to a head (docs/on-disk/30-send-streams.md, section 9).
//!
//! [`Applier`] gets the records in batches that were read before: no transaction is held while a stream is waited for.
//! The beginning and the end of a receive are tasks of `dsl::receive`.
//!
//! # What always holds
//! - A record is applied only after all its fields are checked: numbers of objects, sizes, types, algorithms, the order
//!   of blocks. A block that its sender has compressed is decompressed as a check, and stays as it was sent.
//! - Contents are written in little-endian order: numbers of a big-endian sender are turned, by the type of their object.
//! - A number that the head has freed is used again only when the txg of that is on disk.
//! - How far the receive has come is noted in the transaction of the records that it counts.

mod object;
mod raw;
mod write;

use crate::error::StreamError;
use crate::reader::Frame;
use dmu::{DmuError, LiveSet, ObjSet, RawSet, Tx};
use dsl::{Cost, DslError, Head, ReceivePoint};
use format::ids::SwapClass;
use format::stream::{Begin, Record, feature, flag};
use format::units::{MAX_BLOCK, OLD_MAX_BLOCK};
use format::{Endian, ObjType, ObjectId, Txg};
use std::sync::Arc;

/// Bytes of metadata that a record may take besides its payload.
const RECORD_COST: u64 = 4 << 10;

/// Most records of a transaction: it needs the space that all of them may take.
const RECORDS_TOGETHER: usize = 256;

/// Why records are not applied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// A record breaks a rule.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The head cannot be read or changed.
    #[error(transparent)]
    Object(#[from] DmuError),
    /// There is no space, or no transaction can begin.
    #[error(transparent)]
    Head(#[from] DslError),
}

/// Applies the records of one stream to a head.
pub struct Applier {
    head: Arc<Head>,
    set: Arc<LiveSet>,
    view: Arc<ObjSet>,
    /// The stream says for each object whether it has a spill block.
    tells_spills: bool,
    /// The stream starts from a snapshot.
    is_increment: bool,
    features: u64,
    /// Byte order of the sender.
    order: Endian,
    max_block: u64,
    /// Place of the last block that was written.
    last: (ObjectId, u64),
    /// The highest object that the stream has.
    highest: ObjectId,
    /// Bytes of the stream in earlier receives that this one resumes.
    bytes_before: u64,
    /// Byte of the stream at which the present record starts.
    at: u64,
    /// Number of blocks of the present redacted range that are marked.
    redacted: u64,
    /// What a raw stream says of its object set.
    raw: Option<RawSet>,
    /// The range of dnodes that the present records are of.
    range: Option<raw::Range>,
}

/// What a record may need before it can be applied.
enum Applied {
    Done,
    /// A number that was freed is to be used again: the txg must be on disk first.
    NeedsSync,
    /// A part was applied: the rest goes into another transaction.
    InPart,
}

impl Applier {
    /// Applies the stream that begins with `begin` to an open head; `point`: where it goes on.
    pub fn new(head: &Arc<Head>, begin: &Begin, point: Option<ReceivePoint>) -> Applier {
        let features = begin.features();
        // OpenZFS begins again at the start of the block in which it was interrupted, which may have several records.
        let last = point.map_or((ObjectId(0), 0), |point| (point.object, 0));
        Applier {
            head: Arc::clone(head),
            set: Arc::clone(&head.set),
            view: head.set.view(),
            tells_spills: begin.flags & flag::SPILL_BLOCK != 0,
            is_increment: begin.from_guid != 0,
            features,
            order: Endian::Little,
            max_block: if features & feature::LARGE_BLOCKS != 0 { MAX_BLOCK } else { OLD_MAX_BLOCK },
            last,
            highest: last.0,
            bytes_before: point.map_or(0, |point| point.bytes),
            at: 0,
            redacted: 0,
            raw: None,
            range: None,
        }
    }

    /// For a stream whose sender has this byte order; a raw one must be little-endian.
    #[must_use]
    pub fn with_order(self, order: Endian) -> Applier {
        Applier { order, ..self }
    }

    /// Like [`Applier::new`], for a raw stream, which says this of its object set. The head is one of
    /// [`dsl::Heads::open_raw`].
    ///
    /// # Errors
    /// [`ApplyError`] if no transaction can begin.
    pub fn new_raw(
        head: &Arc<Head>,
        begin: &Begin,
        point: Option<ReceivePoint>,
        raw: RawSet,
    ) -> Result<Applier, ApplyError> {
        let tx = head.begin_waiting(Cost::write(RECORD_COST, OLD_MAX_BLOCK))?;
        head.set.begin_raw(raw, &tx);
        drop(tx);
        let mut applier = Applier { raw: Some(raw), ..Applier::new(head, begin, point) };
        if point.is_some() {
            applier.resume_range()?;
        }
        Ok(applier)
    }

    /// Applies records, in few transactions. Their payloads are taken. `Begin` and `End` are no records of
    /// this kind.
    ///
    /// # Errors
    /// [`ApplyError`]; records before the one that failed are applied.
    pub fn apply(&mut self, frames: &mut [Frame]) -> Result<(), ApplyError> {
        if self.is_increment {
            self.read_ahead(frames);
        }
        let mut rest = frames;
        while !rest.is_empty() {
            let together = rest.len().min(RECORDS_TOGETHER);
            let tx = self.begin(&rest[..together])?;
            let (done, applied) = self.apply_in(&mut rest[..together], &tx)?;
            let txg = tx_txg(&tx);
            drop(tx);
            rest = &mut rest[done..];
            if matches!(applied, Applied::NeedsSync) {
                self.head.txgs().wait_synced(txg).map_err(DslError::from)?;
            }
        }
        Ok(())
    }

    /// Has the dnodes read that the records change: in an increment they are far from each other.
    fn read_ahead(&self, frames: &[Frame]) {
        let objects = frames.iter().filter_map(|frame| match &frame.header.record {
            Record::Object(object) => Some(object.object),
            _ => None,
        });
        self.set.read_dnodes_ahead(objects);
    }

    fn begin(&self, frames: &[Frame]) -> Result<Tx, DslError> {
        let bytes: u64 = frames.iter().map(|frame| frame.payload.len() as u64 + RECORD_COST).sum();
        self.head.begin_waiting(Cost::write(bytes, OLD_MAX_BLOCK))
    }

    /// Applies records in one transaction. Returns the number of those applied.
    fn apply_in(&mut self, frames: &mut [Frame], tx: &Tx) -> Result<(usize, Applied), ApplyError> {
        let mut point = None;
        let mut result = Ok((frames.len(), Applied::Done));
        for (index, frame) in frames.iter_mut().enumerate() {
            self.at = frame.at;
            let end = frame.at + frame.payload.len() as u64;
            match self.apply_one(frame, tx) {
                Ok(Applied::Done) => {}
                Ok(applied) => {
                    result = Ok((index, applied));
                    break;
                }
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
            point = self.point_after(&frame.header.record, end).or(point);
        }
        if let Some(point) = point {
            self.head.note_received(point, tx);
        }
        result
    }

    /// Where an interrupted receive goes on after this record; `None`: as before it. `end` counts the bytes up to the end of
    /// the record, without the header at the start of the stream.
    fn point_after(&self, record: &Record, end: u64) -> Option<ReceivePoint> {
        let (object, offset) = match record {
            Record::Object(object) => (object.object, 0),
            Record::Write(write) => (write.object, write.offset),
            Record::WriteEmbedded(write) if write.offset < write::OFFSET_MAX => (write.object, write.offset),
            _ => return None,
        };
        Some(ReceivePoint { object, offset, bytes: self.bytes_before.saturating_add(end) })
    }

    fn apply_one(&mut self, frame: &mut Frame, tx: &Tx) -> Result<Applied, ApplyError> {
        let Frame { header, payload, .. } = frame;
        match &header.record {
            Record::Object(object) => return self.object(object, payload, tx),
            Record::FreeObjects(free) => self.free_objects(free.first, free.count, tx)?,
            Record::ObjectRange(range) => self.object_range(range)?,
            Record::Write(write) if self.raw.is_some() => self.write_raw(write, payload, tx)?,
            Record::Free(free) if self.raw.is_some() => self.free_raw(free, tx)?,
            Record::Spill(spill) if self.raw.is_some() => self.spill_raw(spill, payload, tx)?,
            Record::WriteEmbedded(_) | Record::Redact(_) if self.raw.is_some() => {
                return Err(self.invalid("a record that a raw stream does not have"));
            }
            Record::Write(write) => self.write(write, payload, tx)?,
            Record::WriteEmbedded(write) => self.write_embedded(write, payload, tx)?,
            Record::Free(free) => self.free(free, tx)?,
            Record::Redact(redact) => return self.redact(redact, tx),
            Record::Spill(spill) => self.spill(spill, payload, tx)?,
            Record::WriteByRef(_) => return Err(StreamError::Deduplicated.into()),
            Record::Begin(_) | Record::End(_) => {
                return Err(self.invalid("a record of this type does not belong here"));
            }
        }
        Ok(Applied::Done)
    }

    /// Ends a full stream that was applied to a clone: frees all objects that it does not have.
    ///
    /// # Errors
    /// [`ApplyError`].
    pub fn free_beyond(&mut self) -> Result<(), ApplyError> {
        loop {
            let next = self.view.next_object(ObjectId(self.highest.0.saturating_add(1)))?;
            let Some(object) = next else { return Ok(()) };
            let tx = self.head.begin_waiting(Cost::freeing())?;
            self.set.free(object.id(), &tx)?;
        }
    }

    /// Whether contents of this type have numbers in the other byte order than those that are written.
    fn is_turned(&self, kind: ObjType) -> bool {
        self.order == Endian::Big && kind.swap_class() != SwapClass::U8
    }

    fn invalid(&self, problem: &'static str) -> ApplyError {
        StreamError::Invalid { at: self.at, problem }.into()
    }
}

fn tx_txg(tx: &Tx) -> Txg {
    dmu::AllocTx::txg(tx)
}
