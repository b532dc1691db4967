//! The dataset layer: directories, file systems, volumes, snapshots, clones, bookmarks, holds, properties,
//! quotas, delegation and encryption keys, as the MOS holds them.
//!
//! `pool` opens the MOS and makes a [`Dsl`] of it; all look-ups of a dataset by name go through that. Object
//! sets are opened through `dmu`. This crate does not know their contents, except for the four properties
//! that a file system keeps in its own objects ([`prop`]).
//!
//! # What always holds
//! - Objects are read on demand: opening a [`Dsl`] reads none.
//! - Every reference is checked where it is followed: the type and size of the bonus, the parent that a child
//!   names, the directory that a dataset names.
//! - Every chain is bounded: directories by the length of a name, snapshots by a count that only a loop can
//!   reach.
//! - Names from disk that could be mistaken for path parts or delimiters are errors.
//!
//! # Layers
//! A module uses only modules of the same or earlier rows; there are no cycles.
//!
//! | Layer | Modules |
//! | --- | --- |
//! | names and errors | `error name sync budget` |
//! | the MOS | `mos`, `block_space` (charges), `features`, `mos_tx` (in syncing context), `zapify` |
//! | objects | `bpobj deadlist bptree livelist brt ddt keyring stored_props` |
//! | the tree | `tree` ([`Dsl`]) -> `dir` -> `dataset` -> `bookmark holds delegation keys resume prop` |
//! | space | `charge` (up the directories), `freeing`, `free_lists`, `space` (as it is shown) |
//! | heads | `policy`, `ledger`, `heads` (open for writing, with `heads::reservation`) |
//! | base of the tasks | `task` ([`TaskCtx`]) -> `limits counts prop::change` |
//! | tasks | `create snapshot rename promote destroy rollback receive bootstrap` |
//!
//! In a concept's folder `mod.rs` has its type and how it is read, `change.rs` how it is changed in syncing
//! context. Functions that change a list or a bookmark are associated with its type: `Deadlist::merge`,
//! `Bookmark::create_from_snapshot`.
//!
//! # Changing datasets
//! Creation, destruction, snapshots, clones, promotion, renaming, rollback and accounting happen in syncing
//! context; only [`Heads::open`] and [`Head::begin`] do not. The pool's sync makes a [`TaskCtx`] for each txg
//! and passes it to the tasks. A task is a plain function that first checks all its conditions and then makes
//! its changes; a task that fails in its checks has changed nothing. A task that fails later has met damage
//! or a dead device, and its txg must not end.
//!
//! Order of a txg: [`Heads::sync_all`] (contents of the heads, with the ledger) -> the tasks, while
//! [`Heads::exclusive`] is held; each writes the objects that it created or changed -> background freeing ->
//! the MOS itself -> [`Heads::finish_txg`].
//!
//! Tests: beside the code and, on real pools, in `crates/pool/tests`.
#![forbid(unsafe_code)]

pub mod block_space;
pub mod bookmark;
mod bootstrap;
pub mod bpobj;
mod bptree;
pub mod brt;
mod budget;
pub mod charge;
#[cfg(test)]
mod containers_tests;
pub mod counts;
pub mod create;
pub mod dataset;
mod ddt;
pub mod deadlist;
pub mod delegation;
pub mod destroy;
pub mod dir;
mod error;
pub(crate) mod features;
pub mod free_lists;
mod freeing;
mod heads;
pub mod holds;
mod keyring;
pub mod keys;
mod ledger;
pub mod limits;
pub(crate) mod livelist;
mod mos;
mod mos_tx;
pub mod name;
mod policy;
pub mod promote;
pub mod prop;
pub mod receive;
pub mod rename;
pub mod resume;
pub mod rollback;
pub mod snapshot;
pub(crate) mod space;
mod stored_props;
pub mod sync;
mod task;
#[cfg(test)]
mod testing;
mod tree;
pub(crate) mod zapify;

pub use block_space::{Delta, Space};
pub use bookmark::Bookmark;
pub use bootstrap::{bootstrap, create_root};
pub use dataset::Dataset;
pub use ddt::unpack as unpack_dedup_value;
pub use dir::Dir;
pub use error::{DslError, KeyError, ReceiveRefusal};
pub use features::FeatureCounts;
pub use heads::reservation::Cost;
pub use heads::{Head, HeadSpace, Heads, OpenDataset, ReceivePoint, SnapshotHold, SyncMode};
pub use ledger::Tally;
pub use mos_tx::MosTx;
pub use policy::mos_policy;
pub use task::{Caller, HistoryNote, TaskCtx};
pub use tree::{Dsl, PoolSpace};
