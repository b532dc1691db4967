//! Keys of encrypted datasets that are missing, malformed or wrong.

use codec::crypt::CryptError;
use format::ObjectId;

/// A key that is missing, malformed or wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// Too few bytes.
    #[error("{what} too short ({} {limit}).", if *is_minimum { "min" } else { "expected" })]
    TooShort {
        /// What was given.
        what: &'static str,
        /// Bytes or digits that it needs.
        limit: usize,
        /// It may have more.
        is_minimum: bool,
    },
    /// Too many bytes.
    #[error("{what} too long ({} {limit}).", if *is_maximum { "max" } else { "expected" })]
    TooLong {
        /// What was given.
        what: &'static str,
        /// Bytes or digits that it may have.
        limit: usize,
        /// It may have fewer.
        is_maximum: bool,
    },
    /// Not hex digits.
    #[error("Invalid hex key provided.")]
    NotHex,
    /// A `keylocation` that is none.
    #[error("'{value}' is no key location")]
    BadLocation {
        /// The value.
        value: String,
    },
    /// The key does not unwrap the key object.
    #[error("Incorrect key provided for '{name}'.")]
    Incorrect {
        /// The encryption root.
        name: String,
    },
    /// The key is loaded already.
    #[error("Key already loaded for '{name}'.")]
    AlreadyLoaded {
        /// The encryption root.
        name: String,
    },
    /// The key is not loaded.
    #[error("Key already unloaded for '{name}'.")]
    NotLoaded {
        /// The encryption root.
        name: String,
    },
    /// The dataset is not encrypted.
    #[error("'{name}' is not encrypted.")]
    NotEncrypted {
        /// The dataset.
        name: String,
    },
    /// The key belongs to a directory above.
    #[error("Keys must be loaded for encryption root of '{name}' ({root}).")]
    NotRoot {
        /// The dataset.
        name: String,
        /// The encryption root.
        root: String,
    },
    /// An entry of a key object is missing or malformed.
    #[error("key object {object}: entry '{entry}' is missing or malformed")]
    Object {
        /// The key object.
        object: ObjectId,
        /// The entry.
        entry: &'static str,
    },
    /// A suite that is not known.
    #[error("key object {object}: unsupported crypto suite {suite}")]
    Suite {
        /// The key object.
        object: ObjectId,
        /// Its suite.
        suite: u64,
    },
    /// Anything else that goes wrong with cryptography.
    #[error(transparent)]
    Crypt(#[from] CryptError),
}
