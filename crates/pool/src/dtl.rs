//! Writing the DTLs of leaves (docs/on-disk/14-vdevs.md, section 7).

use crate::config;
use crate::error::PoolError;
use crate::space_maps::object::MapWriter;
use dsl::MosTx;
use format::config::PoolConfig;
use format::space_map::MapType;
use format::{ObjectId, Txg, VdevGuid};
use vdev::VdevTree;

/// Bytes of a block of a DTL's space map.
const BLOCK: u64 = 4 << 10;

/// Writes the DTLs that have changed since they were last written. A leaf whose DTL has become empty is not being
/// resilvered any more. Returns true if the configuration has changed.
pub(crate) fn write_changed(
    m: MosTx<'_>,
    tree: &VdevTree,
    config: &mut PoolConfig,
) -> Result<bool, PoolError> {
    let mut is_config_changed = false;
    for leaf in tree.take_changed_dtls() {
        is_config_changed |= write(m, tree, config, leaf)?;
    }
    Ok(is_config_changed)
}

fn write(m: MosTx<'_>, tree: &VdevTree, config: &mut PoolConfig, leaf: VdevGuid) -> Result<bool, PoolError> {
    let missed = tree.dtl(leaf);
    let Some(node) = config::find_mut(&mut config.vdev_tree, leaf) else { return Ok(false) };
    let is_new = node.dtl == ObjectId(0);
    let mut is_done = false;
    if is_new && missed.is_empty() {
        return Ok(false);
    }
    if missed.is_empty() {
        // The leaf has all its data.
        is_done = node.resilver_txg != Txg(0) || node.rebuild_txg != Txg(0);
        (node.resilver_txg, node.rebuild_txg) = (Txg(0), Txg(0));
    }
    let mut map = if is_new { MapWriter::create(m, BLOCK)? } else { MapWriter::open(m, node.dtl)? };
    node.dtl = map.id();
    map.clear(m)?;
    map.append(m, MapType::Alloc, missed.iter().map(|range| (range, None)), 0, 0)?;
    map.store(m)?;
    Ok(is_new || is_done)
}
