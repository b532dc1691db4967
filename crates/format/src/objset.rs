//! Object sets: the root block of a dataset and of the pool
//! (docs/on-disk/20-dmu.md, section 1).

use crate::dnode::{Dnode, SLOT_SIZE};
use crate::{BlockPtr, DecodeError, Endian, ObjectId, Txg};

/// Contents of an object set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ObjsetType {
    /// The type is not set yet.
    None,
    /// The meta object set (MOS) of the pool.
    Meta,
    /// A file system.
    Zfs,
    /// A volume.
    Zvol,
    /// Another type, in tests of other implementations.
    Other,
}

impl ObjsetType {
    fn from_id(id: u64) -> Result<ObjsetType, DecodeError> {
        Ok(match id {
            0 => ObjsetType::None,
            1 => ObjsetType::Meta,
            2 => ObjsetType::Zfs,
            3 => ObjsetType::Zvol,
            4 => ObjsetType::Other,
            _ => return Err(DecodeError::field("objset", "type", id)),
        })
    }

    /// The number stored on disk.
    pub fn id(self) -> u64 {
        self as u64
    }
}

/// The head of a dataset's intent log (docs/on-disk/24-zil.md, section 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ZilHeader {
    /// Txg in which the chain was claimed; 0: not claimed.
    pub claim_txg: Txg,
    /// Highest sequence number of a record that was replayed.
    pub replay_seq: u64,
    /// First block of the chain.
    pub log: BlockPtr,
    /// Highest sequence number of a block that was claimed.
    pub claim_blk_seq: u64,
    /// Flags. 1: replay is needed; 2: `claim_lr_seq` is valid.
    pub flags: u64,
    /// Highest record number seen at the claim.
    pub claim_lr_seq: u64,
}

/// Flag: user accounting covers every object.
pub const FLAG_USERACCOUNTING_COMPLETE: u64 = 1;

/// The root block of an object set, decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjsetPhys {
    /// The dnode of the object that contains all other dnodes.
    pub meta_dnode: Dnode,
    /// Head of the intent log.
    pub zil: ZilHeader,
    /// The type of the object set.
    pub kind: ObjsetType,
    /// Flags that tell which accounting objects are complete.
    pub flags: u64,
    /// MAC over the portable parts, which raw streams contain.
    pub portable_mac: [u8; 32],
    /// MAC over the parts that are local to the pool.
    pub local_mac: [u8; 32],
    /// Dnodes of the accounting objects for users, groups and projects; absent in old or new sets.
    pub accounting: [Option<Dnode>; 3],
    /// Size of the block in bytes: 1024, 2048 or 4096.
    pub size: usize,
    /// Byte order of the block.
    pub order: Endian,
}

impl ObjsetPhys {
    /// Reads an object set block.
    ///
    /// # Errors
    /// [`DecodeError::Field`] for a size that no object set has, or an unknown type; otherwise the error
    /// of one of its dnodes.
    pub fn decode(bytes: &[u8], order: Endian) -> Result<ObjsetPhys, DecodeError> {
        const WHAT: &str = "objset";
        if !matches!(bytes.len(), 1024 | 2048 | 4096) {
            return Err(DecodeError::field(WHAT, "size", bytes.len() as u64));
        }
        let meta_dnode = Dnode::decode(&bytes[..SLOT_SIZE], order)?
            .ok_or(DecodeError::invalid(WHAT, "the meta-dnode is free"))?;
        if meta_dnode.obj_type != crate::ObjType::DNODE {
            return Err(DecodeError::field(WHAT, "type of the meta-dnode", meta_dnode.obj_type.id()));
        }
        let mac = |at: usize| -> Result<[u8; 32], DecodeError> {
            bytes.get(at..at + 32).and_then(|b| b.try_into().ok()).ok_or(DecodeError::invalid(WHAT, "short"))
        };
        let accounting_at = |at: usize| match bytes.get(at..at + SLOT_SIZE) {
            Some(slot) => Dnode::decode(slot, order),
            None => Ok(None),
        };
        Ok(ObjsetPhys {
            meta_dnode,
            zil: ZilHeader {
                claim_txg: Txg(order.u64(WHAT, bytes, 512)?),
                replay_seq: order.u64(WHAT, bytes, 520)?,
                log: BlockPtr::decode(&bytes[528..656], order)?,
                claim_blk_seq: order.u64(WHAT, bytes, 656)?,
                flags: order.u64(WHAT, bytes, 664)?,
                claim_lr_seq: order.u64(WHAT, bytes, 672)?,
            },
            kind: ObjsetType::from_id(order.u64(WHAT, bytes, 704)?)?,
            flags: order.u64(WHAT, bytes, 712)?,
            portable_mac: mac(720)?,
            local_mac: mac(752)?,
            accounting: [accounting_at(1024)?, accounting_at(1536)?, accounting_at(2048)?],
            size: bytes.len(),
            order,
        })
    }

