//! Writes a pool in the other byte order.
//!
//! The element sizes in a block follow from the type of its object (docs/on-disk/20-dmu.md, section 5):
//! 64-bit words, ZAP blocks, dnodes with typed bonus areas, system attributes by the registry of their file
//! system. Plain bytes stay as they are, and so do structures that record or fix their own byte order: packed
//! lists, history, entries of dedup tables.
//!
//! # What always holds
//! - Swapping a block twice restores it.
//! - A block that does not fit after the swap keeps its byte order: each block pointer records the order of
//!   its block.

use crate::image::Image;
use crate::labels;
use crate::walk::{BlockPosition, Edit, Walk};
use crate::{MutateError, Result};
use dmu::zap::Zap;
use dmu::{KeyState, ObjSet};
use format::blkptr::BLKPTR_SIZE;
use format::dnode::{CORE_SIZE, Dnode, FLAG_SPILL, SLOT_SIZE};
use format::ids::SwapClass;
use format::names;
use format::sa::{Layout, Registration, Registry, SaBuffer, SaHeader, SaSwap};
use format::zap::{CHUNK_SIZE, LEAF_MAGIC, LEAF_TYPE, MICRO_ENTRY_SIZE, MICRO_MAGIC};
use format::znode::{INLINE_ACES, ZNODE_SIZE};
use format::{BlockPtr, ChecksumId, Endian, Level, ObjType, ObjectId};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// The offset of the ACL in a legacy znode, after 22 words.
const ZNODE_ACL: usize = 176;

/// The blocks to swap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// All blocks and the uberblock: a pool last written by a machine of the other byte order.
    All,
    /// All blocks but not the uberblock: as if this machine had then written one more transaction group
    /// without touching any other block.
    Below,
    /// One half of the blocks, chosen by this seed; the uberblock with odd seeds.
    Half(u64),
}

/// Counts of a [`swap`] run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Blocks written.
    pub written: u64,
    /// Blocks that keep their byte order because the swapped contents do not fit.
    pub unfit: u64,
}

/// Rewrites a pool in the other byte order.
///
/// # Errors
/// Fails if the pool has a checkpoint, whose uberblock is stored inside of an object; if it is damaged; or if
/// a device cannot be written.
pub fn swap(image: &Image, which: Which) -> Result<Outcome> {
    if image.pool.checkpoint()?.is_some() {
        return Err(MutateError::Unsupported("a pool with a checkpoint"));
    }
    let old = image.pool.uberblock().order;
    let order = match which {
        Which::Below => old,
        Which::Half(seed) if seed % 2 == 0 => old,
        Which::All | Which::Half(_) => old.flip(),
    };
    let mut edit = Swap { which, tables: tables(image), current: Arc::default() };
    let mut walk = Walk::new(image, &mut edit);
    let root = walk.run()?;
    let outcome = Outcome { written: walk.written, unfit: walk.unfit };
    labels::reseal(image, &root, order, true)?;
    Ok(outcome)
}

/// The system attribute registry and layouts of a file system.
#[derive(Default)]
pub(crate) struct Tables {
    registry: Registry,
    layouts: HashMap<u16, Layout>,
}

struct Swap {
    which: Which,
    /// Tables by dataset object, read before the first change.
    tables: HashMap<u64, Arc<Tables>>,
    current: Arc<Tables>,
}

/// Reads the attribute tables of all file systems that can be opened.
fn tables(image: &Image) -> HashMap<u64, Arc<Tables>> {
    let mut all = HashMap::new();
    let mos = image.pool.mos();
    let mut at = ObjectId(1);
    while let Ok(Some(object)) = mos.next_object(at) {
        at = ObjectId(object.id().0 + 1);
        if object.dnode().bonus_type != ObjType::DSL_DATASET {
            continue;
        }
        let dataset = image.pool.dsl().dataset_by_object(object.id()).ok();
        let objset = dataset.and_then(|dataset| dataset.objset(KeyState::Locked).ok());
        if let Some(tables) = objset.and_then(|objset| tables_of(&objset)) {
            all.insert(object.id().0, Arc::new(tables));
        }
    }
    all
}

pub(crate) fn tables_of(objset: &Arc<ObjSet>) -> Option<Tables> {
    let zap = |id: u64| Zap::open(&objset.object(ObjectId(id)).ok()?).ok();
    let master = zap(zap(1)?.lookup_u64(names::master_node::SA_ATTRS.as_bytes()).ok()??)?;
    let registry = zap(master.lookup_u64(names::sa_master::REGISTRY.as_bytes()).ok()??)?;
    let entries = registry.entries().filter_map(std::result::Result::ok);
    let registry =
        Registry::new(entries.map(|e| Registration::decode(e.name(), e.u64().unwrap_or(0))).collect());
    let mut layouts = HashMap::new();
    for entry in zap(master.lookup_u64(names::sa_master::LAYOUTS.as_bytes()).ok()??)?
        .entries()
        .filter_map(std::result::Result::ok)
    {
        let number = std::str::from_utf8(entry.name()).ok().and_then(|name| name.parse().ok())?;
        let attrs: Vec<u16> = entry.u64s().iter().filter_map(|attr| u16::try_from(*attr).ok()).collect();
        layouts.insert(number, Layout::resolve(number, &attrs, &registry).ok()?);
    }
    Some(Tables { registry, layouts })
}

