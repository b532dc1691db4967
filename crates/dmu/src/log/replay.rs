//! Replaying a claimed log (docs/on-disk/24-zil.md, section 7).

use super::claim::{REPLAY_NEEDED, walk_chain};
use super::{ClaimError, IntentLog};
use crate::DmuError;
use crate::live::{Tx, TxError};
use format::Txg;
use format::zil::Record;
use std::fmt::Display;
use crate::sync::atomic::Ordering;

/// Why a replay did not begin. What goes wrong with single records is in [`Replayed`].
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

/// What a replay did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Records whose change was made.
    pub applied: u64,
    /// Records that were on disk already, or concerned an object that is gone.
    pub skipped: u64,
    /// The record that could not be applied, and why: what followed it is lost.
    pub stopped: Option<(u64, String)>,
}

/// Applies the records of the log that an import claimed, and gives the log up afterwards. `apply` makes
/// the change of one record in the transaction given; it is tried again once after a sync.
/// Needs a thread that syncs, or `sync` to do it.
///
/// # Errors
/// If the log cannot be read, or the pool is suspended.
pub fn replay<E: Display>(
    log: &IntentLog,
    sync: &mut dyn FnMut() -> Result<(), TxError>,
    apply: &mut dyn FnMut(&Record, &Tx) -> Result<(), E>,
) -> Result<Replayed, ReplayError> {
    let set = &log.set;
    let header = set.zil_header();
    let mut done = Replayed::default();
    if header == format::objset::ZilHeader::default() {
        return Ok(done);
    }
    log.in_replay.store(true, Ordering::Release);
    let mut failed: Option<TxError> = None;
    if header.flags & REPLAY_NEEDED != 0 && header.claim_txg != Txg(0) {
        let mut on_record = |raw: &format::zil::RawRecord<'_>| {
            if raw.seq <= header.replay_seq || raw.txg < header.claim_txg {
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
        walk_chain(set.store().zio(), set.number(), &header, &mut |_| true, &mut on_record)?;
    }
    if let Some(error) = failed {
        return Err(error.into());
    }
    if done.applied > 0 {
        // The records are not needed any more only when what they say is on disk.
        sync()?;
    }
    give_up(log)?;
    if done != Replayed::default() {
        sync()?;
    }
    Ok(done)
}

/// Applies one record, twice if need be. The reason why it could not be applied.
fn apply_one<E: Display>(
    log: &IntentLog,
    record: &Record,
    sync: &mut dyn FnMut() -> Result<(), TxError>,
    apply: &mut dyn FnMut(&Record, &Tx) -> Result<(), E>,
) -> Result<Option<String>, TxError> {
    let mut attempt = || -> Result<Option<String>, TxError> {
        let tx = log.txgs.begin()?;
        match apply(record, &tx) {
            Ok(()) => {
                log.note_replayed(record.seq, &tx);
                Ok(None)
            }
            Err(error) => Ok(Some(error.to_string())),
        }
    };
    match attempt()? {
        None => Ok(None),
        // Names and numbers freed in this txg can be had again after it is on disk.
        Some(_) => {
            sync()?;
            attempt()
        }
    }
}

/// Frees the chain; the head is cleared with the same txg.
fn give_up(log: &IntentLog) -> Result<(), ReplayError> {
    use zio::AllocTx;
    let tx = log.txgs.begin()?;
    super::claim::free_chain(&log.set, &tx, &mut |_| ())?;
    super::lock(&log.chain).forget_head = Some(tx.txg());
    log.set.mark_root(tx.txg());
    Ok(())
}
