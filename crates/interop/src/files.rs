//! Operations on files and volumes.

use crate::content::{Content, File, Tree};
use crate::history::Durable;
use crate::plan::Setting;
use crate::world::{Open, World};
use crate::{Failure, wrong};
use dsl::SyncMode;
use format::ObjectId;
use format::acl::{POSIX_ACCESS, POSIX_DEFAULT, PosixEntry, PosixWho};
use format::znode::Time;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use zpl::{
    Allocate, BeginError, FileRange, Fs, NewAttrs, NewFile, PoolClones, QuotaOf, RenameHow, VolumeWriter,
    WriteHow, XattrHow, encode_posix,
};
use zpl::{FileKind, SpaceKind, ZplError};

/// Most names in a file system.
pub(crate) const NAMES_MAX: usize = 60;
/// Length up to which most files are written, in bytes.
const FILE_MAX: u64 = 400_000;

/// Bytes that are written in one transaction and one log record, whatever the block size.
const ONE_RECORD: u64 = 16 << 10;
/// Flag of a directory in Linux: new files in it get its project.
const INHERITS_PROJECT: u32 = 0x2000_0000;

/// Whether an error is a permitted refusal, after which the trial continues.
fn is_refusal(error: &ZplError) -> bool {
    matches!(
        error,
        ZplError::Begin(BeginError::NoSpace(_) | BeginError::Quota(_))
            | ZplError::OverQuota { .. }
            | ZplError::CannotClone { .. }
            | ZplError::NotYetWritten { .. }
            | ZplError::Unsupported { .. }
            | ZplError::OtherProject { .. }
    )
}

/// `None` if the operation was refused for a permitted reason.
pub(crate) fn allowed<T>(what: &str, result: Result<T, ZplError>) -> Result<Option<T>, Failure> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_refusal(&error) => Ok(None),
        Err(error) => wrong(format!("{what}: {}", cenote::error::chain(&error))),
    }
}

/// The file system that is worked on, and its model, which is taken out of the world meanwhile.
pub(crate) struct Work {
    pub(crate) name: String,
    pub(crate) fs: Arc<Fs>,
    pub(crate) tree: Tree,
}

impl Work {
    fn parent_of(&self, path: &str) -> (ObjectId, String) {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        let id = self.tree.names.get(dir).map_or(self.fs.root(), |id| ObjectId(*id));
        (id, name.to_owned())
    }

    fn kind(&self, id: u64) -> FileKind {
        self.tree.files[&id].kind
    }

    /// Updates the model from the file after a change of its access control list: how lists and permissions
    /// affect each other is tested elsewhere.
    fn reread_acl(&mut self, id: u64) -> Result<(), Failure> {
        let node = self.fs.node(ObjectId(id))?;
        let lists = node.xattr_values()?.into_iter().filter(|(name, _)| name.starts_with(b"system."));
        let lists: Vec<(String, Vec<u8>)> =
            lists.map(|(name, value)| (String::from_utf8_lossy(&name).into_owned(), value)).collect();
        let mode = node.attrs().mode & 0o7777;
        self.tree.change(id, |file| {
            file.mode = mode;
            file.xattrs.retain(|name, _| !name.starts_with("system."));
            file.xattrs.extend(lists);
        });
        Ok(())
    }

    /// Updates the model from the file after a write that failed half-way.
    pub(crate) fn reread(&mut self, id: u64) -> Result<(), Failure> {
        let size = self.fs.attrs(ObjectId(id))?.size;
        let mut bytes = vec![0; size as usize];
        self.fs.read(ObjectId(id), 0, &mut bytes)?;
        self.tree.change(id, |file| {
            (file.bytes, file.mtime, file.in_parts) = (bytes, None, true);
        });
        Ok(())
    }
}

