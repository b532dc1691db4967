//! Writable object sets: changes in memory, and writing them one transaction group at a time.
//!
//! [`Txgs`] numbers the groups and says who may change what when; [`LiveSet`] is an object set that
//! can be changed, [`LiveObject`] one object of it. `zpl` and volumes change objects while a txg is
//! open, `dsl` changes the MOS in syncing context, `pool` calls [`LiveSet::sync`].
//!
//! # What always holds
//! - Copy-on-write holds in memory too: an object has an image as of the last sync, which never
//!   changes, and above it at most two overlays, of the txg that is syncing and of the one that is
//!   open. A buffer that the sync may still need is not changed, it is copied.
//! - Every change of txg T happens before every change of T+1: a new [`Tx`] waits until the holders
//!   of T have left. Only one txg syncs at a time.
//! - Dirty memory is metered where buffers are made, not where callers guess; [`Txgs::begin`] slows
//!   and then stops new changes while the meter is high.
//!
//! # Order of locks
//! locks of `zpl` -> [`Tx`] -> table of objects -> one object -> lists of dirty objects -> meter. The sync takes none of the
//! first two.
//!
//! Source: `docs/on-disk/20-dmu.md`.

mod accounting;
mod cell;
mod numbers;
mod object;
mod policy;
mod set;
mod sync;
mod tail;
#[cfg(test)]
pub(crate) mod testing;
mod tree;
mod txg;
mod zap;

pub use object::{LiveObject, Taken};
pub use policy::{RedundantMetadata, SetPolicy};
pub use set::{LiveSet, NewObject};
pub use sync::Ledger;
pub use tail::Tail;
pub use txg::{DirtyMeter, Limits, SyncTx, TXG_TIMEOUT, Tx, TxError, Txgs, Work};
