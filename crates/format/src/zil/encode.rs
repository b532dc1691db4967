//! Encodes records of the intent log.

use super::{
    Body, Create, CreateKind, LogTime, LoggedAcl, Record, RecordKind, Rename, SetAttr, TX_CI, Xvattr,
};
use crate::endian::with_bits;
use crate::{BlockPtr, Endian};

impl Body {
    /// The type of record for this body.
    pub(crate) fn kind(&self) -> RecordKind {
        use RecordKind as K;
        match self {
            Body::Create(create) => create.kind(),
            Body::Remove { .. } => K::Remove,
            Body::Rmdir { .. } => K::Rmdir,
            Body::Link { .. } => K::Link,
            Body::Rename(_) => K::Rename,
            Body::Exchange(_) => K::RenameExchange,
            Body::Whiteout(..) => K::RenameWhiteout,
            Body::Write { .. } => K::Write,
            Body::Write2 { .. } => K::Write2,
            Body::Truncate { .. } => K::Truncate,
            Body::SetAttr(_) => K::SetAttr,
            Body::AclV0 { .. } => K::AclV0,
            Body::Acl { .. } => K::Acl,
            Body::SetSaXattr { .. } => K::SetSaXattr,
            Body::CloneRange(_) => K::CloneRange,
        }
    }
}

impl Create {
    fn kind(&self) -> RecordKind {
        use RecordKind as K;
        match (self.what, self.xvattr.is_some(), self.acl.is_some()) {
            (CreateKind::File, false, false) => K::Create,
            (CreateKind::File, true, false) => K::CreateAttr,
            (CreateKind::File, false, true) => K::CreateAcl,
            (CreateKind::File, true, true) => K::CreateAclAttr,
            (CreateKind::Dir, false, false) => K::Mkdir,
            (CreateKind::Dir, true, false) => K::MkdirAttr,
            (CreateKind::Dir, false, true) => K::MkdirAcl,
            (CreateKind::Dir, true, true) => K::MkdirAclAttr,
            (CreateKind::XattrDir, ..) => K::MkXattrDir,
            (CreateKind::Symlink, ..) => K::Symlink,
        }
    }
}

impl Record {
    /// The bytes of the record, header included.
    pub fn encode(&self, order: Endian) -> Vec<u8> {
        let mut out = Out { bytes: Vec::new(), order };
        let txtype = self.body.kind().id() | if self.case_insensitive { TX_CI } else { 0 };
        // The length is filled in at the end.
        out.words(&[txtype, 0, self.txg.0, self.seq]);
        out.body(&self.body);
        out.pad();
        let len = order.put_u64(out.bytes.len() as u64);
        if let Some(field) = out.bytes.get_mut(8..16) {
            field.copy_from_slice(&len);
        }
        out.bytes
    }
}

struct Out {
    bytes: Vec<u8>,
    order: Endian,
}

impl Out {
    fn words(&mut self, words: &[u64]) {
        for word in words {
            self.bytes.extend(self.order.put_u64(*word));
        }
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
    }

    fn string(&mut self, string: &[u8]) {
        self.bytes.extend(string);
        self.bytes.push(0);
    }

    fn strings(&mut self, strings: &[Vec<u8>]) {
        strings.iter().for_each(|string| self.string(string));
    }

    fn pointer(&mut self, bp: &BlockPtr) {
        self.bytes.extend(bp.encode(self.order));
    }

