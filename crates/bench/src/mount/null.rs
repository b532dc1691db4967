//! An empty file system: names and attributes are in memory, contents are zeros. Its cost is that of FUSE itself,
//! with the same caching as a real file system.

use crate::Failure;
use rustix::io::Errno;
use serve::export::{
    Attr, Caller, CopyRange, DirLine, DirSink, Entry, Kind, Known, NewNode, Seek, SetAttr, SpaceInfo,
    Stability, Time,
};
use serve::fuse::{Answer, MountOptions, Opened, Service, WriteAt, flag};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};
use vdev::sync::lock;

const ROOT: u64 = 1;
/// Number of positions used by `.` and `..`.
const DOTS: u64 = 2;

struct Node {
    attr: Attr,
    /// Entries of a directory by position, and positions by name.
    entries: BTreeMap<u64, (Vec<u8>, u64)>,
    places: HashMap<Vec<u8>, u64>,
    target: Vec<u8>,
}

struct State {
    nodes: HashMap<u64, Node>,
    next: u64,
}

/// The state of the empty file system: names and attributes, no data.
pub(crate) struct Null {
    state: Mutex<State>,
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time { secs: since.as_secs().cast_signed(), nanos: since.subsec_nanos() }
}

impl Node {
    fn new(ino: u64, kind: Kind, perm: u16, owner: (u32, u32)) -> Node {
        let at = now();
        let nlink = if kind == Kind::Directory { 2 } else { 1 };
        let attr = Attr {
            ino,
            generation: 1,
            kind,
            perm,
            nlink,
            uid: owner.0,
            gid: owner.1,
            size: 0,
            blocks: 0,
            block_size: 4096,
            rdev: (0, 0),
            atime: at,
            mtime: at,
            ctime: at,
            crtime: at,
        };
        Node { attr, entries: BTreeMap::new(), places: HashMap::new(), target: Vec::new() }
    }
}

impl State {
    fn node(&mut self, node: u64) -> Answer<&mut Node> {
        self.nodes.get_mut(&node).ok_or(Errno::STALE)
    }

    fn find(&self, dir: u64, name: &[u8]) -> Answer<Option<u64>> {
        let dir = self.nodes.get(&dir).ok_or(Errno::STALE)?;
        Ok(dir.places.get(name).and_then(|place| dir.entries.get(place)).map(|(_, node)| *node))
    }

    fn add(&mut self, dir: u64, name: &[u8], node: u64) -> Answer<()> {
        self.next += 1;
        let place = self.next + DOTS;
        let dir = self.node(dir)?;
        dir.places.insert(name.to_vec(), place);
        dir.entries.insert(place, (name.to_vec(), node));
        Ok(())
    }

    fn take(&mut self, dir: u64, name: &[u8]) -> Answer<u64> {
        let dir = self.node(dir)?;
        let place = dir.places.remove(name).ok_or(Errno::NOENT)?;
        dir.entries.remove(&place).map(|(_, node)| node).ok_or(Errno::IO)
    }

    fn known(&mut self, node: u64) -> Answer<Known> {
        let attr = self.node(node)?.attr;
        Ok(Known { entry: Entry { node, attr }, name: Stability::Stable, attr: Stability::Stable })
    }

    fn drop_name(&mut self, node: u64) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.attr.nlink = node.attr.nlink.saturating_sub(1);
        }
    }
}

