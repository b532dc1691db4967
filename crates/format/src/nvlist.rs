//! Name-value lists: how labels, the MOS configuration, the cache file, SA extended attributes and
//! control messages store structured data (docs/on-disk/11-labels-config.md, section 2).
//!
//! There are two encodings. XDR is big-endian in 32-bit units and is used in pools; native is the memory image of
//! its writer and is used in the cache file. Both are decoded to the same [`NvList`], with pairs in stored order.
//!
//! # What always holds
//! - Nesting is at most `DEPTH_MAX` lists deep; counts are compared with the remaining bytes before memory is
//!   allocated.
//! - XDR output is byte-exact, including the hints of decoded size, because other implementations allocate by them.
//! - Names and strings need not be UTF-8: the bytes of those that are not are kept beside a readable form, so that
//!   encoding restores them.
//!
//! Tests: a real label in `testdata/`, `tests/it/fuzz.rs`.

mod native;
mod reader;
mod xdr;

use crate::{DecodeError, Endian};
use reader::Reader;

/// Maximum depth of nested lists.
pub(crate) const DEPTH_MAX: u32 = 20;
/// Maximum length of a name in bytes: native encoding counts it and its NUL in 15 bits.
pub(crate) const NAME_MAX: usize = 32766;
/// List flag: names of pairs are unique.
pub(crate) const FLAG_UNIQUE_NAME: u32 = 1;

const WHAT: &str = "nvlist";

/// Type numbers of pairs, the same in both encodings.
mod id {
    pub(super) const BOOLEAN: u32 = 1;
    pub(super) const BYTE: u32 = 2;
    pub(super) const INT16: u32 = 3;
    pub(super) const UINT16: u32 = 4;
    pub(super) const INT32: u32 = 5;
    pub(super) const UINT32: u32 = 6;
    pub(super) const INT64: u32 = 7;
    pub(super) const UINT64: u32 = 8;
    pub(super) const STRING: u32 = 9;
    pub(super) const BYTE_ARRAY: u32 = 10;
    pub(super) const INT16_ARRAY: u32 = 11;
    pub(super) const UINT16_ARRAY: u32 = 12;
    pub(super) const INT32_ARRAY: u32 = 13;
    pub(super) const UINT32_ARRAY: u32 = 14;
    pub(super) const INT64_ARRAY: u32 = 15;
    pub(super) const UINT64_ARRAY: u32 = 16;
    pub(super) const STRING_ARRAY: u32 = 17;
    pub(super) const HRTIME: u32 = 18;
    pub(super) const NVLIST: u32 = 19;
    pub(super) const NVLIST_ARRAY: u32 = 20;
    pub(super) const BOOLEAN_VALUE: u32 = 21;
    pub(super) const INT8: u32 = 22;
    pub(super) const UINT8: u32 = 23;
    pub(super) const BOOLEAN_ARRAY: u32 = 24;
    pub(super) const INT8_ARRAY: u32 = 25;
    pub(super) const UINT8_ARRAY: u32 = 26;
    pub(super) const DOUBLE: u32 = 27;
}

/// The value of a pair.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum NvValue {
    /// True by its presence; has no value.
    Boolean,
    /// A single byte.
    Byte(u8),
    /// A signed number of 8 bits.
    Int8(i8),
    /// An unsigned number of 8 bits.
    Uint8(u8),
    /// A signed number of 16 bits.
    Int16(i16),
    /// An unsigned number of 16 bits.
    Uint16(u16),
    /// A signed number of 32 bits.
    Int32(i32),
    /// An unsigned number of 32 bits.
    Uint32(u32),
    /// A signed number of 64 bits.
    Int64(i64),
    /// An unsigned number of 64 bits, as are nearly all numbers in a pool.
    Uint64(u64),
    /// Nanoseconds of a high-resolution clock.
    Hrtime(i64),
    /// A truth value; [`NvValue::Boolean`] is true by its presence.
    BooleanValue(bool),
    /// Floating point; never on disk.
    Double(f64),
    /// A string of UTF-8.
    String(String),
    /// A string that is not UTF-8.
    RawString(Vec<u8>),
    /// An array of bytes.
    ByteArray(Vec<u8>),
    /// An array of signed numbers of 8 bits.
    Int8Array(Vec<i8>),
    /// An array of unsigned numbers of 8 bits.
    Uint8Array(Vec<u8>),
    /// An array of signed numbers of 16 bits.
    Int16Array(Vec<i16>),
    /// An array of unsigned numbers of 16 bits.
    Uint16Array(Vec<u16>),
    /// An array of signed numbers of 32 bits.
    Int32Array(Vec<i32>),
    /// An array of unsigned numbers of 32 bits.
    Uint32Array(Vec<u32>),
    /// An array of signed numbers of 64 bits.
    Int64Array(Vec<i64>),
    /// An array of unsigned numbers of 64 bits.
    Uint64Array(Vec<u64>),
    /// An array of truth values.
    BooleanArray(Vec<bool>),
    /// An array of strings.
    StringArray(Vec<String>),
    /// Strings of which at least one is not UTF-8.
    RawStringArray(Vec<Vec<u8>>),
    /// A nested list.
    List(NvList),
    /// An array of nested lists.
    ListArray(Vec<NvList>),
}

