//! Lists of block pointers in syncing context: they grow at the end, take over other lists, and are consumed
//! from the end (docs/on-disk/22-mos-dsl.md, section 4.2; docs/on-disk/15-space.md, section 6.1).
//!
//! # What always holds
//! - The totals of a list are those of its own pointers and of all lists below it.
//! - A list belongs to one list, one deadlist or one entry of the object directory, except for the shared
//!   empty one, which never grows and whose references the feature `empty_bpobj` counts.
//! - Consuming may stop at any pointer and leaves the list consistent: consumed pointers are removed.

use crate::block_space::Space;
use crate::bpobj::Bpobj;
use crate::budget::Budget;
use crate::error::DslError;
use crate::mos_tx::MosTx;
use dmu::{LiveObject, NewObject};
use format::blkptr::BLKPTR_SIZE;
use format::bpobj::StoredBlock;
use format::dsl::BpobjPhys;
use format::names;
use format::{BlockId, CompressionId, Endian, ObjType, ObjectId};
use std::collections::HashSet;

/// Feature that lets lists without a block share one object. Its count is the number of their references.
const FEATURE: &str = "empty_bpobj";
/// Bytes of a block of pointers.
const BLOCK_SIZE: u64 = 128 << 10;
/// Bytes of a block of the list of frees that are deferred to the next txg.
const DEFERRED_BLOCK_SIZE: u64 = 16 << 10;
/// Bytes of the bonus without the count of frees that livelists need.
const BONUS_SIZE: usize = 48;
const BONUS_SIZE_FREED: usize = 56;
/// Bytes of a pointer in the array.
const ITEM: u64 = BLKPTR_SIZE as u64;

/// Callback for an entry of a list and its charge.
pub(crate) type Each<'a> = dyn FnMut(&StoredBlock, Space) -> Result<(), DslError> + 'a;

/// A list and its bonus, decoded.
struct Open {
    object: LiveObject,
    phys: BpobjPhys,
    bonus_size: usize,
}

impl Open {
    fn new(m: MosTx<'_>, id: ObjectId) -> Result<Open, DslError> {
        // Checks the counts against the size of the object.
        let phys = *Bpobj::open(&m.view(), id)?.phys();
        let object = m.object(id)?;
        let bonus_size = object.with_bonus(<[u8]>::len);
        Ok(Open { object, phys, bonus_size })
    }

    fn id(&self) -> ObjectId {
        self.object.id()
    }

    fn store(&self, m: MosTx<'_>) {
        self.object.set_bonus(&self.phys.encode(Endian::Little, self.bonus_size), m.tx);
    }

    fn space(&self) -> Space {
        Space { used: self.phys.bytes, compressed: self.phys.comp, uncompressed: self.phys.uncomp }
    }

    fn set_space(&mut self, space: Space) {
        (self.phys.bytes, self.phys.comp, self.phys.uncomp) =
            (space.used, space.compressed, space.uncompressed);
    }

    fn is_empty(&self) -> bool {
        self.phys.num_blkptrs == 0 && self.phys.num_subobjs == 0
    }

    /// Whether all its pointers are in one block.
    fn is_small(&self) -> bool {
        self.phys.num_blkptrs * ITEM <= self.object.block_size()
    }

    fn put_pointers(&mut self, m: MosTx<'_>, entries: &[StoredBlock]) -> Result<(), DslError> {
        let mut bytes = Vec::with_capacity(entries.len() * BLKPTR_SIZE);
        for entry in entries {
            bytes.extend_from_slice(&entry.encode(Endian::Little));
        }
        m.write_words(&self.object, self.phys.num_blkptrs * ITEM, &bytes)?;
        self.phys.num_blkptrs += entries.len() as u64;
        self.phys.num_freed += entries.iter().filter(|entry| entry.freed).count() as u64;
        Ok(())
    }

    /// The object with the numbers of the lists below; created if there is none.
    fn sub_list(&mut self, m: MosTx<'_>) -> Result<LiveObject, DslError> {
        if let Some(id) = self.phys.subobjs {
            return m.object(id);
        }
        if self.bonus_size < BONUS_SIZE {
            // Lists of pools before version 13 cannot have lists below them.
            let (found, expected) = (self.bonus_size as u64, BONUS_SIZE as u64);
            return Err(DslError::Mismatch { what: "bonus of a bpobj", object: self.id(), found, expected });
        }
        let new = NewObject::of(ObjType::BPOBJ_SUBOBJ).with_block_size(BLOCK_SIZE);
        let list = m.allocate(&new)?;
        self.phys.subobjs = Some(list.id());
        Ok(list)
    }

