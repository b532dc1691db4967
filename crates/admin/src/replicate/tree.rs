//! The trees of both sides: which copies belong to which sources, and which have lost theirs. Pure.
//!
//! # What always holds
//! - A copy belongs to the dataset whose guid its property records, whatever the names are.
//! - Only copies that the policy has made, without anything else below them, are its orphans.

use super::plan::{is_own, tag};
use super::side::{Dataset, Point};
use std::collections::{BTreeMap, BTreeSet};

/// How the datasets of both sides belong together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tree {
    /// Datasets of the target to rename, as their sources were: old and new full names, in order.
    pub renames: Vec<(String, String)>,
    /// Copies whose source is gone: full names, parents first.
    pub orphans: Vec<String>,
}

/// The full name of a dataset of the target, given that of the source and the names of both roots. `None`: it is not
/// below that root.
pub fn target_of(source: &str, source_root: &str, target_root: &str) -> Option<String> {
    let below = source.strip_prefix(source_root)?;
    (below.is_empty() || below.starts_with('/')).then(|| format!("{target_root}{below}"))
}

/// Compares the trees of both sides: `sources` and `targets` are below the roots.
pub fn tree(sources: &[Dataset], source_root: &str, targets: &[Dataset], target_root: &str) -> Tree {
    let mut places: BTreeMap<String, Option<u64>> =
        targets.iter().map(|target| (target.name.clone(), target.source)).collect();
    let wanted: Vec<(u64, String)> = sources
        .iter()
        .filter_map(|source| Some((source.guid, target_of(&source.name, source_root, target_root)?)))
        .collect();
    let mut renames = Vec::new();
    // A rename can make place for another one.
    while let Some((from, to)) = next_rename(&wanted, &places, target_root) {
        move_below(&mut places, &from, &to);
        renames.push((from, to));
    }
    let living: BTreeSet<u64> = wanted.iter().map(|(guid, _)| *guid).collect();
    let is_orphan = |name: &str, source: Option<u64>| {
        name != target_root && source.is_some_and(|guid| !living.contains(&guid))
    };
    let orphans = places
        .iter()
        .filter(|(name, source)| is_orphan(name, **source))
        .map(|(name, _)| name.clone())
        .collect();
    Tree { renames, orphans }
}

/// Of the copies whose source is gone, those that this policy has made, and below which nothing else is.
pub fn own_orphans(policy: &str, orphans: &[String], targets: &[Dataset]) -> Vec<String> {
    let tag = tag(policy);
    let is_mark = |point: &Point| is_own(policy, &point.name) || point.holds.contains(&tag);
    let is_own = |name: &String| {
        let target = targets.iter().find(|target| target.name == *name);
        orphans.contains(name) && target.is_some_and(|target| target.snapshots.iter().any(is_mark))
    };
    let is_whole = |name: &String| {
        let mut below = targets.iter().filter(|target| target_of(&target.name, name, name).is_some());
        below.all(|target| is_own(&target.name))
    };
    orphans.iter().filter(|name| is_whole(name)).cloned().collect()
}

/// The copy of the dataset with this guid that a policy has made below `within`; its full name.
pub fn own_copy(policy: &str, guid: u64, within: &str, targets: &[Dataset]) -> Option<String> {
    let tag = tag(policy);
    let is_mark = |point: &Point| is_own(policy, &point.name) || point.holds.contains(&tag);
    let is_copy = |target: &&Dataset| target.source == Some(guid) && target.snapshots.iter().any(is_mark);
    targets.iter().filter(|target| target.name != within).find(is_copy).map(|target| target.name.clone())
}

fn next_rename(
    wanted: &[(u64, String)],
    places: &BTreeMap<String, Option<u64>>,
    root: &str,
) -> Option<(String, String)> {
    wanted.iter().find_map(|(guid, to)| {
        let has_parent = to.rsplit_once('/').is_some_and(|(above, _)| places.contains_key(above));
        if to == root || places.contains_key(to) || !has_parent {
            return None;
        }
        let mut copies = places.iter().filter(|(_, source)| **source == Some(*guid)).map(|(name, _)| name);
        let from = copies.find(|from| *from != root && !to.starts_with(&format!("{from}/")))?;
        Some((from.clone(), to.clone()))
    })
}

fn move_below(places: &mut BTreeMap<String, Option<u64>>, from: &str, to: &str) {
    let old: Vec<String> =
        places.keys().filter(|name| target_of(name, from, to).is_some()).cloned().collect();
    for name in old {
        if let (Some(new), Some(source)) = (target_of(&name, from, to), places.remove(&name)) {
            places.insert(new, source);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replicate::plan::own_name;

    fn dataset(name: &str, guid: u64, source: Option<u64>, snapshots: &[&str]) -> Dataset {
        let point = |name: &&str| Point { name: (*name).to_owned(), guid, ..Point::default() };
        let snapshots = snapshots.iter().map(point).collect();
        Dataset { name: name.to_owned(), guid, source, snapshots, ..Dataset::default() }
    }

    #[test]
    fn copies_follow_their_sources() {
        let sources =
            [dataset("t/a", 1, None, &[]), dataset("t/a/b", 3, None, &[]), dataset("t/a/c", 2, None, &[])];
        // b was renamed to c, and then the dataset of guid 3 to b.
        let targets = [
            dataset("v/a", 11, Some(1), &[]),
            dataset("v/a/b", 12, Some(2), &[]),
            dataset("v/a/old", 13, Some(3), &[]),
            dataset("v/a/gone", 14, Some(9), &[]),
            dataset("v/a/mine", 15, None, &[]),
        ];
        let tree = tree(&sources, "t/a", &targets, "v/a");
        let renames = [("v/a/b", "v/a/c"), ("v/a/old", "v/a/b")];
        let renames = renames.map(|(from, to)| (from.to_owned(), to.to_owned()));
        assert_eq!(tree.renames, renames);
        assert_eq!(tree.orphans, ["v/a/gone"]);
    }

    #[test]
    fn copies_of_other_policies_are_no_orphans() {
        let own = own_name("p", 0);
        let targets = [
            dataset("v/a/gone", 1, Some(9), &[&own]),
            dataset("v/a/other", 2, Some(8), &["cenote_q_20261128T053128Z"]),
            dataset("v/a/half", 3, Some(7), &[&own]),
            dataset("v/a/half/mine", 4, None, &["mine"]),
        ];
        let orphans = ["v/a/gone", "v/a/half", "v/a/other"].map(str::to_owned);
        assert_eq!(own_orphans("p", &orphans, &targets), ["v/a/gone"]);
        // The copy of another policy is not taken away, though the source is the same.
        assert_eq!(own_copy("p", 9, "v/a", &targets).as_deref(), Some("v/a/gone"));
        assert_eq!(own_copy("p", 8, "v/a", &targets), None);
    }
}
