//! The context of a sync task of the dataset layer: the writable MOS, the syncing txg, and the steps that all
//! tasks share.
//!
//! # What always holds
//! - All of it runs in syncing context, on one thread, in one txg.
//! - A task that is refused has changed nothing: it makes all checks, against the state of this moment,
//!   before its first change, because the view that its caller read may be out of date. A task of several
//!   independent steps runs each with [`TaskCtx::step`], and succeeds if at least one step was done.

use crate::brt::Brt;
use crate::delegation::User;
use crate::error::DslError;
use crate::features::FeatureCounts;
use crate::heads::Heads;
use crate::heads::head::{check_changeable, open_set};
use crate::ledger::sync_set;
use crate::mos_tx::MosTx;
use crate::policy::policy_of;
use crate::tree::Dsl;
use dmu::{LiveSet, SyncTx};
use format::{ObjectId, Txg};
use std::sync::Arc;
use zio::{AllocTx, Env, Zio};

/// An internal record for the pool's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryNote {
    /// What was done: `create`, `snapshot`, `destroy`, …
    pub name: String,
    /// Details of the operation.
    pub text: String,
    /// Full name and object of the dataset.
    pub dataset: Option<(String, ObjectId)>,
}

/// Caller of a task, as far as limits on the number of datasets are concerned.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Caller {
    /// A caller that may change every limit: limits on the number of datasets do not bind it.
    #[default]
    Root,
    /// Any other user: bound by the limits that delegation does not allow the user to change.
    User(User),
}

/// The context of a sync task. The pool makes one per txg; all parts belong to the syncing txg.
pub struct TaskCtx<'a> {
    /// The pool's own object set.
    pub mos: &'a Arc<LiveSet>,
    /// The transaction group that is being written.
    pub tx: &'a SyncTx,
    /// The block layer of the pool.
    pub zio: &'a Arc<Zio>,
    /// Clock and random numbers of the process.
    pub env: &'a Env,
    /// Reference counts of the features of the pool.
    pub features: &'a Arc<FeatureCounts>,
    /// The block reference table: blocks that several files share.
    pub brt: &'a Brt,
    /// Heads that are open for writing.
    pub heads: &'a Arc<Heads>,
    /// Name of the pool, the first component of all full names.
    pub pool_name: &'a str,
    /// Caller of the task that runs.
    pub caller: Caller,
    /// Records for the pool's history.
    pub notes: Vec<HistoryNote>,
}

impl<'a> TaskCtx<'a> {
    /// The MOS and the txg, as most functions of this crate take them.
    pub fn m(&self) -> MosTx<'a> {
        MosTx { mos: self.mos, tx: self.tx, features: self.features, env: self.env }
    }

    /// The transaction group that is being written.
    pub fn txg(&self) -> Txg {
        self.tx.txg()
    }

    /// Wall-clock time in seconds since 1970.
    pub fn now(&self) -> u64 {
        self.env.clock().wall().as_secs()
    }

    /// A reading view of the newest state. Its results do not follow later changes: call again after a
    /// change.
    ///
    /// # Errors
    /// If the MOS has no root directory, or cannot be read.
    pub fn dsl(&self) -> Result<Dsl, DslError> {
        let dsl = self.heads.view(self.mos.view(), self.m().root_dir()?);
        let space = self.heads.pool_space();
        dsl.set_pool_space(move || space);
        Ok(dsl)
    }

    /// Checks that a head may still be written in this txg: that no snapshot was taken of it yet.
    ///
    /// # Errors
    /// [`DslError::Again`]: it may be written in the next txg.
    pub(crate) fn check_writable(&self, head: ObjectId, name: &str) -> Result<(), DslError> {
        if self.m().dataset(head)?.prev_snap_txg >= self.txg() {
            return Err(DslError::Again { name: name.to_owned() });
        }
        Ok(())
    }

    /// Checks that the blocks which a head or snapshot alone holds may be freed in this txg: it is not in
    /// use, and no reference to its blocks is to be counted in a later txg.
    ///
    /// # Errors
    /// [`DslError::Busy`] if it is in use; [`DslError::Again`]: the blocks may be freed in the next txg.
    pub(crate) fn check_unused(&self, dataset: ObjectId, name: &str) -> Result<(), DslError> {
        self.heads.check_idle(dataset, name)?;
        // This check comes second: code that shares blocks holds the dataset until the reference is noted.
        if self.brt.is_shared_after(dataset, self.txg()) {
            return Err(DslError::Again { name: name.to_owned() });
        }
        Ok(())
    }

    /// Changes the contents of a head that is not in use, and writes them. A head in use is changed in a
    /// transaction of that head instead.
    ///
    /// # Errors
    /// [`DslError::Busy`] if it is in use; [`DslError::Again`] if a snapshot of it was taken in this txg;
    /// [`DslError::Encrypted`]; or the error of `change`, which must not fail after its first change.
    pub fn change_contents<R>(
        &self,
        head: ObjectId,
        change: impl FnOnce(&Arc<LiveSet>, &SyncTx) -> Result<R, DslError>,
    ) -> Result<R, DslError> {
        let dsl = self.dsl()?;
        let dataset = dsl.dataset_by_object(head)?;
        self.check_writable(head, dataset.name())?;
        self.heads.check_idle(head, dataset.name())?;
        check_changeable(&dataset)?;
        let set = match self.heads.get(head) {
            Some(open) => Arc::clone(&open.set),
            None => {
                let policy = policy_of(&dataset, self.features)?;
                let key = dsl.keyring().key_of(&dataset)?;
                open_set(self.mos, self.heads.txgs(), &dataset.phys().bp, head, key, &policy)?
            }
        };
        let result = change(&set, self.tx)?;
        sync_set(self.m(), self.brt, head, &set)?;
        Ok(result)
    }

    /// Runs one step of a task. `Ok(Err(why))`: the step was refused and has changed nothing; the task may go
    /// on or end with the earlier steps.
    ///
    /// # Errors
    /// The error of a step that failed after a change: the txg must not end, and the task returns this error.
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

    /// Adds a record to the pool's history.
    pub fn note(&mut self, name: &str, dataset: Option<(&str, ObjectId)>, text: impl Into<String>) {
        let dataset = dataset.map(|(name, id)| (name.to_owned(), id));
        self.notes.push(HistoryNote { name: name.to_owned(), text: text.into(), dataset });
    }
}
