//! From a request to its reply: decodes, calls the service, encodes. It knows no transport.
//!
//! # What always holds
//! - Each request that wants a reply gets exactly one; `FORGET` and its like get none.
//! - A request that cannot be decoded is answered `EIO`; one of an unknown kind `ENOSYS`, after which the
//!   kernel does not send that kind again.
//! - A request whose answer panics is answered `EIO`; see [`crate::panics`] for the object that it was
//!   changing.
//! - A request that has waited for long and has changed nothing is answered `EINTR` when its program gets a
//!   signal (`interrupts`).

use super::interrupts;
use super::proto::input::{Bytes, Header, Request};
use super::proto::op;
use super::proto::output::{Body, dir_line_len, unpack_device};
use super::service::{Answer, Service, WriteAt};
use crate::export::{
    Caller, CopyRange, DirLine, DirSink, Kind, Known, NewNode, NewTime, Seek, SetAttr, Time,
};
use crate::panics;
use rustix::io::Errno;

/// `whence` of `lseek`: find data, find a hole.
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;
/// Most bytes of a list of attribute names.
const XATTR_LIST_MAX: usize = 64 << 10;
/// Flags of requests.
const GETATTR_HANDLE: u32 = 1 << 0;
const WRITE_CACHE: u32 = 1 << 0;
const WRITE_KILL_SET_IDS: u32 = 1 << 2;
const OPEN_KILL_SET_IDS: u32 = 1 << 0;
const SETXATTR_KILL_SET_GID: u32 = 1 << 0;
const FSYNC_DATA: u32 = 1 << 0;
const IOCTL_UNRESTRICTED: u32 = 1 << 1;
const IOCTL_COMPAT: u32 = 1 << 0;

/// Answers a request: the body of its reply is written to `room`, and its length returned. `None`: it wants
/// none.
pub(super) fn answer(service: &dyn Service, request: &Request<'_>, room: &mut [u8]) -> Option<Answer<usize>> {
    let is_silent = matches!(request.header.opcode, op::FORGET | op::BATCH_FORGET | op::INTERRUPT);
    let failed = |_| (!is_silent).then_some(Err(Errno::IO));
    panics::survive(|| answer_or_panic(service, request, room)).unwrap_or_else(failed)
}

fn answer_or_panic(service: &dyn Service, request: &Request<'_>, room: &mut [u8]) -> Option<Answer<usize>> {
    let header = &request.header;
    match header.opcode {
        op::FORGET => {
            service.forget(header.node, Bytes::new(request.fixed).u64().unwrap_or(0));
            return None;
        }
        op::BATCH_FORGET => {
            forget_many(service, request);
            return None;
        }
        op::INTERRUPT => {
            interrupts::signal(mount(service), Bytes::new(request.fixed).u64().unwrap_or(0));
            return None;
        }
        _ => {}
    }
    let mut body = Body::new(room);
    // Requests that change nothing are included: they may wait for one that does.
    let ask = || ask(service, request, &mut body);
    let done = match interrupts::during(mount(service), header, ask) {
        (Err(_), true) => Err(Errno::INTR),
        (done, _) => done,
    };
    let done = done.map(|()| body.len());
    if let Some(counters) = service.counters() {
        counters.note(request, &done);
    }
    Some(done)
}

/// A number that identifies the mount in this process.
fn mount(service: &dyn Service) -> usize {
    std::ptr::from_ref(service).cast::<()>().addr()
}

fn forget_many(service: &dyn Service, request: &Request<'_>) {
    let count = Bytes::new(request.fixed).u32().unwrap_or(0);
    let mut items = Bytes::new(request.rest);
    for _ in 0..count {
        let (Some(node), Some(count)) = (items.u64(), items.u64()) else { return };
        service.forget(node, count);
    }
}

/// Turns a missing part into an error: the request was cut off.
trait OrCut<T> {
    fn or_cut(self) -> Answer<T>;
}

impl<T> OrCut<T> for Option<T> {
    fn or_cut(self) -> Answer<T> {
        self.ok_or(Errno::IO)
    }
}

