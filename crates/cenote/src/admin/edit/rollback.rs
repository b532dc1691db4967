//! Going back to a snapshot.

use super::operation::{self, Operation};
use super::{EditError, Partly, destroy_all, permit, run};
use crate::{Pool, PoolWriter};
use dsl::write::rollback as task;

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
    permit::ask(pool, snapshot, &["rollback"])
        .and_then(|()| super::destroy::ask(pool, &newer.snapshots))
        .map_err(|error| Partly { done: Vec::new(), left: vec![snapshot.to_owned()], error })?;
    destroy_all(pool, &newer.clones)?;
    let name = snapshot.split('@').next().unwrap_or_default().to_owned();
    let target = snapshot.to_owned();
    let lost: Vec<String> = newer.points().cloned().collect();
    let operation = Operation::begin("rollback");
    let outcome = run(pool, move |ctx| task::rollback_over(ctx, &name, Some(&target), &lost));
    let recorded = outcome.and_then(|()| {
        if !newer.snapshots.is_empty() {
            Operation::begin("destroy_snaps").done(pool, super::destroy::input(&newer.snapshots, false))?;
        }
        let target = operation::pair("target", snapshot);
        operation.done_with(pool, target.clone(), Some(target))
    });
    recorded.map_err(|error| {
        let left = newer.snapshots.iter().chain([&snapshot.to_owned()]).cloned().collect();
        Partly { done: newer.clones.clone(), left, error }
    })
}
