//! Reading blocks, one or many at once.

use crate::layer::Zio;
use crate::policy::ReadPolicy;
use crate::{Block, ZioError, gang};
use codec::checksum;
use codec::compress::decompress;
use codec::crypt::{DataKey, block as crypt_block};
use format::blkptr::Protection;
use format::{BlockPtr, BpKind, CompressionId, Dva, Endian, Level, ObjType};
use vdev::VdevTree;
use vdev::tree::{BlockRead, Extent, Fault, Read, VdevError};

/// Result of checking a block: its bytes, and the faults of its devices.
pub struct Checked {
    /// The stored bytes, `psize` of them, or the error.
    pub data: Result<Vec<u8>, ZioError>,
    /// Every device that failed or returned wrong bytes, also if the block could be read.
    pub faults: Vec<Fault>,
}

impl Zio {
    /// The contents of a block: verified, decrypted, decompressed. A hole reads as zeros.
    ///
    /// # Errors
    /// [`ZioError`]: the pointer is damaged, no copy or reconstruction is right, or the block cannot be
    /// decrypted or decompressed.
    pub fn read(&self, bp: &BlockPtr, how: &ReadPolicy<'_>) -> Result<Block, ZioError> {
        self.read_after(bp, how, None)
    }

    /// Reads the contents of blocks, results in the order of `bps`; each block has an error of its own. The
    /// first attempts at all of them run at the same time; a block whose first attempt fails is then read by
    /// itself. The batch takes the memory of all its blocks, so the caller bounds it.
    pub fn read_many(&self, bps: &[BlockPtr], how: &ReadPolicy<'_>) -> Vec<Result<Block, ZioError>> {
        let mut blocks = Vec::with_capacity(bps.len());
        self.read_each(bps, how, &mut |block| blocks.push(block));
        blocks
    }

    /// Like [`Zio::read_many`]; `sink` gets each result, in the order of `bps`, as soon as the block is
    /// decoded.
    pub fn read_each(
        &self,
        bps: &[BlockPtr],
        how: &ReadPolicy<'_>,
        sink: &mut dyn FnMut(Result<Block, ZioError>),
    ) {
        let attempts = self.attempt_many(bps, how);
        bps.iter().zip(attempts).for_each(|(bp, attempt)| sink(self.read_after(bp, how, attempt)));
    }

    /// Reads a block. `attempt`: the result of a batch for it.
    fn read_after(
        &self,
        bp: &BlockPtr,
        how: &ReadPolicy<'_>,
        attempt: Option<Attempt>,
    ) -> Result<Block, ZioError> {
        if bp.kind() == BpKind::Hole {
            return Ok(Block::new(vec![0; bp.lsize().0 as usize], Endian::Little));
        }
        let stored = self.stored_after(bp, how, attempt)?;
        self.open(bp, stored, how.key)
    }

    /// Reads the stored bytes of a block that is no hole. `attempt`: the result of a batch for it.
    fn stored_after(
        &self,
        bp: &BlockPtr,
        how: &ReadPolicy<'_>,
        attempt: Option<Attempt>,
    ) -> Result<Vec<u8>, ZioError> {
        bp.validate().map_err(|source| ZioError::BadPointer { bp: *bp, source })?;
        match bp.kind() {
            BpKind::Normal => self.normal(bp, how, &mut Vec::new(), attempt),
            _ => self.check(bp, how).data,
        }
    }

    /// Reads the first usable copy of each block of a batch that is neither a hole, embedded nor a gang; `None` for
    /// the others.
    fn attempt_many(&self, bps: &[BlockPtr], how: &ReadPolicy<'_>) -> Vec<Option<Attempt>> {
        if bps.len() < 2 || how.every_copy {
            return bps.iter().map(|_| None).collect();
        }
        let tree = self.tree();
        let extents: Vec<Option<Extent>> = bps.iter().map(|bp| self.first_copy(&tree, bp)).collect();
        let wanted = || bps.iter().zip(&extents).filter_map(|(bp, at)| Some((bp, (*at)?)));
        let verifies: Vec<_> = wanted()
            .map(|(bp, _)| move |data: &[u8]| checksum::verify(bp, data, self.salt()).unwrap_or(false))
            .collect();
        let reused: Vec<_> = wanted().map(|(_, at)| move || self.may_be_reused(&at)).collect();
        let reads: Vec<BlockRead<'_>> = wanted()
            .zip(verifies.iter().zip(&reused))
            .map(|((_, at), (verify, is_reused))| BlockRead { at, verify, is_reused })
            .collect();
        let mut done = tree.read_many(&reads).into_iter();
        extents.iter().map(|at| at.and_then(|at| Some(Attempt { at, read: done.next()? }))).collect()
    }

