//! Identities: 32 bits of id, and 32 bits that may name a domain
//! (docs/on-disk/23-zpl.md, sections 3.1 and 4).

use crate::{Filesystem, ZplError};
use format::fuid::{Domain, TABLE_MAX, decode_table};
use format::names;
use format::{Endian, ObjectId};

/// The id shown for an identity of a domain that this host knows nothing of.
pub const NOBODY: u32 = 65534;

/// The POSIX id in a FUID.
pub(crate) fn posix_id(fuid: u64) -> u32 {
    if fuid >> 32 == 0 { fuid as u32 } else { NOBODY }
}

/// The domains of a file system, with their index.
#[derive(Debug, Default)]
pub(crate) struct Domains(Vec<Domain>);

impl Filesystem {
    /// The domain (a Windows security identifier without its last part) of an identity; `None` for
    /// POSIX ids and for domains that the table lacks.
    pub fn domain(&self, fuid: u64) -> Result<Option<&str>, ZplError> {
        let index = fuid >> 32;
        if index == 0 {
            return Ok(None);
        }
        let table = match self.domains.get() {
            Some(table) => table,
            None => {
                let table = self.read_domains()?;
                self.domains.get_or_init(|| table)
            }
        };
        Ok(table.0.iter().find(|domain| domain.index == index).map(|domain| domain.name.as_str()))
    }

    fn read_domains(&self) -> Result<Domains, ZplError> {
        let Some(id) = self.master_value(names::master_node::FUID)?.filter(|id| *id != 0).map(ObjectId)
        else {
            return Ok(Domains::default());
        };
        let objset = self.objset().number();
        let decode = |source| ZplError::Decode { objset, object: id, source };
        let object = self.objset().object(id)?;
        let order: Endian = object.order();
        let size = order.u64("FUID table size", object.bonus(), 0).map_err(decode)?;
        if size > TABLE_MAX {
            return Err(ZplError::TooLarge { object: id, what: "a table of domains", size });
        }
        let mut packed = vec![0; size as usize];
        object.read_at(0, &mut packed)?;
        decode_table(&packed).map(Domains).map_err(decode)
    }
}
