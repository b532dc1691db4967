//! `.zfs` in a file system that is mounted for writing: its snapshots, as directories, and nothing else of use.
//!
//! # Numbers
//! A node is an object number in its low 48 bits and a slot above. Slot 0 is the file system itself; each snapshot gets
//! a slot when somebody first looks at it, and keeps it, also when it is renamed: so
//! no program takes two versions of a file for one. Another snapshot gets the slot of one that was destroyed when the kernel
//! has forgotten all files of that one. In slot 0 the highest numbers, which no file has, are `.zfs` and
//! what is in it.
//!
//! # What always holds
//! - Listing `.zfs/snapshot` opens no snapshot.
//! - A snapshot is known by its object and its guid: numbers of objects come again.
//! - The kernel asks each time that a name in `.zfs` is looked up, because snapshots come and go by other ways.
//!   Listings it remembers, and is told when they are old (see `mounts`).
//! - A snapshot that was destroyed answers nothing any more, whoever stands in it.
//! - Whoever may take snapshots by name may do so here, if the administrator allows that at all.
//!
//! Source: docs/on-disk/23-zpl.md (section 3.4); the behaviour of OpenZFS 2.3.2.

use crate::fuse::{
    Answer, Caller, Known, Life, Lines, Service, ViewService, spawn_anywhere, while_answering,
};
use crate::live_service::is_later;
use crate::pool_view::{CONTROL, PoolView, SNAPSHOTS};
use crate::view::{Attr, Entry, Kind, Seek, SpaceInfo, Time};
use admin::Session;
use admin::edit::{self, EditError};
use admin::verbs::zfs::snapshot;
use admin::verbs::{Code, Reason, Refused};
use cenote::{Dataset, LivePool, Pool, PoolWriter, VdevTree};
use format::ObjectId;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Numbers of files end here, those of slots begin.
const SLOT_SHIFT: u32 = 48;
const OBJECT_MASK: u64 = (1 << SLOT_SHIFT) - 1;
/// The highest bit is taken: see `live_service`.
const SLOTS_MAX: usize = (1 << 15) - 1;
/// `.zfs/shares`, which is empty.
pub(crate) const SHARES: u64 = CONTROL - 1;
/// The first of the numbers that no file has.
const FIRST: u64 = SHARES - 0xFFFF;
/// The root of a mount, and of a snapshot in its slot.
const ROOT: u64 = 1;
/// Snapshots that are kept open.
const OPEN_MAX: usize = 64;
/// How long one is kept open: an open view of a pool holds up the reuse of what was freed since.
const OPEN_FOR: Duration = Duration::from_secs(20);
/// How often a name is looked at anew whose snapshot was replaced meanwhile.
const ATTEMPTS: usize = 16;
/// The name in the root.
pub(crate) const NAME: &[u8] = b".zfs";

/// Whether a node is one of these, and no file of the file system.
pub(crate) fn is_here(node: u64) -> bool {
    node >= FIRST && !is_later(node)
}

/// Whether one of these nodes is in a snapshot.
pub(crate) fn is_snapshot(node: u64) -> bool {
    node >> SLOT_SHIFT != 0
}

/// `.zfs` itself.
pub(crate) const ENTRANCE: u64 = CONTROL;

/// What is not there, said so that the kernel does not remember it.
const ABSENT: Errno = Errno::NOENT;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What these guard is whole between any two statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The snapshots of a mounted file system.
pub(crate) struct ZfsDir {
    pool: Arc<LivePool>,
    slots: Mutex<Slots>,
}

#[derive(Default)]
struct Slots {
    /// Snapshots by slot, from slot 1 on.
    all: Vec<Slot>,
    /// The last one of each number.
    by_object: HashMap<ObjectId, usize>,
    /// Of snapshots that are no more, and that the kernel has forgotten.
    free: Vec<usize>,
    /// Counts uses, to tell who was used last.
    uses: u64,
    /// A thread closes what has been open for long.
    is_swept: bool,
}