impl World {
    pub(crate) fn change_contents(&mut self) -> Result<(), Failure> {
        let heads: Vec<String> = self.model.heads.keys().cloned().collect();
        let Some(name) = self.pick(&heads) else { return Ok(()) };
        let fs = match self.open_head(&name)? {
            Open::Files(files) => Arc::clone(&files.fs),
            Open::Volume(volume) => {
                let volume = Arc::clone(&volume.volume);
                return self.change_volume(&name, &volume);
            }
        };
        let Some(head) = self.model.heads.get_mut(&name) else { return Ok(()) };
        let Content::Files(tree) = std::mem::replace(&mut head.content, Content::Files(Tree::default()))
        else {
            return wrong("a volume is open as a file system");
        };
        let mut work = Work { name, fs, tree };
        let times = 1 + self.random.below(12);
        let outcome = (0..times).try_for_each(|_| {
            self.show(&work);
            self.begin();
            self.change_file(&mut work)?;
            self.settle(&work)
        });
        if let Some(head) = self.model.heads.get_mut(&work.name) {
            head.content = Content::Files(work.tree);
        }
        outcome
    }

    /// Copies the tree into the model of the world if the history is recorded.
    pub(crate) fn show(&mut self, work: &Work) {
        if let (Some(_), Some(head)) = (&self.history, self.model.heads.get_mut(&work.name)) {
            head.content = Content::Files(work.tree.clone());
        }
    }

    /// Records that every change is durable if the file system has `sync=always`.
    fn settle(&mut self, work: &Work) -> Result<(), Failure> {
        let Some(Open::Files(files)) = self.open.get(&work.name) else { return Ok(()) };
        if files.head().sync_mode() == SyncMode::Always {
            files.sync()?;
            self.promise(Durable::Head(self.model.heads[&work.name].serial));
        }
        Ok(())
    }

    fn change_file(&mut self, work: &mut Work) -> Result<(), Failure> {
        let is_full = work.tree.names.len() >= NAMES_MAX;
        if matches!(self.plan.setting, Setting::Full | Setting::Pieces) && self.random.one_in(6) {
            return self.fill_up(work);
        }
        match self.random.below(100) {
            0..=19 if !is_full => self.create_file(work),
            20..=23 if !is_full => self.link(work),
            0..=23 => self.remove(work),
            24..=50 => self.write(work),
            51..=55 => self.truncate(work),
            56..=61 => self.allocate(work),
            62..=68 => self.rename(work),
            69..=76 => self.remove(work),
            77..=80 => self.set_attrs(work),
            81 => self.set_acl(work),
            82..=87 => self.set_xattr(work),
            88..=92 => self.share(work),
            93..=95 => self.commit(work),
            96 => self.set_quota(work),
            97 => self.orphan(work),
            98 => Ok(work.fs.drain(4).map(drop)?),
            _ => {
                self.pool().sync()?;
                self.promise(Durable::Pool);
                Ok(())
            }
        }
    }

    fn pick_name(&mut self, work: &Work, wanted: impl Fn(FileKind) -> bool) -> Option<(String, u64)> {
        let names = work.tree.names.iter().filter(|(_, id)| wanted(work.kind(**id)));
        let names: Vec<(String, u64)> = names.map(|(name, id)| (name.clone(), *id)).collect();
        self.pick(&names)
    }

    fn pick_file(&mut self, work: &Work) -> Option<(String, u64)> {
        self.pick_name(work, |kind| kind == FileKind::Regular)
    }

    pub(crate) fn new_path(&mut self, work: &Work) -> String {
        let dir = match self.pick_name(work, |kind| kind == FileKind::Directory) {
            Some((path, _)) if self.random.below(3) > 0 => path,
            _ => String::new(),
        };
        self.counter += 1;
        match self.random.below(8) {
            // A long name: directories outgrow their small form.
            0 => format!("{dir}/{:080}", self.counter),
            _ => format!("{dir}/f{}", self.counter),
        }
    }

