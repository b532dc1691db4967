//! An open file system: its master node, and the tables that files are read by
//! (docs/on-disk/23-zpl.md, sections 1 and 2).

pub(crate) mod backing;
pub(crate) mod head;
pub(crate) mod make;
pub(crate) mod options;
pub(crate) mod replay;
pub(crate) mod stat;
pub(crate) mod writable;

use crate::fuid::Domains;
use crate::{FileKind, Node, ZplError};
use dmu::zap::{Match, Zap};
use dmu::{DmuError, ObjSet, Object};
use format::names::{master_node, sa_master};
use format::objset::ObjsetType;
use format::sa::{Layout, Registration, Registry, SaBuffer, SaHeader};
use format::zap::{NORM_CANONICAL, NORM_COMPATIBLE, NORM_COMPOSE, NORM_UPPER};
use format::{DecodeError, ObjectId};
use std::collections::HashSet;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

/// The newest version of file systems.
const VERSION_MAX: u64 = 5;
/// Numbers that a layout can have: the header has ten bits for them.
const LAYOUTS_MAX: usize = 1024;
/// Longest chain of parents that is followed.
const DEPTH_MAX: usize = 4096;

/// Whether upper and lower case make different names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CaseSensitivity {
    /// They do.
    #[default]
    Sensitive,
    /// They do not.
    Insensitive,
    /// They do, unless the asker says otherwise.
    Mixed,
}

/// The attribute tables of a file system of version 5. Attributes and layouts can be added, and never
/// change.
pub(crate) struct SaTables {
    registry: RwLock<Arc<Registry>>,
    /// By number.
    layouts: Box<[OnceLock<Box<Layout>>]>,
}

impl SaTables {
    /// The buffer with its layout; `None` if it was never filled.
    pub(crate) fn buffer<'a>(&'a self, bytes: &'a [u8]) -> Result<Option<SaBuffer<'a>>, DecodeError> {
        let Some(header) = SaHeader::decode(bytes)? else { return Ok(None) };
        let layout = self.layout(header.layout);
        let layout = layout.ok_or(DecodeError::field("SA header", "layout", header.layout))?;
        SaBuffer::new(bytes, header, layout).map(Some)
    }

    /// The layout with this number.
    pub(crate) fn layout(&self, number: u16) -> Option<&Layout> {
        self.layouts.get(usize::from(number)).and_then(OnceLock::get).map(|layout| &**layout)
    }

    /// Those that can be resolved, by number.
    pub(crate) fn layouts(&self) -> impl Iterator<Item = &Layout> {
        self.layouts.iter().filter_map(OnceLock::get).map(|layout| &**layout)
    }

    /// The attributes.
    pub(crate) fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.registry.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The attributes are these now: those that there were, and new ones.
    pub(crate) fn set_registry(&self, registry: Registry) {
        *self.registry.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(registry);
    }

    /// Adds a layout; of two with one number the first counts.
    pub(crate) fn add(&self, layout: Layout) {
        if let Some(slot) = self.layouts.get(usize::from(layout.number)) {
            let _ = slot.set(Box::new(layout));
        }
    }
}

/// Finds the name of an object in a directory.
pub type NameIn<'a> = &'a mut dyn FnMut(&Node, ObjectId) -> Result<Option<Vec<u8>>, ZplError>;

/// An open file system.
pub struct Filesystem {
    objset: Arc<ObjSet>,
    pub(crate) master: Zap,
    version: u64,
    root: ObjectId,
    unlinked: Option<ObjectId>,
    normalization: u64,
    utf8only: bool,
    case: CaseSensitivity,
    sa: Option<SaTables>,
    pub(crate) domains: OnceLock<Domains>,
}

