//! Construction of block pointers (docs/on-disk/12-block-pointers.md, sections 1 to 4 and 7).

use crate::policy::{Seal, WritePolicy};
use codec::checksum::shorten;
use codec::crypt::{KEY_VERSION, block::indirect_mac};
use format::blkptr::CryptParams;
use format::units::SECTOR_SHIFT;
use format::{BlockPtr, Checksum, ChecksumId, CompressionId, Dva, Endian, Level, ObjType, Txg};

/// The bit of little-endian byte order.
const LITTLE: u64 = 1 << 63;
/// The bit of an embedded pointer.
const EMBEDDED: u64 = 1 << 39;
/// The crypt bit.
const CRYPT: u64 = 1 << 61;

/// Type and level in the property word.
fn kind(policy: &WritePolicy) -> u64 {
    u64::from(policy.obj_type.id()) << 48 | u64::from(policy.tree_level.0) << 56
}

/// A size in the units of the property word.
fn sectors(bytes: u64) -> u64 {
    (bytes >> SECTOR_SHIFT).wrapping_sub(1) & 0xffff
}

/// A pointer to a block, without addresses yet.
pub(crate) fn normal(
    policy: &WritePolicy,
    lsize: u64,
    psize: u64,
    compression: CompressionId,
    checksum: Checksum,
    fill: u64,
    birth: Txg,
) -> BlockPtr {
    let ids = u64::from(compression.id()) << 32 | u64::from(policy.checksum.id()) << 40;
    let prop = LITTLE | kind(policy) | ids | sectors(lsize) | sectors(psize) << 16;
    let [a, b, c, d] = checksum.0;
    BlockPtr::from_words([0, 0, 0, 0, 0, 0, prop, 0, 0, 0, birth.0, fill, a, b, c, d])
}

/// A pointer to a piece of a gang block, without addresses yet.
pub(crate) fn piece(id: ChecksumId, size: u64, checksum: Checksum, birth: Txg) -> BlockPtr {
    let ids = u64::from(CompressionId::Off.id()) << 32 | u64::from(id.id()) << 40;
    let prop = LITTLE | ids | sectors(size) | sectors(size) << 16;
    let [a, b, c, d] = checksum.0;
    BlockPtr::from_words([0, 0, 0, 0, 0, 0, prop, 0, 0, 0, birth.0, 0, a, b, c, d])
}

/// A pointer to a block of the intent log; `identity` is its place in the chain.
pub(crate) fn log_block(size: u64, identity: [u64; 4], birth: Txg) -> BlockPtr {
    let ids = u64::from(CompressionId::Off.id()) << 32 | u64::from(ChecksumId::Zilog2.id()) << 40;
    let kind = u64::from(ObjType::INTENT_LOG.id()) << 48;
    let prop = LITTLE | kind | ids | sectors(size) | sectors(size) << 16;
    let [a, b, c, d] = identity;
    BlockPtr::from_words([0, 0, 0, 0, 0, 0, prop, 0, 0, 0, birth.0, 0, a, b, c, d])
}

/// A pointer to a block of an encrypted dataset: `bp` with the protection of its block, whose bytes are `data`
/// (docs/on-disk/31-encryption.md, section 4).
pub(crate) fn sealed(bp: &BlockPtr, seal: &Seal, id: ChecksumId, data: &[u8]) -> BlockPtr {
    let bp = bp.with_word(6, bp.prop() | CRYPT);
    match seal {
        Seal::Root => bp,
        Seal::Indirect => with_mac(&bp, id, &indirect_mac(KEY_VERSION, data, Endian::Little)),
        Seal::Raw(form) => {
            let bp = with_mac(&bp, id, &form.params.mac);
            if holds_iv(&bp) { with_iv(&bp, &form.params) } else { bp }
        }
    }
}

/// The pointer with a shortened checksum, and a MAC after it.
fn with_mac(bp: &BlockPtr, id: ChecksumId, mac: &[u8; 16]) -> BlockPtr {
    let [a, b] = shorten(id, bp.checksum());
    let word = |at| Endian::Little.get_u64(mac, at).unwrap_or(0);
    bp.with_word(12, a).with_word(13, b).with_word(14, word(0)).with_word(15, word(8))
}

/// The pointer with salt and IV. The fill count keeps 32 bits.
fn with_iv(bp: &BlockPtr, params: &CryptParams) -> BlockPtr {
    let order = Endian::Little;
    let word = |bytes: &[u8]| order.get_u64(bytes, 0).unwrap_or(0);
    let tail = u64::from(order.get_u32(&params.iv, 8).unwrap_or(0));
    let fill = bp.words()[11] & u64::from(u32::MAX) | tail << 32;
    bp.with_word(4, word(&params.salt)).with_word(5, word(&params.iv)).with_word(11, fill)
}

/// Whether the third address of a pointer holds salt and IV. It may have no address yet.
fn holds_iv(bp: &BlockPtr) -> bool {
    bp.uses_crypt() && bp.level() == Level(0) && bp.obj_type().is_encrypted()
}

/// Words of a pointer that are addresses.
fn address_words(bp: &BlockPtr) -> usize {
    if holds_iv(bp) { 4 } else { 6 }
}

/// A pointer to a hole, with its birth.
pub(crate) fn hole(policy: &WritePolicy, lsize: u64, birth: Txg) -> BlockPtr {
    BlockPtr::HOLE.with_word(6, kind(policy) | sectors(lsize)).with_word(10, birth.0)
}

/// A pointer with the compressed block embedded. `payload` is at most 112 bytes.
pub(crate) fn embedded(
    policy: &WritePolicy,
    compression: CompressionId,
    lsize: u64,
    payload: &[u8],
    birth: Txg,
) -> BlockPtr {
    const PAYLOAD_WORDS: [usize; 14] = [0, 1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 13, 14, 15];
    let sizes = (lsize - 1) & 0x1ff_ffff | (payload.len() as u64).wrapping_sub(1) << 25;
    let compression = u64::from(compression.id()) << 32;
    let mut words = [0; 16];
    words[6] = LITTLE | kind(policy) | EMBEDDED | compression | sizes;
    words[10] = birth.0;
    for (word, bytes) in PAYLOAD_WORDS.into_iter().zip(payload.chunks(8)) {
        let mut raw = [0; 8];
        raw[..bytes.len()].copy_from_slice(bytes);
        words[word] = u64::from_le_bytes(raw);
    }
    BlockPtr::from_words(words)
}

/// The pointer with these addresses and no others.
pub(crate) fn with_dvas(bp: &BlockPtr, dvas: &[Dva], gang: bool) -> BlockPtr {
    let most = address_words(bp);
    assert!((1..=most / 2).contains(&dvas.len()), "{} addresses of a block", dvas.len());
    let mut words = *bp.words();
    words[..most].fill(0);
    for (pair, dva) in words.chunks_exact_mut(2).zip(dvas) {
        pair.copy_from_slice(&Dva { gang, ..*dva }.to_words());
    }
    BlockPtr::from_words(words)
}

/// The pointer with the addresses of another.
pub(crate) fn with_places_of(bp: &BlockPtr, other: &BlockPtr) -> BlockPtr {
    let (mut words, most) = (*bp.words(), address_words(bp));
    words[..most].copy_from_slice(&other.words()[..most]);
    BlockPtr::from_words(words)
}
