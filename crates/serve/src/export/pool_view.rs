//! A read-only view of a dataset: its files, its snapshots below `.zfs/snapshot`, and, on request, the file
//! systems below it as directories.
//!
//! # Numbers
//! A node is an object number in its low 48 bits and a slot above. Slot 0 is the exported dataset; each
//! snapshot and child file system gets the next slot when it is first looked up, and keeps it, so that tar
//! and rsync never take two versions of a file for one. Object 1 of a slot, which is no file of any file
//! system, stands for its root directory, because clients expect the root of an export to be node 1. The
//! inode number shown for a root directory is its real object number.
//!
//! # Cookies of a directory
//! 0 `.`, 1 `..`, 2 `.zfs` where it is visible, `ENTRIES` the entries from the start, then the cursor after
//! each entry, which is stateless. Child file systems come first, from `CHILDREN` on.
//!
//! # What always holds
//! - Listing `.zfs/snapshot` opens no snapshot.
//! - Open file systems and decoded files are cached up to a bound; beyond it they are decoded again.

use admin::sync::{self, lock};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use admin::served::setting;
use cenote::copy::child_filesystems;
use cenote::{Dataset, Error, Filesystem, Node};
use format::ObjectId;

use super::attr_map::{END, ENTRIES, attr_of, cookie, cursor};
use super::error::ExportError;
use super::identity::{OBJECT_MASK, SLOT_SHIFT};
use super::types::{Attr, DirItem, Entry, Kind, ROOT, Seek, SpaceInfo};
use super::view::View;

const SLOTS_MAX: usize = 1 << 16;
/// `.zfs` and `.zfs/snapshot` (docs/on-disk/23-zpl.md, section 3.4).
pub(crate) const CONTROL: u64 = 0xFFFF_FFFF_FFFF;
pub(crate) const SNAPSHOTS: u64 = 0xFFFF_FFFF_FFFD;

const CHILDREN: u64 = 1 << 62;

/// Most file systems that are kept open.
const OPEN_MAX: usize = 1024;
/// Most decoded files that are kept, in all shards together.
const NODES_MAX: usize = 16 << 10;
const SHARDS: usize = 16;

/// A view of a dataset of an open pool.
pub struct PoolView {
    /// Whether child file systems are shown.
    nested: bool,
    slots: RwLock<Slots>,
    open: Mutex<HashMap<usize, Arc<Filesystem>>>,
    nodes: [Mutex<HashMap<u64, Node>>; SHARDS],
}

#[derive(Default)]
struct Slots {
    all: Vec<Arc<Slot>>,
    by_name: HashMap<String, usize>,
}

struct Slot {
    index: usize,
    dataset: Dataset,
    /// Node of the parent directory: `..` of the root directory of this slot.
    above: u64,
    snapshots: OnceLock<Vec<String>>,
    children: OnceLock<Vec<Dataset>>,
    snapdir_visible: OnceLock<bool>,
}

impl Slot {
    fn node(&self, object: u64) -> u64 {
        (self.index as u64) << SLOT_SHIFT | object
    }

    /// Whether the dataset has a `.zfs` directory; a snapshot has none.
    fn has_control(&self) -> bool {
        !self.dataset.dsl().is_snapshot()
    }

    fn snapshots(&self) -> Result<&[String], ExportError> {
        if let Some(known) = self.snapshots.get() {
            return Ok(known);
        }
        let entries = self.dataset.dsl().snapshot_entries().map_err(damaged)?;
        Ok(self.snapshots.get_or_init(|| entries.into_iter().map(|(name, _)| name).collect()))
    }
}

fn damaged(error: impl std::error::Error + Send + Sync + 'static) -> ExportError {
    ExportError::Damaged(Box::new(error))
}

fn from_error(error: Error) -> ExportError {
    match error {
        Error::Locked { dataset, .. } => ExportError::NoKey { dataset },
        other => damaged(other),
    }
}

