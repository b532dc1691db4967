//! What should be in a pool: every dataset and snapshot, with every name and byte.
//!
//! Files are known by the numbers of their objects, which stay what they are in snapshots and clones.

use dsl::prop::PropValue;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use zpl::FileKind;

/// A file of any kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Tells it from others that had or will have the same object.
    pub serial: u64,
    /// What it is.
    pub kind: FileKind,
    /// Its bytes, or where it leads.
    pub bytes: Vec<u8>,
    /// Permissions.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Project.
    pub project: u32,
    /// Time of the last change of the content, where it was set explicitly since.
    pub mtime: Option<i64>,
    /// Extended attributes, access control lists among them.
    pub xattrs: BTreeMap<String, Vec<u8>>,
    /// It got its bytes in several transactions: a part of them is right, too.
    pub in_parts: bool,
}

/// A file system.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    /// Paths from the root, each with the number of its object.
    pub names: BTreeMap<String, u64>,
    /// The files, by number.
    pub files: BTreeMap<u64, Rc<File>>,
}

impl Tree {
    /// Changes a file.
    pub fn change(&mut self, id: u64, change: impl FnOnce(&mut File)) {
        if let Some(file) = self.files.get_mut(&id) {
            change(Rc::make_mut(file));
        }
    }

    /// Takes a name away; the last one takes the file along.
    pub(crate) fn forget_name(&mut self, path: &str) {
        let Some(id) = self.names.remove(path) else { return };
        if !self.names.values().any(|other| *other == id) {
            self.files.remove(&id);
        }
    }
}

/// What is in a dataset.
#[derive(Debug, Clone)]
pub enum Content {
    /// Files.
    Files(Tree),
    /// Bytes of a volume.
    Volume(Rc<Vec<u8>>),
}

impl Default for Content {
    fn default() -> Content {
        Content::Files(Tree::default())
    }
}

/// A head.
#[derive(Debug, Clone, Default)]
pub struct Head {
    /// Stays what it is when its name changes.
    pub serial: u64,
    /// What is in it.
    pub content: Content,
    /// The snapshot that it is a clone of.
    pub origin: Option<String>,
    /// Case does not matter in its names.
    pub(crate) ignores_case: bool,
    /// Properties that were set here, as they are stored.
    pub props: BTreeMap<String, PropValue>,
    /// Bookmarks, each with the guid, the txg and the time of its snapshot.
    pub bookmarks: BTreeMap<String, (u64, u64, u64)>,
    /// Default quotas set here: those of users and groups, of space and of objects.
    pub limits: BTreeMap<(bool, bool), u64>,
}

/// A snapshot.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// What is in it.
    pub content: Content,
    /// Later ones have larger numbers.
    pub order: u64,
    /// It goes with its last hold or clone: it may be gone.
    pub is_deferred: bool,
    /// Tags of its holds.
    pub holds: BTreeSet<String>,
}

/// A pool.
#[derive(Debug, Clone, Default)]
pub struct Model {
    /// Heads by name.
    pub heads: BTreeMap<String, Head>,
    /// Snapshots by full name.
    pub snapshots: BTreeMap<String, Snapshot>,
}

/// `a/b` of `a/b@c`.
pub fn dataset_of(snapshot: &str) -> &str {
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

    /// Heads below one, itself first.
    pub(crate) fn subtree(&self, head: &str) -> Vec<String> {
        let below = format!("{head}/");
        self.heads.keys().filter(|name| *name == head || name.starts_with(&below)).cloned().collect()
    }

    /// A dataset and everything below it has another name.
    pub fn rename(&mut self, from: &str, to: &str) {
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

    /// One snapshot has another name.
    pub fn rename_snapshot(&mut self, from: &str, to: &str) {
        if let Some(snapshot) = self.snapshots.remove(from) {
            self.snapshots.insert(to.to_owned(), snapshot);
        }
        for head in self.heads.values_mut().filter(|head| head.origin.as_deref() == Some(from)) {
            head.origin = Some(to.to_owned());
        }
    }

    /// A clone and its origin's dataset change roles.
    pub fn promote(&mut self, clone: &str) {
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
