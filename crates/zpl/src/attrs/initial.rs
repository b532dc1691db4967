//! The attributes of a file to be created, and their layout.

use crate::acl::change as acl;
use crate::attrs::layout::{Capacity, LEADING, Laid, Tables, Template};
use crate::node::inode::{fill_in, time_words};
use crate::node::kind::encode_device;
use crate::{Attrs, FileKind, Filesystem, ZplError};
use dmu::AllocTx;
use dmu::NewObject;
use format::sa::Attr;
use format::znode::{FLAG_ACL_AUTO_INHERIT, FLAG_ARCHIVE, FLAG_AV_MODIFIED, FLAG_PROJID, FLAG_XATTR, Time};
use format::{ObjType, ObjectId};

/// Bytes of the ACE list of an ordinary mode: three entries.
const USUAL_LIST: usize = 24;

/// The attributes of a file to be created.
pub(crate) struct Fresh<'f> {
    pub(crate) kind: FileKind,
    /// Type and permissions, as in `st_mode`.
    pub(crate) mode: u32,
    pub(crate) uid: u64,
    pub(crate) gid: u64,
    pub(crate) parent: ObjectId,
    pub(crate) rdev: (u32, u32),
    /// Project id; `None`: the file system stores no projects.
    pub(crate) project: Option<u64>,
    /// Flags beyond those that every new file has.
    pub(crate) flags: u64,
    pub(crate) is_xattr: bool,
    pub(crate) links: u64,
    pub(crate) generation: u64,
    pub(crate) now: Time,
    pub(crate) crtime: Time,
    /// Target of a symbolic link.
    pub(crate) target: &'f [u8],
    /// Extended attributes, packed as an nvlist.
    pub(crate) xattrs: Option<&'f [u8]>,
    /// Size of the dnode, in slots of 512 bytes.
    pub(crate) slots: u8,
}

impl Fresh<'_> {
    /// The attributes as [`Attrs`].
    pub(crate) fn attrs(&self) -> Attrs {
        let is_dir = self.kind == FileKind::Directory;
        let mut flags = self.flags | FLAG_ARCHIVE | FLAG_AV_MODIFIED | acl::hints(self.mode);
        flags |= if is_dir { FLAG_ACL_AUTO_INHERIT } else { 0 };
        flags |= if self.is_xattr { FLAG_XATTR } else { 0 };
        flags |= if self.project.is_some() { FLAG_PROJID } else { 0 };
        Attrs {
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            size: if is_dir { 2 } else { self.target.len() as u64 },
            links: self.links,
            generation: self.generation,
            parent: self.parent,
            rdev: self.rdev,
            atime: self.now,
            mtime: self.now,
            ctime: self.now,
            crtime: self.crtime,
            flags,
            projid: self.project.unwrap_or(0),
            seq: None,
            xattr_dir: None,
        }
    }

    /// The attributes in stored form.
    pub(crate) fn lay_out(
        &self,
        attrs: &Attrs,
        tables: &Tables,
        reader: Option<&Filesystem>,
        tx: &dyn AllocTx,
    ) -> Result<Laid, ZplError> {
        let is_usual = self.xattrs.is_none()
            && matches!(self.kind, FileKind::Regular | FileKind::Directory | FileKind::Fifo);
        let (aces, count) = acl::trivial(self.mode, self.kind == FileKind::Directory);
        if !is_usual || aces.len() != USUAL_LIST {
            return self.lay_out_anew(attrs, &aces, count, tables, reader, tx);
        }
        // Most files have the same layout and differ only in the values.
        let slot = &tables.templates[usize::from(self.project.is_some())];
        let template = match slot.get() {
            Some(template) => template,
            None => {
                let laid = self.lay_out_anew(attrs, &aces, count, tables, reader, tx)?;
                slot.get_or_init(|| Template { bonus: laid.bonus, offsets: laid.offsets })
            }
        };
        let (mut bonus, offsets) = (template.bonus.clone(), template.offsets);
        fill_in(&mut bonus, &offsets, attrs);
        if let Some(at) = offsets.get(Attr::DaclAces) {
            bonus[at..at + USUAL_LIST].copy_from_slice(&aces);
        }
        Ok(Laid { bonus, spill: None, offsets })
    }

    #[allow(clippy::too_many_arguments)] // what the caller has at hand
    fn lay_out_anew(
        &self,
        attrs: &Attrs,
        aces: &[u8],
        count: u64,
        tables: &Tables,
        reader: Option<&Filesystem>,
        tx: &dyn AllocTx,
    ) -> Result<Laid, ZplError> {
        let mut words = Vec::with_capacity(24);
        for attr in LEADING {
            let word = match attr {
                Attr::Mode => u64::from(attrs.mode),
                Attr::Size => attrs.size,
                Attr::Gen => attrs.generation,
                Attr::Uid => attrs.uid,
                Attr::Gid => attrs.gid,
                Attr::Parent => attrs.parent.0,
                Attr::Flags => attrs.flags,
                Attr::Links => attrs.links,
                Attr::Crtime => {
                    words.extend(time_words(attrs.crtime));
                    continue;
                }
                _ => {
                    words.extend(time_words(self.now));
                    continue;
                }
            };
            words.push(word);
        }
        words.extend([attrs.projid, encode_device(self.rdev.0, self.rdev.1), count]);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();

        let mut rest = bytes.as_slice();
        let mut values: Vec<(u16, &[u8])> = Vec::with_capacity(20);
        let number = |attr: Attr| tables.number(attr, reader, tx);
        for attr in LEADING.iter().copied().chain([Attr::Projid, Attr::Rdev, Attr::DaclCount]) {
            let (value, after) = rest.split_at(usize::from(attr.size()));
            rest = after;
            let is_stored = match attr {
                Attr::Projid => self.project.is_some(),
                Attr::Rdev => matches!(self.kind, FileKind::CharDevice | FileKind::BlockDevice),
                _ => true,
            };
            if is_stored {
                values.push((number(attr)?, value));
            }
        }
        values.push((number(Attr::DaclAces)?, aces));
        if self.kind == FileKind::Symlink {
            values.push((number(Attr::Symlink)?, self.target));
        }
        if let Some(packed) = self.xattrs {
            values.push((number(Attr::Dxattr)?, packed));
        }
        tables.lay_out(&values, Capacity::of_slots(self.slots), reader, tx)
    }

    /// The object to be created. The spill block is set afterwards.
    pub(crate) fn object(&self, bonus: Vec<u8>) -> NewObject {
        let obj_type = match self.kind {
            FileKind::Directory => ObjType::DIRECTORY,
            _ => ObjType::PLAIN_FILE,
        };
        NewObject { slots: self.slots, ..NewObject::of(obj_type).with_bonus(ObjType::SA, bonus) }
    }
}
