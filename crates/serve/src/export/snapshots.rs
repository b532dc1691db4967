//! `.zfs` in a file system that is open for writing: its snapshots as directories, which can be made, renamed
//! and destroyed there.
//!
//! # Numbers
//! A node is an object number in its low 48 bits and a slot above. Slot 0 is the file system itself; each
//! snapshot gets a slot when it is first looked up, and keeps it, also when it is renamed, so no program
//! takes two versions of a file for one. The slot of a destroyed snapshot is reused after the client has
//! forgotten all of its files. In slot 0 the highest numbers, which no file has, are `.zfs` and its contents.
//!
//! # What always holds
//! - Listing `.zfs/snapshot` opens no snapshot.
//! - A snapshot is identified by its object number and its guid, because object numbers are reused.
//! - Names in `.zfs` are [`Stability::Volatile`], because snapshots are also made and destroyed without the
//!   client. A client may cache listings, and is told when they become old (see `mounts`).
//! - Every call on a destroyed snapshot is an error, also for programs whose working directory is in it.
//! - A caller with the permission for snapshots may change them here, if the administrator allows that at
//!   all.
//!
//! Source: docs/on-disk/23-zpl.md (section 3.4); the behaviour of OpenZFS 2.3.2.

use super::error::{Answer, ExportError};
use super::identity::{OBJECT_MASK, SLOT_SHIFT, is_later};
use super::pool_view::{CONTROL, PoolView, SNAPSHOTS};
use super::types::{Attr, DirLine, DirSink, Entry, Kind, Known, ROOT, Stability, Time};
use super::view::{View, entry_stability, list};
use crate::affinity::spawn_anywhere;
use admin::Session;
use admin::edit::{self, EditError};
use admin::sync::lock;
use admin::verbs::zfs::{destroy, rename, snapshot};
use admin::verbs::{Code, Reason, Refused};
use cenote::{Dataset, LivePool, Pool, PoolWriter, VdevTree};
use format::ObjectId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Number of slots: the highest bit of a node is used otherwise (see `identity`).
const SLOTS_MAX: usize = (1 << 15) - 1;
/// `.zfs/shares`, which is empty.
pub(crate) const SHARES: u64 = CONTROL - 1;
/// The lowest of the object numbers that no file has.
const FIRST: u64 = SHARES - 0xFFFF;
/// Most snapshots that are kept open.
const OPEN_MAX: usize = 64;
/// Longest time that an unused snapshot is kept open: an open view of a pool delays the reuse of blocks that
/// were freed since.
const OPEN_FOR: Duration = Duration::from_secs(20);
/// Attempts to look up a name while its snapshot is being replaced.
const ATTEMPTS: usize = 16;
/// Name of the `.zfs` directory in the root.
pub(crate) const NAME: &[u8] = b".zfs";

/// Whether a node belongs to `.zfs`, and not to the file system.
pub(crate) fn is_here(node: u64) -> bool {
    node >= FIRST && !is_later(node)
}

/// Whether a node of `.zfs` is inside a snapshot.
pub(crate) fn is_snapshot(node: u64) -> bool {
    node >> SLOT_SHIFT != 0
}

/// Node of `.zfs` itself.
pub(crate) const ENTRANCE: u64 = CONTROL;

/// The snapshots of an exported file system.
pub(super) struct Snapshots {
    pool: Arc<LivePool>,
    slots: Mutex<Slots>,
}

#[derive(Default)]
struct Slots {
    /// Snapshots by slot, from slot 1 on.
    all: Vec<Slot>,
    /// The slot that was last assigned for each object number.
    by_object: HashMap<ObjectId, usize>,
    /// Slots of destroyed snapshots that the client has forgotten.
    free: Vec<usize>,
    /// Number of uses so far; finds the slot that was used longest ago.
    uses: u64,
    /// A thread that closes unused snapshots is running.
    is_swept: bool,
}

struct Slot {
    snapshot: Snapshot,
    /// How often the client was told of files of this snapshot, less how often it has forgotten them.
    told: u64,
    /// The part of the name after the `@`, as last seen.
    name: String,
    open: Option<Open>,
    used: u64,
    is_gone: bool,
}

/// Identity of a snapshot: its object number and its guid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Snapshot {
    object: ObjectId,
    guid: u64,
}