    fn create_file(&mut self, work: &mut Work) -> Result<(), Failure> {
        let path = self.new_path(work);
        let kind = match self.random.below(10) {
            0..=1 => FileKind::Directory,
            2 => FileKind::Symlink,
            3 => [FileKind::Fifo, FileKind::CharDevice, FileKind::Socket][self.random.below(3) as usize],
            _ => FileKind::Regular,
        };
        let bytes = match kind {
            FileKind::Symlink => {
                let len = 1 + self.random.below(400);
                (0..len).map(|i| b'a' + (i % 26) as u8).collect()
            }
            _ => Vec::new(),
        };
        let uid = self.random.below(3) as u32 * 1000;
        let rdev = if kind == FileKind::CharDevice { (5, 7) } else { (0, 0) };
        let new = NewFile { target: &bytes, uid, gid: uid, rdev, ..NewFile::of(kind, 0o644) };
        let (dir, name) = work.parent_of(&path);
        self.tell(format!("{} create {path} {kind:?}", work.name));
        let Some(made) = allowed("create", work.fs.create(dir, name.as_bytes(), &new))? else {
            return Ok(());
        };
        self.note_file(work, path, made.id, kind, bytes)
    }

    /// Adds a new file to the model, with the attributes that it inherited.
    pub(crate) fn note_file(
        &mut self,
        work: &mut Work,
        path: String,
        id: ObjectId,
        kind: FileKind,
        bytes: Vec<u8>,
    ) -> Result<(), Failure> {
        self.serial += 1;
        let attrs = work.fs.attrs(id)?;
        let file = File {
            serial: self.serial,
            kind,
            bytes,
            mode: attrs.mode & 0o7777,
            uid: attrs.uid as u32,
            gid: attrs.gid as u32,
            project: attrs.projid as u32,
            mtime: None,
            xattrs: BTreeMap::new(),
            in_parts: false,
        };
        work.tree.files.insert(id.0, Rc::new(file));
        work.tree.names.insert(path, id.0);
        work.reread_acl(id.0)
    }

    fn link(&mut self, work: &mut Work) -> Result<(), Failure> {
        let Some((_, id)) = self.pick_file(work) else { return Ok(()) };
        let path = self.new_path(work);
        let (dir, name) = work.parent_of(&path);
        self.tell(format!("{} link {id} {path}", work.name));
        if allowed("link", work.fs.link(ObjectId(id), dir, name.as_bytes()))?.is_some() {
            work.tree.names.insert(path, id);
        }
        Ok(())
    }

    fn write(&mut self, work: &mut Work) -> Result<(), Failure> {
        let Some((path, id)) = self.pick_file(work) else { return Ok(()) };
        let size = work.tree.files[&id].bytes.len() as u64;
        let offset = match self.random.below(3) {
            0 => size,
            1 => 0,
            _ => self.random.below(FILE_MAX),
        };
        let most = [100, 5_000, 70_000, 300_000][self.random.below(4) as usize];
        let most = if self.history.is_none() && self.random.one_in(40) { 3_000_000 } else { most };
        let len = 1 + self.random.below(most);
        let offset = offset.min(FILE_MAX);
        let data = self.noise(len);
        self.tell(format!("{} write {path} ({id}) {len} at {offset}", work.name));
        let how = WriteHow { append: offset == size && self.random.one_in(2), ..WriteHow::default() };
        let written = work.fs.write(ObjectId(id), offset, &data, &how);
        if allowed("write", written)?.is_none() {
            return work.reread(id);
        }
        work.tree.change(id, |file| {
            let end = (offset + len) as usize;
            if file.bytes.len() < end {
                file.bytes.resize(end, 0);
            }
            file.bytes[offset as usize..end].copy_from_slice(&data);
            (file.mtime, file.in_parts) = (None, len > ONE_RECORD);
        });
        // Like a file that was opened with O_SYNC.
        if self.random.one_in(8) { self.fsync(work, id) } else { Ok(()) }
    }

    fn truncate(&mut self, work: &mut Work) -> Result<(), Failure> {
        let Some((path, id)) = self.pick_file(work) else { return Ok(()) };
        let size = if self.random.one_in(4) { 0 } else { self.random.below(FILE_MAX) };
        self.tell(format!("{} truncate {path} ({id}) {size}", work.name));
        if allowed("truncate", work.fs.truncate(ObjectId(id), size, false))?.is_none() {
            return work.reread(id);
        }
        work.tree.change(id, |file| {
            file.bytes.resize(size as usize, 0);
            (file.mtime, file.in_parts) = (None, false);
        });
        Ok(())
    }

