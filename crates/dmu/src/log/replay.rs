//! Replay of a claimed log (docs/on-disk/24-zil.md, section 7).

use super::claim::{ClaimError, REPLAY_NEEDED, Unclaim, free_chain, is_needed, walk_log};
use super::intent_log::IntentLog;
use crate::DmuError;
use crate::sync::atomic::Ordering;
use crate::sync::lock;
use crate::{Tx, TxError};
use format::units::MAX_BLOCK;
use format::zil::{Body, Record};
use format::{BlockPtr, Txg};
use std::fmt::Display;
use zio::{AllocTx, ReadPolicy, ZioError};

/// Why a replay did not begin. Failures of single records are in [`Replayed`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] ClaimError),
    /// The pool takes no changes.
    #[error(transparent)]
    Tx(#[from] TxError),
}

/// Result of a replay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Number of applied records.
    pub applied: u64,
    /// Number of records that were on disk already, or concerned an object that was freed.
    pub skipped: u64,
    /// Number of the record that could not be applied, and the reason: later records are lost.
    pub stopped: Option<(u64, String)>,
}

impl IntentLog {
    /// Whether there is a log from an earlier opening of the pool.
    fn is_left(&self) -> bool {
        self.set.zil_header() != format::objset::ZilHeader::default() && lock(&self.chain).is_foreign()
    }

    /// Whether the log has claimed records that were not replayed yet.
    pub fn awaits_replay(&self) -> bool {
        let header = self.set.zil_header();
        header.flags & REPLAY_NEEDED != 0 && header.claim_txg != Txg(0) && lock(&self.chain).is_foreign()
    }

    /// This record's change belongs to the txg of `tx`.
    fn note_replayed(&self, seq: u64, tx: &Tx) {
        self.replayed[(tx.txg().0 & 1) as usize].fetch_max(seq, Ordering::AcqRel);
        self.set.mark_root(tx.txg());
    }
}

/// Replays a claimed log and frees it: [`apply_log`] and [`give_up`], each followed by a txg if it made
/// changes.
///
/// # Errors
/// [`ReplayError`] if the log cannot be read, or the pool is suspended.
pub fn replay<E: Display>(
    log: &IntentLog,
    sync: &mut dyn FnMut() -> Result<(), TxError>,
    apply: Apply<'_, E>,
    unclaim: &mut dyn FnMut(&BlockPtr, Unclaim, &Tx),
) -> Result<Replayed, ReplayError> {
    let done = apply_log(log, sync, apply)?;
    if done.applied > 0 {
        // The records are obsolete only when their changes are on disk.
        sync()?;
    }
    give_up(log, unclaim)?;
    if done != Replayed::default() {
        sync()?;
    }
    Ok(done)
}

/// Applies the records of a claimed log. `apply` makes the change of one record in the given transaction; its
/// second argument is the data of a write that only has a pointer in the record. If it fails, it is called
/// again after a sync. `sync` brings all changes so far to disk. The caller then syncs once more, frees the
/// log ([`give_up`]), and syncs again; several logs can share these syncs.
///
/// # Errors
/// [`ReplayError`] if the log cannot be read, or the pool is suspended.
pub fn apply_log<E: Display>(
    log: &IntentLog,
    sync: &mut dyn FnMut() -> Result<(), TxError>,
    apply: Apply<'_, E>,
) -> Result<Replayed, ReplayError> {
    let set = &log.set;
    let mut header = set.zil_header();
    let mut done = Replayed::default();
    if !log.is_left() {
        return Ok(done);
    }
    if log.in_replay.swap(true, Ordering::AcqRel) {
        // An earlier replay was cut short. Its progress is in the header, with the txg of its last record.
        sync()?;
        header = set.zil_header();
    }
    let mut failed: Option<TxError> = None;
    if header.flags & REPLAY_NEEDED != 0 && header.claim_txg != Txg(0) {
        let mut on_record = |raw: &format::zil::RawRecord<'_>| {
            if raw.seq <= header.replay_seq || !is_needed(raw, header.claim_txg) {
                done.skipped += 1;
                return true;
            }
            let record = match raw.decode() {
                Ok(record) => record,
                Err(error) => {
                    done.stopped = Some((raw.seq, error.to_string()));
                    return false;
                }
            };
            if let Some(object) = raw.object()
                && matches!(set.object(object), Err(DmuError::NoObject { .. }))
            {
                done.skipped += 1;
                return true;
            }
            match apply_one(log, &record, sync, apply) {
                Ok(None) => {
                    done.applied += 1;
                    true
                }
                Ok(Some(why)) => {
                    done.stopped = Some((raw.seq, why));
                    false
                }
                Err(error) => {
                    failed = Some(error);
                    false
                }
            }
        };
        walk_log(set, &header, &mut |_| true, &mut on_record)?;
    }
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(done),
    }
}

/// Callback that makes the change of a record.
pub type Apply<'a, E> = &'a mut dyn FnMut(&Record, Option<&[u8]>, &Tx) -> Result<(), E>;

/// Applies one record, twice if necessary. Returns the reason if it could not be applied.
fn apply_one<E: Display>(
    log: &IntentLog,
    record: &Record,
    sync: &mut dyn FnMut() -> Result<(), TxError>,
    apply: Apply<'_, E>,
) -> Result<Option<String>, TxError> {
    let data = match indirect_data(log, record) {
        Ok(data) => data,
        Err(error) => return Ok(Some(error.to_string())),
    };
    let mut attempt = || -> Result<Option<String>, TxError> {
        let tx = log.txgs.begin()?;
        let result = apply(record, data.as_deref(), &tx);
        if result.is_ok() {
            log.note_replayed(record.seq, &tx);
        }
        Ok(result.err().map(|error| error.to_string()))
    };
    match attempt()? {
        None => Ok(None),
        // Names and numbers freed in this txg are available again after it is on disk.
        Some(_) => {
            sync()?;
            attempt()
        }
    }
}

/// The data of a write whose record references a block.
fn indirect_data(log: &IntentLog, record: &Record) -> Result<Option<Vec<u8>>, ZioError> {
    match &record.body {
        Body::Write { bp, data: None, length, .. } if bp.is_hole() => {
            let length = (*length).max(bp.lsize().0).min(MAX_BLOCK);
            Ok(Some(vec![0; length as usize]))
        }
        Body::Write { bp, data: None, .. } => {
            let policy = ReadPolicy { key: log.set.blocks().key(), ..ReadPolicy::default() };
            let block = log.set.store().zio().read(bp, &policy)?;
            Ok(Some(block.bytes().to_vec()))
        }
        _ => Ok(None),
    }
}

/// Frees a log whose records were replayed, with their changes on disk: frees the chain, and clears the head
/// with the same txg. `unclaim` is called for each cloned block to which the claim has added a reference,
/// whether its record was applied, skipped or never reached, with the transaction that drops it.
///
/// # Errors
/// [`ReplayError`] if the log cannot be read, or the pool is suspended.
pub fn give_up(log: &IntentLog, unclaim: &mut dyn FnMut(&BlockPtr, Unclaim, &Tx)) -> Result<(), ReplayError> {
    if !log.is_left() {
        return Ok(());
    }
    let tx = log.txgs.begin()?;
    free_chain(&log.set, &tx, &mut |bp, how| unclaim(bp, how, &tx))?;
    lock(&log.chain).forget_head = Some(tx.txg());
    log.set.mark_root(tx.txg());
    Ok(())
}
