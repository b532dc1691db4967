//! Counts the uses of each feature, for comparison with the counts that the pool keeps
//! (docs/on-disk/16-features.md, section 6).

use crate::{Error, Pool};
use format::config::{VdevKind, VdevNode};
use format::feature;
use std::collections::BTreeMap;

/// Uses of a feature, as found and as recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeatureCount {
    /// Short name of the feature.
    pub name: &'static str,
    /// Number of uses found.
    pub counted: u64,
    /// Number of uses that the pool has recorded.
    pub recorded: u64,
}

/// Features that are counted although their uses are not datasets.
const OTHERS: [&str; 4] = ["redaction_bookmarks", "bookmark_written", "livelist", "redaction_list_spill"];
/// Features of removed vdevs, counted separately, also if they are not enabled.
const REMOVAL: [(&str, &str); 2] =
    [("device_removal", "device_removal"), ("obsolete_counts", "indirect_refcount")];

/// Counts the uses of features by datasets, bookmarks, clones and removed vdevs. Features that are not enabled in
/// the pool are left out.
///
/// # Errors
/// A dataset or one of its objects cannot be read.
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
    let recorded = |f: &feature::Feature| pool.spa().features().counts().get(f.guid).copied();
    let wanted = feature::FEATURES.iter().filter(|f| f.per_dataset || OTHERS.contains(&f.name));
    let count = |f: &'static feature::Feature| {
        let counted = counted.get(f.name).copied().unwrap_or(0);
        Some(FeatureCount { name: f.name, counted, recorded: recorded(f)? })
    };
    Ok(wanted.filter_map(count).collect())
}

/// Counts the uses of the features of removed vdevs.
///
/// # Errors
/// The configuration of a removed vdev cannot be read.
pub fn removal_census(pool: &Pool) -> Result<Vec<FeatureCount>, Error> {
    let counted = [count_removed(&pool.spa().config().vdev_tree), super::leaks::obsolete_counts(pool)?];
    let count = |((feature, name), counted): ((&str, &'static str), u64)| {
        let guid = feature::by_name(feature).map_or("", |f| f.guid);
        let recorded = pool.spa().features().counts().get(guid).copied().unwrap_or(0);
        FeatureCount { name, counted, recorded }
    };
    Ok(REMOVAL.into_iter().zip(counted).map(count).collect())
}

fn count_removed(root: &VdevNode) -> u64 {
    let is_removed = |node: &&VdevNode| node.kind == VdevKind::Indirect || node.removing;
    root.children.iter().filter(is_removed).count() as u64
}