impl NvValue {
    /// The type number stored on disk.
    pub(crate) fn type_id(&self) -> u32 {
        match self {
            NvValue::Boolean => id::BOOLEAN,
            NvValue::Byte(_) => id::BYTE,
            NvValue::Int8(_) => id::INT8,
            NvValue::Uint8(_) => id::UINT8,
            NvValue::Int16(_) => id::INT16,
            NvValue::Uint16(_) => id::UINT16,
            NvValue::Int32(_) => id::INT32,
            NvValue::Uint32(_) => id::UINT32,
            NvValue::Int64(_) => id::INT64,
            NvValue::Uint64(_) => id::UINT64,
            NvValue::Hrtime(_) => id::HRTIME,
            NvValue::BooleanValue(_) => id::BOOLEAN_VALUE,
            NvValue::Double(_) => id::DOUBLE,
            NvValue::String(_) | NvValue::RawString(_) => id::STRING,
            NvValue::ByteArray(_) => id::BYTE_ARRAY,
            NvValue::Int8Array(_) => id::INT8_ARRAY,
            NvValue::Uint8Array(_) => id::UINT8_ARRAY,
            NvValue::Int16Array(_) => id::INT16_ARRAY,
            NvValue::Uint16Array(_) => id::UINT16_ARRAY,
            NvValue::Int32Array(_) => id::INT32_ARRAY,
            NvValue::Uint32Array(_) => id::UINT32_ARRAY,
            NvValue::Int64Array(_) => id::INT64_ARRAY,
            NvValue::Uint64Array(_) => id::UINT64_ARRAY,
            NvValue::BooleanArray(_) => id::BOOLEAN_ARRAY,
            NvValue::StringArray(_) | NvValue::RawStringArray(_) => id::STRING_ARRAY,
            NvValue::List(_) => id::NVLIST,
            NvValue::ListArray(_) => id::NVLIST_ARRAY,
        }
    }

    /// The element count stored on disk: 0 for a bare boolean, 1 for a scalar.
    pub fn count(&self) -> usize {
        match self {
            NvValue::Boolean => 0,
            NvValue::ByteArray(v) | NvValue::Uint8Array(v) => v.len(),
            NvValue::Int8Array(v) => v.len(),
            NvValue::Int16Array(v) => v.len(),
            NvValue::Uint16Array(v) => v.len(),
            NvValue::Int32Array(v) => v.len(),
            NvValue::Uint32Array(v) => v.len(),
            NvValue::Int64Array(v) => v.len(),
            NvValue::Uint64Array(v) => v.len(),
            NvValue::BooleanArray(v) => v.len(),
            NvValue::StringArray(v) => v.len(),
            NvValue::RawStringArray(v) => v.len(),
            NvValue::ListArray(v) => v.len(),
            _ => 1,
        }
    }

    /// A string value from bytes, which need not be UTF-8.
    pub fn from_bytes(bytes: Vec<u8>) -> NvValue {
        match String::from_utf8(bytes) {
            Ok(text) => NvValue::String(text),
            Err(raw) => NvValue::RawString(raw.into_bytes()),
        }
    }

    fn from_byte_strings(strings: Vec<Vec<u8>>) -> NvValue {
        let readable: Result<Vec<String>, _> =
            strings.iter().map(|s| std::str::from_utf8(s).map(str::to_owned)).collect();
        match readable {
            Ok(strings) => NvValue::StringArray(strings),
            Err(_) => NvValue::RawStringArray(strings),
        }
    }

