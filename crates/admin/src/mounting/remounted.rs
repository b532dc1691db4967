//! Mounts that were mounted again inside a file system that was mounted over their place.
//!
//! A mount is not hidden by a later one above it (`Mounting::mount_on`): it is unmounted, and mounted again
//! in the new file system. Nobody asked for it to be there, so it does not keep that file system from being unmounted, as it
//! would not if it were hidden: it returns to where it was before.
//!
//! # What always holds
//! - Only mounts that were moved in this way are noted. One that somebody mounts there later, by any verb, keeps the file
//!   system above it busy.

use super::Mounted;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A dataset and one of its places.
type Spot = (String, PathBuf);

/// By the mount above: the mounts that were mounted again inside it.
#[derive(Debug, Default)]
pub(crate) struct Remounted(BTreeMap<Spot, BTreeSet<Spot>>);

fn spot(mount: &Mounted) -> Spot {
    (mount.dataset.clone(), mount.at.clone())
}

impl Remounted {
    /// `inside` were mounted again in `above`, which was just mounted.
    pub(super) fn note(&mut self, above: &Mounted, inside: &[Mounted]) {
        if !inside.is_empty() {
            self.0.insert(spot(above), inside.iter().map(spot).collect());
        }
    }

    /// A verb mounts a dataset there: nothing is inside it yet, and it is where it is on purpose.
    pub(super) fn placed(&mut self, dataset: &str, at: &Path) {
        let placed = (dataset.to_owned(), at.to_owned());
        self.0.remove(&placed);
        self.0.retain(|_, inside| {
            inside.remove(&placed);
            !inside.is_empty()
        });
    }

    /// Whether `inside` was mounted again in `above`, and not by anybody since.
    pub(super) fn is_inside(&self, inside: &Mounted, above: &Mounted) -> bool {
        self.0.get(&spot(above)).is_some_and(|noted| noted.contains(&spot(inside)))
    }

    /// A dataset has another name, with all below it.
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
