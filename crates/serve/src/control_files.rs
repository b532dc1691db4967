//! Counters and parameters as a small FUSE file system: `kstat/zfs/…` in the layout of
//! `/proc/spl/kstat`, and `parameters/NAME`.
//!
//! # What always holds
//! - The contents of a file are made when it is opened, and stay the same for the program that has it open.
//! - The kernel caches nothing, because any value may change at any time.
//! - Only `parameters/…` can be written, by the owner of the mount; a value that is not allowed is `EINVAL`.

use crate::export::{
    Attr, Caller, DirLine, DirSink, Entry, Kind, Known, ROOT, Seek, SetAttr, SpaceInfo, Stability, Time,
};
use crate::fuse::{self, Answer, Opened, Service, Transport, Unmounter, WriteAt, open_flag};
use admin::sync::lock;
use admin::{Kstats, Namespace, Tunable, tunables};
use rustix::io::Errno;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Most files that are open at once.
const OPEN_MAX: usize = 4096;
/// Time until the files are mounted again after another process has unmounted them.
const MOUNT_AGAIN: Duration = Duration::from_millis(20);
/// Greatest length of a number in bytes.
const NUMBER_MAX: usize = 64;

/// A directory or file of the file system.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Node {
    Root,
    Kstat,
    Zfs,
    Shared(&'static str),
    Pool(String),
    OfPool(String, String),
    Parameters,
    Parameter(&'static str),
}

#[derive(Default)]
struct State {
    /// Nodes that were looked up; the number of a node is its index plus one.
    nodes: Vec<Node>,
    numbers: HashMap<Node, u64>,
    /// Contents of open files, by handle.
    open: HashMap<u64, Arc<[u8]>>,
    last_handle: u64,
}

/// Serves the counters of a process that keeps pools open.
pub struct ControlFiles {
    kstats: Kstats,
    state: Mutex<State>,
}

/// Ends the mount of the control files.
#[derive(Debug)]
pub struct ControlMount(Arc<Mutex<Option<Unmounter>>>);

impl ControlMount {
    /// Unmounts the control files for good.
    ///
    /// # Errors
    /// The system refuses to unmount them.
    pub fn unmount(&self) -> std::io::Result<()> {
        let unmounter = lock(&self.0).take();
        unmounter.map_or(Ok(()), |mut unmounter| unmounter.unmount())
    }
}

impl ControlFiles {
    /// The control files of a process that keeps the pools of `namespace` open.
    #[must_use]
    pub(crate) fn new(namespace: &Arc<Namespace>) -> ControlFiles {
        let files = ControlFiles { kstats: Kstats::of(namespace), state: Mutex::default() };
        let root = files.number(&Node::Root);
        assert_eq!(root, ROOT, "the first that is numbered is the root");
        files
    }

    /// Mounts the control files on the folder `at`, which is made if it does not exist. If another process
    /// unmounts them, they are mounted again: a program that unmounts all file systems does not mean these.
    ///
    /// # Errors
    /// The folder or the mount cannot be made.
    pub fn mount(namespace: &Arc<Namespace>, at: &Path) -> Result<ControlMount, fuse::MountError> {
        let refused = |source| fuse::MountError::Refused { at: at.to_path_buf(), source };
        let shared = Arc::new(Mutex::new(None));
        let (unmounter, mut waiter) = ControlFiles::mount_once(namespace, at)?.split();
        *lock(&shared) = Some(unmounter);
        let (namespace, at, unmounters) = (Arc::downgrade(namespace), at.to_path_buf(), Arc::clone(&shared));
        let keep = move || loop {
            if let Err(error) = waiter.wait() {
                tracing::warn!(%error, "the control files ended with an error");
            }
            std::thread::sleep(MOUNT_AGAIN);
            // Held so that the files are not mounted again while the mount is ended.
            let mut unmounter = lock(&unmounters);
            let Some(namespace) = namespace.upgrade().filter(|_| unmounter.is_some()) else { return };
            match ControlFiles::mount_once(&namespace, &at).map(fuse::Mounted::split) {
                Ok((new, next)) => (*unmounter, waiter) = (Some(new), next),
                Err(error) => {
                    *unmounter = None;
                    return tracing::warn!(at = %at.display(), %error, "the control files are not mounted again");
                }
            }
        };
        std::thread::Builder::new().name("control files".into()).spawn(keep).map_err(refused)?;
        Ok(ControlMount(shared))
    }

    fn mount_once(namespace: &Arc<Namespace>, at: &Path) -> Result<fuse::Mounted, fuse::MountError> {
        let refused = |source| fuse::MountError::Refused { at: at.to_path_buf(), source };
        std::fs::create_dir_all(at).map_err(refused)?;
        let service: Arc<dyn Service> = Arc::new(ControlFiles::new(namespace));
        let options = fuse::MountOptions {
            source: "cenote-control".to_owned(),
            allow_other: rustix::process::geteuid().is_root(),
            writable: true,
            setuid: false,
            devices: false,
            exec: false,
            threads: Some(2),
            transport: Transport::Classic,
            group: 0,
        };
        fuse::mount(&service, at, &options)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn number(&self, node: &Node) -> u64 {
        let mut state = self.state();
        if let Some(number) = state.numbers.get(node) {
            return *number;
        }
        state.nodes.push(node.clone());
        let number = state.nodes.len() as u64;
        state.numbers.insert(node.clone(), number);
        number
    }

    fn node(&self, number: u64) -> Answer<Node> {
        let place = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
        place.and_then(|place| self.state().nodes.get(place).cloned()).ok_or(Errno::STALE)
    }

    fn children(&self, node: &Node) -> Answer<Vec<(String, Node)>> {
        let named = |name: &str, node| (name.to_owned(), node);
        Ok(match node {
            Node::Root => vec![named("kstat", Node::Kstat), named("parameters", Node::Parameters)],
            Node::Kstat => vec![named("zfs", Node::Zfs)],
            Node::Zfs => {
                let shared = self.kstats.shared_files().iter().map(|name| named(name, Node::Shared(name)));
                let pools = self.kstats.pools().into_iter().map(|pool| (pool.clone(), Node::Pool(pool)));
                shared.chain(pools).collect()
            }
            Node::Pool(pool) => {
                let files = self.kstats.pool_files(pool).into_iter();
                files.map(|file| (file.clone(), Node::OfPool(pool.clone(), file))).collect()
            }
            Node::Parameters => {
                let all = tunables().into_iter();
                all.map(|tunable| named(tunable.name, Node::Parameter(tunable.name))).collect()
            }
            Node::Shared(_) | Node::OfPool(..) | Node::Parameter(_) => return Err(Errno::NOTDIR),
        })
    }

    fn contents(&self, node: &Node) -> Answer<String> {
        match node {
            Node::Shared(file) => self.kstats.shared_file(file),
            Node::OfPool(pool, file) => self.kstats.pool_file(pool, file),
            Node::Parameter(name) => tunable(name).map(|tunable| format!("{}\n", tunable.get())),
            _ => return Err(Errno::ISDIR),
        }
        .ok_or(Errno::NOENT)
    }

    fn attributes(&self, number: u64, node: &Node) -> Attr {
        let is_folder =
            matches!(node, Node::Root | Node::Kstat | Node::Zfs | Node::Pool(_) | Node::Parameters);
        let (kind, perm) = match node {
            _ if is_folder => (Kind::Directory, 0o555),
            Node::Parameter(_) => (Kind::Regular, 0o644),
            _ => (Kind::Regular, 0o444),
        };
        let never = Time { secs: 0, nanos: 0 };
        Attr {
            ino: number,
            generation: 0,
            kind,
            perm,
            nlink: if is_folder { 2 } else { 1 },
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            // As in /proc: the size is known only when the file is read.
            size: 0,
            blocks: 0,
            block_size: 4096,
            rdev: (0, 0),
            atime: never,
            mtime: never,
            ctime: never,
            crtime: never,
        }
    }
}

fn tunable(name: &str) -> Option<&'static Tunable> {
    admin::tunable(name)
}

impl Service for ControlFiles {
    fn abilities(&self, _: u64) -> u64 {
        0
    }

    fn lookup(&self, _: &Caller, dir: u64, name: &[u8]) -> Answer<Option<Known>> {
        let children = self.children(&self.node(dir)?)?;
        let Some((_, node)) = children.into_iter().find(|(known, _)| known.as_bytes() == name) else {
            return Err(Errno::NOENT);
        };
        let number = self.number(&node);
        let entry = Entry { node: number, attr: self.attributes(number, &node) };
        Ok(Some(Known { entry, name: Stability::Volatile, attr: Stability::Volatile }))
    }

    fn attr(&self, node: u64, _: Option<u64>) -> Answer<(Attr, Stability)> {
        Ok((self.attributes(node, &self.node(node)?), Stability::Volatile))
    }

    fn set_attr(&self, _: &Caller, node: u64, _: &SetAttr) -> Answer<(Attr, Stability)> {
        // A write to a file begins with truncation, which does not change a number.
        match self.node(node)? {
            Node::Parameter(_) => self.attr(node, None),
            _ => Err(Errno::PERM),
        }
    }

    fn read_link(&self, _: u64) -> Answer<Vec<u8>> {
        Err(Errno::INVAL)
    }

    fn open(&self, _: &Caller, node: u64, _: u32) -> Answer<Opened> {
        let contents = self.contents(&self.node(node)?)?;
        let mut state = self.state();
        if state.open.len() >= OPEN_MAX {
            return Err(Errno::NFILE);
        }
        state.last_handle += 1;
        let handle = state.last_handle;
        state.open.insert(handle, contents.into_bytes().into());
        Ok(Opened { handle, flags: open_flag::DIRECT_IO })
    }

    fn release(&self, _: u64, handle: u64) {
        self.state().open.remove(&handle);
    }

    fn read(&self, _: u64, handle: u64, offset: u64, buf: &mut [u8]) -> Answer<usize> {
        let contents = self.state().open.get(&handle).cloned().ok_or(Errno::BADF)?;
        let rest = usize::try_from(offset).ok().and_then(|offset| contents.get(offset..)).unwrap_or_default();
        let len = rest.len().min(buf.len());
        buf[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn write(&self, _: &Caller, node: u64, write: &WriteAt<'_>) -> Answer<()> {
        let Node::Parameter(name) = self.node(node)? else { return Err(Errno::PERM) };
        let tunable = tunable(name).ok_or(Errno::NOENT)?;
        let text = std::str::from_utf8(write.data).ok().filter(|_| write.data.len() <= NUMBER_MAX);
        let value = text.and_then(|text| number(text.trim())).ok_or(Errno::INVAL)?;
        if tunable.set(value) { Ok(()) } else { Err(Errno::INVAL) }
    }

    fn read_dir(&self, node: u64, from: u64, sink: &mut dyn DirSink) -> Answer<()> {
        let children = self.children(&self.node(node)?)?;
        for (i, (name, child)) in
            children.iter().enumerate().skip(usize::try_from(from).unwrap_or(usize::MAX))
        {
            let number = self.number(child);
            let attr = self.attributes(number, child);
            let file = sink.wants_attrs().then_some((Entry { node: number, attr }, Stability::Volatile));
            let (kind, name, next) = (Some(attr.kind), name.as_bytes(), i as u64 + 1);
            if !sink.line(&DirLine { node: number, kind, name, next, file }) {
                break;
            }
        }
        Ok(())
    }

    fn space(&self, _: u64) -> Answer<SpaceInfo> {
        Ok(SpaceInfo { block_size: 4096, name_max: 255, ..SpaceInfo::default() })
    }

    fn xattr_names(&self, _: u64) -> Answer<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }

    fn xattr(&self, _: u64, _: &[u8]) -> Answer<Option<Vec<u8>>> {
        Ok(None)
    }

    fn seek(&self, _: u64, _: u64, _: Seek) -> Answer<u64> {
        Err(Errno::INVAL)
    }
}

/// Parses a decimal number, or a hexadecimal one with `0x`.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> ControlFiles {
        ControlFiles::new(&Namespace::new(None))
    }

    fn walk(files: &ControlFiles, path: &str) -> Answer<u64> {
        let nobody = Caller::default();
        path.split('/').try_fold(ROOT, |dir, name| {
            Ok(files.lookup(&nobody, dir, name.as_bytes())?.expect("a lookup finds or fails").entry.node)
        })
    }

    fn text(files: &ControlFiles, path: &str) -> Answer<String> {
        let node = walk(files, path)?;
        let handle = files.open(&Caller::default(), node, 0)?.handle;
        let mut buf = [0; 4096];
        let len = files.read(node, handle, 0, &mut buf)?;
        assert_eq!(files.read(node, handle, len as u64, &mut buf[len..]), Ok(0));
        files.release(node, handle);
        assert_eq!(files.read(node, handle, 0, &mut [0]), Err(Errno::BADF));
        Ok(String::from_utf8_lossy(&buf[..len]).into_owned())
    }

    #[test]
    fn counters_are_files() {
        let files = files();
        let arc = text(&files, "kstat/zfs/arcstats").unwrap();
        assert!(arc.contains("\nhits                            4    0\n"), "{arc}");
        assert_eq!(walk(&files, "kstat/zfs/nopool"), Err(Errno::NOENT));
        assert_eq!(walk(&files, "kstat/zfs/arcstats/x"), Err(Errno::NOTDIR));
        let node = walk(&files, "kstat").unwrap();
        assert_eq!(files.open(&Caller::default(), node, 0), Err(Errno::ISDIR));
        assert_eq!(files.attr(99, None), Err(Errno::STALE));
    }

    #[test]
    fn parameters_are_read_and_written() {
        let files = files();
        let path = "parameters/zfs_zevent_len_max";
        assert_eq!(text(&files, path).unwrap(), "0\n");
        let node = walk(&files, path).unwrap();
        let write = |data: &[u8]| {
            let write =
                WriteAt { handle: 0, offset: 0, data, from_cache: false, kill_set_ids: false, flags: 0 };
            files.write(&Caller::default(), node, &write)
        };
        assert_eq!(write(b"700\n"), Ok(()));
        assert_eq!(text(&files, path).unwrap(), "700\n");
        assert_eq!(write(b"0x10"), Ok(()));
        assert_eq!(text(&files, path).unwrap(), "16\n");
        for bad in [&b"x"[..], b"-1", b"", b"99999999999999999999", &[b'1'; 100]] {
            assert_eq!(write(bad), Err(Errno::INVAL));
        }
        assert_eq!(write(b"0"), Ok(()));
        let other = walk(&files, "kstat/zfs/arcstats").unwrap();
        let data =
            WriteAt { handle: 0, offset: 0, data: b"1", from_cache: false, kill_set_ids: false, flags: 0 };
        assert_eq!(files.write(&Caller::default(), other, &data), Err(Errno::PERM));
    }
}
