//! Byte order of a block, and bounds-checked reading of integers.
//!
//! A block's order is bit 63 of the property word of the pointer that leads to it
//! (docs/on-disk/10-overview.md, section 3).

use crate::DecodeError;

/// Byte order of a block's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Endian {
    /// Least significant byte first; Cenote writes this order.
    #[default]
    Little,
    /// Most significant byte first: pools created on SPARC and similar machines.
    Big,
}

macro_rules! reader {
    ($(#[$doc:meta])* $name:ident, $ty:ty, $n:literal) => {
        $(#[$doc])*
        #[inline]
        pub fn $name(self, bytes: &[u8], at: usize) -> Option<$ty> {
            let raw: [u8; $n] = bytes.get(at..at.checked_add($n)?)?.try_into().ok()?;
            Some(match self {
                Endian::Little => <$ty>::from_le_bytes(raw),
                Endian::Big => <$ty>::from_be_bytes(raw),
            })
        }
    };
}

impl Endian {
    /// The opposite of this byte order.
    pub fn flip(self) -> Endian {
        match self {
            Endian::Little => Endian::Big,
            Endian::Big => Endian::Little,
        }
    }

    reader!(/// The `u16` at byte `at`, `None` past the end.
        get_u16, u16, 2);
    reader!(/// The `u32` at byte `at`, `None` past the end.
        get_u32, u32, 4);
    reader!(/// The `u64` at byte `at`, `None` past the end.
        get_u64, u64, 8);

    /// The `u64` at byte `at`, or an error that names the structure.
    ///
    /// # Errors
    /// [`DecodeError::Short`] if `bytes` ends before the number does.
    pub fn u64(self, what: &'static str, bytes: &[u8], at: usize) -> Result<u64, DecodeError> {
        self.get_u64(bytes, at).ok_or(DecodeError::Short {
            what,
            needed: at.saturating_add(8),
            have: bytes.len(),
        })
    }

    /// The `u32` at byte `at`, or an error that names the structure.
    ///
    /// # Errors
    /// [`DecodeError::Short`] if `bytes` ends before the number does.
    pub(crate) fn u32(self, what: &'static str, bytes: &[u8], at: usize) -> Result<u32, DecodeError> {
        self.get_u32(bytes, at).ok_or(DecodeError::Short {
            what,
            needed: at.saturating_add(4),
            have: bytes.len(),
        })
    }

    /// The `u16` at byte `at`, or an error that names the structure.
    ///
    /// # Errors
    /// [`DecodeError::Short`] if `bytes` ends before the number does.
    pub(crate) fn u16(self, what: &'static str, bytes: &[u8], at: usize) -> Result<u16, DecodeError> {
        self.get_u16(bytes, at).ok_or(DecodeError::Short {
            what,
            needed: at.saturating_add(2),
            have: bytes.len(),
        })
    }

    /// `N` consecutive `u64` words from byte `at` on.
    ///
    /// # Errors
    /// [`DecodeError::Short`] if `bytes` ends before the last word does.
    pub fn words<const N: usize>(
        self,
        what: &'static str,
        bytes: &[u8],
        at: usize,
    ) -> Result<[u64; N], DecodeError> {
        let mut words = [0; N];
        for (i, word) in words.iter_mut().enumerate() {
            *word = self.u64(what, bytes, at.saturating_add(8 * i))?;
        }
        Ok(words)
    }

    /// All whole `u64` words of `bytes`; a partial word at the end is ignored.
    pub fn all_words(self, bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
        let (words, _) = bytes.as_chunks::<8>();
        words.iter().map(move |raw| match self {
            Endian::Little => u64::from_le_bytes(*raw),
            Endian::Big => u64::from_be_bytes(*raw),
        })
    }

    /// The bytes of a `u64` in this order.
    pub fn put_u64(self, value: u64) -> [u8; 8] {
        match self {
            Endian::Little => value.to_le_bytes(),
            Endian::Big => value.to_be_bytes(),
        }
    }

    /// The bytes of a `u32` in this order.
    pub fn put_u32(self, value: u32) -> [u8; 4] {
        match self {
            Endian::Little => value.to_le_bytes(),
            Endian::Big => value.to_be_bytes(),
        }
    }

    /// The bytes of a `u16` in this order.
    pub fn put_u16(self, value: u16) -> [u8; 2] {
        match self {
            Endian::Little => value.to_le_bytes(),
            Endian::Big => value.to_be_bytes(),
        }
    }
}

/// Bits `first..first + count` of `word`, shifted down.
#[inline]
pub fn bits(word: u64, first: u32, count: u32) -> u64 {
    (word >> first) & if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

/// `word` with bits `first..first + count` replaced by `value`.
#[inline]
pub fn with_bits(word: u64, first: u32, count: u32, value: u64) -> u64 {
    let mask = if count >= 64 { u64::MAX } else { (1 << count) - 1 };
    (word & !(mask << first)) | ((value & mask) << first)
}