fn ask(service: &dyn Service, request: &Request<'_>, body: &mut Body<'_>) -> Answer<()> {
    let Header { opcode, node, .. } = request.header;
    match opcode {
        op::LOOKUP | op::UNLINK | op::RMDIR | op::RENAME | op::RENAME2 | op::LINK => {
            names(service, request, body)
        }
        op::SYMLINK | op::MKNOD | op::MKDIR | op::CREATE | op::TMPFILE => make(service, request, body),
        op::GETATTR | op::SETATTR | op::STATX => attributes(service, request, body),
        op::OPEN | op::OPENDIR | op::RELEASE | op::RELEASEDIR | op::FLUSH | op::FSYNC | op::FSYNCDIR => {
            handles(service, request, body)
        }
        op::READ | op::WRITE | op::FALLOCATE | op::LSEEK | op::COPY_FILE_RANGE => {
            data(service, request, body)
        }
        op::READDIR | op::READDIRPLUS => list(service, request, body),
        op::SETXATTR | op::GETXATTR | op::LISTXATTR | op::REMOVEXATTR => xattrs(service, request, body),
        op::READLINK => body.put(&service.read_link(node)?),
        op::STATFS => body.space(&service.space(node)?),
        op::SYNCFS => service.sync(),
        op::IOCTL => control(service, request, body),
        // The mount has ended, and all replies were sent.
        op::DESTROY => Ok(()),
        _ => Err(Errno::NOSYS),
    }
}

/// The caller of a request; `umask` is 0 if the request carries none.
fn caller(request: &Request<'_>, umask: u32) -> Caller {
    let header = &request.header;
    Caller { uid: header.uid, gid: header.gid, pid: header.pid, umask }
}

fn known(body: &mut Body<'_>, known: &Known) -> Answer<()> {
    body.entry(&known.entry, known.name, known.attr)
}

fn names(service: &dyn Service, request: &Request<'_>, body: &mut Body<'_>) -> Answer<()> {
    let node = request.header.node;
    let (mut fixed, mut rest) = (Bytes::new(request.fixed), Bytes::new(request.rest));
    let who = caller(request, 0);
    let name = rest.name().or_cut()?;
    match request.header.opcode {
        op::LOOKUP => match service.lookup(&who, node, name)? {
            Some(found) => known(body, &found),
            None => body.absent(service.absence_stability()),
        },
        op::UNLINK => service.unlink(&who, node, name),
        op::RMDIR => service.rmdir(&who, node, name),
        op::LINK => known(body, &service.link(&who, fixed.u64().or_cut()?, node, name)?),
        _ => {
            let dir = fixed.u64().or_cut()?;
            let flags = if request.header.opcode == op::RENAME2 { fixed.u32().or_cut()? } else { 0 };
            service.rename(&who, (node, name), (dir, rest.name().or_cut()?), flags)
        }
    }
}

fn make(service: &dyn Service, request: &Request<'_>, body: &mut Body<'_>) -> Answer<()> {
    let dir = request.header.node;
    let (mut fixed, mut rest) = (Bytes::new(request.fixed), Bytes::new(request.rest));
    let name = rest.name().or_cut()?;
    let new = |kind, mode, rdev, target| NewNode { kind, mode: mode & 0o7777, rdev, target };
    match request.header.opcode {
        op::SYMLINK => {
            let target = rest.name().or_cut()?;
            let new = new(Kind::Symlink, 0o777, (0, 0), target);
            known(body, &service.make(&caller(request, 0), dir, name, &new)?)
        }
        op::MKDIR => {
            let (mode, umask) = (fixed.u32().or_cut()?, fixed.u32().or_cut()?);
            let new = new(Kind::Directory, mode, (0, 0), &[][..]);
            known(body, &service.make(&caller(request, umask), dir, name, &new)?)
        }
        op::MKNOD => {
            let (mode, rdev) = (fixed.u32().or_cut()?, fixed.u32().or_cut()?);
            let umask = fixed.u32().or_cut()?;
            let kind = kind_of(mode).ok_or(Errno::INVAL)?;
            let new = new(kind, mode, unpack_device(rdev), &[][..]);
            known(body, &service.make(&caller(request, umask), dir, name, &new)?)
        }
        opcode => {
            let (flags, mode) = (fixed.u32().or_cut()?, fixed.u32().or_cut()?);
            let who = caller(request, fixed.u32().or_cut()?);
            let mode = mode & 0o7777;
            let (found, opened) = if opcode == op::CREATE {
                service.create(&who, dir, name, mode, flags)?
            } else {
                service.tmpfile(&who, dir, mode, flags)?
            };
            known(body, &found)?;
            body.opened(&opened)
        }
    }
}

