//! Reading a dataset's intent log: the chain of blocks from the head in its object set.
//!
//! Only listed here: a read-only open shows the last txg, as OpenZFS does.
//! Source: `docs/on-disk/24-zil.md`, sections 3, 4 and 6.1.
//!
//! # What always holds
//! - The walk ends: block numbers of a chain rise by one, and at most [`MAX_BLOCKS`] are read.

use crate::{DmuError, ObjSet};
use format::zil::{Chain, Records, records};
use format::{BlockPtr, ObjectId};

/// Blocks of one chain. At 128 KiB each this is a terabyte of log, beyond any real one.
pub const MAX_BLOCKS: u64 = 1 << 23;

/// Visits the blocks of the intent log of `objset`, first to last, each with its records, until
/// `visit` answers `false` or the chain ends. Records of an encrypted log whose key is not loaded have
/// only their headers in clear. Returns the pointer at which the chain ended: allocated but not written.
///
/// # Errors
/// A device that cannot be read. A block that is not there is the ordinary end of a chain.
pub fn walk(
    objset: &ObjSet,
    visit: &mut dyn FnMut(&BlockPtr, Records<'_>) -> bool,
) -> Result<Option<BlockPtr>, DmuError> {
    let failed = |source| DmuError::Zio { objset: objset.number(), object: ObjectId(0), source };
    let mut bp = objset.phys().zil.log;
    for _ in 0..MAX_BLOCKS {
        if bp.is_hole() {
            return Ok(None);
        }
        let block = objset.store().zio().read_log_block(&bp, objset.key().key()).map_err(failed)?;
        let Some((block, kind)) = block.zip(bp.checksum_kind().ok()) else { return Ok(Some(bp)) };
        let Ok((chain, range)) = Chain::decode(&block.bytes, kind) else { return Ok(Some(bp)) };
        // A block that does not carry on the chain is no part of it, and its records do not count.
        if !chain.follows(&bp) {
            return Ok(Some(bp));
        }
        if !visit(&bp, records(block.bytes.get(range).unwrap_or(&[]), chain.order)) {
            return Ok(None);
        }
        bp = chain.next;
    }
    Ok(None)
}
