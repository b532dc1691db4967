//! Encryption keys: the encryption root of a directory, and loading its key (docs/on-disk/31-encryption.md,
//! sections 2, 3, 12).
//!
//! # What always holds
//! - A wrapping key enters the [`Keyring`] only after it has unwrapped the key object of its encryption root.

pub(crate) mod change;

pub use crate::keyring::{CryptoKey, KeyFormat, KeyLocation, Keyring};
pub use change::inherit_sent;

use crate::dataset::Dataset;
use crate::dir::Dir;
use crate::error::DslError;
pub use crate::error::KeyError;
use crate::tree::Dsl;
use codec::crypt::{CryptError, DataKey, WrappingKey};
use dmu::{KeyState, ObjSet};
use std::sync::Arc;

/// Property of an encryption root: the location of its key.
pub const KEYLOCATION: &str = "keylocation";

/// The encryption root of a directory; `None`: it is not encrypted.
///
/// # Errors
/// If an object of the MOS cannot be read, or is damaged.
pub fn encryption_root(dir: &Dir) -> Result<Option<Dir>, DslError> {
    let Some(key) = CryptoKey::of(dir)? else { return Ok(None) };
    // Usually the root is an ancestor, whose name is already known.
    match dir.ancestry().find(|d| d.id() == key.root_dir) {
        Some(root) => Ok(Some(root.clone())),
        None => key.root(dir.dsl()).map(Some),
    }
}

/// Whether the key of a dataset is loaded: the property `keystatus`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyStatus {
    /// The dataset is not encrypted.
    None,
    /// The key is not loaded.
    Unavailable,
    /// The key is loaded.
    Available,
}

impl KeyStatus {
    /// The number of the property's value.
    pub(crate) fn id(self) -> u64 {
        self as u64
    }
}

impl CryptoKey {
    /// The key object that a directory uses; `None`: the directory is not encrypted.
    ///
    /// # Errors
    /// If the key object cannot be read, or is damaged.
    pub fn of(dir: &Dir) -> Result<Option<CryptoKey>, DslError> {
        dir.key_object()?.map(|object| CryptoKey::read(dir.dsl().mos(), object)).transpose()
    }

    /// The directory of the encryption root.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn root(&self, dsl: &Dsl) -> Result<Dir, DslError> {
        dsl.dir_by_object(self.root_dir)
    }
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

    /// Loads the key of the encryption root `root` from the user's material.
    ///
    /// # Errors
    /// [`KeyError`] if the directory is no encryption root, its key is loaded already, or the material is
    /// wrong.
    pub fn load(&self, root: &Dir, material: &[u8]) -> Result<(), DslError> {
        let key = Keyring::root_key(root)?;
        if self.is_loaded(root.id()) {
            return Err(KeyError::AlreadyLoaded { name: root.name().to_owned() }.into());
        }
        let (wrapping, data) = Keyring::unwrap_root(root, &key, material)?;
        self.insert(root.id(), wrapping, &key, data);
        Ok(())
    }

    /// Unloads the key of `root`. Open object sets keep theirs.
    ///
    /// # Errors
    /// [`KeyError`] if the directory is no encryption root, or its key is not loaded.
    pub fn unload(&self, root: &Dir) -> Result<(), DslError> {
        Keyring::root_key(root)?;
        if !self.remove(root.id()) {
            return Err(KeyError::NotLoaded { name: root.name().to_owned() }.into());
        }
        Ok(())
    }

    /// The key state for opening a dataset.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read, or is damaged.
    pub fn key_of(&self, dataset: &Dataset) -> Result<KeyState, DslError> {
        let Some(key) = CryptoKey::of(dataset.dir())? else { return Ok(KeyState::None) };
        Ok(match self.data_key(&key)? {
            Some(data) => KeyState::Key(data),
            None => KeyState::Locked,
        })
    }

    /// Whether the key of a dataset is loaded.
    ///
    /// # Errors
    /// If an object of the MOS cannot be read, or is damaged.
    pub fn status(&self, dir: &Dir) -> Result<KeyStatus, DslError> {
        Ok(match CryptoKey::of(dir)? {
            None => KeyStatus::None,
            Some(key) if self.is_loaded(key.root_dir) => KeyStatus::Available,
            Some(_) => KeyStatus::Unavailable,
        })
    }
}

impl Dataset {
    /// Opens the object set with the key from the keyring, if it is loaded.
    ///
    /// # Errors
    /// If the root block of the object set cannot be read.
    pub fn open_objset(&self) -> Result<Arc<ObjSet>, DslError> {
        self.objset(self.dsl().keyring().key_of(self)?)
    }
}