    fn allocate(&mut self, work: &mut Work) -> Result<(), Failure> {
        let Some((path, id)) = self.pick_file(work) else { return Ok(()) };
        let size = work.tree.files[&id].bytes.len() as u64;
        if size == 0 {
            return Ok(());
        }
        let offset = self.random.below(size);
        let mut len = 1 + self.random.below(size - offset);
        let keep_size = self.random.one_in(2);
        let how = match self.random.below(5) {
            0 => Allocate::Reserve { keep_size },
            1 | 2 => Allocate::Zero { keep_size },
            _ => Allocate::Punch,
        };
        if how != Allocate::Punch && self.random.one_in(2) {
            len += self.random.below(30_000);
        }
        self.tell(format!("{} {how:?} {path} ({id}) {len} at {offset}", work.name));
        if allowed("fallocate", work.fs.fallocate(ObjectId(id), offset, len, how))?.is_none() {
            return work.reread(id);
        }
        work.tree.change(id, |file| {
            let grows = how != Allocate::Punch && !keep_size;
            if grows && file.bytes.len() < (offset + len) as usize {
                file.bytes.resize((offset + len) as usize, 0);
            }
            if !matches!(how, Allocate::Reserve { .. }) {
                let end = file.bytes.len().min((offset + len) as usize);
                file.bytes[offset as usize..end].fill(0);
            }
            (file.mtime, file.in_parts) = (None, true);
        });
        Ok(())
    }

    fn rename(&mut self, work: &mut Work) -> Result<(), Failure> {
        let Some((from, id)) = self.pick_name(work, |kind| kind != FileKind::Directory) else {
            return Ok(());
        };
        let other = self.pick_name(work, |kind| kind != FileKind::Directory);
        let (to, how) = match other {
            Some((to, other)) if other != id && self.random.one_in(2) => {
                let hows =
                    [RenameHow::Exchange, RenameHow::Replace, RenameHow::Whiteout { uid: 1000, gid: 2000 }];
                (to, hows[self.random.below(3) as usize])
            }
            _ => (self.new_path(work), RenameHow::NoReplace),
        };
        let ((from_dir, from_name), (to_dir, to_name)) = (work.parent_of(&from), work.parent_of(&to));
        self.tell(format!("{} rename {from} {to} {how:?}", work.name));
        let done = work.fs.rename(from_dir, from_name.as_bytes(), to_dir, to_name.as_bytes(), how);
        if allowed("rename", done)?.is_none() {
            return Ok(());
        }
        if how == RenameHow::Exchange {
            let other = work.tree.names.insert(to, id).unwrap_or_default();
            work.tree.names.insert(from, other);
        } else {
            // The new name is added first, so that the last name of a file is never missing in between.
            let old = work.tree.names.insert(to, id);
            work.tree.names.remove(&from);
            if let Some(old) = old
                && !work.tree.names.values().any(|other| *other == old)
            {
                work.tree.files.remove(&old);
            }
            if matches!(how, RenameHow::Whiteout { .. }) {
                let made = work.fs.lookup(from_dir, from_name.as_bytes())?;
                let Some(made) = made else { return wrong(format!("no whiteout at {from}")) };
                return self.note_file(work, from, made, FileKind::CharDevice, Vec::new());
            }
        }
        Ok(())
    }

    fn remove(&mut self, work: &mut Work) -> Result<(), Failure> {
        let Some((path, id)) = self.pick_name(work, |_| true) else { return Ok(()) };
        let (dir, name) = work.parent_of(&path);
        let below = format!("{path}/");
        let is_dir = work.kind(id) == FileKind::Directory;
        if is_dir && work.tree.names.keys().any(|other| other.starts_with(&below)) {
            return Ok(());
        }
        self.tell(format!("{} remove {path} ({id})", work.name));
        let done = match is_dir {
            true => work.fs.rmdir(dir, name.as_bytes()),
            false => work.fs.unlink(dir, name.as_bytes()),
        };
        if allowed("remove", done)?.is_some() {
            work.tree.forget_name(&path);
        }
        Ok(())
    }

