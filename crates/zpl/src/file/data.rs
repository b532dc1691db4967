//! File content: reading and writing bytes, truncating and freeing (docs/on-disk/23-zpl.md, sections 6 and
//! 6.1).

use crate::access::without_set_ids;
use crate::attrs::record::touched_record;
use crate::dir::unlink::BLOCKS_PER_TX;
use crate::fs::backing::Cost;
use crate::fs::options::AccessTimes;
use crate::fs::writable::Fs;
use crate::node::inode::{Inode, Store};
use crate::space::QuotaOf;
use crate::space::quota::Owners;
use crate::{Attrs, FileKind, ZplError};
use dmu::log::LogData;
use dmu::{LiveObject, Tx};
use format::ObjectId;
use format::zil::Body;
use format::znode::{FLAG_APPENDONLY, FLAG_ARCHIVE, FLAG_AV_MODIFIED, Time};
use std::ops::Range;

/// Bytes written in one transaction; a larger block is written alone.
const CHUNK: u64 = 1 << 20;
/// One past the largest size of a file.
const SIZE_LIMIT: u64 = 1 << 63;
const SECTOR: u64 = 512;
/// Blocks of a file that are freed in one transaction without counting them.
const UNCOUNTED: u64 = 1024;
/// With `relatime` an access time is at most a day old.
const DAY_SECS: i64 = 24 * 60 * 60;

/// Options of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteHow {
    /// Write at the end of the file and ignore the given offset.
    pub append: bool,
    /// Clear set-id bits: the writer may not keep them.
    pub clear_set_ids: bool,
    /// Leave the times unchanged: the caller sets them separately.
    pub keep_times: bool,
}

/// Operation on a range of a file (`fallocate`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allocate {
    /// Extends the file to the end of the range, unless its size is kept. Reserves no space: blocks are never
    /// overwritten in place.
    Reserve {
        /// Leave the size unchanged.
        keep_size: bool,
    },
    /// Makes the range a hole; leaves the size unchanged.
    Punch,
    /// Makes the range read as zeros.
    Zero {
        /// Leave the size unchanged.
        keep_size: bool,
    },
}

/// The rest of a range after blocks at its end were freed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rest {
    /// End of the range, in bytes.
    pub(crate) end: u64,
    /// Number of blocks in the range.
    pub(crate) blocks: u64,
}

impl Fs {
    /// Reads from `offset` into `buf`, at most up to the end of the file. Returns the number of bytes read.
    ///
    /// # Errors
    /// [`ZplError::WrongKind`] if it is no regular file; or a block cannot be read.
    pub fn read(&self, id: ObjectId, offset: u64, buf: &mut [u8]) -> Result<usize, ZplError> {
        let inode = self.busy(id)?;
        inode.expect(FileKind::Regular, "regular file")?;
        let end = offset.saturating_add(buf.len() as u64);
        if inode.note_read() {
            self.prefetch_credit.earn();
        }
        let _range = inode.ranges(&*self.backing).read(offset..end)?;
        let left = inode.attrs().size.saturating_sub(offset);
        let len = usize::try_from(left).map_or(buf.len(), |left| left.min(buf.len()));
        inode.object.read_at(offset, &mut buf[..len])?;
        Ok(len)
    }

    /// Updates the access time after a read, as the properties `atime` and `relatime` say.
    ///
    /// # Errors
    /// [`ZplError::Stale`]; [`ZplError::Begin`] if no transaction can begin.
    pub fn accessed(&self, id: ObjectId) -> Result<(), ZplError> {
        self.accessed_by(id, self.options().access_times)
    }

    /// Updates the access time after a read by the given rule instead of the properties.
    ///
    /// # Errors
    /// [`ZplError::Stale`]; [`ZplError::Begin`] if no transaction can begin.
    pub fn accessed_by(&self, id: ObjectId, mode: AccessTimes) -> Result<(), ZplError> {
        if mode == AccessTimes::Never || self.options().read_only {
            return Ok(());
        }
        let (inode, now) = (self.inode(id)?, self.now());
        let attrs = inode.attrs();
        let is_due = match mode {
            AccessTimes::Always => attrs.atime < now,
            _ => {
                attrs.atime <= attrs.mtime
                    || attrs.atime <= attrs.ctime
                    || now.secs.saturating_sub(attrs.atime.secs) >= DAY_SECS
            }
        };
        if !is_due {
            return Ok(());
        }
        let tx = self.begin(Cost::NAMES)?;
        inode.change(&self.store(&tx), |attrs| attrs.atime = now)
    }

