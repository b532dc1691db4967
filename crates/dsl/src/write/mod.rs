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

mod bootstrap;
pub mod bpobj;
mod bptree;
pub mod brt;
pub mod create;
mod ctx;
pub mod deadlist;
pub mod destroy;
mod destroy_walk;
pub mod features;
pub mod free_lists;
mod heads;
mod ledger;
pub mod livelist;
pub mod mos_tx;
mod policy;
mod room;
pub mod snapshot;
pub mod space;
pub mod zapify;

pub use bootstrap::{bootstrap, create_root};
pub use ctx::{HistoryNote, TaskCtx};
pub use features::FeatureCounts;
pub use heads::{Head, HeadSpace, Heads, SyncMode, decides_policy};
pub use ledger::Tally;
pub use mos_tx::MosTx;
pub use policy::mos_policy;
pub use room::Cost;

// Stand-ins, each to be replaced by the file of its name.
mod bookmarks {
    use super::MosTx;
    use crate::DslError;
    use format::{ObjectId, Txg};
    pub(crate) struct FbnCounter;
    impl FbnCounter {
        pub(crate) fn open(_: MosTx<'_>, _: ObjectId) -> Result<Option<FbnCounter>, DslError> {
            Ok(None)
        }
        pub(crate) fn killed(&mut self, _: &format::BlockPtr, _: crate::bpobj::Space) {}
        pub(crate) fn flush(&mut self, _: MosTx<'_>) -> Result<(), DslError> {
            Ok(())
        }
    }
    pub(crate) fn fbn_keys(_: MosTx<'_>, _: ObjectId, _: Txg) -> Result<Vec<Txg>, DslError> {
        Ok(Vec::new())
    }
    pub(crate) fn on_snapshot_destroy(_: MosTx<'_>, _: ObjectId, _: ObjectId) -> Result<bool, DslError> {
        Ok(false)
    }
    pub(crate) fn destroy_all(_: MosTx<'_>, _: ObjectId) -> Result<(), DslError> {
        Ok(())
    }
    pub(crate) fn move_upto(_: MosTx<'_>, _: ObjectId, _: ObjectId, _: Txg) -> Result<(), DslError> {
        Ok(())
    }
}
mod counts {
    use super::MosTx;
    use crate::DslError;
    use format::ObjectId;
    pub(crate) fn check(_: MosTx<'_>, _: ObjectId, _: u64, _: u64) -> Result<(), DslError> {
        Ok(())
    }
    pub(crate) fn adjust(_: MosTx<'_>, _: ObjectId, _: i64, _: i64) -> Result<(), DslError> {
        Ok(())
    }
    pub(crate) fn transfer(_: MosTx<'_>, _: ObjectId, _: ObjectId, _: ObjectId) -> Result<(), DslError> {
        Ok(())
    }
    pub(crate) fn snapshots_changed(_: MosTx<'_>, _: ObjectId) -> Result<(), DslError> {
        Ok(())
    }
}
mod deleg {
    use super::MosTx;
    use crate::DslError;
    use format::ObjectId;
    pub(crate) fn inherit_create_time(
        _: MosTx<'_>,
        _: ObjectId,
        _: ObjectId,
        _: Option<u32>,
    ) -> Result<(), DslError> {
        Ok(())
    }
    pub(crate) fn free_all(m: MosTx<'_>, id: ObjectId) -> Result<(), DslError> {
        m.free(id)
    }
}
mod holds {
    use super::MosTx;
    use crate::DslError;
    use format::ObjectId;
    pub(crate) fn is_held(_: MosTx<'_>, _: ObjectId) -> Result<bool, DslError> {
        Ok(false)
    }
    pub(crate) fn free_all(_: MosTx<'_>, _: ObjectId) -> Result<(), DslError> {
        Ok(())
    }
}