    fn set_attrs(&mut self, work: &mut Work) -> Result<(), Failure> {
        let Some((path, id)) = self.pick_name(work, |kind| kind != FileKind::Symlink) else { return Ok(()) };
        let mut mode = self.random.below(0o1000) as u32;
        if work.kind(id) == FileKind::Directory && self.random.one_in(2) {
            mode |= 0o2000;
        }
        let (uid, gid) = (self.random.below(5) as u32 * 1000, self.random.below(5) as u32 * 1000);
        let projects = work.fs.options().projects && self.random.one_in(2);
        let project = projects.then(|| self.random.below(4) as u32);
        // The modification time of a directory changes with its names.
        let sets_mtime = work.kind(id) != FileKind::Directory && self.random.one_in(2);
        let mtime = sets_mtime.then(|| self.random.below(1 << 33) as i64);
        let linux_flags = projects.then_some(INHERITS_PROJECT).filter(|_| self.random.one_in(4));
        let new = NewAttrs {
            mode: self.random.one_in(2).then_some(mode),
            uid: self.random.one_in(2).then_some(uid),
            gid: self.random.one_in(2).then_some(gid),
            mtime: mtime.map(|secs| Time { secs, nanos: 5 }),
            project,
            linux_flags: linux_flags.filter(|_| work.kind(id) == FileKind::Directory),
            ..NewAttrs::default()
        };
        self.tell(format!("{} set {path} ({id}) {new:?}", work.name));
        if allowed("set", work.fs.set_attrs(ObjectId(id), &new))?.is_some() {
            work.tree.change(id, |file| {
                file.mode = new.mode.unwrap_or(file.mode);
                file.uid = new.uid.unwrap_or(file.uid);
                file.gid = new.gid.unwrap_or(file.gid);
                file.project = new.project.unwrap_or(file.project);
                file.mtime = mtime.or(file.mtime);
            });
            work.reread_acl(id)?;
        }
        Ok(())
    }

    fn set_acl(&mut self, work: &mut Work) -> Result<(), Failure> {
        let wanted = |kind| matches!(kind, FileKind::Regular | FileKind::Directory);
        let Some((path, id)) = self.pick_name(work, wanted) else { return Ok(()) };
        let mut list = vec![PosixEntry { who: PosixWho::UserObj, perm: self.random.below(8) as u16 }];
        for i in 0..self.random.below(20) {
            list.push(PosixEntry { who: PosixWho::User(1000 + i as u32), perm: self.random.below(8) as u16 });
        }
        for who in [PosixWho::GroupObj, PosixWho::Group(2000), PosixWho::Mask, PosixWho::Other] {
            list.push(PosixEntry { who, perm: self.random.below(8) as u16 });
        }
        let is_default = work.kind(id) == FileKind::Directory && self.random.one_in(2);
        let name = if is_default { POSIX_DEFAULT } else { POSIX_ACCESS };
        self.tell(format!("{} {name} {path} ({id}) {}", work.name, list.len()));
        let value = encode_posix(&list);
        let done = work.fs.set_xattr(ObjectId(id), name.as_bytes(), &value, XattrHow::Either);
        if allowed("acl", done)?.is_some() {
            work.reread_acl(id)?;
        }
        Ok(())
    }

    fn set_xattr(&mut self, work: &mut Work) -> Result<(), Failure> {
        let wanted = |kind| matches!(kind, FileKind::Regular | FileKind::Directory);
        let Some((path, id)) = self.pick_name(work, wanted) else { return Ok(()) };
        let name = format!("user.x{}", self.random.below(4));
        let has = work.tree.files[&id].xattrs.contains_key(&name);
        if has && self.random.one_in(3) {
            self.tell(format!("{} remove xattr {name} of {path} ({id})", work.name));
            if allowed("xattr", work.fs.remove_xattr(ObjectId(id), name.as_bytes()))?.is_some() {
                work.tree.change(id, |file| drop(file.xattrs.remove(&name)));
            }
            return Ok(());
        }
        let most = [60, 500, 5_000, 60_000][self.random.below(4) as usize];
        let len = 1 + self.random.below(most);
        let value = self.noise(len);
        self.tell(format!("{} set xattr {name} of {path} ({id}) {len}", work.name));
        let done = work.fs.set_xattr(ObjectId(id), name.as_bytes(), &value, XattrHow::Either);
        if allowed("xattr", done)?.is_some() {
            work.tree.change(id, |file| drop(file.xattrs.insert(name, value)));
        } else {
            self.tell("  refused");
        }
        Ok(())
    }

