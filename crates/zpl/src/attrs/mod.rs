//! The attributes of a file, from system attributes or from a legacy znode
//! (docs/on-disk/23-zpl.md, sections 2, 3.1 and 8).

pub(crate) mod change;
pub(crate) mod initial;
pub(crate) mod layout;
pub(crate) mod record;
pub(crate) mod tables;

use crate::attrs::tables::SaTables;
use crate::node::kind::decode_device;
use crate::{ZplError, fuid};
use dmu::{DmuError, Object};
use format::sa::{Attr, SaBuffer};
use format::znode::{self, LegacyZnode, Time};
use format::{DecodeError, ObjType, ObjectId};

/// The attributes that every file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attrs {
    /// Type and permissions, as in `st_mode`.
    pub mode: u32,
    /// Owner: a FUID, see [`Attrs::posix_uid`].
    pub uid: u64,
    /// Group: a FUID, see [`Attrs::posix_gid`].
    pub gid: u64,
    /// Size in bytes; for a directory, number of entries + 2.
    pub size: u64,
    /// Number of names; for a directory, number of subdirectories + 2.
    pub links: u64,
    /// Txg of creation: distinguishes files that had the same object number.
    pub generation: u64,
    /// Directory of the file; for an attribute directory, its file.
    pub parent: ObjectId,
    /// Major and minor device number; 0 for files that are no devices.
    pub rdev: (u32, u32),
    /// Time of the last access.
    pub atime: Time,
    /// Time of the last change of the content.
    pub mtime: Time,
    /// Time of the last change of the content or an attribute.
    pub ctime: Time,
    /// Time of creation.
    pub crtime: Time,
    /// Flags: `format::znode::FLAG_…`.
    pub flags: u64,
    /// Project id; 0 by default.
    pub projid: u64,
    /// Change counter; `None` where none is stored.
    pub seq: Option<u64>,
    /// Directory of extended attributes; `None`: the file has none.
    pub xattr_dir: Option<ObjectId>,
}

impl Attrs {
    /// The owner as a POSIX id; [`crate::NOBODY`] for ids of a foreign domain.
    pub fn posix_uid(&self) -> u32 {
        fuid::posix_id(self.uid)
    }

    /// The group as a POSIX id; [`crate::NOBODY`] for ids of a foreign domain.
    pub fn posix_gid(&self) -> u32 {
        fuid::posix_id(self.gid)
    }

    /// Whether this is an attribute directory or a file in one.
    pub fn is_xattr(&self) -> bool {
        self.flags & znode::FLAG_XATTR != 0
    }

    /// The flags as Linux inode flags (`FS_…_FL`).
    pub fn linux_flags(&self) -> u32 {
        znode::linux_flags(self.flags)
    }

    fn from_legacy(old: &LegacyZnode) -> Attrs {
        Attrs {
            mode: old.mode as u32,
            uid: old.uid,
            gid: old.gid,
            size: old.size,
            links: old.links,
            generation: old.generation,
            parent: old.parent,
            rdev: decode_device(old.rdev),
            atime: old.atime,
            mtime: old.mtime,
            ctime: old.ctime,
            crtime: old.crtime,
            flags: old.flags,
            projid: 0,
            seq: None,
            xattr_dir: Some(old.xattr).filter(|id| id.0 != 0),
        }
    }

    fn from_sa(sa: &Sa<'_>) -> Result<Attrs, DecodeError> {
        let flags = sa.need(Attr::Flags)?;
        let has_project = flags & znode::FLAG_PROJID != 0;
        Ok(Attrs {
            mode: sa.need(Attr::Mode)? as u32,
            uid: sa.need(Attr::Uid)?,
            gid: sa.need(Attr::Gid)?,
            size: sa.need(Attr::Size)?,
            links: sa.need(Attr::Links)?,
            generation: sa.need(Attr::Gen)?,
            parent: ObjectId(sa.need(Attr::Parent)?),
            rdev: decode_device(sa.u64(Attr::Rdev)?.unwrap_or(0)),
            atime: sa.time(Attr::Atime)?,
            mtime: sa.time(Attr::Mtime)?,
            ctime: sa.time(Attr::Ctime)?,
            crtime: sa.time(Attr::Crtime)?,
            flags,
            projid: if has_project { sa.need(Attr::Projid)? } else { 0 },
            seq: sa.u64(Attr::Seq)?,
            xattr_dir: sa.u64(Attr::Xattr)?.filter(|id| *id != 0).map(ObjectId),
        })
    }
}