    fn body(&mut self, body: &Body) {
        match body {
            Body::Create(create) => self.create(create),
            Body::Remove { dir, name } | Body::Rmdir { dir, name } => {
                self.words(&[dir.0]);
                self.string(name);
            }
            Body::Link { dir, object, name } => {
                self.words(&[dir.0, object.0]);
                self.string(name);
            }
            Body::Rename(rename) | Body::Exchange(rename) => self.rename(rename, None),
            Body::Whiteout(rename, whiteout) => self.rename(rename, Some(whiteout)),
            Body::Write { object, offset, length, bp, data } => {
                self.words(&[object.0, *offset, *length, 0]);
                self.pointer(bp);
                match data {
                    // The length of a record distinguishes an immediate write of no bytes from an indirect
                    // one.
                    Some(data) if data.is_empty() => self.words(&[0]),
                    Some(data) => self.bytes.extend(data),
                    None => {}
                }
            }
            Body::Write2 { object, offset, length } => {
                self.words(&[object.0, *offset, *length, 0]);
                self.pointer(&BlockPtr::HOLE);
            }
            Body::Truncate { object, offset, length } => self.words(&[object.0, *offset, *length]),
            Body::SetAttr(set) => self.set_attr(set),
            Body::AclV0 { object, aces } => {
                self.words(&[object.0, aces.len() as u64 / 12]);
                self.bytes.extend(aces);
            }
            Body::Acl { object, acl, domains } => {
                self.words(&[object.0]);
                self.acl_counts(acl, domains);
                self.acl(acl, domains);
            }
            Body::SetSaXattr { object, name, value } => {
                self.words(&[object.0, value.len() as u64]);
                self.string(name);
                self.bytes.extend(value);
            }
            Body::CloneRange(clone) => {
                let count = clone.pointers.len() as u64;
                self.words(&[clone.object.0, clone.offset, clone.length, clone.block_size, count]);
                clone.pointers.iter().for_each(|bp| self.pointer(bp));
            }
        }
    }

    fn create(&mut self, create: &Create) {
        self.words(&[create.dir.0]);
        self.new_object(create);
        if let Some(acl) = &create.acl {
            self.acl_counts(acl, &create.domains);
        }
        if let Some(xvattr) = &create.xvattr {
            self.xvattr(xvattr);
        }
        match &create.acl {
            Some(acl) => self.acl(acl, &create.domains),
            None => self.strings(&create.domains),
        }
        self.string(&create.name);
        if create.what == CreateKind::Symlink {
            self.string(&create.target);
        }
    }

    /// The common fields of create and whiteout records: object id, mode, owners, times, device.
    fn new_object(&mut self, create: &Create) {
        let LogTime { secs, nanos } = create.crtime;
        self.words(&[
            with_bits(create.object.0, 56, 8, u64::from(create.slots.saturating_sub(1))),
            create.mode,
            create.uid,
            create.gid,
            create.generation,
            secs,
            nanos,
            create.rdev,
        ]);
    }

    fn rename(&mut self, rename: &Rename, whiteout: Option<&Create>) {
        self.words(&[rename.from_dir.0, rename.to_dir.0]);
        if let Some(whiteout) = whiteout {
            self.new_object(whiteout);
        }
        self.string(&rename.from);
        self.string(&rename.to);
    }

    fn set_attr(&mut self, set: &SetAttr) {
        let (atime, mtime) = (set.atime, set.mtime);
        self.words(&[set.object.0, set.mask, set.mode, set.uid, set.gid, set.size]);
        self.words(&[atime.secs, atime.nanos, mtime.secs, mtime.nanos]);
        if let Some(xvattr) = &set.xvattr {
            self.xvattr(xvattr);
        }
        self.strings(&set.domains);
    }

    fn acl_counts(&mut self, acl: &LoggedAcl, domains: &[Vec<u8>]) {
        let (domains, fuids) = (domains.len() as u64, acl.fuids.len() as u64);
        self.words(&[acl.count, domains, fuids, acl.aces.len() as u64, acl.flags]);
    }

    fn acl(&mut self, acl: &LoggedAcl, domains: &[Vec<u8>]) {
        self.bytes.extend(&acl.aces);
        self.bytes.resize(self.bytes.len() + acl.aces.len().next_multiple_of(8) - acl.aces.len(), 0);
        self.words(&acl.fuids);
        self.strings(domains);
    }

    fn xvattr(&mut self, xvattr: &Xvattr) {
        self.bytes.extend(self.order.put_u32(xvattr.requested.len() as u32));
        for word in &xvattr.requested {
            self.bytes.extend(self.order.put_u32(*word));
        }
        self.words(&[xvattr.attrs, xvattr.crtime.secs, xvattr.crtime.nanos]);
        self.bytes.extend(xvattr.scanstamp);
    }
}