impl PoolView {
    /// A view of `dataset`, with the file systems below it if `nested`.
    ///
    /// # Errors
    /// The dataset is no file system, is locked, or cannot be read.
    pub fn new(dataset: &Dataset, nested: bool) -> Result<PoolView, Error> {
        let fs = Arc::clone(dataset.filesystem()?.filesystem());
        let view = PoolView {
            nested,
            slots: RwLock::default(),
            open: Mutex::new(HashMap::from([(0, fs)])),
            nodes: std::array::from_fn(|_| Mutex::default()),
        };
        // The table is still empty, so one slot is free.
        let _ = view.slot_for(dataset, ROOT);
        Ok(view)
    }

    /// Name of the dataset, for messages.
    pub(crate) fn name(&self) -> String {
        self.split(ROOT).map(|(slot, _)| slot.dataset.name().to_owned()).unwrap_or_default()
    }

    /// Whether the client must evaluate POSIX ACLs: the property `acltype` says so.
    #[must_use]
    pub fn has_posix_acls(&self) -> bool {
        const POSIX: u64 = 1;
        self.split(ROOT).is_ok_and(|(slot, _)| setting(&slot.dataset, "acltype") == Some(POSIX))
    }

    /// The slot of a dataset; assigns one if it has none.
    fn slot_for(&self, dataset: &Dataset, above: u64) -> Result<Arc<Slot>, ExportError> {
        let known =
            |slots: &Slots| slots.by_name.get(dataset.name()).and_then(|&i| slots.all.get(i)).cloned();
        if let Some(slot) = known(&sync::read(&self.slots)) {
            return Ok(slot);
        }
        let mut slots = sync::write(&self.slots);
        if let Some(slot) = known(&slots) {
            return Ok(slot);
        }
        let index = slots.all.len();
        if index >= SLOTS_MAX {
            return Err(ExportError::TooMany);
        }
        let slot = Arc::new(Slot {
            index,
            dataset: dataset.clone(),
            above,
            snapshots: OnceLock::new(),
            children: OnceLock::new(),
            snapdir_visible: OnceLock::new(),
        });
        slots.all.push(Arc::clone(&slot));
        slots.by_name.insert(dataset.name().to_owned(), index);
        Ok(slot)
    }

    fn split(&self, node: u64) -> Result<(Arc<Slot>, u64), ExportError> {
        let index = (node >> SLOT_SHIFT) as usize;
        let slots = sync::read(&self.slots);
        let slot = slots.all.get(index).cloned().ok_or(ExportError::Stale)?;
        Ok((slot, node & OBJECT_MASK))
    }

    fn filesystem(&self, slot: &Slot) -> Result<Arc<Filesystem>, ExportError> {
        if let Some(fs) = lock(&self.open).get(&slot.index) {
            return Ok(Arc::clone(fs));
        }
        // Not under the lock: this reads from the disk.
        let fs = Arc::clone(slot.dataset.filesystem().map_err(from_error)?.filesystem());
        let mut open = lock(&self.open);
        if open.len() >= OPEN_MAX {
            open.clear();
        }
        open.insert(slot.index, Arc::clone(&fs));
        Ok(fs)
    }

    /// The file with an object number; the number is none of the virtual directories.
    fn file(&self, slot: &Slot, object: u64) -> Result<Node, ExportError> {
        let number = slot.node(object);
        let shard = self.nodes.get(object as usize % SHARDS).ok_or(ExportError::Stale)?;
        if let Some(node) = lock(shard).get(&number) {
            return Ok(node.clone());
        }
        let fs = self.filesystem(slot)?;
        let id = if object == ROOT { fs.root() } else { ObjectId(object) };
        let node = fs.node(id).map_err(damaged)?;
        let mut nodes = lock(shard);
        if nodes.len() >= NODES_MAX / SHARDS {
            nodes.clear();
        }
        nodes.insert(number, node.clone());
        Ok(node)
    }

    /// [`PoolView::file`] for operations that virtual directories do not have.
    fn real(&self, node: u64) -> Result<Node, ExportError> {
        let (slot, object) = self.split(node)?;
        if is_virtual(object) { Err(ExportError::Invalid) } else { self.file(&slot, object) }
    }

