//! Bookmarks: points in history that incremental sends can start from after their snapshot is destroyed
//! (docs/on-disk/22-mos-dsl.md, section 8).

pub(crate) mod change;
mod redaction;
mod unneeded;

pub use change::NewRedaction;

use crate::dataset::Dataset;
pub use crate::error::BookmarkError;
use crate::error::DslError;
use crate::mos;
use crate::name::{Name, Tail, stored};
use crate::tree::Dsl;
use dmu::zap::{Zap, ZapEntry};
use format::dsl::BookmarkPhys;
use format::{ObjectId, names};
pub use redaction::{RedactedRange, RedactionEntries, RedactionList};
pub use unneeded::unneeded;

/// A bookmark of a head.
#[derive(Debug, Clone)]
pub struct Bookmark {
    head: Dataset,
    name: String,
    phys: BookmarkPhys,
}

/// Decodes a bookmark from its entry in the ZAP `map`.
fn decode(map: ObjectId, entry: &ZapEntry) -> Result<BookmarkPhys, DslError> {
    if entry.int_size != 8 {
        return Err(mos::stored_value(map, entry));
    }
    BookmarkPhys::from_words(&entry.u64s()).map_err(DslError::decode(map))
}

impl Bookmark {
    pub(crate) fn from_entry(head: &Dataset, map: ObjectId, entry: &ZapEntry) -> Result<Bookmark, DslError> {
        let short = stored(map, map, entry.name())?;
        let name = format!("{}#{short}", head.name());
        Ok(Bookmark { head: head.clone(), name, phys: decode(map, entry)? })
    }

    /// Full name of the bookmark: `pool/a#m`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The decoded entry of the ZAP of bookmarks.
    pub fn phys(&self) -> &BookmarkPhys {
        &self.phys
    }

    /// Object of the redaction list; `None`: the bookmark has none.
    pub fn redaction_list(&self) -> Option<ObjectId> {
        self.phys.v2.and_then(|v2| v2.redaction)
    }

    /// The redaction list; `None`: the bookmark has none.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read, or is damaged.
    pub fn redaction(&self) -> Result<Option<RedactionList>, DslError> {
        self.redaction_list().map(|id| RedactionList::open(self.head.dsl(), id)).transpose()
    }

    /// Guids of the snapshots of the redaction list; `None`: the bookmark has no such list.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read, or is damaged.
    pub(crate) fn redact_snaps(&self) -> Result<Option<Vec<u64>>, DslError> {
        Ok(self.redaction()?.map(|list| list.snapshots))
    }
}

impl Dataset {
    fn bookmark_map(&self) -> Result<Option<(ObjectId, Zap)>, DslError> {
        let Some(own) = self.zap()? else { return Ok(None) };
        match mos::lookup_object(&own, self.id(), names::dataset::BOOKMARKS)? {
            Some(map) => Ok(Some((map, mos::zap(self.dsl().mos(), map)?))),
            None => Ok(None),
        }
    }

    /// The bookmark of this head with this name.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read, or is damaged.
    pub fn bookmark(&self, name: &str) -> Result<Option<Bookmark>, DslError> {
        let Some((map, zap)) = self.bookmark_map()? else { return Ok(None) };
        let Some(entry) = zap.lookup(name.as_bytes())? else { return Ok(None) };
        Ok(Some(Bookmark::from_entry(self, map, &entry)?))
    }

    /// The bookmarks of this head, by name.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read, or is damaged.
    pub fn bookmarks(&self) -> Result<Vec<Bookmark>, DslError> {
        let Some((map, zap)) = self.bookmark_map()? else { return Ok(Vec::new()) };
        let mut all = Vec::new();
        for entry in zap.entries() {
            all.push(Bookmark::from_entry(self, map, &entry?)?);
        }
        all.sort_by(|a, b| a.name().cmp(b.name()));
        Ok(all)
    }
}

impl Dsl {
    /// The bookmark with this full name (`pool/a#m`).
    ///
    /// # Errors
    /// If an object of the MOS cannot be read, or is damaged.
    pub fn bookmark(&self, name: &str) -> Result<Bookmark, DslError> {
        let Name { dir, tail: Tail::Bookmark(mark) } = Name::parse(name)? else {
            return Err(DslError::BadName { name: name.to_owned(), why: "not a bookmark" });
        };
        let head = self.dir(dir)?.head()?.ok_or_else(|| DslError::not_found(name))?;
        head.bookmark(mark)?.ok_or_else(|| DslError::not_found(name))
    }
}
