//! Blocks of the intent log: their pointer holds not a checksum but the block's identity, and the
//! checksum is inside the block (docs/on-disk/24-zil.md, section 3).

use crate::{Zio, ZioError};
use codec::checksum;
use codec::crypt::{DataKey, block as crypt_block};
use format::blkptr::Protection;
use format::{BlockPtr, BpKind};
use vdev::tree::{Extent, VdevError};

/// A valid block of an intent log.
pub struct LogBlock {
    /// The whole block; what lies beyond the part in use is not covered by the checksum.
    pub bytes: Vec<u8>,
}

impl Zio {
    /// Reads a block of the intent log. `Ok(None)`: what is there is not this block, the ordinary end
    /// of a chain. With a key, records of an encrypted log are decrypted; without one only their
    /// headers are readable.
    pub fn read_log_block(&self, bp: &BlockPtr, key: Option<&DataKey>) -> Result<Option<LogBlock>, ZioError> {
        if bp.validate().is_err() || bp.kind() != BpKind::Normal {
            return Ok(None);
        }
        let verify = |data: &[u8]| checksum::verify_zil(bp, data).is_some();
        for dva in bp.dvas() {
            if self.tree().check(&dva, bp.psize()).is_err() {
                continue;
            }
            let at =
                Extent { vdev: dva.vdev, offset: dva.offset, psize: bp.psize(), birth: bp.physical_birth() };
            match self.tree().read_quietly(&at, &verify) {
                Ok(mut bytes) => {
                    if let (Some(key), Protection::Encrypted) = (key, bp.protection()) {
                        crypt_block::decrypt_zil_block(key, bp, &mut bytes)
                            .map_err(|source| ZioError::Crypt { bp: *bp, source })?;
                    }
                    #[cfg(feature = "testing")]
                    let bytes = crate::testing::mutate(bp, bytes);
                    return Ok(Some(LogBlock { bytes }));
                }
                Err(VdevError::WrongChecksum) => return Ok(None),
                Err(source) => return Err(ZioError::Unreadable { bp: *bp, faults: Vec::new(), source }),
            }
        }
        Ok(None)
    }
}
