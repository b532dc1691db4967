//! Block cloning between files (docs/on-disk/32-dedup-cloning.md).

use crate::file::data::{content_changed, owners};
use crate::fs::backing::{CloneTable, Cost};
use crate::fs::writable::Fs;
use crate::node::inode::Inode;
use crate::space::QuotaOf;
use crate::{FileKind, Node, ZplError};
use dmu::{AllocTx, DmuError};
use dmu::{LiveObject, Tx};
use format::zil::{Body, CloneRange};
use format::{BlockId, BlockPtr, Level, ObjectId};

/// Blocks cloned in one transaction: as many pointers as a log record holds.
const BLOCKS_PER_TX: u64 = 512;

/// A range to be cloned: whole blocks, except at the end of both files.
struct Range {
    /// Number of the source's object set.
    source: u64,
    from: u64,
    to: u64,
    len: u64,
    block: u64,
}

/// A range of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileRange {
    /// Object number of the file.
    pub id: ObjectId,
    /// Offset of the first byte.
    pub offset: u64,
}

impl Fs {
    /// Clones `len` bytes of one file into another by sharing their blocks. The two may be in different file
    /// systems of one pool: `source_fs` is that of the source. Returns the number of cloned bytes, less than
    /// `len` if the source ends earlier.
    ///
    /// # Errors
    /// [`ZplError::CannotClone`] if the ranges do not consist of whole blocks of one size, or the blocks
    /// cannot be shared: the caller copies then. [`ZplError::NotYetWritten`] if the txg of a block is not on
    /// disk: a retry after the next sync succeeds. Blocks cloned before the error stay.
    pub fn clone_range(
        &self,
        source_fs: &Fs,
        from: FileRange,
        to: FileRange,
        len: u64,
        table: &dyn CloneTable,
    ) -> Result<u64, ZplError> {
        let (source, target) = (source_fs.busy(from.id)?, self.busy(to.id)?);
        for inode in [&source, &target] {
            inode.expect(FileKind::Regular, "regular file")?;
        }
        let is_one_file = std::ptr::eq(self, source_fs) && from.id == to.id;
        let wanted = from.offset..from.offset.saturating_add(len);
        let (source_range, target_range);
        if is_one_file {
            let overlaps =
                from.offset < to.offset.saturating_add(len) && to.offset < from.offset.saturating_add(len);
            if overlaps {
                return Err(ZplError::CannotClone { why: "the ranges overlap" });
            }
            (source_range, target_range) = (None, target.ranges(&*self.backing).write_all()?);
        } else if (source_fs.set.number(), from.id) < (self.set.number(), to.id) {
            source_range = Some(source.ranges(&*source_fs.backing).read(wanted)?);
            target_range = target.ranges(&*self.backing).write_all()?;
        } else {
            target_range = target.ranges(&*self.backing).write_all()?;
            source_range = Some(source.ranges(&*source_fs.backing).read(wanted)?);
        }
        let shared =
            self.clone_locked((source_fs.set.number(), &source), from.offset, &target, to.offset, len, table);
        drop((source_range, target_range));
        shared
    }

    fn clone_locked(
        &self,
        (set, source): (u64, &Inode),
        from: u64,
        target: &Inode,
        to: u64,
        len: u64,
        table: &dyn CloneTable,
    ) -> Result<u64, ZplError> {
        let (source_size, attrs) = (source.attrs().size, target.attrs());
        self.check_clones()?;
        self.check_mutable(target, &attrs)?;
        if to < attrs.size {
            self.check_not_append_only(target, &attrs)?;
        }
        let len = len.min(source_size.saturating_sub(from));
        if len == 0 {
            return Ok(0);
        }
        let end = to.checked_add(len).filter(|end| *end < 1 << 63);
        let end = end.ok_or(ZplError::FileTooLarge { object: target.id, size: to.saturating_add(len) })?;
        let block = source.object.block_size();
        let has_one_odd_block = !block.is_power_of_two();
        let is_aligned = from.is_multiple_of(block) && to.is_multiple_of(block);
        if !is_aligned || (has_one_odd_block && to != 0) {
            return Err(ZplError::CannotClone { why: "the ranges do not begin with a block" });
        }
        // Only the last block may be partial, and only if it is the last of both files.
        if !len.is_multiple_of(block) && (from + len < source_size || end < attrs.size) {
            return Err(ZplError::CannotClone { why: "the range does not end with a block" });
        }
        if target.object.block_size() != block && (target.object.max_block().0 > 0 || attrs.size > block) {
            return Err(ZplError::CannotClone { why: "the files have blocks of different sizes" });
        }
        self.check_quota(owners(&attrs), &[QuotaOf::Space])?;
        let range = Range { source: set, from, to, len, block };
        self.clone_blocks(&range, target, &|blkid| source.object.pointer_on_disk(blkid), &|| true, table)?;
        Ok(len)
    }

