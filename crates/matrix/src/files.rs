//! What is done to files and volumes.

use crate::content::{Content, File, Tree};
use crate::world::{Open, World};
use crate::{Failure, wrong};
use format::ObjectId;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use zpl::write::{
    Allocate, BeginError, FileRange, Fs, NewAttrs, NewFile, PoolClones, QuotaOf, RenameHow, VolumeWriter,
    WriteHow, XattrHow,
};
use zpl::{FileKind, SpaceKind, ZplError};

/// Most names in a file system.
const NAMES_MAX: usize = 60;
/// Files are not written beyond this, but for a few.
const FILE_MAX: u64 = 400_000;

/// What may be refused: the rest of the trial goes on.
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

/// `None` if it was refused for a reason that there may be.
fn allowed<T>(what: &str, result: Result<T, ZplError>) -> Result<Option<T>, Failure> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_refusal(&error) => Ok(None),
        Err(error) => wrong(format!("{what}: {}", crate::with_causes(&error))),
    }
}

/// The file system that is worked on: the engine's, and its model, taken out of the world meanwhile.
struct Work {
    name: String,
    fs: Arc<Fs>,
    tree: Tree,
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

    /// A write failed half-way: whatever it left is what is there now.
    fn reread(&mut self, id: u64) -> Result<(), Failure> {
        let size = self.fs.attrs(ObjectId(id))?.size;
        let mut bytes = vec![0; size as usize];
        self.fs.read(ObjectId(id), 0, &mut bytes)?;
        self.tree.change(id, |file| file.bytes = bytes);
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
        let outcome = (0..times).try_for_each(|_| self.change_file(&mut work));
        if let Some(head) = self.model.heads.get_mut(&work.name) {
            head.content = Content::Files(work.tree);
        }
        outcome
    }

