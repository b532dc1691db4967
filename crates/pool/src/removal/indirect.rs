//! What the mapping of a vdev would take if the vdev was removed.

use super::{MAX_SEGMENT, MAX_SPAN};
use crate::error::PoolError;
use crate::view::Pool;
use format::VdevGuid;
use format::indirect::ENTRY_SIZE;
use std::ops::Range;

impl Pool {
    /// Bytes of memory that the mapping of a top-level vdev with data would take; 0 for log vdevs. `None`: there
    /// is no such vdev.
    ///
    /// # Errors
    /// [`PoolError`] if the space maps of the vdev cannot be read.
    pub fn indirect_size(&self, guid: VdevGuid) -> Result<Option<u64>, PoolError> {
        let is_it = |node: &&format::config::VdevNode| node.guid == guid && guid != VdevGuid(0);
        let Some(node) = self.tree().config().children.iter().find(is_it) else { return Ok(None) };
        if node.is_log {
            return Ok(Some(0));
        }
        let mut entries = 0_u64;
        let mut last: Option<Range<u64>> = None;
        for range in self.allocated_ranges(format::VdevId(node.id))? {
            match &mut last {
                Some(open) if range.start.saturating_sub(open.end) <= MAX_SPAN.get() => open.end = range.end,
                _ => {
                    entries += last.take().map_or(0, |done| pieces(&done));
                    last = Some(range);
                }
            }
        }
        entries += last.map_or(0, |done| pieces(&done));
        Ok(Some(entries * ENTRY_SIZE as u64))
    }
}

fn pieces(range: &Range<u64>) -> u64 {
    (range.end - range.start).div_ceil(MAX_SEGMENT.get())
}
