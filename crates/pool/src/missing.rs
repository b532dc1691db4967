//! Dirty time logs: the txgs that leaves have missed (docs/on-disk/14-vdevs.md, section 7).

use crate::error::PoolError;
use crate::space_map::SpaceMap;
use dmu::ObjSet;
use format::ObjectId;
use format::space_map::{MapBounds, MapType};
use std::sync::Arc;
use vdev::VdevTree;
use vdev::tree::RangeSet;

/// Loads the DTLs of all leaves into the tree. A DTL that cannot be read is no error: reads of its leaf are
/// then verified by checksum alone.
pub(crate) fn load(mos: &Arc<ObjSet>, tree: &VdevTree) {
    for leaf in tree.config().walk().filter(|node| node.dtl != ObjectId(0)) {
        match txgs(mos, leaf.dtl) {
            Ok(txgs) if txgs.is_empty() => {}
            Ok(txgs) => tree.set_dtl(leaf.guid, txgs),
            Err(cause) => tracing::warn!(leaf = leaf.guid.0, "dirty time log: {cause}"),
        }
    }
}

/// The txgs in a dirty time log.
pub(crate) fn txgs(mos: &Arc<ObjSet>, id: ObjectId) -> Result<RangeSet, PoolError> {
    let mut missed = RangeSet::new();
    SpaceMap::open(mos, id)?.for_each(MapBounds::DTL, &mut |segment| {
        let range = segment.start..segment.start.saturating_add(segment.len);
        match segment.kind {
            MapType::Alloc => missed.insert(range),
            MapType::Free => missed.remove(range),
        }
        Ok(())
    })?;
    Ok(missed)
}
