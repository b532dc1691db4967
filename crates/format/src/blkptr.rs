//! Block pointers: 128 bytes that say where a block is, how it was stored and what its checksum is
//! (docs/on-disk/12-block-pointers.md).
//!
//! The sixteen words are kept as they were read, in host order, so that encoding restores every bit, known or not.
//! Accessors return the fields with their types.

use crate::endian::{Endian, bits, with_bits};
use crate::ids::{ChecksumId, CompressionId, ObjType};
use crate::units::{Checksum, Level, Lsize, MAX_BLOCK, Psize, SECTOR_SHIFT, Txg};
use crate::{DecodeError, Dva};
use std::fmt;

/// Bytes of a block pointer.
pub const BLKPTR_SIZE: usize = 128;
/// Maximum size of the payload of an embedded pointer in bytes.
pub const EMBEDDED_MAX: usize = 112;
/// Indexes of the words of an embedded pointer that contain payload, in order.
const EMBEDDED_WORDS: [usize; 14] = [0, 1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 13, 14, 15];

/// Kind of a block pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BpKind {
    /// A hole: no block is stored, and reading gives zeros.
    Hole,
    /// A block on the vdevs.
    Normal,
    /// The block is a gang header on the vdevs; its pieces hold the data.
    Gang,
    /// The data is in the pointer itself.
    Embedded,
    /// The data was left out of a redacted stream.
    Redacted,
}

/// Meaning of the crypt bit of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// The crypt bit is not set: the block is neither encrypted nor authenticated.
    None,
    /// Encrypted: salt, IV and MAC are in the pointer.
    Encrypted,
    /// In clear, with a MAC in the pointer (a hash of MACs above level 0).
    Authenticated,
}

/// Salt, IV and MAC of an encrypted block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CryptParams {
    /// Salt from which the key of this block is derived with HKDF.
    pub salt: [u8; 8],
    /// Initialization vector: the nonce of the AEAD cipher.
    pub iv: [u8; 12],
    /// Message authentication code: the tag of the AEAD cipher.
    pub mac: [u8; 16],
}

/// A block pointer as stored: 128 bytes that tell where a block is, how it is stored, and its checksum.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct BlockPtr {
    words: [u64; 16],
}

impl BlockPtr {
    /// A hole that was never written.
    pub const HOLE: BlockPtr = BlockPtr { words: [0; 16] };

    /// Makes a pointer from its words in host order.
    pub fn from_words(words: [u64; 16]) -> BlockPtr {
        BlockPtr { words }
    }

    /// The words in host order.
    pub fn words(&self) -> &[u64; 16] {
        &self.words
    }

    /// Reads the pointer at the start of `bytes`; `order` is that of the block that contains it.
    ///
    /// # Errors
    /// [`DecodeError::Short`] if fewer than 128 bytes are given.
    pub fn decode(bytes: &[u8], order: Endian) -> Result<BlockPtr, DecodeError> {
        DecodeError::need("block pointer", BLKPTR_SIZE, bytes.len())?;
        Ok(BlockPtr { words: order.words("block pointer", bytes, 0)? })
    }

