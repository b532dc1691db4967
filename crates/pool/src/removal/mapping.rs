//! The objects of a mapping: entries, births, and the counts of obsolete bytes (docs/on-disk/14-vdevs.md,
//! section 6).
//!
//! # What always holds
//! - The headers in the bonus match the entries after each call.
//! - Feature `obsolete_counts` counts the objects of counts and the flags for precise counts.

use crate::error::PoolError;
use dmu::NewObject;
use dsl::MosTx;
use format::config::VdevNode;
use format::indirect::{BIRTH_SIZE, ENTRY_SIZE, MappingEntry, MappingPhys};
use format::names;
use format::{Endian, ObjType, ObjectId, Txg};
use vdev::tree::{IndirectMapping, MapEntry};

/// Bytes of a block of a mapping.
const BLOCK: u64 = 128 << 10;
/// Bytes of a count.
const COUNT_SIZE: u64 = 4;

fn create_object(m: MosTx<'_>, obj_type: ObjType, bonus: Option<Vec<u8>>) -> Result<ObjectId, PoolError> {
    let new = NewObject::of(obj_type).with_block_size(BLOCK);
    let new = match bonus {
        Some(bonus) => new.with_bonus(ObjType::U64_METADATA, bonus),
        None => new,
    };
    Ok(m.allocate(&new)?.id())
}

/// Creates the objects of an empty mapping, and names them in the configuration of the vdev.
pub(super) fn create(m: MosTx<'_>, node: &mut VdevNode) -> Result<(), PoolError> {
    let counts = match m.features.is_enabled("obsolete_counts") {
        true => Some(create_object(m, ObjType::U32_METADATA, None)?),
        false => None,
    };
    let phys = MappingPhys { max_offset: 0, bytes_mapped: 0, num_entries: 0, counts };
    node.indirect_object = create_object(m, ObjType::U64_METADATA, Some(phys.encode(Endian::Little)))?;
    node.indirect_births = create_object(m, ObjType::U64_METADATA, Some(vec![0; 8]))?;
    if counts.is_some() {
        m.features.incr(m, "obsolete_counts")?;
        m.zap(node.zap_top)?.upsert(names::top_vdev::OBSOLETE_COUNTS_ARE_PRECISE.as_bytes(), 1_u64)?;
        m.features.incr(m, "obsolete_counts")?;
    }
    Ok(())
}

/// Appends segments behind all others, copied in this txg. `before`: the mapping without them.
pub(super) fn append(
    m: MosTx<'_>,
    node: &VdevNode,
    before: &IndirectMapping,
    more: &[MapEntry],
    txg: Txg,
) -> Result<(), PoolError> {
    let Some(end) = more.last().map(|last| last.src.0 + last.len) else { return Ok(()) };
    let object = m.object(node.indirect_object)?;
    let order = object.read().order();
    let phys = object.with_bonus(|bonus| MappingPhys::decode(bonus, order));
    let mut phys = phys.map_err(PoolError::decode(node.indirect_object))?;
    let pack = |e: &MapEntry| MappingEntry { source: e.src, target: e.dst }.encode(order);
    let bytes: Vec<u8> = more.iter().flat_map(pack).collect();
    object.write_at(phys.num_entries * ENTRY_SIZE as u64, &bytes, m.tx)?;
    if let Some(counts) = phys.counts {
        let zeros = vec![0; more.len() * COUNT_SIZE as usize];
        m.object(counts)?.write_at(phys.num_entries * COUNT_SIZE, &zeros, m.tx)?;
    }
    phys.max_offset = end;
    phys.bytes_mapped += more.iter().map(|entry| entry.len).sum::<u64>();
    phys.num_entries += more.len() as u64;
    object.set_bonus(&phys.encode(order), m.tx);
    append_birth(m, node.indirect_births, before.births().len() as u64, end, txg)
}

fn append_birth(m: MosTx<'_>, births: ObjectId, count: u64, end: u64, txg: Txg) -> Result<(), PoolError> {
    let object = m.object(births)?;
    let order = object.read().order();
    let pair = [order.put_u64(end), order.put_u64(txg.0)].concat();
    object.write_at(count * BIRTH_SIZE as u64, &pair, m.tx)?;
    object.set_bonus(&order.put_u64(count + 1), m.tx);
    Ok(())
}

