//! Encryption keys: the key objects of the MOS, which directory asks for a key, and the keys that
//! have been loaded
//! (docs/on-disk/31-encryption.md, sections 2, 3, 12).
//!
//! # What always holds
//! - A wrapping key enters the [`Keyring`] only after it has unwrapped the key object of its
//!   encryption root.
//! - Keys are wiped when the last user of them is gone; they are never printed.
//!
//! # Lock order
//! `Keyring::wrapping` before `Keyring::unwrapped`. Neither is held while a device is read.

mod material;

pub use material::{KeyFormat, KeyLocation, PASSPHRASE_LEN, WRAPPING_KEY_LEN};

use crate::dataset::Dataset;
use crate::dir::Dir;
use crate::{Dsl, DslError, mos};
use codec::crypt::{CryptError, DataKey, KeyObject, Suite, WrappingKey};
use dmu::zap::{Zap, ZapEntry};
use dmu::{KeyState, ObjSet};
use format::ObjectId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Key in a directory's ZAP: its key object.
const CRYPTO_KEY_OBJ: &str = "com.datto:crypto_key_obj";
/// Property of an encryption root: where its key is.
pub const KEYLOCATION: &str = "keylocation";

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

/// A key object of the MOS, still wrapped.
#[derive(Clone)]
pub struct CryptoKey {
    /// Its object number.
    pub object: ObjectId,
    /// The directory whose key wraps it.
    pub root_dir: ObjectId,
    /// How many directories use it.
    pub refcount: u64,
    /// How the wrapping key is given; `None`: damaged or unknown.
    pub format: Option<KeyFormat>,
    /// Salt of a passphrase.
    pub salt: u64,
    /// Rounds of a passphrase.
    pub iterations: u64,
    /// The wrapped keys.
    pub wrapped: KeyObject,
}

struct Fields<'a> {
    object: ObjectId,
    zap: &'a Zap,
}

impl Fields<'_> {
    fn entry(&self, name: &'static str) -> Result<ZapEntry, DslError> {
        let missing = KeyError::Object { object: self.object, entry: name };
        Ok(self.zap.lookup(name.as_bytes())?.ok_or(missing)?)
    }

    fn number(&self, name: &'static str) -> Result<u64, DslError> {
        let malformed = KeyError::Object { object: self.object, entry: name };
        Ok(mos::single(&self.entry(name)?).ok_or(malformed)?)
    }

    fn number_or_0(&self, name: &'static str) -> Result<u64, DslError> {
        Ok(mos::lookup_number(self.zap, self.object, name)?.unwrap_or(0))
    }

    fn bytes<const N: usize>(&self, name: &'static str) -> Result<[u8; N], DslError> {
        let entry = self.entry(name)?;
        let malformed = KeyError::Object { object: self.object, entry: name };
        let bytes = (entry.int_size == 1).then_some(&entry.value[..]).and_then(|b| b.try_into().ok());
        Ok(bytes.ok_or(malformed)?)
    }
}

impl CryptoKey {
    /// Reads the key object `object` of the MOS.
    pub fn read(mos: &Arc<ObjSet>, object: ObjectId) -> Result<CryptoKey, DslError> {
        let zap = mos::zap(mos, object)?;
        let fields = Fields { object, zap: &zap };
        let suite = fields.number("DSL_CRYPTO_SUITE")?;
        let wrapped = KeyObject {
            suite: Suite::from_id(suite).ok_or(KeyError::Suite { object, suite })?,
            guid: fields.number("DSL_CRYPTO_GUID")?,
            version: fields.number_or_0("DSL_CRYPTO_VERSION")?,
            iv: fields.bytes("DSL_CRYPTO_IV")?,
            mac: fields.bytes("DSL_CRYPTO_MAC")?,
            master: fields.bytes("DSL_CRYPTO_MASTER_KEY_1")?,
            hmac: fields.bytes("DSL_CRYPTO_HMAC_KEY_1")?,
        };
        Ok(CryptoKey {
            object,
            root_dir: ObjectId(fields.number("DSL_CRYPTO_ROOT_DDOBJ")?),
            refcount: fields.number_or_0("DSL_CRYPTO_REFCOUNT")?,
            format: KeyFormat::from_id(fields.number_or_0("keyformat")?),
            salt: fields.number_or_0("pbkdf2salt")?,
            iterations: fields.number_or_0("pbkdf2iters")?,
            wrapped,
        })
    }

    /// The key object that a directory uses; `None`: not encrypted.
    pub fn of(dir: &Dir) -> Result<Option<CryptoKey>, DslError> {
        key_object_of(dir)?.map(|object| CryptoKey::read(dir.dsl().mos(), object)).transpose()
    }

    /// The directory that asks for the key.
    pub fn root(&self, dsl: &Dsl) -> Result<Dir, DslError> {
        dsl.dir_by_object(self.root_dir)
    }

    /// How the wrapping key is given.
    ///
    /// # Errors
    /// The key object does not say, or names a format that is not known.
    pub fn format(&self) -> Result<KeyFormat, KeyError> {
        self.format.ok_or(KeyError::Object { object: self.object, entry: "keyformat" })
    }

    fn wrapping_key(&self, material: &[u8]) -> Result<WrappingKey, KeyError> {
        self.format()?.wrapping_key(material, self.salt, self.iterations)
    }
}

