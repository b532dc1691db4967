//! Going back to a snapshot.

use super::operation::{self, Operation};
use super::{EditError, Partly, destroy_all, permit, run};
use cenote::{Pool, PoolWriter};
use dsl::rollback as task;

/// What is newer than a snapshot, and would be lost by going back to it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Newer {
    /// Snapshots, oldest first.
    pub snapshots: Vec<String>,
    /// Bookmarks, by name.
    pub bookmarks: Vec<String>,
    /// Clones of those snapshots and what hangs on them, in the order of destruction.
    pub clones: Vec<String>,
}

impl Newer {
    /// Snapshots and bookmarks, as they are listed.
    pub fn points(&self) -> impl Iterator<Item = &String> {
        self.snapshots.iter().chain(&self.bookmarks)
    }
}

/// What is newer than a snapshot.
///
/// # Errors
/// [`EditError::NoDataset`] if there is no such snapshot.
pub fn newer_than(pool: &Pool, snapshot: &str) -> Result<Newer, EditError> {
    let target = pool.dsl().dataset(snapshot)?;
    let txg = target.phys().creation_txg;
    let name = snapshot.split('@').next().unwrap_or_default();
    let mut newer = Newer::default();
    let Some(head) = pool.dsl().dir(name)?.head()? else { return Ok(newer) };
    for other in head.snapshots()?.iter().filter(|s| s.phys().creation_txg > txg) {
        for name in super::dependents(pool, other.name())?.all {
            if !newer.clones.contains(&name) {
                newer.clones.push(name);
            }
        }
        newer.snapshots.push(other.name().to_owned());
    }
    let marks = head.bookmarks()?;
    let later = marks.iter().filter(|mark| mark.phys().creation_txg > txg);
    newer.bookmarks = later.map(|mark| mark.name().to_owned()).collect();
    Ok(newer)
}

/// Makes a head what it was when a snapshot was taken. What is newer is destroyed: clones first, then, in one
/// transaction group with the going back, snapshots and bookmarks.
///
/// # Errors
/// What was not done, first of all what failed.
pub fn rollback(pool: &PoolWriter, snapshot: &str, newer: &Newer) -> Result<(), Partly> {
    let rollback = PreparedRollback { pool, snapshot, newer };
    rollback.ask()?;
    destroy_all(pool, &newer.clones)?;
    rollback.run(|| {})
}

/// Does what a rollback does before the head is replaced, and checks all that it will check: before the head is taken from
/// those who use it. Clones that are newer are destroyed.
///
/// # Errors
/// As of [`rollback`].
pub fn prepare_rollback<'p>(
    pool: &'p PoolWriter,
    snapshot: &'p str,
    newer: &'p Newer,
) -> Result<PreparedRollback<'p>, Partly> {
    let rollback = PreparedRollback { pool, snapshot, newer };
    rollback.ask()?;
    destroy_all(pool, &newer.clones)?;
    let (name, target, lost) = rollback.of_task();
    run(pool, move |ctx| task::check_rollback_over(ctx, &name, Some(&target), &lost))
        .map_err(|error| rollback.failed(error))?;
    Ok(rollback)
}

/// A rollback that nothing is known to stand in the way of, but that the head is in use.
#[derive(Debug)]
#[must_use]
pub struct PreparedRollback<'p> {
    pool: &'p PoolWriter,
    snapshot: &'p str,
    newer: &'p Newer,
}

impl PreparedRollback<'_> {
    /// Replaces the head. `replaced` is called when it has been, or may have been.
    ///
    /// # Errors
    /// As of [`rollback`].
    pub fn run(self, replaced: impl FnOnce()) -> Result<(), Partly> {
        let (name, target, lost) = self.of_task();
        let operation = Operation::begin("rollback");
        let outcome = run(self.pool, move |ctx| task::rollback_over(ctx, &name, Some(&target), &lost));
        if !matches!(outcome, Err(EditError::Refused(_))) {
            replaced();
        }
        let recorded = outcome.and_then(|()| {
            if !self.newer.snapshots.is_empty() {
                let input = super::destroy::input(&self.newer.snapshots, false);
                Operation::begin("destroy_snaps").done(self.pool, input)?;
            }
            let target = operation::pair("target", self.snapshot);
            operation.done_with(self.pool, target.clone(), Some(target))
        });
        recorded.map_err(|error| self.failed(error))
    }

    fn ask(&self) -> Result<(), Partly> {
        permit::ask(self.pool, self.snapshot, &["rollback"])
            .and_then(|()| super::destroy::ask(self.pool, &self.newer.snapshots))
            .map_err(|error| Partly { done: Vec::new(), left: vec![self.snapshot.to_owned()], error })
    }

    /// The head, the snapshot, and what is lost.
    fn of_task(&self) -> (String, String, Vec<String>) {
        let name = self.snapshot.split('@').next().unwrap_or_default().to_owned();
        (name, self.snapshot.to_owned(), self.newer.points().cloned().collect())
    }

    /// After the clones were destroyed.
    fn failed(&self, error: EditError) -> Partly {
        let left = self.newer.snapshots.iter().chain([&self.snapshot.to_owned()]).cloned().collect();
        Partly { done: self.newer.clones.clone(), left, error }
    }
}
