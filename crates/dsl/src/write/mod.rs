//! Changing datasets: making, destroying, snapshotting, cloning, promoting, renaming, rolling back, and
//! accounting for what their contents take.
//!
//! Everything here but [`Heads::open`] and [`Head::begin`] happens in syncing context: the pool's sync makes
//! a [`TaskCtx`] for each txg and hands it to the tasks. A task is a plain function that checks everything
//! first and then changes; one that fails in its checks has changed nothing. One that fails later has met
//! damage or a dead device, and the txg must not end.
//!
//! # Order of a txg
//! [`Heads::sync_all`] (contents of the heads, with the ledger) -> the tasks, while [`Heads::exclusive`] is
//! held; each leaves what it made or changed written -> what waits to be freed -> the MOS itself ->
//! [`Heads::finish_txg`].
//!
//! Source: `docs/on-disk/22-mos-dsl.md`, `docs/on-disk/15-space.md`.

pub mod bookmarks;
mod bootstrap;
pub mod bpobj;
#[cfg(test)]
mod bpobj_tests;
mod bptree;
pub mod brt;
#[cfg(test)]
mod brt_tests;
#[cfg(test)]
mod containers_tests;
pub mod counts;
pub mod create;
mod ctx;
mod ddt;
#[cfg(test)]
mod ddt_tests;
pub mod deadlist;
#[cfg(test)]
mod deadlist_tests;
pub mod deleg;
pub mod destroy;
#[cfg(test)]
mod destroy_tests;
mod destroy_walk;
pub mod features;
pub mod free_lists;
mod heads;
pub mod holds;
mod key_objects;
mod ledger;
pub mod livelist;
pub mod mos_tx;
mod policy;
pub mod promote;
mod prop_values;
pub mod props;
pub mod rename;
pub mod rollback;
mod room;
pub mod snapshot;
pub mod space;
#[cfg(test)]
mod testing;
pub mod zapify;

pub use bootstrap::{bootstrap, create_root};
pub use ctx::{Caller, HistoryNote, TaskCtx};
pub use ddt::unpack as unpack_dedup_value;
pub use features::FeatureCounts;
pub use heads::{Head, HeadSpace, Heads, Listener, SnapshotHold, SyncMode, decides_policy};
pub use ledger::Tally;
pub use mos_tx::MosTx;
pub use policy::mos_policy;
pub use room::Cost;
