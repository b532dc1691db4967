//! The form in which a block travels: its contents, its stored bytes, or the bytes in its pointer.

use super::SendError;
use super::plan::Plan;
use dmu::{BlockPlace, BlockRequest, DmuError};
use format::dnode::Dnode;
use format::stream::{HEADER_SIZE, Header, Record, Spill, Write, WriteEmbedded, feature, flag};
use format::swap::contents_to_little;
use format::units::OLD_MAX_BLOCK;
use format::{BlockId, BlockPtr, BpKind, ChecksumId, CompressionId, Endian, ObjType, ObjectId};
use std::sync::Arc;

/// The pattern in place of a block that cannot be read.
const UNREADABLE: u64 = 0x2f5_badd_b10c;
/// The checksum type of a record without a checksum.
const NO_CHECKSUM: u8 = ChecksumId::Off as u8;

/// Takes a record with its payload.
pub(super) type Put<'a> = &'a mut dyn FnMut(&Record, &[u8]) -> Result<(), SendError>;

/// A block that is to be sent.
pub(super) struct Block {
    /// How it is read.
    pub(super) request: BlockRequest,
    /// Its record: a write or a spill block.
    record: Record,
    /// It is larger than the blocks of the stream may be, and travels in parts.
    is_split: bool,
    /// Bytes of the object that the receiver has already; the parts of a block before them are left out.
    received: u64,
}

impl Block {
    /// A data block as it is sent, unless it travels in its pointer ([`embedded`]).
    pub(super) fn data(
        plan: &Plan,
        object: ObjectId,
        dnode: &Arc<Dnode>,
        blkid: BlockId,
        bp: &BlockPtr,
    ) -> Block {
        let stored = travels_stored(plan, dnode, bp);
        let lsize = bp.lsize().0;
        let is_split = lsize > OLD_MAX_BLOCK && !plan.has(feature::LARGE_BLOCKS) && !stored;
        let mut write = Write {
            object,
            kind: dnode.obj_type.id().into(),
            offset: blkid.0.saturating_mul(lsize),
            logical_size: lsize,
            to_guid: plan.guid,
            checksum_type: NO_CHECKSUM,
            flags: 0,
            compression: 0,
            key: [0; 5],
            compressed_size: 0,
            salt: [0; 8],
            iv: [0; 12],
            mac: [0; 16],
        };
        let has_checksum = !bp.is_embedded() && !is_split && (plan.is_raw() || !bp.uses_crypt());
        if let (true, Ok(kind)) = (has_checksum, bp.checksum_kind()) {
            write.checksum_type = kind.id();
            write.flags = if kind.is_dedup_strength() { flag::DEDUP } else { 0 };
            let [a, b, c, d] = bp.checksum().0;
            write.key = [a, b, c, d, key_prop(bp)];
        }
        if stored {
            write.compression = bp.compression_id();
            write.compressed_size = bp.psize().0;
        }
        if plan.is_raw() {
            let (salt, iv, mac) = crypt_fields(bp);
            (write.salt, write.iv, write.mac) = (salt, iv, mac);
            write.flags |= byteswap(bp);
        }
        let received = if object == plan.start.0 { plan.start.1 } else { 0 };
        let request = request(object, dnode, BlockPlace::Data(blkid), bp, stored);
        Block { request, record: Record::Write(write), is_split, received }
    }

    /// A spill block.
    pub(super) fn spill(plan: &Plan, object: ObjectId, dnode: &Arc<Dnode>, bp: &BlockPtr) -> Block {
        let stored = plan.is_raw();
        let mut spill = Spill {
            object,
            length: bp.lsize().0,
            to_guid: plan.guid,
            flags: if bp.logical_birth() <= plan.from { flag::UNMODIFIED } else { 0 },
            compression: 0,
            compressed_size: 0,
            salt: [0; 8],
            iv: [0; 12],
            mac: [0; 16],
            kind: 0,
        };
        if stored {
            (spill.salt, spill.iv, spill.mac) = crypt_fields(bp);
            spill.compression = bp.compression_id();
            spill.compressed_size = bp.psize().0;
            spill.flags |= byteswap(bp);
        }
        let request = request(object, dnode, BlockPlace::Spill, bp, stored);
        Block { request, record: Record::Spill(spill), is_split: false, received: 0 }
    }

    /// Bytes of memory that the block takes.
    pub(super) fn memory(&self) -> u64 {
        self.request.bp.lsize().0.max(self.request.bp.psize().0)
    }

    /// The parts of the block that travel in records of their own, as ranges of its bytes; `None`: it is not split.
    fn parts(&self) -> Option<impl Iterator<Item = (u64, u64)> + use<>> {
        let Record::Write(write) = &self.record else { return None };
        let (offset, size, received) = (write.offset, write.logical_size, self.received);
        let is_new = move |(_, end): &(u64, u64)| offset.saturating_add(*end) > received;
        let parts =
            (0..size).step_by(OLD_MAX_BLOCK as usize).map(move |at| (at, size.min(at + OLD_MAX_BLOCK)));
        self.is_split.then(|| parts.filter(is_new))
    }

    /// Bytes of its records and payloads.
    pub(super) fn stream_bytes(&self) -> u64 {
        let header = HEADER_SIZE as u64;
        match self.parts() {
            Some(parts) => parts.map(|(start, end)| header + end - start).sum(),
            None => header + self.payload_len(),
        }
    }

    fn payload_len(&self) -> u64 {
        Header { record: self.record.clone(), payload_len: 0, checksum: [0; 4] }.payload()
    }

    /// The error of reading it, with its place.
    pub(super) fn error(&self, cause: DmuError) -> SendError {
        let offset = if let Record::Write(write) = &self.record { write.offset } else { 0 };
        SendError::Block { object: self.request.object, offset, cause }
    }

