//! Native encryption: keys and what they protect (docs/on-disk/31-encryption.md, sections 1 to 9).
//!
//! Key material makes a [`WrappingKey`], which unwraps the [`KeyObject`] of a dataset to a [`DataKey`], from which
//! a key per salt is derived. [`block`] determines which parts of each kind of block are encrypted or
//! authenticated.
//!
//! # What always holds
//! - Decrypted data is returned only if its tag is right; otherwise the buffer is wiped.
//! - Tags and MACs are compared in constant time.
//! - Keys are wiped when dropped and have no printable form.
//! - The work that a key object may ask for is bounded (`ITERATIONS_MAX`).

mod aead;
pub mod block;
mod ccm;
mod data_key;

pub use data_key::DataKey;

use aead::Aead;
use aws_lc_rs::pbkdf2;
use std::fmt;
use std::num::NonZeroU32;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// Size in bytes of a wrapping key, and of the master key's field.
pub(crate) const KEY_LEN: usize = 32;
/// Size in bytes of the HMAC key.
pub(crate) const HMAC_KEY_LEN: usize = 64;
/// Size in bytes of a nonce (initialization vector).
pub(crate) const IV_LEN: usize = 12;
/// Size in bytes of an AEAD tag.
pub(crate) const MAC_LEN: usize = 16;
/// Size in bytes of the salt that selects a block key.
pub(crate) const SALT_LEN: usize = 8;
/// The newest version of a key object.
pub const KEY_VERSION: u64 = 1;
/// Maximum number of PBKDF2 iterations: some tens of seconds. The default is 350 000.
pub(crate) const ITERATIONS_MAX: u64 = 100_000_000;

/// Why data cannot be decrypted or authenticated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CryptError {
    /// A tag or MAC is wrong: another key, or damaged data.
    #[error("authentication failed")]
    Authentication,
    /// The number of PBKDF2 iterations is 0 or exceeds the limit.
    #[error("{iterations} rounds of PBKDF2 are not between 1 and {ITERATIONS_MAX}")]
    Iterations {
        /// Number of iterations in the key object.
        iterations: u64,
    },
    /// The version of the key object is not supported.
    #[error("key object of version {version}")]
    KeyVersion {
        /// The version that was found.
        version: u64,
    },
    /// The block pointer has no salt, IV and MAC.
    #[error("the block pointer is not of an encrypted block")]
    NotEncrypted,
    /// The parts of a dnode block, object set or log block contradict each other.
    #[error("{what}: {why} at byte {at}")]
    Structure {
        /// Name of the inconsistent structure.
        what: &'static str,
        /// The inconsistency, one fixed text for each rule.
        why: &'static str,
        /// Offset of the structure in the block, in bytes.
        at: usize,
    },
    /// The data exceeds what the mode can encrypt at once.
    #[error("{len} bytes are too many for one block of {suite}")]
    TooLong {
        /// The suite that the key is for.
        suite: Suite,
        /// Bytes of the key that was given.
        len: usize,
    },
}

/// Cipher, key length and mode: the value of the property `encryption`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Suite {
    /// AES with keys of 128 bits in mode CCM.
    Aes128Ccm = 3,
    /// AES with keys of 192 bits in mode CCM.
    Aes192Ccm = 4,
    /// AES with keys of 256 bits in mode CCM.
    Aes256Ccm = 5,
    /// AES with keys of 128 bits in mode GCM.
    Aes128Gcm = 6,
    /// AES with keys of 192 bits in mode GCM.
    Aes192Gcm = 7,
    /// AES with keys of 256 bits in mode GCM: the default.
    Aes256Gcm = 8,
}

impl Suite {
    /// All suites, ascending by number.
    pub const ALL: [Suite; 6] = [
        Suite::Aes128Ccm,
        Suite::Aes192Ccm,
        Suite::Aes256Ccm,
        Suite::Aes128Gcm,
        Suite::Aes192Gcm,
        Suite::Aes256Gcm,
    ];

    /// The suite with this number. `None`: the number means no encryption, or is unknown.
    pub fn from_id(id: u64) -> Option<Suite> {
        Suite::ALL.into_iter().find(|suite| suite.id() == id)
    }

    /// The number stored in key objects.
    pub fn id(self) -> u64 {
        self as u64
    }

    /// Key length in bytes.
    pub fn key_len(self) -> usize {
        match self {
            Suite::Aes128Ccm | Suite::Aes128Gcm => 16,
            Suite::Aes192Ccm | Suite::Aes192Gcm => 24,
            Suite::Aes256Ccm | Suite::Aes256Gcm => 32,
        }
    }

