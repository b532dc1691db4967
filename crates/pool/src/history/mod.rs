//! The pool's history: every command that changed it
//! (docs/on-disk/22-mos-dsl.md, section 10).

pub(crate) mod record;

use crate::directory::read_whole;
use crate::error::PoolError;
use crate::view::Pool;
use format::history::{HistoryPhys, RECORD_MAX, records, whole_records};
use format::names;
use format::nvlist::NvList;
use std::ops::ControlFlow;

/// Most bytes of history that are read: as much as the largest pools keep.
const RING_MAX: u64 = 1 << 30;
/// Bytes of history that are read at a time.
const STEP: u64 = 1 << 20;

impl Pool {
    /// The records of the history, oldest first. A malformed record is an error in its place, and the later
    /// ones follow.
    ///
    /// # Errors
    /// As of [`Pool::each_history_record`].
    pub fn history(&self) -> Result<Vec<Result<NvList, PoolError>>, PoolError> {
        let mut all = Vec::new();
        let _ = self.each_history_record(&mut |record| {
            all.push(record);
            ControlFlow::Continue(())
        })?;
        Ok(all)
    }

    /// Gives the records of the history to `sink`, oldest first, until it breaks off. A record that does not decode
    /// is an error in its place; those after it are still there. What is in memory at a time is one record and
    /// what is read at once, a mebibyte.
    ///
    /// # Errors
    /// [`PoolError::Dmu`] if the history cannot be read, [`PoolError::Corrupt`] if its header contradicts
    /// itself. `sink` has had the records before the damage.
    pub fn each_history_record(
        &self,
        sink: &mut dyn FnMut(Result<NvList, PoolError>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, PoolError> {
        let go_on = ControlFlow::Continue(());
        let Some(id) = self.directory().object(names::directory::HISTORY)? else { return Ok(go_on) };
        let object = self.mos().object(id)?;
        let phys = HistoryPhys::decode(object.bonus(), object.order()).map_err(PoolError::decode(id))?;
        if phys.end_of_ring > RING_MAX {
            return Err(PoolError::Corrupt { object: id, why: "the history is larger than any can be" });
        }
        let mut give =
            |bytes: &[u8]| records(bytes).try_for_each(|record| sink(record.map_err(PoolError::decode(id))));
        for stretch in phys.stretches() {
            // The bytes that were read and make no whole record yet.
            let mut bytes = Vec::new();
            'pieces: for piece in phys.pieces(stretch) {
                let end = piece.end.min(object.logical_end());
                let mut at = piece.start;
                while at < end {
                    let step_end = end.min(at + STEP);
                    bytes.append(&mut read_whole(&object, at..step_end)?.0);
                    at = step_end;
                    let rest = bytes.split_off(whole_records(&bytes));
                    if give(&bytes).is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                    bytes = rest;
                    // No record is that long: these bytes are none, and where the next one begins is not known.
                    if bytes.len() as u64 > RECORD_MAX + STEP {
                        break 'pieces;
                    }
                }
            }
            if give(&bytes).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(go_on)
    }
}