    /// The bytes of a string, UTF-8 or not.
    pub fn string_bytes(&self) -> Option<&[u8]> {
        match self {
            NvValue::String(text) => Some(text.as_bytes()),
            NvValue::RawString(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The strings of an array, as bytes.
    fn strings(&self) -> Vec<&[u8]> {
        match self {
            NvValue::StringArray(v) => v.iter().map(String::as_bytes).collect(),
            NvValue::RawStringArray(v) => v.iter().map(Vec::as_slice).collect(),
            _ => Vec::new(),
        }
    }

    /// Size of the value in the memory of the implementation that defined the format, in bytes before rounding: the
    /// size in native encoding, and part of the hint in XDR.
    fn native_size(&self) -> usize {
        match self {
            NvValue::Boolean => 0,
            NvValue::Byte(_) | NvValue::Int8(_) | NvValue::Uint8(_) => 1,
            NvValue::Int16(_) | NvValue::Uint16(_) => 2,
            NvValue::Int32(_) | NvValue::Uint32(_) | NvValue::BooleanValue(_) => 4,
            NvValue::Int64(_) | NvValue::Uint64(_) | NvValue::Hrtime(_) | NvValue::Double(_) => 8,
            NvValue::String(_) | NvValue::RawString(_) => self.string_bytes().map_or(0, <[u8]>::len) + 1,
            NvValue::ByteArray(v) | NvValue::Uint8Array(v) => v.len(),
            NvValue::Int8Array(v) => v.len(),
            NvValue::Int16Array(v) => 2 * v.len(),
            NvValue::Uint16Array(v) => 2 * v.len(),
            NvValue::Int32Array(v) => 4 * v.len(),
            NvValue::Uint32Array(v) => 4 * v.len(),
            NvValue::Int64Array(v) => 8 * v.len(),
            NvValue::Uint64Array(v) => 8 * v.len(),
            NvValue::BooleanArray(v) => 4 * v.len(),
            NvValue::StringArray(_) | NvValue::RawStringArray(_) => {
                self.strings().iter().map(|s| 8 + s.len() + 1).sum()
            }
            NvValue::List(_) => 24,
            NvValue::ListArray(v) => (8 + 24) * v.len(),
        }
    }
}

macro_rules! from {
    ($($ty:ty => $var:ident),* $(,)?) => {
        $(impl From<$ty> for NvValue { fn from(x: $ty) -> NvValue { NvValue::$var(x) } })*
    };
}
from! {
    u64 => Uint64, i64 => Int64, u32 => Uint32, i32 => Int32, bool => BooleanValue, String => String,
    Vec<u64> => Uint64Array, Vec<String> => StringArray, NvList => List, Vec<NvList> => ListArray,
}
impl From<&str> for NvValue {
    fn from(x: &str) -> NvValue {
        NvValue::String(x.to_owned())
    }
}

#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Pair {
    /// Readable form; has replacement characters if the name is not UTF-8.
    name: String,
    /// The bytes, if they are not UTF-8.
    raw_name: Option<Box<[u8]>>,
    value: NvValue,
}

impl Pair {
    fn new(name: &[u8], value: NvValue) -> Pair {
        match std::str::from_utf8(name) {
            Ok(text) => Pair { name: text.to_owned(), raw_name: None, value },
            Err(_) => {
                Pair { name: String::from_utf8_lossy(name).into_owned(), raw_name: Some(name.into()), value }
            }
        }
    }

    fn name_bytes(&self) -> &[u8] {
        self.raw_name.as_deref().unwrap_or(self.name.as_bytes())
    }

    /// Size of the pair in native encoding, in bytes, which is the hint in XDR.
    fn native_size(&self) -> usize {
        round_up(16 + self.name_bytes().len() + 1, 8) + round_up(self.value.native_size(), 8)
    }
}

/// An ordered list of names and values.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct NvList {
    pairs: Vec<Pair>,
    /// The bits `FLAG_…`, as stored.
    pub(crate) flags: u32,
}

impl Default for NvList {
    fn default() -> NvList {
        NvList { pairs: Vec::new(), flags: FLAG_UNIQUE_NAME }
    }
}

impl NvList {
    /// An empty list with unique names.
    pub fn new() -> NvList {
        NvList::default()
    }

    /// Decodes a packed list: a header of four bytes, then either encoding in either byte order. Bytes after the
    /// list are ignored.
    ///
    /// # Errors
    /// [`DecodeError::Short`]; [`DecodeError::Field`] for an unknown encoding, byte order or type;
    /// [`DecodeError::Invalid`] for a string without an end. The memory allocated is bounded by the size of the
    /// input.
    pub fn decode(bytes: &[u8]) -> Result<NvList, DecodeError> {
        DecodeError::need(WHAT, 4, bytes.len())?;
        let order = match bytes.get(1) {
            Some(1) => Endian::Little,
            Some(0) => Endian::Big,
            other => return Err(DecodeError::field(WHAT, "byte order", other.copied().unwrap_or(0))),
        };
        let body = bytes.get(4..).unwrap_or(&[]);
        match bytes.first() {
            Some(0) => native::decode(&mut Reader::new(body, order)),
            Some(1) => xdr::decode(&mut Reader::new(body, Endian::Big)),
            other => Err(DecodeError::field(WHAT, "encoding", other.copied().unwrap_or(0))),
        }
    }

