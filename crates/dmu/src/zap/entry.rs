//! Entries of ZAPs: key, value, and place in the order of the cursor.

use format::DecodeError;
use format::zap::{FLAG_HASH64, FatHeader, Leaf, LeafEntry, MicroEntry, hash_bits};

/// The cursor after the last entry.
pub const CURSOR_END: u64 = u64::MAX;

/// Key of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ZapKey {
    /// A name, without NUL.
    Name(Vec<u8>),
    /// Words of 64 bits.
    Words(Vec<u64>),
}

/// An entry of a ZAP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZapEntry {
    /// Key of the entry.
    pub key: ZapKey,
    /// Bytes of each integer: 1, 2, 4 or 8.
    pub int_size: u8,
    /// The integers, big-endian, packed.
    pub value: Vec<u8>,
    /// The hash of its key, significant bits at the top.
    pub hash: u64,
    /// Collision differentiator: distinguishes entries of equal hash.
    pub cd: u32,
    /// Position after the entry, for [`super::Zap::entries_from`].
    pub cursor: u64,
}

impl ZapEntry {
    /// The name; empty if the key consists of words.
    pub fn name(&self) -> &[u8] {
        match &self.key {
            ZapKey::Name(name) => name,
            ZapKey::Words(_) => &[],
        }
    }

    /// The first integer; `None`: the value has none.
    pub fn u64(&self) -> Option<u64> {
        let raw = self.value.get(..usize::from(self.int_size))?;
        Some(raw.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    /// All integers, widened to 64 bits.
    pub fn u64s(&self) -> Vec<u64> {
        let widen = |raw: &[u8]| raw.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
        self.value.chunks_exact(usize::from(self.int_size).max(1)).map(widen).collect()
    }

    /// The value as a string: integers of one byte, up to the first NUL.
    pub fn string(&self) -> Option<Vec<u8>> {
        (self.int_size == 1).then(|| self.value.iter().copied().take_while(|byte| *byte != 0).collect())
    }
}

/// Longest name, with its NUL, that is compared in a normalized form. Longer ones are never created, and each
/// would cost time.
pub(super) const NAME_MAX: usize = 1025;

/// An entry of a micro ZAP, with this hash.
pub(super) fn micro_entry(entry: &MicroEntry<'_>, hash: u64) -> ZapEntry {
    ZapEntry {
        key: ZapKey::Name(entry.name.to_vec()),
        int_size: 8,
        value: entry.value.to_be_bytes().to_vec(),
        hash,
        cd: entry.cd,
        cursor: cursor_after(0, hash, entry.cd),
    }
}

/// An entry of a leaf with key and value.
pub(super) fn leaf_entry(
    header: &FatHeader,
    leaf: &Leaf<'_>,
    entry: &LeafEntry,
) -> Result<ZapEntry, DecodeError> {
    let key = if header.has_word_keys() {
        ZapKey::Words(leaf.words(entry)?)
    } else {
        ZapKey::Name(leaf.name(entry)?)
    };
    Ok(ZapEntry {
        key,
        int_size: entry.int_size,
        value: leaf.value(entry)?,
        hash: entry.hash,
        cd: entry.cd,
        cursor: cursor_after(header.flags, entry.hash, entry.cd),
    })
}

/// Largest differentiator of a ZAP with these flags.
pub(super) fn max_cd(flags: u64) -> u32 {
    if flags & FLAG_HASH64 != 0 { u32::from(u16::MAX) } else { u32::MAX }
}

/// The serialized position after the entry (hash, cd).
pub(super) fn cursor_after(flags: u64, hash: u64, cd: u32) -> u64 {
    let bits = hash_bits(flags);
    let high = hash >> (64 - bits);
    if cd < max_cd(flags) {
        return high | u64::from(cd + 1) << bits;
    }
    // After the largest differentiator comes the next hash.
    match (high + 1) >> bits {
        0 => high + 1,
        _ => CURSOR_END,
    }
}

/// Inverse of [`cursor_after`]; `None` at the end.
pub(super) fn cursor_position(flags: u64, cursor: u64) -> Option<(u64, u32)> {
    let bits = hash_bits(flags);
    let cd = u32::try_from(cursor >> bits).ok().filter(|cd| *cd < max_cd(flags)).unwrap_or(0);
    (cursor != CURSOR_END).then_some((cursor << (64 - bits), cd))
}
