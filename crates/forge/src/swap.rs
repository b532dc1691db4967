//! A pool in the other byte order.
//!
//! What a block is made of follows from the type of its object (docs/on-disk/20-dmu.md, section 5): whole
//! words, ZAP blocks, dnodes with bonuses of their own types, attributes by the registry of their
//! file system. Bytes stay what they are, and so does what has an order of its own: packed lists, history,
//! entries of dedup tables.
//!
//! # What always holds
//! - Turning a block twice gives it back.
//! - A block that cannot be turned in its place keeps its order: the pointer to each says which it has.

use crate::image::Image;
use crate::labels;
use crate::walk::{Edit, Place, Walk};
use crate::{ForgeError, Result};
use dmu::zap::Zap;
use dmu::{KeyState, ObjSet};
use format::blkptr::BLKPTR_SIZE;
use format::dnode::{CORE_SIZE, Dnode, FLAG_SPILL, SLOT_SIZE};
use format::ids::SwapClass;
use format::sa::{Layout, Registration, Registry, SaBuffer, SaHeader, SaSwap};
use format::zap::{CHUNK_SIZE, LEAF_MAGIC, LEAF_TYPE, MICRO_ENTRY_SIZE, MICRO_MAGIC};
use format::znode::{INLINE_ACES, ZNODE_SIZE};
use format::{BlockPtr, ChecksumId, Endian, Level, ObjType, ObjectId};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Where the ACL of a legacy znode is, after 22 words.
const ZNODE_ACL: usize = 176;

/// Which blocks are turned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// All, and the uberblock: as a machine of the other order leaves a pool.
    All,
    /// All, but not the uberblock: as if a machine of our order had written one more txg without touching
    /// anything.
    Below,
    /// A half of them, chosen by this seed; the uberblock with odd seeds.
    Half(u64),
}

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Blocks that were written.
    pub written: u64,
    /// Blocks that keep their order since they would not have fit in their places.
    pub unfit: u64,
}

