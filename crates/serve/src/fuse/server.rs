//! One function per kind of request.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyLseek, ReplyOpen, ReplyStatfs, ReplyXattr, Request,
};

use super::Reporter;
use crate::errno::errno;
use crate::view::{Attr, Entry, FsView, Kind, Seek, Time, ViewError};

/// Longest time for which the kernel can remember anything; in practice for ever.
const EVER: Duration = Duration::from_secs(1 << 30);
const NOT_AT_ALL: Duration = Duration::ZERO;
/// `lseek`: find data, find a hole.
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;
/// Most bytes that a list of attribute names can have.
const XATTR_LIST_MAX: usize = 64 << 10;
/// Most bytes that one read may ask for; the kernel asks for 1 MiB at most.
const READ_MAX: u32 = 16 << 20;

pub(super) struct Server {
    view: Arc<dyn FsView>,
    posix_acl: bool,
    reporter: Option<Reporter>,
}

impl Server {
    pub(super) fn new(view: Arc<dyn FsView>, posix_acl: bool, reporter: Option<Reporter>) -> Server {
        Server { view, posix_acl, reporter }
    }

    fn fail(&self, node: INodeNo, error: &ViewError) -> Errno {
        if let (ViewError::Damaged(_), Some(reporter)) = (error, &self.reporter) {
            reporter(node.0, error);
        }
        errno(error)
    }

    fn read_xattr(&self, node: INodeNo, name: &OsStr) -> Result<Option<Vec<u8>>, Errno> {
        self.view.xattr(node.0, name.as_bytes()).map_err(|error| self.fail(node, &error))
    }
}

/// How long the kernel may keep an entry's attributes: not at all when the number to show is not
/// the node, because an entry can only carry one of the two; asking for the attributes sets it right.
fn attr_life(entry: &Entry) -> Duration {
    if entry.attr.ino == entry.node { EVER } else { NOT_AT_ALL }
}

fn system_time(time: Time) -> SystemTime {
    let secs = Duration::from_secs(time.secs.unsigned_abs());
    let whole = if time.secs < 0 { UNIX_EPOCH.checked_sub(secs) } else { UNIX_EPOCH.checked_add(secs) };
    whole.and_then(|at| at.checked_add(Duration::from_nanos(time.nanos.into()))).unwrap_or(UNIX_EPOCH)
}

fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::Regular => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::CharDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
    }
}

/// Device numbers as FUSE packs them: 12 bits of major, 20 of minor.
fn pack_device((major, minor): (u32, u32)) -> u32 {
    (minor & 0xff) | (major & 0xfff) << 8 | (minor & 0xf_ff00) << 12
}

fn file_attr(shown: u64, attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(shown),
        size: attr.size,
        blocks: attr.blocks,
        atime: system_time(attr.atime),
        mtime: system_time(attr.mtime),
        ctime: system_time(attr.ctime),
        crtime: system_time(attr.crtime),
        kind: file_type(attr.kind),
        perm: attr.perm,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: pack_device(attr.rdev),
        blksize: attr.block_size,
        flags: 0,
    }
}

/// An answer that says "there is none", which the kernel may remember: node 0.
fn absent() -> FileAttr {
    let never = Time::default();
    let attr = Attr {
        ino: 0,
        generation: 0,
        kind: Kind::Regular,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        size: 0,
        blocks: 0,
        block_size: 0,
        rdev: (0, 0),
        atime: never,
        mtime: never,
        ctime: never,
        crtime: never,
    };
    file_attr(0, &attr)
}