    fn put_subs(&mut self, m: MosTx<'_>, subs: &[ObjectId]) -> Result<(), DslError> {
        if subs.is_empty() {
            return Ok(());
        }
        let list = self.sub_list(m)?;
        let bytes: Vec<u8> = subs.iter().flat_map(|id| id.0.to_le_bytes()).collect();
        m.write_words(&list, self.phys.num_subobjs * 8, &bytes)?;
        self.phys.num_subobjs += subs.len() as u64;
        Ok(())
    }

    fn last_sub(&self, m: MosTx<'_>) -> Result<ObjectId, DslError> {
        let missing = || DslError::Mismatch {
            what: "sub-objects of a bpobj",
            object: self.id(),
            found: 0,
            expected: self.phys.num_subobjs,
        };
        let list = m.object(self.phys.subobjs.ok_or_else(missing)?)?;
        let at = self.phys.num_subobjs.checked_sub(1).ok_or_else(missing)? * 8;
        let block = list.block(BlockId(at / list.block_size()))?.ok_or_else(missing)?;
        let within = (at % list.block_size()) as usize;
        block.order().get_u64(block.bytes(), within).map(ObjectId).ok_or_else(missing)
    }

    fn drop_last_sub(&mut self, m: MosTx<'_>) -> Result<(), DslError> {
        self.phys.num_subobjs -= 1;
        let Some(id) = self.phys.subobjs else { return Ok(()) };
        if self.phys.num_subobjs == 0 {
            m.free(id)?;
            self.phys.subobjs = None;
            return Ok(());
        }
        let list = m.object(id)?;
        let kept = (self.phys.num_subobjs * 8).next_multiple_of(list.block_size());
        Ok(list.free_range(kept, u64::MAX, m.tx)?)
    }

    /// Passes the pointers of the last block to `each`, the last one first, within the budget. Returns the
    /// charge of the consumed pointers, the charge of those marked as freed, and last an error of `each`.
    fn consume_tail(
        &mut self,
        m: MosTx<'_>,
        budget: &mut Budget,
        each: &mut Each<'_>,
    ) -> Result<(Space, Space, Result<(), DslError>), DslError> {
        let size = self.object.block_size();
        let per_block = size / ITEM;
        let first = (self.phys.num_blkptrs - 1) / per_block * per_block;
        let hole = || self.object.read().corrupt("a hole in a list of block pointers");
        let block = self.object.block(BlockId(first / per_block))?.ok_or_else(hole)?;
        let (mut sum, mut marks) = (Space::default(), Space::default());
        let mut result = Ok(());
        while self.phys.num_blkptrs > first && budget.take(1) {
            let at = ((self.phys.num_blkptrs - 1 - first) * ITEM) as usize;
            let raw = block.bytes().get(at..).unwrap_or(&[]);
            let decoded = StoredBlock::decode(raw, block.order()).map_err(DslError::decode(self.id()));
            let space = decoded.as_ref().map(|entry| m.space_of(&entry.bp)).unwrap_or_default();
            let entry = match decoded.and_then(|entry| each(&entry, space).map(|()| entry)) {
                Ok(entry) => entry,
                Err(error) => {
                    result = Err(error);
                    break;
                }
            };
            let total = if entry.freed { &mut marks } else { &mut sum };
            *total = total.plus(space);
            self.phys.num_blkptrs -= 1;
            self.phys.num_freed = self.phys.num_freed.saturating_sub(u64::from(entry.freed));
        }
        let kept = (self.phys.num_blkptrs * ITEM).next_multiple_of(size);
        self.object.free_range(kept, u64::MAX, m.tx)?;
        Ok((sum, marks, result))
    }
}

fn new_list(m: MosTx<'_>, block_size: u64, compress: u8) -> Result<ObjectId, DslError> {
    let livelists = m.features.is_active("livelist");
    let bonus = vec![0; if livelists { BONUS_SIZE_FREED } else { BONUS_SIZE }];
    let new = NewObject { compress, ..NewObject::of(ObjType::BPOBJ) }
        .with_bonus(ObjType::BPOBJ_HDR, bonus)
        .with_block_size(block_size);
    Ok(m.allocate(&new)?.id())
}

