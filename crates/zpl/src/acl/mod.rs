//! Stored access control lists (docs/on-disk/23-zpl.md, sections 4 and 8). POSIX ACLs are extended
//! attributes, see [`format::acl::POSIX_ACCESS`].

pub(crate) mod change;

use crate::attrs::{Sa, Spill, Stored, with_stored};
use crate::{Node, ZplError};
use format::acl::{Ace, AclVersion, MAX_ACES, decode_aces};
use format::sa::Attr;
use format::znode::{FLAG_ACL_TRIVIAL, LegacyAcl};
use format::{BlockId, DecodeError, Endian, ObjType, ObjectId};

/// Bytes of the longest list.
const LIST_MAX: u64 = 48 * MAX_ACES as u64;

/// The access control list of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Acl {
    /// Entries in the order in which they are evaluated.
    pub aces: Vec<Ace>,
    /// Whether the list is equivalent to the mode.
    pub is_trivial: bool,
}

/// ACEs, or the place of ACEs of an old form.
enum Source {
    Decoded(Vec<Ace>),
    Legacy(LegacyAcl),
}

fn from_sa(sa: &Sa<'_>) -> Result<Source, DecodeError> {
    if let Some((buffer, raw)) = sa.find(Attr::DaclAces)? {
        let count = sa.u64(Attr::DaclCount)?.unwrap_or(0);
        return decode_aces(raw, count, AclVersion::Fuid, buffer.order()).map(Source::Decoded);
    }
    match sa.find(Attr::ZnodeAcl)? {
        Some((buffer, raw)) => LegacyAcl::decode(raw, buffer.order()).map(Source::Legacy),
        None => Ok(Source::Decoded(Vec::new())),
    }
}

impl Node {
    /// The access control list of the file.
    ///
    /// # Errors
    /// If an object of the file system cannot be read, or is damaged.
    pub fn acl(&self) -> Result<Acl, ZplError> {
        let source = with_stored(self.fs.tables(), &self.object, Spill::Needed, |stored| match stored {
            Stored::Sa(sa) => from_sa(sa),
            Stored::Legacy(znode) => znode.decode_acl().map(Source::Legacy),
        })?;
        let aces = match source {
            Source::Decoded(aces) => aces,
            Source::Legacy(acl) if acl.external.0 == 0 => {
                decode_aces(&acl.inline, acl.count.into(), acl.version, acl.order)
                    .map_err(|e| self.decode_error(e))?
            }
            Source::Legacy(acl) => self.external_acl(&acl)?,
        };
        Ok(Acl { aces, is_trivial: self.attrs().flags & FLAG_ACL_TRIVIAL != 0 })
    }

    fn external_acl(&self, acl: &LegacyAcl) -> Result<Vec<Ace>, ZplError> {
        let size = match acl.version {
            AclVersion::V0 => 12 * u64::from(acl.count),
            AclVersion::Fuid => acl.size.into(),
        };
        if size > LIST_MAX {
            return Err(ZplError::TooLarge { object: self.id(), what: "an access control list", size });
        }
        let (raw, order) = self.read_external(acl.external, size as usize)?;
        decode_aces(&raw, acl.count.into(), acl.version, order).map_err(|e| self.decode_error(e))
    }

    fn read_external(&self, id: ObjectId, len: usize) -> Result<(Vec<u8>, Endian), ZplError> {
        let object = self.fs.objset().object(id)?;
        if !matches!(object.dnode().obj_type, ObjType::ACL | ObjType::OLD_ACL) {
            return Err(self.corrupt("its access control list is in an object of another kind"));
        }
        let first = object.block(BlockId(0))?;
        let order = first.ok_or_else(|| self.corrupt("its access control list is a hole"))?.order();
        let mut raw = vec![0; len];
        object.read_at(0, &mut raw)?;
        Ok((raw, order))
    }
}