    fn children(&self, slot: &Slot) -> Result<Vec<Dataset>, ExportError> {
        if !self.nested || !slot.has_control() {
            return Ok(Vec::new());
        }
        if let Some(known) = slot.children.get() {
            return Ok(known.clone());
        }
        let found = child_filesystems(&slot.dataset).map_err(from_error)?;
        Ok(slot.children.get_or_init(|| found).clone())
    }

    fn child(&self, slot: &Slot, name: &[u8]) -> Result<Option<Dataset>, ExportError> {
        Ok(self.children(slot)?.into_iter().find(|child| component(child).as_bytes() == name))
    }

    /// Whether `.zfs` is listed. It can be entered in either case.
    fn shows_control(slot: &Slot) -> bool {
        const VISIBLE: u64 = 1;
        let visible = || setting(&slot.dataset, "snapdir") == Some(VISIBLE);
        slot.has_control() && *slot.snapdir_visible.get_or_init(visible)
    }

    fn virtual_attr(&self, slot: &Slot, object: u64) -> Result<Attr, ExportError> {
        let root = self.file(slot, ROOT)?;
        let mut attr = attr_of(&root, slot.node(object));
        attr.perm = 0o555;
        attr.nlink = if object == CONTROL { 3 } else { 2 };
        (attr.size, attr.blocks, attr.uid, attr.gid) = (0, 0, 0, 0);
        attr.generation = 0;
        Ok(attr)
    }

    fn entry(&self, slot: &Slot, object: u64) -> Result<Entry, ExportError> {
        let node = slot.node(object);
        Ok(Entry { node, attr: self.attr(node)? })
    }

    fn snapshot_entry(&self, slot: &Slot, name: &[u8]) -> Result<Option<Entry>, ExportError> {
        let Ok(name) = std::str::from_utf8(name) else { return Ok(None) };
        if !slot.snapshots()?.iter().any(|known| known == name) {
            return Ok(None);
        }
        let snapshot = self.snapshot_slot(slot, name)?;
        self.entry(&snapshot, ROOT).map(Some)
    }

    fn snapshot_slot(&self, slot: &Slot, name: &str) -> Result<Arc<Slot>, ExportError> {
        let full = format!("{}@{name}", slot.dataset.name());
        let dataset = slot.dataset.pool().dataset(&full).map_err(from_error)?;
        self.slot_for(&dataset, slot.node(SNAPSHOTS))
    }
}

fn is_virtual(object: u64) -> bool {
    object == CONTROL || object == SNAPSHOTS
}

/// Last part of a dataset's name.
fn component(dataset: &Dataset) -> &str {
    dataset.name().rsplit('/').next().unwrap_or_default()
}

impl View for PoolView {
    fn attr(&self, node: u64) -> Result<Attr, ExportError> {
        let (slot, object) = self.split(node)?;
        if is_virtual(object) {
            return self.virtual_attr(&slot, object);
        }
        let file = self.file(&slot, object)?;
        Ok(attr_of(&file, slot.node(file.id().0)))
    }

    fn lookup(&self, dir: u64, name: &[u8]) -> Result<Option<Entry>, ExportError> {
        let (slot, object) = self.split(dir)?;
        match (object, name) {
            (_, b".") => return self.entry(&slot, object).map(Some),
            (CONTROL, b"..") => return self.entry(&slot, ROOT).map(Some),
            (CONTROL, b"snapshot") => return self.entry(&slot, SNAPSHOTS).map(Some),
            (CONTROL, _) => return Ok(None),
            (SNAPSHOTS, b"..") => return self.entry(&slot, CONTROL).map(Some),
            (SNAPSHOTS, name) => return self.snapshot_entry(&slot, name),
            (ROOT, b"..") => {
                let (above, object) = self.split(slot.above)?;
                return self.entry(&above, object).map(Some);
            }
            (ROOT, b".zfs") if slot.has_control() => return self.entry(&slot, CONTROL).map(Some),
            (ROOT, name) => {
                if let Some(child) = self.child(&slot, name)? {
                    let below = self.slot_for(&child, slot.node(ROOT))?;
                    return self.entry(&below, ROOT).map(Some);
                }
            }
            _ => {}
        }
        let node = self.file(&slot, object)?;
        if !node.is_dir() {
            return Err(ExportError::NotDir);
        }
        let fs = self.filesystem(&slot)?;
        match fs.lookup(&node, name).map_err(damaged)? {
            Some(id) if id == fs.root() => self.entry(&slot, ROOT).map(Some),
            Some(id) => self.entry(&slot, id.0).map(Some),
            None => Ok(None),
        }
    }