impl Bpobj {
    /// Creates an empty list, with blocks of `block_size` bytes; 0: the usual size.
    pub(crate) fn create(m: MosTx<'_>, block_size: u64) -> Result<ObjectId, DslError> {
        new_list(m, if block_size == 0 { BLOCK_SIZE } else { block_size }, 0)
    }

    /// Creates the list of frees that are deferred to the next txg: small blocks, not compressed, so that
    /// repeated writing converges.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read or changed: the txg must not end then.
    pub fn create_deferred(m: MosTx<'_>) -> Result<ObjectId, DslError> {
        new_list(m, DEFERRED_BLOCK_SIZE, CompressionId::Off.id())
    }

    /// Creates a list whose bonus has the count of freed entries that livelists need.
    pub(crate) fn create_for_livelist(m: MosTx<'_>) -> Result<ObjectId, DslError> {
        let new = NewObject::of(ObjType::BPOBJ)
            .with_bonus(ObjType::BPOBJ_HDR, vec![0; BONUS_SIZE_FREED])
            .with_block_size(BLOCK_SIZE);
        Ok(m.allocate(&new)?.id())
    }

    /// Returns an empty list: with the feature `empty_bpobj` a new reference to the shared one, otherwise a
    /// new object.
    pub(crate) fn create_or_share(m: MosTx<'_>) -> Result<ObjectId, DslError> {
        if !m.features.is_enabled(FEATURE) {
            return Bpobj::create(m, 0);
        }
        let id = match m.entry(names::directory::EMPTY_BPOBJ)? {
            Some(id) => id,
            None => {
                let id = Bpobj::create(m, 0)?;
                m.set_entry(names::directory::EMPTY_BPOBJ, id.0)?;
                id
            }
        };
        m.features.incr(m, FEATURE)?;
        Ok(id)
    }

    /// Whether a list is the shared empty one.
    pub(crate) fn is_shared(m: MosTx<'_>, id: ObjectId) -> Result<bool, DslError> {
        Ok(m.features.is_active(FEATURE) && m.entry(names::directory::EMPTY_BPOBJ)? == Some(id))
    }

    /// Frees a list as [`Bpobj::free`] does, or drops the reference if it is the shared empty one.
    pub(crate) fn release(m: MosTx<'_>, id: ObjectId) -> Result<(), DslError> {
        if Bpobj::is_shared(m, id)? { drop_shared(m, id) } else { Bpobj::free(m, id) }
    }

    /// Frees a list and all lists below it. The blocks in it are not freed.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read or changed: the txg must not end then.
    pub fn free(m: MosTx<'_>, id: ObjectId) -> Result<(), DslError> {
        let mut seen = HashSet::from([id]);
        let mut stack = vec![id];
        while let Some(id) = stack.pop() {
            let list = Bpobj::open(&m.view(), id)?;
            stack.extend(list.subobjs()?.into_iter().filter(|sub| seen.insert(*sub)));
            if let Some(numbers) = list.phys().subobjs {
                m.free(numbers)?;
            }
            m.free(id)?;
        }
        Ok(())
    }

    /// Appends pointers. `space` is their charge; those marked as freed count negative in it, so that it may
    /// be below 0: see `append_net`.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read or changed: the txg must not end then.
    pub fn append(m: MosTx<'_>, id: ObjectId, entries: &[StoredBlock], space: Space) -> Result<(), DslError> {
        Bpobj::append_net(m, id, entries, space, Space::default())
    }

    /// Appends pointers, adds `more` to the totals and subtracts `less`.
    pub(crate) fn append_net(
        m: MosTx<'_>,
        id: ObjectId,
        entries: &[StoredBlock],
        more: Space,
        less: Space,
    ) -> Result<(), DslError> {
        assert!(!Bpobj::is_shared(m, id)?, "nothing is appended to the shared empty list");
        let mut list = Open::new(m, id)?;
        list.put_pointers(m, entries)?;
        // Totals of livelists may be below 0 for a while: they are counted modulo 2^64.
        let net = |now: u64, more: u64, less: u64| now.wrapping_add(more).wrapping_sub(less);
        list.phys.bytes = net(list.phys.bytes, more.used, less.used);
        list.phys.comp = net(list.phys.comp, more.compressed, less.compressed);
        list.phys.uncomp = net(list.phys.uncomp, more.uncompressed, less.uncompressed);
        list.store(m);
        Ok(())
    }

