//! Values of ZAPs as callers give them and as they are stored.

use std::borrow::Cow;

/// Bytes of the largest value of an entry.
pub const VALUE_MAX: usize = 8192;

/// A value to store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZapValue<'a> {
    /// One integer of 8 bytes: the only value that a micro ZAP can hold.
    U64(u64),
    /// Integers of 8 bytes.
    U64s(&'a [u64]),
    /// Integers of 4 bytes.
    U32s(&'a [u32]),
    /// Integers of 2 bytes.
    U16s(&'a [u16]),
    /// Integers of 1 byte.
    Bytes(&'a [u8]),
    /// A string: integers of 1 byte; a NUL is appended.
    Str(&'a [u8]),
    /// Integers as [`ZapEntry::value`](super::ZapEntry::value) has them: big-endian, packed.
    Packed {
        /// Bytes of each integer: 1, 2, 4 or 8.
        int_size: u8,
        /// The packed integers.
        bytes: &'a [u8],
    },
}

impl From<u64> for ZapValue<'_> {
    fn from(value: u64) -> Self {
        ZapValue::U64(value)
    }
}

impl<'a> From<&'a [u64]> for ZapValue<'a> {
    fn from(values: &'a [u64]) -> Self {
        ZapValue::U64s(values)
    }
}

impl<'a> From<&'a str> for ZapValue<'a> {
    fn from(text: &'a str) -> Self {
        ZapValue::Str(text.as_bytes())
    }
}

impl<'a> ZapValue<'a> {
    /// Bytes of each integer, and the packed integers.
    fn packed(&self) -> (u8, Cow<'a, [u8]>) {
        match self {
            ZapValue::U64(value) => (8, Cow::Owned(value.to_be_bytes().to_vec())),
            ZapValue::U64s(values) => (8, values.iter().flat_map(|v| v.to_be_bytes()).collect()),
            ZapValue::U32s(values) => (4, values.iter().flat_map(|v| v.to_be_bytes()).collect()),
            ZapValue::U16s(values) => (2, values.iter().flat_map(|v| v.to_be_bytes()).collect()),
            ZapValue::Bytes(bytes) => (1, Cow::Borrowed(*bytes)),
            ZapValue::Str(text) => (1, text.iter().copied().chain([0]).collect()),
            ZapValue::Packed { int_size, bytes } => (*int_size, Cow::Borrowed(*bytes)),
        }
    }

    /// The value, if a micro ZAP can hold it.
    fn single(&self) -> Option<u64> {
        match self {
            ZapValue::U64(value) | ZapValue::U64s([value]) => Some(*value),
            ZapValue::Packed { int_size: 8, bytes } => Some(u64::from_be_bytes((*bytes).try_into().ok()?)),
            _ => None,
        }
    }
}

/// A value in stored form.
pub(super) struct NewValue<'v> {
    pub(super) int_size: u8,
    pub(super) bytes: Cow<'v, [u8]>,
    /// The value, if a micro ZAP can hold it.
    pub(super) single: Option<u64>,
}

impl<'v> NewValue<'v> {
    /// The value, checked: integers of 1, 2, 4 or 8 bytes, together at most [`VALUE_MAX`]. Else what is out of bounds.
    pub(super) fn of(value: &ZapValue<'v>) -> Result<NewValue<'v>, (&'static str, usize)> {
        let (int_size, bytes) = value.packed();
        if !matches!(int_size, 1 | 2 | 4 | 8) || !bytes.len().is_multiple_of(usize::from(int_size)) {
            return Err(("integer size", int_size.into()));
        }
        if bytes.len() > VALUE_MAX {
            return Err(("value length", bytes.len()));
        }
        Ok(NewValue { int_size, bytes, single: value.single() })
    }
}
