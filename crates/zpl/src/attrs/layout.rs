//! Attribute tables of a file system that is open for writing: attribute numbers, layouts, and the placement
//! of a file's attributes in bonus and spill block (docs/on-disk/23-zpl.md, section 2).
//!
//! # What always holds
//! - A layout is in its table on disk in the txg of the first buffer that uses it, at the latest.
//! - No two layouts are equal, and numbers are never reused.
//! - The attributes that accounting reads (mode, size, ... project) come first and never go to the spill
//!   block.

use crate::attrs::tables::SaTables;
use crate::{Filesystem, ZplError};
use dmu::AllocTx;
use dmu::DmuError;
use dmu::zap::ZapValue;
use dmu::{LiveObject, LiveSet, NewObject};
use dsl::sync::{lock, read, write};
use format::names::{master_node, sa_master};
use format::sa::{Attr, Layout, Registration, Registry, SA_MAGIC};
use format::{ObjType, ObjectId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, RwLock};

/// Number of known attributes.
pub(crate) const ATTRS: usize = Attr::ALL.len();
/// Number of layouts that a header can distinguish.
const LAYOUTS_MAX: u16 = 1024;
/// Bytes of the largest spill block.
const SPILL_MAX: usize = 128 << 10;
/// Bytes of a spill pointer, taken from the bonus.
pub(crate) const SPILL_POINTER: usize = 128;

/// Order of the attributes that every file has; project, device, ACL and the others follow.
pub(crate) const LEADING: [Attr; 12] = [
    Attr::Mode,
    Attr::Size,
    Attr::Gen,
    Attr::Uid,
    Attr::Gid,
    Attr::Parent,
    Attr::Flags,
    Attr::Atime,
    Attr::Mtime,
    Attr::Ctime,
    Attr::Crtime,
    Attr::Links,
];

/// Byteswap class of the attribute, as the registry stores it.
fn swap_class(attr: Attr) -> u64 {
    match attr {
        Attr::DaclAces => 4,
        Attr::ZnodeAcl | Attr::Symlink | Attr::Scanstamp | Attr::Dxattr => 3,
        _ => 0,
    }
}

/// The registry's value for an attribute: size, byteswap class and number.
fn registration(attr: Attr, number: u16) -> u64 {
    u64::from(number) | swap_class(attr) << 16 | u64::from(attr.size()) << 24
}

/// The attributes that a new file system registers: all but the change counter, which older software does not
/// know.
fn initial() -> impl Iterator<Item = (Attr, u16)> {
    Attr::ALL.iter().copied().filter(|attr| *attr != Attr::Seq).zip(0_u16..)
}

/// A layout in the form that writers use.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) number: u16,
    fields: Vec<Field>,
}

#[derive(Debug, Clone, Copy)]
struct Field {
    /// Bytes of the attribute; 0: variable.
    len: u16,
    attr: Option<Attr>,
}

/// Offsets of the attributes in a bonus, for changes in place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Offsets([u16; ATTRS]);

impl Offsets {
    const NONE: u16 = u16::MAX;

    /// Byte offset in the bonus; `None`: the attribute is not in it.
    pub(crate) fn get(&self, attr: Attr) -> Option<usize> {
        let at = self.0[attr as usize];
        (at != Offsets::NONE).then_some(usize::from(at))
    }
}

fn header_size(variable: usize) -> usize {
    8 + (2 * variable.saturating_sub(1)).next_multiple_of(8)
}

impl Plan {
    /// Offsets of the attributes in a little-endian bonus of this layout. `None`: the bonus is too short for
    /// all of them.
    pub(crate) fn offsets(&self, bonus: &[u8]) -> Option<Offsets> {
        let mut offsets = Offsets([Offsets::NONE; ATTRS]);
        let info = bonus.get(4..6).map_or(0, |raw| u16::from_le_bytes([raw[0], raw[1]]));
        let (mut at, mut variable) = (usize::from(info >> 10) * 8, 0);
        for field in &self.fields {
            let len = if field.len != 0 {
                usize::from(field.len)
            } else {
                let place = 6 + 2 * variable;
                variable += 1;
                let raw = bonus.get(place..place + 2)?;
                usize::from(u16::from_le_bytes([raw[0], raw[1]]))
            };
            if at + len > bonus.len() {
                return None;
            }
            if let (Some(attr), Ok(at)) = (field.attr, u16::try_from(at)) {
                offsets.0[attr as usize] = at;
            }
            at = (at + len).next_multiple_of(8);
        }
        Some(offsets)
    }

