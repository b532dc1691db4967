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

pub mod bpobj;
mod bptree;
pub mod brt;
mod ctx;
pub mod deadlist;
mod destroy_walk;
pub mod features;
pub mod free_lists;
mod heads;
mod ledger;
pub mod livelist;
pub mod mos_tx;
mod policy;
mod room;
pub mod space;
pub mod zapify;

pub use ctx::{HistoryNote, TaskCtx};
pub use features::FeatureCounts;
pub use heads::{Head, HeadSpace, Heads, SyncMode, decides_policy};
pub use ledger::Tally;
pub use mos_tx::MosTx;
pub use policy::mos_policy;
pub use room::Cost;

// Stand-ins, each to be replaced by the file of its name.
mod bookmarks {
    pub(crate) struct FbnCounter;
    impl FbnCounter {
        pub(crate) fn open(
            _: super::MosTx<'_>,
            _: format::ObjectId,
        ) -> Result<Option<FbnCounter>, crate::DslError> {
            Ok(None)
        }
        pub(crate) fn killed(&mut self, _: &format::BlockPtr, _: crate::bpobj::Space) {}
        pub(crate) fn flush(&mut self, _: super::MosTx<'_>) -> Result<(), crate::DslError> {
            Ok(())
        }
    }
}