/// `getxattr` and `listxattr`: the length when asked for it, else the bytes if they fit.
fn reply_sized(reply: ReplyXattr, size: u32, bytes: &[u8]) {
    if size == 0 {
        reply.size(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    } else if bytes.len() > size as usize {
        reply.error(Errno::ERANGE);
    } else {
        reply.data(bytes);
    }
}

impl Filesystem for Server {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let mut wanted = vec![
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_NO_OPEN_SUPPORT,
            InitFlags::FUSE_NO_OPENDIR_SUPPORT,
            // Pages stay cached until told otherwise, and nobody will.
            InitFlags::FUSE_EXPLICIT_INVAL_DATA,
        ];
        if self.posix_acl {
            wanted.push(InitFlags::FUSE_POSIX_ACL);
        }
        for flag in wanted {
            // What an older kernel does not offer is only slower without.
            let _ = config.add_capabilities(flag);
        }
        let _ = config.set_max_background(128);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.view.lookup(parent.0, name.as_bytes()) {
            Ok(Some(entry)) => {
                let attr = file_attr(entry.node, &entry.attr);
                reply.entry_with_ttls(&attr_life(&entry), &EVER, &attr, Generation(entry.attr.generation));
            }
            Ok(None) => reply.entry(&EVER, &absent(), Generation(0)),
            Err(error) => reply.error(self.fail(parent, &error)),
        }
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.view.attr(node.0) {
            Ok(attr) => reply.attr(&EVER, &file_attr(attr.ino, &attr)),
            Err(error) => reply.error(self.fail(node, &error)),
        }
    }

    fn readlink(&self, _: &Request, node: INodeNo, reply: ReplyData) {
        match self.view.read_link(node.0) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(self.fail(node, &error)),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // The kernel takes this for "no need to ask again", and keeps what it cached.
        reply.error(Errno::ENOSYS);
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut buf = vec![0u8; size.min(READ_MAX) as usize];
        match self.view.read(node.0, offset, &mut buf) {
            Ok(n) => reply.data(buf.get(..n).unwrap_or(&buf)),
            Err(error) => reply.error(self.fail(node, &error)),
        }
    }

    fn readdir(&self, _: &Request, node: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let done = self.view.read_dir(node.0, offset, &mut |item| {
            let kind = item.kind.map_or(FileType::RegularFile, file_type);
            !reply.add(INodeNo(item.node), item.next, kind, OsStr::from_bytes(&item.name))
        });
        match done {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(self.fail(node, &error)),
        }
    }

    fn readdirplus(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let done = self.view.read_dir(node.0, offset, &mut |item| {
            let entry = self.view.attr(item.node).map(|attr| Entry { node: item.node, attr });
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    // The name is listed all the same; whoever looks closer gets the error.
                    self.fail(INodeNo(item.node), &error);
                    return !unreadable(&mut reply, &item.name, item.node, item.kind, item.next);
                }
            };
            let attr = file_attr(entry.node, &entry.attr);
            let generation = Generation(entry.attr.generation);
            let life = attr_life(&entry);
            !reply.add(INodeNo(item.node), item.next, OsStr::from_bytes(&item.name), &life, &attr, generation)
        });
        match done {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(self.fail(node, &error)),
        }
    }

    fn statfs(&self, _: &Request, node: INodeNo, reply: ReplyStatfs) {
        match self.view.space(node.0) {
            Ok(s) => {
                reply.statfs(
                    s.blocks,
                    s.free,
                    s.free,
                    s.files,
                    s.files_free,
                    s.block_size,
                    s.name_max,
                    s.block_size,
                );
            }
            Err(error) => reply.error(self.fail(node, &error)),
        }
    }

    fn getxattr(&self, _: &Request, node: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        match self.read_xattr(node, name) {
            Ok(Some(value)) => reply_sized(reply, size, &value),
            Ok(None) => reply.error(Errno::NO_XATTR),
            Err(error) => reply.error(error),
        }
    }

    fn listxattr(&self, _: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        match self.view.xattr_names(node.0) {
            Ok(names) => {
                let list: Vec<u8> = names.iter().flat_map(|name| name.iter().copied().chain([0])).collect();
                if list.len() > XATTR_LIST_MAX {
                    reply.error(Errno::E2BIG);
                } else {
                    reply_sized(reply, size, &list);
                }
            }
            Err(error) => reply.error(self.fail(node, &error)),
        }
    }

    fn lseek(&self, _: &Request, node: INodeNo, _: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let what = match whence {
            SEEK_DATA => Seek::Data,
            SEEK_HOLE => Seek::Hole,
            _ => return reply.error(Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        match self.view.seek(node.0, offset, what).map(i64::try_from) {
            Ok(Ok(at)) => reply.offset(at),
            Ok(Err(_)) => reply.error(Errno::EOVERFLOW),
            Err(error) => reply.error(self.fail(node, &error)),
        }
    }
}

/// Adds a line whose file cannot be read, with attributes that the kernel asks for again.
fn unreadable(reply: &mut ReplyDirectoryPlus, name: &[u8], node: u64, kind: Option<Kind>, next: u64) -> bool {
    let mut attr = absent();
    attr.ino = INodeNo(node);
    attr.kind = kind.map_or(FileType::RegularFile, file_type);
    reply.add(INodeNo(node), next, OsStr::from_bytes(name), &NOT_AT_ALL, &attr, Generation(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers() {
        assert_eq!(pack_device((8, 1)), 0x801);
        assert_eq!(pack_device((0xfff, 0xf_ffff)), u32::MAX);
        assert_eq!(pack_device((5, 0x1_0002)), 0x1000_0502);
    }

    #[test]
    fn times_of_all_sizes() {
        let before = system_time(Time { secs: -2, nanos: 800_000_000 });
        assert_eq!(UNIX_EPOCH.duration_since(before).unwrap(), Duration::from_millis(1200));
        for secs in [i64::MIN, i64::MAX] {
            // No panic; what is too far away may be anything.
            let _ = system_time(Time { secs, nanos: 999_999_999 });
        }
    }
}
