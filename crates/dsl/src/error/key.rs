//! Errors of keys: missing, malformed or wrong.

use codec::crypt::CryptError;
use format::ObjectId;

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The key has too few bytes.
    #[error("{what} too short ({} {limit}).", if *is_minimum { "min" } else { "expected" })]
    TooShort {
        /// What is too short, as the message names it: `Raw key`, `Passphrase`.
        what: &'static str,
        /// Bytes or hex digits that are required.
        limit: usize,
        /// The limit is a minimum, not an exact length.
        is_minimum: bool,
    },
    /// The key has too many bytes.
    #[error("{what} too long ({} {limit}).", if *is_maximum { "max" } else { "expected" })]
    TooLong {
        /// What is too long, as the message names it: `Raw key`, `Passphrase`.
        what: &'static str,
        /// Bytes or hex digits that are allowed.
        limit: usize,
        /// The limit is a maximum, not an exact length.
        is_maximum: bool,
    },
    /// A key in hex has other characters than hex digits.
    #[error("Invalid hex key provided.")]
    NotHex,
    /// A value that is no `keylocation`.
    #[error("'{value}' is no key location")]
    BadLocation {
        /// The rejected value.
        value: String,
    },
    /// The key does not unwrap the key object.
    #[error("Incorrect key provided for '{name}'.")]
    Incorrect {
        /// Full name of the encryption root.
        name: String,
    },
    /// The key is loaded already.
    #[error("Key already loaded for '{name}'.")]
    AlreadyLoaded {
        /// Full name of the encryption root.
        name: String,
    },
    /// The key is not loaded.
    #[error("Key already unloaded for '{name}'.")]
    NotLoaded {
        /// Full name of the encryption root.
        name: String,
    },
    /// The dataset is not encrypted.
    #[error("'{name}' is not encrypted.")]
    NotEncrypted {
        /// Full name of the dataset.
        name: String,
    },
    /// The dataset inherits its key from an encryption root above.
    #[error("Keys must be loaded for encryption root of '{name}' ({root}).")]
    NotRoot {
        /// Full name of the dataset.
        name: String,
        /// Full name of the encryption root.
        root: String,
    },
    /// An entry of a key object is missing or malformed.
    #[error("key object {object}: entry '{entry}' is missing or malformed")]
    Object {
        /// Number of the key object.
        object: ObjectId,
        /// Key of the entry in the ZAP.
        entry: &'static str,
    },
    /// An unknown crypto suite.
    #[error("key object {object}: unsupported crypto suite {suite}")]
    Suite {
        /// Number of the key object.
        object: ObjectId,
        /// Id of the crypto suite.
        suite: u64,
    },
    /// Any other error of the cryptography.
    #[error(transparent)]
    Crypt(#[from] CryptError),
}
