//! Condensing the mapping of a removed vdev: segments of which nothing is referenced any more are dropped.
//!
//! While there is a checkpoint nothing is condensed: what only the checkpoint references is obsolete, and is still found
//! through the mapping.
//!
//! It is done within one txg, so there is no state to go on from. What another implementation has begun
//! ([`format::scan::CondensingPhys`]) is done anew from the mapping that is still in force.

use super::{mapping, obsolete};
use crate::directory::{self, Directory};
use crate::error::PoolError;
use crate::live::{LivePool, State};
use crate::space_map::SpaceMap;
use crate::space_maps::object::MapWriter;
use dsl::MosTx;
use format::config::{VdevKind, VdevNode};
use format::indirect::ENTRY_SIZE;
use format::names;
use format::scan::CondensingPhys;
use format::space_map::MapBounds;
use format::{ObjectId, VdevId};
use std::sync::Arc;
use vdev::tree::{IndirectMapping, MapEntry};
use vdev::tunable::Tunable;

/// Smallest mapping that is condensed, in bytes of memory.
pub static MIN_MAPPING: Tunable = Tunable::new("zfs_condense_min_mapping_bytes", 128 << 10, 0, 1 << 40);
/// Share of obsolete bytes, in percent, from which on a mapping is condensed.
pub static OBSOLETE_PCT: Tunable = Tunable::new("zfs_condense_indirect_obsolete_pct", 25, 1, 100);
/// Longest map of obsolete ranges, in bytes, before the mapping is condensed whatever it has.
pub static MAX_OBSOLETE: Tunable = Tunable::new("zfs_condense_max_obsolete_bytes", 1 << 30, 4096, 1 << 40);

/// Condenses the mappings for which it is worth while. Called once per txg, in its first pass.
pub(crate) fn condense_some(pool: &LivePool, state: &mut State, m: MosTx<'_>) -> Result<(), PoolError> {
    if pool.check_no_checkpoint().is_err() {
        return Ok(());
    }
    let begun = begun_elsewhere(m)?;
    let tree = pool.tree();
    let mut removed = state.config.vdev_tree.children.iter();
    let is_due = |node: &VdevNode| -> Result<bool, PoolError> {
        if node.kind != VdevKind::Indirect || node.indirect_object == ObjectId(0) {
            return Ok(false);
        }
        let is_begun = begun.is_some_and(|phys| phys.vdev() == VdevId(node.id));
        let Some(mapping) = tree.indirect(VdevId(node.id)) else { return Ok(false) };
        Ok(is_begun || is_worth_while(m, node, &mapping)?)
    };
    let due = removed.try_fold(Vec::new(), |mut due, node| {
        if is_due(node)? {
            due.push(node.id as usize);
        }
        Ok::<_, PoolError>(due)
    })?;
    for index in due {
        let Some(node) = state.config.vdev_tree.children.get_mut(index) else { continue };
        let vdev = VdevId(node.id);
        let Some(before) = tree.indirect(vdev) else { continue };
        let condensed = condense(m, node, &before, begun.filter(|phys| phys.vdev() == vdev))?;
        tracing::info!(
            pool = pool.name,
            %vdev,
            before = before.entries().len(),
            after = condensed.entries().len(),
            "a mapping was condensed"
        );
        tree.set_mapping(vdev, Arc::new(condensed));
        state.is_config_changed = true;
    }
    Ok(())
}

fn begun_elsewhere(m: MosTx<'_>) -> Result<Option<CondensingPhys>, PoolError> {
    let words = Directory::open(&m.view())?.words(names::directory::CONDENSING_INDIRECT)?;
    if words.is_empty() {
        return Ok(None);
    }
    CondensingPhys::from_words(&words).map(Some).map_err(PoolError::decode(directory::OBJECT))
}

fn is_worth_while(m: MosTx<'_>, node: &VdevNode, mapping: &IndirectMapping) -> Result<bool, PoolError> {
    let Some(map) = obsolete::map_of(m, node.zap_top)? else { return Ok(false) };
    let phys = *SpaceMap::open(&m.view(), map)?.phys();
    let memory = (mapping.entries().len() * ENTRY_SIZE) as u64;
    let mapped: u64 = mapping.entries().iter().map(|entry| entry.len).sum();
    let share = u64::try_from(phys.allocated).unwrap_or(0).saturating_mul(100) / mapped.max(1);
    Ok(phys.length >= MAX_OBSOLETE.get() || memory > MIN_MAPPING.get() && share >= OBSOLETE_PCT.get())
}

/// Writes a new mapping without obsolete segments, and frees the old one with what was obsolete of it.
fn condense(
    m: MosTx<'_>,
    node: &mut VdevNode,
    before: &IndirectMapping,
    begun: Option<CondensingPhys>,
) -> Result<IndirectMapping, PoolError> {
    let mut counts = mapping::counts(m, node, before.entries().len())?;
    let earlier = begun.map(CondensingPhys::previous_obsolete).filter(|id| *id != ObjectId(0));
    for map in obsolete::map_of(m, node.zap_top)?.into_iter().chain(earlier) {
        SpaceMap::open(&m.view(), map)?.for_each(
            MapBounds { start: 0, size: u64::MAX, shift: 0 },
            &mut |segment| {
                add(&mut counts, before.entries(), segment.start, segment.len);
                Ok(())
            },
        )?;
    }
    let is_kept = |(entry, count): &(&MapEntry, &u64)| **count < entry.len;
    let kept: Vec<(MapEntry, u64)> =
        before.entries().iter().zip(&counts).filter(is_kept).map(|(entry, count)| (*entry, *count)).collect();
    mapping::replace(m, node, &kept)?;
    obsolete::free_map(m, node.zap_top)?;
    if let Some(phys) = begun {
        if let Some(map) = earlier {
            MapWriter::free(m, map)?;
            m.features.decr(m, "obsolete_counts")?;
        }
        mapping::free_unfinished(m, phys.next_mapping())?;
        m.remove_entry(names::directory::CONDENSING_INDIRECT)?;
    }
    let entries = kept.into_iter().map(|(entry, _)| entry).collect();
    Ok(IndirectMapping::new(VdevId(node.id), entries, before.births().to_vec())?)
}

/// Adds an obsolete range to the counts of the segments that it is in.
fn add(counts: &mut [u64], entries: &[MapEntry], start: u64, len: u64) {
    let end = start.saturating_add(len);
    let first = entries.partition_point(|entry| entry.src.0 + entry.len <= start);
    for (entry, count) in entries.iter().zip(counts).skip(first) {
        if entry.src.0 >= end {
            break;
        }
        let part = end.min(entry.src.0 + entry.len) - start.max(entry.src.0);
        *count = count.saturating_add(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::{AllocOffset, Asize, Dva};

    #[test]
    fn ranges_count_in_every_segment_that_they_touch() {
        let entry = |src: u64, len: u64| MapEntry {
            src: AllocOffset(src),
            len,
            dst: Dva { vdev: VdevId(1), offset: AllocOffset(src), asize: Asize(len), gang: false },
        };
        let entries = [entry(0, 1024), entry(1024, 512), entry(4096, 1024)];
        let mut counts = vec![0, 0, 512];
        add(&mut counts, &entries, 512, 768);
        add(&mut counts, &entries, 4608, 512);
        add(&mut counts, &entries, 2048, 1024);
        assert_eq!(counts, [512, 256, 1024]);
    }
}