impl Snapshot {
    fn of(dataset: &Dataset) -> Snapshot {
        Snapshot { object: dataset.dsl().id(), guid: dataset.dsl().phys().guid }
    }
}

impl Slots {
    /// Notes that the snapshot of a slot was destroyed.
    fn lose(&mut self, index: usize) {
        let Some(slot) = self.all.get_mut(index) else { return };
        slot.open = None;
        if !std::mem::replace(&mut slot.is_gone, true) && slot.told == 0 {
            self.free.push(index);
        }
    }

    /// The last slot of this object number, unless another snapshot has it by now.
    fn index_of(&self, object: ObjectId) -> Option<usize> {
        let index = self.by_object.get(&object).copied();
        index.filter(|index| self.all.get(*index).is_some_and(|slot| slot.snapshot.object == object))
    }

    /// The slot of a snapshot; assigns one if it has none.
    fn slot_for(&mut self, snapshot: Snapshot, name: &str) -> Answer<u64> {
        let known = self.index_of(snapshot.object);
        let is_it = |slot: &Slot| slot.snapshot == snapshot && !slot.is_gone;
        let same = known.filter(|index| self.all.get(*index).is_some_and(is_it));
        let index = match same {
            Some(index) => index,
            None => {
                // The snapshot that had this object number was destroyed, even if no call has reported it.
                known.into_iter().for_each(|index| self.lose(index));
                let name = name.to_owned();
                let slot = Slot { snapshot, told: 0, name, open: None, used: 0, is_gone: false };
                let index = match self.free.pop() {
                    Some(index) => index,
                    None if self.all.len() >= SLOTS_MAX => return Err(ExportError::TooMany),
                    None => self.all.len(),
                };
                match self.all.get_mut(index) {
                    Some(place) => {
                        let before = std::mem::replace(place, slot).snapshot.object;
                        if self.by_object.get(&before) == Some(&index) {
                            self.by_object.remove(&before);
                        }
                    }
                    None => self.all.push(slot),
                }
                self.by_object.insert(snapshot.object, index);
                index
            }
        };
        if let Some(slot) = self.all.get_mut(index) {
            name.clone_into(&mut slot.name);
        }
        Ok(index as u64 + 1)
    }

    /// [`Slots::slot_for`], for a client that is about to be told of a file there: no other snapshot gets the
    /// slot until the client has forgotten that file.
    fn take(&mut self, snapshot: Snapshot, name: &str) -> Answer<u64> {
        let slot = self.slot_for(snapshot, name)?;
        if let Some(place) = index_of(slot).and_then(|index| self.all.get_mut(index)) {
            place.told += 1;
        }
        Ok(slot)
    }

    /// Counts that the client has forgotten files of a slot.
    fn forget(&mut self, index: usize, count: u64) {
        let Some(slot) = self.all.get_mut(index) else { return };
        let was = slot.told;
        slot.told = was.saturating_sub(count);
        if was > 0 && slot.told == 0 && slot.is_gone {
            self.free.push(index);
        }
    }
}

/// An open snapshot, on the devices that the pool had when it was opened.
struct Open {
    view: Arc<PoolView>,
    tree: Arc<VdevTree>,
    since: Instant,
}

/// The values of the file system that its `.zfs` directories show.
pub(crate) struct ExportedHead {
    /// Attributes of the root directory.
    pub(crate) root: Attr,
    /// Full name of the dataset.
    pub(crate) name: Arc<str>,
}

impl Snapshots {
    pub(crate) fn new(pool: Arc<LivePool>) -> Arc<Snapshots> {
        Arc::new(Snapshots { pool, slots: Mutex::default() })
    }

    /// Closes all snapshots.
    pub(crate) fn close(&self) {
        lock(&self.slots).all.iter_mut().for_each(|slot| slot.open = None);
    }

    /// Updates the table after snapshots were made, destroyed or renamed: calls on destroyed ones become
    /// errors.
    pub(crate) fn refresh(&self, dataset: &str) {
        let now: HashMap<ObjectId, String> = match self.head(dataset).and_then(|head| entries(&head)) {
            Ok(entries) => entries.into_iter().map(|(name, id)| (id, name)).collect(),
            // The next call reports the error.
            Err(_) => return,
        };
        let mut slots = lock(&self.slots);
        for index in 0..slots.all.len() {
            let Some(slot) = slots.all.get_mut(index).filter(|slot| !slot.is_gone) else { continue };
            match now.get(&slot.snapshot.object) {
                // A slot whose name still exists is kept: if it is another snapshot, the next opening finds
                // that out.
                Some(name) if slot.name == *name => {}
                Some(name) => (slot.name, slot.open) = (name.clone(), None),
                None => slots.lose(index),
            }
        }
    }

