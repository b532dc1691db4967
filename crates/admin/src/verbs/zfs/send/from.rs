//! The start of an increment: which snapshot or bookmark a name means, and whether what is sent comes from it.

use super::{Refusal, refusal};
use cenote::Pool;
use cenote::stream::send::From;
use dsl::{Bookmark, Dataset, DslError};
use format::{ObjectId, Txg};

/// A start of an increment.
#[derive(Clone)]
pub(super) struct Start {
    pub(super) from: From,
    /// The snapshot; `None`: a bookmark.
    pub(super) snapshot: Option<Dataset>,
    /// How it is told.
    pub(super) shown: String,
}

/// The full name of a start that a user has written for an increment of `dataset`.
pub(super) fn full_name(dataset: &str, text: &str) -> String {
    match text {
        _ if text.starts_with(['@', '#']) => format!("{dataset}{text}"),
        _ if text.contains(['@', '#']) => text.to_owned(),
        _ => format!("{dataset}@{text}"),
    }
}

/// The start with this full name of an increment up to `to`.
///
/// # Errors
/// It does not exist, or is nothing from which `to` has come.
pub(super) fn find(pool: &Pool, to: &Dataset, name: &str) -> Result<Start, Refusal> {
    let failed = |error| match error {
        DslError::NotFound { .. } if name.contains('#') => {
            Refusal::NoSource { name: to.name().to_owned(), from: name.to_owned() }
        }
        DslError::NotFound { .. } => refusal::no_dataset(name),
        error => refusal::unreadable(to.name(), error),
    };
    let not_earlier = || refusal::not_earlier(to.name());
    if name.contains('#') {
        let mark = pool.dsl().bookmark(name).map_err(failed)?;
        return of_bookmark(to, &mark).map_err(failed)?.ok_or_else(not_earlier);
    }
    let snapshot = pool.dsl().dataset(name).map_err(failed)?;
    match precedes(&snapshot, to).map_err(failed)? {
        true => Start::of(snapshot, to).map_err(failed),
        false => Err(not_earlier()),
    }
}

/// Whether `to` has come from this snapshot.
fn precedes(snapshot: &Dataset, to: &Dataset) -> Result<bool, DslError> {
    for step in to.chain() {
        let (id, phys) = step?;
        if id == snapshot.id() {
            return Ok(true);
        }
        if phys.creation_txg < snapshot.phys().creation_txg {
            break;
        }
    }
    Ok(false)
}

/// The start at a bookmark; `None`: `to` has not come from its snapshot.
pub(super) fn of_bookmark(to: &Dataset, mark: &Bookmark) -> Result<Option<Start>, DslError> {
    let head = mark.name().split('#').next().unwrap_or_default();
    let dir = to.dsl().dir(head)?.id();
    let phys = mark.phys();
    if !is_in_history(to, dir, phys.creation_txg)? {
        return Ok(None);
    }
    let redaction = mark.redaction()?;
    let from = From {
        guid: phys.guid,
        txg: phys.creation_txg,
        is_origin: dir != to.dir().id(),
        redact_snaps: redaction.as_ref().map(|list| list.snapshots.clone()),
        redaction,
        ivset_guid: phys.v2.map(|v2| v2.ivset_guid).filter(|guid| *guid != 0),
    };
    Ok(Some(Start { from, snapshot: None, shown: mark.name().to_owned() }))
}

/// Whether the history of `to` was in this directory in this txg, before `to` itself.
fn is_in_history(to: &Dataset, dir: ObjectId, txg: Txg) -> Result<bool, DslError> {
    if to.dir().id() == dir && (!to.is_snapshot() || txg < to.phys().creation_txg) {
        return Ok(true);
    }
    for step in to.chain() {
        let (_, phys) = step?;
        if phys.creation_txg < txg {
            break;
        }
        // The snapshot itself, or one that was taken later in the same place.
        if phys.dir == dir && (phys.creation_txg > txg || to.dir().id() != dir) {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Start {
    /// The start at a snapshot from which `to` has come.
    ///
    /// # Errors
    /// The snapshot cannot be read.
    pub(super) fn of(snapshot: Dataset, to: &Dataset) -> Result<Start, DslError> {
        let phys = snapshot.phys();
        let from = From {
            guid: phys.guid,
            txg: phys.creation_txg,
            is_origin: snapshot.dir().id() != to.dir().id(),
            redact_snaps: snapshot.redact_snaps()?,
            redaction: None,
            ivset_guid: snapshot.ivset_guid()?,
        };
        let shown = snapshot.name().to_owned();
        Ok(Start { from, snapshot: Some(snapshot), shown })
    }

    /// The same, told as one of the snapshots of a package: without the name of the dataset, if it is the same.
    pub(super) fn in_package(self) -> Start {
        let short = self.snapshot.as_ref().and_then(Dataset::snapshot_name).filter(|_| !self.from.is_origin);
        let shown = short.map(|short| format!("@{short}"));
        Start { shown: shown.unwrap_or(self.shown), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::full_name;

    #[test]
    fn short_names_belong_to_the_dataset_that_is_sent() {
        for (text, name) in [
            ("1", "t/a@1"),
            ("@1", "t/a@1"),
            ("#1", "t/a#1"),
            ("t/b@1", "t/b@1"),
            ("t@1", "t@1"),
            ("t/b", "t/a@t/b"),
            ("t/b#1", "t/b#1"),
        ] {
            assert_eq!(full_name("t/a", text), name);
        }
    }
}
