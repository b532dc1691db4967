//! Claiming the logs that a crash left, and freeing logs (docs/on-disk/24-zil.md, sections 6 and 8).

use super::chain::note_not_freed;
use super::walk::{Step, walk_blocks};
use crate::{LiveSet, SyncTx};
use codec::crypt::DataKey;
use format::objset::ZilHeader;
use format::zil::{Body, RawRecord, block_objset, block_seq};
use format::{BlockPtr, ObjectId, Txg};
use std::collections::HashSet;
use std::sync::Arc;
use zio::{ReadPolicy, Zio, ZioError};

/// The log holds records that were not replayed.
pub(crate) const REPLAY_NEEDED: u64 = 1;
/// `claim_lr_seq` is valid.
pub(crate) const CLAIM_LR_SEQ_VALID: u64 = 2;

/// Why the log of a dataset cannot be claimed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// A device that holds a part of the log fails or is missing.
    #[error("the intent log of dataset {dataset} cannot be read")]
    Unreadable {
        /// Object number of the dataset.
        dataset: u64,
        /// The error of reading it.
        #[source]
        source: ZioError,
    },
    /// The head of the log is not a valid pointer.
    #[error("the intent log of dataset {dataset} begins with {bp}")]
    BadHead {
        /// Object number of the dataset.
        dataset: u64,
        /// The pointer in the head.
        bp: BlockPtr,
    },
}

/// Contents of a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Claimed {
    /// Number of block pointers, including that of the unwritten block at the end.
    pub blocks: u64,
    /// Number of records.
    pub records: u64,
    /// Highest sequence number of a block.
    pub block_seq: u64,
    /// Highest sequence number of a record.
    pub record_seq: u64,
    /// Newest birth of a claimed block: the pool must sync up to it before it is used.
    pub newest: Txg,
}

/// Callback for a block pointer; `false` ends the walk.
type OnBlock<'a> = &'a mut dyn FnMut(&BlockPtr) -> bool;
type OnRecord<'a> = &'a mut dyn FnMut(&RawRecord<'_>) -> bool;

/// End of a claimed log. Beyond it no block is allocated for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    block: u64,
    record: u64,
}

impl Limits {
    /// The limits of a log; none if it was not claimed.
    pub fn of(header: &ZilHeader) -> Limits {
        let is_claimed = header.claim_txg != Txg(0);
        let limit = |is_valid: bool, seq: u64| if is_claimed && is_valid { seq } else { u64::MAX };
        let record = limit(header.flags & CLAIM_LR_SEQ_VALID != 0, header.claim_lr_seq);
        Limits { block: limit(true, header.claim_blk_seq), record }
    }

    /// Whether a block of the chain is part of the log.
    pub fn has_block(&self, bp: &BlockPtr) -> bool {
        block_seq(bp) <= self.block
    }

    /// Whether a record of the chain is part of the log.
    pub fn has_record(&self, record: &RawRecord<'_>) -> bool {
        record.seq <= self.record
    }
}

/// Walks the chain of `header`, within the claimed part if it was claimed. Of an encrypted log, only headers
/// and pointers of records are readable.
///
/// # Errors
/// [`ClaimError::Unreadable`] if a device fails. A missing block, or one of another chain, is the ordinary
/// end.
pub fn walk_chain(
    zio: &Zio,
    dataset: u64,
    header: &ZilHeader,
    on_block: OnBlock<'_>,
    on_record: OnRecord<'_>,
) -> Result<Claimed, ClaimError> {
    let failed = |source| ClaimError::Unreadable { dataset, source };
    walk_within(zio, None, header, on_block, on_record).map_err(failed)
}

/// Walks the log of a set like [`walk_chain`]. Records are decrypted with the key of the set.
///
/// # Errors
/// Those of [`walk_chain`]; or if a block cannot be decrypted.
pub(crate) fn walk_log(
    set: &LiveSet,
    header: &ZilHeader,
    on_block: OnBlock<'_>,
    on_record: OnRecord<'_>,
) -> Result<Claimed, ClaimError> {
    let failed = |source| ClaimError::Unreadable { dataset: set.number(), source };
    walk_within(set.store().zio(), set.blocks().key(), header, on_block, on_record).map_err(failed)
}

