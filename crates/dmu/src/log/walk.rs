//! Walking the chain of a dataset's intent log, from the head in its object set (docs/on-disk/24-zil.md,
//! sections 3, 4 and 6.1).
//!
//! Listing, claiming, replaying and freeing a log all go through `walk_blocks`.
//!
//! # What always holds
//! - The walk ends: block numbers of a chain rise by one, and at most `MAX_BLOCKS` are read.
//! - A block that is missing, or does not continue the chain, is its ordinary end, not an error.

use crate::{DmuError, ObjSet};
use codec::crypt::DataKey;
use format::zil::{Chain, Records, records};
use format::{BlockPtr, ObjectId};
use zio::{Zio, ZioError};

/// Most blocks of one chain. At 128 KiB each this is a terabyte of log, beyond any real one.
pub(crate) const MAX_BLOCKS: u64 = 1 << 23;

/// An element of a walk.
pub(crate) enum Step<'a> {
    /// A pointer to a block of the chain, before the block is read. The last one is that of a block that was
    /// allocated but not written.
    Pointer(&'a BlockPtr),
    /// The records of the block at the last pointer.
    Records(Records<'a>),
}

/// Walks a chain from its first block on, until `visit` returns `false` or the chain ends. With a key,
/// records of an encrypted log are decrypted; without one only their headers are readable. Returns the
/// pointer to the missing block, if the chain ended at one.
///
/// # Errors
/// [`ZioError`] if a device that holds a block fails, or the block cannot be decrypted.
pub(crate) fn walk_blocks(
    zio: &Zio,
    key: Option<&DataKey>,
    head: &BlockPtr,
    visit: &mut dyn FnMut(Step<'_>) -> bool,
) -> Result<Option<BlockPtr>, ZioError> {
    let mut bp = *head;
    for _ in 0..MAX_BLOCKS {
        if bp.is_hole() || !visit(Step::Pointer(&bp)) {
            return Ok(None);
        }
        let read = zio.read_log_block(&bp, key)?;
        let Some((block, kind)) = read.zip(bp.checksum_kind().ok()) else { return Ok(Some(bp)) };
        let Ok((chain, range)) = Chain::decode(&block.bytes, kind) else { return Ok(Some(bp)) };
        // A block that does not continue the chain is no part of it, and its records do not count.
        if !chain.follows(&bp) {
            return Ok(Some(bp));
        }
        let records = records(block.bytes.get(range).unwrap_or(&[]), chain.order);
        if !visit(Step::Records(records)) {
            return Ok(None);
        }
        bp = chain.next;
    }
    Ok(None)
}

/// Visits the blocks of the intent log of `objset`, first to last, each with its records, until `visit`
/// returns `false` or the chain ends. Without the key, records of an encrypted log have only their headers in
/// clear. Returns the pointer at which the chain ended: allocated but not written.
///
/// # Errors
/// [`DmuError::Zio`] if a device that holds a block fails, or the block cannot be decrypted.
pub fn walk(
    objset: &ObjSet,
    visit: &mut dyn FnMut(&BlockPtr, Records<'_>) -> bool,
) -> Result<Option<BlockPtr>, DmuError> {
    let mut at = BlockPtr::HOLE;
    let mut step = |step: Step<'_>| match step {
        Step::Pointer(bp) => {
            at = *bp;
            true
        }
        Step::Records(records) => visit(&at, records),
    };
    let (zio, key) = (objset.store().zio(), objset.key().key());
    let end = walk_blocks(zio, key, &objset.phys().zil.log, &mut step);
    end.map_err(|source| DmuError::Zio { objset: objset.number(), object: ObjectId(0), source })
}
