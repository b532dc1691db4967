//! The loaded keys of a pool, in memory.
//!
//! # What always holds
//! - Keys are wiped when their last reference is dropped; they are never printed.
//! - Object numbers are reused: a data key is used only for the key object from which it was unwrapped, which its
//!   guid tells, and the keys of directories that are destroyed are removed ([`Keyring::forget`]).
//!
//! # Lock order
//! `wrapping` before `unwrapped`. Neither is held while a device is read.

pub(crate) mod crypto_key;
mod material;

pub use crypto_key::CryptoKey;
pub use material::{KeyFormat, KeyLocation};

use crate::error::{DslError, KeyError};
use crate::sync::lock;
use codec::crypt::{DataKey, WrappingKey};
use format::ObjectId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// The loaded keys of one pool.
#[derive(Default)]
pub struct Keyring {
    /// Wrapping keys, by directory object of the encryption root.
    wrapping: Mutex<HashMap<ObjectId, Arc<WrappingKey>>>,
    /// Unwrapped data keys, by key object, each with the guid of the key.
    unwrapped: Mutex<HashMap<ObjectId, (u64, Arc<DataKey>)>>,
}

impl Keyring {
    /// Adds the wrapping key of an encryption root, and the data key that was unwrapped with it.
    pub(crate) fn insert(&self, root_dir: ObjectId, wrapping: WrappingKey, key: &CryptoKey, data: DataKey) {
        lock(&self.wrapping).insert(root_dir, Arc::new(wrapping));
        lock(&self.unwrapped).insert(key.object, (key.wrapped.guid, Arc::new(data)));
    }

    /// Removes what belongs to a directory that is destroyed, or whose user's key has changed. Open object sets keep
    /// their keys.
    pub(crate) fn forget(&self, dir: ObjectId) {
        self.remove(dir);
    }

    /// Removes the wrapping key of an encryption root. Returns false if it was not loaded.
    pub(crate) fn remove(&self, root_dir: ObjectId) -> bool {
        let was_loaded = lock(&self.wrapping).remove(&root_dir).is_some();
        if was_loaded {
            // A data key does not record its wrapping key: remove all; the others are unwrapped again on
            // demand.
            lock(&self.unwrapped).clear();
        }
        was_loaded
    }

    /// Whether the key of the encryption root in this directory object is loaded.
    pub(crate) fn is_loaded(&self, root_dir: ObjectId) -> bool {
        lock(&self.wrapping).contains_key(&root_dir)
    }

    /// The data key of a key object, if the wrapping key is loaded.
    ///
    /// # Errors
    /// [`KeyError::Crypt`] if the loaded key does not unwrap the key object.
    pub(crate) fn data_key(&self, key: &CryptoKey) -> Result<Option<Arc<DataKey>>, DslError> {
        let Some(wrapping) = lock(&self.wrapping).get(&key.root_dir).cloned() else { return Ok(None) };
        let known = lock(&self.unwrapped).get(&key.object).cloned();
        if let Some((_, data)) = known.filter(|(guid, _)| *guid == key.wrapped.guid) {
            return Ok(Some(data));
        }
        let data = Arc::new(key.wrapped.unwrap_key(&wrapping).map_err(KeyError::Crypt)?);
        lock(&self.unwrapped).insert(key.object, (key.wrapped.guid, data.clone()));
        Ok(Some(data))
    }
}

impl std::fmt::Debug for Keyring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keyring({} keys loaded)", lock(&self.wrapping).len())
    }
}