fn walk_within(
    zio: &Zio,
    key: Option<&DataKey>,
    header: &ZilHeader,
    on_block: OnBlock<'_>,
    on_record: OnRecord<'_>,
) -> Result<Claimed, ZioError> {
    let is_claimed = header.claim_txg != Txg(0);
    let Limits { block: block_limit, record: record_limit } = Limits::of(header);
    let mut found = Claimed::default();
    let mut visit = |step: Step<'_>| match step {
        Step::Pointer(bp) => {
            if block_seq(bp) > block_limit || !on_block(bp) {
                return false;
            }
            found.blocks += 1;
            found.block_seq = found.block_seq.max(block_seq(bp));
            found.newest = found.newest.max(bp.logical_birth());
            !(is_claimed && found.record_seq == record_limit && found.block_seq == block_limit)
        }
        Step::Records(records) => {
            for record in records {
                let Ok(record) = record else { return false };
                if record.seq > record_limit || !on_record(&record) {
                    return false;
                }
                found.records += 1;
                found.record_seq = found.record_seq.max(record.seq);
            }
            true
        }
    };
    walk_blocks(zio, key, &header.log, &mut visit)?;
    Ok(found)
}

fn check_head(set: &LiveSet, header: &ZilHeader) -> Result<(), ClaimError> {
    let bp = header.log;
    if bp.is_hole() {
        return Ok(());
    }
    let is_sane =
        bp.validate().is_ok() && bp.dvas().count() == 1 && block_objset(&bp) == ObjectId(set.number());
    if is_sane { Ok(()) } else { Err(ClaimError::BadHead { dataset: set.number(), bp }) }
}

/// Checks that the log of a set can be claimed, without a change.
///
/// # Errors
/// [`ClaimError`] if its head is not valid, or a device that holds a part of it fails.
pub fn check(set: &Arc<LiveSet>) -> Result<Claimed, ClaimError> {
    let header = set.zil_header();
    check_head(set, &header)?;
    let zio = set.store().zio();
    walk_log(set, &header, &mut |_| true, &mut |record| is_readable(zio, record))
}

/// Whether the data that a record references can be read.
fn is_readable(zio: &Zio, record: &RawRecord<'_>) -> bool {
    let Ok(Body::Write { bp, .. }) = record.decode().map(|record| record.body) else { return true };
    bp.is_hole() || bp.is_embedded() || zio.read_physical(&bp, &ReadPolicy::default()).is_ok()
}

/// How the reference of a claimed log to a cloned block is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unclaim {
    /// Like that of a file: the block is freed with the last reference.
    Pointer,
    /// The count is decremented, if there is one, and the block is never freed: the record was on disk when
    /// the log was claimed, so the block may have been free, and may belong to another file by now.
    CountOnly,
}

/// Whether the change of a record is not on disk, in a pool whose first txg after the crash is `first`.
pub(crate) fn is_needed(record: &RawRecord<'_>, first: Txg) -> bool {
    record.txg >= first
}

/// The allocated pointers of a clone.
fn counted(pointers: &[BlockPtr]) -> impl Iterator<Item = &BlockPtr> + Clone {
    pointers.iter().filter(|bp| !bp.is_hole() && !bp.is_embedded())
}