    /// Reads all whole pointers of a block.
    pub fn decode_all(bytes: &[u8], order: Endian) -> impl Iterator<Item = BlockPtr> + '_ {
        let (chunks, _) = bytes.as_chunks::<BLKPTR_SIZE>();
        chunks.iter().map(move |raw| {
            let mut words = [0; 16];
            for (word, value) in words.iter_mut().zip(order.all_words(raw)) {
                *word = value;
            }
            BlockPtr { words }
        })
    }

    /// The 128 bytes in `order`.
    pub fn encode(&self, order: Endian) -> [u8; BLKPTR_SIZE] {
        let mut out = [0; BLKPTR_SIZE];
        for (chunk, word) in out.chunks_exact_mut(8).zip(self.words) {
            chunk.copy_from_slice(&order.put_u64(word));
        }
        out
    }

    /// The property word: sizes, compression, checksum, type, level and flags, as stored.
    pub fn prop(&self) -> u64 {
        self.words[6]
    }

    /// Kind of the pointer: a hole, embedded data, a redacted block, a gang block, or a normal block.
    pub fn kind(&self) -> BpKind {
        if self.is_embedded() {
            return if bits(self.prop(), 40, 8) == 2 { BpKind::Redacted } else { BpKind::Embedded };
        }
        match (self.words[0], self.words[1]) {
            (0, 0) => BpKind::Hole,
            (_, position) if bits(position, 63, 1) == 1 => BpKind::Gang,
            _ => BpKind::Normal,
        }
    }

    /// True if the pointer has no block and no data.
    pub fn is_hole(&self) -> bool {
        !self.is_embedded() && self.words[0] == 0 && self.words[1] == 0
    }

    /// True if the pointer contains its data or a redaction mark.
    pub fn is_embedded(&self) -> bool {
        bits(self.prop(), 39, 1) == 1
    }

    /// Logical size: bytes before compression.
    pub fn lsize(&self) -> Lsize {
        if self.is_embedded() {
            Lsize(bits(self.prop(), 0, 25) + 1)
        } else {
            Lsize((bits(self.prop(), 0, 16) + 1) << SECTOR_SHIFT)
        }
    }

    /// Size after compression; of an embedded pointer, of the payload.
    pub fn psize(&self) -> Psize {
        if self.is_embedded() {
            Psize(bits(self.prop(), 25, 7) + 1)
        } else {
            Psize((bits(self.prop(), 16, 16) + 1) << SECTOR_SHIFT)
        }
    }

    /// Number of the compression algorithm, as stored.
    pub fn compression_id(&self) -> u8 {
        bits(self.prop(), 32, 7) as u8
    }

    /// The compression algorithm of the block.
    ///
    /// # Errors
    /// [`DecodeError::Field`] if the number of the algorithm is not known.
    pub fn compression(&self) -> Result<CompressionId, DecodeError> {
        CompressionId::from_id(self.compression_id())
    }

    /// Number of the checksum algorithm, as stored.
    pub fn checksum_id(&self) -> u8 {
        bits(self.prop(), 40, 8) as u8
    }

    /// The checksum algorithm of the block.
    ///
    /// # Errors
    /// [`DecodeError::Field`] if the number of the algorithm is not known.
    pub fn checksum_kind(&self) -> Result<ChecksumId, DecodeError> {
        ChecksumId::from_id(self.checksum_id())
    }

    /// Type of the object that the block belongs to.
    pub fn obj_type(&self) -> ObjType {
        ObjType::from_id_unchecked(bits(self.prop(), 48, 8) as u8)
    }

    /// Level of the block in its tree; 0: data.
    pub fn level(&self) -> Level {
        Level(bits(self.prop(), 56, 5) as u8)
    }

    /// Whether the crypt bit is set: the block is encrypted, or authenticated by a MAC.
    pub fn uses_crypt(&self) -> bool {
        bits(self.prop(), 61, 1) == 1
    }

    /// True if the block is counted in a dedup table.
    pub fn is_dedup(&self) -> bool {
        bits(self.prop(), 62, 1) == 1
    }

    /// The byte order of the block's payload.
    pub fn byte_order(&self) -> Endian {
        if bits(self.prop(), 63, 1) == 1 { Endian::Little } else { Endian::Big }
    }

    /// Meaning of the crypt bit for this block.
    pub fn protection(&self) -> Protection {
        if !self.uses_crypt() || self.is_embedded() || self.is_hole() {
            Protection::None
        } else if self.level().0 == 0 && self.obj_type().is_encrypted() {
            Protection::Encrypted
        } else {
            Protection::Authenticated
        }
    }

    /// The copies, in the writer's order of preference. The third address of an encrypted block is left out,
    /// because it holds salt and IV.
    pub fn dvas(&self) -> impl Iterator<Item = Dva> + '_ {
        let copies = match (self.kind(), self.protection()) {
            (BpKind::Normal | BpKind::Gang, Protection::Encrypted) => 2,
            (BpKind::Normal | BpKind::Gang, _) => 3,
            _ => 0,
        };
        (0..copies).filter_map(|i| Dva::from_words(self.words[2 * i], self.words[2 * i + 1]))
    }

    /// The txg in which the block was written to its dataset, or cloned into it.
    pub fn logical_birth(&self) -> Txg {
        Txg(self.words[10])
    }

    /// The txg in which the block was written to its location.
    pub fn physical_birth(&self) -> Txg {
        if self.is_embedded() || self.words[9] == 0 { self.logical_birth() } else { Txg(self.words[9]) }
    }

    /// True if accounting uses the physical birth: set by `zfs rewrite -P` (2.4).
    pub(crate) fn is_rewritten(&self) -> bool {
        !self.is_embedded() && bits(self.words[7], 63, 1) == 1
    }

    /// The birth that decides whether a snapshot or deadlist contains the block.
    pub fn accounting_birth(&self) -> Txg {
        if self.is_rewritten() { self.physical_birth() } else { self.logical_birth() }
    }

    /// Number of non-hole blocks below (of allocated dnodes, for blocks of dnodes). For an embedded pointer: 1.
    pub fn fill(&self) -> u64 {
        match self.kind() {
            BpKind::Embedded | BpKind::Redacted => 1,
            BpKind::Hole => 0,
            _ if self.protection() == Protection::Encrypted => bits(self.words[11], 0, 32),
            _ => self.words[11],
        }
    }

    /// The four checksum words, as stored.
    pub fn checksum(&self) -> Checksum {
        let [.., a, b, c, d] = self.words;
        Checksum([a, b, c, d])
    }

    /// The payload of an embedded pointer, `psize` bytes.
    pub fn embedded_payload(&self) -> Option<Vec<u8>> {
        if self.kind() != BpKind::Embedded {
            return None;
        }
        let mut out = Vec::with_capacity(EMBEDDED_MAX);
        for i in EMBEDDED_WORDS {
            out.extend_from_slice(&self.words[i].to_le_bytes());
        }
        let len = self.psize().0 as usize;
        (len <= EMBEDDED_MAX).then(|| {
            out.truncate(len);
            out
        })
    }

    /// Salt, IV and MAC of an encrypted block.
    pub fn crypt_params(&self) -> Option<CryptParams> {
        if self.protection() != Protection::Encrypted {
            return None;
        }
        let order = self.byte_order();
        let mut iv = [0; 12];
        let (head, tail) = iv.split_at_mut(8);
        head.copy_from_slice(&order.put_u64(self.words[5]));
        tail.copy_from_slice(&order.put_u32(bits(self.words[11], 32, 32) as u32));
        Some(CryptParams { salt: order.put_u64(self.words[4]), iv, mac: self.mac_bytes() })
    }

    /// Checksum words 2 and 3 as bytes: the MAC of a protected block. The words have the byte order of the block
    /// that the pointer refers to (docs/on-disk/31-encryption.md, section 4).
    pub fn mac_bytes(&self) -> [u8; 16] {
        let order = self.byte_order();
        let mut mac = [0; 16];
        let (head, tail) = mac.split_at_mut(8);
        head.copy_from_slice(&order.put_u64(self.words[14]));
        tail.copy_from_slice(&order.put_u64(self.words[15]));
        mac
    }

    /// The pointer to a block of file data that a redacted stream has left out.
    pub fn redacted(obj_type: ObjType, lsize: Lsize, birth: Txg) -> BlockPtr {
        const LITTLE: u64 = 1 << 63;
        const EMBEDDED: u64 = 1 << 39;
        const REDACTED: u64 = 2 << 40;
        let prop = LITTLE
            | EMBEDDED
            | REDACTED
            | u64::from(obj_type.id()) << 48
            | lsize.0.wrapping_sub(1) & 0x1ff_ffff;
        BlockPtr::HOLE.with_word(6, prop).with_word(10, birth.0)
    }

    /// Checks what does not depend on the pool: ids, sizes, kinds (docs/on-disk/12-block-pointers.md, section 8).
    ///
    /// # Errors
    /// [`DecodeError::Field`] names the first field that no block can have; [`DecodeError::Invalid`] if
    /// no address is valid.
    pub fn validate(&self) -> Result<(), DecodeError> {
        let bad = |field, value: u64| Err(DecodeError::field("block pointer", field, value));
        if self.kind() == BpKind::Hole {
            return Ok(());
        }
        ObjType::from_id(self.obj_type().id())?;
        if self.lsize().0 > MAX_BLOCK {
            return bad("lsize", self.lsize().0);
        }
        if self.is_embedded() {
            if bits(self.prop(), 40, 8) > 2 {
                return bad("embedded type", bits(self.prop(), 40, 8));
            }
            if self.kind() == BpKind::Redacted {
                return Ok(());
            }
            self.stored_compression()?;
            return if self.psize().0 as usize > EMBEDDED_MAX {
                bad("psize", self.psize().0)
            } else {
                Ok(())
            };
        }
        self.stored_compression()?;
        if self.psize().0 > MAX_BLOCK {
            return bad("psize", self.psize().0);
        }
        self.checksum_kind()?;
        if self.dvas().next().is_none() {
            return Err(DecodeError::invalid("block pointer", "no valid address"));
        }
        Ok(())
    }

    fn stored_compression(&self) -> Result<CompressionId, DecodeError> {
        match self.compression()? {
            CompressionId::Inherit | CompressionId::On => {
                Err(DecodeError::field("block pointer", "compression", self.compression_id()))
            }
            id => Ok(id),
        }
    }

    /// A copy with the word at index `i` replaced; for builders and tests.
    pub fn with_word(mut self, i: usize, value: u64) -> BlockPtr {
        if let Some(word) = self.words.get_mut(i) {
            *word = value;
        }
        self
    }

    /// The pointer of a clone made in `txg`: its logical birth is `txg`, its location and physical birth are
    /// unchanged (docs/on-disk/32-dedup-cloning.md, section 3.3). A hole stays a hole.
    pub fn cloned_in(&self, txg: Txg) -> BlockPtr {
        if self.is_hole() {
            return *self;
        }
        let copy = self.with_word(10, txg.0);
        if self.is_embedded() {
            return copy;
        }
        // From now on the logical birth decides about snapshots.
        copy.with_word(9, self.physical_birth().0).with_word(7, with_bits(self.words[7], 63, 1, 0))
    }

    /// A copy with bits of the property word replaced.
    pub fn with_prop_bits(self, first: u32, count: u32, value: u64) -> BlockPtr {
        self.with_word(6, with_bits(self.prop(), first, count, value))
    }
}

