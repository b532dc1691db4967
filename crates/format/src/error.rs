//! The one error of this crate: what was wrong with which structure, where.

/// Bytes that are not the structure they should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The input ends before the structure does.
    #[error("{what}: {needed} bytes needed, {have} there")]
    Short {
        /// Name of the structure that was decoded.
        what: &'static str,
        /// Bytes that the structure needs.
        needed: usize,
        /// Number of bytes that were available.
        have: usize,
    },
    /// A magic number is wrong.
    #[error("{what}: magic {found:#x}, expected {expected:#x}")]
    Magic {
        /// Name of the structure that was decoded.
        what: &'static str,
        /// The magic number that was found.
        found: u64,
        /// The number that belongs there.
        expected: u64,
    },
    /// A field holds a value that the format does not allow.
    #[error("{what}: {field} is {value}")]
    Field {
        /// Name of the structure that was decoded.
        what: &'static str,
        /// Name of the field.
        field: &'static str,
        /// The value that was found.
        value: u64,
    },
    /// Something that no single number tells.
    #[error("{what}: {why}")]
    Invalid {
        /// Name of the structure that was decoded.
        what: &'static str,
        /// What is wrong with it.
        why: &'static str,
    },
}

impl DecodeError {
    /// Fails with [`DecodeError::Short`] unless `have >= needed`.
    pub fn need(what: &'static str, needed: usize, have: usize) -> Result<(), DecodeError> {
        if have < needed { Err(DecodeError::Short { what, needed, have }) } else { Ok(()) }
    }

    /// Makes a [`DecodeError::Field`].
    pub fn field(what: &'static str, field: &'static str, value: impl Into<u64>) -> DecodeError {
        DecodeError::Field { what, field, value: value.into() }
    }

    /// Makes a [`DecodeError::Invalid`].
    pub fn invalid(what: &'static str, why: &'static str) -> DecodeError {
        DecodeError::Invalid { what, why }
    }
}
