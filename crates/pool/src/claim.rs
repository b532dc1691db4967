//! Intent logs that a crash left: found when the pool is opened, claimed in its first txg
//! (docs/on-disk/24-zil.md, section 6).
//!
//! # What always holds
//! - The logs are read and checked before the first write to the pool.
//! - All claims are in one txg, the first, before any other allocation.
//! - Of a checkpoint to which the pool has gone back, logs are not claimed: their blocks may belong to others since, and
//!   what they hold was written after the checkpoint.
//! - The caller that imports the pool replays the claimed logs before it uses the volumes and file systems:
//!   [`LivePool::take_unreplayed`]. This layer does not know the contents of log records.

use crate::error::PoolError;
use crate::live::{Claim, LivePool, LogFate};
use crate::refusal::WriteRefusal;
use crate::view::Pool;
use dmu::log::{self, ClaimError};
use dsl::MosTx;
use format::names;
use format::nvlist::NvList;
use format::objset::ZilHeader;
use format::zil::RecordKind;
use format::{BlockPtr, ObjectId, Txg};
use vdev::sync::lock;

/// What the previous user of a pool has left in its datasets.
#[derive(Default)]
pub(crate) struct Left {
    /// Heads that have logs to be claimed.
    pub(crate) claims: Vec<Claim>,
    /// Names of the datasets into which a receive has not ended.
    pub(crate) partial: Vec<String>,
}

/// The heads that have logs to be claimed, and those that are not whole.
///
/// # Errors
/// If a log cannot be read, unless `give_up` allows to drop such logs.
pub(crate) fn find(pool: &LivePool, view: &Pool, give_up: bool) -> Result<Left, PoolError> {
    let Left { mut claims, mut partial } = Left::default();
    for dir in view.dsl().dirs()? {
        let Some(dataset) = dir.head()? else { continue };
        if dataset.is_inconsistent() || dir.child(names::hidden::RECEIVE)?.is_some() {
            partial.push(dataset.name().to_owned());
        }
        if dataset.is_inconsistent() {
            continue;
        }
        if dataset.phys().bp.is_hole() {
            continue;
        }
        let header = dataset.open_objset()?.phys().zil;
        if header.log.is_hole() {
            continue;
        }
        if header.claim_txg != Txg(0) {
            lock(&pool.unreplayed).push(dataset.id());
            continue;
        }
        let checkpoint = view.uberblock().checkpoint_txg;
        if dataset.is_encrypted()? {
            let synced = if checkpoint == Txg(0) { view.txg() } else { checkpoint };
            if !is_all_allocated(pool, synced, dataset.id(), &header) {
                let why = WriteRefusal::EncryptedLog { dataset: dataset.name().to_owned() };
                return Err(PoolError::NotWritable { name: pool.name.clone(), why });
            }
            continue;
        }
        let head = pool.heads.open(dataset.id())?;
        let checked = match checkpoint {
            Txg(0) => log::check(&head.set).map(|_| LogFate::Claimed),
            checkpoint => blocks_of(pool, checkpoint, dataset.id(), &header).map(LogFate::GivenUp),
        };
        match checked {
            Ok(what) => {
                if matches!(what, LogFate::Claimed) {
                    lock(&pool.unreplayed).push(dataset.id());
                }
                claims.push(Claim { head, what });
            }
            Err(error) if give_up => {
                pool.events.ereport("log_replay", &pool.tree(), None, NvList::new());
                tracing::warn!(dataset = dataset.name(), %error, "its intent log is given up");
                // Where the first block leads to cannot be read.
                let synced = if checkpoint == Txg(0) { view.txg() } else { checkpoint };
                let first = (header.log.physical_birth() <= synced).then_some(header.log);
                claims.push(Claim { head, what: LogFate::GivenUp(first.into_iter().collect()) });
            }
            Err(error) => {
                pool.events.ereport("log_replay", &pool.tree(), None, NvList::new());
                let (dataset, cause) = (dataset.name().to_owned(), Box::new(error));
                let why = WriteRefusal::UnreadableLog { dataset, cause };
                return Err(PoolError::NotWritable { name: pool.name.clone(), why });
            }
        }
    }
    Ok(Left { claims, partial })
}

/// Whether all blocks of a log were allocated in txgs that are on disk. The log of a dataset that cannot be
/// changed may then stay unclaimed: its blocks are not reused, and a later claim finds them intact.
fn is_all_allocated(pool: &LivePool, synced: Txg, dataset: ObjectId, header: &ZilHeader) -> bool {
    let (mut newest, mut points_elsewhere) = (Txg(0), false);
    let walked = log::walk_chain(
        &pool.zio,
        dataset.0,
        header,
        &mut |bp| {
            newest = newest.max(bp.logical_birth());
            true
        },
        &mut |record| {
            // Without the key, the blocks that records of an encrypted log reference are unknown.
            points_elsewhere |=
                [RecordKind::Write as u64, RecordKind::CloneRange as u64].contains(&record.txtype);
            true
        },
    );
    walked.is_ok() && newest <= synced && !points_elsewhere
}

/// The blocks of a log that were allocated when the checkpoint was made.
fn blocks_of(
    pool: &LivePool,
    checkpoint: Txg,
    dataset: ObjectId,
    header: &ZilHeader,
) -> Result<Vec<BlockPtr>, ClaimError> {
    let mut blocks = Vec::new();
    let on_block = &mut |bp: &BlockPtr| {
        if bp.physical_birth() <= checkpoint {
            blocks.push(*bp);
        }
        true
    };
    log::walk_chain(&pool.zio, dataset.0, header, on_block, &mut |_| true)?;
    Ok(blocks)
}

/// Claims the logs; `synced` is the txg that was found on disk. Returns the newest birth of a claimed block.
pub(crate) fn run(pool: &LivePool, m: MosTx<'_>, claims: &[Claim], synced: Txg) -> Result<Txg, PoolError> {
    let mut newest = Txg(0);
    for claim in claims {
        let set = &claim.head.set;
        if let LogFate::GivenUp(blocks) = &claim.what {
            blocks.iter().try_for_each(|bp| pool.zio.free(bp, m.tx))?;
            set.set_zil_header(ZilHeader::default(), m.tx);
            continue;
        }
        let mut clone = |bp: &BlockPtr| {
            pool.brt.add_claim(bp, m.txg());
        };
        let claimed = log::claim(set, Txg(synced.0 + 1), m.tx, &mut clone);
        let claimed = claimed.map_err(|error| {
            let why = WriteRefusal::Claim(Box::new(error));
            PoolError::NotWritable { name: pool.name.clone(), why }
        })?;
        newest = newest.max(claimed.newest);
    }
    Ok(newest)
}