    /// Shares blocks of one file with another.
    fn share(&mut self, work: &mut Work) -> Result<(), Failure> {
        if !self.plan.clones_files {
            return Ok(());
        }
        let (Some((_, from)), Some((_, to))) = (self.pick_file(work), self.pick_file(work)) else {
            return Ok(());
        };
        let source = work.tree.files[&from].bytes.clone();
        if from == to || source.is_empty() {
            return Ok(());
        }
        if self.random.below(3) > 0 {
            // Blocks that are only in memory cannot be shared.
            self.pool().sync()?;
            self.promise(Durable::Pool);
            self.begin();
        }
        let len = source.len() as u64;
        self.tell(format!("{} share {from} {to} {len}", work.name));
        let table = PoolClones::new(self.pool().brt());
        let begin = |id| FileRange { id: ObjectId(id), offset: 0 };
        let shared = work.fs.clone_range(&work.fs, begin(from), begin(to), len, &table);
        let Some(shared) = allowed("share", shared)? else { return work.reread(to) };
        self.tell(format!("  {shared} shared"));
        let shared = shared as usize;
        work.tree.change(to, |file| {
            if file.bytes.len() < shared {
                file.bytes.resize(shared, 0);
            }
            file.bytes[..shared].copy_from_slice(&source[..shared]);
            (file.mtime, file.in_parts) = (None, true);
        });
        if self.plan.setting == Setting::Clones && self.random.one_in(2) {
            return self.fsync(work, to);
        }
        Ok(())
    }

    fn commit(&mut self, work: &Work) -> Result<(), Failure> {
        if let (Some((_, id)), true) = (self.pick_file(work), self.random.one_in(2)) {
            return self.fsync(work, id);
        }
        self.tell(format!("{} sync of the dataset", work.name));
        let Some(Open::Files(files)) = self.open.get(&work.name) else { return Ok(()) };
        files.sync()?;
        if files.head().sync_mode() != SyncMode::Disabled {
            self.promise(Durable::Head(self.model.heads[&work.name].serial));
        }
        Ok(())
    }

    fn fsync(&mut self, work: &Work, id: u64) -> Result<(), Failure> {
        self.tell(format!("{} fsync {id}", work.name));
        let Some(Open::Files(files)) = self.open.get(&work.name) else { return Ok(()) };
        files.fsync(ObjectId(id))?;
        if files.head().sync_mode() != SyncMode::Disabled {
            let file = work.tree.files[&id].serial;
            self.promise(Durable::File(self.model.heads[&work.name].serial, file));
        }
        Ok(())
    }

    fn set_quota(&mut self, work: &Work) -> Result<(), Failure> {
        if self.plan.setting != Setting::Ordinary && self.random.one_in(2) {
            return self.set_limit_of_everybody(work);
        }
        let mut kinds = vec![SpaceKind::User, SpaceKind::Group];
        if work.fs.options().projects {
            kinds.push(SpaceKind::Project);
        }
        let Some(kind) = self.pick(&kinds) else { return Ok(()) };
        let id =
            if kind == SpaceKind::Project { 1 + self.random.below(3) } else { self.random.below(3) * 1000 };
        let of = [QuotaOf::Space, QuotaOf::Objects][self.random.below(2) as usize];
        let limit = match of {
            QuotaOf::Space => [0, 1 << 20, 100 << 20],
            QuotaOf::Objects => [0, 12, 1000],
        }[self.random.below(3) as usize];
        self.tell(format!("{} quota {kind:?} {id} {limit}", work.name));
        allowed("quota", work.fs.set_quota(kind, of, id, limit)).map(drop)
    }

