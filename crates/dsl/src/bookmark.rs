//! Bookmarks: what is left of a snapshot for incremental sends
//! (docs/on-disk/22-mos-dsl.md, section 8).

use crate::dataset::Dataset;
use crate::name::stored;
use crate::{DslError, mos};
use dmu::zap::ZapEntry;
use format::ObjectId;
use format::dsl::{BookmarkPhys, RedactionListPhys};

/// A bookmark of a head.
#[derive(Debug, Clone)]
pub struct Bookmark {
    head: Dataset,
    name: String,
    phys: BookmarkPhys,
}

impl Bookmark {
    pub(crate) fn from_entry(head: &Dataset, map: ObjectId, entry: &ZapEntry) -> Result<Bookmark, DslError> {
        let short = stored(map, map, entry.name())?;
        let name = format!("{}#{short}", head.name());
        if entry.int_size != 8 {
            return Err(mos::stored_value(map, entry));
        }
        let phys = BookmarkPhys::from_words(&entry.u64s()).map_err(DslError::decode(map))?;
        Ok(Bookmark { head: head.clone(), name, phys })
    }

    /// Full name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The head that it belongs to.
    pub fn head(&self) -> &Dataset {
        &self.head
    }

    /// What is stored.
    pub fn phys(&self) -> &BookmarkPhys {
        &self.phys
    }

    /// Object of its redaction list.
    pub fn redaction_list(&self) -> Option<ObjectId> {
        self.phys.v2.and_then(|v2| v2.redaction)
    }

    /// Guids of the snapshots that its redaction list is made of; `None`: it has no such list.
    pub fn redact_snaps(&self) -> Result<Option<Vec<u64>>, DslError> {
        let Some(id) = self.redaction_list() else { return Ok(None) };
        let object = self.head.dsl().mos().object(id)?;
        // Lists of many snapshots have the same structure in the spill block instead.
        let list = match object.spill()? {
            Some(spill) => RedactionListPhys::decode(spill.bytes(), spill.order()),
            None => RedactionListPhys::decode(object.bonus(), object.order()),
        };
        Ok(Some(list.map_err(DslError::decode(id))?.snapshots))
    }
}