    /// Turns it into a block whose contents are sent, and returns contents that stand for the unreadable ones; `None`
    /// if only its stored bytes can be sent.
    pub(super) fn fill(&mut self) -> Option<dmu::Block> {
        let Record::Write(write) = &mut self.record else { return None };
        if write.flags & flag::BYTE_SWAP != 0 || write.mac != [0; 16] {
            return None;
        }
        (write.compression, write.compressed_size) = (0, 0);
        self.request.stored = false;
        let bytes = UNREADABLE.to_le_bytes().repeat(write.logical_size as usize / size_of::<u64>());
        Some(dmu::Block::new(bytes, Endian::Little))
    }

    /// Passes its records to `put`, with the bytes that were read.
    pub(super) fn write(&self, read: &dmu::Block, put: Put<'_>) -> Result<(), SendError> {
        let turned;
        let mut bytes = read.bytes();
        if !self.request.stored && read.order() == Endian::Big {
            turned = contents_to_little(self.content_kind(), bytes.to_vec());
            bytes = &turned;
        }
        let short = || {
            let (objset, object) = (0, self.request.object);
            self.error(DmuError::Corrupt { objset, object, why: "a block of the wrong size" })
        };
        let (Some(parts), Record::Write(whole)) = (self.parts(), &self.record) else {
            if bytes.len() as u64 != self.payload_len() {
                return Err(short());
            }
            return put(&self.record, bytes);
        };
        for (start, end) in parts {
            let part = bytes.get(start as usize..end as usize).ok_or_else(short)?;
            let (offset, logical_size) = (whole.offset.saturating_add(start), end - start);
            put(&Record::Write(Write { offset, logical_size, ..whole.clone() }), part)?;
        }
        Ok(())
    }

    /// The type that tells how the contents are turned.
    fn content_kind(&self) -> ObjType {
        match self.request.place {
            BlockPlace::Data(_) => self.request.dnode.obj_type,
            BlockPlace::Spill => self.request.dnode.bonus_type,
        }
    }
}

fn request(
    object: ObjectId,
    dnode: &Arc<Dnode>,
    place: BlockPlace,
    bp: &BlockPtr,
    stored: bool,
) -> BlockRequest {
    BlockRequest { object, dnode: Arc::clone(dnode), place, bp: *bp, stored }
}

/// Whether the stored bytes of a data block are sent.
fn travels_stored(plan: &Plan, dnode: &Dnode, bp: &BlockPtr) -> bool {
    if plan.is_raw() {
        return true;
    }
    let is_small = bp.lsize().0 <= OLD_MAX_BLOCK || plan.has(feature::LARGE_BLOCKS);
    plan.sends_compressed()
        && is_small
        && !bp.is_embedded()
        && !dnode.obj_type.is_metadata()
        && bp.byte_order() == Endian::Little
        && is_known_to_receiver(plan, bp, false)
}

/// Whether every receiver of the stream can decompress the block. `Off` and `Empty` are no compression.
fn is_known_to_receiver(plan: &Plan, bp: &BlockPtr, accepts_none: bool) -> bool {
    match bp.compression() {
        Ok(CompressionId::Lz4) => plan.has(feature::LZ4),
        Ok(CompressionId::Zstd) => plan.has(feature::ZSTD),
        Ok(CompressionId::Off) => accepts_none,
        Ok(CompressionId::Empty | CompressionId::Inherit | CompressionId::On) | Err(_) => false,
        Ok(_) => true,
    }
}

/// The record and payload of a data block that travels in its pointer; `None`: it does not.
pub(super) fn embedded(
    plan: &Plan,
    object: ObjectId,
    blkid: BlockId,
    bp: &BlockPtr,
) -> Option<(Record, Vec<u8>)> {
    let lsize = bp.lsize().0;
    let is_small = lsize <= OLD_MAX_BLOCK || plan.has(feature::LARGE_BLOCKS);
    if bp.kind() != BpKind::Embedded || !plan.has(feature::EMBED_DATA) || !is_small {
        return None;
    }
    // A receiver does not turn what it has not decompressed.
    if !is_known_to_receiver(plan, bp, true) || bp.byte_order() == Endian::Big {
        return None;
    }
    let mut payload = bp.embedded_payload()?;
    let record = WriteEmbedded {
        object,
        offset: blkid.0.saturating_mul(lsize),
        length: lsize,
        to_guid: plan.guid,
        compression: bp.compression_id(),
        embedded_kind: 0,
        lsize: u32::try_from(lsize).ok()?,
        psize: payload.len() as u32,
    };
    payload.resize(payload.len().next_multiple_of(8), 0);
    Some((Record::WriteEmbedded(record), payload))
}

/// Sizes, compression and crypt bit of a pointer, as records hold them.
fn key_prop(bp: &BlockPtr) -> u64 {
    (bp.prop() & 0xffff_ffff) | u64::from(bp.compression_id()) << 32 | u64::from(bp.uses_crypt()) << 39
}

/// Salt, IV and MAC of a block of a raw stream; one that is only authenticated has a MAC alone.
fn crypt_fields(bp: &BlockPtr) -> ([u8; 8], [u8; 12], [u8; 16]) {
    match bp.crypt_params() {
        Some(params) => (params.salt, params.iv, params.mac),
        None => ([0; 8], [0; 12], bp.mac_bytes()),
    }
}

/// The flag of the byte order of a block in a raw stream.
pub(super) fn byteswap(bp: &BlockPtr) -> u8 {
    if bp.byte_order() == Endian::Big { flag::BYTE_SWAP } else { 0 }
}
