//! Objects: numbered arrays of bytes in object sets, stored as trees of blocks.
//!
//! Above this crate, checksums of block pointers and devices are not visible; below it, dnodes are unknown.
//! [`ObjSet`] opens the root block of a dataset, [`Object`] reads one object of it, [`zap`] reads name-value
//! objects, [`traverse`] visits every block. [`Txgs`] numbers transaction groups and admits changes;
//! [`LiveSet`] is a writable object set, [`LiveObject`] one object of it. `zpl` and volumes change objects
//! while a txg is open, `dsl` changes the MOS in syncing context, `pool` calls [`LiveSet::sync`].
//!
//! # What always holds
//! - A pointer is followed only if its level, type and size match its place in the tree. So a traversal of a
//!   hostile pool never allocates more than a block at a time; [`LoopGuard`] and [`Blocks`] ensure that it
//!   ends, although trees may repeat themselves.
//! - Blocks are cached by address and birth ([`arc`]), so snapshots and clones share the cache.
//! - Copy-on-write holds in memory too: an object has an immutable image as of the last sync, and above it at
//!   most two overlays, of the syncing txg and of the open one. A buffer that the sync may still need is
//!   copied before it is changed.
//! - Every change of txg T happens before every change of T+1: a new [`Tx`] waits until the holders of T have
//!   left. Only one txg syncs at a time.
//! - Dirty memory is metered where buffers are made, not estimated by callers; [`Txgs::begin`] slows and then
//!   stops new changes while the meter is high.
//!
//! # Layers
//! Each uses only what stands before it: `error`, `ledger`, `interrupt`, `txg` -> `arc`, `prefetch`, `in_flight`,
//! `store` -> `loop_guard`, `set_blocks` -> `object::cell`, `object::disk_tree` (one object in memory, one tree on
//! disk) -> `objset::image`, [`LiveSet`] -> [`LiveObject`], [`ObjSet`] -> [`Object`] -> `objset::{live_objects,
//! lookup, sync}` (objects by number, and writing them) -> [`traverse`], [`log`], [`zap`]. Below objects stands what
//! they keep for the writers of their ZAPs, `zap::state`, and the interface through which a ZAP reads blocks,
//! `zap::blocks`.
//!
//! # Order of locks
//! locks of `zpl` -> [`Tx`] -> table of objects -> one object -> lists of dirty objects -> meter. The sync
//! takes none of the first two.
//!
//! Source: `docs/on-disk/20-dmu.md`, `21-zap.md`.
#![forbid(unsafe_code)]

pub mod arc;
mod error;
mod in_flight;
pub mod interrupt;
mod ledger;
pub mod log;
mod loop_guard;
mod object;
mod objset;
pub mod panics;
mod prefetch;
mod request;
mod set_blocks;
mod store;
mod sync;
#[cfg(test)]
pub(crate) mod testing;
pub mod traverse;
mod txg;
pub mod zap;

pub use error::{DmuError, TxError};
pub use ledger::Ledger;
pub use loop_guard::LoopGuard;
pub use object::live::{LiveObject, Taken};
pub use object::raw::RawBlock;
pub use object::receive::Reclaimed;
pub use object::tail::Tail;
pub use object::{Blocks, Object};
pub use objset::ObjSet;
pub use objset::live::LiveSet;
pub use objset::new_object::{NewObject, RawShape};
pub use objset::policy::{RedundantMetadata, SetPolicy};
pub use objset::raw::RawSet;
pub use prefetch::PREFETCH_DISABLE;
pub use request::{BlockPlace, BlockRequest};
pub use set_blocks::{KeyState, Lease};
pub use store::{Store, Witness};
pub use txg::{DirtyMeter, Limits, SyncTx, TXG_TIMEOUT, Tx, Txgs, Work};

/// Used by all layers above that change objects: transactions, and clock, random numbers and workers; also
/// the contents of a block.
pub use zio::{AllocTx, Block, Env, RawForm, StoredForm};
