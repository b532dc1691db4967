//! Extended attributes: a packed list among the system attributes, and a hidden directory of files
//! (docs/on-disk/23-zpl.md, section 5).

pub(crate) mod change;

use crate::attrs::{self, Spill, with_stored};
use crate::{Node, ZplError};
use dmu::zap::Match;
use format::sa::Attr;
use format::{NvList, NvValue, ObjectId};
use std::collections::HashSet;

/// Largest value that is read, in bytes. Linux allows 64 KiB, other systems more.
const VALUE_MAX: u64 = 1 << 24;
/// The namespaces of Linux. Other systems store names without one.
const NAMESPACES: [&[u8]; 4] = [b"user.", b"system.", b"security.", b"trusted."];
const USER: &[u8] = b"user.";

/// The name under which a stored name is shown.
fn public_name(stored: &[u8]) -> Vec<u8> {
    if NAMESPACES.iter().any(|space| stored.starts_with(space)) {
        return stored.to_vec();
    }
    [USER, stored].concat()
}

/// The names under which a shown name may be stored.
pub(crate) fn stored_names(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    let foreign =
        name.strip_prefix(USER).filter(|foreign| !foreign.is_empty() && public_name(foreign) == name);
    std::iter::once(name).chain(foreign)
}

fn bytes(value: &NvValue) -> Option<&[u8]> {
    match value {
        NvValue::ByteArray(bytes) | NvValue::Uint8Array(bytes) => Some(bytes),
        _ => None,
    }
}

/// Name and value of an extended attribute.
pub type NameAndValue = (Vec<u8>, Vec<u8>);
/// Callback for each name and the place of its value.
type Visit<'v> = &'v mut dyn FnMut(Vec<u8>, Stored<'_>) -> Result<(), ZplError>;

/// Place of a value.
enum Stored<'a> {
    /// The value is in the packed list.
    Packed(&'a [u8]),
    /// The value is a file of the hidden directory.
    File(ObjectId),
}

impl Node {
    /// The packed list of the attributes stored with the file itself, and its size in bytes; empty if there
    /// is none.
    ///
    /// # Errors
    /// If an object of the file system cannot be read, or is damaged.
    pub fn packed_xattrs(&self) -> Result<(NvList, usize), ZplError> {
        let packed = with_stored(self.fs.tables(), &self.object, Spill::Needed, |stored| match stored {
            attrs::Stored::Sa(sa) => Ok(sa.find(Attr::Dxattr)?.map(|(_, packed)| packed.to_vec())),
            attrs::Stored::Legacy(_) => Ok(None),
        })?;
        match packed {
            Some(packed) if !packed.is_empty() => {
                let list = NvList::decode(&packed).map_err(|e| self.decode_error(e))?;
                Ok((list, packed.len()))
            }
            _ => Ok((NvList::new(), 0)),
        }
    }

    /// The hidden directory of extended attributes; `None`: there is none.
    ///
    /// # Errors
    /// If an object of the file system cannot be read, or is damaged.
    pub fn xattr_directory(&self) -> Result<Option<Node>, ZplError> {
        match self.attrs().xattr_dir {
            Some(id) => {
                let dir = self.fs.node(id)?;
                dir.expect(crate::FileKind::Directory, "directory of attributes")?;
                Ok(Some(dir))
            }
            None => Ok(None),
        }
    }

    /// The names of the extended attributes, each once, as Linux shows them.
    ///
    /// # Errors
    /// If an object of the file system cannot be read, or is damaged.
    pub fn xattrs(&self) -> Result<Vec<Vec<u8>>, ZplError> {
        let mut names = Vec::new();
        self.each_xattr(&mut |name, _| {
            names.push(name);
            Ok(())
        })?;
        Ok(names)
    }

    /// Names and values of the extended attributes, in the order of [`Node::xattrs`].
    ///
    /// # Errors
    /// If an object of the file system cannot be read, or is damaged.
    pub fn xattr_values(&self) -> Result<Vec<NameAndValue>, ZplError> {
        let mut found = Vec::new();
        self.each_xattr(&mut |name, stored| {
            let value = match stored {
                Stored::Packed(value) => value.to_vec(),
                Stored::File(id) => self.fs.node(id)?.xattr_content()?,
            };
            found.push((name, value));
            Ok(())
        })?;
        Ok(found)
    }

    /// Visits each name once, those of the packed list first.
    fn each_xattr(&self, visit: Visit<'_>) -> Result<(), ZplError> {
        let mut seen = HashSet::new();
        let (list, _) = self.packed_xattrs()?;
        for (name, value) in list.iter_bytes() {
            let name = public_name(name);
            if let (Some(value), true) = (bytes(value), seen.insert(name.clone())) {
                visit(name, Stored::Packed(value))?;
            }
        }
        let Some(dir) = self.xattr_directory()? else { return Ok(()) };
        for entry in dir.entries()? {
            let entry = entry?;
            let name = public_name(&entry.name);
            if seen.insert(name.clone()) {
                visit(name, Stored::File(entry.id))?;
            }
        }
        Ok(())
    }

    /// The value of an extended attribute, from the packed list or else from the directory; `None`: there is
    /// none.
    ///
    /// # Errors
    /// If an object of the file system cannot be read, or is damaged.
    pub fn xattr(&self, name: &[u8]) -> Result<Option<Vec<u8>>, ZplError> {
        let (list, _) = self.packed_xattrs()?;
        for stored in stored_names(name) {
            if let Some(value) = list.get(stored).and_then(bytes) {
                return Ok(Some(value.to_vec()));
            }
        }
        let Some(dir) = self.xattr_directory()? else { return Ok(None) };
        for stored in stored_names(name) {
            if let Some(id) = dir.lookup_entry(stored, Match::Exact)? {
                return self.fs.node(id)?.xattr_content().map(Some);
            }
        }
        Ok(None)
    }

    /// The whole content of a file of the hidden directory.
    fn xattr_content(&self) -> Result<Vec<u8>, ZplError> {
        let size = self.attrs().size;
        if size > VALUE_MAX {
            return Err(ZplError::TooLarge { object: self.id(), what: "an extended attribute", size });
        }
        let mut value = vec![0; size as usize];
        let len = self.read_at(0, &mut value)?;
        value.truncate(len);
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_names_are_shown_as_users() {
        assert_eq!(public_name(b"user.a"), b"user.a");
        assert_eq!(public_name(b"SUNWattr_ro"), b"user.SUNWattr_ro");
        assert_eq!(stored_names(b"user.a").collect::<Vec<_>>(), [&b"user.a"[..], b"a"]);
        assert_eq!(stored_names(b"security.x").collect::<Vec<_>>(), [b"security.x"]);
        assert_eq!(stored_names(b"user.").collect::<Vec<_>>(), [b"user."]);
        // An attribute stored as `trusted.x` is not shown as `user.trusted.x`.
        assert_eq!(stored_names(b"user.trusted.x").collect::<Vec<_>>(), [b"user.trusted.x"]);
    }
}