    fn read_dir(
        &self,
        dir: u64,
        from: u64,
        sink: &mut dyn FnMut(DirItem) -> bool,
    ) -> Result<(), ExportError> {
        let (slot, object) = self.split(dir)?;
        let above = match object {
            CONTROL => slot.node(ROOT),
            SNAPSHOTS => slot.node(CONTROL),
            ROOT => slot.above,
            _ => self.parent(&slot, object)?,
        };
        let dot = |name: &[u8], node, next| DirItem {
            node,
            kind: Some(Kind::Directory),
            name: name.to_vec(),
            next,
        };
        let dots = [dot(b".", dir, 1), dot(b"..", above, 2)];
        for item in dots {
            if from < item.next && !sink(item) {
                return Ok(());
            }
        }
        match object {
            CONTROL => self.list_control(&slot, from, sink),
            SNAPSHOTS => self.list_snapshots(&slot, from, sink),
            _ => self.list(&slot, object, from, sink),
        }
    }

    fn read_link(&self, node: u64) -> Result<Vec<u8>, ExportError> {
        self.real(node)?.readlink().map_err(damaged)
    }

    fn read(&self, node: u64, offset: u64, buf: &mut [u8]) -> Result<usize, ExportError> {
        let file = self.real(node)?;
        if file.is_dir() {
            return Err(ExportError::IsDir);
        }
        file.read_at(offset, buf).map_err(damaged)
    }

    fn seek(&self, node: u64, offset: u64, what: Seek) -> Result<u64, ExportError> {
        let file = self.real(node)?;
        let found = match what {
            Seek::Data => file.next_data(offset),
            Seek::Hole => file.next_hole(offset),
        };
        found.map_err(damaged)?.ok_or(ExportError::BeyondEnd)
    }

    fn xattr_names(&self, node: u64) -> Result<Vec<Vec<u8>>, ExportError> {
        let (slot, object) = self.split(node)?;
        if is_virtual(object) {
            return Ok(Vec::new());
        }
        self.file(&slot, object)?.xattrs().map_err(damaged)
    }

    fn xattr(&self, node: u64, name: &[u8]) -> Result<Option<Vec<u8>>, ExportError> {
        let (slot, object) = self.split(node)?;
        if is_virtual(object) {
            return Ok(None);
        }
        self.file(&slot, object)?.xattr(name).map_err(damaged)
    }

    fn space(&self, node: u64) -> Result<SpaceInfo, ExportError> {
        let (slot, _) = self.split(node)?;
        let dataset = slot.dataset.dsl();
        let available = dataset.available().map_err(damaged)?;
        let files = self.filesystem(&slot)?.objset().root().fill();
        // docs/on-disk/23-zpl.md, section 7.
        let unit = 4096;
        let files_free = (available / 512).min((1u64 << 48).saturating_sub(files));
        Ok(SpaceInfo {
            block_size: unit as u32,
            blocks: (dataset.referenced().next_multiple_of(unit).saturating_add(available)) / unit,
            free: available / unit,
            files: files_free.saturating_add(files),
            files_free,
            name_max: 255,
        })
    }
}

impl PoolView {
    fn parent(&self, slot: &Slot, object: u64) -> Result<u64, ExportError> {
        let fs = self.filesystem(slot)?;
        let parent = self.file(slot, object)?.attrs().parent;
        Ok(slot.node(if parent == fs.root() { ROOT } else { parent.0 & OBJECT_MASK }))
    }

