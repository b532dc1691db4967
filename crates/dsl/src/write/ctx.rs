//! What a change of the dataset layer holds in its hands: the writable MOS, the syncing txg, and the
//! small steps that every task is made of.
//!
//! # What always holds
//! - Everything here happens in syncing context, on one thread, in one txg.
//! - A task that is refused has changed nothing: it finds out everything that it can be refused for, as of this
//!   moment, before its first change. What its caller saw in a view is a wish by then. A task of several steps that
//!   are refused one by one takes each with [`TaskCtx::step`], and with something done ends as done.

use super::brt::Brt;
use super::features::FeatureCounts;
use super::heads::{Heads, open_set};
use super::ledger::sync_set;
use super::mos_tx::MosTx;
use super::policy::policy_of;
use crate::delegation::User;
use crate::{Dsl, DslError, mos};
use dmu::live::{LiveSet, SyncTx};
use format::dsl::DirPhys;
use format::{ObjectId, Txg};
use std::sync::Arc;
use zio::{AllocTx, Env, Zio};

/// Entry of the object directory: the root of the tree of directories.
pub(crate) const ROOT_DATASET: &str = "root_dataset";
/// Hidden directory that the MOS is charged to.
pub(crate) const MOS_DIR: &str = "$MOS";
/// Hidden directory that blocks waiting to be freed are charged to.
pub(crate) const FREE_DIR: &str = "$FREE";
/// Hidden directory whose only snapshot is the empty one from which everything descends.
pub(crate) const ORIGIN_DIR: &str = "$ORIGIN";

/// An internal record for the pool's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryNote {
    /// What was done: `create`, `snapshot`, `destroy`, …
    pub name: String,
    /// In what way.
    pub text: String,
    /// To which dataset.
    pub dataset: Option<(String, ObjectId)>,
}

/// Who asked for a task.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Caller {
    /// Who may change every limit: limits on the number of datasets do not bind them.
    #[default]
    Root,
    /// Anybody else: bound by the limits that nobody has allowed them to change.
    User(User),
}

/// What a sync task holds. Made by the pool once per txg; everything in it belongs to the txg that syncs.
pub struct TaskCtx<'a> {
    /// The pool's own object set.
    pub mos: &'a Arc<LiveSet>,
    /// The txg that syncs.
    pub tx: &'a SyncTx,
    /// The block layer.
    pub zio: &'a Arc<Zio>,
    /// Clock and randomness.
    pub env: &'a Env,
    /// Feature reference counts.
    pub features: &'a Arc<FeatureCounts>,
    /// Blocks that several files share.
    pub brt: &'a Brt,
    /// Heads that are open for writing.
    pub heads: &'a Arc<Heads>,
    /// Name of the pool.
    pub pool_name: &'a str,
    /// Who asked for the task that runs.
    pub caller: Caller,
    /// What was done, for the pool's history.
    pub notes: Vec<HistoryNote>,
}

