//! System attributes: layout of a file's attributes in its bonus and spill block
//! (docs/on-disk/23-zpl.md, section 2).
//!
//! The registry gives attributes their numbers and sizes; a layout is the order of attributes in a buffer. Both are
//! per file system. A [`Layout`] is resolved once into offsets, so that reading an attribute of a file is a table
//! look-up and a slice.
//!
//! # What always holds
//! - Attributes are identified by name; numbers are not assumed, except the 16 that the format fixes.
//! - The magic number of a buffer states its byte order, which may differ from that of its block.

use crate::endian::bits;
use crate::{DecodeError, Endian};

/// Magic number at the start of a filled buffer.
pub const SA_MAGIC: u32 = 0x002F_505A;
/// Maximum number of attributes in a layout.
const MAX_FIELDS: usize = 1024;

macro_rules! attrs {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $len:literal;)*) => {
        /// The attributes that file systems use, in the order of their usual numbers.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Attr { $($(#[$doc])* $variant,)* }

        impl Attr {
            /// All attributes, in the order of their usual numbers.
            pub const ALL: &'static [Attr] = &[$(Attr::$variant,)*];

            /// The name in the registry.
            pub fn name(self) -> &'static str {
                match self { $(Attr::$variant => $name,)* }
            }

            /// Size in bytes; 0 if it varies.
            pub fn size(self) -> u16 {
                match self { $(Attr::$variant => $len,)* }
            }
        }
    };
}
attrs! {
    /// Time of the last access.
    Atime = "ZPL_ATIME", 16;
    /// Time of the last change of the content.
    Mtime = "ZPL_MTIME", 16;
    /// Time of the last change of the file or its attributes.
    Ctime = "ZPL_CTIME", 16;
    /// Time of creation of the file.
    Crtime = "ZPL_CRTIME", 16;
    /// Transaction group in which the file was created.
    Gen = "ZPL_GEN", 8;
    /// File type and permission bits.
    Mode = "ZPL_MODE", 8;
    /// Size in bytes; for a directory, its number of entries plus 2.
    Size = "ZPL_SIZE", 8;
    /// Object id of the directory that contains the file.
    Parent = "ZPL_PARENT", 8;
    /// Number of hard links to the file.
    Links = "ZPL_LINKS", 8;
    /// Object id of the directory of extended attributes.
    Xattr = "ZPL_XATTR", 8;
    /// Device number of a device node.
    Rdev = "ZPL_RDEV", 8;
    /// Flags of the file, see [`crate::znode`].
    Flags = "ZPL_FLAGS", 8;
    /// The owner, as a FUID.
    Uid = "ZPL_UID", 8;
    /// The group, as a FUID.
    Gid = "ZPL_GID", 8;
    /// Padding of the legacy form.
    Pad = "ZPL_PAD", 32;
    /// ACL of the legacy form.
    ZnodeAcl = "ZPL_ZNODE_ACL", 88;
    /// Number of entries in the ACL.
    DaclCount = "ZPL_DACL_COUNT", 8;
    /// Target of a symbolic link.
    Symlink = "ZPL_SYMLINK", 0;
    /// Stamp of a virus scanner.
    Scanstamp = "ZPL_SCANSTAMP", 32;
    /// The packed entries of the ACL.
    DaclAces = "ZPL_DACL_ACES", 0;
    /// Extended attributes as a packed list.
    Dxattr = "ZPL_DXATTR", 0;
    /// Id of the project that the file is charged to.
    Projid = "ZPL_PROJID", 8;
    /// Number of changes of the contents.
    Seq = "ZPL_SEQ", 8;
}

/// Number of attributes whose numbers are fixed even if the registry does not list them.
const FIXED: u16 = 16;

impl Attr {
    /// The attribute of this name.
    pub(crate) fn from_name(name: &[u8]) -> Option<Attr> {
        Attr::ALL.iter().copied().find(|attr| attr.name().as_bytes() == name)
    }

    fn index(self) -> usize {
        self as usize
    }
}

/// Byte-swap class of an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaSwap {
    /// Words of 64 bits, each swapped.
    U64,
    /// Words of 32 bits, each swapped.
    U32,
    /// Words of 16 bits, each swapped.
    U16,
    /// Bytes, which have no byte order.
    Bytes,
    /// ACEs, whose fields are swapped by their sizes.
    Acl,
    /// An unknown class.
    Unknown(u8),
}