    /// The list packed in XDR, as labels and the MOS hold it, header included.
    pub fn encode_xdr(&self) -> Vec<u8> {
        let mut out = vec![1, 1, 0, 0];
        xdr::encode(self, &mut out);
        out
    }

    /// The list packed in native encoding, little-endian, as the cache file holds it.
    pub fn encode_native(&self) -> Vec<u8> {
        let mut out = vec![0, 1, 0, 0];
        native::encode(self, &mut out);
        out
    }

    /// Number of pairs in the list.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether the list has no pairs.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Names and values in stored order. A name that is not UTF-8 is returned with replacement
    /// characters; [`NvList::iter_bytes`] has the real one.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&str, &NvValue)> + ExactSizeIterator {
        self.pairs.iter().map(|p| (p.name.as_str(), &p.value))
    }

    /// Names as bytes, and values, in stored order.
    pub fn iter_bytes(&self) -> impl DoubleEndedIterator<Item = (&[u8], &NvValue)> + ExactSizeIterator {
        self.pairs.iter().map(|p| (p.name_bytes(), &p.value))
    }

    /// Adds a pair at the end.
    pub fn push(&mut self, name: impl AsRef<[u8]>, value: impl Into<NvValue>) {
        self.pairs.push(Pair::new(name.as_ref(), value.into()));
    }

    /// Appends all pairs of another list.
    pub fn append(&mut self, mut other: NvList) {
        self.pairs.append(&mut other.pairs);
    }

    /// Replaces the value of the pair with this name at its position, or appends a pair.
    pub fn set(&mut self, name: impl AsRef<[u8]>, value: impl Into<NvValue>) {
        let name = name.as_ref();
        match self.pairs.iter_mut().rev().find(|p| p.name_bytes() == name) {
            Some(pair) => pair.value = value.into(),
            None => self.push(name, value),
        }
    }

    /// Removes every pair with this name. Returns the value of the last one.
    pub fn remove(&mut self, name: impl AsRef<[u8]>) -> Option<NvValue> {
        let name = name.as_ref();
        let found = self.get(name).cloned();
        self.pairs.retain(|p| p.name_bytes() != name);
        found
    }

    /// The value with this name; the last one if there are several.
    pub fn get(&self, name: impl AsRef<[u8]>) -> Option<&NvValue> {
        let name = name.as_ref();
        self.pairs.iter().rev().find(|p| p.name_bytes() == name).map(|p| &p.value)
    }

    /// Whether there is a pair with this name, of any type.
    pub fn has(&self, name: impl AsRef<[u8]>) -> bool {
        self.get(name).is_some()
    }

    /// The `u64` with this name.
    pub fn u64(&self, name: impl AsRef<[u8]>) -> Option<u64> {
        match self.get(name) {
            Some(NvValue::Uint64(x)) => Some(*x),
            _ => None,
        }
    }

    /// The array of `u64` with this name.
    pub fn u64s(&self, name: impl AsRef<[u8]>) -> Option<&[u64]> {
        match self.get(name) {
            Some(NvValue::Uint64Array(x)) => Some(x),
            _ => None,
        }
    }

    /// The string with this name; `None` if it is not UTF-8.
    pub fn str(&self, name: impl AsRef<[u8]>) -> Option<&str> {
        match self.get(name) {
            Some(NvValue::String(x)) => Some(x),
            _ => None,
        }
    }

    /// The bytes of the string with this name, UTF-8 or not.
    pub(crate) fn string_bytes(&self, name: impl AsRef<[u8]>) -> Option<&[u8]> {
        self.get(name).and_then(NvValue::string_bytes)
    }

    /// True if there is a bare boolean, or a boolean with the value true, of this name.
    pub(crate) fn flag(&self, name: impl AsRef<[u8]>) -> bool {
        matches!(self.get(name), Some(NvValue::Boolean | NvValue::BooleanValue(true)))
    }

    /// The list with this name.
    pub fn list(&self, name: impl AsRef<[u8]>) -> Option<&NvList> {
        match self.get(name) {
            Some(NvValue::List(x)) => Some(x),
            _ => None,
        }
    }

    /// The array of lists with this name.
    pub fn lists(&self, name: impl AsRef<[u8]>) -> Option<&[NvList]> {
        match self.get(name) {
            Some(NvValue::ListArray(x)) => Some(x),
            _ => None,
        }
    }
}

impl<N: AsRef<[u8]>, V: Into<NvValue>> FromIterator<(N, V)> for NvList {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> NvList {
        let mut list = NvList::new();
        for (name, value) in pairs {
            list.push(name, value);
        }
        list
    }
}

fn round_up(n: usize, to: usize) -> usize {
    n.saturating_add(to - 1) / to * to
}

#[cfg(test)]
mod tests;
