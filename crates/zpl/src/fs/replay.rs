//! Replay of intent log records (docs/on-disk/24-zil.md, section 7).
//!
//! `dmu` walks the log ([`dmu::log::replay`]); this module applies one record, in the transaction that
//! records the progress of the replay.

use crate::attrs::record::from_record;
use crate::dir::names::{Given, NewFile};
use crate::dir::rename::RenameHow;
use crate::fs::backing::Cost;
use crate::fs::writable::Fs;
use crate::node::kind::decode_device;
use crate::{FileKind, ZplError};
use dmu::Tx;
use format::sa::Attr;
use format::zil::{Body, CloneRange, Create, CreateKind, LogTime, LoggedAcl};
use format::znode::{FLAG_ACL_TRIVIAL, Time};
use format::{BlockPtr, ObjectId};
use std::borrow::Cow;

/// Applies a record in this transaction. The file system is not in use meanwhile, and has no log yet.
/// `indirect` is the data of a write whose record refers to a block.
///
/// # Errors
/// Those of the operation. The caller waits for a sync and tries once more: names and numbers that were freed
/// in this txg are available only then.
pub fn replay(fs: &Fs, record: &Body, indirect: Option<&[u8]>, tx: &Tx) -> Result<(), ZplError> {
    fs.set_replay_tx(Some(tx.again()));
    let result = apply(fs, record, indirect);
    fs.set_replay_tx(None);
    result
}

fn apply(fs: &Fs, record: &Body, indirect: Option<&[u8]>) -> Result<(), ZplError> {
    match record {
        Body::Create(create) => fs.replay_create(create),
        Body::Remove { dir, name } => fs.unlink(*dir, name),
        Body::Rmdir { dir, name } => fs.rmdir(*dir, name),
        Body::Link { dir, object, name } => fs.link(*object, *dir, name).map(drop),
        Body::Rename(r) => fs.rename(r.from_dir, &r.from, r.to_dir, &r.to, RenameHow::Replace),
        Body::Exchange(r) => fs.rename(r.from_dir, &r.from, r.to_dir, &r.to, RenameHow::Exchange),
        Body::Whiteout(r, made) => {
            let how = RenameHow::Whiteout { uid: made.uid as u32, gid: made.gid as u32 };
            fs.rename_as(r.from_dir, &r.from, r.to_dir, &r.to, how, &given(made))
        }
        Body::Write { object, offset, length, bp, data } => if_it_exists(fs, *object, || {
            let (at, bytes) = logged_write(*offset, *length, bp, data.as_deref(), indirect)?;
            fs.replay_write(*object, at, &bytes, offset.saturating_add(*length))
        }),
        Body::Write2 { object, offset, length } => if_it_exists(fs, *object, || {
            fs.replay_write(*object, *offset, &[], offset.saturating_add(*length))
        }),
        Body::Truncate { object, offset, length } => if_it_exists(fs, *object, || match *length {
            0 => fs.truncate(*object, *offset, false),
            length => fs.fallocate(*object, *offset, length, crate::Allocate::Punch),
        }),
        Body::SetAttr(set) => if_it_exists(fs, set.object, || {
            let flags = fs.attrs(set.object)?.flags;
            fs.set_attrs(set.object, &from_record(set, flags)).map(drop)
        }),
        Body::SetSaXattr { object, name, value } => {
            if_it_exists(fs, *object, || fs.replay_xattr(*object, name, value))
        }
        Body::Acl { object, acl, .. } => if_it_exists(fs, *object, || fs.replay_acl(*object, acl)),
        Body::AclV0 { .. } => Err(ZplError::Unsupported { what: "an ACL of the old form in an intent log" }),
        Body::CloneRange(clone) => if_it_exists(fs, clone.object, || fs.replay_clone(clone)),
    }
}