    /// Counts that the client has forgotten a node `count` times.
    pub(crate) fn forget(&self, node: u64, count: u64) {
        let Some(index) = index_of(node >> SLOT_SHIFT) else { return };
        lock(&self.slots).forget(index, count);
    }

    /// Counts that the client is told of a file in this slot.
    fn tell(&self, slot: u64) {
        let Some(index) = index_of(slot) else { return };
        if let Some(slot) = lock(&self.slots).all.get_mut(index) {
            slot.told += 1;
        }
    }

    fn writer(&self) -> PoolWriter {
        PoolWriter::shared(Arc::clone(&self.pool), None)
    }

    /// The pool, for a change with the rights of a caller.
    fn writer_for(&self, rights: &Rights) -> PoolWriter {
        self.writer().in_name_of(Some(&rights.caller))
    }

    fn head(&self, dataset: &str) -> Answer<Dataset> {
        let view = self.writer().view().map_err(unreadable)?;
        view.dataset(dataset).map_err(unreadable)
    }

    /// The snapshot in a slot; opens it if necessary.
    fn view(self: &Arc<Self>, slot: u64, dataset: &str) -> Answer<Arc<PoolView>> {
        let index = index_of(slot).ok_or(ExportError::Stale)?;
        let tree = self.pool.tree();
        let (snapshot, name) = {
            let mut slots = lock(&self.slots);
            slots.uses += 1;
            let uses = slots.uses;
            let slot = slots.all.get_mut(index).filter(|slot| !slot.is_gone).ok_or(ExportError::Stale)?;
            slot.used = uses;
            match &slot.open {
                Some(open) if Arc::ptr_eq(&open.tree, &tree) => return Ok(Arc::clone(&open.view)),
                _ => (slot.snapshot, slot.name.clone()),
            }
        };
        // Not under the lock: this reads from the disk.
        let view = self.open(&format!("{dataset}@{name}"), snapshot);
        let mut slots = lock(&self.slots);
        let is_it = slots.all.get(index).is_some_and(|slot| slot.snapshot == snapshot);
        let view = match view {
            Err(ExportError::Stale) if is_it => {
                slots.lose(index);
                return Err(ExportError::Stale);
            }
            Ok(_) if !is_it => return Err(ExportError::Stale),
            other => other?,
        };
        if slots.all.iter().filter(|slot| slot.open.is_some()).count() >= OPEN_MAX {
            let oldest = slots.all.iter_mut().filter(|slot| slot.open.is_some()).min_by_key(|slot| slot.used);
            if let Some(oldest) = oldest {
                oldest.open = None;
            }
        }
        if let Some(slot) = slots.all.get_mut(index) {
            slot.open = Some(Open { view: Arc::clone(&view), tree, since: Instant::now() });
        }
        if !std::mem::replace(&mut slots.is_swept, true) {
            drop(slots);
            self.start_sweeping();
        }
        Ok(view)
    }

    fn start_sweeping(self: &Arc<Self>) {
        let dir = Arc::downgrade(self);
        let sweep = move || loop {
            std::thread::sleep(OPEN_FOR / 2);
            if dir.upgrade().is_none_or(|dir| !dir.sweep()) {
                return;
            }
        };
        if spawn_anywhere("zfsdir", sweep).is_err() {
            lock(&self.slots).is_swept = false;
        }
    }

    /// Closes the snapshots that were open for long; returns whether any is still open.
    fn sweep(&self) -> bool {
        let mut slots = lock(&self.slots);
        for slot in &mut slots.all {
            slot.open = slot.open.take().filter(|open| open.since.elapsed() < OPEN_FOR);
        }
        slots.is_swept = slots.all.iter().any(|slot| slot.open.is_some());
        slots.is_swept
    }

