//! Dependents of a dataset (children, snapshots, clones), and snapshots named by ranges.

use super::EditError;
use cenote::Pool;
use dsl::{DslError, dir::Dir};
use format::{ObjectId, Txg};
use std::collections::HashSet;

/// Maximum depth of nested clones and children that are followed.
const DEPTH_MAX: usize = 1024;

/// The datasets that must be destroyed before a dataset can be, in the order of destruction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dependents {
    /// Its children and their snapshots, its own snapshots, and those clones that are below it as well.
    pub below: Vec<String>,
    /// Clones that are elsewhere, and their dependents.
    pub clones: Vec<String>,
    /// All of these, in the order of destruction.
    pub all: Vec<String>,
}

/// The dependents of a file system, volume or snapshot.
///
/// # Errors
/// [`EditError::NoDataset`] if the dataset does not exist.
pub(crate) fn dependents(pool: &Pool, name: &str) -> Result<Dependents, EditError> {
    let mut walk =
        Walk { found: Dependents::default(), seen: HashSet::new(), entered: HashSet::new(), target: name };
    let dataset = pool.dsl().dataset(name)?;
    if dataset.is_snapshot() {
        walk.clones(&dataset, 0)?;
    } else {
        walk.below(dataset.dir(), 0)?;
    }
    Ok(walk.found)
}

struct Walk<'a> {
    found: Dependents,
    seen: HashSet<String>,
    /// Directories that were visited: a file system can be below its own clone.
    entered: HashSet<ObjectId>,
    target: &'a str,
}

impl Walk<'_> {
    fn below(&mut self, dir: &Dir, depth: usize) -> Result<(), EditError> {
        if depth > DEPTH_MAX {
            let what = "clones and children";
            return Err(DslError::Endless { what, object: dir.id(), limit: DEPTH_MAX }.into());
        }
        if !self.entered.insert(dir.id()) {
            return Ok(());
        }
        for child in dir.children()? {
            self.below(&child, depth + 1)?;
            if child.head()?.is_some() {
                self.add(child.name());
            }
        }
        let Some(head) = dir.head()? else { return Ok(()) };
        for snapshot in head.snapshots()? {
            self.clones(&snapshot, depth + 1)?;
            self.add(snapshot.name());
        }
        Ok(())
    }

    fn clones(&mut self, snapshot: &dsl::Dataset, depth: usize) -> Result<(), EditError> {
        for clone in snapshot.clones()? {
            // A clone that is also a child may be listed already.
            if !self.seen.contains(clone.name()) && clone.name() != self.target {
                self.below(clone.dir(), depth + 1)?;
                self.add(clone.name());
            }
        }
        Ok(())
    }

    fn add(&mut self, name: &str) {
        if !self.seen.insert(name.to_owned()) {
            return;
        }
        let rest = name.strip_prefix(self.target);
        let is_below = rest.is_some_and(|rest| rest.starts_with(['/', '@']));
        let list = if is_below { &mut self.found.below } else { &mut self.found.clones };
        list.push(name.to_owned());
        self.found.all.push(name.to_owned());
    }
}

/// An item of a list of snapshots: one name, or an inclusive range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnapshotRange {
    /// The snapshot of this name.
    One(String),
    /// A range; without a start it begins at the oldest snapshot, without an end it ends at the newest.
    Range(Option<String>, Option<String>),
}

/// A list of snapshots with a syntax error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("could not find any snapshots to destroy; check snapshot names.")]
pub struct RangeError;

impl SnapshotRange {
    /// Parses a list such as `a,b%c,%d`.
    ///
    /// # Errors
    /// [`RangeError`] if the syntax is not valid.
    pub(crate) fn parse_list(text: &str) -> Result<Vec<SnapshotRange>, RangeError> {
        let mut items = Vec::new();
        for item in text.split(',').filter(|item| !item.is_empty()) {
            let end = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            match item.split_once('%') {
                None => items.push(SnapshotRange::One(item.to_owned())),
                Some((_, to)) if to.contains('%') => return Err(RangeError),
                Some((from, to)) => items.push(SnapshotRange::Range(end(from), end(to))),
            }
        }
        if items.is_empty() { Err(RangeError) } else { Ok(items) }
    }

