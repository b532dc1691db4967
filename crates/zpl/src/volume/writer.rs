//! Volumes opened for writing (docs/on-disk/25-zvol.md).

use crate::dir::unlink::BLOCKS_PER_TX;
use crate::error::BeginError;
use crate::file::range_lock::RangeLock;
use crate::fs::backing::{Backing, Cost, IntentLog, NoLog};
use crate::node::inode::locked;
use crate::volume::{check_range, is_size};
use crate::{Volume, ZplError};
use dmu::AllocTx;
use dmu::interrupt::Lock;
use dmu::log::LogData;
use dmu::{LiveObject, Tx};
use dsl::sync::{lock, read, write};
use format::Txg;
use format::names;
use format::zil::Body;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

/// Bytes written in one transaction.
const CHUNK: u64 = 1 << 20;

/// A volume opened for writing.
pub struct VolumeWriter {
    backing: Arc<dyn Backing>,
    data: LiveObject,
    properties: LiveObject,
    block_size: u64,
    size: AtomicU64,
    /// Held while the size changes.
    resizing: Lock,
    ranges: RangeLock,
    log: RwLock<Arc<dyn IntentLog>>,
    /// During a log replay: the transaction of all changes.
    replay_tx: Mutex<Option<Tx>>,
    read_only: AtomicBool,
}

impl VolumeWriter {
    /// Opens the volume in an object set for writing.
    ///
    /// # Errors
    /// Those of [`Volume::open`].
    pub fn open(backing: Arc<dyn Backing>) -> Result<Arc<VolumeWriter>, ZplError> {
        let set = Arc::clone(backing.set());
        let volume = Volume::open(&set.view())?;
        Ok(Arc::new(VolumeWriter {
            data: set.object(names::volume::DATA)?,
            properties: set.object(names::volume::PROPERTIES)?,
            block_size: volume.block_size(),
            size: AtomicU64::new(volume.size()),
            resizing: Lock::default(),
            ranges: RangeLock::default(),
            log: RwLock::new(Arc::new(NoLog)),
            replay_tx: Mutex::default(),
            read_only: AtomicBool::new(false),
            backing,
        }))
    }

    /// Logs every change to `log` from now on.
    pub(crate) fn set_log(&self, log: Arc<dyn IntentLog>) {
        *write(&self.log) = log;
    }

    /// Sets the property `readonly`.
    pub(crate) fn set_read_only(&self, is_read_only: bool) {
        self.read_only.store(is_read_only, Ordering::Release);
    }

    fn log(&self) -> Arc<dyn IntentLog> {
        Arc::clone(&read(&self.log))
    }

    /// Size of the volume in bytes.
    pub fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Block size in bytes.
    pub fn block_size(&self) -> u64 {
        self.block_size
    }

    fn check(&self, offset: u64, len: u64) -> Result<(), ZplError> {
        check_range(self.data.set().number(), self.size(), offset, len)
    }