    /// The copy that a read of this block tries first; `None` if it cannot be read in a batch.
    fn first_copy(&self, tree: &VdevTree, bp: &BlockPtr) -> Option<Extent> {
        let is_usable = bp.validate().is_ok()
            && bp.kind() == BpKind::Normal
            && checksum::verify(bp, &[], self.salt()).is_ok();
        let dva = bp.dvas().find(|dva| tree.check(dva, bp.psize()).is_ok());
        dva.filter(|_| is_usable).map(|dva| extent_of(bp, &dva))
    }

    /// The stored bytes of a block (`psize` of them), verified but neither decrypted nor decompressed.
    pub fn read_physical(&self, bp: &BlockPtr, how: &ReadPolicy<'_>) -> Result<Vec<u8>, ZioError> {
        self.check(bp, how).data
    }

    /// The stored bytes of blocks, as those of [`Zio::read_physical`], results in the order of `bps`; each block has
    /// an error of its own. The first attempts at all of them run at the same time. The batch takes the memory of
    /// all its blocks, so the caller bounds it.
    pub fn read_physical_many(
        &self,
        bps: &[BlockPtr],
        how: &ReadPolicy<'_>,
    ) -> Vec<Result<Vec<u8>, ZioError>> {
        let attempts = self.attempt_many(bps, how);
        bps.iter().zip(attempts).map(|(bp, attempt)| self.stored_after(bp, how, attempt)).collect()
    }

    /// Decrypts or authenticates, then decompresses, the stored bytes of `bp`.
    pub fn open(&self, bp: &BlockPtr, stored: Vec<u8>, key: Option<&DataKey>) -> Result<Block, ZioError> {
        #[cfg(feature = "testing")]
        let stored = crate::mutators::mutate_stored(bp, crate::mutators::Stored::Block, stored);
        let stored = decrypt(bp, stored, key)?;
        let plain = decompress_block(bp, stored)?;
        if key.is_some() && bp.protection() == Protection::Authenticated && bp.level() > Level(0) {
            crypt_block::verify_indirect_mac(bp, &plain)
                .map_err(|source| ZioError::Crypt { bp: *bp, source })?;
        }
        #[cfg(feature = "testing")]
        let plain = crate::mutators::mutate(bp, plain);
        Ok(Block::new(plain, bp.byte_order()))
    }

    /// Reads and verifies a block, and returns the faults of all devices.
    pub fn check(&self, bp: &BlockPtr, how: &ReadPolicy<'_>) -> Checked {
        let mut faults = Vec::new();
        let data = self.physical(bp, how, &mut faults, 0);
        Checked { data, faults }
    }

    /// Whether a leaf in service may lack a copy of this block, as far as is known without reading it.
    pub fn is_lacking(&self, bp: &BlockPtr) -> bool {
        let (tree, birth) = (self.tree(), bp.physical_birth());
        if bp.kind() == BpKind::Gang {
            // The pieces may be on any vdev.
            return tree.tops().any(|(vdev, _)| tree.lacks(vdev, birth));
        }
        bp.dvas().any(|dva| tree.lacks_part(&extent_of(bp, &dva)))
    }

    /// The stored bytes of a block or of a piece of a gang block, `depth` gangs deep.
    fn physical(
        &self,
        bp: &BlockPtr,
        how: &ReadPolicy<'_>,
        faults: &mut Vec<Fault>,
        depth: usize,
    ) -> Result<Vec<u8>, ZioError> {
        bp.validate().map_err(|source| ZioError::BadPointer { bp: *bp, source })?;
        match bp.kind() {
            BpKind::Embedded => return Ok(bp.embedded_payload().unwrap_or_default()),
            BpKind::Redacted => return Err(ZioError::Redacted { bp: *bp }),
            BpKind::Hole => return Ok(vec![0; bp.psize().0 as usize]),
            BpKind::Gang => return self.gang(bp, how, faults, depth),
            BpKind::Normal => {}
        }
        self.normal(bp, how, faults, None)
    }

    /// The stored bytes of a gang block that is itself `depth` gangs deep.
    fn gang(
        &self,
        bp: &BlockPtr,
        how: &ReadPolicy<'_>,
        faults: &mut Vec<Fault>,
        depth: usize,
    ) -> Result<Vec<u8>, ZioError> {
        let pieces = gang::pieces(self, bp, how, faults, depth)?;
        let mut data = Vec::with_capacity(bp.psize().0 as usize);
        for piece in &pieces {
            data.extend_from_slice(&self.physical(piece, how, faults, depth + 1)?);
        }
        // Interior headers have a checksum too, but the format does not promise that it is updated.
        let is_whole = depth > 0
            || checksum::verify(bp, &data, self.salt())
                .map_err(|source| ZioError::Checksum { bp: *bp, source })?;
        let why = "the pieces are right, but the checksum of the whole is not";
        if is_whole { Ok(data) } else { Err(ZioError::Gang { bp: *bp, why }) }
    }