/// An entry of the registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// Name of the attribute, such as `ZPL_SIZE`.
    pub(crate) name: Vec<u8>,
    /// The attribute; `None` if it is unknown.
    pub attr: Option<Attr>,
    /// Number by which layouts name the attribute.
    pub number: u16,
    /// Size in bytes; 0 if it varies.
    pub len: u16,
    /// How the value is byte-swapped.
    pub swap: SaSwap,
}

impl Registration {
    /// Decodes an entry of the registry.
    pub fn decode(name: &[u8], value: u64) -> Registration {
        let swap = match bits(value, 16, 8) as u8 {
            0 => SaSwap::U64,
            1 => SaSwap::U32,
            2 => SaSwap::U16,
            3 => SaSwap::Bytes,
            4 => SaSwap::Acl,
            other => SaSwap::Unknown(other),
        };
        Registration {
            name: name.to_vec(),
            attr: Attr::from_name(name),
            number: bits(value, 0, 16) as u16,
            len: bits(value, 24, 16) as u16,
            swap,
        }
    }
}

/// The registry of a file system.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    entries: Vec<Registration>,
}

impl Registry {
    /// Makes a registry from its entries. Missing attributes with fixed numbers are added; of two entries with the
    /// same number the first is used.
    pub fn new(mut entries: Vec<Registration>) -> Registry {
        for (attr, number) in Attr::ALL.iter().zip(0..FIXED) {
            if !entries.iter().any(|entry| entry.attr == Some(*attr)) {
                let swap = if *attr == Attr::ZnodeAcl { SaSwap::Bytes } else { SaSwap::U64 };
                let name = attr.name().as_bytes().to_vec();
                entries.push(Registration { name, attr: Some(*attr), number, len: attr.size(), swap });
            }
        }
        entries.sort_by_key(|entry| entry.number);
        entries.dedup_by_key(|entry| entry.number);
        Registry { entries }
    }

    /// The attribute with this number.
    pub fn get(&self, number: u16) -> Option<&Registration> {
        let found = self.entries.binary_search_by_key(&number, |entry| entry.number).ok()?;
        self.entries.get(found)
    }

    /// All registered attributes, ascending by number.
    pub fn iter(&self) -> impl Iterator<Item = &Registration> {
        self.entries.iter()
    }
}

/// Location of an attribute in a layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Location {
    /// The layout does not contain the attribute.
    Absent,
    /// At a fixed offset after the header, with this length: no attribute of variable size precedes it.
    Fixed(u32, u16),
    /// At this index among the layout's attributes; its offset depends on variable sizes.
    Walk(u16),
}

/// An attribute of a layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Field {
    number: u16,
    /// Size in bytes; 0 if it varies.
    len: u16,
}

/// A layout: the order and offsets of attributes in a bonus or spill block.
#[derive(Debug, Clone)]
pub struct Layout {
    /// Number of the layout, as headers of buffers state it.
    pub number: u16,
    fields: Vec<Field>,
    locations: [Location; Attr::ALL.len()],
    /// Size of the header for this layout, in bytes.
    header_size: usize,
}

impl Layout {
    /// The layout without attributes; its number is 1, which headers may also state as 0.
    pub fn empty() -> Layout {
        Layout {
            number: 1,
            fields: Vec::new(),
            locations: [Location::Absent; Attr::ALL.len()],
            header_size: 8,
        }
    }

    /// Resolves a layout given as attribute numbers.
    ///
    /// # Errors
    /// [`DecodeError::Field`] if there are too many attributes, or one is not registered or occurs twice.
    pub fn resolve(number: u16, attrs: &[u16], registry: &Registry) -> Result<Layout, DecodeError> {
        const WHAT: &str = "SA layout";
        if attrs.len() > MAX_FIELDS {
            return Err(DecodeError::field(WHAT, "attributes", attrs.len() as u64));
        }
        let mut layout = Layout::empty();
        layout.number = number;
        let mut offset = Some(0_u32);
        let mut variable = 0;
        for (index, attr) in attrs.iter().enumerate() {
            let entry = registry.get(*attr).ok_or(DecodeError::field(WHAT, "attribute", *attr))?;
            let place = match offset {
                Some(offset) if entry.len != 0 => Location::Fixed(offset, entry.len),
                _ => Location::Walk(index as u16),
            };
            variable += usize::from(entry.len == 0);
            offset = offset
                .filter(|_| entry.len != 0)
                .map(|offset| offset + u32::from(entry.len).next_multiple_of(8));
            if let Some(slot) = entry.attr.and_then(|attr| layout.locations.get_mut(attr.index())) {
                if *slot != Location::Absent {
                    return Err(DecodeError::field(WHAT, "attribute twice", *attr));
                }
                *slot = place;
            }
            layout.fields.push(Field { number: *attr, len: entry.len });
        }
        layout.header_size = header_size(variable);
        Ok(layout)
    }