    /// The value of the property `encryption`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Suite::Aes128Ccm => "aes-128-ccm",
            Suite::Aes192Ccm => "aes-192-ccm",
            Suite::Aes256Ccm => "aes-256-ccm",
            Suite::Aes128Gcm => "aes-128-gcm",
            Suite::Aes192Gcm => "aes-192-gcm",
            Suite::Aes256Gcm => "aes-256-gcm",
        }
    }

    /// The suite with the same mode for wrapping keys, which always has 256 bits.
    fn wrapping(self) -> Suite {
        match self {
            Suite::Aes128Ccm | Suite::Aes192Ccm | Suite::Aes256Ccm => Suite::Aes256Ccm,
            Suite::Aes128Gcm | Suite::Aes192Gcm | Suite::Aes256Gcm => Suite::Aes256Gcm,
        }
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The key made from the user's key material; it is never stored on disk.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct WrappingKey([u8; KEY_LEN]);

impl WrappingKey {
    /// Makes a wrapping key from a raw key or a decoded hex key.
    pub fn new(key: [u8; KEY_LEN]) -> WrappingKey {
        WrappingKey(key)
    }

    /// Stretches a passphrase (without its newline) with PBKDF2-HMAC-SHA1.
    ///
    /// # Errors
    /// [`CryptError::Iterations`] if `iterations` is 0 or exceeds `ITERATIONS_MAX`.
    pub fn from_passphrase(passphrase: &[u8], salt: u64, iterations: u64) -> Result<WrappingKey, CryptError> {
        let rounds = Some(iterations)
            .filter(|n| *n <= ITERATIONS_MAX)
            .and_then(|n| NonZeroU32::new(u32::try_from(n).ok()?))
            .ok_or(CryptError::Iterations { iterations })?;
        let mut key = WrappingKey([0; KEY_LEN]);
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA1, rounds, &salt.to_le_bytes(), passphrase, &mut key.0);
        Ok(key)
    }
}

impl fmt::Debug for WrappingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WrappingKey(..)")
    }
}

/// The wrapped keys of a dataset, from its key object in the MOS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyObject {
    /// Cipher, key length and mode of operation.
    pub suite: Suite,
    /// Random id of the master key.
    pub guid: u64,
    /// Version of the key object: 1, or 0 in pools created before the format was final.
    pub version: u64,
    /// Nonce with which the keys are wrapped.
    pub iv: [u8; IV_LEN],
    /// Authentication tag of the wrapped keys.
    pub mac: [u8; MAC_LEN],
    /// The wrapped master key; only as many bytes as the suite's keys have are significant.
    pub master: [u8; KEY_LEN],
    /// The wrapped HMAC key.
    pub hmac: [u8; HMAC_KEY_LEN],
}

impl KeyObject {
    /// Unwraps the keys.
    ///
    /// # Errors
    /// [`CryptError::Authentication`] if the wrapping key is wrong.
    pub fn unwrap_key(&self, wrapping: &WrappingKey) -> Result<DataKey, CryptError> {
        let aead = Aead::new(self.suite.wrapping(), &wrapping.0);
        let aad = self.aad()?;
        let len = self.suite.key_len();
        let mut keys = Zeroizing::new([0; KEY_LEN + HMAC_KEY_LEN]);
        let keys = &mut keys[..len + HMAC_KEY_LEN];
        keys[..len].copy_from_slice(&self.master[..len]);
        keys[len..].copy_from_slice(&self.hmac);
        aead.open(&self.iv, &self.mac, &aad, keys)?;
        let (master, hmac) = keys.split_at(len);
        DataKey::new(self.suite, self.guid, self.version, master, hmac)
    }

    /// Wraps `key` with a nonce that was never used with this wrapping key.
    ///
    /// # Errors
    /// [`CryptError`] if the keys cannot be encrypted.
    pub fn wrap(key: &DataKey, wrapping: &WrappingKey, iv: [u8; IV_LEN]) -> Result<KeyObject, CryptError> {
        let mut object = KeyObject {
            suite: key.suite(),
            guid: key.guid(),
            version: key.version(),
            iv,
            mac: [0; MAC_LEN],
            master: [0; KEY_LEN],
            hmac: [0; HMAC_KEY_LEN],
        };
        let len = object.suite.key_len();
        let mut keys = Zeroizing::new([0; KEY_LEN + HMAC_KEY_LEN]);
        let keys = &mut keys[..len + HMAC_KEY_LEN];
        keys[..len].copy_from_slice(key.master());
        keys[len..].copy_from_slice(key.hmac_key());
        object.mac = Aead::new(object.suite.wrapping(), &wrapping.0).seal(&iv, &object.aad()?, keys)?;
        object.master[..len].copy_from_slice(&keys[..len]);
        object.hmac.copy_from_slice(&keys[len..]);
        Ok(object)
    }

    /// The authenticated data besides the keys.
    fn aad(&self) -> Result<Vec<u8>, CryptError> {
        let words: &[u64] = match self.version {
            0 => &[self.guid],
            KEY_VERSION => &[self.guid, self.suite.id(), self.version],
            version => return Err(CryptError::KeyVersion { version }),
        };
        Ok(words.iter().flat_map(|word| word.to_le_bytes()).collect())
    }
}

/// SHA-512 of the concatenated `parts`.
pub(crate) fn sha512(parts: &[&[u8]]) -> [u8; 64] {
    let mut context = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA512);
    for part in parts {
        context.update(part);
    }
    to_array(context.finish().as_ref())
}

/// The 64 bytes of a SHA-512 digest or HMAC.
fn to_array(digest: &[u8]) -> [u8; 64] {
    let mut out = [0; 64];
    for (to, from) in out.iter_mut().zip(digest) {
        *to = *from;
    }
    out
}

/// Compares MACs in constant time.
fn check_mac(actual: &[u8], stored: &[u8]) -> Result<(), CryptError> {
    aws_lc_rs::constant_time::verify_slices_are_equal(actual, stored).map_err(|_| CryptError::Authentication)
}

#[cfg(test)]
mod tests;