    /// Appends all of `sub` to `into`: copies a small list, and references a large one. Consumes the caller's
    /// reference to `sub`. Returns the totals of `sub`.
    pub(crate) fn append_sub(m: MosTx<'_>, into: ObjectId, sub: ObjectId) -> Result<Space, DslError> {
        assert!(into != sub, "a list is not put into itself");
        if Bpobj::is_shared(m, sub)? {
            drop_shared(m, sub)?;
            return Ok(Space::default());
        }
        let mut from = Open::new(m, sub)?;
        if from.is_empty() {
            Bpobj::free(m, sub)?;
            return Ok(Space::default());
        }
        assert!(!Bpobj::is_shared(m, into)?, "nothing is appended to the shared empty list");
        let total = from.space();
        let mut list = Open::new(m, into)?;
        move_subs(m, &mut from, &mut list)?;
        if from.is_small() && from.phys.num_subobjs == 0 {
            let mut entries = Vec::new();
            let reader = Bpobj::open(&m.view(), sub)?;
            reader.for_each_own(&mut |entry| {
                entries.push(*entry);
                Ok(())
            })?;
            list.put_pointers(m, &entries)?;
            Bpobj::free(m, sub)?;
        } else {
            list.put_subs(m, &[sub])?;
        }
        list.set_space(list.space().plus(total));
        list.store(m);
        Ok(total)
    }

    /// Removes pointers from the end of a list and passes each to `each`, within the budget; frees lists
    /// below that become empty. Returns true if the list is empty.
    ///
    /// # Errors
    /// Those of `each`; its pointer, and all pointers before it, are still in the list then.
    pub fn consume(
        m: MosTx<'_>,
        id: ObjectId,
        budget: &mut Budget,
        each: &mut Each<'_>,
    ) -> Result<bool, DslError> {
        let mut stack = vec![Open::new(m, id)?];
        let result = consume_stack(m, &mut stack, budget, each);
        for list in &stack {
            list.store(m);
        }
        result?;
        Ok(stack.len() == 1 && stack.iter().all(Open::is_empty))
    }
}

fn drop_shared(m: MosTx<'_>, id: ObjectId) -> Result<(), DslError> {
    m.features.decr(m, FEATURE)?;
    if !m.features.is_active(FEATURE) {
        m.remove_entry(names::directory::EMPTY_BPOBJ)?;
        m.free(id)?;
    }
    Ok(())
}

/// Moves the lists below `from` to `list`, if their numbers are in one block.
fn move_subs(m: MosTx<'_>, from: &mut Open, list: &mut Open) -> Result<(), DslError> {
    let Some(numbers) = from.phys.subobjs else { return Ok(()) };
    if from.phys.num_subobjs * 8 > m.object(numbers)?.block_size() {
        return Ok(());
    }
    let subs = Bpobj::open(&m.view(), from.id())?.subobjs()?;
    let mut below = Space::default();
    for sub in &subs {
        below = below.plus(Bpobj::open(&m.view(), *sub)?.space());
    }
    list.put_subs(m, &subs)?;
    m.free(numbers)?;
    (from.phys.subobjs, from.phys.num_subobjs) = (None, 0);
    from.set_space(from.space().minus(below));
    from.store(m);
    Ok(())
}

fn consume_stack(
    m: MosTx<'_>,
    stack: &mut Vec<Open>,
    budget: &mut Budget,
    each: &mut Each<'_>,
) -> Result<(), DslError> {
    while !budget.is_spent() {
        let depth = stack.len();
        let Some(top) = stack.last_mut() else { break };
        if top.phys.num_blkptrs > 0 {
            let (gone, marks, result) = top.consume_tail(m, budget, each)?;
            for list in stack.iter_mut() {
                list.set_space(list.space().plus(marks).minus(gone));
            }
            result?;
        } else if top.phys.num_subobjs > 0 {
            let sub = top.last_sub(m)?;
            let is_loop = stack.iter().any(|list| list.id() == sub);
            if is_loop {
                let (found, expected) = (sub.0, 0);
                return Err(DslError::Mismatch { what: "a list below itself", object: sub, found, expected });
            }
            stack.push(Open::new(m, sub)?);
        } else if depth > 1 {
            let done = stack.pop();
            if let Some(parent) = stack.last_mut() {
                parent.drop_last_sub(m)?;
            }
            if let Some(done) = done {
                done.store(m);
                Bpobj::free(m, done.id())?;
            }
        } else {
            // The list is empty, so a rest in the totals is an error in them.
            top.set_space(Space::default());
            break;
        }
    }
    Ok(())
}