    /// The first offset at or after `offset` that is not in a hole; `None` if only a hole follows.
    ///
    /// # Errors
    /// [`ZplError::Stale`] if there is no such file; or an object of the file system cannot be read.
    pub fn next_data(&self, id: ObjectId, offset: u64) -> Result<Option<u64>, ZplError> {
        let inode = self.busy(id)?;
        let _range = inode.ranges(&*self.backing).read(offset..u64::MAX)?;
        self.node(id)?.next_data(offset)
    }

    /// The first offset at or after `offset` that is in a hole. The end of the file counts as one.
    ///
    /// # Errors
    /// [`ZplError::Stale`] if there is no such file; or an object of the file system cannot be read.
    pub fn next_hole(&self, id: ObjectId, offset: u64) -> Result<Option<u64>, ZplError> {
        let inode = self.busy(id)?;
        let _range = inode.ranges(&*self.backing).read(offset..u64::MAX)?;
        self.node(id)?.next_hole(offset)
    }

    /// Writes all of `data`. Returns the offset at which it was written.
    ///
    /// # Errors
    /// [`ZplError::Stale`], [`ZplError::WrongKind`], [`ZplError::FileTooLarge`]; [`ZplError::Begin`] if no
    /// transaction can begin. Bytes written before the error stay.
    pub fn write(&self, id: ObjectId, offset: u64, data: &[u8], how: &WriteHow) -> Result<u64, ZplError> {
        let inode = self.busy(id)?;
        inode.expect(FileKind::Regular, "regular file")?;
        let len = data.len() as u64;
        // Read once, because the largest block size decides what is locked.
        let block_max = self.options().block_max();
        let guard = loop {
            // The block size of a small file may change: no other thread may use its blocks meanwhile.
            let is_whole = how.append || is_growable(&inode, block_max);
            let guard = match is_whole {
                true => inode.ranges(&*self.backing).write_all()?,
                false => inode.ranges(&*self.backing).write(offset..offset.saturating_add(len))?,
            };
            if is_whole || !is_growable(&inode, block_max) {
                break guard;
            }
        };
        let attrs = inode.attrs();
        let offset = if how.append { attrs.size } else { offset };
        self.check_mutable(&inode, &attrs)?;
        if attrs.flags & FLAG_APPENDONLY != 0 && offset < attrs.size {
            self.check_not_append_only(&inode, &attrs)?;
        }
        let Some(end) = offset.checked_add(len).filter(|end| *end < SIZE_LIMIT) else {
            return Err(ZplError::FileTooLarge { object: id, size: offset.saturating_add(len) });
        };
        let chunk = CHUNK.max(inode.object.block_size().next_power_of_two()).max(block_max);
        let mut at = offset;
        while at < end {
            let stop = end.min((at / chunk + 1) * chunk);
            let part = &data[(at - offset) as usize..(stop - offset) as usize];
            self.write_chunk(&inode, at, part, how, (end, block_max))?;
            at = stop;
        }
        drop(guard);
        Ok(offset)
    }

    /// Writes in one transaction. `end` is the end of the whole write; new blocks have `block_max` bytes.
    fn write_chunk(
        &self,
        inode: &Inode,
        offset: u64,
        data: &[u8],
        how: &WriteHow,
        (end, block_max): (u64, u64),
    ) -> Result<(), ZplError> {
        let attrs = inode.attrs();
        self.check_quota(owners(&attrs), &[QuotaOf::Space])?;
        let log = self.intent_log();
        let block = blocks_after(&inode.object, end, block_max);
        let tx = self.begin(Cost::write(data.len() as u64, block))?;
        let store = self.store(&tx);
        drop(inode.ready(&store)?);
        self.grow_block(&inode.object, attrs.size, end, block_max, &tx)?;
        inode.object.write_at(offset, data, &tx)?;
        let (now, stop) = (self.now(), offset + data.len() as u64);
        // Slow steps come before the attributes are locked.
        let written = log.is_on().then(|| LogData::written(&inode.object, offset, data));
        let mut state = inode.ready(&store)?;
        let mode = state.attrs.mode;
        inode.change_locked(&mut state, &store, |attrs| {
            attrs.size = attrs.size.max(stop);
            let times = (attrs.mtime, attrs.ctime);
            content_changed(attrs, now);
            if how.keep_times {
                (attrs.mtime, attrs.ctime) = times;
            }
            if how.clear_set_ids {
                attrs.mode = without_set_ids(attrs.mode);
            }
        })?;
        // The attributes stay locked until they are logged: see `log_attrs`.
        if let Some(written) = written {
            log.log_write(&tx, inode.id, offset, written, (!how.keep_times).then_some(state.attrs.mtime));
            if state.attrs.mode != mode {
                // The record of the write has no field for cleared set-id bits.
                let cleared = touched_record(inode.id, true, &state.attrs);
                log.log(&tx, Body::SetAttr(Box::new(cleared)));
            }
        }
        Ok(())
    }

