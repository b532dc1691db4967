//! Keys that encrypted file systems need to be mounted (docs/on-disk/31-encryption.md, sections 2, 12).

use super::{MountRefusal, Mounting, failed};
use cenote::Error;
use dsl::keys::{CryptoKey, KEYLOCATION, KeyStatus};
pub use dsl::keys::{KeyFormat, KeyLocation};
use dsl::prop::{self, PropValue};

/// A key that is not loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedKey {
    /// Full name of the encryption root.
    pub root: String,
    /// Value of the property `keyformat`.
    pub format: KeyFormat,
    /// Value of the property `keylocation`.
    pub location: KeyLocation,
}

impl Mounting {
    /// The key that a file system lacks. `None`: it is not encrypted, or its key is loaded.
    ///
    /// # Errors
    /// The file system does not exist, or the stored key is damaged.
    pub fn wanted_key(&self, dataset: &str) -> Result<Option<WantedKey>, MountRefusal> {
        let (view, _) = self.view(dataset)?;
        let find = || -> Result<Option<WantedKey>, Error> {
            let found = view.dsl().dataset(dataset)?;
            if view.dsl().keyring().status(found.dir())? != KeyStatus::Unavailable {
                return Ok(None);
            }
            let Some(key) = CryptoKey::of(found.dir())? else { return Ok(None) };
            let root = key.root(view.dsl())?;
            let format = key.format().map_err(dsl::DslError::from)?;
            let location = match root.head()? {
                Some(head) => prop::get(&head, KEYLOCATION)?.map(|value| value.raw),
                None => None,
            };
            let location = match location {
                Some(PropValue::String(location)) => {
                    KeyLocation::parse(&location).map_err(dsl::DslError::from)?
                }
                _ => KeyLocation::Prompt,
            };
            Ok(Some(WantedKey { root: root.name().to_owned(), format, location }))
        };
        find().map_err(|error| failed(dataset, &error))
    }

    /// The keys missing for file systems that mount automatically, below a dataset or in all pools. Each key is
    /// listed once.
    pub fn wanted_keys(&self, below: Option<&str>) -> Vec<WantedKey> {
        let (places, _) = self.unmounted(below, false);
        let mut wanted: Vec<WantedKey> = Vec::new();
        let locked = places.iter().filter(|properties| properties.is_locked);
        // What cannot be looked at is told when it is mounted.
        for key in locked.filter_map(|properties| self.wanted_key(&properties.dataset).ok().flatten()) {
            if !wanted.contains(&key) {
                wanted.push(key);
            }
        }
        wanted
    }

    /// Loads the key of an encryption root until its pool is exported. `material` is the contents of the key's
    /// location.
    ///
    /// # Errors
    /// The material has the wrong format, or is not the key.
    pub fn load_key(&self, root: &str, material: &[u8]) -> Result<(), Error> {
        let (view, _) = self.view(root).map_err(|_| dsl::DslError::NotFound { name: root.to_owned() })?;
        view.load_key(root, material)
    }
}
