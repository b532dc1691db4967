//! Reads single fields of a configuration, with errors that name the key.

use crate::{DecodeError, NvList};

/// Name of the structure in errors.
pub(super) const WHAT: &str = "pool config";

/// The value of a required key.
pub(super) fn required<T>(value: Option<T>, field: &'static str) -> Result<T, DecodeError> {
    value.ok_or(DecodeError::Missing { what: WHAT, field })
}

/// A number of at most 24 bits, such as the number of a vdev.
pub(super) fn small(field: &'static str, value: u64) -> Result<u32, DecodeError> {
    // A DVA has 24 bits for the vdev.
    if value < 1 << 24 { Ok(value as u32) } else { Err(DecodeError::field(WHAT, field, value)) }
}

/// The text of a key, with replacement characters where it is not UTF-8.
pub(super) fn owned(list: &NvList, key: &str) -> Option<String> {
    list.string_bytes(key).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}