    /// Enlarges the only block of a file of `size` bytes to hold `end` bytes, at most to `max` bytes.
    pub(crate) fn grow_block(
        &self,
        object: &LiveObject,
        size: u64,
        end: u64,
        max: u64,
        tx: &Tx,
    ) -> Result<(), ZplError> {
        let now = object.block_size();
        if object.max_block().0 > 0 || size > now || end <= now {
            return Ok(());
        }
        let new = if now >= max {
            // The block is larger than new blocks are; a second block needs a power of two all the same.
            now.next_power_of_two()
        } else {
            end.min(max).next_multiple_of(SECTOR)
        };
        if new > now {
            object.set_block_size(new, tx)?;
            if new > 128 << 10 {
                self.backing.uses_feature("large_blocks", tx);
            }
        }
        Ok(())
    }

    /// Sets the size: frees the blocks beyond it; a larger size adds a hole.
    ///
    /// # Errors
    /// [`ZplError::WrongKind`], [`ZplError::NotPermitted`], [`ZplError::FileTooLarge`]; [`ZplError::Begin`]
    /// if no transaction can begin.
    pub fn truncate(&self, id: ObjectId, size: u64, clear_set_ids: bool) -> Result<(), ZplError> {
        let inode = self.busy(id)?;
        inode.expect(FileKind::Regular, "regular file")?;
        let _range = inode.ranges(&*self.backing).write_all()?;
        let attrs = inode.attrs();
        self.check_not_append_only(&inode, &attrs)?;
        if size >= SIZE_LIMIT {
            return Err(ZplError::FileTooLarge { object: id, size });
        }
        let rest =
            if size < attrs.size { self.free_in_steps(&inode, size..u64::MAX)? } else { Rest::default() };
        let tx = self.begin(if size < attrs.size { Cost::FREES } else { Cost::write(SECTOR, SECTOR) })?;
        let clears_ids = self.set_size(&inode, size, clear_set_ids, &tx)?;
        inode.object.note_freed(rest.blocks, &tx);
        self.log(&tx, || Body::Truncate { object: id, offset: size, length: 0 });
        self.log_touched(&inode, clears_ids, &tx);
        Ok(())
    }

    /// Logs mtime and cleared set-id bits of a change of the content that is no write: its own record has no
    /// fields for them.
    pub(crate) fn log_touched(&self, inode: &Inode, clears_ids: bool, tx: &Tx) {
        self.log_attrs(inode, tx, |attrs| touched_record(inode.id, clears_ids, attrs));
    }

    /// Sets the size; the whole file is locked. Returns true if set-id bits were cleared.
    pub(crate) fn set_size(
        &self,
        inode: &Inode,
        size: u64,
        clear_set_ids: bool,
        tx: &Tx,
    ) -> Result<bool, ZplError> {
        let store = self.store(tx);
        drop(inode.ready(&store)?);
        let old = inode.attrs().size;
        if size < old {
            inode.object.free_range(size, u64::MAX, tx)?;
        } else if size > old {
            self.grow_block(&inode.object, old, size, self.options().block_max(), tx)?;
        }
        let (now, mut clears_ids) = (self.now(), false);
        inode.change(&store, |attrs| {
            attrs.size = size;
            content_changed(attrs, now);
            let mode = if clear_set_ids { without_set_ids(attrs.mode) } else { attrs.mode };
            clears_ids = mode != attrs.mode;
            attrs.mode = mode;
        })?;
        Ok(clears_ids)
    }