/// Frees all objects of a mapping, and forgets them in the configuration of the vdev.
pub(super) fn free(m: MosTx<'_>, node: &mut VdevNode) -> Result<(), PoolError> {
    let object = m.object(node.indirect_object)?;
    let order = object.read().order();
    let phys = object.with_bonus(|bonus| MappingPhys::decode(bonus, order));
    let phys = phys.map_err(PoolError::decode(node.indirect_object))?;
    if let Some(counts) = phys.counts {
        m.free(counts)?;
        m.features.decr(m, "obsolete_counts")?;
    }
    super::obsolete::drop_precision(m, node.zap_top)?;
    super::obsolete::free_map(m, node.zap_top)?;
    m.free(node.indirect_object)?;
    m.free(node.indirect_births)?;
    (node.indirect_object, node.indirect_births) = (ObjectId(0), ObjectId(0));
    Ok(())
}

/// Obsolete bytes of each entry, as last counted; zeros if they are not counted.
pub(super) fn counts(m: MosTx<'_>, node: &VdevNode, entries: usize) -> Result<Vec<u64>, PoolError> {
    let object = m.object(node.indirect_object)?;
    let order = object.read().order();
    let phys = object.with_bonus(|bonus| MappingPhys::decode(bonus, order));
    let phys = phys.map_err(PoolError::decode(node.indirect_object))?;
    let Some(id) = phys.counts else { return Ok(vec![0; entries]) };
    let object = m.object(id)?;
    let mut bytes = vec![0; entries * COUNT_SIZE as usize];
    let end = (object.max_block().0 + 1).saturating_mul(object.block_size());
    let len = usize::try_from(end).unwrap_or(usize::MAX).min(bytes.len());
    object.read_at(0, bytes.get_mut(..len).unwrap_or_default())?;
    let order = object.read().order();
    Ok(bytes
        .chunks_exact(COUNT_SIZE as usize)
        .map(|raw| u64::from(order.get_u32(raw, 0).unwrap_or(0)))
        .collect())
}

/// Replaces the mapping of a removed vdev, and the counts of obsolete bytes of its entries.
pub(super) fn replace(
    m: MosTx<'_>,
    node: &mut VdevNode,
    entries: &[(MapEntry, u64)],
) -> Result<(), PoolError> {
    let old = m.object(node.indirect_object)?;
    let order = old.read().order();
    let phys = old.with_bonus(|bonus| MappingPhys::decode(bonus, order));
    let phys = phys.map_err(PoolError::decode(node.indirect_object))?;
    let counts = match phys.counts {
        Some(_) => Some(create_object(m, ObjType::U32_METADATA, None)?),
        None => None,
    };
    let new = MappingPhys {
        max_offset: entries.last().map_or(0, |(last, _)| last.src.0 + last.len),
        bytes_mapped: entries.iter().map(|(entry, _)| entry.len).sum(),
        num_entries: entries.len() as u64,
        counts,
    };
    let id = create_object(m, ObjType::U64_METADATA, Some(new.encode(Endian::Little)))?;
    let pack =
        |(e, _): &(MapEntry, u64)| MappingEntry { source: e.src, target: e.dst }.encode(Endian::Little);
    let bytes: Vec<u8> = entries.iter().flat_map(pack).collect();
    m.object(id)?.write_at(0, &bytes, m.tx)?;
    if let Some(counts) = counts {
        let count = |(_, count): &(MapEntry, u64)| u32::try_from(*count).unwrap_or(u32::MAX).to_le_bytes();
        let bytes: Vec<u8> = entries.iter().flat_map(count).collect();
        m.object(counts)?.write_at(0, &bytes, m.tx)?;
    }
    if let Some(old) = phys.counts {
        m.free(old)?;
    }
    m.free(node.indirect_object)?;
    node.indirect_object = id;
    Ok(())
}

/// Frees a mapping that another implementation has not finished writing, with its counts.
pub(super) fn free_unfinished(m: MosTx<'_>, id: ObjectId) -> Result<(), PoolError> {
    let object = m.object(id)?;
    let order = object.read().order();
    let phys = object.with_bonus(|bonus| MappingPhys::decode(bonus, order));
    if let Some(counts) = phys.map_err(PoolError::decode(id))?.counts {
        m.free(counts)?;
        m.features.decr(m, "obsolete_counts")?;
    }
    Ok(m.free(id)?)
}
