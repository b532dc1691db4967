//! The pool's history: every command that changed it
//! (docs/on-disk/22-mos-dsl.md, section 10).

pub(crate) mod record;

use crate::directory::read_whole;
use crate::error::PoolError;
use crate::view::Pool;
use format::history::{HistoryPhys, records};
use format::names;
use format::nvlist::NvList;

/// Most bytes of history that are read: as much as the largest pools keep.
const RING_MAX: u64 = 1 << 30;

impl Pool {
    /// The records of the history, oldest first. A malformed record is an error in its place, and the later
    /// ones follow.
    ///
    /// # Errors
    /// [`PoolError::Dmu`] if the history cannot be read, [`PoolError::Corrupt`] if its header contradicts
    /// itself.
    pub fn history(&self) -> Result<Vec<Result<NvList, PoolError>>, PoolError> {
        let mut all = Vec::new();
        let Some(id) = self.directory().object(names::directory::HISTORY)? else { return Ok(all) };
        let object = self.mos().object(id)?;
        let phys = HistoryPhys::decode(object.bonus(), object.order()).map_err(PoolError::decode(id))?;
        if phys.end_of_ring > RING_MAX {
            return Err(PoolError::Corrupt { object: id, why: "the history is larger than any can be" });
        }
        for stretch in phys.stretches() {
            let mut bytes = Vec::new();
            for piece in phys.pieces(stretch) {
                let end = piece.end.min(object.logical_end());
                bytes.append(&mut read_whole(&object, piece.start..end)?.0);
            }
            all.extend(records(&bytes).map(|record| record.map_err(PoolError::decode(id))));
        }
        Ok(all)
    }
}
