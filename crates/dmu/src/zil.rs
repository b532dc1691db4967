//! Reading a dataset's intent log: the chain of blocks from the head in its object set.
//!
//! Only listed here: a read-only open shows the last txg, as OpenZFS does.
//! Source: `docs/on-disk/24-zil.md`, sections 3, 4 and 6.1.
//!
//! # What always holds
//! - The walk ends: block numbers of a chain rise by one, and at most [`MAX_BLOCKS`] are read.

use crate::{DmuError, ObjSet};
use format::{BlockPtr, ObjectId};
use zio::LogBlock;

/// Blocks of one chain. At 128 KiB each this is a terabyte of log, beyond any real one.
pub const MAX_BLOCKS: u64 = 1 << 23;

/// Visits the valid blocks of the intent log of `objset`, first to last, until `visit` says no.
/// Returns the number of blocks visited.
///
/// # Errors
/// A device that cannot be read. A block that is not there is the ordinary end of a chain.
pub fn walk(objset: &ObjSet, visit: &mut dyn FnMut(&BlockPtr, &LogBlock) -> Next) -> Result<u64, DmuError> {
    let mut bp = objset.phys().zil.log;
    let mut seen = 0;
    while !bp.is_hole() && seen < MAX_BLOCKS {
        let zio = objset.store().zio();
        let block = zio.read_log_block(&bp, objset.key().key()).map_err(|source| DmuError::Zio {
            objset: objset.number(),
            object: ObjectId(0),
            source,
        })?;
        let Some(block) = block else { break };
        match visit(&bp, &block) {
            Next::Block(next) if follows(&bp, &next) => bp = next,
            Next::Block(_) | Next::End => break,
        }
        seen += 1;
    }
    Ok(seen)
}

/// Where a walk goes on.
pub enum Next {
    /// At this block, named by the chain header of the block just visited.
    Block(BlockPtr),
    /// Nowhere.
    End,
}

/// The next block of a chain carries the same identity with a number one higher.
fn follows(bp: &BlockPtr, next: &BlockPtr) -> bool {
    let [a, b, c, seq] = bp.checksum().0;
    Some(next.checksum().0) == seq.checked_add(1).map(|seq| [a, b, c, seq])
}