    fn open(&self, full: &str, snapshot: Snapshot) -> Answer<Arc<PoolView>> {
        let view = self.pool.view().map_err(unreadable)?;
        let dataset = match Pool::from(view).dataset(full).map_err(EditError::from) {
            Ok(dataset) if Snapshot::of(&dataset) == snapshot => dataset,
            // Another snapshot has the name now, or none.
            Ok(_) | Err(EditError::NoDataset { .. }) => return Err(ExportError::Stale),
            Err(error) => return Err(unreadable(error)),
        };
        let view = PoolView::new(&dataset, false).map_err(|error| match error {
            cenote::Error::Locked { dataset, .. } => ExportError::NoKey { dataset },
            other => unreadable(other),
        })?;
        Ok(Arc::new(view))
    }

    /// Asks a snapshot about one of its files.
    pub(crate) fn ask<T>(
        self: &Arc<Self>,
        node: u64,
        dataset: &str,
        ask: impl FnOnce(&PoolView, u64) -> Answer<T>,
    ) -> Answer<T> {
        let slot = node >> SLOT_SHIFT;
        if slot == 0 {
            return Err(ExportError::Invalid);
        }
        let (view, node) = (self.view(slot, dataset)?, node & OBJECT_MASK);
        ask(&view, node).inspect_err(|error| report(&view, node, error))
    }

    // ---- looking -----------------------------------------------------------------------------

    fn virtual_attr(&self, node: u64, head: &ExportedHead) -> Answer<Attr> {
        let root = &head.root;
        let (nlink, size, changed) = match node {
            CONTROL => (1, 0, root.mtime),
            SNAPSHOTS => {
                let head = self.head(&head.name)?;
                let count = entries(&head)?.len();
                // Programs that copy snapshots learn from this value whether there is a new one.
                let (secs, nanos) =
                    head.dsl().dir().snapshots_changed().map_err(unreadable)?.unwrap_or_default();
                let changed = Time { secs: secs.cast_signed(), nanos: u32::try_from(nanos).unwrap_or(0) };
                (u32::try_from(count + 2).unwrap_or(u32::MAX), 2, changed)
            }
            SHARES => (2, 2, root.mtime),
            _ => return Err(ExportError::Stale),
        };
        Ok(Attr {
            ino: node,
            generation: 0,
            kind: Kind::Directory,
            perm: 0o777,
            nlink,
            uid: 0,
            gid: 0,
            size,
            blocks: 0,
            block_size: 512,
            rdev: (0, 0),
            mtime: changed,
            ctime: changed,
            ..*root
        })
    }

    /// Attributes of a node of `.zfs`, and their stability.
    pub(crate) fn attr(self: &Arc<Self>, node: u64, head: &ExportedHead) -> Answer<(Attr, Stability)> {
        let slot = node >> SLOT_SHIFT;
        if slot == 0 {
            return self.virtual_attr(node, head).map(|attr| (attr, Stability::Volatile));
        }
        let attr = self.ask(node, &head.name, View::attr)?;
        Ok((Attr { ino: slot << SLOT_SHIFT | attr.ino, ..attr }, Stability::Stable))
    }

    fn known(self: &Arc<Self>, node: u64, head: &ExportedHead, name: Stability) -> Answer<Known> {
        let known = self.known_uncounted(node, head, name)?;
        self.tell(node >> SLOT_SHIFT);
        Ok(known)
    }

    /// A node, for a caller that counts that the client is told of it.
    fn known_uncounted(self: &Arc<Self>, node: u64, head: &ExportedHead, name: Stability) -> Answer<Known> {
        let (attr, stability) = self.attr(node, head)?;
        let entry = Entry { node, attr };
        let attr = if attr.ino == node { stability } else { Stability::Volatile };
        Ok(Known { entry, name, attr })
    }

    /// The root directory of a snapshot. A snapshot that another one replaces meanwhile counts as absent.
    fn root_of(self: &Arc<Self>, name: &[u8], head: &ExportedHead) -> Answer<Known> {
        for _ in 0..ATTEMPTS {
            let (snapshot, name) = self.find(name, head)?;
            let root = lock(&self.slots).take(snapshot, &name)? << SLOT_SHIFT | ROOT;
            let found = self.known_uncounted(root, head, Stability::Volatile);
            if found.is_err() {
                self.forget(root, 1);
            }
            match found {
                Err(ExportError::Stale) => {}
                found => return found,
            }
        }
        Err(ExportError::NotFound)
    }