fn kind_of(mode: u32) -> Option<Kind> {
    Some(match mode & 0o17_0000 {
        0o01_0000 => Kind::Fifo,
        0o02_0000 => Kind::CharDevice,
        0o06_0000 => Kind::BlockDevice,
        // A mode without a kind means a regular file.
        0 | 0o10_0000 => Kind::Regular,
        0o14_0000 => Kind::Socket,
        _ => return None,
    })
}

fn attributes(service: &dyn Service, request: &Request<'_>, body: &mut Body<'_>) -> Answer<()> {
    let node = request.header.node;
    let mut fixed = Bytes::new(request.fixed);
    match request.header.opcode {
        op::SETATTR => {
            let new = new_attributes(&mut fixed).or_cut()?;
            let (attr, stability) = service.set_attr(&caller(request, 0), node, &new)?;
            body.attributes(&attr, stability)
        }
        opcode => {
            let flags = fixed.u32().or_cut()?;
            fixed.u32().or_cut()?;
            let handle = fixed.u64().or_cut()?;
            let handle = (flags & GETATTR_HANDLE != 0).then_some(handle);
            let (attr, stability) = service.attr(node, handle)?;
            if opcode == op::STATX { body.statx(&attr, stability) } else { body.attributes(&attr, stability) }
        }
    }
}

fn new_attributes(fixed: &mut Bytes<'_>) -> Option<SetAttr> {
    let valid = fixed.u32()?;
    let has = |bit: u32| valid & 1 << bit != 0;
    fixed.u32()?;
    let (_handle, size, _lock_owner) = (fixed.u64()?, fixed.u64()?, fixed.u64()?);
    let seconds = [fixed.u64()?, fixed.u64()?, fixed.u64()?];
    let nanos = [fixed.u32()?, fixed.u32()?, fixed.u32()?];
    let mode = fixed.u32()?;
    fixed.u32()?;
    let (uid, gid) = (fixed.u32()?, fixed.u32()?);
    let [atime, mtime, ctime] = [0, 1, 2].map(|i: usize| Time {
        secs: seconds.get(i).copied().unwrap_or(0).cast_signed(),
        nanos: nanos.get(i).copied().unwrap_or(0),
    });
    let time = |bit, now, at| match (has(bit), has(now)) {
        (false, _) => None,
        (true, true) => Some(NewTime::Now),
        (true, false) => Some(NewTime::At(at)),
    };
    Some(SetAttr {
        mode: has(0).then_some(mode & 0o7777),
        uid: has(1).then_some(uid),
        gid: has(2).then_some(gid),
        size: has(3).then_some(size),
        atime: time(4, 7, atime),
        mtime: time(5, 8, mtime),
        ctime: has(10).then_some(ctime),
        kill_set_ids: has(11),
    })
}

fn handles(service: &dyn Service, request: &Request<'_>, body: &mut Body<'_>) -> Answer<()> {
    let node = request.header.node;
    let mut fixed = Bytes::new(request.fixed);
    match request.header.opcode {
        op::OPEN => {
            let (flags, more) = (fixed.u32().or_cut()?, fixed.u32().unwrap_or(0));
            let who = caller(request, 0);
            let opened = service.open(&who, node, flags)?;
            if more & OPEN_KILL_SET_IDS != 0 {
                let kill = SetAttr { kill_set_ids: true, ..SetAttr::default() };
                service.set_attr(&who, node, &kill)?;
            }
            body.opened(&opened)
        }
        op::OPENDIR => body.opened(&service.open_dir(&caller(request, 0), node)?),
        opcode => {
            let handle = fixed.u64().or_cut()?;
            match opcode {
                op::RELEASE => service.release(node, handle),
                op::RELEASEDIR => service.release_dir(node, handle),
                op::FLUSH => service.flush(node, handle)?,
                _ => service.fsync(node, handle, fixed.u32().or_cut()? & FSYNC_DATA != 0)?,
            }
            Ok(())
        }
    }
}

