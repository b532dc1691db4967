//! The intent log of a dataset: changes that were promised to be durable before their txg is on disk
//! (docs/on-disk/24-zil.md).
//!
//! `zpl` and volumes [push](IntentLog::push) what they change, in the transaction that changes it, and
//! [commit](IntentLog::commit) when somebody asked for durability. `dsl` calls [`IntentLog::sync`]
//! before it writes a set, `pool` [`check`]s and [`claim`]s the logs at import, and [`replay`] applies
//! what is left of them.
//!
//! # What always holds
//! - When `commit` returns, everything that was pushed for the object before, and every change of names
//!   before, is on a device whose cache was flushed after the write: in the log, or in a txg.
//! - A commit that failed stays failed. What it took out of the queue and could not make durable is *owed*
//!   (`Writer::owed`): until the newest txg of it is on disk, no commit returns without an error, whoever asks and
//!   for whatever, and nothing is written behind the gap.
//! - A record says what happened, not what is there when it is written: it keeps its data ([`LogData`]), and nothing
//!   is read for it. What later changes do to the same bytes is said by their records alone.
//! - A record needs nothing that a crash takes away: the blocks that it points to were born in txgs that are on disk
//!   when it is pushed (`Tx::is_on_disk`), and nothing frees them before its own txg is.
//! - A record whose txg is on disk says nothing any more. It may stand in the chain all the same, beside newer ones; replay
//!   passes over it. No clone does in a chain of ours, as its record is only written while its txg is open. In those of
//!   others it is claimed and let go of as they do, by counting ([`Unclaim`]): whoever claims a chain need not be the one
//!   who frees it.
//! - A block of the log is written while a transaction of the txg that allocated its successor is
//!   held. So whatever a txg's space maps call allocated can be reached from the head of the chain.
//! - The head points to the oldest block that holds a record of a txg that is not on disk, or earlier.
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