/// The number of the key object that a directory uses.
pub(crate) fn key_object_of(dir: &Dir) -> Result<Option<ObjectId>, DslError> {
    match dir.zap()? {
        Some(zap) => mos::lookup_object(&zap, dir.id(), CRYPTO_KEY_OBJ),
        None => Ok(None),
    }
}

/// The encryption root of a directory; `None`: not encrypted.
pub fn encryption_root(dir: &Dir) -> Result<Option<Dir>, DslError> {
    let Some(key) = CryptoKey::of(dir)? else { return Ok(None) };
    // Nearly always it is among the ancestors, whose names are known already.
    match dir.ancestry().find(|d| d.id() == key.root_dir) {
        Some(root) => Ok(Some(root.clone())),
        None => key.root(dir.dsl()).map(Some),
    }
}

/// Whether a key is there: the property `keystatus`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyStatus {
    /// Not encrypted.
    None,
    /// Not loaded.
    Unavailable,
    /// Loaded.
    Available,
}

impl KeyStatus {
    /// The number of the property value.
    pub fn id(self) -> u64 {
        self as u64
    }
}

/// The keys that have been loaded, of one pool.
#[derive(Default)]
pub struct Keyring {
    /// By directory object of the encryption root.
    wrapping: Mutex<HashMap<ObjectId, Arc<WrappingKey>>>,
    /// By key object.
    unwrapped: Mutex<HashMap<ObjectId, Arc<DataKey>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere cannot leave half an insertion in a map.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Keyring {
    fn root_key(root: &Dir) -> Result<CryptoKey, DslError> {
        let name = || root.name().to_owned();
        let key = CryptoKey::of(root)?.ok_or_else(|| KeyError::NotEncrypted { name: name() })?;
        if key.root_dir == root.id() {
            return Ok(key);
        }
        let above = key.root(root.dsl())?.name().to_owned();
        Err(KeyError::NotRoot { name: name(), root: above }.into())
    }

    fn unwrap_root(root: &Dir, key: &CryptoKey, material: &[u8]) -> Result<(WrappingKey, DataKey), DslError> {
        let wrapping = key.wrapping_key(material)?;
        match key.wrapped.unwrap_key(&wrapping) {
            Ok(data) => Ok((wrapping, data)),
            Err(CryptError::Authentication) => {
                Err(KeyError::Incorrect { name: root.name().to_owned() }.into())
            }
            Err(other) => Err(KeyError::Crypt(other).into()),
        }
    }

    /// Loads the key of the encryption root `root` from what the user gave.
    pub fn load(&self, root: &Dir, material: &[u8]) -> Result<(), DslError> {
        let key = Keyring::root_key(root)?;
        if self.is_loaded(root.id()) {
            return Err(KeyError::AlreadyLoaded { name: root.name().to_owned() }.into());
        }
        let (wrapping, data) = Keyring::unwrap_root(root, &key, material)?;
        lock(&self.wrapping).insert(root.id(), Arc::new(wrapping));
        lock(&self.unwrapped).insert(key.object, Arc::new(data));
        Ok(())
    }

    /// Checks a key without loading it.
    pub fn check(&self, root: &Dir, material: &[u8]) -> Result<(), DslError> {
        let key = Keyring::root_key(root)?;
        Keyring::unwrap_root(root, &key, material).map(drop)
    }

    /// Forgets the key of `root`. Object sets that are open keep theirs.
    pub fn unload(&self, root: &Dir) -> Result<(), DslError> {
        Keyring::root_key(root)?;
        if lock(&self.wrapping).remove(&root.id()).is_none() {
            return Err(KeyError::NotLoaded { name: root.name().to_owned() }.into());
        }
        // Data keys do not say whose wrapping key they came from; the others are unwrapped again.
        lock(&self.unwrapped).clear();
        Ok(())
    }

    /// The key of the encryption root in this directory object is loaded.
    pub fn is_loaded(&self, root_dir: ObjectId) -> bool {
        lock(&self.wrapping).contains_key(&root_dir)
    }

    /// The data key of a key object, if the wrapping key is loaded.
    pub fn data_key(&self, key: &CryptoKey) -> Result<Option<Arc<DataKey>>, DslError> {
        let Some(wrapping) = lock(&self.wrapping).get(&key.root_dir).cloned() else { return Ok(None) };
        if let Some(data) = lock(&self.unwrapped).get(&key.object) {
            return Ok(Some(data.clone()));
        }
        let data = Arc::new(key.wrapped.unwrap_key(&wrapping).map_err(KeyError::Crypt)?);
        lock(&self.unwrapped).insert(key.object, data.clone());
        Ok(Some(data))
    }

    /// The key state with which to open a dataset.
    pub fn key_of(&self, dataset: &Dataset) -> Result<KeyState, DslError> {
        let Some(key) = CryptoKey::of(dataset.dir())? else { return Ok(KeyState::None) };
        Ok(match self.data_key(&key)? {
            Some(data) => KeyState::Key(data),
            None => KeyState::Locked,
        })
    }

    /// Whether the key of a dataset is there.
    pub fn status(&self, dir: &Dir) -> Result<KeyStatus, DslError> {
        Ok(match CryptoKey::of(dir)? {
            None => KeyStatus::None,
            Some(key) if self.is_loaded(key.root_dir) => KeyStatus::Available,
            Some(_) => KeyStatus::Unavailable,
        })
    }
}

impl std::fmt::Debug for Keyring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keyring({} keys loaded)", lock(&self.wrapping).len())
    }
}