impl<'a> TaskCtx<'a> {
    /// The MOS and the txg: what the containers want.
    pub fn m(&self) -> MosTx<'a> {
        MosTx { mos: self.mos, tx: self.tx, features: self.features, env: self.env }
    }

    /// The txg that syncs.
    pub fn txg(&self) -> Txg {
        self.tx.txg()
    }

    /// Seconds since 1970.
    pub fn now(&self) -> u64 {
        self.env.clock().wall().as_secs()
    }

    /// A reading view of the newest state. What it hands out was read once: ask again after a change.
    pub fn dsl(&self) -> Result<Dsl, DslError> {
        let dsl = Dsl::open(self.mos.view(), self.m().root_dir()?, self.pool_name);
        let space = self.heads.pool_space();
        dsl.set_pool_space(move || space);
        Ok(dsl)
    }

    /// Checks that a head may still be written in this txg: that no snapshot was taken of it yet.
    ///
    /// # Errors
    /// [`DslError::Again`]: in the next one it may.
    pub fn check_writable(&self, head: ObjectId, name: &str) -> Result<(), DslError> {
        if self.m().dataset(head)?.prev_snap_txg >= self.txg() {
            return Err(DslError::Again { name: name.to_owned() });
        }
        Ok(())
    }

    /// Checks that what a head or snapshot alone holds may be freed in this txg: nobody uses it, and no reference to its
    /// blocks is to be counted in a later txg.
    ///
    /// # Errors
    /// [`DslError::Busy`] if somebody uses it, [`DslError::Again`]: in the next txg it may.
    pub(crate) fn check_unused(&self, dataset: ObjectId, name: &str) -> Result<(), DslError> {
        self.heads.check_idle(dataset, name)?;
        // Asked after the other: whoever shares blocks holds the dataset until that is noted.
        if self.brt.is_shared_after(dataset, self.txg()) {
            return Err(DslError::Again { name: name.to_owned() });
        }
        Ok(())
    }

    /// Changes the contents of a head that nobody uses, and writes them. Where somebody does, the change
    /// belongs into a transaction of that head.
    ///
    /// # Errors
    /// [`DslError::Busy`] if somebody uses it; [`DslError::Again`] if a snapshot of it was taken in this txg;
    /// [`DslError::Encrypted`]; or what `change` fails with: it must not fail after it has changed anything.
    pub fn change_contents<R>(
        &self,
        head: ObjectId,
        change: impl FnOnce(&Arc<LiveSet>, &SyncTx) -> Result<R, DslError>,
    ) -> Result<R, DslError> {
        let dataset = self.dsl()?.dataset_by_object(head)?;
        self.check_writable(head, dataset.name())?;
        self.heads.check_idle(head, dataset.name())?;
        super::heads::check_changeable(&dataset, true)?;
        let set = match self.heads.get(head) {
            Some(open) => Arc::clone(&open.set),
            None => {
                let policy = policy_of(&dataset, self.features)?;
                open_set(self.mos, self.heads.txgs(), &dataset.phys().bp, head, &policy)?
            }
        };
        let result = change(&set, self.tx)?;
        sync_set(self, head, &set)?;
        Ok(result)
    }

    /// Does one of the things that a task consists of. `Ok(Err(why))`: it was refused, has changed nothing, and the task
    /// may go on or end with what was done before.
    ///
    /// # Errors
    /// It failed after it had changed something: the txg must not end, and the task returns this error.
    pub fn step<T>(
        &mut self,
        step: impl FnOnce(&mut TaskCtx<'a>) -> Result<T, DslError>,
    ) -> Result<Result<T, DslError>, DslError> {
        let before = self.mos.change_count();
        match step(self) {
            Err(error) if self.mos.change_count() != before => Err(error),
            outcome => Ok(outcome),
        }
    }

    /// Writes a record for the pool's history.
    pub fn note(&mut self, name: &str, dataset: Option<(&str, ObjectId)>, text: impl Into<String>) {
        let dataset = dataset.map(|(name, id)| (name.to_owned(), id));
        self.notes.push(HistoryNote { name: name.to_owned(), text: text.into(), dataset });
    }
}

impl MosTx<'_> {
    /// The directory at the root of the tree.
    pub fn root_dir(&self) -> Result<ObjectId, DslError> {
        self.entry(ROOT_DATASET)?.ok_or(DslError::NoSpecial { name: ROOT_DATASET })
    }

    /// The child of a directory with this name, hidden ones included.
    pub fn child_dir(&self, parent: ObjectId, name: &str) -> Result<Option<ObjectId>, DslError> {
        let Some(map) = self.dir(parent)?.children else { return Ok(None) };
        match self.zap(map)?.lookup(name.as_bytes())? {
            Some(entry) => Ok(Some(ObjectId(mos::number(map, &entry)?))),
            None => Ok(None),
        }
    }

    fn special_dir(&self, name: &'static str) -> Result<ObjectId, DslError> {
        self.child_dir(self.root_dir()?, name)?.ok_or(DslError::NoSpecial { name })
    }

    /// `$FREE`: what waits to be freed is charged here.
    pub fn free_dir(&self) -> Result<ObjectId, DslError> {
        self.special_dir(FREE_DIR)
    }

    /// `$MOS`: the MOS is charged here.
    pub fn mos_dir(&self) -> Result<ObjectId, DslError> {
        self.special_dir(MOS_DIR)
    }

    /// `$ORIGIN`: what everything descends from. Pools before version 11 have none.
    pub fn origin_dir(&self) -> Result<Option<ObjectId>, DslError> {
        self.child_dir(self.root_dir()?, ORIGIN_DIR)
    }

    /// The empty snapshot that all file systems and volumes descend from, if there is one.
    pub fn origin_snapshot(&self) -> Result<Option<ObjectId>, DslError> {
        let Some(dir) = self.origin_dir()? else { return Ok(None) };
        let Some(head) = self.dir(dir)?.head else { return Ok(None) };
        Ok(self.dataset(head)?.prev_snap)
    }

    /// The creation txg of the snapshot that a directory comes from; 0 if it comes from none. Blocks of its
    /// head born up to it are charged elsewhere.
    pub fn origin_txg(&self, dir: &DirPhys) -> Result<Txg, DslError> {
        dir.origin.map_or(Ok(Txg(0)), |origin| Ok(self.dataset(origin)?.creation_txg))
    }

    /// The members of a set of objects; none if there is no such set.
    pub(crate) fn members(&self, set: Option<ObjectId>) -> Result<Vec<ObjectId>, DslError> {
        set.map_or(Ok(Vec::new()), |set| mos::int_set(&self.view(), set))
    }

    /// Frees an object that a structure names, if it names one.
    pub(crate) fn free_if_any(&self, id: Option<ObjectId>) -> Result<(), DslError> {
        id.map_or(Ok(()), |id| self.free(id))
    }
}