/// The system attributes of a file: bonus first, then spill block.
pub(crate) struct Sa<'a> {
    bonus: SaBuffer<'a>,
    spill: Option<SaBuffer<'a>>,
}

impl<'a> Sa<'a> {
    /// The buffer that holds an attribute, and the attribute's bytes.
    pub(crate) fn find(&self, attr: Attr) -> Result<Option<(SaBuffer<'a>, &'a [u8])>, DecodeError> {
        for buffer in std::iter::once(&self.bonus).chain(&self.spill) {
            if let Some(bytes) = buffer.get(attr)? {
                return Ok(Some((*buffer, bytes)));
            }
        }
        Ok(None)
    }

    pub(crate) fn u64(&self, attr: Attr) -> Result<Option<u64>, DecodeError> {
        match self.find(attr)? {
            Some((buffer, bytes)) => buffer.order().u64(attr.name(), bytes, 0).map(Some),
            None => Ok(None),
        }
    }

    fn need(&self, attr: Attr) -> Result<u64, DecodeError> {
        self.u64(attr)?.ok_or(DecodeError::invalid(attr.name(), "not there"))
    }

    fn time(&self, attr: Attr) -> Result<Time, DecodeError> {
        let (buffer, bytes) = self.find(attr)?.ok_or(DecodeError::invalid(attr.name(), "not there"))?;
        buffer.order().words(attr.name(), bytes, 0).map(Time::from_words)
    }
}

/// How the attributes of an object are stored.
pub(crate) enum Stored<'a> {
    Sa(Sa<'a>),
    Legacy(LegacyZnode),
}

/// Handling of a spill block that cannot be read.
#[derive(Clone, Copy)]
pub(crate) enum Spill {
    /// Fail: the wanted attribute is usually in it.
    Needed,
    /// Ignore it: the bonus has the attributes that every file has, and a file must not be lost with its
    /// extended attributes.
    IfReadable,
}

/// Calls `read` with the stored attributes of an object.
pub(crate) fn with_stored<R>(
    tables: Option<&SaTables>,
    object: &Object,
    spill: Spill,
    read: impl FnOnce(&Stored<'_>) -> Result<R, DecodeError>,
) -> Result<R, ZplError> {
    let objset = object.objset().number();
    let decode = |source| ZplError::Decode { objset, object: object.id(), source };
    let corrupt = |why| ZplError::Corrupt { objset, object: object.id(), why };
    if object.objset().is_locked() {
        return Err(DmuError::Locked { objset }.into());
    }
    match object.dnode().bonus_type {
        ObjType::ZNODE => {
            let znode = LegacyZnode::decode(object.bonus(), object.order()).map_err(decode)?;
            read(&Stored::Legacy(znode)).map_err(decode)
        }
        ObjType::SA => {
            let tables = tables.ok_or_else(|| corrupt("attributes in a file system without tables"))?;
            let bonus = tables.buffer(object.bonus()).map_err(decode)?;
            let bonus = bonus.ok_or_else(|| corrupt("its attributes were never written"))?;
            let spill = match spill {
                Spill::Needed => object.spill()?,
                Spill::IfReadable => object.spill().unwrap_or(None),
            };
            let spill = match &spill {
                Some(block) => tables.buffer(block.bytes()).map_err(decode)?,
                None => None,
            };
            read(&Stored::Sa(Sa { bonus, spill })).map_err(decode)
        }
        _ => Err(ZplError::NotAFile { objset, object: object.id() }),
    }
}

/// Reads the attributes of an object.
pub(crate) fn read(tables: Option<&SaTables>, object: &Object) -> Result<Attrs, ZplError> {
    with_stored(tables, object, Spill::IfReadable, |stored| match stored {
        Stored::Sa(sa) => Attrs::from_sa(sa),
        Stored::Legacy(znode) => Ok(Attrs::from_legacy(znode)),
    })
}

#[cfg(test)]
pub(crate) mod testing {
    use super::Attrs;
    use format::ObjectId;
    use format::znode::Time;

    /// Attributes of a new file, for tests.
    pub(crate) fn attrs(mode: u32, uid: u64, gid: u64) -> Attrs {
        Attrs {
            mode,
            uid,
            gid,
            size: 0,
            links: 1,
            generation: 1,
            parent: ObjectId(1),
            rdev: (0, 0),
            atime: Time::default(),
            mtime: Time::default(),
            ctime: Time::default(),
            crtime: Time::default(),
            flags: 0,
            projid: 0,
            seq: None,
            xattr_dir: None,
        }
    }
}