    /// Selects from the names of a dataset's snapshots, which are given oldest first. A range whose ends do not
    /// exist or are in the wrong order selects none.
    pub(crate) fn pick<'n>(&self, names: &'n [String]) -> &'n [String] {
        let at = |wanted: &String| names.iter().position(|name| name == wanted);
        let (from, to) = match self {
            SnapshotRange::One(name) => (at(name), at(name)),
            SnapshotRange::Range(from, to) => {
                (from.as_ref().map_or(Some(0), at), to.as_ref().map_or(names.len().checked_sub(1), at))
            }
        };
        match (from, to) {
            (Some(from), Some(to)) => names.get(from..=to).unwrap_or_default(),
            _ => &[],
        }
    }
}

/// The snapshots that a list selects from a dataset and, with `below`, from its descendants: full names, by
/// dataset, in the order of creation.
///
/// # Errors
/// [`EditError::NoDataset`] if the dataset does not exist.
pub(crate) fn select_snapshots(
    pool: &Pool,
    dataset: &str,
    list: &[SnapshotRange],
    below: bool,
) -> Result<Vec<String>, EditError> {
    let mut found = Vec::new();
    let names = if below { super::with_descendants(pool, dataset)? } else { vec![dataset.to_owned()] };
    for name in names {
        let Some(head) = pool.dsl().dir(&name)?.head()? else { continue };
        let snapshots = head.snapshots()?;
        let short: Vec<String> =
            snapshots.iter().filter_map(|s| s.snapshot_name().map(str::to_owned)).collect();
        let picked: HashSet<&String> = list.iter().flat_map(|item| item.pick(&short)).collect();
        found.extend(short.iter().filter(|s| picked.contains(s)).map(|s| format!("{name}@{s}")));
    }
    Ok(found)
}

/// Bytes that are freed if these snapshots are destroyed together.
///
/// # Errors
/// The snapshots cannot be read.
pub fn reclaimed(pool: &Pool, snapshots: &[String]) -> Result<u64, EditError> {
    let wanted: HashSet<&str> = snapshots.iter().map(String::as_str).collect();
    let mut datasets: Vec<&str> = snapshots.iter().filter_map(|s| Some(s.split_once('@')?.0)).collect();
    datasets.dedup();
    let mut bytes = 0_u64;
    for name in datasets {
        let Some(head) = pool.dsl().dir(name)?.head()? else { continue };
        // Freed are the blocks born after the previous remaining snapshot and killed before the next remaining one.
        let mut kept = origin_txg(&head)?;
        let mut is_open = false;
        for link in head.snapshots()?.iter().chain([&head]) {
            if is_open && let Some(dead) = link.deadlist()? {
                bytes = bytes.saturating_add(dead.space_between(kept, Txg(u64::MAX))?.used);
            }
            is_open = wanted.contains(link.name());
            if !is_open {
                kept = link.phys().creation_txg;
            }
        }
    }
    Ok(bytes)
}

/// Blocks of a clone that were born up to this txg belong to its origin.
fn origin_txg(head: &dsl::Dataset) -> Result<Txg, EditError> {
    Ok(head.dir().origin_txg()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pick(list: &str) -> Vec<String> {
        let names: Vec<String> = ["1", "2", "3", "4"].map(str::to_owned).into();
        let Ok(items) = SnapshotRange::parse_list(list) else { return vec!["?".into()] };
        items.iter().flat_map(|item| item.pick(&names)).cloned().collect()
    }

    #[test]
    fn lists_and_ranges() {
        assert_eq!(pick("1%3"), ["1", "2", "3"]);
        assert_eq!(pick("1,3"), ["1", "3"]);
        assert_eq!(pick("%"), ["1", "2", "3", "4"]);
        assert_eq!(pick("%2"), ["1", "2"]);
        assert_eq!(pick("2%"), ["2", "3", "4"]);
        assert_eq!(pick("1,nosuch"), ["1"]);
        for nothing in ["3%1", "nosuch%3", "1%nosuch", "a/b"] {
            assert!(pick(nothing).is_empty(), "{nothing}");
        }
        assert_eq!(pick("1%%2"), ["?"]);
        assert_eq!(pick(""), ["?"]);
    }
}