fn data(service: &dyn Service, request: &Request<'_>, body: &mut Body<'_>) -> Answer<()> {
    let node = request.header.node;
    let mut fixed = Bytes::new(request.fixed);
    let (handle, offset) = (fixed.u64().or_cut()?, fixed.u64().or_cut()?);
    match request.header.opcode {
        op::READ => {
            let size = fixed.u32().or_cut()? as usize;
            let room = body.rest();
            let size = size.min(room.len());
            let done = service.read(node, handle, offset, room.get_mut(..size).unwrap_or_default())?;
            body.advance(done.min(size));
            Ok(())
        }
        op::WRITE => {
            let (size, how) = (fixed.u32().or_cut()?, fixed.u32().or_cut()?);
            fixed.u64().or_cut()?;
            let write = WriteAt {
                handle,
                offset,
                data: Bytes::new(request.rest).bytes(size as usize).or_cut()?,
                from_cache: how & WRITE_CACHE != 0,
                kill_set_ids: how & WRITE_KILL_SET_IDS != 0,
                flags: fixed.u32().or_cut()?,
            };
            service.write(&caller(request, 0), node, &write)?;
            body.u32(size)?;
            body.u32(0)
        }
        op::FALLOCATE => {
            let (len, mode) = (fixed.u64().or_cut()?, fixed.u32().or_cut()?);
            service.allocate(&caller(request, 0), node, offset, len, mode)
        }
        op::LSEEK => {
            let what = match fixed.u32().or_cut()? {
                SEEK_DATA => Seek::Data,
                SEEK_HOLE => Seek::Hole,
                _ => return Err(Errno::INVAL),
            };
            // Positions are signed: a negative one is beyond any end of file.
            if offset > i64::MAX.cast_unsigned() {
                return Err(Errno::NXIO);
            }
            body.u64(service.seek(node, offset, what)?)
        }
        _ => {
            let to = fixed.u64().or_cut()?;
            fixed.u64().or_cut()?;
            let (to_offset, len) = (fixed.u64().or_cut()?, fixed.u64().or_cut()?);
            let range = CopyRange { from: node, from_offset: offset, to, to_offset, len };
            let done = service.copy_range(&caller(request, 0), &range)?;
            // The reply has 32 bits; the caller continues from there.
            body.u32(u32::try_from(done).unwrap_or(!0xfffff))?;
            body.u32(0)
        }
    }
}

/// Writes the lines of a directory into a reply.
struct Listing<'b, 'a> {
    body: &'b mut Body<'a>,
    /// Whether lines carry attributes (`READDIRPLUS`).
    plus: bool,
}

impl DirSink for Listing<'_, '_> {
    fn line(&mut self, line: &DirLine<'_>) -> bool {
        self.body.dir_line(line, self.plus)
    }

    fn wants_attrs(&self) -> bool {
        self.plus
    }

    fn len_of(&self, name: usize) -> usize {
        dir_line_len(name, self.plus)
    }

    fn room(&self) -> usize {
        self.body.room()
    }
}

fn list(service: &dyn Service, request: &Request<'_>, body: &mut Body<'_>) -> Answer<()> {
    let mut fixed = Bytes::new(request.fixed);
    let (_handle, offset) = (fixed.u64().or_cut()?, fixed.u64().or_cut()?);
    let size = fixed.u32().or_cut()? as usize;
    let done = {
        let room = body.rest();
        let size = size.min(room.len());
        let mut part = Body::new(room.get_mut(..size).unwrap_or_default());
        let plus = request.header.opcode == op::READDIRPLUS;
        let listed = service.read_dir(request.header.node, offset, &mut Listing { body: &mut part, plus });
        // The lines so far are valid even if the next one cannot be read: the error is returned when that one
        // is requested.
        if part.len() == 0 {
            listed?;
        }
        part.len()
    };
    body.advance(done);
    Ok(())
}

