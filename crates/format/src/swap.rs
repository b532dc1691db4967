//! The byte order of a block's contents (docs/on-disk/20-dmu.md): contents in big-endian order, as little-endian ones.

use crate::ids::SwapClass;
use crate::zap::{FAT_TYPE, LEAF_MAGIC, LEAF_TYPE, MICRO_MAGIC, ZapBlockKind};
use crate::{Endian, ObjType, zap, znode};

/// The contents of a data block or spill block of this type, stored in big-endian order, in little-endian order.
/// Contents without numbers, or with a byte order of their own (system attributes), stay as they are. In a ZAP, a block
/// that is none of its kinds is swapped word by word, as its table of pointers is.
pub fn contents_to_little(kind: ObjType, mut bytes: Vec<u8>) -> Vec<u8> {
    match kind.swap_class() {
        SwapClass::U8 | SwapClass::Dnode | SwapClass::Objset => {}
        SwapClass::U16 => each(&mut bytes, 2),
        SwapClass::U32 => each(&mut bytes, 4),
        SwapClass::U64 => each(&mut bytes, 8),
        SwapClass::Znode => znode::swap_bytes(&mut bytes, Endian::Big),
        SwapClass::OldAcl => znode::swap_old_aces(&mut bytes),
        SwapClass::Acl => znode::swap_aces(&mut bytes, Endian::Big),
        SwapClass::Zap => match zap::to_little(&bytes, zap_block_kind(&bytes)) {
            Ok(little) => return little,
            Err(_) => each(&mut bytes, 8),
        },
    }
    bytes
}

fn zap_block_kind(bytes: &[u8]) -> ZapBlockKind {
    match Endian::Big.get_u64(bytes, 0) {
        Some(MICRO_MAGIC | FAT_TYPE) => ZapBlockKind::First,
        Some(LEAF_TYPE) if Endian::Big.get_u32(bytes, 24) == Some(LEAF_MAGIC) => ZapBlockKind::Leaf,
        _ => ZapBlockKind::Table,
    }
}

fn each(bytes: &mut [u8], width: usize) {
    bytes.chunks_exact_mut(width).for_each(<[u8]>::reverse);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_are_turned() {
        let bytes: Vec<u8> = (0..64).collect();
        assert_eq!(contents_to_little(ObjType::PLAIN_FILE, bytes.clone()), bytes);
        assert_eq!(contents_to_little(ObjType::SA, bytes.clone()), bytes);
        let words = contents_to_little(ObjType::U64_METADATA, bytes.clone());
        assert_eq!(words[..8], [7, 6, 5, 4, 3, 2, 1, 0]);
        assert_eq!(contents_to_little(ObjType::DIRECTORY, bytes)[..2], [7, 6], "not a block of a ZAP");
    }

    #[test]
    fn a_micro_zap_keeps_its_names() {
        let mut big = vec![0; 128];
        big[..8].copy_from_slice(&MICRO_MAGIC.to_be_bytes());
        big[64..72].copy_from_slice(&5u64.to_be_bytes());
        big[78..82].copy_from_slice(b"name");
        let little = contents_to_little(ObjType::DIRECTORY, big);
        assert_eq!(little[64..72], 5u64.to_le_bytes());
        assert_eq!(&little[78..82], b"name");
    }
}
