//! Random operations against a model of POSIX, with syncs and remounts in between.

use super::world::World;
use cenote_zpl::replay;
use cenote_zpl::{
    Allocate, Fs, FsOptions, Hold, IntentLog, NewAttrs, NewFile, RenameHow, WriteHow, XattrHow, XattrStorage,
};
use cenote_zpl::{FileKind, Filesystem, Node, SpaceKind};
use dmu::Tx;
use dmu::log::LogData;
use format::zil::Body;
use format::znode::Time;
use format::{BlockPtr, ObjectId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use vdev::env::Random;

/// The records that a log would hold since the last sync.
#[derive(Default)]
struct Recorder(Mutex<Recorded>);

#[derive(Default)]
struct Recorded {
    records: Vec<Body>,
    /// A change was made that no record describes.
    is_beyond_records: bool,
}

impl IntentLog for Recorder {
    fn log(&self, _: &Tx, record: Body) {
        self.0.lock().expect("whole").records.push(record);
    }

    fn log_write(&self, _: &Tx, object: ObjectId, offset: u64, data: LogData, _: Option<Time>) {
        let (length, data) = (data.len(), Some(data.to_vec()));
        let record = Body::Write { object, offset, length, bp: BlockPtr::HOLE, data };
        self.0.lock().expect("whole").records.push(record);
    }

    fn log_by_txg(&self, _: &Tx, _: ObjectId) {
        self.0.lock().expect("whole").is_beyond_records = true;
    }
}

/// The expected state of a file.
#[derive(Debug, Clone)]
struct File {
    kind: FileKind,
    mode: u32,
    uid: u64,
    gid: u64,
    project: u64,
    links: u64,
    parent: u64,
    data: Vec<u8>,
    entries: BTreeMap<Vec<u8>, u64>,
    target: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl File {
    fn new(kind: FileKind, mode: u32, parent: u64) -> File {
        File {
            kind,
            mode,
            uid: 0,
            gid: 0,
            project: 0,
            links: if kind == FileKind::Directory { 2 } else { 1 },
            parent,
            data: Vec::new(),
            entries: BTreeMap::new(),
            target: Vec::new(),
            xattrs: BTreeMap::new(),
        }
    }

    fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }
}

struct Run {
    world: World,
    fs: Arc<Fs>,
    options: FsOptions,
    random: Random,
    root: u64,
    files: BTreeMap<u64, File>,
    held: Vec<Hold>,
    log: Arc<Recorder>,
}

const NAMES: u64 = 12;

impl Run {
    fn new(seed: u64, options: FsOptions) -> Run {
        let world = World::new(options.clone());
        let (fs, root) = (Arc::clone(&world.fs), world.fs.root().0);
        let files = BTreeMap::from([(root, File::new(FileKind::Directory, 0o04_0755, root))]);
        world.sync();
        let log = Arc::<Recorder>::default();
        fs.set_log(Arc::clone(&log) as Arc<dyn IntentLog>);
        Run { world, fs, options, random: Random::from_seed(seed), root, files, held: Vec::new(), log }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random.below(limit)
    }

    fn pick(&mut self, accept: impl Fn(&File) -> bool) -> Option<u64> {
        let fitting: Vec<u64> =
            self.files.iter().filter(|(_, file)| accept(file)).map(|(id, _)| *id).collect();
        let count = fitting.len() as u64;
        (count > 0).then(|| fitting[self.random.below(count) as usize])
    }

    /// A random directory that is still in the tree.
    fn dir(&mut self) -> u64 {
        self.pick(|file| file.is_dir() && file.links > 0).expect("the root at least")
    }

    fn name(&mut self) -> Vec<u8> {
        let number = self.below(NAMES);
        let length = if number == 3 { 200 } else { 3 };
        format!("{}{number}", "n".repeat(length)).into_bytes()
    }

    fn step(&mut self) {
        match self.below(100) {
            0..25 => self.create(),
            25..32 => self.unlink(),
            32..36 => self.rmdir(),
            36..40 => self.link(),
            40..50 => self.rename(),
            50..70 => self.write(),
            70..75 => self.truncate(),
            75..79 => self.punch(),
            79..87 => self.xattr(),
            87..92 => self.setattr(),
            92..95 => self.hold(),
            95..97 => self.release(),
            _ => self.read(),
        }
    }

    fn create(&mut self) {
        let (dir, name) = (self.dir(), self.name());
        let kind = match self.below(10) {
            0..5 => FileKind::Regular,
            5..8 => FileKind::Directory,
            8 => FileKind::Symlink,
            _ => FileKind::Fifo,
        };
        let target = vec![b't'; 1 + self.below(400) as usize];
        let mode = self.below(0o1000) as u32;
        let (uid, gid) = (self.below(3) as u32, self.below(3) as u32);
        let new = NewFile { uid, gid, target: &target, ..NewFile::of(kind, mode) };
        let result = self.fs.create(ObjectId(dir), &name, &new);
        if self.files[&dir].entries.contains_key(&name) {
            assert!(result.is_err());
            return;
        }
        let made = result.expect("created");
        let mut file = File::new(kind, made.attrs.mode, dir);
        (file.uid, file.gid) = (uid.into(), gid.into());
        if kind == FileKind::Symlink {
            file.target = target;
        } else {
            assert_eq!(made.attrs.mode & 0o777, mode);
        }
        assert!(self.files.insert(made.id.0, file).is_none(), "a number in use was given out");
        let parent = self.files.get_mut(&dir).expect("there");
        parent.entries.insert(name, made.id.0);
        parent.links += u64::from(kind == FileKind::Directory);
    }

    fn is_held(&self, id: u64) -> bool {
        self.held.iter().any(|hold| hold.id().0 == id)
    }

    fn lose_name(&mut self, id: u64) {
        let held = self.is_held(id);
        let file = self.files.get_mut(&id).expect("there");
        file.links = if file.is_dir() { 0 } else { file.links - 1 };
        if file.links == 0 && !held {
            self.files.remove(&id);
        }
    }

    fn unlink(&mut self) {
        let (dir, name) = (self.dir(), self.name());
        let result = self.fs.unlink(ObjectId(dir), &name);
        let id = self.files[&dir].entries.get(&name).copied();
        match id.filter(|id| !self.files[id].is_dir()) {
            None => assert!(result.is_err()),
            Some(id) => {
                result.expect("unlinked");
                self.files.get_mut(&dir).expect("there").entries.remove(&name);
                self.lose_name(id);
            }
        }
    }

    fn rmdir(&mut self) {
        let (dir, name) = (self.dir(), self.name());
        let result = self.fs.rmdir(ObjectId(dir), &name);
        let id = self.files[&dir].entries.get(&name).copied();
        match id.filter(|id| self.files[id].is_dir() && self.files[id].entries.is_empty()) {
            None => assert!(result.is_err()),
            Some(id) => {
                result.expect("removed");
                let parent = self.files.get_mut(&dir).expect("there");
                parent.entries.remove(&name);
                parent.links -= 1;
                self.lose_name(id);
            }
        }
    }

    fn link(&mut self) {
        let (dir, name) = (self.dir(), self.name());
        let Some(id) = self.pick(|file| !file.is_dir()) else { return };
        let result = self.fs.link(ObjectId(id), ObjectId(dir), &name);
        if self.files[&dir].entries.contains_key(&name) || self.files[&id].links == 0 {
            assert!(result.is_err());
            return;
        }
        result.expect("linked");
        self.files.get_mut(&dir).expect("there").entries.insert(name, id);
        let file = self.files.get_mut(&id).expect("there");
        (file.links, file.parent) = (file.links + 1, dir);
    }

    fn is_below(&self, dir: u64, ancestor: u64) -> bool {
        let mut at = dir;
        while at != ancestor {
            if at == self.root {
                return false;
            }
            at = self.files[&at].parent;
        }
        true
    }

    fn rename(&mut self) {
        let (from_dir, to_dir) = (self.dir(), self.dir());
        let (from, to) = (self.name(), self.name());
        let how = match self.below(5) {
            0 => RenameHow::Exchange,
            1 => RenameHow::NoReplace,
            _ => RenameHow::Replace,
        };
        let result = self.fs.rename(ObjectId(from_dir), &from, ObjectId(to_dir), &to, how);
        let source = self.files[&from_dir].entries.get(&from).copied();
        let target = self.files[&to_dir].entries.get(&to).copied();
        let Some(source) = source else {
            assert!(result.is_err());
            return;
        };
        if target == Some(source) {
            assert_eq!(result.is_ok(), how != RenameHow::NoReplace);
            return;
        }
        let source_is_dir = self.files[&source].is_dir();
        let mut allowed = !(source_is_dir && self.is_below(to_dir, source));
        match (how, target) {
            (RenameHow::NoReplace, Some(_)) | (RenameHow::Exchange, None) => allowed = false,
            (RenameHow::Exchange, Some(target)) => {
                allowed &= !(self.files[&target].is_dir() && self.is_below(from_dir, target));
            }
            (_, Some(target)) => {
                let file = &self.files[&target];
                allowed &= file.is_dir() == source_is_dir && file.entries.is_empty();
            }
            _ => {}
        }
        if !allowed {
            assert!(result.is_err(), "rename of {source} in {from_dir} to {to_dir}: {how:?}");
            return;
        }
        result.expect("renamed");
        self.files.get_mut(&from_dir).expect("there").entries.remove(&from);
        self.files.get_mut(&to_dir).expect("there").entries.insert(to, source);
        self.files.get_mut(&source).expect("there").parent = to_dir;
        if source_is_dir {
            self.files.get_mut(&from_dir).expect("there").links -= 1;
            self.files.get_mut(&to_dir).expect("there").links += 1;
        }
        let Some(target) = target else { return };
        let target_is_dir = self.files[&target].is_dir();
        if target_is_dir {
            self.files.get_mut(&to_dir).expect("there").links -= 1;
        }
        if how == RenameHow::Exchange {
            self.files.get_mut(&from_dir).expect("there").entries.insert(from, target);
            self.files.get_mut(&target).expect("there").parent = from_dir;
            if target_is_dir {
                self.files.get_mut(&from_dir).expect("there").links += 1;
            }
        } else {
            self.lose_name(target);
        }
    }

    fn regular(&mut self) -> Option<u64> {
        self.pick(|file| file.kind == FileKind::Regular)
    }

    fn write(&mut self) {
        let Some(id) = self.regular() else { return };
        let size = self.files[&id].data.len() as u64;
        let append = self.random.one_in(4);
        let reach = match self.below(4) {
            0 => 1000,
            1 => 200_000,
            _ => size + 5000,
        };
        let offset = if append { size } else { self.below(reach) };
        let longest = if self.random.one_in(3) { 150_000 } else { 3000 };
        let mut data = vec![0; 1 + self.below(longest) as usize];
        self.random.fill(&mut data);
        let how = WriteHow { append, ..WriteHow::default() };
        self.fs.write(ObjectId(id), offset, &data, &how).expect("written");
        let file = self.files.get_mut(&id).expect("there");
        let end = offset as usize + data.len();
        if file.data.len() < end {
            file.data.resize(end, 0);
        }
        file.data[offset as usize..end].copy_from_slice(&data);
    }

    fn truncate(&mut self) {
        let Some(id) = self.regular() else { return };
        let size = match self.below(4) {
            0 => 0,
            1 => self.below(400_000),
            _ => self.below(self.files[&id].data.len() as u64 + 100),
        };
        self.fs.truncate(ObjectId(id), size, false).expect("cut");
        self.files.get_mut(&id).expect("there").data.resize(size as usize, 0);
    }

    fn punch(&mut self) {
        let Some(id) = self.regular() else { return };
        let size = self.files[&id].data.len() as u64;
        let (offset, len) = (self.below(size + 10), 1 + self.below(size + 10));
        let keep_size = self.random.one_in(2);
        let how = if self.random.one_in(2) { Allocate::Punch } else { Allocate::Zero { keep_size } };
        self.fs.fallocate(ObjectId(id), offset, len, how).expect("punched");
        let file = self.files.get_mut(&id).expect("there");
        if how == (Allocate::Zero { keep_size: false }) {
            file.data.resize(file.data.len().max((offset + len) as usize), 0);
        }
        let (start, end) = (offset.min(size) as usize, (offset + len).min(size) as usize);
        file.data[start..end].fill(0);
    }

    fn xattr(&mut self) {
        let Some(id) = self.pick(|file| file.links > 0) else { return };
        let name = format!("user.attribute{}", self.below(5)).into_bytes();
        if self.random.one_in(3) {
            let result = self.fs.remove_xattr(ObjectId(id), &name);
            let removed = self.files.get_mut(&id).expect("there").xattrs.remove(&name);
            assert_eq!(result.is_ok(), removed.is_some());
            return;
        }
        let longest = match self.below(8) {
            0 => 40_000,
            1 => 5000,
            _ => 60,
        };
        let mut value = vec![0; self.below(longest) as usize];
        self.random.fill(&mut value);
        if self.random.one_in(8) {
            self.options.xattrs = match self.options.xattrs {
                XattrStorage::Directory => XattrStorage::SystemAttributes,
                _ => XattrStorage::Directory,
            };
            self.fs.set_options(self.options.clone());
        }
        self.fs.set_xattr(ObjectId(id), &name, &value, XattrHow::Either).expect("set");
        self.files.get_mut(&id).expect("there").xattrs.insert(name, value);
    }

    fn setattr(&mut self) {
        let Some(id) = self.pick(|_| true) else { return };
        let mode = self.random.one_in(2).then(|| self.random.below(0o1000) as u32);
        let uid = self.random.one_in(2).then(|| self.random.below(3) as u32);
        let gid = self.random.one_in(2).then(|| self.random.below(3) as u32);
        let project = self.random.one_in(4).then(|| self.random.below(3) as u32);
        let new = NewAttrs { mode, uid, gid, project, ..NewAttrs::default() };
        self.fs.set_attrs(ObjectId(id), &new).expect("changed");
        let file = self.files.get_mut(&id).expect("there");
        file.mode = mode.map_or(file.mode, |mode| file.mode & !0o7777 | mode);
        file.uid = uid.map_or(file.uid, u64::from);
        file.gid = gid.map_or(file.gid, u64::from);
        file.project = project.map_or(file.project, u64::from);
    }

    fn hold(&mut self) {
        if self.held.len() < 6
            && let Some(id) = self.pick(|_| true)
        {
            self.held.push(self.fs.hold(ObjectId(id)).expect("held"));
        }
    }

    fn release(&mut self) {
        if !self.held.is_empty() {
            let index = self.below(self.held.len() as u64) as usize;
            let id = self.held.swap_remove(index).id().0;
            if !self.is_held(id) && self.files[&id].links == 0 {
                self.files.remove(&id);
            }
        }
    }

    fn read(&mut self) {
        let Some(id) = self.regular() else { return };
        let data = &self.files[&id].data;
        let mut bytes = vec![1; data.len() + 10];
        assert_eq!(self.fs.read(ObjectId(id), 0, &mut bytes).expect("read"), data.len());
        assert!(bytes[..data.len()] == data[..], "content of {id}");
    }

    fn sync(&mut self) {
        self.world.sync();
        *self.log.0.lock().expect("whole") = Recorded::default();
    }

    fn forget_orphans(&mut self) {
        let orphans: Vec<u64> =
            self.files.iter().filter(|(_, file)| file.links == 0).map(|(id, _)| *id).collect();
        for id in orphans {
            self.files.remove(&id);
        }
    }

    fn remount(&mut self) {
        self.held.clear();
        self.forget_orphans();
        while !self.fs.drain(100).expect("drained") {}
        self.sync();
        self.fs = self.world.remounted(self.options.clone());
        assert!(self.fs.drain(1).expect("drained"));
        self.fs.set_log(Arc::clone(&self.log) as Arc<dyn IntentLog>);
    }

    /// Drops the changes since the last sync, and replays them from the log.
    fn crash(&mut self) {
        let recorded = std::mem::take(&mut *self.log.0.lock().expect("whole"));
        if recorded.is_beyond_records {
            while !self.fs.drain(100).expect("drained") {}
            return self.sync();
        }
        self.held.drain(..).for_each(std::mem::forget);
        self.forget_orphans();
        self.fs = self.world.remounted(self.options.clone());
        for record in &recorded.records {
            let apply = || {
                let tx = self.world.home.txgs.begin().expect("open");
                replay(&self.fs, record, None, &tx)
            };
            if apply().is_err() {
                self.world.sync();
                apply().unwrap_or_else(|error| panic!("{record:?}: {error}"));
            }
        }
        while !self.fs.drain(100).expect("drained") {}
        self.fs.set_log(Arc::clone(&self.log) as Arc<dyn IntentLog>);
        self.sync();
    }

    /// Compares the whole state on disk with the model.
    fn check(&self) {
        let read = self.world.reopened();
        let mut objects = BTreeSet::new();
        for (id, file) in &self.files {
            check_file(&read, *id, file);
            objects.insert(*id);
        }
        let mut orphans: Vec<u64> =
            self.files.iter().filter(|(_, file)| file.links == 0).map(|(id, _)| *id).collect();
        orphans.sort_unstable();
        let mut unlinked: Vec<u64> = read.unlinked().expect("set").iter().map(|id| id.0).collect();
        unlinked.sort_unstable();
        assert_eq!(unlinked, orphans);
        check_accounting(&read, &objects);
    }
}

fn check_file(read: &Arc<Filesystem>, id: u64, file: &File) {
    let node = read.node(ObjectId(id)).unwrap_or_else(|error| panic!("{id}: {error}"));
    let attrs = node.attrs();
    assert_eq!((node.kind(), attrs.mode, attrs.links), (file.kind, file.mode, file.links), "{id}");
    assert_eq!((attrs.uid, attrs.gid, attrs.projid), (file.uid, file.gid, file.project), "{id}");
    match file.kind {
        FileKind::Directory => {
            let entries: BTreeMap<Vec<u8>, u64> = node
                .entries()
                .expect("readable")
                .map(|entry| entry.map(|entry| (entry.name, entry.id.0)).expect("readable"))
                .collect();
            assert_eq!(entries, file.entries, "{id}");
            assert_eq!(attrs.size, entries.len() as u64 + 2, "{id}");
            assert_eq!(attrs.parent.0, file.parent, "{id}");
        }
        FileKind::Regular => {
            assert_eq!(attrs.size, file.data.len() as u64, "{id}");
            let mut bytes = vec![1; file.data.len()];
            node.read_at(0, &mut bytes).expect("readable");
            assert!(bytes == file.data, "content of {id}");
        }
        FileKind::Symlink => assert_eq!(node.readlink().expect("readable"), file.target, "{id}"),
        _ => {}
    }
    let xattrs: BTreeMap<Vec<u8>, Vec<u8>> = node.xattr_values().expect("readable").into_iter().collect();
    assert!(xattrs == file.xattrs, "extended attributes of {id}");
    assert!(!node.acl().expect("readable").aces.is_empty());
}

/// Checks that the accounting objects equal the sums over all files, and that no object is lost.
fn check_accounting(read: &Arc<Filesystem>, expected: &BTreeSet<u64>) {
    let objset = read.objset();
    let mut sums: [BTreeMap<u64, (u64, u64)>; 3] = Default::default();
    let mut at = ObjectId(1);
    while let Some(object) = objset.next_object(at).expect("walk") {
        at = ObjectId(object.id().0 + 1);
        let node: Option<Node> = read.node_of(object.clone()).ok();
        let owners = node.as_ref().map_or([0; 3], |node| {
            let attrs = node.attrs();
            [attrs.uid, attrs.gid, attrs.projid]
        });
        if let Some(node) = &node
            && !node.attrs().is_xattr()
        {
            assert!(expected.contains(&object.id().0), "object {} was not freed", object.id());
        }
        let dnode = object.dnode();
        for (sum, owner) in sums.iter_mut().zip(owners) {
            if dnode.flags & format::dnode::FLAG_USERUSED_ACCOUNTED != 0 && node.is_some() {
                let entry = sum.entry(owner).or_default();
                *entry = (entry.0 + 512 + dnode.used_bytes(), entry.1 + 1);
            }
        }
    }
    for (kind, sum) in [SpaceKind::User, SpaceKind::Group, SpaceKind::Project].into_iter().zip(&sums) {
        let rows = read.space(kind).expect("readable");
        let counted: BTreeMap<u64, (u64, u64)> =
            rows.iter().map(|row| (row.id, (row.used, row.objects.unwrap_or(0)))).collect();
        assert_eq!(&counted, sum, "{kind:?}");
    }
}

fn run(seed: u64, options: FsOptions, steps: u64) {
    let guard = Named(seed);
    let mut run = Run::new(seed, options);
    for step in 0..steps {
        run.world.clock.advance(std::time::Duration::from_millis(7));
        run.step();
        if run.random.one_in(60) {
            run.sync();
        }
        if run.random.one_in(150) {
            run.crash();
            run.check();
        }
        if step % 400 == 399 {
            while !run.fs.drain(100).expect("drained") {}
            run.sync();
            run.check();
        }
        if step % 1000 == 999 {
            run.remount();
            run.check();
        }
    }
    std::mem::forget(guard);
}

/// Prints the seed that failed.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        eprintln!("seed {}", self.0);
    }
}

#[test]
fn random_operations_are_those_of_posix() {
    // `SEEDS`: more runs, to find rare failures.
    let seeds = std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(3);
    for seed in 1..seeds {
        run(seed, FsOptions::default(), 1500);
    }
}

#[test]
fn random_operations_with_small_records_and_large_dnodes() {
    run(40, FsOptions { record_size: 4096, dnode_slots: 3, ..FsOptions::default() }, 1200);
}

#[test]
fn random_operations_with_attributes_in_directories() {
    run(50, FsOptions { xattrs: XattrStorage::Directory, ..FsOptions::default() }, 1200);
}