impl fmt::Display for BlockPtr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[L{} {}]", self.level(), self.obj_type())?;
        match self.kind() {
            BpKind::Hole => write!(f, " hole birth={}", self.logical_birth()),
            BpKind::Embedded => write!(
                f,
                " embedded {:x}L/{:x}P birth={}",
                self.lsize().0,
                self.psize().0,
                self.logical_birth()
            ),
            BpKind::Redacted => write!(f, " redacted birth={}", self.logical_birth()),
            BpKind::Normal | BpKind::Gang => {
                for (i, dva) in self.dvas().enumerate() {
                    write!(f, " DVA[{i}]=<{dva}>")?;
                }
                write!(
                    f,
                    " {:x}L/{:x}P birth={}L/{}P fill={} cksum={}",
                    self.lsize().0,
                    self.psize().0,
                    self.logical_birth(),
                    self.physical_birth(),
                    self.fill(),
                    self.checksum()
                )
            }
        }
    }
}

impl fmt::Debug for BlockPtr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_pointer_of_a_real_pool() {
        let bp = BlockPtr::HOLE
            .with_word(0, 0x30)
            .with_word(1, 0x150960)
            .with_word(2, 0x1_0000_0030)
            .with_word(6, 0x800b_070f_0000_0007)
            .with_word(10, 0x8d)
            .with_word(11, 0x11b);
        assert_eq!(bp.kind(), BpKind::Normal);
        assert_eq!(bp.byte_order(), Endian::Little);
        assert_eq!((bp.lsize(), bp.psize()), (Lsize(4096), Psize(512)));
        assert_eq!(bp.checksum_kind(), Ok(ChecksumId::Fletcher4));
        assert_eq!(bp.compression(), Ok(CompressionId::Lz4));
        assert_eq!(bp.obj_type(), ObjType::OBJSET);
        let dvas: Vec<Dva> = bp.dvas().collect();
        assert_eq!(dvas.len(), 2);
        assert_eq!((dvas[0].offset.0, dvas[0].asize.0), (705_871_872, 24576));
        assert_eq!(dvas[1].vdev.0, 1);
        assert_eq!(bp.fill(), 283);
        assert_eq!(bp.validate(), Ok(()));
        assert_eq!(dvas[1].to_words(), [0x1_0000_0030, 0]);
    }

    #[test]
    fn embedded_example_of_the_spec() {
        let bp = BlockPtr::HOLE.with_word(6, 0x800f_008f_c600_01ff).with_word(0, 0x6000_0000);
        assert_eq!(bp.kind(), BpKind::Embedded);
        assert_eq!((bp.lsize(), bp.psize()), (Lsize(512), Psize(100)));
        let payload = bp.embedded_payload().unwrap();
        assert_eq!((payload.len(), &payload[..4]), (100, &[0, 0, 0, 0x60][..]));
    }

    #[test]
    fn the_mac_of_a_block_of_the_other_order_is_turned() {
        let little = BlockPtr::HOLE
            .with_word(0, 1)
            .with_prop_bits(61, 1, 1)
            .with_prop_bits(63, 1, 1)
            .with_prop_bits(48, 8, 19)
            .with_word(4, 0x0807_0605_0403_0201)
            .with_word(5, 0x0807_0605_0403_0201)
            .with_word(11, 0x0c0b_0a09_0000_0001)
            .with_word(14, 0x0807_0605_0403_0201)
            .with_word(15, 0x100f_0e0d_0c0b_0a09);
        let mut big = little.with_prop_bits(63, 1, 0).with_word(11, 0x090a_0b0c_0000_0001);
        for i in [4, 5, 14, 15] {
            big = big.with_word(i, little.words()[i].swap_bytes());
        }
        let params = little.crypt_params().unwrap();
        assert_eq!((params.salt, params.mac[15]), ([1, 2, 3, 4, 5, 6, 7, 8], 16));
        assert_eq!(params.iv, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        assert_eq!(big.crypt_params(), Some(params));
    }

    #[test]
    fn both_byte_orders_round_trip() {
        let words = std::array::from_fn(|i| 0x0123_4567_89ab_cdef_u64.rotate_left(i as u32 * 5));
        let bp = BlockPtr::from_words(words);
        for order in [Endian::Little, Endian::Big] {
            assert_eq!(BlockPtr::decode(&bp.encode(order), order), Ok(bp));
        }
    }
}