    /// The block in little-endian order.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; self.size];
        let mut put = |at: usize, bytes: &[u8]| {
            if let Some(place) = out.get_mut(at..at + bytes.len()) {
                place.copy_from_slice(bytes);
            }
        };
        // Unchanged dnodes may still be in big-endian order, if such a machine had the pool before.
        let little = |dnode: &Dnode| Dnode { order: Endian::Little, ..dnode.clone() }.encode();
        put(0, &little(&self.meta_dnode));
        let word = |value: u64| value.to_le_bytes();
        put(512, &word(self.zil.claim_txg.0));
        put(520, &word(self.zil.replay_seq));
        put(528, &self.zil.log.encode(Endian::Little));
        put(656, &word(self.zil.claim_blk_seq));
        put(664, &word(self.zil.flags));
        put(672, &word(self.zil.claim_lr_seq));
        put(704, &word(self.kind.id()));
        put(712, &word(self.flags));
        put(720, &self.portable_mac);
        put(752, &self.local_mac);
        for (dnode, at) in self.accounting.iter().zip([1024, 1536, 2048]) {
            if let Some(dnode) = dnode {
                put(at, &little(dnode));
            }
        }
        out
    }

    /// The dnode of an accounting object.
    pub fn accounting_dnode(&self, object: ObjectId) -> Option<&Dnode> {
        let i = match object {
            ObjectId::USER_USED => 0,
            ObjectId::GROUP_USED => 1,
            ObjectId::PROJECT_USED => 2,
            _ => return None,
        };
        self.accounting[i].as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Unchanged dnodes of a pool from a big-endian machine.
    #[test]
    fn all_of_it_is_written_in_the_little_order() {
        let order = Endian::Big;
        let mut block = vec![0; 4096];
        for (at, kind) in [
            (0, crate::ObjType::DNODE),
            (1024, crate::ObjType::PLAIN_FILE),
            (1536, crate::ObjType::PLAIN_FILE),
        ] {
            block[at..at + 8].copy_from_slice(&[kind.id(), 17, 1, 1, 0, 7, 2, 1]);
            block[at + 8..at + 10].copy_from_slice(&order.put_u16(32));
            block[at + 24..at + 32].copy_from_slice(&order.put_u64(4096));
        }
        block[704..712].copy_from_slice(&order.put_u64(ObjsetType::Zfs.id()));
        let old = ObjsetPhys::decode(&block, order).unwrap();
        let new = ObjsetPhys::decode(&old.encode(), Endian::Little).unwrap();
        let sizes = |set: &ObjsetPhys| {
            let all = set.accounting.iter().flatten().chain([&set.meta_dnode]);
            all.map(|dnode| (dnode.data_block_size(), dnode.used_bytes())).collect::<Vec<_>>()
        };
        assert_eq!((sizes(&new), new.kind), (vec![(16_384, 4096); 3], old.kind));
        assert_eq!(sizes(&old), sizes(&new));
    }
}