    /// True if the layout has this attribute.
    pub fn has(&self, attr: Attr) -> bool {
        self.locations[attr.index()] != Location::Absent
    }

    /// The attribute numbers in order.
    pub fn numbers(&self) -> impl Iterator<Item = u16> + '_ {
        self.fields.iter().map(|field| field.number)
    }
}

/// Size in bytes of a header for `variable` attributes of variable size.
fn header_size(variable: usize) -> usize {
    8 + (2 * variable.saturating_sub(1)).next_multiple_of(8)
}

/// The header of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SaHeader {
    /// Byte order of the buffer.
    pub order: Endian,
    /// Number of the layout; 0 in the buffer is read as 1.
    pub layout: u16,
    /// Size of the header in bytes.
    pub size: usize,
}

impl SaHeader {
    /// Decodes the header. `None`: the buffer was never filled.
    ///
    /// # Errors
    /// [`DecodeError::Short`], [`DecodeError::Magic`]; [`DecodeError::Field`] if the header is larger
    /// than the buffer.
    pub fn decode(bytes: &[u8]) -> Result<Option<SaHeader>, DecodeError> {
        const WHAT: &str = "SA header";
        DecodeError::need(WHAT, 8, bytes.len())?;
        let magic = Endian::Little.u32(WHAT, bytes, 0)?;
        let order = match magic {
            0 => return Ok(None),
            SA_MAGIC => Endian::Little,
            _ if magic == SA_MAGIC.swap_bytes() => Endian::Big,
            found => {
                return Err(DecodeError::Magic {
                    what: WHAT,
                    found: found.into(),
                    expected: SA_MAGIC.into(),
                });
            }
        };
        let info = u64::from(order.u16(WHAT, bytes, 4)?);
        let size = 8 * bits(info, 10, 6) as usize;
        if size < 8 || size > bytes.len() {
            return Err(DecodeError::field(WHAT, "size", size as u64));
        }
        Ok(Some(SaHeader { order, layout: (bits(info, 0, 10) as u16).max(1), size }))
    }
}

/// A buffer with its header and layout: attributes as slices of it.
#[derive(Debug, Clone, Copy)]
pub struct SaBuffer<'a> {
    bytes: &'a [u8],
    header: SaHeader,
    layout: &'a Layout,
}