    /// The entry of `.zfs` itself, as a look-up in the root returns it.
    pub(crate) fn entrance(self: &Arc<Self>, head: &ExportedHead) -> Answer<Known> {
        self.known(CONTROL, head, Stability::Volatile)
    }

    /// Looks up a name in a directory of `.zfs`. `None`: the result is the root of the file system.
    pub(crate) fn lookup(
        self: &Arc<Self>,
        dir: u64,
        name: &[u8],
        head: &ExportedHead,
    ) -> Answer<Option<Known>> {
        let found = |node| self.known(node, head, Stability::Volatile).map(Some);
        match (dir, name) {
            (_, b".") => found(dir),
            (CONTROL, b"..") => Ok(None),
            (SNAPSHOTS | SHARES, b"..") => found(CONTROL),
            (CONTROL, b"snapshot") => found(SNAPSHOTS),
            (CONTROL, b"shares") => found(SHARES),
            (CONTROL | SHARES, _) => Err(ExportError::NotFound),
            (SNAPSHOTS, name) => self.root_of(name, head).map(Some),
            (dir, b"..") if dir & OBJECT_MASK == ROOT => found(SNAPSHOTS),
            _ => {
                let slot = dir >> SLOT_SHIFT;
                let below = self.ask(dir, &head.name, |snapshot, dir| snapshot.lookup(dir, name))?;
                let Some(below) = below else { return Err(ExportError::NotFound) };
                self.tell(slot);
                let attr = entry_stability(&below);
                Ok(Some(Known { entry: in_slot(slot, &below), name: Stability::Stable, attr }))
            }
        }
    }

    /// Finds a snapshot by the part of its name after the `@`.
    fn find(&self, name: &[u8], head: &ExportedHead) -> Answer<(Snapshot, String)> {
        let name = std::str::from_utf8(name).map_err(|_| ExportError::NotFound)?;
        let full = format!("{}@{name}", head.name);
        let view = self.writer().view().map_err(unreadable)?;
        match view.dataset(&full).map_err(EditError::from) {
            Ok(dataset) => Ok((Snapshot::of(&dataset), name.to_owned())),
            Err(EditError::NoDataset { .. }) => Err(ExportError::NotFound),
            Err(EditError::Refused(error)) if edit::is_bad_name(&error) => Err(ExportError::NotFound),
            Err(error) => Err(unreadable(error)),
        }
    }

    /// Lists a directory of `.zfs`.
    pub(crate) fn read_dir(
        self: &Arc<Self>,
        dir: u64,
        from: u64,
        sink: &mut dyn DirSink,
        head: &ExportedHead,
    ) -> Answer<()> {
        let slot = dir >> SLOT_SHIFT;
        if slot != 0 {
            let mut sink = InSlot { sink, slot, snapshots: self };
            return self.ask(dir, &head.name, |snapshot, dir| {
                list(snapshot, dir, from, &mut sink, &|node, error| report(snapshot, node, error))
            });
        }
        let above = if dir == CONTROL { head.root.ino } else { CONTROL };
        let lines = [
            DirLine::dir(dir, b".", 1),
            DirLine::dir(above, b"..", 2),
            DirLine::dir(SHARES, b"shares", 3),
            DirLine::dir(SNAPSHOTS, b"snapshot", 4),
        ];
        let count = if dir == CONTROL { 4 } else { 2 };
        for line in lines.iter().take(count).filter(|line| line.next > from) {
            if !sink.line(line) {
                return Ok(());
            }
        }
        if dir == SNAPSHOTS { self.list(from, sink, head) } else { Ok(()) }
    }

    /// Lists the snapshots in the order of their object numbers, from which the cookies are made.
    fn list(&self, from: u64, sink: &mut dyn DirSink, head: &ExportedHead) -> Answer<()> {
        const BEFORE: u64 = 2;
        let mut all = entries(&self.head(&head.name)?)?;
        all.sort_by_key(|(_, id)| *id);
        for (name, id) in all {
            let next = BEFORE + id.0;
            if next <= from {
                continue;
            }
            let slot = lock(&self.slots).index_of(id).map(|index| index as u64 + 1);
            // The snapshot was never looked up: it gets a number that belongs to no file.
            let node = slot.map_or(FIRST.saturating_sub(1 + id.0), |slot| slot << SLOT_SHIFT | ROOT);
            if !sink.line(&DirLine::dir(node, name.as_bytes(), next)) {
                break;
            }
        }
        Ok(())
    }