impl Swap {
    fn is_chosen(&self, bp: &BlockPtr) -> bool {
        match self.which {
            Which::All | Which::Below => true,
            Which::Half(seed) => {
                let mut mixed = seed;
                // A shared block may have several addresses and births, but has one checksum.
                for word in 12..16 {
                    mixed = (mixed ^ bp.words()[word]).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    mixed ^= mixed >> 29;
                }
                mixed & 1 == 1
            }
        }
    }
}

impl Edit for Swap {
    fn enter(&mut self, _: &Image, objset: u64, _: &BlockPtr) -> Result<()> {
        self.current = self.tables.get(&objset).cloned().unwrap_or_default();
        Ok(())
    }

    fn wants(&self, place: &BlockPosition, bp: &BlockPtr) -> bool {
        // zdb cannot verify Edon-R of the other order (docs/on-disk/13-checksums-compression.md). Dedup
        // tables are keyed by checksum, and only SHA-256 gives the same value in both orders.
        let id = bp.checksum_kind().ok();
        let is_bound = !bp.is_embedded()
            && (id == Some(ChecksumId::Edonr) || bp.is_dedup() && id != Some(ChecksumId::Sha256));
        !is_bound && (place.level > Level(0) || self.is_chosen(bp))
    }

    fn edit(&mut self, place: &BlockPosition, bp: &BlockPtr, contents: &mut Vec<u8>) -> Option<Endian> {
        if !self.is_chosen(bp) || !self.wants(place, bp) {
            return None;
        }
        let order = bp.byte_order();
        if place.level > Level(0) {
            words(contents);
        } else {
            swap_by_class(bp.obj_type(), contents, order, &self.current);
        }
        Some(order.flip())
    }
}

/// Swaps the contents of a level 0 block or of a bonus area.
pub(crate) fn swap_by_class(kind: ObjType, bytes: &mut [u8], order: Endian, tables: &Tables) {
    if kind == ObjType::SA {
        attributes(bytes, tables);
        return;
    }
    match kind.swap_class() {
        SwapClass::U8 => {}
        SwapClass::U16 => each::<2>(bytes),
        SwapClass::U32 => each::<4>(bytes),
        SwapClass::U64 => words(bytes),
        SwapClass::Zap => zap(bytes, order),
        SwapClass::Dnode => dnodes(bytes, order, tables),
        SwapClass::Objset => objset(bytes, order, tables),
        SwapClass::Znode => znode(bytes, order),
        SwapClass::OldAcl => old_aces(bytes),
        SwapClass::Acl => aces(bytes, order),
    }
}

fn each<const N: usize>(bytes: &mut [u8]) {
    bytes.as_chunks_mut::<N>().0.iter_mut().for_each(|word| word.reverse());
}

fn words(bytes: &mut [u8]) {
    each::<8>(bytes);
}

/// Swaps one number of `len` bytes.
fn swap_number(bytes: &mut [u8], at: usize, len: usize) {
    if let Some(word) = bytes.get_mut(at..at + len) {
        word.reverse();
    }
}

fn part(bytes: &mut [u8], range: Range<usize>) -> &mut [u8] {
    let end = range.end.min(bytes.len());
    bytes.get_mut(range.start.min(end)..end).unwrap_or_default()
}

fn zap(bytes: &mut [u8], order: Endian) {
    match order.get_u64(bytes, 0) {
        Some(MICRO_MAGIC) => {
            words(part(bytes, 0..24));
            for entry in bytes.chunks_exact_mut(MICRO_ENTRY_SIZE).skip(1) {
                swap_number(entry, 0, 8);
                swap_number(entry, 8, 4);
            }
        }
        Some(LEAF_TYPE) if order.get_u32(bytes, 24) == Some(LEAF_MAGIC) => leaf(bytes),
        // A fat ZAP header, with or without its pointer table, or a block of the table.
        _ => words(bytes),
    }
}