/// Claims the log of a set: allocates its blocks. Called in the first txg after an import, before any other
/// allocation; `first` is the txg after the one that was found on disk. `clone` is called for each cloned
/// block, and adds a reference that lasts until the log is freed.
///
/// # Errors
/// [`ClaimError`] if its head is not valid, or a device that holds a part of it fails.
pub fn claim(
    set: &Arc<LiveSet>,
    first: Txg,
    tx: &SyncTx,
    clone: &mut dyn FnMut(&BlockPtr),
) -> Result<Claimed, ClaimError> {
    let mut header = set.zil_header();
    if header.log.is_hole() || header.claim_txg != Txg(0) {
        return Ok(Claimed::default());
    }
    check_head(set, &header)?;
    let zio = set.store().zio();
    let mut seen = HashSet::new();
    let mut take = |bp: &BlockPtr| {
        let place = bp.dvas().next().map(format::Dva::to_words);
        bp.logical_birth() < first || !seen.insert(place) || zio.claim(bp, tx).is_ok()
    };
    let mut claimed_data = Vec::new();
    let mut found = {
        let mut on_record = |record: &RawRecord<'_>| match record.decode().map(|record| record.body) {
            Ok(Body::Write { bp, .. })
                if !bp.is_hole() && !bp.is_embedded() && bp.logical_birth() >= first =>
            {
                let is_there = zio.read_physical(&bp, &ReadPolicy::default()).is_ok();
                if is_there {
                    claimed_data.push(bp);
                }
                is_there
            }
            Ok(Body::CloneRange(range)) if !is_needed(record, first) => {
                // Counted whatever has become of the blocks, as OpenZFS does: it also drops these counts when
                // it frees a log that Cenote has claimed.
                counted(&range.pointers).filter(|bp| bp.physical_birth() < first).for_each(&mut *clone);
                true
            }
            Ok(Body::CloneRange(range)) => {
                let pointers = counted(&range.pointers);
                // A reference to free space would become one to the next block there.
                let is_there = pointers.clone().all(|bp| {
                    bp.physical_birth() < first && zio.is_allocated(bp).is_ok_and(|is_allocated| is_allocated)
                });
                if is_there {
                    pointers.for_each(&mut *clone);
                }
                is_there
            }
            Ok(_) => true,
            Err(_) => false,
        };
        walk_log(set, &header, &mut take, &mut on_record)?
    };
    for bp in &claimed_data {
        take(bp);
        found.newest = found.newest.max(bp.logical_birth());
    }
    header.claim_txg = first;
    header.claim_blk_seq = found.block_seq;
    header.claim_lr_seq = found.record_seq;
    header.flags |= CLAIM_LR_SEQ_VALID;
    if found.records > 0 || found.blocks > 1 {
        header.flags |= REPLAY_NEEDED;
    }
    set.set_zil_header(header, tx);
    Ok(found)
}

/// Frees the log in the header of a set, replayed or not, and clears the header. `clone` is called for each
/// cloned block, and drops the reference that the claim added.
///
/// # Errors
/// [`ClaimError::Unreadable`] if a device that holds a part of it fails.
pub fn destroy(
    set: &Arc<LiveSet>,
    tx: &dyn zio::AllocTx,
    clone: &mut dyn FnMut(&BlockPtr, Unclaim),
) -> Result<(), ClaimError> {
    if set.zil_header() != ZilHeader::default() {
        free_chain(set, tx, clone)?;
        set.set_zil_header(ZilHeader::default(), tx);
    }
    Ok(())
}

/// Frees the blocks of the log, without changing the header.
pub(crate) fn free_chain(
    set: &Arc<LiveSet>,
    tx: &dyn zio::AllocTx,
    clone: &mut dyn FnMut(&BlockPtr, Unclaim),
) -> Result<(), ClaimError> {
    let header = set.zil_header();
    let zio = set.store().zio();
    let is_claimed = header.claim_txg != Txg(0);
    let mut blocks = Vec::new();
    let mut data = Vec::new();
    let mut clones = Vec::new();
    walk_log(
        set,
        &header,
        &mut |bp| {
            blocks.push(*bp);
            true
        },
        &mut |record| {
            match record.decode().map(|record| record.body) {
                Ok(Body::Write { bp, .. })
                    if is_claimed
                        && !bp.is_hole()
                        && !bp.is_embedded()
                        && bp.logical_birth() >= header.claim_txg =>
                {
                    data.push(bp);
                }
                Ok(Body::CloneRange(range)) if is_claimed => {
                    let is_needed = is_needed(record, header.claim_txg);
                    let how = if is_needed { Unclaim::Pointer } else { Unclaim::CountOnly };
                    let is_old = |bp: &&BlockPtr| is_needed || bp.physical_birth() < header.claim_txg;
                    clones.extend(counted(&range.pointers).filter(is_old).map(|bp| (*bp, how)));
                }
                _ => {}
            }
            true
        },
    )?;
    // Without a claim only the block in the head is known to be allocated, so only that is freed.
    if !is_claimed {
        blocks.truncate(1);
    }
    let mut seen = HashSet::new();
    for bp in blocks.iter().chain(&data) {
        if seen.insert(bp.dvas().next().map(format::Dva::to_words))
            && let Err(error) = zio.free(bp, tx)
        {
            // Lost space is better than a file system that can never be opened again.
            note_not_freed(bp, &error);
        }
    }
    clones.iter().for_each(|(bp, how)| clone(bp, *how));
    Ok(())
}