    /// Encodes a buffer of this layout.
    fn fill(&self, values: &[(u16, &[u8])]) -> Vec<u8> {
        let variable = self.fields.iter().filter(|field| field.len == 0).count();
        let header = header_size(variable);
        let total = values.iter().fold(header, |at, (_, bytes)| at.next_multiple_of(8) + bytes.len());
        let mut out = Vec::with_capacity(total.max(320));
        out.extend(SA_MAGIC.to_le_bytes());
        out.extend((self.number | (header as u16 / 8) << 10).to_le_bytes());
        for (field, (_, bytes)) in self.fields.iter().zip(values) {
            if field.len == 0 {
                out.extend((bytes.len() as u16).to_le_bytes());
            }
        }
        out.resize(header, 0);
        for (_, bytes) in values {
            out.resize(out.len().next_multiple_of(8), 0);
            out.extend_from_slice(bytes);
        }
        out
    }
}

/// The attributes of a file in stored form.
pub(crate) struct Laid {
    pub(crate) bonus: Vec<u8>,
    pub(crate) spill: Option<Vec<u8>>,
    pub(crate) offsets: Offsets,
}

/// Bytes for attributes in a dnode's bonus.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Capacity {
    /// Bytes of the bonus without a spill block.
    pub(crate) whole: usize,
    /// Bytes of the bonus beside a spill pointer.
    pub(crate) with_spill: usize,
}

impl Capacity {
    /// Capacity of a dnode with this many slots and one block pointer.
    pub(crate) fn of_slots(slots: u8) -> Capacity {
        let whole = 320 + 512 * (usize::from(slots.max(1)) - 1);
        Capacity { whole, with_spill: whole - SPILL_POINTER }
    }

    pub(crate) fn of(object: &LiveObject) -> Capacity {
        Capacity { whole: object.bonus_capacity(false), with_spill: object.bonus_capacity(true) }
    }
}

#[derive(Default)]
struct Known {
    numbers: [Option<u16>; ATTRS],
    /// Length of each attribute by number; 0: variable.
    attributes: HashMap<u16, (u16, Option<Attr>)>,
    next_attribute: u16,
    by_fields: HashMap<Box<[u16]>, Arc<Plan>>,
    by_number: HashMap<u16, Arc<Plan>>,
    next_layout: u16,
}

impl Known {
    fn note(&mut self, number: u16, len: u16, attr: Option<Attr>) {
        self.attributes.insert(number, (len, attr));
        self.next_attribute = self.next_attribute.max(number.saturating_add(1));
        if let Some(attr) = attr {
            self.numbers[attr as usize].get_or_insert(number);
        }
    }

    fn plan(&mut self, number: u16, attrs: &[u16]) -> Arc<Plan> {
        let field = |number: &u16| {
            let (len, attr) = self.attributes.get(number).copied().unwrap_or((0, None));
            Field { len, attr }
        };
        let plan = Arc::new(Plan { number, fields: attrs.iter().map(field).collect() });
        self.by_number.insert(number, Arc::clone(&plan));
        self.by_fields.entry(attrs.into()).or_insert_with(|| Arc::clone(&plan));
        self.next_layout = self.next_layout.max(number.saturating_add(1));
        plan
    }
}

/// A bonus with the layout of most new files, to be copied and filled in.
#[derive(Clone)]
pub(crate) struct Template {
    pub(crate) bonus: Vec<u8>,
    pub(crate) offsets: Offsets,
}

/// The attribute tables of a file system.
pub(crate) struct Tables {
    /// Templates without and with a project.
    pub(crate) templates: [OnceLock<Template>; 2],
    registry: LiveObject,
    layouts: LiveObject,
    known: RwLock<Known>,
    /// Held while an attribute or layout is added to the tables.
    making: Mutex<()>,
}