impl Filesystem {
    /// Opens the file system in an object set.
    ///
    /// # Errors
    /// If the object set holds something else, its key is missing, or its master node or attribute
    /// tables cannot be read.
    pub fn open(objset: Arc<ObjSet>) -> Result<Arc<Filesystem>, ZplError> {
        let number = objset.number();
        if objset.kind() != ObjsetType::Zfs {
            return Err(ZplError::WrongDataset { objset: number, expected: "file system" });
        }
        let corrupt = |why| ZplError::Corrupt { objset: number, object: master_node::OBJECT, why };
        let master = Zap::open(&objset.object(master_node::OBJECT)?)?;
        let value = |name: &str| master.lookup_u64(name.as_bytes());
        let object = |name: &str| Ok::<_, DmuError>(value(name)?.filter(|id| *id != 0).map(ObjectId));
        let version =
            value(master_node::VERSION)?.ok_or_else(|| corrupt("the master node has no version"))?;
        if !(1..=VERSION_MAX).contains(&version) {
            return Err(ZplError::Version { objset: number, version });
        }
        let sa = match object(master_node::SA_ATTRS)? {
            Some(id) => Some(open_tables(&objset, id)?),
            None => None,
        };
        let case = match value(master_node::CASESENSITIVITY)?.unwrap_or(0) {
            0 => CaseSensitivity::Sensitive,
            1 => CaseSensitivity::Insensitive,
            2 => CaseSensitivity::Mixed,
            _ => return Err(corrupt("the case sensitivity is not known")),
        };
        let forms = NORM_CANONICAL | NORM_COMPATIBLE | NORM_COMPOSE;
        Ok(Arc::new(Filesystem {
            version,
            root: object(master_node::ROOT)?
                .ok_or_else(|| corrupt("the master node has no root directory"))?,
            unlinked: object(master_node::DELETE_QUEUE)?,
            normalization: value(master_node::NORMALIZATION)?.unwrap_or(0) & (forms | NORM_UPPER),
            utf8only: value(master_node::UTF8ONLY)?.unwrap_or(0) != 0,
            case,
            sa,
            master,
            objset,
            domains: OnceLock::new(),
        }))
    }

    /// The object set.
    pub fn objset(&self) -> &Arc<ObjSet> {
        &self.objset
    }

    /// The root directory.
    pub fn root(&self) -> ObjectId {
        self.root
    }

    /// The version, 1 to 5.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether case matters in names.
    pub fn case_sensitivity(&self) -> CaseSensitivity {
        self.case
    }

    /// How names are normalized: `format::zap::NORM_…`.
    pub fn normalization(&self) -> u64 {
        self.normalization
    }

    /// Only names in UTF-8 are allowed.
    pub fn is_utf8only(&self) -> bool {
        self.utf8only
    }

    /// A number of the master node, such as `VERSION` or `defaultuserquota`.
    pub fn master_value(&self, name: &str) -> Result<Option<u64>, ZplError> {
        Ok(self.master.lookup_u64(name.as_bytes())?)
    }

    pub(crate) fn tables(&self) -> Option<&SaTables> {
        self.sa.as_ref()
    }

    /// Names and numbers of the attributes, as registered; empty before version 5.
    pub fn registered_attributes(&self) -> Vec<Registration> {
        self.sa.iter().flat_map(|tables| tables.registry().iter().cloned().collect::<Vec<_>>()).collect()
    }

    /// The file with this number.
    ///
    /// # Errors
    /// [`ZplError::NotAFile`] if the object is one of the file system's own.
    pub fn node(self: &Arc<Self>, id: ObjectId) -> Result<Node, ZplError> {
        Node::new(Arc::clone(self), self.objset.object(id)?)
    }

    /// The file in an object already at hand.
    pub fn node_of(self: &Arc<Self>, object: Object) -> Result<Node, ZplError> {
        Node::new(Arc::clone(self), object)
    }

    /// What `name` leads to in `dir`, by the file system's own rules for names; `.` and `..` too.
    pub fn lookup(&self, dir: &Node, name: &[u8]) -> Result<Option<ObjectId>, ZplError> {
        self.lookup_with(dir, name, false)
    }

    /// As [`Filesystem::lookup`]; where case sensitivity is mixed, case can be ignored.
    pub fn lookup_with(
        &self,
        dir: &Node,
        name: &[u8],
        ignore_case: bool,
    ) -> Result<Option<ObjectId>, ZplError> {
        dir.expect(FileKind::Directory, "directory")?;
        match name {
            b"." => return Ok(Some(dir.id())),
            b".." => return Ok(Some(dir.attrs().parent)),
            _ => {}
        }
        let how = match self.case {
            CaseSensitivity::Insensitive => Match::Normalized,
            CaseSensitivity::Mixed if ignore_case => Match::Normalized,
            CaseSensitivity::Sensitive if self.normalization == 0 => Match::Exact,
            CaseSensitivity::Sensitive | CaseSensitivity::Mixed => Match::NormalizedMatchCase,
        };
        dir.lookup_entry(name, how)
    }

