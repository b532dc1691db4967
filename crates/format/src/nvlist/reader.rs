//! A bounds-checked cursor over packed bytes.

use super::WHAT;
use crate::{DecodeError, Endian};

/// The remaining input.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    pub(super) order: Endian,
}

macro_rules! number {
    ($name:ident, $ty:ty) => {
        pub(super) fn $name(&mut self) -> Result<$ty, DecodeError> {
            let raw = self.array()?;
            Ok(match self.order {
                Endian::Little => <$ty>::from_le_bytes(raw),
                Endian::Big => <$ty>::from_be_bytes(raw),
            })
        }
    };
}

impl<'a> Reader<'a> {
    pub(super) fn new(rest: &'a [u8], order: Endian) -> Reader<'a> {
        Reader { rest, order }
    }

    pub(super) fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// # Errors
    /// [`DecodeError::Short`] if fewer than `n` bytes are left.
    pub(super) fn take(&mut self, n: usize) -> Result<&'a [u8], DecodeError> {
        let (head, rest) = self.rest.split_at_checked(n).ok_or(DecodeError::Short {
            what: WHAT,
            needed: n,
            have: self.rest.len(),
        })?;
        self.rest = rest;
        Ok(head)
    }

    /// Number of bytes before the next NUL.
    pub(super) fn find_nul(&self) -> Option<usize> {
        self.rest.iter().position(|b| *b == 0)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        self.take(N)?.try_into().map_err(|_| DecodeError::invalid(WHAT, "short"))
    }

    number!(u16, u16);
    number!(u32, u32);
    number!(u64, u64);

    /// `count` elements of at least `unit` bytes, read one by one.
    ///
    /// # Errors
    /// [`DecodeError::Short`] if the elements cannot fit, before memory is allocated for them; the first error of
    /// `read`.
    pub(super) fn many<T>(
        &mut self,
        count: usize,
        unit: usize,
        mut read: impl FnMut(&mut Reader<'a>) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        DecodeError::need(WHAT, count.saturating_mul(unit), self.remaining())?;
        let mut out = Vec::with_capacity(count);
        for _ in 0..count {
            out.push(read(self)?);
        }
        Ok(out)
    }
}
