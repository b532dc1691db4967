//! [`DecodeError`]: the error of every decoder. It names the structure, the field, and the value found.

/// Why bytes cannot be decoded as a structure.
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
        /// The expected magic number.
        expected: u64,
    },
    /// A field holds a value that the format does not allow.
    #[error("{what}: {field} is {value}")]
    Field {
        /// Name of the structure that was decoded.
        what: &'static str,
        /// Name of the field, or key of a list.
        field: &'static str,
        /// The value that was found in the field.
        value: u64,
    },
    /// A required field is absent.
    #[error("{what}: no {field}")]
    Missing {
        /// Name of the structure that was decoded.
        what: &'static str,
        /// Name of the field, or key of a list.
        field: &'static str,
    },
    /// The parts of the structure contradict each other or a rule of the format.
    #[error("{what}: {problem}")]
    Invalid {
        /// Name of the structure that was decoded.
        what: &'static str,
        /// The violation, one fixed text for each rule.
        problem: &'static str,
    },
}

impl DecodeError {
    /// Fails with [`DecodeError::Short`] unless `have >= needed`.
    ///
    /// # Errors
    /// [`DecodeError::Short`], which states both numbers.
    pub(crate) fn need(what: &'static str, needed: usize, have: usize) -> Result<(), DecodeError> {
        if have < needed { Err(DecodeError::Short { what, needed, have }) } else { Ok(()) }
    }

    /// A [`DecodeError::Field`] with a value of any unsigned type.
    pub fn field(what: &'static str, field: &'static str, value: impl Into<u64>) -> DecodeError {
        DecodeError::Field { what, field, value: value.into() }
    }

    /// A [`DecodeError::Invalid`] of the structure `what`.
    pub const fn invalid(what: &'static str, problem: &'static str) -> DecodeError {
        DecodeError::Invalid { what, problem }
    }
}
