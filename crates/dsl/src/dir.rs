//! Directories: the nodes of the name tree. Space, quotas and properties belong to the directory, contents to
//! its head dataset (docs/on-disk/22-mos-dsl.md, section 2).

use crate::error::DslError;
use crate::mos;
use crate::name::{DEPTH_LIMIT, Name, Tail, is_hidden, stored};
use crate::stored_props::StoredProps;
use crate::tree::Dsl;
use dmu::Object;
use dmu::zap::Zap;
use format::dsl::DirPhys;
use format::names;
use format::{ObjType, ObjectId};
use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

/// Name and object number of a child; an error stands for a damaged name.
pub(crate) type ChildEntry = Result<(String, ObjectId), DslError>;

/// A directory, with the path by which it was reached. Cheap to clone.
#[derive(Clone)]
pub struct Dir(Arc<Inner>);

struct Inner {
    dsl: Dsl,
    object: Object,
    phys: DirPhys,
    name: String,
    parent: Option<Dir>,
    depth: usize,
    props: OnceLock<StoredProps>,
}

fn read(dsl: &Dsl, id: ObjectId) -> Result<(Object, DirPhys), DslError> {
    let object = mos::object_with_bonus(dsl.mos(), id, ObjType::DSL_DIR, "DSL directory")?;
    let phys = DirPhys::decode(object.bonus(), object.order()).map_err(DslError::decode(id))?;
    Ok((object, phys))
}

impl Dir {
    fn root(dsl: &Dsl, id: ObjectId) -> Result<Dir, DslError> {
        let (object, phys) = read(dsl, id)?;
        let name = dsl.pool_name().to_owned();
        Ok(Dir(Arc::new(Inner {
            dsl: dsl.clone(),
            object,
            phys,
            name,
            parent: None,
            depth: 0,
            props: OnceLock::new(),
        })))
    }

    fn open_child(&self, component: &str, id: ObjectId) -> Result<Dir, DslError> {
        let (object, phys) = read(self.dsl(), id)?;
        let expected = self.id().0;
        match phys.parent {
            Some(parent) if parent == self.id() => {}
            other => {
                let found = other.map_or(0, u64::from);
                return Err(DslError::Mismatch {
                    what: "parent of a directory",
                    object: id,
                    found,
                    expected,
                });
            }
        }
        // A directory that is its own ancestor would make the tree endless.
        let depth = self.0.depth + 1;
        if depth > DEPTH_LIMIT || self.ancestry().any(|above| above.id() == id) {
            return Err(DslError::Endless { what: "descent", object: id, limit: DEPTH_LIMIT });
        }
        let name = format!("{}/{component}", self.name());
        let (dsl, parent) = (self.dsl().clone(), Some(self.clone()));
        Ok(Dir(Arc::new(Inner { dsl, object, phys, name, parent, depth, props: OnceLock::new() })))
    }

    /// The directory in this object. `likely` is its full name before a rename: at each level its component
    /// is looked up first, and all names of the level are read only if that leads to another directory.
    fn by_object(dsl: &Dsl, root: ObjectId, id: ObjectId, likely: &str) -> Result<Dir, DslError> {
        let mut below = Vec::new();
        let mut at = id;
        while at != root {
            if below.len() > DEPTH_LIMIT {
                return Err(DslError::Endless { what: "parents", object: id, limit: DEPTH_LIMIT });
            }
            let (_, phys) = read(dsl, at)?;
            below.push(at);
            let root_named =
                DslError::Mismatch { what: "root directory", object: at, found: 0, expected: root.0 };
            at = phys.parent.ok_or(root_named)?;
        }
        let mut dir = dsl.root()?;
        // From the directory itself upwards, as `below` is.
        let components: Vec<&str> = likely.rsplit('/').collect();
        for (height, child) in below.into_iter().enumerate().rev() {
            dir = dir.child_by_object(child, components.get(height).copied().unwrap_or_default())?;
        }
        Ok(dir)
    }

