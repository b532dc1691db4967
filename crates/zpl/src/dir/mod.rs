//! Directories: maps of names to object numbers (docs/on-disk/23-zpl.md, section 3.2).

pub(crate) mod edits;
pub(crate) mod names;
pub(crate) mod path;
pub(crate) mod prefetch;
pub(crate) mod prefetch_credit;
pub(crate) mod rename;
pub(crate) mod unlink;

use crate::{FileKind, Node, ZplError};
use dmu::zap::{Entries, Match, Zap, ZapEntry};
use format::ObjectId;
use format::znode::DirentValue;

/// Bytes of the longest name, without the feature `longname`.
pub(crate) const NAME_MAX: usize = 255;
/// Bytes of the longest name, with the feature `longname`.
pub(crate) const LONG_NAME_MAX: usize = 1023;

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// Name in stored form, any bytes but `/` and NUL.
    pub name: Vec<u8>,
    /// Object number of the file.
    pub id: ObjectId,
    /// Kind of the file by the entry; `None` if the entry has none. It may be wrong: the file's mode decides.
    pub kind_hint: Option<FileKind>,
    /// Position after the entry, for [`Node::entries_from`].
    pub cursor: u64,
}

impl DirEntry {
    /// Decodes an entry; `None` if no directory can have it.
    fn from_zap(entry: ZapEntry) -> Option<DirEntry> {
        let value = DirentValue::decode(entry.u64()?);
        let (cursor, id) = (entry.cursor, value.object?);
        let dmu::zap::ZapKey::Name(name) = entry.key else { return None };
        let kind_hint = FileKind::from_type(value.kind);
        is_name(&name).then_some(DirEntry { name, id, kind_hint, cursor })
    }
}

/// Whether a file can have this name. Other names would let an entry lead to another place than it shows.
pub(crate) fn is_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..")
        && name.len() <= LONG_NAME_MAX
        && !name.iter().any(|byte| matches!(byte, 0 | b'/'))
}

/// Iterator over the entries of a directory, in the order of their cursor, without `.` and `..`. After an
/// error it continues behind the block that cannot be read.
pub struct DirEntries {
    dir: ObjectId,
    entries: Entries,
}

impl Iterator for DirEntries {
    type Item = Result<DirEntry, ZplError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let entry = match self.entries.next()? {
                Ok(entry) => entry,
                Err(error) => return Some(Err(error.into())),
            };
            let cursor = entry.cursor;
            match DirEntry::from_zap(entry) {
                Some(entry) => return Some(Ok(entry)),
                None => tracing::warn!(directory = self.dir.0, cursor, "a damaged entry is left out"),
            }
        }
    }
}

impl DirEntries {
    /// Like `next`, without an allocation for each entry: replaces the contents of `name` by the entry's
    /// name.
    pub(crate) fn next_into(&mut self, name: &mut Vec<u8>) -> Option<Result<Listed, ZplError>> {
        loop {
            let entry = match self.entries.next_named(name)? {
                Ok(entry) => entry,
                Err(error) => return Some(Err(error.into())),
            };
            let value = entry.value.map(DirentValue::decode).filter(|_| is_name(name));
            if let Some(DirentValue { object: Some(id), kind }) = value {
                let kind_hint = FileKind::from_type(kind);
                return Some(Ok(Listed { id, kind_hint, cursor: entry.cursor }));
            }
            let cursor = entry.cursor;
            tracing::warn!(directory = self.dir.0, cursor, "a damaged entry is left out");
        }
    }
}

/// An entry of a directory without its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed {
    /// As [`DirEntry::id`].
    pub id: ObjectId,
    /// As [`DirEntry::kind_hint`].
    pub kind_hint: Option<FileKind>,
    /// As [`DirEntry::cursor`].
    pub cursor: u64,
}

/// Consecutive entries of a directory, with their names in one buffer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DirPage {
    names: Vec<u8>,
    /// Entries, each with the end of its name in `names`.
    entries: Vec<(Listed, usize)>,
}

impl DirPage {
    /// Reads entries as long as `takes` accepts the length of their names. Entries before an error are kept;
    /// `Err`: the first entry failed.
    pub(crate) fn read(
        mut from: DirEntries,
        takes: &mut dyn FnMut(usize) -> bool,
    ) -> Result<DirPage, ZplError> {
        let (mut page, mut name) = (DirPage::default(), Vec::new());
        while let Some(entry) = from.next_into(&mut name) {
            match entry {
                Err(error) if page.entries.is_empty() => return Err(error),
                Ok(entry) if takes(name.len()) => {
                    page.names.extend_from_slice(&name);
                    page.entries.push((entry, page.names.len()));
                }
                Ok(_) | Err(_) => break,
            }
        }
        Ok(page)
    }

    /// Number of entries in the page.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the page has no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entry at `index`, counted from 0.
    pub fn get(&self, index: usize) -> Option<Listed> {
        self.entries.get(index).map(|(entry, _)| *entry)
    }

    /// The entries with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Listed)> {
        let mut start = 0;
        self.entries.iter().map(move |(entry, end)| {
            let name = self.names.get(start..*end).unwrap_or_default();
            start = *end;
            (name, *entry)
        })
    }
}

impl Node {
    fn directory(&self) -> Result<Zap, ZplError> {
        self.expect(FileKind::Directory, "directory")?;
        Ok(Zap::open(&self.object)?)
    }

    /// The entries of a directory.
    ///
    /// # Errors
    /// [`ZplError::WrongKind`] if the node is no directory; or its ZAP cannot be read.
    pub fn entries(&self) -> Result<DirEntries, ZplError> {
        self.entries_from(0)
    }

    /// The entries from a position on: 0, or the cursor of an entry.
    ///
    /// # Errors
    /// [`ZplError::WrongKind`] if the node is no directory; or its ZAP cannot be read.
    pub fn entries_from(&self, cursor: u64) -> Result<DirEntries, ZplError> {
        Ok(DirEntries { dir: self.id(), entries: self.directory()?.entries_from(cursor) })
    }

    /// Number of entries of a directory.
    ///
    /// # Errors
    /// [`ZplError::WrongKind`] if the node is no directory; or its ZAP cannot be read.
    pub fn entry_count(&self) -> Result<u64, ZplError> {
        Ok(self.directory()?.count()?)
    }

    pub(crate) fn lookup_entry(&self, name: &[u8], how: Match) -> Result<Option<ObjectId>, ZplError> {
        let zap = self.directory()?;
        if !is_name(name) {
            return Ok(None);
        }
        Ok(zap.lookup_matching(name, how)?.and_then(DirEntry::from_zap).map(|entry| entry.id))
    }

    /// The first name that leads to an object.
    pub(crate) fn name_of(&self, id: ObjectId) -> Result<Option<Vec<u8>>, ZplError> {
        for entry in self.entries()? {
            let entry = entry?;
            if entry.id == id {
                return Ok(Some(entry.name));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::is_name;

    #[test]
    fn names_that_no_directory_has() {
        for name in [&b""[..], b".", b"..", b"a/b", b"a\0b", &[b'x'; 1024]] {
            assert!(!is_name(name));
        }
        for name in [&b"..."[..], b"\xFF", b" ", &[b'x'; 1023]] {
            assert!(is_name(name));
        }
    }
}