    fn set_limit_of_everybody(&mut self, work: &Work) -> Result<(), Failure> {
        let (of_users, of_space) = (self.random.one_in(2), self.random.one_in(2));
        let kind = if of_users { SpaceKind::User } else { SpaceKind::Group };
        let of = if of_space { QuotaOf::Space } else { QuotaOf::Objects };
        let limit = [0, 20, 1 << 20, 100 << 20][self.random.below(4) as usize];
        self.tell(format!("{} quota of every {kind:?}: {of:?} {limit}", work.name));
        let done = allowed("quota", work.fs.set_default_quota(kind, of, limit))?;
        if let (Some(()), Some(head)) = (done, self.model.heads.get_mut(&work.name)) {
            head.limits.insert((of_users, of_space), limit);
        }
        Ok(())
    }

    /// Makes a file that has no name, at first or for good.
    fn orphan(&mut self, work: &mut Work) -> Result<(), Failure> {
        self.tell(format!("{} file without a name", work.name));
        let new = NewFile::of(FileKind::Regular, 0o600);
        let Some(held) = allowed("tmpfile", work.fs.tmpfile(work.fs.root(), &new))? else { return Ok(()) };
        let data = self.noise(50_000);
        if allowed("write", work.fs.write(held.id(), 0, &data, &WriteHow::default()))?.is_none() {
            return Ok(());
        }
        let path = self.new_path(work);
        if self.random.one_in(2) || work.tree.names.len() >= NAMES_MAX {
            return Ok(());
        }
        let (dir, name) = work.parent_of(&path);
        self.tell(format!("  gets the name {path}"));
        match allowed("link", work.fs.link(held.id(), dir, name.as_bytes()))? {
            Some(_) => self.note_file(work, path, held.id(), FileKind::Regular, data),
            None => Ok(()),
        }
    }

    fn change_volume(&mut self, name: &str, volume: &Arc<VolumeWriter>) -> Result<(), Failure> {
        let Some(head) = self.model.heads.get(name) else { return Ok(()) };
        let Content::Volume(bytes) = &head.content else { return wrong("not a volume") };
        let (mut bytes, size) = (bytes.to_vec(), bytes.len() as u64);
        let offset = self.random.below(size);
        let len = 1 + self.random.below((size - offset).min(200_000));
        let range = offset as usize..(offset + len) as usize;
        let what = self.random.below(9);
        self.begin();
        self.tell(format!("{name} volume {what}: {len} at {offset}"));
        let done = match what {
            0 => {
                // Only whole blocks are discarded.
                let block = volume.block_size();
                let start = offset.next_multiple_of(block);
                let end = (offset + len) / block * block;
                if start < end {
                    bytes[start as usize..end as usize].fill(0);
                }
                volume.trim(offset, len)
            }
            1 => {
                bytes[range].fill(0);
                volume.write_zeroes(offset, len)
            }
            2 => {
                let blocks = 1 + self.random.below((4 << 20) / volume.block_size());
                let new = blocks * volume.block_size();
                bytes.resize(new as usize, 0);
                let done = volume.set_size(new).and_then(|_| volume.free_beyond());
                // The log records no volume sizes.
                self.pool().sync()?;
                done
            }
            8 => Ok(()),
            _ => {
                let data = self.noise(len);
                bytes[range].copy_from_slice(&data);
                volume.write_at(offset, &data)
            }
        };
        if allowed("volume", done)?.is_none() {
            bytes.resize(volume.size() as usize, 0);
            volume.read_at(0, &mut bytes)?;
        }
        let Some(head) = self.model.heads.get_mut(name) else { return Ok(()) };
        head.content = Content::Volume(Rc::new(bytes));
        let serial = head.serial;
        let Some(Open::Volume(open)) = self.open.get(name) else { return Ok(()) };
        if what == 2 {
            self.promise(Durable::Pool);
        } else if open.head().sync_mode() == SyncMode::Always || what == 8 {
            open.flush()?;
            if open.head().sync_mode() != SyncMode::Disabled {
                self.promise(Durable::Head(serial));
            }
        }
        Ok(())
    }
}