    /// Fills `buf` with the bytes from `offset` on.
    ///
    /// # Errors
    /// [`ZplError::BeyondVolume`] unless the whole range is inside the volume; or a block cannot be read.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), ZplError> {
        self.check(offset, buf.len() as u64)?;
        let _range = self.ranges.of(&*self.backing).read(offset..offset + buf.len() as u64)?;
        self.check(offset, buf.len() as u64)?;
        Ok(self.data.read_at(offset, buf)?)
    }

    /// Writes all of `data`. A large write takes several transactions.
    ///
    /// # Errors
    /// [`ZplError::BeyondVolume`] unless the whole range is inside the volume: no byte is written then.
    /// [`ZplError::Begin`] if no transaction can begin.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), ZplError> {
        self.check(offset, data.len() as u64)?;
        let end = offset + data.len() as u64;
        let _range = self.ranges.of(&*self.backing).write(offset..end)?;
        // The volume may have been made smaller since the first check.
        self.check(offset, data.len() as u64)?;
        let mut at = offset;
        while at < end {
            let stop = end.min((at / CHUNK + 1) * CHUNK);
            let part = &data[(at - offset) as usize..(stop - offset) as usize];
            let tx = self.begin(Cost::write(stop - at, self.block_size))?;
            self.data.write_at(at, part, &tx)?;
            if self.block_size > 128 << 10 {
                self.backing.uses_feature("large_blocks", &tx);
            }
            let log = self.log();
            if log.is_on() {
                log.log_write(&tx, self.data.id(), at, LogData::written(&self.data, at, part), None);
            }
            at = stop;
        }
        Ok(())
    }

    /// Frees the whole blocks inside a range: they read as zeros.
    ///
    /// # Errors
    /// [`ZplError::BeyondVolume`] unless the whole range is inside the volume; [`ZplError::Begin`] if no
    /// transaction can begin.
    pub fn trim(&self, offset: u64, len: u64) -> Result<(), ZplError> {
        self.check(offset, len)?;
        let start = offset.next_multiple_of(self.block_size);
        let end = (offset + len) / self.block_size * self.block_size;
        if start >= end {
            return Ok(());
        }
        let _range = self.ranges.of(&*self.backing).write(start..end)?;
        self.check(offset, len)?;
        let mut end = end;
        while start < end {
            let tail = self.data.tail(&(start..end), BLOCKS_PER_TX)?;
            let tx = self.begin(Cost::FREES)?;
            self.free(tail.start, end - tail.start, &tx)?;
            self.data.note_freed(tail.blocks, &tx);
            end = tail.start;
        }
        Ok(())
    }

    /// Makes a range read as zeros, including partial blocks at its ends.
    ///
    /// # Errors
    /// [`ZplError::BeyondVolume`] unless the whole range is inside the volume; [`ZplError::Begin`] if no
    /// transaction can begin.
    pub fn write_zeroes(&self, offset: u64, len: u64) -> Result<(), ZplError> {
        self.check(offset, len)?;
        let end = offset + len;
        let start = offset.next_multiple_of(self.block_size).min(end);
        let stop = (end / self.block_size * self.block_size).max(start);
        // The block layer cannot zero parts of blocks: they are written.
        let zeros = vec![0; self.block_size as usize];
        if offset < start {
            self.write_at(offset, &zeros[..(start - offset) as usize])?;
        }
        self.trim(start, stop - start)?;
        if stop < end {
            self.write_at(stop, &zeros[..(end - stop) as usize])?;
        }
        Ok(())
    }

    /// Frees whole blocks in a transaction, and logs that.
    fn free(&self, offset: u64, len: u64, tx: &Tx) -> Result<(), ZplError> {
        self.data.free_range(offset, len, tx)?;
        let log = self.log();
        if log.is_on() {
            log.log(tx, Body::Truncate { object: names::volume::DATA, offset, length: len });
        }
        Ok(())
    }

    /// Changes the size, and returns the txg with which that is durable. The caller waits for it before it
    /// calls [`VolumeWriter::free_beyond`], so that a crash in between loses no data.
    ///
    /// # Errors
    /// [`ZplError::Invalid`] if the size is not a multiple of the block size, or 0; [`ZplError::Begin`] if no
    /// transaction can begin.
    pub fn set_size(&self, size: u64) -> Result<Txg, ZplError> {
        if !is_size(size) || !size.is_multiple_of(self.block_size) {
            return Err(ZplError::Invalid { what: "the size of a volume" });
        }
        let _resizing = locked(&self.resizing, &*self.backing)?;
        // A write that began before must not continue beyond the new end.
        let _range = self.ranges.of(&*self.backing).write(self.size().min(size)..u64::MAX)?;
        let tx = self.begin(Cost::NAMES)?;
        self.properties.zap(&tx)?.upsert(names::volume::SIZE.as_bytes(), size)?;
        self.size.store(size, Ordering::Release);
        Ok(tx.txg())
    }

    /// Frees the blocks beyond the size, after it was made smaller.
    ///
    /// # Errors
    /// [`ZplError::Begin`] if no transaction can begin.
    pub fn free_beyond(&self) -> Result<(), ZplError> {
        let _resizing = locked(&self.resizing, &*self.backing)?;
        let _range = self.ranges.of(&*self.backing).write(self.size()..u64::MAX)?;
        while self.data.read().next_data(self.size())?.is_some() {
            let tail = self.data.tail(&(self.size()..u64::MAX), BLOCKS_PER_TX)?;
            let tx = self.begin(Cost::FREES)?;
            self.data.free_range(tail.start, u64::MAX, &tx)?;
            self.data.note_freed(tail.blocks, &tx);
        }
        Ok(())
    }

    fn begin(&self, cost: Cost) -> Result<Tx, ZplError> {
        if let Some(tx) = &*lock(&self.replay_tx) {
            return Ok(tx.again());
        }
        if self.read_only.load(Ordering::Acquire) {
            return Err(BeginError::ReadOnly.into());
        }
        Ok(self.backing.begin(Cost { within: Some(self.size()), ..cost })?)
    }

    /// Applies an intent log record in this transaction: a write or a trim. The volume is not in use
    /// meanwhile, and has no log yet.
    ///
    /// # Errors
    /// [`ZplError::Unsupported`] for records that no volume has.
    pub(crate) fn replay(&self, record: &Body, indirect: Option<&[u8]>, tx: &Tx) -> Result<(), ZplError> {
        *lock(&self.replay_tx) = Some(tx.again());
        let result = self.apply(record, indirect);
        *lock(&self.replay_tx) = None;
        result
    }

    fn apply(&self, record: &Body, indirect: Option<&[u8]>) -> Result<(), ZplError> {
        match record {
            Body::Write { object, offset, length, bp, data } if *object == names::volume::DATA => {
                let (at, bytes) =
                    crate::fs::replay::logged_write(*offset, *length, bp, data.as_deref(), indirect)?;
                let end = at.saturating_add(bytes.len() as u64);
                let inside = bytes.len() - (end.saturating_sub(self.size()) as usize).min(bytes.len());
                self.write_at(at, &bytes[..inside])
            }
            Body::Truncate { object, offset, length } if *object == names::volume::DATA => {
                let end = offset.saturating_add(*length).min(self.size());
                if *offset >= end {
                    return Ok(());
                }
                let _range = self.ranges.of(&*self.backing).write(*offset..end)?;
                let tx = self.begin(Cost::FREES)?;
                self.free(*offset, end - offset, &tx)
            }
            _ => Err(ZplError::Unsupported { what: "a record of the intent log of a volume" }),
        }
    }
}

impl std::fmt::Debug for VolumeWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "VolumeWriter({:?})", self.data.set())
    }
}