fn leaf(bytes: &mut [u8]) {
    let buckets = bytes.len() / 32;
    words(part(bytes, 0..24));
    swap_number(bytes, 24, 4);
    each::<2>(part(bytes, 28..36));
    each::<2>(part(bytes, 48..48 + 2 * buckets));
    let chunks = 48 + 2 * buckets;
    for chunk in part(bytes, chunks..usize::MAX).chunks_exact_mut(CHUNK_SIZE) {
        // Type 252 is an entry; 251 and 253 are an array or free, and hold the number of the next chunk.
        if chunk[0] == 252 {
            each::<2>(&mut chunk[2..12]);
            swap_number(chunk, 12, 4);
            swap_number(chunk, 16, 8);
        } else {
            swap_number(chunk, 22, 2);
        }
    }
}

fn dnodes(bytes: &mut [u8], order: Endian, tables: &Tables) {
    let mut at = 0;
    while at + SLOT_SIZE <= bytes.len() {
        let end = (at + SLOT_SIZE * Dnode::slots_at(&bytes[at..])).min(bytes.len());
        dnode(&mut bytes[at..end], order, tables);
        at = end;
    }
}

fn dnode(raw: &mut [u8], order: Endian, tables: &Tables) {
    if raw.first() == Some(&0) {
        return;
    }
    let pointers = CORE_SIZE + BLKPTR_SIZE * usize::from(raw[3]);
    let has_spill = raw[7] & FLAG_SPILL != 0;
    let bonus_end = if has_spill { raw.len() - BLKPTR_SIZE } else { raw.len() };
    let bonus_type = ObjType::from_id_unchecked(raw[4]);
    let bonus_len = usize::from(order.get_u16(raw, 10).unwrap_or(0));
    swap_number(raw, 8, 2);
    swap_number(raw, 10, 2);
    words(part(raw, 16..pointers));
    if bonus_len > 0 {
        swap_by_class(bonus_type, part(raw, pointers..bonus_end), order, tables);
    }
    words(part(raw, bonus_end..usize::MAX));
}

fn objset(bytes: &mut [u8], order: Endian, tables: &Tables) {
    for at in [0, 1024, 1536, 2048] {
        if let Some(raw) = bytes.get_mut(at..at + SLOT_SIZE) {
            dnode(raw, order, tables);
        }
    }
    // The intent log header, type and flags. MACs are bytes.
    words(part(bytes, 512..720));
}

fn znode(bytes: &mut [u8], order: Endian) {
    words(part(bytes, 0..ZNODE_ACL));
    let version = order.get_u16(bytes, ZNODE_ACL + 12);
    swap_number(bytes, ZNODE_ACL, 8);
    swap_number(bytes, ZNODE_ACL + 8, 4);
    swap_number(bytes, ZNODE_ACL + 12, 2);
    swap_number(bytes, ZNODE_ACL + 14, 2);
    let inline = part(bytes, ZNODE_SIZE - INLINE_ACES..ZNODE_SIZE);
    if version == Some(0) { old_aces(inline) } else { aces(inline, order) }
}

/// ACEs of version 0: principal, mask, flags, type.
fn old_aces(bytes: &mut [u8]) {
    for ace in bytes.chunks_exact_mut(12) {
        each::<4>(&mut ace[..8]);
        each::<2>(&mut ace[8..]);
    }
}

/// ACEs of version 1: type, flags, mask, and a principal unless the flags imply it.
fn aces(bytes: &mut [u8], order: Endian) {
    let mut at = 0;
    while at + 8 <= bytes.len() {
        let rest = &mut bytes[at..];
        let kind = order.get_u16(rest, 0).unwrap_or(0);
        let flags = order.get_u16(rest, 2).unwrap_or(0);
        let is_object = (5..=8).contains(&kind);
        let is_named = !matches!(flags & 0x7040, 0x1000 | 0x2040 | 0x4000);
        each::<2>(&mut rest[..4]);
        swap_number(rest, 4, 4);
        if is_named || is_object {
            swap_number(rest, 8, 8);
        }
        at += if is_object {
            48
        } else if is_named {
            16
        } else {
            8
        };
    }
}

/// A buffer of system attributes; its header records the byte order.
fn attributes(bytes: &mut [u8], tables: &Tables) {
    let Ok(Some(header)) = SaHeader::decode(bytes) else { return };
    let Some(layout) = tables.layouts.get(&header.layout) else { return };
    let copy = bytes.to_vec();
    let Ok(buffer) = SaBuffer::new(&copy, header, layout) else { return };
    let mut at = header.size;
    for (number, value) in buffer.iter() {
        let swap = tables.registry.get(number).map_or(SaSwap::Bytes, |entry| entry.swap);
        let here = part(bytes, at..at + value.len());
        match swap {
            SaSwap::U64 => words(here),
            SaSwap::U32 => each::<4>(here),
            SaSwap::U16 => each::<2>(here),
            SaSwap::Bytes | SaSwap::Unknown(_) => {}
            SaSwap::Acl => aces(here, header.order),
        }
        at = (at + value.len()).next_multiple_of(8);
    }
    swap_number(bytes, 0, 4);
    each::<2>(part(bytes, 4..header.size));
}
