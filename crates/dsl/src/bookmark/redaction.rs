//! Redaction lists: the blocks that a redaction bookmark leaves out of streams
//! (docs/on-disk/30-send-streams.md, section 10).

use crate::error::DslError;
use crate::mos_tx::MosTx;
use crate::tree::Dsl;
use dmu::{NewObject, Object};
use format::dsl::RedactionListPhys;
use format::{BlockId, DecodeError, Endian, ObjType, ObjectId};

/// Bytes of an entry of the list.
const ENTRY: u64 = 32;
/// Bytes of a block of the list.
const BLOCK: u64 = 128 << 10;
/// Entries that are read and written together.
const TOGETHER: u64 = 2048;
const WHAT: &str = "redaction list";

/// The redaction list of a bookmark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedactionList {
    /// Number of its object in the MOS.
    pub object: ObjectId,
    /// Number of its entries.
    pub num_entries: u64,
    /// Guids of the snapshots that the list was made for.
    pub snapshots: Vec<u64>,
}

/// Consecutive blocks of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RedactedRange {
    /// Number of the object.
    pub object: ObjectId,
    /// The first block.
    pub first: BlockId,
    /// Number of blocks.
    pub blocks: u64,
}

impl RedactedRange {
    /// The first block behind the range.
    pub fn end(&self) -> u64 {
        self.first.0.saturating_add(self.blocks)
    }
}

/// Type of a list's object and bonus.
const LIST: ObjType = ObjType::UINT64_METADATA;
/// Bytes of a bonus: a list of more snapshots has them in a spill block.
const BONUS_MAX: usize = 320;

/// Whether the guids of so many snapshots are in a spill block.
pub(super) fn has_spill(snapshots: usize) -> bool {
    RedactionListPhys::encode_complete(0, &[]).len() + snapshots * size_of::<u64>() > BONUS_MAX
}

/// Makes the object of a list. `block_size`: bytes of a block of an object of the snapshot.
///
/// # Errors
/// The object cannot be made, or `block_size` fails.
pub(super) fn create(
    m: MosTx<'_>,
    snapshots: &[u64],
    ranges: &[RedactedRange],
    block_size: impl Fn(ObjectId) -> Result<u64, DslError>,
) -> Result<ObjectId, DslError> {
    let phys = RedactionListPhys::encode_complete(ranges.len() as u64, snapshots);
    let (bonus, spill) = if has_spill(snapshots.len()) { (Vec::new(), Some(phys)) } else { (phys, None) };
    let mut new = NewObject::of(LIST).with_block_size(BLOCK).with_bonus(LIST, bonus);
    // The spill pointer needs room.
    new.block_pointers = 1;
    let object = m.allocate(&new)?;
    if let Some(mut spill) = spill {
        spill.resize(spill.len().next_multiple_of(512), 0);
        object.set_spill(Some(spill), m.tx);
    }
    let mut known = (ObjectId(0), 0);
    for (chunk, at) in ranges.chunks(TOGETHER as usize).zip((0..).step_by((TOGETHER * ENTRY) as usize)) {
        let mut bytes = Vec::with_capacity(chunk.len() * ENTRY as usize);
        for range in chunk {
            if known.0 != range.object {
                known = (range.object, block_size(range.object)? / 512);
            }
            let size_count = known.1 << 48 | (range.blocks - 1) & ((1 << 48) - 1);
            for word in [range.object.0, range.first.0, size_count, 0] {
                bytes.extend_from_slice(&word.to_le_bytes());
            }
        }
        object.write_at(at, &bytes, m.tx)?;
    }
    Ok(object.id())
}

impl RedactionList {
    pub(super) fn open(dsl: &Dsl, id: ObjectId) -> Result<RedactionList, DslError> {
        let object = dsl.mos().object(id)?;
        // A list of many snapshots has the same structure in the spill block instead.
        let list = match object.spill()? {
            Some(spill) => RedactionListPhys::decode(spill.bytes(), spill.order()),
            None => RedactionListPhys::decode(object.bonus(), object.order()),
        };
        let RedactionListPhys { num_entries, snapshots, .. } = list.map_err(DslError::decode(id))?;
        Ok(RedactionList { object: id, num_entries, snapshots })
    }

    /// Reads the entries in order.
    ///
    /// # Errors
    /// If the object of the list cannot be opened.
    pub fn entries(&self, dsl: &Dsl) -> Result<RedactionEntries, DslError> {
        let object = dsl.mos().object(self.object)?;
        Ok(RedactionEntries { object, num_entries: self.num_entries, next: 0, read: Vec::new(), last: None })
    }
}

/// Iterator over the entries of a redaction list, in the order of objects and blocks. An entry that is not behind the
/// one before it is an error, and ends it.
pub struct RedactionEntries {
    object: Object,
    num_entries: u64,
    next: u64,
    /// Entries that are read already, the next one last.
    read: Vec<RedactedRange>,
    last: Option<RedactedRange>,
}

impl RedactionEntries {
    fn read_more(&mut self) -> Result<(), DslError> {
        let count = (self.num_entries - self.next).min(TOGETHER);
        let at = self.next.saturating_mul(ENTRY);
        if at.saturating_add(count * ENTRY) > self.object.logical_end() {
            return Err(self.damaged("more entries than the object holds"));
        }
        let mut bytes = vec![0; (count * ENTRY) as usize];
        self.object.read_numbers(at, 8, &mut bytes)?;
        let words: Vec<u64> = Endian::Little.all_words(&bytes).collect();
        let entries = words.chunks_exact(4).map(|entry| RedactedRange {
            object: ObjectId(entry[0]),
            first: BlockId(entry[1]),
            // The upper 16 bits are the size of a block. The lower ones count the blocks after the first.
            blocks: (entry[2] & ((1 << 48) - 1)) + 1,
        });
        self.read = entries.collect();
        self.read.reverse();
        self.next += count;
        Ok(())
    }

    fn damaged(&self, why: &'static str) -> DslError {
        DslError::decode(self.object.id())(DecodeError::invalid(WHAT, why))
    }

    fn step(&mut self) -> Result<Option<RedactedRange>, DslError> {
        if self.read.is_empty() && self.next < self.num_entries {
            self.read_more()?;
        }
        let Some(entry) = self.read.pop() else { return Ok(None) };
        let is_behind = |last: &RedactedRange| {
            entry.object > last.object || (entry.object == last.object && entry.first.0 >= last.end())
        };
        if !self.last.as_ref().is_none_or(is_behind) {
            return Err(self.damaged("entries that are not in order"));
        }
        self.last = Some(entry);
        Ok(Some(entry))
    }
}

impl Iterator for RedactionEntries {
    type Item = Result<RedactedRange, DslError>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step();
        if step.is_err() {
            self.read.clear();
            self.next = self.num_entries;
        }
        step.transpose()
    }
}