impl<'a> SaBuffer<'a> {
    /// Combines the three; `layout` must be the one that `header` names.
    ///
    /// # Errors
    /// [`DecodeError::Field`] if the buffer ends within its header.
    pub fn new(bytes: &'a [u8], header: SaHeader, layout: &'a Layout) -> Result<SaBuffer<'a>, DecodeError> {
        // A header larger than necessary is valid, because its size is stored. With a smaller one, data would be
        // read as lengths.
        if header.size < layout.header_size || header.size > bytes.len() {
            return Err(DecodeError::field("SA header", "size", header.size as u64));
        }
        Ok(SaBuffer { bytes, header, layout })
    }

    /// Byte order of the buffer.
    pub fn order(&self) -> Endian {
        self.header.order
    }

    /// The layout that the header names.
    pub fn layout(&self) -> &'a Layout {
        self.layout
    }

    /// The bytes of an attribute; `None` if the layout lacks it.
    ///
    /// # Errors
    /// [`DecodeError`] if the buffer ends before the attribute does.
    pub fn get(&self, attr: Attr) -> Result<Option<&'a [u8]>, DecodeError> {
        let (start, len) = match self.layout.locations[attr.index()] {
            Location::Absent => return Ok(None),
            Location::Fixed(offset, len) => (self.header.size + offset as usize, usize::from(len)),
            Location::Walk(index) => self.walk(usize::from(index))?,
        };
        let end = start + len;
        self.bytes.get(start..end).map(Some).ok_or(DecodeError::Short {
            what: attr.name(),
            needed: end,
            have: self.bytes.len(),
        })
    }

    /// The value of a numeric attribute.
    ///
    /// # Errors
    /// As [`SaBuffer::get`].
    pub fn u64(&self, attr: Attr) -> Result<Option<u64>, DecodeError> {
        match self.get(attr)? {
            Some(raw) => self.header.order.u64(attr.name(), raw, 0).map(Some),
            None => Ok(None),
        }
    }

    /// All attributes in order: number and bytes. Ends at the first that does not fit.
    pub fn iter(&self) -> impl Iterator<Item = (u16, &'a [u8])> + '_ {
        let mut variable = 0;
        let mut at = self.header.size;
        self.layout.fields.iter().map_while(move |field| {
            let len = self.field_len(field, &mut variable)?;
            let start = at;
            at = at.checked_add(len)?.checked_next_multiple_of(8)?;
            Some((field.number, self.bytes.get(start..start + len)?))
        })
    }

    fn field_len(&self, field: &Field, variable: &mut usize) -> Option<usize> {
        if field.len != 0 {
            return Some(usize::from(field.len));
        }
        let at = 6 + 2 * *variable;
        *variable += 1;
        let table = self.bytes.get(..self.header.size)?;
        self.header.order.get_u16(table, at).map(usize::from)
    }

    /// Start and length of the layout's attribute `index`.
    fn walk(&self, index: usize) -> Result<(usize, usize), DecodeError> {
        let mut variable = 0;
        let mut at = self.header.size;
        let mut len = 0;
        for field in self.layout.fields.iter().take(index + 1) {
            at = (at + len).next_multiple_of(8);
            len = self
                .field_len(field, &mut variable)
                .ok_or(DecodeError::invalid("SA header", "its lengths end too early"))?;
        }
        Ok((at, len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registry() -> Registry {
        let mut entries = Vec::new();
        for (number, attr) in Attr::ALL.iter().enumerate() {
            let value = number as u64 | u64::from(attr.size()) << 24;
            entries.push(Registration::decode(attr.name().as_bytes(), value));
        }
        Registry::new(entries)
    }

    #[test]
    fn symlink_between_fixed_attributes() {
        let layout = Layout::resolve(3, &[5, 6, 17, 21, 20], &registry()).unwrap();
        for order in [Endian::Little, Endian::Big] {
            let mut bytes = Vec::new();
            bytes.extend(order.put_u32(SA_MAGIC));
            bytes.extend(order.put_u16(2 << 10 | 3));
            bytes.extend(order.put_u16(5));
            bytes.extend(order.put_u16(3));
            bytes.extend([0; 6]);
            bytes.extend(order.put_u64(0o120_777));
            bytes.extend(order.put_u64(5));
            bytes.extend(b"a/b/c\0\0\0");
            bytes.extend(order.put_u64(42));
            bytes.extend(b"xyz");
            let header = SaHeader::decode(&bytes).unwrap().unwrap();
            assert_eq!(header, SaHeader { order, layout: 3, size: 16 });
            let sa = SaBuffer::new(&bytes, header, &layout).unwrap();
            assert_eq!(sa.u64(Attr::Mode), Ok(Some(0o120_777)));
            assert_eq!(sa.get(Attr::Symlink), Ok(Some(&b"a/b/c"[..])));
            assert_eq!(sa.u64(Attr::Projid), Ok(Some(42)));
            assert_eq!(sa.get(Attr::Dxattr), Ok(Some(&b"xyz"[..])));
            assert_eq!(sa.get(Attr::Gen), Ok(None));
            assert_eq!(sa.iter().count(), 5);
            let short = SaBuffer::new(&bytes[..bytes.len() - 1], header, &layout).unwrap();
            assert!(short.get(Attr::Dxattr).is_err());
        }
    }

    #[test]
    fn header_grows_with_variable_attributes() {
        assert_eq!([0, 1, 2, 5, 6].map(header_size), [8, 8, 16, 16, 24]);
    }

    #[test]
    fn fixed_numbers_need_no_registry() {
        let registry = Registry::new(Vec::new());
        assert_eq!(registry.get(15).and_then(|entry| entry.attr), Some(Attr::ZnodeAcl));
        assert!(registry.get(16).is_none());
        assert!(Layout::resolve(2, &[0, 16], &registry).is_err());
        assert!(Layout::resolve(2, &[0, 1, 0], &registry).is_err());
    }

    #[test]
    fn never_filled() {
        assert_eq!(SaHeader::decode(&[0; 64]), Ok(None));
        assert!(SaHeader::decode(&[1; 64]).is_err());
        assert!(SaHeader::decode(&[0; 7]).is_err());
    }
}