impl Null {
    fn new() -> Null {
        let root = Node::new(ROOT, Kind::Directory, 0o755, (0, 0));
        Null { state: Mutex::new(State { nodes: HashMap::from([(ROOT, root)]), next: ROOT }) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Service for Null {
    fn abilities(&self, _: u64) -> u64 {
        flag::DO_READDIRPLUS
            | flag::READDIRPLUS_AUTO
            | flag::CACHE_SYMLINKS
            | flag::NO_OPEN_SUPPORT
            | flag::NO_OPENDIR_SUPPORT
            | flag::DONT_MASK
            | flag::HANDLE_KILLPRIV_V2
            | flag::EXPLICIT_INVAL_DATA
            | flag::WRITEBACK_CACHE
    }

    fn lookup(&self, _: &Caller, dir: u64, name: &[u8]) -> Answer<Option<Known>> {
        let mut state = self.lock();
        let found = state.find(dir, name)?;
        found.map(|node| state.known(node)).transpose()
    }

    fn forget(&self, node: u64, _: u64) {
        let mut state = self.lock();
        let is_gone = state.nodes.get(&node).is_some_and(|node| node.attr.nlink == 0);
        if is_gone {
            state.nodes.remove(&node);
        }
    }

    fn attr(&self, node: u64, _: Option<u64>) -> Answer<(Attr, Stability)> {
        Ok((self.lock().node(node)?.attr, Stability::Stable))
    }

    fn set_attr(&self, _: &Caller, node: u64, new: &SetAttr) -> Answer<(Attr, Stability)> {
        let mut state = self.lock();
        let attr = &mut state.node(node)?.attr;
        if let Some(mode) = new.mode {
            attr.perm = (mode & 0o7777) as u16;
        }
        (attr.uid, attr.gid) = (new.uid.unwrap_or(attr.uid), new.gid.unwrap_or(attr.gid));
        attr.size = new.size.unwrap_or(attr.size);
        attr.ctime = now();
        Ok((*attr, Stability::Stable))
    }

    fn read_link(&self, node: u64) -> Answer<Vec<u8>> {
        Ok(self.lock().node(node)?.target.clone())
    }

    fn make(&self, caller: &Caller, dir: u64, name: &[u8], new: &NewNode<'_>) -> Answer<Known> {
        let mut state = self.lock();
        if state.find(dir, name)?.is_some() {
            return Err(Errno::EXIST);
        }
        state.next += 1;
        let node = state.next;
        let perm = (new.mode & !caller.umask & 0o7777) as u16;
        let mut made = Node::new(node, new.kind, perm, (caller.uid, caller.gid));
        made.target = new.target.to_vec();
        state.nodes.insert(node, made);
        state.add(dir, name, node)?;
        state.known(node)
    }

    fn unlink(&self, _: &Caller, dir: u64, name: &[u8]) -> Answer<()> {
        let mut state = self.lock();
        let node = state.take(dir, name)?;
        state.drop_name(node);
        Ok(())
    }

    fn rmdir(&self, _: &Caller, dir: u64, name: &[u8]) -> Answer<()> {
        let mut state = self.lock();
        let node = state.find(dir, name)?.ok_or(Errno::NOENT)?;
        if !state.node(node)?.entries.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        state.take(dir, name)?;
        state.node(node)?.attr.nlink = 0;
        Ok(())
    }

    fn rename(&self, _: &Caller, from: (u64, &[u8]), to: (u64, &[u8]), _: u32) -> Answer<()> {
        let mut state = self.lock();
        let node = state.take(from.0, from.1)?;
        if let Ok(replaced) = state.take(to.0, to.1) {
            state.drop_name(replaced);
        }
        state.add(to.0, to.1, node)
    }

    fn link(&self, _: &Caller, node: u64, dir: u64, name: &[u8]) -> Answer<Known> {
        let mut state = self.lock();
        state.node(node)?.attr.nlink += 1;
        state.add(dir, name, node)?;
        state.known(node)
    }

    fn create(&self, caller: &Caller, dir: u64, name: &[u8], mode: u32, _: u32) -> Answer<(Known, Opened)> {
        let new = NewNode { kind: Kind::Regular, mode, rdev: (0, 0), target: &[] };
        Ok((self.make(caller, dir, name, &new)?, Opened::default()))
    }

    fn read(&self, node: u64, _: u64, offset: u64, buf: &mut [u8]) -> Answer<usize> {
        let left = self.lock().node(node)?.attr.size.saturating_sub(offset);
        let len = usize::try_from(left).map_or(buf.len(), |left| left.min(buf.len()));
        buf.get_mut(..len).unwrap_or_default().fill(0);
        Ok(len)
    }

    fn write(&self, _: &Caller, node: u64, write: &WriteAt<'_>) -> Answer<()> {
        let mut state = self.lock();
        let attr = &mut state.node(node)?.attr;
        attr.size = attr.size.max(write.offset + write.data.len() as u64);
        Ok(())
    }

    fn copy_range(&self, _: &Caller, range: &CopyRange) -> Answer<u64> {
        let mut state = self.lock();
        let left = state.node(range.from)?.attr.size.saturating_sub(range.from_offset);
        let done = range.len.min(left);
        let attr = &mut state.node(range.to)?.attr;
        attr.size = attr.size.max(range.to_offset + done);
        Ok(done)
    }

    fn read_dir(&self, node: u64, from: u64, sink: &mut dyn DirSink) -> Answer<()> {
        let mut state = self.lock();
        let dots = [&b"."[..], b".."];
        for (next, name) in (1..).zip(dots).filter(|(next, _)| *next > from) {
            if !sink.line(&DirLine { node, kind: Some(Kind::Directory), name, next, file: None }) {
                return Ok(());
            }
        }
        let from = from.max(DOTS) + 1;
        let entries: Vec<(u64, Vec<u8>, u64)> = {
            let dir = state.node(node)?;
            dir.entries
                .range(from..)
                .take(4096)
                .map(|(at, (name, node))| (*at, name.clone(), *node))
                .collect()
        };
        for (place, name, node) in entries {
            let known = state.known(node)?;
            let kind = Some(known.entry.attr.kind);
            let file = Some((known.entry, Stability::Stable));
            if !sink.line(&DirLine { node, kind, name: &name, next: place, file }) {
                break;
            }
        }
        Ok(())
    }

    fn space(&self, _: u64) -> Answer<SpaceInfo> {
        const MANY: u64 = 1 << 30;
        Ok(SpaceInfo {
            block_size: 4096,
            blocks: MANY,
            free: MANY,
            files: MANY,
            files_free: MANY,
            name_max: 255,
        })
    }

    fn xattr_names(&self, _: u64) -> Answer<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }

    fn xattr(&self, _: u64, _: &[u8]) -> Answer<Option<Vec<u8>>> {
        Ok(None)
    }

    fn seek(&self, node: u64, offset: u64, what: Seek) -> Answer<u64> {
        let size = self.lock().node(node)?.attr.size;
        match what {
            _ if offset >= size => Err(Errno::NXIO),
            Seek::Data => Ok(offset),
            Seek::Hole => Ok(size),
        }
    }

    fn allocate(&self, _: &Caller, node: u64, offset: u64, len: u64, mode: u32) -> Answer<()> {
        let mut state = self.lock();
        let attr = &mut state.node(node)?.attr;
        if mode == 0 {
            attr.size = attr.size.max(offset + len);
        }
        Ok(())
    }
}

/// Serves the file system on a directory until it is unmounted.
pub(crate) fn serve(at: &Path) -> Result<(), Failure> {
    let service: Arc<dyn Service> = Arc::new(Null::new());
    let options = MountOptions { source: "null".to_owned(), writable: true, ..MountOptions::default() };
    let mounted = serve::fuse::mount(&service, at, &options)?;
    mounted.split().1.wait()?;
    Ok(())
}