    /// Clones a whole file of a snapshot or head of this pool into an empty file. `live` is the object as its
    /// head has it in its newest state, with the version that it had when `source` was read. `None`: the
    /// source is a snapshot. The caller keeps the head open or holds the snapshot meanwhile.
    ///
    /// # Errors
    /// Those of [`Fs::clone_range`]; [`ZplError::CannotClone`] also if a file of this content would get
    /// another block size here, and if the source was changed or removed since. Blocks cloned before the
    /// error stay.
    pub fn clone_file(
        &self,
        source: &Node,
        live: Option<&(LiveObject, u64)>,
        to: ObjectId,
        table: &dyn CloneTable,
    ) -> Result<(), ZplError> {
        source.expect(FileKind::Regular, "regular file")?;
        let target = self.busy(to)?;
        target.expect(FileKind::Regular, "regular file")?;
        let _range = target.ranges(&*self.backing).write_all()?;
        let (attrs, len, block) = (target.attrs(), source.attrs().size, source.block_size());
        self.check_clones()?;
        self.check_mutable(&target, &attrs)?;
        if attrs.size != 0 || target.object.max_block().0 != 0 {
            return Err(ZplError::CannotClone { why: "the file is not empty" });
        }
        let usual = self.options().block_max();
        if (len > block && block != usual) || block > usual {
            return Err(ZplError::CannotClone { why: "the files have blocks of different sizes" });
        }
        self.check_quota(owners(&attrs), &[QuotaOf::Space])?;
        let pointer_of = |blkid: BlockId| match live {
            Some((live, _)) => live.pointer_on_disk(blkid),
            None => source.object().block_ptr(Level(0), blkid).map(Some),
        };
        let is_same = || live.is_none_or(|(live, version)| live.version() == *version);
        let range = Range { source: source.object().objset().number(), from: 0, to: 0, len, block };
        self.clone_blocks(&range, &target, &pointer_of, &is_same, table)
    }

    fn check_clones(&self) -> Result<(), ZplError> {
        if self.options().clones {
            return Ok(());
        }
        Err(ZplError::CannotClone { why: "feature block_cloning is not enabled" })
    }

    /// Clones blocks, as many in each transaction as a log record holds. The pointers are read while the
    /// transaction is held, so that their blocks are not freed before the references are counted. They are
    /// used only if the source `is_same` after that: the blocks of a removed file may be freed.
    fn clone_blocks(
        &self,
        range: &Range,
        target: &Inode,
        pointer_of: &dyn Fn(BlockId) -> Result<Option<BlockPtr>, DmuError>,
        is_same: &dyn Fn() -> bool,
        table: &dyn CloneTable,
    ) -> Result<(), ZplError> {
        let Range { source, from, to, len, block } = *range;
        let step = BLOCKS_PER_TX * block;
        let mut done = 0;
        while done < len {
            let part = (len - done).min(step);
            let tx = self.begin(Cost::write(part, block))?;
            table.note_source(source, &tx);
            let mut pointers = Vec::with_capacity(part.div_ceil(block) as usize);
            for i in 0..part.div_ceil(block) {
                let bp = pointer_of(BlockId((from + done) / block + i))?;
                // The log holds the pointers, so a crash must not make them invalid.
                let is_there =
                    |bp: &BlockPtr| bp.is_hole() || bp.is_embedded() || tx.is_on_disk(bp.physical_birth());
                let bp = bp.filter(is_there).ok_or(ZplError::NotYetWritten { object: target.id })?;
                if !bp.is_hole() && (bp.lsize().0 != block || bp.level().0 != 0 || bp.uses_crypt()) {
                    return Err(ZplError::CannotClone { why: "a block that cannot be shared" });
                }
                pointers.push(bp);
            }
            if !is_same() {
                return Err(ZplError::CannotClone { why: "the file has changed" });
            }
            let (object, offset) = (target.id, to + done);
            let clone = CloneRange { object, offset, length: part, block_size: block, pointers };
            self.put_clone(target, &clone, Some(table), &tx)?;
            done += part;
        }
        Ok(())
    }

    /// Writes pointers into a file whose range is locked. Without a table, references are not counted.
    pub(crate) fn put_clone(
        &self,
        target: &Inode,
        clone: &CloneRange,
        table: Option<&dyn CloneTable>,
        tx: &Tx,
    ) -> Result<(), ZplError> {
        let counted: Vec<BlockPtr> =
            clone.pointers.iter().filter(|bp| !bp.is_hole() && !bp.is_embedded()).copied().collect();
        let store = self.store(tx);
        drop(target.ready(&store)?);
        if target.object.block_size() != clone.block_size {
            target.object.set_block_size(clone.block_size, tx)?;
        }
        if let Some(table) = table {
            table.add(&counted, tx)?;
        }
        let first = clone.offset / clone.block_size;
        for (blkid, bp) in (first..).zip(&clone.pointers) {
            target.object.assign_block(BlockId(blkid), bp.cloned_in(tx.txg()), tx);
        }
        let (now, end) = (self.now(), clone.offset + clone.length);
        target.change(&store, |attrs| {
            attrs.size = attrs.size.max(end);
            content_changed(attrs, now);
        })?;
        self.log(tx, || Body::CloneRange(clone.clone()));
        self.log_touched(target, false, tx);
        Ok(())
    }
}
