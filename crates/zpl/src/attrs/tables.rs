//! The attribute tables of a file system of version 5, for reading: registry and layouts
//! (docs/on-disk/23-zpl.md, section 2). [`crate::attrs::layout`] adds to them.

use crate::ZplError;
use dmu::ObjSet;
use dmu::zap::Zap;
use dsl::sync::{read, write};
use format::names::sa_master;
use format::sa::{Layout, Registration, Registry, SaBuffer, SaHeader};
use format::{DecodeError, ObjectId};
use std::sync::{Arc, OnceLock, RwLock};

/// Number of layouts that a header can distinguish: it has ten bits for them.
const LAYOUTS_MAX: usize = 1024;

/// The attribute tables of a file system of version 5. Attributes and layouts can be added, and never change.
pub(crate) struct SaTables {
    registry: RwLock<Arc<Registry>>,
    /// Layouts by number.
    layouts: Box<[OnceLock<Box<Layout>>]>,
}

impl SaTables {
    /// Reads the registry and the layouts of the tables in this object.
    ///
    /// # Errors
    /// [`ZplError::Corrupt`] if more attributes are registered than there are numbers; or a table cannot be
    /// read.
    pub(crate) fn open(objset: &Arc<ObjSet>, id: ObjectId) -> Result<SaTables, ZplError> {
        let number = objset.number();
        let decode = |object| move |source| ZplError::Decode { objset: number, object, source };
        let corrupt = |object, why| ZplError::Corrupt { objset: number, object, why };
        let master = Zap::open(&objset.object(id)?)?;
        let table = |name: &str| master.lookup_u64(name.as_bytes());
        let mut registrations = Vec::new();
        // Both tables are created with the first attribute.
        if let Some(registry) = table(sa_master::REGISTRY)?.map(ObjectId) {
            for entry in Zap::open(&objset.object(registry)?)?.entries() {
                let entry = entry?;
                let value = entry.u64().unwrap_or(0);
                if registrations.len() > usize::from(u16::MAX) {
                    return Err(corrupt(registry, "more attributes than numbers for them"));
                }
                registrations.push(Registration::decode(entry.name(), value));
            }
        }
        let registry = Registry::new(registrations);
        let layouts = (0..LAYOUTS_MAX).map(|_| OnceLock::new()).collect();
        let tables = SaTables { registry: RwLock::new(Arc::new(registry)), layouts };
        tables.add(Layout::empty());
        let registry = tables.registry();
        if let Some(table) = table(sa_master::LAYOUTS)?.map(ObjectId) {
            for entry in Zap::open(&objset.object(table)?)?.entries() {
                let entry = entry?;
                let name = std::str::from_utf8(entry.name()).ok();
                let Some(number) = name.and_then(|name| name.parse::<u16>().ok()) else { continue };
                let slot = usize::from(number);
                if !(2..LAYOUTS_MAX).contains(&slot) {
                    continue;
                }
                let attrs: Vec<u16> =
                    entry.u64s().iter().filter_map(|attr| u16::try_from(*attr).ok()).collect();
                // Only the files of a layout that cannot be resolved are unreadable.
                match Layout::resolve(number, &attrs, &registry).map_err(decode(table)) {
                    Ok(layout) => tables.add(layout),
                    Err(error) => tracing::warn!(%error, layout = number, "attribute layout left out"),
                }
            }
        }
        Ok(tables)
    }

    /// Decodes the header of a buffer and finds its layout; `None` if the buffer was never filled.
    pub(crate) fn buffer<'a>(&'a self, bytes: &'a [u8]) -> Result<Option<SaBuffer<'a>>, DecodeError> {
        let Some(header) = SaHeader::decode(bytes)? else { return Ok(None) };
        let layout = self.layout(header.layout);
        let layout = layout.ok_or(DecodeError::field("SA header", "layout", header.layout))?;
        SaBuffer::new(bytes, header, layout).map(Some)
    }

    /// The layout with this number.
    pub(crate) fn layout(&self, number: u16) -> Option<&Layout> {
        self.layouts.get(usize::from(number)).and_then(OnceLock::get).map(|layout| &**layout)
    }

    /// The layouts that could be resolved, by number.
    pub(crate) fn layouts(&self) -> impl Iterator<Item = &Layout> {
        self.layouts.iter().filter_map(OnceLock::get).map(|layout| &**layout)
    }

    /// The registered attributes at this moment.
    pub(crate) fn registry(&self) -> Arc<Registry> {
        Arc::clone(&read(&self.registry))
    }

    /// Replaces the registry by one with additional attributes.
    pub(crate) fn set_registry(&self, registry: Registry) {
        *write(&self.registry) = Arc::new(registry);
    }

    /// Adds a layout; if its number is taken, the existing layout stays.
    pub(crate) fn add(&self, layout: Layout) {
        if let Some(slot) = self.layouts.get(usize::from(layout.number)) {
            let _ = slot.set(Box::new(layout));
        }
    }
}