/// The length if the request asks for it, else the bytes if they fit.
fn sized(body: &mut Body<'_>, size: u32, bytes: &[u8]) -> Answer<()> {
    if size == 0 {
        body.u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX))?;
        return body.u32(0);
    }
    if bytes.len() > size as usize { Err(Errno::RANGE) } else { body.put(bytes) }
}

fn xattrs(service: &dyn Service, request: &Request<'_>, body: &mut Body<'_>) -> Answer<()> {
    let node = request.header.node;
    let (mut fixed, mut rest) = (Bytes::new(request.fixed), Bytes::new(request.rest));
    match request.header.opcode {
        op::GETXATTR => {
            let size = fixed.u32().or_cut()?;
            let value = service.xattr(node, rest.name().or_cut()?)?.ok_or(Errno::NODATA)?;
            sized(body, size, &value)
        }
        op::LISTXATTR => {
            let size = fixed.u32().or_cut()?;
            let names = service.xattr_names(node)?;
            // Callers that may not read such an attribute do not see its name. The kernel checks that for
            // reads only.
            let is_hidden = |name: &[u8]| request.header.uid != 0 && name.starts_with(b"trusted.");
            let names = names.iter().filter(|name| !is_hidden(name));
            let list: Vec<u8> = names.flat_map(|name| name.iter().copied().chain([0])).collect();
            if list.len() > XATTR_LIST_MAX {
                return Err(Errno::TOOBIG);
            }
            sized(body, size, &list)
        }
        op::REMOVEXATTR => service.remove_xattr(&caller(request, 0), node, rest.name().or_cut()?),
        _ => {
            let (size, flags) = (fixed.u32().or_cut()?, fixed.u32().or_cut()?);
            let kill = fixed.u32().unwrap_or(0) & SETXATTR_KILL_SET_GID != 0;
            let name = rest.name().or_cut()?;
            let value = rest.bytes(size as usize).or_cut()?;
            service.set_xattr(&caller(request, 0), node, name, value, flags, kill)
        }
    }
}

fn control(service: &dyn Service, request: &Request<'_>, body: &mut Body<'_>) -> Answer<()> {
    /// Length of the part of a reply before its data.
    const REPLY: usize = 16;
    let mut fixed = Bytes::new(request.fixed);
    fixed.u64().or_cut()?;
    let (flags, number) = (fixed.u32().or_cut()?, fixed.u32().or_cut()?);
    fixed.u64().or_cut()?;
    let (given, got) = (fixed.u32().or_cut()? as usize, fixed.u32().or_cut()? as usize);
    if flags & (IOCTL_UNRESTRICTED | IOCTL_COMPAT) != 0 {
        return Err(Errno::NOTTY);
    }
    let given = Bytes::new(request.rest).bytes(given).or_cut()?;
    let room = body.rest().get_mut(REPLY..).unwrap_or_default();
    let got = got.min(room.len());
    let room = room.get_mut(..got).unwrap_or_default();
    let done = service.ioctl(&caller(request, 0), request.header.node, number, given, room)?;
    body.put(&[0; REPLY])?;
    body.advance(done.min(got));
    Ok(())
}

/// Undoes an answer whose reply never reached the kernel: closes the file that it opened, and forgets the
/// nodes that it named.
pub(super) fn undo(service: &dyn Service, request: &Request<'_>, body: &[u8]) {
    // The panic hook has logged it.
    drop(panics::survive(|| undo_or_panic(service, request, body)));
}

