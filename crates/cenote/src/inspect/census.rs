//! Counting what uses each feature, to compare with the counts that the pool keeps
//! (docs/on-disk/16-features.md, section 6).

use crate::{Error, Pool};
use format::config::{VdevKind, VdevNode};
use format::feature;
use std::collections::BTreeMap;

/// How often a feature is used, by two accounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeatureCount {
    /// Short name of the feature.
    pub name: &'static str,
    /// What was found in use.
    pub counted: u64,
    /// The count that the pool keeps.
    pub recorded: u64,
}

/// Features whose users are not datasets, but can be counted all the same.
const OTHERS: [&str; 5] = ["redaction_bookmarks", "bookmark_written", "livelist", "redaction_list_spill", "device_removal"];

/// Counts the users of the features that datasets, bookmarks, clones and removed vdevs use. Features
/// that the pool has not enabled are left out.
pub fn census(pool: &Pool) -> Result<Vec<FeatureCount>, Error> {
    let mut counted: BTreeMap<&'static str, u64> = BTreeMap::new();
    let mut add = |name| *counted.entry(name).or_default() += 1;
    for dir in pool.dsl().dirs()? {
        if dir.livelist()?.is_some() {
            add("livelist");
        }
        let Some(head) = dir.head()? else { continue };
        for bookmark in head.bookmarks()? {
            let Some(more) = &bookmark.phys().v2 else { continue };
            if more.redaction.is_some() {
                add("redaction_bookmarks");
            }
            if more.flags & format::dsl::BOOKMARK_FLAG_HAS_FBN != 0 {
                add("bookmark_written");
            }
        }
        let snapshots = head.snapshots()?;
        for dataset in std::iter::once(head).chain(snapshots) {
            for feature in dataset.features()? {
                add(feature.name);
            }
        }
    }
    count_removed(&pool.spa().config().vdev_tree, &mut add);
    let features = pool.spa().features();
    let wanted = feature::FEATURES.iter().filter(|f| f.per_dataset || OTHERS.contains(&f.name));
    let count = |f: &'static feature::Feature| {
        let recorded = features.counts().get(f.guid).copied()?;
        Some(FeatureCount { name: f.name, counted: counted.get(f.name).copied().unwrap_or(0), recorded })
    };
    Ok(wanted.filter_map(count).collect())
}

fn count_removed(node: &VdevNode, add: &mut dyn FnMut(&'static str)) {
    if node.kind == VdevKind::Indirect || node.removing {
        add("device_removal");
    }
    for child in &node.children {
        count_removed(child, add);
    }
}