    fn change_file(&mut self, work: &mut Work) -> Result<(), Failure> {
        let is_full = work.tree.names.len() >= NAMES_MAX;
        match self.random.below(100) {
            0..=19 if !is_full => self.create_file(work),
            20..=23 if !is_full => self.link(work),
            0..=23 => self.remove(work),
            24..=50 => self.write(work),
            51..=55 => self.truncate(work),
            56..=61 => self.allocate(work),
            62..=68 => self.rename(work),
            69..=76 => self.remove(work),
            77..=81 => self.set_attrs(work),
            82..=87 => self.set_xattr(work),
            88..=92 => self.share(work),
            93..=95 => self.commit(work),
            96 => self.set_quota(work),
            97 => self.orphan(work),
            98 => {
                work.fs.drain(4)?;
                Ok(())
            }
            _ => {
                self.pool().sync()?;
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

    fn new_path(&mut self, work: &Work) -> String {
        let dir = match self.pick_name(work, |kind| kind == FileKind::Directory) {
            Some((path, _)) if self.random.below(3) > 0 => path,
            _ => String::new(),
        };
        self.counter += 1;
        match self.random.below(8) {
            // Directories outgrow their small form.
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
        let mode = if kind == FileKind::Symlink { 0o777 } else { 0o644 };
        let file = File { kind, bytes, mode, uid, xattrs: BTreeMap::new() };
        work.tree.files.insert(made.id.0, Rc::new(file));
        work.tree.names.insert(path, made.id.0);
        Ok(())
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
        let most = if self.random.one_in(40) { 3_000_000 } else { most };
        let len = 1 + self.random.below(most);
        let offset = offset.min(FILE_MAX);
        let data = self.noise(len);
        self.tell(format!("{} write {path} ({id}) {len} at {offset}", work.name));
        let written = work.fs.write(ObjectId(id), offset, &data, &WriteHow::default());
        if allowed("write", written)?.is_none() {
            return work.reread(id);
        }
        work.tree.change(id, |file| {
            let end = (offset + len) as usize;
            if file.bytes.len() < end {
                file.bytes.resize(end, 0);
            }
            file.bytes[offset as usize..end].copy_from_slice(&data);
        });
        Ok(())
    }

    fn truncate(&mut self, work: &mut Work) -> Result<(), Failure> {
        let Some((path, id)) = self.pick_file(work) else { return Ok(()) };
        let size = if self.random.one_in(4) { 0 } else { self.random.below(FILE_MAX) };
        self.tell(format!("{} truncate {path} ({id}) {size}", work.name));
        if allowed("truncate", work.fs.truncate(ObjectId(id), size, false))?.is_none() {
            return work.reread(id);
        }
        work.tree.change(id, |file| file.bytes.resize(size as usize, 0));
        Ok(())
    }

    fn allocate(&mut self, work: &mut Work) -> Result<(), Failure> {
        let Some((path, id)) = self.pick_file(work) else { return Ok(()) };
        let size = work.tree.files[&id].bytes.len() as u64;
        if size == 0 {
            return Ok(());
        }
        let offset = self.random.below(size);
        let len = 1 + self.random.below(size - offset);
        let how = if self.random.one_in(3) { Allocate::Zero { keep_size: true } } else { Allocate::Punch };
        self.tell(format!("{} {how:?} {path} ({id}) {len} at {offset}", work.name));
        if allowed("fallocate", work.fs.fallocate(ObjectId(id), offset, len, how))?.is_none() {
            return work.reread(id);
        }
        work.tree.change(id, |file| file.bytes[offset as usize..(offset + len) as usize].fill(0));
        Ok(())
    }

    fn rename(&mut self, work: &mut Work) -> Result<(), Failure> {
        let Some((from, id)) = self.pick_name(work, |kind| kind != FileKind::Directory) else {
            return Ok(());
        };
        let other = self.pick_name(work, |kind| kind != FileKind::Directory);
        let (to, how) = match other {
            Some((to, other)) if other != id && self.random.one_in(2) => {
                (to, if self.random.one_in(3) { RenameHow::Exchange } else { RenameHow::Replace })
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
            // The new name comes first: the last name of a file is never gone in between.
            let old = work.tree.names.insert(to, id);
            work.tree.names.remove(&from);
            if let Some(old) = old
                && !work.tree.names.values().any(|other| *other == old)
            {
                work.tree.files.remove(&old);
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
        let mode = self.random.below(0o1000) as u32;
        let uid = self.random.below(5) as u32 * 1000;
        let projects = work.fs.options().projects && self.random.one_in(2);
        let project = projects.then(|| self.random.below(4) as u32);
        let new = NewAttrs { mode: Some(mode), uid: Some(uid), project, ..NewAttrs::default() };
        self.tell(format!("{} set {path} ({id}) {mode:o} {uid} {project:?}", work.name));
        if allowed("set", work.fs.set_attrs(ObjectId(id), &new))?.is_some() {
            work.tree.change(id, |file| (file.mode, file.uid) = (mode, uid));
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

    /// Blocks of one file become those of another, too.
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
        });
        Ok(())
    }

    fn commit(&mut self, work: &Work) -> Result<(), Failure> {
        let file = self.pick_file(work);
        self.tell(format!("{} fsync {file:?}", work.name));
        match (self.open.get(&work.name), file) {
            (Some(Open::Files(files)), Some((_, id))) if self.counter.is_multiple_of(2) => {
                Ok(files.fsync(ObjectId(id))?)
            }
            (Some(Open::Files(files)), _) => Ok(files.sync()?),
            _ => Ok(()),
        }
    }

    fn set_quota(&mut self, work: &Work) -> Result<(), Failure> {
        let kind = [SpaceKind::User, SpaceKind::Group][self.random.below(2) as usize];
        let id = self.random.below(3) * 1000;
        let limit = [0, 1 << 20, 100 << 20][self.random.below(3) as usize];
        self.tell(format!("{} quota {kind:?} {id} {limit}", work.name));
        allowed("quota", work.fs.set_quota(kind, QuotaOf::Space, id, limit)).map(drop)
    }

    /// A file that never has a name.
    fn orphan(&mut self, work: &Work) -> Result<(), Failure> {
        self.tell(format!("{} file without a name", work.name));
        let new = NewFile::of(FileKind::Regular, 0o600);
        let Some(held) = allowed("tmpfile", work.fs.tmpfile(work.fs.root(), &new))? else { return Ok(()) };
        let data = self.noise(50_000);
        allowed("write", work.fs.write(held.id(), 0, &data, &WriteHow::default())).map(drop)
    }

    fn change_volume(&mut self, name: &str, volume: &Arc<VolumeWriter>) -> Result<(), Failure> {
        let Some(head) = self.model.heads.get(name) else { return Ok(()) };
        let Content::Volume(bytes) = &head.content else { return wrong("not a volume") };
        let (mut bytes, size) = (bytes.to_vec(), bytes.len() as u64);
        let offset = self.random.below(size);
        let len = 1 + self.random.below((size - offset).min(200_000));
        let range = offset as usize..(offset + len) as usize;
        let what = self.random.below(8);
        self.tell(format!("{name} volume {what}: {len} at {offset}"));
        let done = match what {
            0 => {
                // Only whole blocks go.
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
                // The log says nothing of sizes.
                self.pool().sync()?;
                done
            }
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
        if let Some(head) = self.model.heads.get_mut(name) {
            head.content = Content::Volume(Rc::new(bytes));
        }
        Ok(())
    }
}
