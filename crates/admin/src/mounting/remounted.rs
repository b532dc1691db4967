//! Records mounts that were moved into a file system because it was mounted over their mount points.
//!
//! A mount is not hidden by a later one above it (`Mounting::mount_on`): it is unmounted, and mounted again inside
//! the new file system. Such mounts do not keep the new file system from being unmounted, because no user asked for
//! them to be there: they return to their previous places.
//!
//! # What always holds
//! - Only mounts that were moved in this way are recorded. A mount that a verb makes later inside the file system
//!   keeps that file system busy.

use super::Mounted;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A dataset and one of its mount points.
type Spot = (String, PathBuf);

/// The mounts that were moved inside, by the mount that contains them.
#[derive(Debug, Default)]
pub(crate) struct Remounted(BTreeMap<Spot, BTreeSet<Spot>>);

fn spot(mount: &Mounted) -> Spot {
    (mount.dataset.clone(), mount.at.clone())
}

impl Remounted {
    /// Records that `inside` were moved into `above`, which was just mounted.
    pub(super) fn note(&mut self, above: &Mounted, inside: &[Mounted]) {
        if !inside.is_empty() {
            self.0.insert(spot(above), inside.iter().map(spot).collect());
        }
    }

    /// Records that a verb has mounted a dataset there: it is not a moved mount, and no moved mounts are inside it
    /// yet.
    pub(super) fn placed(&mut self, dataset: &str, at: &Path) {
        let placed = (dataset.to_owned(), at.to_owned());
        self.0.remove(&placed);
        self.0.retain(|_, inside| {
            inside.remove(&placed);
            !inside.is_empty()
        });
    }

    /// True if `inside` was moved into `above` and was not mounted by a verb since.
    pub(super) fn is_inside(&self, inside: &Mounted, above: &Mounted) -> bool {
        self.0.get(&spot(above)).is_some_and(|noted| noted.contains(&spot(inside)))
    }

    /// Updates the names of a renamed dataset and its descendants.
    pub(super) fn renamed(&mut self, from: &str, to: &str) {
        let named = |(dataset, at): &Spot| -> Spot {
            let rest =
                dataset.strip_prefix(from).filter(|rest| rest.is_empty() || rest.starts_with(['/', '@']));
            (rest.map_or_else(|| dataset.clone(), |rest| format!("{to}{rest}")), at.clone())
        };
        self.0 =
            self.0.iter().map(|(above, inside)| (named(above), inside.iter().map(named).collect())).collect();
    }
}
