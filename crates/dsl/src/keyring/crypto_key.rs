//! Key objects of the MOS: the wrapped keys of encrypted datasets
//! (docs/on-disk/31-encryption.md, section 3).

use super::material::KeyFormat;
use crate::error::{DslError, KeyError};
use crate::mos;
use codec::crypt::{KeyObject, Suite, WrappingKey};
use dmu::ObjSet;
use dmu::zap::{Zap, ZapEntry};
use format::ObjectId;
use format::names::key_object;
use std::sync::Arc;

/// A key object of the MOS, with its keys still wrapped.
#[derive(Clone)]
pub struct CryptoKey {
    /// Number of the key object in the MOS.
    pub object: ObjectId,
    /// Directory object of the encryption root, whose key wraps this one.
    pub root_dir: ObjectId,
    /// Number of directories that use the key object.
    pub refcount: u64,
    /// Format of the wrapping key; `None`: damaged or unknown.
    pub format: Option<KeyFormat>,
    /// Salt for deriving the wrapping key from a passphrase.
    pub salt: u64,
    /// PBKDF2 iterations for deriving the wrapping key from a passphrase.
    pub iterations: u64,
    /// Wrapped master key and HMAC key.
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
    pub(crate) fn read(mos: &Arc<ObjSet>, object: ObjectId) -> Result<CryptoKey, DslError> {
        let zap = mos::zap(mos, object)?;
        let fields = Fields { object, zap: &zap };
        let suite = fields.number(key_object::SUITE)?;
        let wrapped = KeyObject {
            suite: Suite::from_id(suite).ok_or(KeyError::Suite { object, suite })?,
            guid: fields.number(key_object::GUID)?,
            version: fields.number_or_0(key_object::VERSION)?,
            iv: fields.bytes(key_object::IV)?,
            mac: fields.bytes(key_object::MAC)?,
            master: fields.bytes(key_object::MASTER_KEY)?,
            hmac: fields.bytes(key_object::HMAC_KEY)?,
        };
        Ok(CryptoKey {
            object,
            root_dir: ObjectId(fields.number(key_object::ROOT_DIR)?),
            refcount: fields.number_or_0(key_object::REFCOUNT)?,
            format: KeyFormat::from_id(fields.number_or_0(key_object::KEYFORMAT)?),
            salt: fields.number_or_0(key_object::PBKDF2_SALT)?,
            iterations: fields.number_or_0(key_object::PBKDF2_ITERS)?,
            wrapped,
        })
    }

    /// Format of the wrapping key.
    ///
    /// # Errors
    /// [`KeyError::Object`] if the key object has no format, or an unknown one.
    pub fn format(&self) -> Result<KeyFormat, KeyError> {
        self.format.ok_or(KeyError::Object { object: self.object, entry: key_object::KEYFORMAT })
    }

    pub(crate) fn wrapping_key(&self, material: &[u8]) -> Result<WrappingKey, KeyError> {
        self.format()?.wrapping_key(material, self.salt, self.iterations)
    }
}
