//! Records of what the walk finds.

use super::blocks::{Block, byteswap, embedded};
use super::merge::{Pending, TO_END};
use super::plan::Plan;
use super::ranges::Ranges;
use super::{SendError, Sink};
use dmu::DmuError;
use format::dnode::Dnode;
use format::stream::{Free, Object, ObjectRange, Record, feature, flag};
use format::units::OLD_MAX_BLOCK;
use format::{BlockId, BlockPtr, Endian, ObjectId};
use std::ops::Range;
use std::sync::Arc;

/// Makes the records of a stream.
pub(super) struct Emitter<'a> {
    plan: &'a Plan,
    sink: &'a mut dyn Sink,
    pending: Pending,
    /// Blocks that are left out.
    redact: Ranges,
}

impl<'a> Emitter<'a> {
    pub(super) fn new(plan: &'a Plan, sink: &'a mut dyn Sink) -> Result<Emitter<'a>, SendError> {
        let redact = Ranges::open(&plan.dsl, plan.redact.as_ref())?;
        Ok(Emitter { plan, sink, pending: Pending::default(), redact })
    }

    /// Ends the record that may still grow.
    pub(super) fn finish(&mut self) -> Result<(), SendError> {
        let ended = self.pending.flush();
        self.pass(ended)
    }

    fn pass(&mut self, record: Option<Record>) -> Result<(), SendError> {
        record.map_or(Ok(()), |record| self.sink.record(record, Vec::new()))
    }

    fn record(&mut self, record: Record, payload: Vec<u8>) -> Result<(), SendError> {
        self.finish()?;
        self.sink.record(record, payload)
    }

    fn block(&mut self, block: Block) -> Result<(), SendError> {
        self.finish()?;
        self.sink.block(block)
    }

    /// A block of dnodes. Raw streams tell how it is encrypted.
    pub(super) fn dnode_block(
        &mut self,
        first: ObjectId,
        slots: u64,
        bp: &BlockPtr,
    ) -> Result<(), SendError> {
        if !self.plan.is_raw() {
            return Ok(());
        }
        let params = bp.crypt_params();
        let range = ObjectRange {
            first,
            slots,
            to_guid: self.plan.guid,
            salt: params.map_or([0; 8], |params| params.salt),
            iv: params.map_or([0; 12], |params| params.iv),
            mac: params.map_or([0; 16], |params| params.mac),
            flags: byteswap(bp),
        };
        self.record(Record::ObjectRange(range), Vec::new())
    }

    /// Free slots of dnodes. That of the dnodes themselves is never told.
    pub(super) fn free_slots(&mut self, slots: Range<u64>) -> Result<(), SendError> {
        let first = slots.start.max(self.plan.start.0.0).max(1);
        let ended = self.pending.objects(ObjectId(first), slots.end.saturating_sub(first), self.plan.guid);
        self.pass(ended)
    }

    /// An object: its dnode, the end of its contents, and a spill block that is not newer than the start of the
    /// increment. The receiver removes one that it is not told of.
    pub(super) fn object(&mut self, id: ObjectId, dnode: &Arc<Dnode>) -> Result<(), SendError> {
        let (record, bonus) = self.object_record(id, dnode)?;
        self.record(record, bonus)?;
        let size = dnode.data_block_size();
        let offset = dnode.maxblkid.0.saturating_add(1).saturating_mul(size);
        let rest = Free { object: id, offset, length: TO_END, to_guid: self.plan.guid };
        self.record(Record::Free(rest), Vec::new())?;
        match dnode.spill.filter(|bp| !bp.is_hole()) {
            Some(bp) if bp.logical_birth() <= self.plan.from => self.spill(id, dnode, &bp),
            _ => Ok(()),
        }
    }

    fn object_record(&self, id: ObjectId, dnode: &Dnode) -> Result<(Record, Vec<u8>), SendError> {
        let (plan, is_raw) = (self.plan, self.plan.is_raw());
        let has_spill = dnode.spill.is_some_and(|bp| !bp.is_hole());
        let is_large = plan.has(feature::LARGE_BLOCKS) || is_raw;
        let size = dnode.data_block_size().min(if is_large { u64::MAX } else { OLD_MAX_BLOCK });
        let bonus = match () {
            () if dnode.bonuslen == 0 => Vec::new(),
            () if is_raw => dnode.bonus.clone(),
            () => {
                let foreign = DmuError::ForeignOrder { objset: plan.set.number(), object: id };
                let little = dnode.clone().into_little().ok_or(foreign)?;
                let mut bonus = little.valid_bonus().to_vec();
                bonus.resize(bonus.len().next_multiple_of(8), 0);
                bonus
            }
        };
        let is_swapped = is_raw && dnode.order == Endian::Big;
        let raw = |value: u8| if is_raw { value } else { 0 };
        let object = Object {
            object: id,
            kind: dnode.obj_type.id().into(),
            bonus_kind: dnode.bonus_type.id().into(),
            block_size: size as u32,
            bonus_len: dnode.bonuslen.into(),
            checksum_type: dnode.checksum,
            compress: dnode.compress,
            slots: dnode.slots() as u8,
            flags: if has_spill { flag::HAS_SPILL } else { 0 } | if is_swapped { flag::BYTE_SWAP } else { 0 },
            raw_bonus_len: if is_raw { bonus.len() as u32 } else { 0 },
            to_guid: plan.guid,
            indirect_shift: raw(dnode.indblkshift),
            levels: raw(dnode.nlevels),
            block_pointers: raw(dnode.blkptrs.len() as u8),
            max_block: if is_raw { dnode.maxblkid.0 } else { 0 },
        };
        Ok((Record::Object(object), bonus))
    }

    /// A spill block.
    pub(super) fn spill(&mut self, id: ObjectId, dnode: &Arc<Dnode>, bp: &BlockPtr) -> Result<(), SendError> {
        self.block(Block::spill(self.plan, id, dnode, bp))
    }

    /// A data block that is not a hole.
    pub(super) fn data(
        &mut self,
        id: ObjectId,
        dnode: &Arc<Dnode>,
        blkid: BlockId,
        bp: &BlockPtr,
    ) -> Result<(), SendError> {
        let blocks = blkid.0..blkid.0.saturating_add(1);
        if self.redact.first_in(id, &blocks)?.is_some() {
            return self.absent(id, dnode, &blocks);
        }
        match embedded(self.plan, id, blkid, bp) {
            Some((record, payload)) => self.record(record, payload),
            None => self.block(Block::data(self.plan, id, dnode, blkid, bp)),
        }
    }

    /// Blocks of an object that are holes. Those of the redaction list are absent all the same.
    pub(super) fn hole(
        &mut self,
        id: ObjectId,
        dnode: &Dnode,
        mut blocks: Range<u64>,
    ) -> Result<(), SendError> {
        while let Some(listed) = self.redact.first_in(id, &blocks)? {
            self.free(id, dnode, &(blocks.start..listed.start))?;
            self.absent(id, dnode, &listed)?;
            blocks.start = listed.end;
        }
        self.free(id, dnode, &blocks)
    }

    fn free(&mut self, id: ObjectId, dnode: &Dnode, blocks: &Range<u64>) -> Result<(), SendError> {
        let ended = self.pending.free(self.range(id, dnode, blocks));
        self.pass(ended)
    }

    /// Blocks of an object that are left out.
    pub(super) fn absent(
        &mut self,
        id: ObjectId,
        dnode: &Dnode,
        blocks: &Range<u64>,
    ) -> Result<(), SendError> {
        let ended = self.pending.redact(self.range(id, dnode, blocks));
        self.pass(ended)
    }

    fn range(&self, object: ObjectId, dnode: &Dnode, blocks: &Range<u64>) -> Free {
        let size = dnode.data_block_size();
        let offset = blocks.start.saturating_mul(size);
        let length = blocks.end.saturating_mul(size).saturating_sub(offset);
        Free { object, offset, length, to_guid: self.plan.guid }
    }
}