fn undo_or_panic(service: &dyn Service, request: &Request<'_>, body: &[u8]) {
    for node in named(request.header.opcode, body) {
        service.forget(node, 1);
    }
    let handle = |at: usize| body.get(at..).and_then(|bytes| Bytes::new(bytes).u64());
    let undone = match request.header.opcode {
        op::OPEN => handle(0).map(|handle| (request.header.node, handle)),
        op::CREATE | op::TMPFILE => handle(0).zip(handle(128)),
        _ => None,
    };
    if let Some((node, handle)) = undone {
        service.release(node, handle);
    }
}

/// The nodes that an answer names.
fn named(opcode: u32, body: &[u8]) -> Vec<u64> {
    let node = |body: &[u8]| Bytes::new(body).u64().filter(|node| *node != 0);
    match opcode {
        op::LOOKUP | op::SYMLINK | op::MKNOD | op::MKDIR | op::LINK | op::CREATE | op::TMPFILE => {
            node(body).into_iter().collect()
        }
        op::READDIRPLUS => {
            /// Length of an entry, and of a directory line up to its name; the length of the name follows two
            /// words of the line.
            const ENTRY: usize = 128;
            const LINE: usize = ENTRY + 24;
            let (mut nodes, mut rest) = (Vec::new(), body);
            while let Some(len) = rest.get(ENTRY + 16..).and_then(|line| Bytes::new(line).u32()) {
                nodes.extend(node(rest));
                rest = rest.get((LINE + len as usize).next_multiple_of(8)..).unwrap_or_default();
            }
            nodes
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::classic;
    use super::*;
    use crate::export::{Attr, Entry, SpaceInfo, Stability};
    use std::sync::Mutex;

    /// A service with one file, which notes the requests that it gets.
    #[derive(Default)]
    struct Asked(Mutex<Vec<String>>);

    impl Asked {
        fn note(&self, what: String) {
            self.0.lock().unwrap().push(what);
        }
    }

    fn attr() -> Attr {
        let at = Time { secs: -3, nanos: 7 };
        Attr {
            ino: 5,
            generation: 9,
            kind: Kind::Regular,
            perm: 0o640,
            nlink: 2,
            uid: 10,
            gid: 20,
            size: 1000,
            blocks: 3,
            block_size: 512,
            rdev: (0, 0),
            atime: at,
            mtime: at,
            ctime: at,
            crtime: at,
        }
    }

    impl Service for Asked {
        fn abilities(&self, _: u64) -> u64 {
            0
        }

        fn lookup(&self, _: &Caller, dir: u64, name: &[u8]) -> Answer<Option<Known>> {
            assert_ne!(name, b"panic", "of one request");
            self.note(format!("lookup {dir} {}", name.escape_ascii()));
            let known = Known {
                entry: Entry { node: 5, attr: attr() },
                name: Stability::Stable,
                attr: Stability::Volatile,
            };
            Ok((name == b"there").then_some(known))
        }

        fn forget(&self, node: u64, count: u64) {
            self.note(format!("forget {node} {count}"));
        }

        fn attr(&self, _: u64, handle: Option<u64>) -> Answer<(Attr, Stability)> {
            self.note(format!("attr {handle:?}"));
            Ok((attr(), Stability::Stable))
        }

        fn set_attr(&self, _: &Caller, _: u64, new: &SetAttr) -> Answer<(Attr, Stability)> {
            self.note(format!("{new:?}"));
            Ok((attr(), Stability::Stable))
        }

        fn read_link(&self, _: u64) -> Answer<Vec<u8>> {
            Ok(vec![b'x'; 300])
        }

        fn read(&self, _: u64, _: u64, offset: u64, buf: &mut [u8]) -> Answer<usize> {
            buf.fill(1);
            self.note(format!("read {offset} {}", buf.len()));
            Ok(buf.len())
        }

        fn write(&self, caller: &Caller, _: u64, write: &WriteAt<'_>) -> Answer<()> {
            assert_ne!(write.offset, 666, "of one that changes something");
            self.note(format!("write {} {} {:?}", caller.uid, write.offset, write.data.len()));
            Ok(())
        }

        fn read_dir(&self, _: u64, from: u64, sink: &mut dyn DirSink) -> Answer<()> {
            let line = |i: u64| DirLine {
                node: i,
                kind: None,
                name: b"a name",
                next: i.wrapping_add(1),
                file: None,
            };
            (from..from.saturating_add(50)).all(|i| sink.line(&line(i)));
            Ok(())
        }

        fn space(&self, _: u64) -> Answer<SpaceInfo> {
            Ok(SpaceInfo::default())
        }

        fn xattr_names(&self, _: u64) -> Answer<Vec<Vec<u8>>> {
            Ok(vec![b"user.a".to_vec(), b"user.bc".to_vec()])
        }

        fn xattr(&self, _: u64, _: &[u8]) -> Answer<Option<Vec<u8>>> {
            Ok(Some(vec![3; 100]))
        }

        fn seek(&self, _: u64, offset: u64, _: Seek) -> Answer<u64> {
            Ok(offset)
        }
    }

    fn bytes(opcode: u32, node: u64, body: &[u8]) -> Vec<u8> {
        let mut all = Vec::new();
        all.extend(u32::try_from(40 + body.len()).unwrap().to_ne_bytes());
        all.extend(opcode.to_ne_bytes());
        for word in [77_u64, node] {
            all.extend(word.to_ne_bytes());
        }
        for word in [1000_u32, 100, 4242, 0] {
            all.extend(word.to_ne_bytes());
        }
        all.extend(body);
        all
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn ask(asked: &Asked, opcode: u32, body: &[u8], room: usize) -> Option<Answer<Vec<u8>>> {
        let all = bytes(opcode, 5, body);
        let request = classic::split(&all)?;
        let mut reply = vec![0; room];
        let answer = answer(asked, &request, &mut reply)?;
        Some(answer.map(|len| reply[..len].to_vec()))
    }

    #[test]
    fn requests_reach_the_service_as_they_were_meant() {
        let asked = Asked::default();
        assert_eq!(ask(&asked, op::LOOKUP, b"there\0", 200).unwrap().unwrap().len(), 128);
        assert_eq!(ask(&asked, op::LOOKUP, b"not\0", 200).unwrap().unwrap()[..8], [0; 8]);
        let read = words(&[1, 0, 4096, 0, 65_536, 0, 0, 0, 0, 0]);
        assert_eq!(ask(&asked, op::READ, &read, 1000).unwrap().unwrap(), [1; 1000]);
        let mut write = words(&[1, 0, 100, 0, 3, 0, 0, 0, 0, 0]);
        write.extend(b"abc");
        assert_eq!(ask(&asked, op::WRITE, &write, 64).unwrap().unwrap(), words(&[3, 0]));
        write.pop();
        assert_eq!(ask(&asked, op::WRITE, &write, 64).unwrap(), Err(Errno::IO));
        assert!(ask(&asked, op::FORGET, &words(&[3, 0]), 64).is_none());
        assert!(ask(&asked, op::BATCH_FORGET, &words(&[2, 0, 8, 0, 1, 0, 9, 0, 2, 0]), 64).is_none());
        assert_eq!(
            ask(&asked, op::GETXATTR, &[&words(&[10, 0])[..], b"n\0"].concat(), 64).unwrap(),
            Err(Errno::RANGE)
        );
        assert_eq!(ask(&asked, op::LISTXATTR, &words(&[0, 0]), 64).unwrap().unwrap(), words(&[15, 0]));
        assert_eq!(ask(&asked, op::READLINK, &[], 100).unwrap(), Err(Errno::RANGE));
        assert_eq!(ask(&asked, 9999, &[], 64).unwrap(), Err(Errno::NOSYS));
        let lines =
            ask(&asked, op::READDIR, &words(&[0, 0, 0, 0, 100, 0, 0, 0, 0, 0]), 4096).unwrap().unwrap();
        assert_eq!(lines.len(), 96, "three lines of 32 bytes in 100");
        let noted = asked.0.into_inner().unwrap().join("; ");
        assert_eq!(
            noted,
            "lookup 5 there; lookup 5 not; read 4096 1000; write 1000 100 3; forget 5 3; forget 8 1; forget 9 2"
        );
    }

    /// The panic hook of a daemon ends the process if a panic is not survived.
    #[test]
    fn a_panic_fails_one_request_only() {
        let asked = Asked::default();
        assert_eq!(ask(&asked, op::LOOKUP, b"panic\0", 200).unwrap(), Err(Errno::IO));
        assert_eq!(ask(&asked, op::LOOKUP, b"there\0", 200).unwrap().unwrap().len(), 128);
        assert!(!panics::is_survived());
        let mut write = words(&[1, 0, 666, 0, 3, 0, 0, 0, 0, 0]);
        write.extend(b"abc");
        assert_eq!(ask(&asked, op::WRITE, &write, 64).unwrap(), Err(Errno::IO));
        assert!(panics::survive(panics::is_survived).is_ok_and(|survived| survived));
    }

    #[test]
    fn what_an_answer_named_is_forgotten_if_it_did_not_arrive() {
        let asked = Asked::default();
        let undone = |opcode: u32, body: &[u8], answer: &[u8]| {
            let all = bytes(opcode, 5, body);
            undo(&asked, &classic::split(&all).unwrap(), answer);
            std::mem::take(&mut *asked.0.lock().unwrap()).join("; ")
        };
        let found = ask(&asked, op::LOOKUP, b"there\0", 200).unwrap().unwrap();
        asked.0.lock().unwrap().clear();
        let node = u64::from_ne_bytes(found[..8].try_into().unwrap());
        assert_eq!(undone(op::LOOKUP, b"there\0", &found), format!("forget {node} 1"));
        assert_eq!(undone(op::LOOKUP, b"not\0", &[0; 128]), "");
        let mut lines = Vec::new();
        for (node, name) in [(0_u64, &b"."[..]), (9, b"a name"), (10, b"12345678")] {
            let mut line = node.to_ne_bytes().to_vec();
            line.resize(128 + 16, 0);
            line.extend(u32::try_from(name.len()).unwrap().to_ne_bytes());
            line.extend([0; 4]);
            line.extend(name);
            line.resize(line.len().next_multiple_of(8), 0);
            lines.extend(line);
        }
        assert_eq!(undone(op::READDIRPLUS, &[0; 40], &lines), "forget 9 1; forget 10 1");
        assert_eq!(undone(op::READDIRPLUS, &[0; 40], &lines[..lines.len() - 3]), "forget 9 1; forget 10 1");
    }

    #[test]
    fn attributes_are_taken_as_the_mask_says() {
        let asked = Asked::default();
        let mut body = words(&[1 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 7, 0, 0, 0, 5000, 0, 0, 0]);
        for _ in 0..3 {
            body.extend(words(&[9, 0]));
        }
        body.extend(words(&[1, 2, 3, 0o100_4755, 0, 44, 55, 0]));
        assert_eq!(ask(&asked, op::SETATTR, &body, 200).unwrap().unwrap().len(), 104);
        let wanted = SetAttr {
            mode: Some(0o4755),
            size: Some(5000),
            atime: Some(NewTime::Now),
            mtime: Some(NewTime::At(Time { secs: 9, nanos: 2 })),
            ..SetAttr::default()
        };
        assert_eq!(asked.0.into_inner().unwrap(), [format!("{wanted:?}")]);
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let asked = Asked::default();
        let mut state = 0x1234_5678_9abc_def1_u64;
        let mut next = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for _ in 0..20_000 {
            let len = (next() % 120) as usize;
            let body: Vec<u8> = std::iter::repeat_with(|| {
                (next() >> 20) as u8 & if len.is_multiple_of(2) { 0x83 } else { 0xff }
            })
            .take(len)
            .collect();
            let room = (next() % 300) as usize;
            let reply = ask(&asked, (next() % 60) as u32, &body, room);
            assert!(reply.is_none_or(|reply| reply.is_err() || reply.is_ok_and(|reply| reply.len() <= room)));
            asked.0.lock().unwrap().clear();
        }
        let all = bytes(op::READ, 5, &[]);
        for len in 0..all.len() {
            assert!(classic::split(&all[..len]).is_none(), "{len}");
        }
    }
}
