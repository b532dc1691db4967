//! Access rules for changes of files that the server enforces, because its clients do not, or send too little
//! to check them.
//!
//! A client checks permission bits and access control lists (the kernel does so for its mounts). The rules
//! here are about set-id bits and capabilities, which a change of the contents removes, and about flags that
//! bind every user.

use super::caller::{Caller, Capability};
use super::error::{Answer, ExportError};
use super::live::LiveFs;
use super::set_ids::without;
use super::types::{NewTime, SetAttr};
use admin::served::ServedFilesystem;
use cenote::files::{Attrs, FileKind, NewAttrs, without_set_ids};
use format::ObjectId;
use format::znode::{FLAG_APPENDONLY, FLAG_IMMUTABLE};

/// Extended attribute with the capabilities that a program gets.
const CAPABILITIES: &[u8] = b"security.capability";
impl LiveFs {
    /// Clears the set-id bits that the caller may not keep, after a change for which the client has not said
    /// which bits to clear.
    pub(crate) fn drop_set_ids(&self, caller: &Caller, id: ObjectId) -> Answer<()> {
        if caller.uid == 0 {
            return Ok(());
        }
        let attrs = self.fs().attrs(id)?;
        let mode = without(caller, &attrs);
        if mode == attrs.mode { Ok(()) } else { self.set_mode(id, mode) }
    }

    /// Clears set-id bits and capabilities before the contents are changed past the client's cache. For
    /// changes through its cache the client does that by itself.
    pub(crate) fn take_back_rights(&self, caller: &Caller, id: ObjectId) -> Answer<()> {
        self.drop_set_ids(caller, id)?;
        self.drop_capabilities(id)
    }

    /// Prepares a write past the client's cache. The file had no set-id bits when it was opened for such
    /// writes, but may have got some since. A client keeps set-id bits in its cache until it asks again, and
    /// a program that it starts meanwhile would run with them and the new contents. So a caller that may not
    /// keep the bits is refused, and the client writes through another descriptor, which it opens then.
    /// Capabilities need no such care: the client asks for them each time.
    ///
    /// # Errors
    /// [`ExportError::LendsRights`] for a caller that may not keep the bits.
    pub(crate) fn begin_around_cache(&self, caller: &Caller, id: ObjectId) -> Answer<()> {
        let attrs = self.fs().attrs(id)?;
        if caller.uid != 0 && without(caller, &attrs) != attrs.mode {
            return Err(ExportError::LendsRights);
        }
        self.drop_capabilities(id)
    }

    fn drop_capabilities(&self, id: ObjectId) -> Answer<()> {
        if self.has_capabilities(id)? {
            self.fs().remove_xattr(id, CAPABILITIES)?;
        }
        Ok(())
    }

    /// Whether a file gives capabilities to programs. A change by any caller, root included, removes them.
    pub(crate) fn has_capabilities(&self, id: ObjectId) -> Answer<bool> {
        Ok(self.fs().xattr(id, CAPABILITIES)?.is_some())
    }

    fn set_mode(&self, id: ObjectId, mode: u32) -> Answer<()> {
        let new = NewAttrs { mode: Some(mode & 0o7777), ..NewAttrs::default() };
        self.fs().set_attrs(id, &new)?;
        Ok(())
    }

    /// The mode after a `chown` that names neither a user nor a group: if the owner or root calls it, it
    /// counts as a change of owner. `None` if the mode stays.
    pub(crate) fn mode_after_chown(&self, caller: &Caller, id: ObjectId) -> Answer<Option<u32>> {
        let attrs = self.fs().attrs(id)?;
        let is_regular = FileKind::from_mode(attrs.mode) != Some(FileKind::Directory);
        let may = caller.uid == 0 || caller.uid == attrs.posix_uid();
        let mode = if caller.uid == 0 { without_set_ids(attrs.mode) } else { without(caller, &attrs) };
        Ok((is_regular && may && mode != attrs.mode).then_some(mode & 0o7777))
    }

    /// Refuses to set the access time of an append-only file to another time than the present.
    pub(crate) fn check_times(&self, id: ObjectId, new: &SetAttr) -> Answer<()> {
        if !matches!(new.atime, Some(NewTime::At(_))) {
            return Ok(());
        }
        let flags = self.fs().attrs(id)?.flags;
        if flags & FLAG_APPENDONLY == 0 { Ok(()) } else { Err(ExportError::NotPermitted) }
    }

    /// Checks that there is space for `len` bytes of a file, less what the file has already. No space is
    /// reserved, but a caller that asks for more than there is gets an error.
    pub(crate) fn check_room(&self, id: ObjectId, len: u64) -> Answer<()> {
        let taken = self.fs().stat(id)?.blocks_512.saturating_mul(512);
        let wanted = len.saturating_sub(taken);
        if wanted > self.writer().available() && self.has_unlinked() {
            self.writer().sync().map_err(ExportError::NotDurable)?;
        }
        let fits = self.writer().has_room(wanted).map_err(ExportError::NotDurable)?;
        if fits { Ok(()) } else { Err(ExportError::NoSpace) }
    }

    /// Checks that the caller may change these flags: the owner may change flags, but only a caller with
    /// `CAP_LINUX_IMMUTABLE` those that bind every user.
    pub(crate) fn check_flags(&self, caller: &Caller, attrs: &Attrs, changed: u64) -> Answer<()> {
        let binds = changed & (FLAG_IMMUTABLE | FLAG_APPENDONLY) != 0;
        let is_owner = caller.uid == attrs.posix_uid() || caller.has(Capability::Fowner);
        if is_owner && (!binds || caller.has(Capability::LinuxImmutable)) {
            Ok(())
        } else {
            Err(ExportError::NotPermitted)
        }
    }
}