    /// The stored bytes of a block that is no gang. `attempt`: the result of a batch for it.
    fn normal(
        &self,
        bp: &BlockPtr,
        how: &ReadPolicy<'_>,
        faults: &mut Vec<Fault>,
        mut attempt: Option<Attempt>,
    ) -> Result<Vec<u8>, ZioError> {
        // An unusable checksum is the same for every copy, so it is checked before any copy is read.
        checksum::verify(bp, &[], self.salt()).map_err(|source| ZioError::Checksum { bp: *bp, source })?;
        loop {
            let before = faults.len();
            let error = match self.best_copy(bp, how, faults, attempt.take()) {
                Ok(data) => return Ok(data),
                Err(source) => ZioError::Unreadable { bp: *bp, faults: faults.clone(), source },
            };
            if !self.waits_to_read(&error, faults.get(before..).unwrap_or_default()) {
                return Err(error);
            }
        }
    }

    /// The stored bytes of a block that is no gang, from the first copy with right bytes.
    fn best_copy(
        &self,
        bp: &BlockPtr,
        how: &ReadPolicy<'_>,
        faults: &mut Vec<Fault>,
        mut attempt: Option<Attempt>,
    ) -> Result<Vec<u8>, VdevError> {
        let verify = |data: &[u8]| checksum::verify(bp, data, self.salt()).unwrap_or(false);
        let tree = self.tree();
        let mut best: Option<Vec<u8>> = None;
        let mut last = VdevError::NoCopies;
        let mut bad = Vec::new();
        for dva in bp.dvas() {
            if let Err(error) = tree.check(&dva, bp.psize()) {
                last = error;
                continue;
            }
            let at = extent_of(bp, &dva);
            let read = attempt.take_if(|attempt| attempt.at == at).map(|attempt| attempt.read);
            let Read { data, faults: more } =
                read.unwrap_or_else(|| self.read_extent(&tree, &at, how, &verify));
            faults.extend_from_slice(&more);
            bad.push((at, more));
            match data {
                Ok(data) => best = Some(data),
                Err(error) => last = error,
            }
            if best.is_some() && !how.every_copy {
                break;
            }
        }
        if let Some(data) = &best {
            self.heal(&tree, &bad, data, how);
        }
        best.ok_or(last)
    }
}

/// Result of a batch for a block: that of the first copy that could be read.
struct Attempt {
    at: Extent,
    read: Read,
}

/// The extent of one copy of a block.
pub(crate) fn extent_of(bp: &BlockPtr, dva: &Dva) -> Extent {
    Extent { vdev: dva.vdev, offset: dva.offset, psize: bp.psize(), birth: bp.physical_birth() }
}

/// Decrypts what is encrypted and authenticates what is not, on the stored bytes.
fn decrypt(bp: &BlockPtr, mut stored: Vec<u8>, key: Option<&DataKey>) -> Result<Vec<u8>, ZioError> {
    let is_dnode = bp.obj_type() == ObjType::DNODE;
    let Some(key) = key else {
        let readable = bp.protection() != Protection::Encrypted || is_dnode;
        return if readable { Ok(stored) } else { Err(ZioError::Locked { bp: *bp }) };
    };
    let opened = match bp.protection() {
        Protection::Encrypted if is_dnode => crypt_block::decrypt_dnode_block(key, bp, &mut stored),
        Protection::Encrypted => crypt_block::decrypt_block(key, bp, &mut stored),
        // Objset MACs are inside the block, indirect MACs cover the decompressed block.
        Protection::Authenticated if bp.level() == Level(0) && bp.obj_type() != ObjType::OBJSET => {
            crypt_block::verify_auth(key, bp, &stored)
        }
        Protection::Authenticated | Protection::None => Ok(()),
    };
    opened.map_err(|source| ZioError::Crypt { bp: *bp, source })?;
    Ok(stored)
}

fn decompress_block(bp: &BlockPtr, stored: Vec<u8>) -> Result<Vec<u8>, ZioError> {
    let id = bp.compression().map_err(|source| ZioError::BadPointer { bp: *bp, source })?;
    let lsize = bp.lsize().0 as usize;
    if matches!(id, CompressionId::Off | CompressionId::Empty) && stored.len() == lsize {
        return Ok(stored);
    }
    let mut plain = vec![0; lsize];
    decompress(id, &stored, &mut plain).map_err(|source| ZioError::Decompress { bp: *bp, source })?;
    Ok(plain)
}