    // ---- changing ----------------------------------------------------------------------------

    /// Takes a snapshot; returns its root directory.
    pub(crate) fn make(
        self: &Arc<Self>,
        dir: u64,
        name: &[u8],
        head: &ExportedHead,
        rights: &Rights,
    ) -> Answer<Known> {
        if dir != SNAPSHOTS {
            return Err(if dir >> SLOT_SHIFT == 0 {
                ExportError::NotPermitted
            } else {
                ExportError::ReadOnly
            });
        }
        rights.check()?;
        let name = std::str::from_utf8(name).map_err(|_| ExportError::NotUtf8)?;
        let full = format!("{}@{name}", head.name);
        edit::names::check(&full, edit::names::Form::Snapshot).map_err(|_| ExportError::Invalid)?;
        let writer = self.writer_for(rights);
        let taken = Session::over(&writer).run(&snapshot::Request::of(full));
        taken.map_err(|refusal| refused(refusal.reason()))?;
        self.root_of(name.as_bytes(), head)
    }

    /// Destroys the snapshot behind a name in `.zfs/snapshot`.
    pub(crate) fn remove(&self, dir: u64, name: &[u8], head: &ExportedHead, rights: &Rights) -> Answer<()> {
        if dir != SNAPSHOTS {
            return Err(if dir >> SLOT_SHIFT == 0 {
                ExportError::NotPermitted
            } else {
                ExportError::ReadOnly
            });
        }
        rights.check()?;
        let (_, name) = self.find(name, head)?;
        let full = format!("{}@{name}", head.name);
        let writer = self.writer_for(rights);
        let mut session = Session::over(&writer);
        session.ask::<destroy::Request>(&full).map_err(|error| refused(error.into()))?;
        let destroyed = session.run(&destroy::Request::of(full));
        destroyed.map_err(|refusal| refused(refusal.reason()))?;
        self.refresh(&head.name);
        Ok(())
    }

    /// Renames a snapshot within `.zfs/snapshot`.
    pub(crate) fn rename(
        &self,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        head: &ExportedHead,
        rights: &Rights,
    ) -> Answer<()> {
        if from.0 != SNAPSHOTS || to.0 != SNAPSHOTS {
            let is_inside = from.0 >> SLOT_SHIFT != 0 || to.0 >> SLOT_SHIFT != 0;
            return Err(if is_inside { ExportError::ReadOnly } else { ExportError::NotPermitted });
        }
        rights.check()?;
        let (_, name) = self.find(from.1, head)?;
        let full = format!("{}@{name}", head.name);
        let new = std::str::from_utf8(to.1).map_err(|_| ExportError::NotUtf8)?;
        let writer = self.writer_for(rights);
        let mut session = Session::over(&writer);
        session.ask::<rename::Request>(&full).map_err(|error| refused(error.into()))?;
        let renamed = session.run(&rename::Request::of(full, format!("@{new}")));
        renamed.map_err(|refusal| refused(refusal.reason()))?;
        self.refresh(&head.name);
        Ok(())
    }
}

/// The right of a caller to change snapshots in `.zfs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rights {
    /// The administrator allows changes of snapshots in `.zfs`.
    pub(crate) is_on: bool,
    /// The caller; a change that it has no permission for (`zfs allow`) is refused.
    pub(crate) caller: admin::Caller,
}

impl Rights {
    fn check(&self) -> Answer<()> {
        if self.is_on { Ok(()) } else { Err(ExportError::NotAllowed) }
    }
}

/// Logs damage that was found in a snapshot.
fn report(snapshot: &PoolView, node: u64, error: &ExportError) {
    if matches!(error, ExportError::Damaged(_)) {
        tracing::error!(snapshot = snapshot.name(), node, %error, "damage");
    }
}

/// Passes on the lines of a directory of a snapshot, with node numbers of its slot.
struct InSlot<'s> {
    sink: &'s mut dyn DirSink,
    slot: u64,
    snapshots: &'s Snapshots,
}