/// Writes a pool in the other byte order.
///
/// # Errors
/// If it holds a checkpoint, whose uberblock is inside of an object; if it is damaged.
pub fn swap(image: &Image, which: Which) -> Result<Outcome> {
    if image.pool.checkpoint()?.is_some() {
        return Err(ForgeError::Unsupported("a pool with a checkpoint"));
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

/// How attributes of a file system lie.
#[derive(Default)]
struct Tables {
    registry: Registry,
    layouts: HashMap<u16, Layout>,
}

struct Swap {
    which: Which,
    /// By object set. They are read before anything is changed.
    tables: HashMap<u64, Arc<Tables>>,
    current: Arc<Tables>,
}

/// The attribute tables of all file systems that can be read.
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

fn tables_of(objset: &Arc<ObjSet>) -> Option<Tables> {
    let zap = |id: u64| Zap::open(&objset.object(ObjectId(id)).ok()?).ok();
    let master = zap(zap(1)?.lookup_u64(b"SA_ATTRS").ok()??)?;
    let registry = zap(master.lookup_u64(b"REGISTRY").ok()??)?;
    let entries = registry.entries().filter_map(std::result::Result::ok);
    let registry =
        Registry::new(entries.map(|e| Registration::decode(e.name(), e.u64().unwrap_or(0))).collect());
    let mut layouts = HashMap::new();
    for entry in zap(master.lookup_u64(b"LAYOUTS").ok()??)?.entries().filter_map(std::result::Result::ok) {
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
                // A block may be known by several addresses and births, but by one checksum.
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

    fn wants(&self, place: &Place, bp: &BlockPtr) -> bool {
        // The judge cannot verify Edon-R of the other order (docs/on-disk/13-checksums-compression.md), and
        // what is in a dedup table is known there by its checksum, which only SHA-256 has the same in both.
        let id = bp.checksum_kind().ok();
        let is_bound = !bp.is_embedded()
            && (id == Some(ChecksumId::Edonr) || bp.is_dedup() && id != Some(ChecksumId::Sha256));
        !is_bound && (place.level > Level(0) || self.is_chosen(bp))
    }

    fn edit(&mut self, place: &Place, bp: &BlockPtr, contents: &mut Vec<u8>) -> Option<Endian> {
        if !self.is_chosen(bp) || !self.wants(place, bp) {
            return None;
        }
        let order = bp.byte_order();
        if place.level > Level(0) {
            words(contents);
        } else {
            by_class(bp.obj_type(), contents, order, &self.current);
        }
        Some(order.flip())
    }
}

/// Turns the contents of a level 0 block or of a bonus.
fn by_class(kind: ObjType, bytes: &mut [u8], order: Endian, tables: &Tables) {
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

/// Turns one number of `len` bytes.
fn turn(bytes: &mut [u8], at: usize, len: usize) {
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
                turn(entry, 0, 8);
                turn(entry, 8, 4);
            }
        }
        Some(LEAF_TYPE) if order.get_u32(bytes, 24) == Some(LEAF_MAGIC) => leaf(bytes),
        // The header, with or without its table, and blocks of a table.
        _ => words(bytes),
    }
}

fn leaf(bytes: &mut [u8]) {
    let buckets = bytes.len() / 32;
    words(part(bytes, 0..24));
    turn(bytes, 24, 4);
    each::<2>(part(bytes, 28..36));
    each::<2>(part(bytes, 48..48 + 2 * buckets));
    let chunks = 48 + 2 * buckets;
    for chunk in part(bytes, chunks..usize::MAX).chunks_exact_mut(CHUNK_SIZE) {
        // 252: an entry. 251, 253: data or nothing, and the next of its chain.
        if chunk[0] == 252 {
            each::<2>(&mut chunk[2..12]);
            turn(chunk, 12, 4);
            turn(chunk, 16, 8);
        } else {
            turn(chunk, 22, 2);
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
    turn(raw, 8, 2);
    turn(raw, 10, 2);
    words(part(raw, 16..pointers));
    if bonus_len > 0 {
        by_class(bonus_type, part(raw, pointers..bonus_end), order, tables);
    }
    words(part(raw, bonus_end..usize::MAX));
}

fn objset(bytes: &mut [u8], order: Endian, tables: &Tables) {
    for at in [0, 1024, 1536, 2048] {
        if let Some(raw) = bytes.get_mut(at..at + SLOT_SIZE) {
            dnode(raw, order, tables);
        }
    }
    // The head of the intent log, type and flags. MACs are bytes.
    words(part(bytes, 512..720));
}

fn znode(bytes: &mut [u8], order: Endian) {
    words(part(bytes, 0..ZNODE_ACL));
    let version = order.get_u16(bytes, ZNODE_ACL + 12);
    turn(bytes, ZNODE_ACL, 8);
    turn(bytes, ZNODE_ACL + 8, 4);
    turn(bytes, ZNODE_ACL + 12, 2);
    turn(bytes, ZNODE_ACL + 14, 2);
    let inline = part(bytes, ZNODE_SIZE - INLINE_ACES..ZNODE_SIZE);
    if version == Some(0) { old_aces(inline) } else { aces(inline, order) }
}

/// ACEs of version 0: who, mask, flags, type.
fn old_aces(bytes: &mut [u8]) {
    for ace in bytes.chunks_exact_mut(12) {
        each::<4>(&mut ace[..8]);
        each::<2>(&mut ace[8..]);
    }
}

/// ACEs of version 1: type, flags, mask, and whom it is for if that is not told by the flags.
fn aces(bytes: &mut [u8], order: Endian) {
    let mut at = 0;
    while at + 8 <= bytes.len() {
        let rest = &mut bytes[at..];
        let kind = order.get_u16(rest, 0).unwrap_or(0);
        let flags = order.get_u16(rest, 2).unwrap_or(0);
        let is_object = (5..=8).contains(&kind);
        let is_named = !matches!(flags & 0x7040, 0x1000 | 0x2040 | 0x4000);
        each::<2>(&mut rest[..4]);
        turn(rest, 4, 4);
        if is_named || is_object {
            turn(rest, 8, 8);
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

/// A buffer of attributes, which has an order of its own.
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
    turn(bytes, 0, 4);
    each::<2>(part(bytes, 4..header.size));
}