impl Tables {
    /// Creates the tables of a new file system. Also returns the object that leads to them.
    pub(crate) fn make(
        set: &Arc<LiveSet>,
        salt: &mut dyn FnMut() -> u64,
        tx: &dyn AllocTx,
    ) -> Result<(ObjectId, Tables), DmuError> {
        let mut zap = |obj_type| -> Result<LiveObject, DmuError> {
            let object = set.allocate(&NewObject::of(obj_type), tx)?;
            object.create_zap(tx, salt(), 0)?;
            Ok(object)
        };
        let master = zap(ObjType::SA_MASTER_NODE)?;
        let (registry, layouts) = (zap(ObjType::SA_ATTR_REGISTRATION)?, zap(ObjType::SA_ATTR_LAYOUTS)?);
        let entries = master.zap(tx)?;
        entries.insert(sa_master::REGISTRY.as_bytes(), registry.id().0)?;
        entries.insert(sa_master::LAYOUTS.as_bytes(), layouts.id().0)?;
        let mut known = Known { next_layout: 2, ..Known::default() };
        let entries = registry.zap(tx)?;
        for (attr, number) in initial() {
            entries.insert(attr.name().as_bytes(), registration(attr, number))?;
            known.note(number, attr.size(), Some(attr));
        }
        let tables = Tables {
            templates: Default::default(),
            registry,
            layouts,
            known: RwLock::new(known),
            making: Mutex::default(),
        };
        Ok((master.id(), tables))
    }

    /// Opens the tables of a file system.
    pub(crate) fn open(set: &Arc<LiveSet>, reader: &Filesystem) -> Result<Tables, ZplError> {
        let objset = set.number();
        let corrupt = |why| ZplError::Corrupt { objset, object: ObjectId(1), why };
        let no_tables = || corrupt("a file system of version 5 without attribute tables");
        let id = reader.master_value(master_node::SA_ATTRS)?.ok_or_else(no_tables)?;
        let master = dmu::zap::Zap::open(&set.object(ObjectId(id))?.read())?;
        let table = |name: &str| -> Result<LiveObject, ZplError> {
            let id = master.lookup_u64(name.as_bytes())?.ok_or_else(no_tables)?;
            Ok(set.object(ObjectId(id))?)
        };
        let from: &SaTables = reader.tables().ok_or_else(no_tables)?;
        let mut known = Known { next_layout: 2, ..Known::default() };
        for entry in from.registry().iter() {
            if entry.attr.is_some_and(|attr| attr.size() != entry.len) || entry.number == u16::MAX {
                // Such values could be read, but not written.
                return Err(corrupt("an attribute is registered with another size than it has"));
            }
            known.note(entry.number, entry.len, entry.attr);
        }
        let layouts = table(sa_master::LAYOUTS)?;
        for entry in dmu::zap::Zap::open(&layouts.read())?.entries() {
            // Layouts that cannot be resolved occupy their number too.
            let number = std::str::from_utf8(entry?.name()).ok().and_then(|name| name.parse::<u16>().ok());
            known.next_layout = known.next_layout.max(number.map_or(0, |number| number.saturating_add(1)));
        }
        for layout in from.layouts() {
            let numbers: Vec<u16> = layout.numbers().collect();
            known.plan(layout.number, &numbers);
        }
        Ok(Tables {
            templates: Default::default(),
            registry: table(sa_master::REGISTRY)?,
            layouts,
            known: RwLock::new(known),
            making: Mutex::default(),
        })
    }