struct Slot {
    snapshot: Snapshot,
    /// How often the kernel was told of its files, and has not forgotten.
    told: u64,
    /// The part of its name behind the `@`, as it was last seen.
    name: String,
    open: Option<Open>,
    used: u64,
    is_gone: bool,
}

/// A snapshot: its object, and the guid that no other has.
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
    /// Its snapshot is no more.
    fn lose(&mut self, index: usize) {
        let Some(slot) = self.all.get_mut(index) else { return };
        slot.open = None;
        if !std::mem::replace(&mut slot.is_gone, true) && slot.told == 0 {
            self.free.push(index);
        }
    }

    /// Where the last snapshot with this number is, unless another one has its slot by now.
    fn index_of(&self, object: ObjectId) -> Option<usize> {
        let index = self.by_object.get(&object).copied();
        index.filter(|index| self.all.get(*index).is_some_and(|slot| slot.snapshot.object == object))
    }

    /// The slot of a snapshot, given to it now if it has none.
    fn slot_for(&mut self, snapshot: Snapshot, name: &str) -> Answer<u64> {
        let known = self.index_of(snapshot.object);
        let is_it = |slot: &Slot| slot.snapshot == snapshot && !slot.is_gone;
        let same = known.filter(|index| self.all.get(*index).is_some_and(is_it));
        let index = match same {
            Some(index) => index,
            None => {
                // The one that had this number is gone, whether that was heard of or not.
                known.into_iter().for_each(|index| self.lose(index));
                let name = name.to_owned();
                let slot = Slot { snapshot, told: 0, name, open: None, used: 0, is_gone: false };
                let index = match self.free.pop() {
                    Some(index) => index,
                    None if self.all.len() >= SLOTS_MAX => return Err(Errno::NFILE),
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

    /// The same for the kernel, which is going to be told of a file there: no other snapshot gets the slot until that is
    /// forgotten.
    fn take(&mut self, snapshot: Snapshot, name: &str) -> Answer<u64> {
        let slot = self.slot_for(snapshot, name)?;
        if let Some(place) = index_of(slot).and_then(|index| self.all.get_mut(index)) {
            place.told += 1;
        }
        Ok(slot)
    }

    /// The kernel has forgotten files of a slot so often.
    fn forget(&mut self, index: usize, count: u64) {
        let Some(slot) = self.all.get_mut(index) else { return };
        let was = slot.told;
        slot.told = was.saturating_sub(count);
        if was > 0 && slot.told == 0 && slot.is_gone {
            self.free.push(index);
        }
    }
}

/// A snapshot that is open, over the devices that the pool had then.
struct Open {
    service: Arc<ViewService>,
    tree: Arc<VdevTree>,
    since: Instant,
}

/// What the directories here show that depends on the file system: its attributes, and its name now.
pub(crate) struct Home {
    /// The root's attributes.
    pub(crate) root: Attr,
    /// Full name of the dataset.
    pub(crate) name: Arc<str>,
}

impl ZfsDir {
    pub(crate) fn new(pool: Arc<LivePool>) -> Arc<ZfsDir> {
        Arc::new(ZfsDir { pool, slots: Mutex::default() })
    }

    /// Lets go of all snapshots that are open.
    pub(crate) fn close(&self) {
        lock(&self.slots).all.iter_mut().for_each(|slot| slot.open = None);
    }

    /// Snapshots were made, destroyed or renamed: those that are no more answer nothing any more.
    pub(crate) fn refresh(&self, dataset: &str) {
        let now: HashMap<ObjectId, String> = match self.head(dataset).and_then(|head| entries(&head)) {
            Ok(entries) => entries.into_iter().map(|(name, id)| (id, name)).collect(),
            // Whoever asks next is told why.
            Err(_) => return,
        };
        let mut slots = lock(&self.slots);
        for index in 0..slots.all.len() {
            let Some(slot) = slots.all.get_mut(index).filter(|slot| !slot.is_gone) else { continue };
            match now.get(&slot.snapshot.object) {
                // Under the same name it is the same, or is found to be another when it is opened again.
                Some(name) if slot.name == *name => {}
                Some(name) => (slot.name, slot.open) = (name.clone(), None),
                None => slots.lose(index),
            }
        }
    }

    /// The kernel has forgotten a node so often.
    pub(crate) fn forget(&self, node: u64, count: u64) {
        let Some(index) = index_of(node >> SLOT_SHIFT) else { return };
        lock(&self.slots).forget(index, count);
    }

    /// The kernel is told of a file in this slot.
    fn tell(&self, slot: u64) {
        let Some(index) = index_of(slot) else { return };
        if let Some(slot) = lock(&self.slots).all.get_mut(index) {
            slot.told += 1;
        }
    }

    fn writer(&self) -> PoolWriter {
        PoolWriter::shared(Arc::clone(&self.pool), None)
    }

    /// For a change in somebody's name.
    fn writer_for(&self, rights: &Rights) -> PoolWriter {
        self.writer().in_name_of(Some(&rights.caller))
    }

    fn head(&self, dataset: &str) -> Answer<Dataset> {
        let view = self.writer().view().map_err(|error| told(&error))?;
        view.dataset(dataset).map_err(|error| told(&error))
    }

    /// What answers for the snapshot in a slot.
    fn service(self: &Arc<Self>, slot: u64, dataset: &str) -> Answer<Arc<ViewService>> {
        let index = index_of(slot).ok_or(Errno::STALE)?;
        let tree = self.pool.tree();
        let (snapshot, name) = {
            let mut slots = lock(&self.slots);
            slots.uses += 1;
            let uses = slots.uses;
            let slot = slots.all.get_mut(index).filter(|slot| !slot.is_gone).ok_or(Errno::STALE)?;
            slot.used = uses;
            match &slot.open {
                Some(open) if Arc::ptr_eq(&open.tree, &tree) => return Ok(Arc::clone(&open.service)),
                _ => (slot.snapshot, slot.name.clone()),
            }
        };
        // Not under the lock: this reads the disk.
        let service = self.open(&format!("{dataset}@{name}"), snapshot);
        let mut slots = lock(&self.slots);
        let is_it = slots.all.get(index).is_some_and(|slot| slot.snapshot == snapshot);
        let service = match service {
            Err(Errno::STALE) if is_it => {
                slots.lose(index);
                return Err(Errno::STALE);
            }
            Ok(_) if !is_it => return Err(Errno::STALE),
            other => other?,
        };
        if slots.all.iter().filter(|slot| slot.open.is_some()).count() >= OPEN_MAX {
            let oldest = slots.all.iter_mut().filter(|slot| slot.open.is_some()).min_by_key(|slot| slot.used);
            if let Some(oldest) = oldest {
                oldest.open = None;
            }
        }
        if let Some(slot) = slots.all.get_mut(index) {
            slot.open = Some(Open { service: Arc::clone(&service), tree, since: Instant::now() });
        }
        if !std::mem::replace(&mut slots.is_swept, true) {
            drop(slots);
            self.start_sweeping();
        }
        Ok(service)
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

    /// Closes what has been open for long. Whether something still is open.
    fn sweep(&self) -> bool {
        let mut slots = lock(&self.slots);
        for slot in &mut slots.all {
            slot.open = slot.open.take().filter(|open| open.since.elapsed() < OPEN_FOR);
        }
        slots.is_swept = slots.all.iter().any(|slot| slot.open.is_some());
        slots.is_swept
    }

    fn open(&self, full: &str, snapshot: Snapshot) -> Answer<Arc<ViewService>> {
        let view = self.pool.view().map_err(|error| told(&error))?;
        let dataset = match Pool::from(view).dataset(full).map_err(EditError::from) {
            Ok(dataset) if Snapshot::of(&dataset) == snapshot => dataset,
            // Another one has its name, or none.
            Ok(_) | Err(EditError::NoDataset { .. }) => return Err(Errno::STALE),
            Err(error) => return Err(told(&error)),
        };
        let view = PoolView::new(&dataset, false).map_err(|error| match error {
            cenote::Error::Locked { .. } => Errno::ACCESS,
            other => told(&other),
        })?;
        let name = full.to_owned();
        let reporter = move |node, error: &crate::ViewError| {
            tracing::error!(snapshot = name, node, %error, "damage");
        };
        Ok(Arc::new(ViewService::new(Arc::new(view), false, Some(Box::new(reporter)))))
    }

    /// Asks a snapshot about one of its files.
    pub(crate) fn ask<T>(
        self: &Arc<Self>,
        node: u64,
        dataset: &str,
        ask: impl FnOnce(&ViewService, u64) -> Answer<T>,
    ) -> Answer<T> {
        let slot = node >> SLOT_SHIFT;
        if slot == 0 {
            return Err(Errno::INVAL);
        }
        ask(&*self.service(slot, dataset)?, node & OBJECT_MASK)
    }

    // ---- looking -----------------------------------------------------------------------------

    fn virtual_attr(&self, node: u64, home: &Home) -> Answer<Attr> {
        let root = &home.root;
        let (nlink, size, changed) = match node {
            CONTROL => (1, 0, root.mtime),
            SNAPSHOTS => {
                let head = self.head(&home.name)?;
                let count = entries(&head)?.len();
                // Whoever keeps copies of snapshots sees here whether there is one to be fetched.
                let (secs, nanos) =
                    head.dsl().dir().snapshots_changed().map_err(|error| told(&error))?.unwrap_or_default();
                let changed = Time { secs: secs.cast_signed(), nanos: u32::try_from(nanos).unwrap_or(0) };
                (u32::try_from(count + 2).unwrap_or(u32::MAX), 2, changed)
            }
            SHARES => (2, 2, root.mtime),
            _ => return Err(Errno::STALE),
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

    /// Attributes of a node here, and how long they hold.
    pub(crate) fn attr(self: &Arc<Self>, node: u64, home: &Home) -> Answer<(Attr, Life)> {
        let slot = node >> SLOT_SHIFT;
        if slot == 0 {
            return self.virtual_attr(node, home).map(|attr| (attr, Life::None));
        }
        let (attr, life) = self.ask(node, &home.name, |snapshot, node| snapshot.attr(node, None))?;
        Ok((Attr { ino: slot << SLOT_SHIFT | attr.ino, ..attr }, life))
    }

    fn known(self: &Arc<Self>, node: u64, home: &Home, name: Life) -> Answer<Known> {
        let known = self.shown(node, home, name)?;
        self.tell(node >> SLOT_SHIFT);
        Ok(known)
    }

    /// What the kernel is told of a node, for whoever counts that.
    fn shown(self: &Arc<Self>, node: u64, home: &Home, name: Life) -> Answer<Known> {
        let (attr, life) = self.attr(node, home)?;
        // An entry carries one number only: where the node is another, the kernel asks again.
        let life = if attr.ino == node { life } else { Life::None };
        Ok(Known { entry: Entry { node, attr }, name, attr: life })
    }

    /// The directory of a snapshot. One that another one replaces meanwhile is not there.
    fn root_of(self: &Arc<Self>, name: &[u8], home: &Home) -> Answer<Known> {
        for _ in 0..ATTEMPTS {
            let (snapshot, name) = self.find(name, home)?;
            let root = lock(&self.slots).take(snapshot, &name)? << SLOT_SHIFT | ROOT;
            let found = self.shown(root, home, Life::None);
            if found.is_err() {
                self.forget(root, 1);
            }
            match found {
                Err(Errno::STALE) => {}
                found => return found,
            }
        }
        Err(ABSENT)
    }

    /// The directory itself, as it is found in the root.
    pub(crate) fn entrance(self: &Arc<Self>, home: &Home) -> Answer<Known> {
        self.known(CONTROL, home, Life::None)
    }

    /// Looks up a name in a directory here. The root, above, is the caller's affair: `None`.
    pub(crate) fn lookup(
        self: &Arc<Self>,
        caller: &Caller,
        dir: u64,
        name: &[u8],
        home: &Home,
    ) -> Answer<Option<Known>> {
        let found = |node| self.known(node, home, Life::None).map(Some);
        match (dir, name) {
            (_, b".") => found(dir),
            (CONTROL, b"..") => Ok(None),
            (SNAPSHOTS | SHARES, b"..") => found(CONTROL),
            (CONTROL, b"snapshot") => found(SNAPSHOTS),
            (CONTROL, b"shares") => found(SHARES),
            (CONTROL | SHARES, _) => Err(ABSENT),
            (SNAPSHOTS, name) => self.root_of(name, home).map(Some),
            (dir, b"..") if dir & OBJECT_MASK == ROOT => found(SNAPSHOTS),
            _ => {
                let slot = dir >> SLOT_SHIFT;
                let below = self.ask(dir, &home.name, |snapshot, dir| snapshot.lookup(caller, dir, name))?;
                let Some(below) = below else { return Err(ABSENT) };
                self.tell(slot);
                let node = slot << SLOT_SHIFT | below.entry.node;
                let attr = Attr { ino: slot << SLOT_SHIFT | below.entry.attr.ino, ..below.entry.attr };
                Ok(Some(Known { entry: Entry { node, attr }, ..below }))
            }
        }
    }

    /// A snapshot by the part of its name behind the `@`.
    fn find(&self, name: &[u8], home: &Home) -> Answer<(Snapshot, String)> {
        let name = std::str::from_utf8(name).map_err(|_| ABSENT)?;
        let full = format!("{}@{name}", home.name);
        let view = self.writer().view().map_err(|error| told(&error))?;
        match view.dataset(&full).map_err(EditError::from) {
            Ok(dataset) => Ok((Snapshot::of(&dataset), name.to_owned())),
            Err(EditError::NoDataset { .. }) => Err(ABSENT),
            Err(EditError::Refused(error)) if edit::is_bad_name(&error) => Err(ABSENT),
            Err(error) => Err(told(&error)),
        }
    }

    /// Lists a directory here.
    pub(crate) fn read_dir(
        self: &Arc<Self>,
        dir: u64,
        from: u64,
        lines: &mut dyn Lines,
        home: &Home,
    ) -> Answer<()> {
        let slot = dir >> SLOT_SHIFT;
        if slot != 0 {
            let mut below = Below { lines, slot, dir: self };
            return self.ask(dir, &home.name, |snapshot, dir| snapshot.read_dir(dir, from, &mut below));
        }
        let above = if dir == CONTROL { home.root.ino } else { CONTROL };
        let mut listed: Vec<(u64, u64, &[u8])> = vec![(1, dir, b"."), (2, above, b"..")];
        if dir == CONTROL {
            listed.extend([(3, SHARES, &b"shares"[..]), (4, SNAPSHOTS, b"snapshot")]);
        }
        for (next, node, name) in listed.into_iter().filter(|(next, ..)| *next > from) {
            if !lines.line(node, Some(Kind::Directory), name, next, None) {
                return Ok(());
            }
        }
        if dir == SNAPSHOTS { self.list(from, lines, home) } else { Ok(()) }
    }

    /// Snapshots in the order of their objects, which tells where a listing goes on.
    fn list(&self, from: u64, lines: &mut dyn Lines, home: &Home) -> Answer<()> {
        const BEFORE: u64 = 2;
        let mut all = entries(&self.head(&home.name)?)?;
        all.sort_by_key(|(_, id)| *id);
        for (name, id) in all {
            let next = BEFORE + id.0;
            if next <= from {
                continue;
            }
            let slot = lock(&self.slots).index_of(id).map(|index| index as u64 + 1);
            // Nobody has looked at it: a number that is its own, and no file's.
            let node = slot.map_or(FIRST.saturating_sub(1 + id.0), |slot| slot << SLOT_SHIFT | ROOT);
            if !lines.line(node, Some(Kind::Directory), name.as_bytes(), next, None) {
                break;
            }
        }
        Ok(())
    }

    // ---- changing ----------------------------------------------------------------------------

    /// Takes a snapshot. `Known` is its directory.
    pub(crate) fn make(
        self: &Arc<Self>,
        dir: u64,
        name: &[u8],
        home: &Home,
        rights: &Rights,
    ) -> Answer<Known> {
        if dir != SNAPSHOTS {
            return Err(if dir >> SLOT_SHIFT == 0 { Errno::PERM } else { Errno::ROFS });
        }
        rights.check()?;
        let name = std::str::from_utf8(name).map_err(|_| Errno::ILSEQ)?;
        let full = format!("{}@{name}", home.name);
        edit::names::check(&full, edit::names::Form::Snapshot).map_err(|_| Errno::INVAL)?;
        let writer = self.writer_for(rights);
        let taken = while_answering(|| Session::over(&writer).run(&snapshot::Request::of(full)));
        taken.map_err(|refusal| errno_of(&refusal.reason()))?;
        self.root_of(name.as_bytes(), home)
    }

    /// Destroys a snapshot.
    pub(crate) fn remove(&self, dir: u64, name: &[u8], home: &Home, rights: &Rights) -> Answer<()> {
        if dir != SNAPSHOTS {
            return Err(if dir >> SLOT_SHIFT == 0 { Errno::PERM } else { Errno::ROFS });
        }
        rights.check()?;
        let (_, name) = self.find(name, home)?;
        let full = format!("{}@{name}", home.name);
        edit::destroy_snapshots(&self.writer_for(rights), &[full], false).map_err(|error| refused(&error))?;
        self.refresh(&home.name);
        Ok(())
    }

    /// Renames a snapshot.
    pub(crate) fn rename(
        &self,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        home: &Home,
        rights: &Rights,
    ) -> Answer<()> {
        if from.0 != SNAPSHOTS || to.0 != SNAPSHOTS {
            let is_inside = from.0 >> SLOT_SHIFT != 0 || to.0 >> SLOT_SHIFT != 0;
            return Err(if is_inside { Errno::ROFS } else { Errno::PERM });
        }
        rights.check()?;
        let (_, name) = self.find(from.1, home)?;
        let full = format!("{}@{name}", home.name);
        let new = std::str::from_utf8(to.1).map_err(|_| Errno::ILSEQ)?;
        edit::rename_snapshot(&self.writer_for(rights), &full, new, false)
            .map_err(|error| refused(&error))?;
        self.refresh(&home.name);
        Ok(())
    }

    /// The space that the mount has, seen from here.
    pub(crate) fn space(self: &Arc<Self>, node: u64, home: &Home) -> Answer<Option<SpaceInfo>> {
        if node >> SLOT_SHIFT == 0 {
            return Ok(None);
        }
        self.ask(node, &home.name, Service::space).map(Some)
    }

    /// Data or a hole of a file in a snapshot.
    pub(crate) fn seek(self: &Arc<Self>, node: u64, offset: u64, what: Seek, home: &Home) -> Answer<u64> {
        self.ask(node, &home.name, |snapshot, node| snapshot.seek(node, offset, what))
    }
}

/// Whether somebody may change snapshots here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rights {
    /// The administrator allows it to those who may.
    pub(crate) is_on: bool,
    /// In whose name it is done: what was not granted to him (`zfs allow`) is refused.
    pub(crate) caller: admin::Caller,
}

impl Rights {
    fn check(&self) -> Answer<()> {
        if self.is_on { Ok(()) } else { Err(Errno::ACCESS) }
    }
}

/// Lines of a snapshot's directory, with the numbers that its slot makes of them.
struct Below<'l> {
    lines: &'l mut dyn Lines,
    slot: u64,
    dir: &'l ZfsDir,
}

impl Lines for Below<'_> {
    fn line(
        &mut self,
        node: u64,
        kind: Option<Kind>,
        name: &[u8],
        next: u64,
        file: Option<(Entry, Life)>,
    ) -> bool {
        let here = |number: u64| self.slot << SLOT_SHIFT | number;
        let file = file.map(|(entry, life)| {
            let attr = Attr { ino: here(entry.attr.ino), ..entry.attr };
            (Entry { node: here(entry.node), attr }, life)
        });
        let took = self.lines.line(here(node), kind, name, next, file);
        if took && file.is_some() {
            self.dir.tell(self.slot);
        }
        took
    }

    fn wants_files(&self) -> bool {
        self.lines.wants_files()
    }

    fn len_of(&self, name: usize) -> usize {
        self.lines.len_of(name)
    }

    fn room(&self) -> usize {
        self.lines.room()
    }
}

/// The place of a slot.
fn index_of(slot: u64) -> Option<usize> {
    usize::try_from(slot).ok().and_then(|slot| slot.checked_sub(1))
}

fn entries(head: &Dataset) -> Answer<Vec<(String, ObjectId)>> {
    head.dsl().snapshot_entries().map_err(|error| told(&error))
}

fn told(error: &(dyn std::error::Error + 'static)) -> Errno {
    tracing::error!(error, "a snapshot cannot be shown");
    Errno::IO
}

/// The error number of a verb's reason.
fn errno_of(reason: &Reason) -> Errno {
    match reason.code {
        Code::Exists => Errno::EXIST,
        Code::NoDataset => Errno::NOENT,
        Code::NoSpace => Errno::NOSPC,
        Code::Denied | Code::DelegationOff => Errno::PERM,
        Code::Name => Errno::INVAL,
        // All threads of the mount may have been needed for something else: another try may have more luck.
        Code::NotWrittenBack => {
            tracing::warn!(%reason, "no snapshot was taken");
            Errno::BUSY
        }
        Code::Busy | Code::Held | Code::HasClones => Errno::BUSY,
        _ => {
            tracing::error!(%reason, "a snapshot could not be changed");
            Errno::IO
        }
    }
}

fn refused(error: &EditError) -> Errno {
    match error {
        EditError::Exists { .. } => Errno::EXIST,
        EditError::NoDataset { .. } => Errno::NOENT,
        EditError::NoSpace => Errno::NOSPC,
        EditError::Denied | EditError::DelegationOff => Errno::PERM,
        EditError::Busy { .. } => Errno::BUSY,
        EditError::Refused(error) if edit::is_bad_name(error) => Errno::INVAL,
        // All threads of the mount may have been needed for something else: whoever tries again may have more luck.
        EditError::NotHandedOver { .. } => {
            tracing::warn!(%error, "no snapshot was taken");
            Errno::BUSY
        }
        // Held, or the origin of clones.
        EditError::Refused(error) if edit::about(error).is_some() => Errno::BUSY,
        other => {
            tracing::error!(error = %other, "a snapshot could not be changed");
            Errno::IO
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_in_the_slot_of_another_stays_when_that_ones_number_comes_again() {
        let mut slots = Slots::default();
        let snapshot = |object, guid| Snapshot { object: ObjectId(object), guid };
        assert_eq!(slots.slot_for(snapshot(10, 1), "a"), Ok(1));
        slots.lose(0);
        assert_eq!(slots.slot_for(snapshot(20, 2), "b"), Ok(1));
        assert_eq!(slots.index_of(ObjectId(10)), None);
        assert_eq!(slots.slot_for(snapshot(10, 3), "c"), Ok(2));
        assert!(slots.all.iter().all(|slot| !slot.is_gone));
        // One that was replaced without anybody hearing of it.
        assert_eq!(slots.slot_for(snapshot(20, 4), "b"), Ok(1));
        assert_eq!(slots.by_object.len(), 2);
    }

    #[test]
    fn a_slot_that_the_kernel_is_about_to_hear_of_is_given_to_no_other_snapshot() {
        let mut slots = Slots::default();
        let snapshot = |object, guid| Snapshot { object: ObjectId(object), guid };
        assert_eq!(slots.take(snapshot(10, 1), "a"), Ok(1));
        // It is destroyed before its attributes are known.
        slots.lose(0);
        assert_eq!(slots.take(snapshot(20, 2), "b"), Ok(2));
        slots.forget(0, 1);
        assert_eq!(slots.take(snapshot(30, 3), "c"), Ok(1));
        slots.forget(1, 1);
        assert_eq!(slots.take(snapshot(40, 4), "d"), Ok(3), "the second is not gone");
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