    /// The file at a path of names separated by `/`, from the root on. Symbolic links are not
    /// followed.
    pub fn resolve(self: &Arc<Self>, path: &[u8]) -> Result<Option<Node>, ZplError> {
        let mut node = self.node(self.root)?;
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            if !node.is_dir() {
                return Ok(None);
            }
            match self.lookup(&node, name)? {
                Some(id) => node = self.node(id)?,
                None => return Ok(None),
            }
        }
        Ok(Some(node))
    }

    /// A path to an object, from the root on, found by its chain of parents: of a file with several
    /// names, that by which it was linked last. `None` if it has no name any more. Attribute
    /// directories are called `<xattrdir>`.
    ///
    /// Reads every directory on the way up to the entry that leads down.
    pub fn path_of(self: &Arc<Self>, id: ObjectId) -> Result<Option<Vec<u8>>, ZplError> {
        self.path_by(id, &mut Node::name_of)
    }

    /// The same, with another way to find the name of an object in a directory: for who asks often.
    pub fn path_by(self: &Arc<Self>, id: ObjectId, name_in: NameIn<'_>) -> Result<Option<Vec<u8>>, ZplError> {
        let mut parts: Vec<Vec<u8>> = Vec::new();
        let mut seen = HashSet::new();
        let mut at = self.node(id)?;
        while at.id() != self.root {
            if seen.len() >= DEPTH_MAX || !seen.insert(at.id()) {
                return Ok(None);
            }
            let parent = match self.node(at.attrs().parent) {
                Ok(parent) => parent,
                Err(ZplError::Dmu(DmuError::NoObject { .. }) | ZplError::NotAFile { .. }) => return Ok(None),
                Err(error) => return Err(error),
            };
            let name = if parent.attrs().xattr_dir == Some(at.id()) {
                Some(b"<xattrdir>".to_vec())
            } else if parent.is_dir() {
                name_in(&parent, at.id())?
            } else {
                None
            };
            let Some(name) = name else { return Ok(None) };
            parts.push(name);
            at = parent;
        }
        let mut path = Vec::new();
        for part in parts.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(part);
        }
        if path.is_empty() {
            path.push(b'/');
        }
        Ok(Some(path))
    }

    /// Files without a name that wait to be freed: unlinked while open, or too large to free at once.
    pub fn unlinked(&self) -> Result<Vec<ObjectId>, ZplError> {
        let Some(id) = self.unlinked else { return Ok(Vec::new()) };
        let mut files = Vec::new();
        for entry in Zap::open(&self.objset.object(id)?)?.entries() {
            files.extend(entry?.u64().map(ObjectId));
        }
        Ok(files)
    }
}

/// Reads registry and layouts.
fn open_tables(objset: &Arc<ObjSet>, id: ObjectId) -> Result<SaTables, ZplError> {
    let number = objset.number();
    let decode = |object| move |source| ZplError::Decode { objset: number, object, source };
    let corrupt = |object, why| ZplError::Corrupt { objset: number, object, why };
    let master = Zap::open(&objset.object(id)?)?;
    let table = |name: &str| master.lookup_u64(name.as_bytes());
    let mut registrations = Vec::new();
    // Both are made when the first attribute is written.
    if let Some(registry) = table(sa_master::REGISTRY)?.map(ObjectId) {
        for entry in Zap::open(&objset.object(registry)?)?.entries() {
            let entry = entry?;
            let value = entry.u64().unwrap_or(0);
            if registrations.len() > usize::from(u16::MAX) {
                return Err(corrupt(registry, "more attributes than numbers for them"));
            }
            registrations.push(Registration::decode(entry.name(), value));
        }
    }
    let registry = Registry::new(registrations);
    let layouts = (0..LAYOUTS_MAX).map(|_| OnceLock::new()).collect();
    let tables = SaTables { registry: RwLock::new(Arc::new(registry)), layouts };
    tables.add(Layout::empty());
    let registry = tables.registry();
    if let Some(table) = table(sa_master::LAYOUTS)?.map(ObjectId) {
        for entry in Zap::open(&objset.object(table)?)?.entries() {
            let entry = entry?;
            let name = std::str::from_utf8(entry.name()).ok();
            let Some(number) = name.and_then(|name| name.parse::<u16>().ok()) else { continue };
            let slot = usize::from(number);
            if !(2..LAYOUTS_MAX).contains(&slot) {
                continue;
            }
            let attrs: Vec<u16> = entry.u64s().iter().filter_map(|attr| u16::try_from(*attr).ok()).collect();
            // Files of a layout that cannot be resolved cannot be read; all others can.
            match Layout::resolve(number, &attrs, &registry).map_err(decode(table)) {
                Ok(layout) => tables.add(layout),
                Err(error) => tracing::warn!(%error, layout = number, "attribute layout left out"),
            }
        }
    }
    Ok(tables)
}