    fn known(&self) -> std::sync::RwLockReadGuard<'_, Known> {
        read(&self.known)
    }

    /// The layout with this number.
    pub(crate) fn plan(&self, number: u16) -> Option<Arc<Plan>> {
        self.known().by_number.get(&number).cloned()
    }

    /// The number of an attribute, which is registered if necessary.
    pub(crate) fn number(
        &self,
        attr: Attr,
        reader: Option<&Filesystem>,
        tx: &dyn AllocTx,
    ) -> Result<u16, ZplError> {
        if let Some(number) = self.known().numbers[attr as usize] {
            return Ok(number);
        }
        let _making = lock(&self.making);
        if let Some(number) = self.known().numbers[attr as usize] {
            return Ok(number);
        }
        let number = self.known().next_attribute;
        let value = registration(attr, number);
        self.registry.zap(tx)?.insert(attr.name().as_bytes(), value)?;
        write(&self.known).note(number, attr.size(), Some(attr));
        if let Some(tables) = reader.and_then(Filesystem::tables) {
            let mut all: Vec<Registration> = tables.registry().iter().cloned().collect();
            all.push(Registration::decode(attr.name().as_bytes(), value));
            tables.set_registry(Registry::new(all));
        }
        Ok(number)
    }

    /// The layout of these attributes, which is created if there is none.
    fn layout(
        &self,
        attrs: &[u16],
        reader: Option<&Filesystem>,
        tx: &dyn AllocTx,
    ) -> Result<Arc<Plan>, ZplError> {
        if let Some(plan) = self.known().by_fields.get(attrs) {
            return Ok(Arc::clone(plan));
        }
        let _making = lock(&self.making);
        if let Some(plan) = self.known().by_fields.get(attrs) {
            return Ok(Arc::clone(plan));
        }
        let number = self.known().next_layout;
        let corrupt =
            |why| ZplError::Corrupt { objset: self.layouts.set().number(), object: self.layouts.id(), why };
        if number >= LAYOUTS_MAX {
            return Err(corrupt("no number is left for a layout of attributes"));
        }
        let resolved = reader
            .and_then(Filesystem::tables)
            .map(|tables| (tables, Layout::resolve(number, attrs, &tables.registry())));
        if let Some((tables, layout)) = resolved {
            tables.add(layout.map_err(|source| ZplError::Decode {
                objset: self.layouts.set().number(),
                object: self.layouts.id(),
                source,
            })?);
        }
        self.layouts.zap(tx)?.insert(number.to_string().as_bytes(), ZapValue::U16s(attrs))?;
        Ok(write(&self.known).plan(number, attrs))
    }

    /// Places attributes in bonus and spill block, in this order. `reader` gets new layouts too.
    pub(crate) fn lay_out(
        &self,
        values: &[(u16, &[u8])],
        capacity: Capacity,
        reader: Option<&Filesystem>,
        tx: &dyn AllocTx,
    ) -> Result<Laid, ZplError> {
        let corrupt = |why| {
            let (objset, object) = (self.layouts.set().number(), self.layouts.id());
            ZplError::Corrupt { objset, object, why }
        };
        let mut numbers = [0_u16; 64];
        if values.len() > numbers.len() {
            return Err(corrupt("a file with more attributes than there are"));
        }
        for (slot, (number, bytes)) in numbers.iter_mut().zip(values) {
            *slot = *number;
            if bytes.len() > usize::from(u16::MAX) {
                return Err(ZplError::AttributeTooLarge { size: bytes.len() as u64 });
            }
        }
        let split = self.split(values, capacity);
        let plan = self.layout(&numbers[..split], reader, tx)?;
        let mut bonus = plan.fill(&values[..split]);
        let offsets = plan
            .offsets(&bonus)
            .ok_or_else(|| corrupt("attributes of other sizes than their layout says"))?;
        if split == values.len() {
            return Ok(Laid { bonus, spill: None, offsets });
        }
        bonus.resize(capacity.with_spill, 0);
        let plan = self.layout(&numbers[split..values.len()], reader, tx)?;
        let mut spill = plan.fill(&values[split..]);
        if spill.len() > SPILL_MAX {
            return Err(ZplError::AttributeTooLarge { size: spill.len() as u64 });
        }
        spill.resize(spill.len().next_multiple_of(512), 0);
        Ok(Laid { bonus, spill: Some(spill), offsets })
    }

    /// Number of leading attributes that stay in the bonus.
    fn split(&self, values: &[(u16, &[u8])], capacity: Capacity) -> usize {
        let known = self.known();
        let (mut variable, mut data, mut fits) = (0, 0, 0);
        for (index, (number, bytes)) in values.iter().enumerate() {
            let is_variable = known.attributes.get(number).is_none_or(|(len, _)| *len == 0);
            variable += usize::from(is_variable);
            let end = data + bytes.len();
            let total = header_size(variable) + end;
            if total <= capacity.with_spill && fits == index {
                fits = index + 1;
            }
            if index + 1 == values.len() && total <= capacity.whole {
                return values.len();
            }
            data = end.next_multiple_of(8);
        }
        fits
    }
}
