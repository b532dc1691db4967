//! FUIDs, the identities of owners: a 32-bit id, and 32 bits that may name a domain (docs/on-disk/23-zpl.md,
//! sections 3.1 and 4).

use crate::ZplError;
use dmu::ObjSet;
use format::ObjectId;
use format::fuid::{Domain, TABLE_MAX, decode_table};
use std::sync::Arc;

/// The id shown for an identity of a domain that this host does not know: 65534.
pub const NOBODY: u32 = 65534;

/// The POSIX id in a FUID.
pub(crate) fn posix_id(fuid: u64) -> u32 {
    if fuid >> 32 == 0 { fuid as u32 } else { NOBODY }
}

/// The domain table of a file system, by index.
#[derive(Debug, Default)]
pub(crate) struct Domains(Vec<Domain>);

impl Domains {
    /// Reads the table in this object.
    ///
    /// # Errors
    /// [`ZplError::TooLarge`], [`ZplError::Decode`], or the object cannot be read.
    pub(crate) fn read(objset: &Arc<ObjSet>, id: ObjectId) -> Result<Domains, ZplError> {
        let number = objset.number();
        let decode = |source| ZplError::Decode { objset: number, object: id, source };
        let object = objset.object(id)?;
        let size = object.order().u64("FUID table size", object.bonus(), 0).map_err(decode)?;
        if size > TABLE_MAX {
            return Err(ZplError::TooLarge { object: id, what: "a table of domains", size });
        }
        let mut packed = vec![0; size as usize];
        object.read_at(0, &mut packed)?;
        decode_table(&packed).map(Domains).map_err(decode)
    }

    /// The domain of a FUID; `None` for POSIX ids, and for domains that the table lacks.
    pub(crate) fn of(&self, fuid: u64) -> Option<&str> {
        let index = fuid >> 32;
        let domain = self.0.iter().find(|domain| domain.index == index && index != 0);
        domain.map(|domain| domain.name.as_str())
    }
}
