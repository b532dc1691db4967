//! Rules of changing files that are the server's to keep, because the kernel does not, or says too little for it.

use super::{LiveService, pool_errno};
use crate::caller;
use crate::errno::zpl_errno;
use crate::fuse::{Answer, Caller, NewTime, SetAttr};
use admin::served::ServedFilesystem;
use cenote::files::{Attrs, FileKind, NewAttrs, without_set_ids};
use format::ObjectId;
use format::znode::FLAG_APPENDONLY;
use rustix::io::Errno;

const SET_IDS: u32 = 0o6000;
const SET_GID: u32 = 0o2000;
/// Capabilities that a program gets.
const CAPABILITIES: &[u8] = b"security.capability";
const GROUP_EXECUTES: u32 = 0o0010;

/// The set-group-id bit of a file that its group cannot execute goes only if whoever changes it is not in that group.
fn is_bare_set_gid(attrs: &Attrs) -> bool {
    FileKind::from_mode(attrs.mode) == Some(FileKind::Regular)
        && attrs.mode & (SET_GID | GROUP_EXECUTES) == SET_GID
}

/// The mode of a file that was changed by somebody who may not keep its set-id bits.
fn without(caller: &Caller, attrs: &Attrs) -> u32 {
    let mode = without_set_ids(attrs.mode);
    if is_bare_set_gid(attrs) && !caller::is_in(caller, attrs.posix_gid()) { mode & !SET_GID } else { mode }
}

/// A file that lends the rights of its owner or its group to programs.
pub(super) fn lends_rights(attrs: &Attrs) -> bool {
    FileKind::from_mode(attrs.mode) == Some(FileKind::Regular) && attrs.mode & SET_IDS != 0
}

/// Nothing is to be changed: `chown` was called without a user and without a group.
pub(super) fn is_bare(new: &SetAttr) -> bool {
    let SetAttr { mode, uid, gid, size, atime, mtime, ctime: _, kill_set_ids, handle: _ } = *new;
    (mode, uid, gid, size) == (None, None, None, None) && (atime, mtime) == (None, None) && !kill_set_ids
}

impl LiveService {
    /// A file was changed by somebody who may not keep its set-id bits, of which the kernel has not said which go.
    pub(super) fn drop_set_ids(&self, caller: &Caller, id: ObjectId) -> Answer<()> {
        if caller.uid == 0 {
            return Ok(());
        }
        let attrs = self.fs().attrs(id).map_err(|e| zpl_errno(&e))?;
        let mode = without(caller, &attrs);
        if mode == attrs.mode { Ok(()) } else { self.set_mode(id, mode) }
    }

    /// The content of a file is about to be changed by another way than through the kernel's cache, before which the kernel
    /// would have done this itself: what the file lends is taken back first.
    pub(super) fn take_back_rights(&self, caller: &Caller, id: ObjectId) -> Answer<()> {
        self.drop_set_ids(caller, id)?;
        self.drop_capabilities(id)
    }

    /// The content of a file is about to be changed around the kernel's cache. What the file lends is not lent when it is
    /// opened for that, but may be since. Of set-id bits the kernel believes what it has heard until it asks again, and a
    /// program that it begins meanwhile would have them with the new content: whoever may not keep them writes by another
    /// descriptor, which is opened now. Capabilities it asks for each time.
    pub(super) fn begin_around_cache(&self, caller: &Caller, id: ObjectId) -> Answer<()> {
        let attrs = self.fs().attrs(id).map_err(|e| zpl_errno(&e))?;
        if caller.uid != 0 && without(caller, &attrs) != attrs.mode {
            return Err(Errno::TXTBSY);
        }
        self.drop_capabilities(id)
    }

    fn drop_capabilities(&self, id: ObjectId) -> Answer<()> {
        if self.has_capabilities(id)? {
            self.fs().remove_xattr(id, CAPABILITIES).map_err(|e| zpl_errno(&e))?;
        }
        Ok(())
    }

    /// A file that gives programs capabilities. Whoever changes it, root too, takes them away.
    pub(super) fn has_capabilities(&self, id: ObjectId) -> Answer<bool> {
        self.fs().xattr(id, CAPABILITIES).map(|value| value.is_some()).map_err(|e| zpl_errno(&e))
    }

    fn set_mode(&self, id: ObjectId, mode: u32) -> Answer<()> {
        let new = NewAttrs { mode: Some(mode & 0o7777), ..NewAttrs::default() };
        self.fs().set_attrs(id, &new).map(drop).map_err(|e| zpl_errno(&e))
    }

    /// The mode that a `chown` leaves which names nobody: what the owner, or root, does is a change of owner all the same.
    pub(super) fn mode_after_chown(&self, caller: &Caller, id: ObjectId) -> Answer<Option<u32>> {
        let attrs = self.fs().attrs(id).map_err(|e| zpl_errno(&e))?;
        let is_regular = FileKind::from_mode(attrs.mode) != Some(FileKind::Directory);
        let may = caller.uid == 0 || caller.uid == attrs.posix_uid();
        let mode = if caller.uid == 0 { without_set_ids(attrs.mode) } else { without(caller, &attrs) };
        Ok((is_regular && may && mode != attrs.mode).then_some(mode & 0o7777))
    }

    /// Times of a file that only grows are its own. That it was touched just now may be said.
    pub(super) fn check_times(&self, id: ObjectId, new: &SetAttr) -> Answer<()> {
        if !matches!(new.atime, Some(NewTime::At(_))) {
            return Ok(());
        }
        let flags = self.fs().attrs(id).map_err(|e| zpl_errno(&e))?.flags;
        if flags & FLAG_APPENDONLY == 0 { Ok(()) } else { Err(Errno::PERM) }
    }

    /// Room for a range of a file that is to be reserved, as far as it is not taken already. Nothing can be kept, but
    /// who asks for more than there is hears so.
    pub(super) fn check_room(&self, id: ObjectId, len: u64) -> Answer<()> {
        let taken = self.fs().stat(id).map_err(|e| zpl_errno(&e))?.blocks_512.saturating_mul(512);
        let wanted = len.saturating_sub(taken);
        if wanted > self.writer.available() && self.has_nameless() {
            self.writer.sync().map_err(|error| pool_errno(&error))?;
        }
        let fits = self.writer.has_room(wanted).map_err(|error| pool_errno(&error))?;
        if fits { Ok(()) } else { Err(Errno::NOSPC) }
    }
}