impl DirSink for InSlot<'_> {
    fn line(&mut self, line: &DirLine<'_>) -> bool {
        let file = line.file.map(|(entry, stability)| (in_slot(self.slot, &entry), stability));
        let took = self.sink.line(&DirLine { node: self.slot << SLOT_SHIFT | line.node, file, ..*line });
        if took && file.is_some() {
            self.snapshots.tell(self.slot);
        }
        took
    }

    fn wants_attrs(&self) -> bool {
        self.sink.wants_attrs()
    }

    fn len_of(&self, name: usize) -> usize {
        self.sink.len_of(name)
    }

    fn room(&self) -> usize {
        self.sink.room()
    }
}

/// An entry of a snapshot, with node numbers of its slot.
fn in_slot(slot: u64, entry: &Entry) -> Entry {
    let here = |number: u64| slot << SLOT_SHIFT | number;
    Entry { node: here(entry.node), attr: Attr { ino: here(entry.attr.ino), ..entry.attr } }
}

/// Index of a slot in the table.
fn index_of(slot: u64) -> Option<usize> {
    usize::try_from(slot).ok().and_then(|slot| slot.checked_sub(1))
}

fn entries(head: &Dataset) -> Answer<Vec<(String, ObjectId)>> {
    head.dsl().snapshot_entries().map_err(unreadable)
}

fn unreadable(error: impl std::error::Error + Send + Sync + 'static) -> ExportError {
    ExportError::Snapshot(Box::new(error))
}

/// The error for a snapshot that was not changed, from the reason that the verb returns.
fn refused(reason: Reason) -> ExportError {
    match reason.code {
        Code::Exists => ExportError::Exists,
        Code::NoDataset => ExportError::NotFound,
        Code::NoSpace => ExportError::NoSpace,
        Code::Denied | Code::DelegationOff => ExportError::NotPermitted,
        Code::Name => ExportError::Invalid,
        // The threads of the mount may all have been needed for other requests: a later attempt may succeed.
        Code::NotWrittenBack => {
            tracing::warn!(%reason, "no snapshot was taken");
            ExportError::Busy
        }
        Code::Busy | Code::Held | Code::HasClones => ExportError::Busy,
        _ => ExportError::SnapshotChange(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_in_the_slot_of_another_stays_when_that_ones_number_comes_again() {
        let mut slots = Slots::default();
        let snapshot = |object, guid| Snapshot { object: ObjectId(object), guid };
        assert_eq!(slots.slot_for(snapshot(10, 1), "a").unwrap(), 1);
        slots.lose(0);
        assert_eq!(slots.slot_for(snapshot(20, 2), "b").unwrap(), 1);
        assert_eq!(slots.index_of(ObjectId(10)), None);
        assert_eq!(slots.slot_for(snapshot(10, 3), "c").unwrap(), 2);
        assert!(slots.all.iter().all(|slot| !slot.is_gone));
        // A snapshot that was replaced without a call of `refresh`.
        assert_eq!(slots.slot_for(snapshot(20, 4), "b").unwrap(), 1);
        assert_eq!(slots.by_object.len(), 2);
    }

    #[test]
    fn a_slot_that_the_kernel_is_about_to_hear_of_is_given_to_no_other_snapshot() {
        let mut slots = Slots::default();
        let snapshot = |object, guid| Snapshot { object: ObjectId(object), guid };
        assert_eq!(slots.take(snapshot(10, 1), "a").unwrap(), 1);
        // The snapshot is destroyed before its attributes are read.
        slots.lose(0);
        assert_eq!(slots.take(snapshot(20, 2), "b").unwrap(), 2);
        slots.forget(0, 1);
        assert_eq!(slots.take(snapshot(30, 3), "c").unwrap(), 1);
        slots.forget(1, 1);
        assert_eq!(slots.take(snapshot(40, 4), "d").unwrap(), 3, "the second is not gone");
    }

    #[test]
    fn numbers_of_files_are_not_taken_for_others() {
        for file in [1, 2, 34, 1 << 40, (1 << 47) + 5] {
            assert!(!is_here(file), "{file}");
        }
        for other in [CONTROL, SNAPSHOTS, SHARES, 1 << 48 | ROOT, (SLOTS_MAX as u64) << 48 | 7] {
            assert!(is_here(other), "{other}");
        }
        assert!(!is_here(1 << 63 | 1 << 48 | 7), "a file whose number another one had");
    }
}