    /// Reserves, frees or zeros a range of a file.
    ///
    /// # Errors
    /// [`ZplError::WrongKind`], [`ZplError::NotPermitted`], [`ZplError::FileTooLarge`], [`ZplError::Invalid`]
    /// for an empty range; [`ZplError::Begin`] if no transaction can begin.
    pub fn fallocate(&self, id: ObjectId, offset: u64, len: u64, how: Allocate) -> Result<(), ZplError> {
        let inode = self.busy(id)?;
        inode.expect(FileKind::Regular, "regular file")?;
        if len == 0 {
            return Err(ZplError::Invalid { what: "an empty range" });
        }
        let Some(end) = offset.checked_add(len).filter(|end| *end < SIZE_LIMIT) else {
            return Err(ZplError::FileTooLarge { object: id, size: offset.saturating_add(len) });
        };
        let _range = inode.ranges(&*self.backing).write_all()?;
        let attrs = inode.attrs();
        let grows = match how {
            Allocate::Reserve { keep_size } | Allocate::Zero { keep_size } => !keep_size && end > attrs.size,
            Allocate::Punch => false,
        };
        let frees = matches!(how, Allocate::Punch | Allocate::Zero { .. }) && offset < attrs.size;
        match how {
            Allocate::Reserve { .. } => self.check_mutable(&inode, &attrs)?,
            _ => self.check_not_append_only(&inode, &attrs)?,
        }
        let rest = match frees {
            true => self.free_in_steps(&inode, offset..end.min(attrs.size))?,
            false => Rest::default(),
        };
        // A reservation keeps no space, so it costs none.
        let tx = self.begin(match how {
            Allocate::Reserve { .. } => Cost::NAMES,
            _ => Cost::FREES,
        })?;
        if frees {
            self.free_within(&inode, offset..rest.end, &tx)?;
            inode.object.note_freed(rest.blocks, &tx);
            self.log(&tx, || Body::Truncate { object: id, offset, length: rest.end - offset });
        }
        if grows {
            self.set_size(&inode, end, false, &tx)?;
            self.log(&tx, || Body::Truncate { object: id, offset: end, length: 0 });
        } else if !frees {
            // As in other file systems, a reservation counts as a change of the file.
            let store = self.store(&tx);
            drop(inode.ready(&store)?);
            self.touch_content(&inode, &store)?;
        }
        self.log_touched(&inode, false, &tx);
        Ok(())
    }

    /// Frees a range of a file from its end, until the remaining blocks are few enough for one transaction.
    /// The whole file is locked.
    ///
    /// Each step is a change with its own record, after which its part reads as zeros: if a later step fails,
    /// the file is as its log says. A truncation changes the size with the last step.
    pub(crate) fn free_in_steps(&self, inode: &Inode, range: Range<u64>) -> Result<Rest, ZplError> {
        let Range { start, mut end } = range;
        // A record is replayed in one transaction. Counting small files is not worth its cost.
        let max = inode.object.max_block().0;
        if max < UNCOUNTED || self.is_replaying() {
            let first = start / inode.object.block_size();
            return Ok(Rest { end, blocks: (max + 1).saturating_sub(first).min(BLOCKS_PER_TX) });
        }
        loop {
            let tail = inode.object.tail(&(start..end), BLOCKS_PER_TX)?;
            if tail.start <= start {
                return Ok(Rest { end, blocks: tail.blocks });
            }
            let tx = self.begin(Cost::FREES)?;
            self.free_within(inode, tail.start..end, &tx)?;
            inode.object.note_freed(tail.blocks, &tx);
            let length = end.min(inode.attrs().size).saturating_sub(tail.start);
            if length > 0 {
                self.log(&tx, || Body::Truncate { object: inode.id, offset: tail.start, length });
            }
            end = tail.start;
        }
    }

    /// Frees a range inside a file, which is locked as a whole.
    pub(crate) fn free_within(&self, inode: &Inode, range: Range<u64>, tx: &Tx) -> Result<(), ZplError> {
        let store = self.store(tx);
        drop(inode.ready(&store)?);
        inode.object.free_range(range.start, range.end - range.start, tx)?;
        self.touch_content(inode, &store)
    }

    pub(crate) fn touch_content(&self, inode: &Inode, store: &Store<'_>) -> Result<(), ZplError> {
        let now = self.now();
        inode.change(store, |attrs| content_changed(attrs, now))
    }
}

/// Whether the only block of the file may still change its size.
fn is_growable(inode: &Inode, block_max: u64) -> bool {
    let (size, block) = (inode.attrs().size, inode.object.block_size());
    size <= block && inode.object.max_block().0 == 0 && (block < block_max || !block.is_power_of_two())
}

/// Bytes of the blocks of a file after a write up to `end`: a single block grows up to `max` first.
pub(crate) fn blocks_after(object: &LiveObject, end: u64, max: u64) -> u64 {
    let now = object.block_size();
    if object.max_block().0 > 0 { now } else { now.max(end.min(max)) }
}

pub(crate) fn content_changed(attrs: &mut Attrs, now: Time) {
    (attrs.mtime, attrs.ctime) = (now, now);
    attrs.flags |= FLAG_ARCHIVE | FLAG_AV_MODIFIED;
}

pub(crate) fn owners(attrs: &Attrs) -> Owners {
    Owners { uid: attrs.uid, gid: attrs.gid, project: attrs.projid }
}