    fn child_by_object(&self, child: ObjectId, likely: &str) -> Result<Dir, DslError> {
        let unnamed =
            || DslError::Mismatch { what: "child map", object: self.id(), found: 0, expected: child.0 };
        let map = self.0.phys.children.ok_or_else(unnamed)?;
        let zap = mos::zap(self.dsl().mos(), map)?;
        if !likely.is_empty() && mos::lookup_object(&zap, map, likely).is_ok_and(|id| id == Some(child)) {
            return self.open_child(likely, child);
        }
        let name = mos::reverse_lookup(&zap, map, child)?.ok_or_else(unnamed)?;
        self.open_child(&name, child)
    }

    /// The [`Dsl`] of the pool.
    pub fn dsl(&self) -> &Dsl {
        &self.0.dsl
    }

    /// Number of the directory's object in the MOS.
    pub fn id(&self) -> ObjectId {
        self.0.object.id()
    }

    /// The decoded bonus of the directory's object.
    pub fn phys(&self) -> &DirPhys {
        &self.0.phys
    }

    /// Full name of the directory: `pool/a/b`.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Last component of the name.
    pub fn component(&self) -> &str {
        self.name().rsplit('/').next().unwrap_or_default()
    }

    /// The parent directory; `None` for the root.
    pub(crate) fn parent(&self) -> Option<&Dir> {
        self.0.parent.as_ref()
    }

    /// This directory, its parent, and so on up to the root.
    pub fn ancestry(&self) -> impl Iterator<Item = &Dir> {
        std::iter::successors(Some(self), |dir| dir.parent())
    }

    /// The child with this name.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read, or is damaged.
    pub fn child(&self, component: &str) -> Result<Option<Dir>, DslError> {
        let Some(map) = self.0.phys.children else { return Ok(None) };
        let zap = mos::zap(self.dsl().mos(), map)?;
        match mos::lookup_object(&zap, map, component)? {
            Some(id) => {
                stored(map, id, component.as_bytes())?;
                Ok(Some(self.open_child(component, id)?))
            }
            None => Ok(None),
        }
    }

    /// Names and objects of all children, hidden ones included; an error stands for a damaged name.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read, or is damaged.
    pub fn child_entries(&self) -> Result<Vec<ChildEntry>, DslError> {
        let Some(map) = self.0.phys.children else { return Ok(Vec::new()) };
        let zap = mos::zap(self.dsl().mos(), map)?;
        let mut entries = Vec::new();
        for entry in zap.entries() {
            let entry = entry?;
            let id = ObjectId(mos::number(map, &entry)?);
            entries.push(stored(map, id, entry.name()).map(|name| (name.to_owned(), id)));
        }
        Ok(entries)
    }

    fn children_where(&self, wanted: impl Fn(&str) -> bool) -> Result<Vec<Dir>, DslError> {
        let mut found = Vec::new();
        let mut seen = HashSet::new();
        for entry in self.child_entries()? {
            match entry {
                // Two names for one child, level after level, would make a small pool a huge tree.
                Ok((_, id)) if !seen.insert(id) => {
                    let (found, expected) = (2, 1);
                    return Err(DslError::Mismatch {
                        what: "names of a directory",
                        object: id,
                        found,
                        expected,
                    });
                }
                Ok((name, id)) if wanted(&name) => found.push(self.open_child(&name, id)?),
                Ok(_) => {}
                // Skip a damaged name, so that its siblings stay visible.
                Err(cause) => tracing::warn!(dir = self.name(), "{cause}"),
            }
        }
        found.sort_by(|a, b| a.name().cmp(b.name()));
        Ok(found)
    }

    /// The children visible to users, by name.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read, or is damaged.
    pub fn children(&self) -> Result<Vec<Dir>, DslError> {
        self.children_where(|name| !is_hidden(name))
    }

    /// The hidden children, made by the implementation: `$ORIGIN`, `%recv` and the like.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read, or is damaged.
    pub fn hidden_children(&self) -> Result<Vec<Dir>, DslError> {
        self.children_where(is_hidden)
    }

    /// The directory's property ZAP, read at the first call.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read, or is damaged.
    pub fn stored_props(&self) -> Result<&StoredProps, DslError> {
        if let Some(props) = self.0.props.get() {
            return Ok(props);
        }
        let props = StoredProps::read(self.dsl().mos(), self.phys().props)?;
        Ok(self.0.props.get_or_init(|| props))
    }

    /// The directory's own ZAP; `None` until an entry was needed.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read, or is damaged.
    pub fn zap(&self) -> Result<Option<Zap>, DslError> {
        mos::own_zap(&self.0.object)
    }

