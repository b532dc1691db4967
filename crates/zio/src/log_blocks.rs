//! Blocks of the intent log: their pointer holds the block's identity in place of a checksum, and the
//! checksum is inside the block (docs/on-disk/24-zil.md, section 3).

use crate::space::{self, Unflushed};
use crate::{AllocClass, AllocTx, Zio, ZioError, pointer};
use codec::checksum;
use codec::crypt::{DataKey, block as crypt_block};
use format::blkptr::Protection;
use format::config::{VdevKind, VdevNode};
use format::units::MAX_BLOCK;
use format::zil::WRITE_UNIT;
use format::{BlockPtr, BpKind, Dva, Psize};
use vdev::VdevTree;
use vdev::tree::{Extent, Priority, PriorityGuard, VdevError, Write};

/// A valid block of an intent log.
pub struct LogBlock {
    /// The whole block; the checksum does not cover the bytes after the part in use.
    pub bytes: Vec<u8>,
}

impl Zio {
    /// Reads a block of the intent log. `Ok(None)`: another block is there, as at the ordinary end of a
    /// chain. With a key, records of an encrypted log are decrypted; without one only their headers are
    /// readable.
    ///
    /// # Errors
    /// [`ZioError`] if the block is the right one and cannot be decrypted.
    pub fn read_log_block(&self, bp: &BlockPtr, key: Option<&DataKey>) -> Result<Option<LogBlock>, ZioError> {
        if bp.validate().is_err() || bp.kind() != BpKind::Normal {
            return Ok(None);
        }
        let verify = |data: &[u8]| checksum::verify_zil(bp, data).is_some();
        for dva in bp.dvas() {
            let tree = self.tree();
            if tree.check(&dva, bp.psize()).is_err() {
                continue;
            }
            let at =
                Extent { vdev: dva.vdev, offset: dva.offset, psize: bp.psize(), birth: bp.physical_birth() };
            match tree.read_quietly(&at, &verify) {
                Ok(mut bytes) => {
                    if let (Some(key), Protection::Encrypted) = (key, bp.protection()) {
                        crypt_block::decrypt_zil_block(key, bp, &mut bytes)
                            .map_err(|source| ZioError::Crypt { bp: *bp, source })?;
                    }
                    #[cfg(feature = "testing")]
                    let bytes = crate::mutators::mutate(bp, bytes);
                    return Ok(Some(LogBlock { bytes }));
                }
                Err(VdevError::WrongChecksum) => return Ok(None),
                Err(source) => return Err(ZioError::Unreadable { bp: *bp, faults: Vec::new(), source }),
            }
        }
        Ok(None)
    }

    /// Allocates a block of the intent log of `size` bytes, and returns its pointer; no bytes are written.
    /// `identity` are the two guids of the chain, the dataset and the number in the chain. Such a block has
    /// one copy and is never a gang. `class` is [`AllocClass::Log`], or another one to avoid log devices.
    ///
    /// # Errors
    /// [`ZioError`] if the pool is read-only, or there is no space.
    ///
    /// # Panics
    /// If `size` is not a multiple of 4096, or is more than 16 MiB.
    pub fn allocate_log_block(
        &self,
        size: u64,
        identity: [u64; 4],
        class: AllocClass,
        tx: &dyn AllocTx,
    ) -> Result<BlockPtr, ZioError> {
        assert!(
            size.is_multiple_of(WRITE_UNIT as u64) && (1..=MAX_BLOCK).contains(&size),
            "a log block of {size} bytes"
        );
        let bp = pointer::log_block(size, identity, tx.txg());
        let Some(writer) = self.writer() else { return Err(ZioError::ReadOnly { bp }) };
        let want = space::request(class, size, 1);
        let dvas = writer.space.allocate(&want, tx).map_err(|source| ZioError::Allocate { bp, source })?;
        Ok(pointer::with_dvas(&bp, &dvas, false))
    }

    /// Writes the front of a block of the intent log, whose checksum is already in `bytes`: the part in use,
    /// in whole units of 4096 bytes. The rest of the block keeps its old contents, which no reader takes for
    /// records. Durable after [`Zio::flush_log_blocks`].
    ///
    /// # Errors
    /// [`ZioError::Unwritable`] if no device took the block.
    pub fn write_log_block(&self, bp: &BlockPtr, bytes: &[u8]) -> Result<Unflushed, ZioError> {
        self.write_log_blocks(&[(*bp, bytes)])
    }

    /// Like [`Zio::write_log_block`], for several blocks at once, in any order.
    ///
    /// # Errors
    /// [`ZioError::Unwritable`] if one of them could not be written; others may have been.
    pub fn write_log_blocks(&self, blocks: &[(BlockPtr, &[u8])]) -> Result<Unflushed, ZioError> {
        if self.writer().is_none() {
            return Err(ZioError::ReadOnly { bp: blocks.first().map_or(BlockPtr::HOLE, |(bp, _)| *bp) });
        }
        let tree = self.tree();
        let mut places = Vec::with_capacity(blocks.len());
        for (bp, bytes) in blocks {
            assert!(bytes.len() as u64 <= bp.psize().0, "more than the log block {bp} can hold");
            let Some(dva) = bp.dvas().next() else {
                return Err(ZioError::Unwritable { bp: *bp, source: VdevError::NoCopies });
            };
            places.push((dva, pad_for_stripes(&tree, &dva, bp.psize(), bytes)));
        }
        let mut writes = Vec::with_capacity(blocks.len());
        for ((bp, bytes), (dva, whole)) in blocks.iter().zip(&places) {
            let data = whole.as_deref().unwrap_or(bytes);
            let psize = Psize(data.len() as u64);
            let at = Extent { vdev: dva.vdev, offset: dva.offset, psize, birth: bp.physical_birth() };
            writes.push(Write { at, data });
        }
        let since = Some(tree.mark());
        let _waited_for = PriorityGuard::begin(Priority::SyncWrite);
        let results = tree.write_many(&writes);
        for ((bp, _), result) in blocks.iter().zip(results) {
            result.map_err(|source| ZioError::Unwritable { bp: *bp, source })?;
        }
        Ok(Unflushed { vdevs: places.iter().map(|(dva, _)| dva.vdev).collect(), since })
    }

    /// Makes log blocks durable: flushes the devices of their vdevs and no others.
    ///
    /// # Errors
    /// [`ZioError::Flush`] if one of them may be lost, also by a flush of another thread.
    pub fn flush_log_blocks(&self, written: &Unflushed) -> Result<(), ZioError> {
        self.flush(written)
    }
}

/// If a block is spread over columns, its front is not the front of each column. The whole block must be
/// written, because a reader knows only its full size and would look for the columns elsewhere.
fn pad_for_stripes(tree: &VdevTree, dva: &Dva, psize: Psize, bytes: &[u8]) -> Option<Vec<u8>> {
    let is_striped = |node: &VdevNode| matches!(node.kind, VdevKind::Raidz | VdevKind::Draid);
    if bytes.len() as u64 == psize.0 || !tree.top(dva.vdev)?.walk().any(is_striped) {
        return None;
    }
    let mut whole = Vec::with_capacity(psize.0 as usize);
    whole.extend_from_slice(bytes);
    whole.resize(psize.0 as usize, 0);
    Some(whole)
}
