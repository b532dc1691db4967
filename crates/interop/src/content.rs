//! The expected contents of a pool: every dataset and snapshot, with every name and byte.
//!
//! Files are identified by their object numbers, which are the same in snapshots and clones.

use dsl::prop::PropValue;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use zpl::FileKind;

/// A file of any kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Distinguishes it from other files that have the same object number at other times.
    pub serial: u64,
    /// Kind: regular file, directory, link, …
    pub kind: FileKind,
    /// Contents; for a symbolic link, its target.
    pub bytes: Vec<u8>,
    /// Permission bits.
    pub mode: u32,
    /// User id of the owner.
    pub uid: u32,
    /// Id of the owning group.
    pub gid: u32,
    /// Project id.
    pub project: u32,
    /// Modification time in seconds, if it was set explicitly and the content was not changed since.
    pub mtime: Option<i64>,
    /// Extended attributes by name, including access control lists.
    pub xattrs: BTreeMap<String, Vec<u8>>,
    /// Whether the contents were written in several transactions, so that a part of them is also right after
    /// a cut.
    pub in_parts: bool,
}

/// Expected contents of a file system.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    /// Object number of each path from the root.
    pub names: BTreeMap<String, u64>,
    /// Files by object number.
    pub files: BTreeMap<u64, Rc<File>>,
}

impl Tree {
    /// Changes a file of the tree; other snapshots that share it keep the old one.
    pub(crate) fn change(&mut self, id: u64, change: impl FnOnce(&mut File)) {
        if let Some(file) = self.files.get_mut(&id) {
            change(Rc::make_mut(file));
        }
    }

    /// Removes a name; with the last name, the file as well.
    pub(crate) fn forget_name(&mut self, path: &str) {
        let Some(id) = self.names.remove(path) else { return };
        if !self.names.values().any(|other| *other == id) {
            self.files.remove(&id);
        }
    }
}

/// Contents of a dataset.
#[derive(Debug, Clone)]
pub enum Content {
    /// The files of a file system.
    Files(Tree),
    /// The bytes of a volume.
    Volume(Rc<Vec<u8>>),
}

impl Default for Content {
    fn default() -> Content {
        Content::Files(Tree::default())
    }
}

/// A head: a file system or volume that is no snapshot.
#[derive(Debug, Clone, Default)]
pub struct Head {
    /// Identifies the head even when it is renamed.
    pub serial: u64,
    /// Expected files, or bytes of the volume.
    pub content: Content,
    /// Full name of the snapshot that it is a clone of.
    pub origin: Option<String>,
    /// Whether names are case-insensitive.
    pub(crate) ignores_case: bool,
    /// Local properties, in their stored form.
    pub props: BTreeMap<String, PropValue>,
    /// Bookmarks by name: guid, txg and time of the snapshot.
    pub bookmarks: BTreeMap<String, (u64, u64, u64)>,
    /// Default quotas that were set here, by (user or group, space or objects).
    pub limits: BTreeMap<(bool, bool), u64>,
}

/// A snapshot.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Contents when it was taken.
    pub content: Content,
    /// Number in the order of creation.
    pub order: u64,
    /// Marked for deferred destruction: it may be gone after its last hold or clone.
    pub is_deferred: bool,
    /// Tags of its holds.
    pub holds: BTreeSet<String>,
}

/// Expected contents of a pool.
#[derive(Debug, Clone, Default)]
pub struct Model {
    /// Heads by name.
    pub heads: BTreeMap<String, Head>,
    /// Snapshots by full name.
    pub snapshots: BTreeMap<String, Snapshot>,
}

/// The dataset of a snapshot: `a/b` of `a/b@c`.
pub(crate) fn dataset_of(snapshot: &str) -> &str {
    snapshot.split('@').next().unwrap_or(snapshot)
}

impl Model {
    /// The snapshots of one dataset, oldest first.
    pub(crate) fn snapshots_of(&self, head: &str) -> Vec<String> {
        let mut own: Vec<(&u64, &String)> = self
            .snapshots
            .iter()
            .filter(|(name, _)| dataset_of(name) == head)
            .map(|(name, snapshot)| (&snapshot.order, name))
            .collect();
        own.sort();
        own.into_iter().map(|(_, name)| name.clone()).collect()
    }

    /// A head and all heads below it; the head comes first.
    pub(crate) fn subtree(&self, head: &str) -> Vec<String> {
        let below = format!("{head}/");
        self.heads.keys().filter(|name| *name == head || name.starts_with(&below)).cloned().collect()
    }

    /// Renames a dataset with all datasets and snapshots below it.
    pub(crate) fn rename(&mut self, from: &str, to: &str) {
        let renamed = |name: &str| match name.strip_prefix(from) {
            Some(rest) if rest.is_empty() || rest.starts_with(['/', '@']) => format!("{to}{rest}"),
            _ => name.to_owned(),
        };
        self.heads = std::mem::take(&mut self.heads)
            .into_iter()
            .map(|(name, head)| {
                let origin = head.origin.as_deref().map(renamed);
                (renamed(&name), Head { origin, ..head })
            })
            .collect();
        self.snapshots =
            std::mem::take(&mut self.snapshots).into_iter().map(|(name, s)| (renamed(&name), s)).collect();
    }

    /// Renames one snapshot, given by its full names.
    pub(crate) fn rename_snapshot(&mut self, from: &str, to: &str) {
        if let Some(snapshot) = self.snapshots.remove(from) {
            self.snapshots.insert(to.to_owned(), snapshot);
        }
        for head in self.heads.values_mut().filter(|head| head.origin.as_deref() == Some(from)) {
            head.origin = Some(to.to_owned());
        }
    }

    /// Exchanges the roles of a clone and the dataset of its origin.
    pub(crate) fn promote(&mut self, clone: &str) {
        let Some(origin) = self.heads.get(clone).and_then(|head| head.origin.clone()) else { return };
        let Some(until) = self.snapshots.get(&origin).map(|s| s.order) else { return };
        let loser = dataset_of(&origin).to_owned();
        for name in self.snapshots_of(&loser) {
            if self.snapshots[&name].order <= until {
                let moved = format!("{clone}{}", &name[loser.len()..]);
                self.rename_snapshot(&name, &moved);
            }
        }
        let moved_origin = self.heads.get(clone).and_then(|head| head.origin.clone());
        let above = self.heads.get(&loser).and_then(|head| head.origin.clone());
        if let Some(head) = self.heads.get_mut(clone) {
            head.origin = above;
        }
        if let Some(head) = self.heads.get_mut(&loser) {
            head.origin = moved_origin;
        }
    }
}