    /// The object with the keys of an encrypted directory.
    pub(crate) fn key_object(&self) -> Result<Option<ObjectId>, DslError> {
        match self.zap()? {
            Some(zap) => mos::lookup_object(&zap, self.id(), names::dir::CRYPTO_KEY_OBJ),
            None => Ok(None),
        }
    }

    fn own_numbers(&self, key: &str) -> Result<Vec<u64>, DslError> {
        let Some(zap) = self.zap()? else { return Ok(Vec::new()) };
        Ok(zap.lookup(key.as_bytes())?.map(|entry| entry.u64s()).unwrap_or_default())
    }

    /// Number of file systems below; `None`: the directory does not count.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read, or is damaged.
    pub(crate) fn filesystem_count(&self) -> Result<Option<u64>, DslError> {
        Ok(self.own_numbers(names::dir::FILESYSTEM_COUNT)?.first().copied())
    }

    /// Number of snapshots of this directory and of all below; `None`: the directory does not count.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read, or is damaged.
    pub(crate) fn snapshot_count(&self) -> Result<Option<u64>, DslError> {
        Ok(self.own_numbers(names::dir::SNAPSHOT_COUNT)?.first().copied())
    }

    /// Time when a snapshot was last made or destroyed: seconds since 1970 and nanoseconds (0 if an older
    /// release wrote it).
    ///
    /// # Errors
    /// If an object of the MOS cannot be read, or is damaged.
    pub fn snapshots_changed(&self) -> Result<Option<(u64, u64)>, DslError> {
        let words = self.own_numbers(names::dir::SNAPSHOTS_CHANGED)?;
        Ok(words.first().map(|secs| (*secs, words.get(1).copied().unwrap_or(0))))
    }

    /// The livelist of a clone: the blocks that it has written. `None`: it has no livelist.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read, or is damaged.
    pub fn livelist(&self) -> Result<Option<ObjectId>, DslError> {
        Ok(self.own_numbers(names::dir::LIVELIST)?.first().filter(|id| **id != 0).map(|id| ObjectId(*id)))
    }
}

impl std::fmt::Debug for Dir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dir({} = object {})", self.name(), self.id())
    }
}

impl Dsl {
    /// The root directory of the pool.
    ///
    /// # Errors
    /// If the root directory cannot be read.
    pub fn root(&self) -> Result<Dir, DslError> {
        Dir::root(self, self.root_id())
    }

    /// The directory with this full name (`pool/a/b`).
    ///
    /// # Errors
    /// [`DslError::BadName`] if no directory can have this name, [`DslError::NotFound`] if none has it.
    pub fn dir(&self, name: &str) -> Result<Dir, DslError> {
        let Name { dir, tail: Tail::None } = Name::parse(name)? else {
            return Err(DslError::BadName { name: name.to_owned(), why: "not a file system or volume" });
        };
        let mut components = dir.split('/');
        if components.next() != Some(self.pool_name()) {
            return Err(DslError::not_found(name));
        }
        let mut at = self.root()?;
        for component in components {
            at = at.child(component)?.ok_or_else(|| DslError::not_found(name))?;
        }
        Ok(at)
    }

    /// The directory in this object, at any place in the tree.
    ///
    /// # Errors
    /// If the directory or one above it cannot be read or has no name.
    pub fn dir_by_object(&self, id: ObjectId) -> Result<Dir, DslError> {
        Dir::by_object(self, self.root_id(), id, "")
    }

    /// Like [`Dsl::dir_by_object`]; `likely` is the full name before directories were renamed, which makes
    /// the look-up faster.
    pub(crate) fn dir_by_object_named(&self, id: ObjectId, likely: &str) -> Result<Dir, DslError> {
        Dir::by_object(self, self.root_id(), id, likely)
    }

    /// All directories visible to users, depth first, children by name.
    ///
    /// # Errors
    /// If a directory cannot be read.
    pub fn dirs(&self) -> Result<Vec<Dir>, DslError> {
        let mut all = Vec::new();
        let mut stack = vec![self.root()?];
        while let Some(dir) = stack.pop() {
            let mut children = dir.children()?;
            children.reverse();
            stack.append(&mut children);
            all.push(dir);
        }
        Ok(all)
    }
}