    fn list_control(
        &self,
        slot: &Slot,
        from: u64,
        sink: &mut dyn FnMut(DirItem) -> bool,
    ) -> Result<(), ExportError> {
        if from <= 2 {
            let (node, name) = (slot.node(SNAPSHOTS), b"snapshot".to_vec());
            sink(DirItem { node, kind: Some(Kind::Directory), name, next: ENTRIES });
        }
        Ok(())
    }

    fn list_snapshots(
        &self,
        slot: &Slot,
        from: u64,
        sink: &mut dyn FnMut(DirItem) -> bool,
    ) -> Result<(), ExportError> {
        let first = from.saturating_sub(2);
        for (name, at) in
            slot.snapshots()?.iter().zip(0u64..).skip(usize::try_from(first).unwrap_or(usize::MAX))
        {
            let snapshot = match self.snapshot_slot(slot, name) {
                Ok(snapshot) => snapshot,
                Err(ExportError::TooMany) => return Err(ExportError::TooMany),
                // One snapshot is damaged: a program that enters it gets the error.
                Err(_) => continue,
            };
            let (node, name) = (snapshot.node(ROOT), name.clone().into_bytes());
            if !sink(DirItem { node, kind: Some(Kind::Directory), name, next: at + 3 }) {
                break;
            }
        }
        Ok(())
    }

    fn list(
        &self,
        slot: &Slot,
        object: u64,
        from: u64,
        sink: &mut dyn FnMut(DirItem) -> bool,
    ) -> Result<(), ExportError> {
        let dir = self.file(slot, object)?;
        if !dir.is_dir() {
            return Err(ExportError::NotDir);
        }
        let children = if object == ROOT { self.children(slot)? } else { Vec::new() };
        if object == ROOT && from <= 2 && PoolView::shows_control(slot) {
            let (node, name) = (slot.node(CONTROL), b".zfs".to_vec());
            if !sink(DirItem { node, kind: Some(Kind::Directory), name, next: CHILDREN }) {
                return Ok(());
            }
        }
        if from <= 2 || from & CHILDREN != 0 {
            if from == END {
                return Ok(());
            }
            let first = if from & CHILDREN != 0 { from & !CHILDREN } else { 0 };
            for (child, at) in children.iter().zip(0u64..).skip(usize::try_from(first).unwrap_or(usize::MAX))
            {
                let below = self.slot_for(child, slot.node(ROOT))?;
                let last = at + 1 == children.len() as u64;
                let next = if last { ENTRIES } else { CHILDREN | (at + 1) };
                let (node, name) = (below.node(ROOT), component(child).as_bytes().to_vec());
                if !sink(DirItem { node, kind: Some(Kind::Directory), name, next }) {
                    return Ok(());
                }
            }
        }
        let start = if from & CHILDREN != 0 { 0 } else { cursor(from) };
        self.list_entries(slot, &dir, start, &children, sink)
    }

    fn list_entries(
        &self,
        slot: &Slot,
        dir: &Node,
        start: u64,
        hidden: &[Dataset],
        sink: &mut dyn FnMut(DirItem) -> bool,
    ) -> Result<(), ExportError> {
        let root = self.filesystem(slot)?.root();
        for entry in dir.entries_from(start).map_err(damaged)? {
            let entry = entry.map_err(damaged)?;
            if hidden.iter().any(|child| component(child).as_bytes() == entry.name) {
                continue;
            }
            let object = if entry.id == root { ROOT } else { entry.id.0 & OBJECT_MASK };
            let item = DirItem {
                node: slot.node(object),
                kind: entry.kind_hint,
                name: entry.name,
                next: cookie(entry.cursor),
            };
            if !sink(item) {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_never_mistaken() {
        for at in [0, 1, 2, 3, 4, 5, 1 << 28, (1 << 60) + 7] {
            let after = cookie(at);
            assert!(after > ENTRIES && after & CHILDREN == 0 && after < END);
            assert_eq!(cursor(after), at);
        }
        assert_eq!(cookie(u64::MAX), END);
        assert_eq!(cursor(ENTRIES), 0);
    }
}
