//! The intent log of a dataset: changes that were acknowledged as durable before their txg is on disk
//! (docs/on-disk/24-zil.md).
//!
//! `zpl` and volumes [push](IntentLog::push) their changes, in the transaction that makes them, and
//! [commit](IntentLog::commit) when a caller requests durability. `dsl` calls [`IntentLog::sync`] before it
//! writes a set, `pool` [`check`]s and [`claim`]s the logs at import, and [`replay`] applies the remaining
//! records.
//!
//! # What always holds
//! - When `commit` returns, every earlier push for the object, and every earlier change of names, is on a
//!   device whose cache was flushed after the write: in the log, or in a txg.
//! - A commit that failed stays failed. The records that it took from the queue and could not make durable
//!   are *owed* (`Writer::owed`): until the newest txg of them is on disk, every commit of any object waits
//!   for that txg or returns an error, and no block is written after the gap.
//! - A record describes the change as it happened, not the state when it is written: it keeps its data
//!   ([`LogData`]), and no block is read for it. Later changes of the same bytes are described by their own
//!   records.
//! - A record depends on no block that a crash removes: the blocks that it references were born in txgs that
//!   are on disk when it is pushed (`Tx::is_on_disk`), and are not freed before its own txg is on disk.
//! - A record whose txg is on disk is obsolete. It may still be in the chain, beside newer ones; a replay
//!   skips it. Our chains have no obsolete clones, as a clone is logged only while its txg is open. Those in
//!   chains of other implementations are claimed and freed by counting, as they do ([`Unclaim`]), because the
//!   system that claims a chain need not be the one that frees it.
//! - A block of the log is written while a transaction of the txg that allocated its successor is held. So
//!   every log block that is allocated in a txg's space maps is reachable from the head of the chain.
//! - The head points to the oldest block with a record of a txg that is not on disk, or to an earlier one.
//!
//! # Order of locks
//! writer (one committer at a time) -> [`Tx`](crate::Tx) -> chain -> pending records.

pub mod walk;

mod chain;
mod claim;
mod commit;
mod intent_log;
mod pending;
mod replay;
mod write;

pub use claim::{ClaimError, Claimed, Limits, Unclaim, check, claim, destroy, walk_chain};
pub use intent_log::{IntentLog, LogBias};
pub use pending::{LogData, Pending};
pub use replay::{Apply, ReplayError, Replayed, apply_log, give_up, replay};
