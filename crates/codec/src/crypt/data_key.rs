//! The unwrapped keys of a dataset, and the keys derived from them.
//!
//! # Locks
//! One per shard of the cache, held for a look-up or an insertion, never while deriving a key.

use super::aead::Aead;
use super::{CryptError, HMAC_KEY_LEN, IV_LEN, KEY_LEN, KEY_VERSION, MAC_LEN, SALT_LEN, Suite, to_array};
use aws_lc_rs::hmac;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use zeroize::Zeroizing;

/// Number of shards of the cache; the salt selects the shard.
const SHARDS: usize = 8;
/// Number of keys in a shard. Blocks written since a key was loaded share one salt, so few keys are in use; only
/// deduplicated blocks have a salt each, and each of those needs a derivation.
const SHARD_KEYS: usize = 8;

type Shard = RwLock<Vec<([u8; SALT_LEN], Arc<Aead>)>>;

/// The master key and the HMAC key of a dataset and its clones.
pub struct DataKey {
    suite: Suite,
    guid: u64,
    version: u64,
    master: Zeroizing<[u8; KEY_LEN]>,
    hmac_bytes: Zeroizing<[u8; HMAC_KEY_LEN]>,
    hmac: hmac::Key,
    /// HMAC key from HKDF's extraction step over the master key.
    derive: hmac::Key,
    cache: [Shard; SHARDS],
}

impl DataKey {
    /// Makes a data key from unwrapped keys: `master` has the suite's length, `hmac` 64 bytes.
    ///
    /// # Errors
    /// [`CryptError`] if a key has the wrong length.
    pub fn new(
        suite: Suite,
        guid: u64,
        version: u64,
        master: &[u8],
        hmac: &[u8],
    ) -> Result<DataKey, CryptError> {
        if version > KEY_VERSION {
            return Err(CryptError::KeyVersion { version });
        }
        let wrong = |why, at| CryptError::Structure { what: "key", why, at };
        if master.len() != suite.key_len() {
            return Err(wrong("master key of another suite", master.len()));
        }
        let mut slot = Zeroizing::new([0; KEY_LEN]);
        slot[..master.len()].copy_from_slice(master);
        let hmac_bytes: [u8; HMAC_KEY_LEN] =
            hmac.try_into().map_err(|_| wrong("HMAC key of another length", hmac.len()))?;
        let extract = hmac::Key::new(hmac::HMAC_SHA512, &[]);
        let pseudorandom = Zeroizing::new(to_array(hmac::sign(&extract, master).as_ref()));
        Ok(DataKey {
            suite,
            guid,
            version,
            master: slot,
            hmac: hmac::Key::new(hmac::HMAC_SHA512, hmac),
            hmac_bytes: Zeroizing::new(hmac_bytes),
            derive: hmac::Key::new(hmac::HMAC_SHA512, &*pseudorandom),
            cache: Default::default(),
        })
    }

    /// Cipher, key length and mode of operation.
    pub fn suite(&self) -> Suite {
        self.suite
    }

    /// Random id of the master key.
    pub(crate) fn guid(&self) -> u64 {
        self.guid
    }

    /// Version of the key object: determines the form of authenticated data.
    pub fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn master(&self) -> &[u8] {
        &self.master[..self.suite.key_len()]
    }

    pub(super) fn hmac_key(&self) -> &[u8; HMAC_KEY_LEN] {
        &self.hmac_bytes
    }

    /// Decrypts `data` in place; wipes it if the tag is wrong.
    ///
    /// # Errors
    /// [`CryptError::Authentication`] if the tag is wrong.
    pub fn decrypt(
        &self,
        salt: &[u8; SALT_LEN],
        iv: &[u8; IV_LEN],
        mac: &[u8; MAC_LEN],
        aad: &[u8],
        data: &mut [u8],
    ) -> Result<(), CryptError> {
        self.block_key(salt).open(iv, mac, aad, data)
    }

    /// Encrypts `data` in place. Returns the tag. The pair of salt and IV must not have been used with this key for
    /// other data.
    ///
    /// # Errors
    /// [`CryptError`] if the data is longer than the mode allows.
    pub fn encrypt(
        &self,
        salt: &[u8; SALT_LEN],
        iv: &[u8; IV_LEN],
        aad: &[u8],
        data: &mut [u8],
    ) -> Result<[u8; MAC_LEN], CryptError> {
        self.block_key(salt).seal(iv, aad, data)
    }

    /// HMAC-SHA512 of the concatenated `parts`.
    pub(crate) fn hmac(&self, parts: &[&[u8]]) -> [u8; 64] {
        let mut context = hmac::Context::with_key(&self.hmac);
        for part in parts {
            context.update(part);
        }
        to_array(context.sign().as_ref())
    }

    /// The key of all blocks with this salt, derived on first use.
    fn block_key(&self, salt: &[u8; SALT_LEN]) -> Arc<Aead> {
        let shard = &self.cache[usize::from(salt[0]) % SHARDS];
        let found = |keys: &[([u8; SALT_LEN], Arc<Aead>)]| {
            keys.iter().find(|(known, _)| known == salt).map(|(_, key)| Arc::clone(key))
        };
        if let Some(key) = found(&shard.read().unwrap_or_else(PoisonError::into_inner)) {
            return key;
        }
        let key = Arc::new(self.derive(salt));
        let mut keys = shard.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = found(&keys) {
            return key;
        }
        if keys.len() >= SHARD_KEYS {
            keys.remove(0);
        }
        keys.push((*salt, Arc::clone(&key)));
        key
    }

    /// The only step of HKDF's expansion that is needed.
    fn derive(&self, salt: &[u8; SALT_LEN]) -> Aead {
        let mut context = hmac::Context::with_key(&self.derive);
        context.update(salt);
        context.update(&[1]);
        let okm = Zeroizing::new(to_array(context.sign().as_ref()));
        Aead::new(self.suite, &okm[..self.suite.key_len()])
    }
}

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataKey")
            .field("suite", &self.suite)
            .field("guid", &self.guid)
            .finish_non_exhaustive()
    }
}