/// Ignores a record whose object was freed since.
fn if_it_exists(
    fs: &Fs,
    object: ObjectId,
    apply: impl FnOnce() -> Result<(), ZplError>,
) -> Result<(), ZplError> {
    match fs.inode(object) {
        Ok(_) => apply(),
        Err(ZplError::Stale { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Offset and bytes of a logged write. A write that refers to a block is the whole block.
pub(crate) fn logged_write<'r>(
    offset: u64,
    length: u64,
    bp: &BlockPtr,
    data: Option<&'r [u8]>,
    indirect: Option<&'r [u8]>,
) -> Result<(u64, Cow<'r, [u8]>), ZplError> {
    if let Some(data) = data {
        return Ok((offset, Cow::Borrowed(data)));
    }
    if bp.is_hole() {
        let len = usize::try_from(length.min(format::units::MAX_BLOCK)).unwrap_or(0);
        return Ok((offset, Cow::Owned(vec![0; len])));
    }
    let bytes = indirect.ok_or(ZplError::Invalid { what: "a logged write without its data" })?;
    let size = bp.lsize().0.max(1);
    Ok((offset - offset % size, Cow::Borrowed(bytes)))
}

fn given(create: &Create) -> Given {
    let LogTime { secs, nanos } = create.crtime;
    Given {
        object: Some((create.object, create.slots)),
        generation: Some(create.generation),
        crtime: Some(Time::from_words([secs, nanos])),
        is_exact: true,
        is_always_room: false,
    }
}

impl Fs {
    fn replay_create(&self, create: &Create) -> Result<(), ZplError> {
        let given = given(create);
        if create.what == CreateKind::XattrDir {
            let inode = self.inode(create.dir)?;
            let _settings = inode.settings(&*self.backing)?;
            return self.make_xattr_dir(&inode, &given).map(drop);
        }
        let kind = FileKind::from_mode(create.mode as u32)
            .ok_or(ZplError::Invalid { what: "the mode of a logged file" })?;
        let new = NewFile {
            kind,
            mode: create.mode as u32 & 0o7777,
            umask: 0,
            uid: create.uid as u32,
            gid: create.gid as u32,
            rdev: decode_device(create.rdev),
            target: &create.target,
        };
        let made = self.create_as(create.dir, &create.name, &new, &given)?;
        if let Some(acl) = &create.acl {
            self.replay_acl(made.id, acl)?;
        }
        Ok(())
    }

    fn replay_write(&self, id: ObjectId, at: u64, bytes: &[u8], size: u64) -> Result<(), ZplError> {
        let old = self.attrs(id)?.size;
        self.write(id, at, bytes, &crate::WriteHow::default())?;
        // A whole block was written, which may extend beyond the end of the file.
        let wanted = old.max(size);
        let now = self.attrs(id)?.size;
        if now != wanted || bytes.is_empty() {
            let inode = self.inode(id)?;
            let _range = inode.ranges(&*self.backing).write_all()?;
            let tx = self.begin(Cost::NAMES)?;
            self.grow_block(&inode.object, now, wanted, self.options().block_max(), &tx)?;
            inode.change(&self.store(&tx), |attrs| attrs.size = wanted)?;
        }
        Ok(())
    }

    fn replay_acl(&self, id: ObjectId, acl: &LoggedAcl) -> Result<(), ZplError> {
        let inode = self.inode(id)?;
        let _settings = inode.settings(&*self.backing)?;
        let tx = self.begin(Cost::NAMES)?;
        let edits = [
            (Attr::DaclCount, Some(acl.count.to_le_bytes().to_vec())),
            (Attr::DaclAces, Some(acl.aces.clone())),
        ];
        let now = self.now();
        inode.edit(&self.store(&tx), &edits, |attrs| {
            attrs.flags &= !FLAG_ACL_TRIVIAL;
            attrs.ctime = now;
        })?;
        Ok(())
    }

    fn replay_clone(&self, clone: &CloneRange) -> Result<(), ZplError> {
        let inode = self.inode(clone.object)?;
        inode.expect(FileKind::Regular, "regular file")?;
        let _range = inode.ranges(&*self.backing).write_all()?;
        if !clone.offset.is_multiple_of(clone.block_size)
            || clone.offset.saturating_add(clone.length) >= 1 << 63
            || (clone.pointers.len() as u64).saturating_mul(clone.block_size) < clone.length
        {
            return Err(ZplError::Invalid { what: "a logged range of cloned blocks" });
        }
        let tx = self.begin(Cost::write(clone.length, clone.block_size))?;
        self.put_clone(&inode, clone, self.backing.clones(), &tx)
    }
}
