//! The space that a block is charged, with sums and differences of such charges (docs/on-disk/22-mos-dsl.md,
//! section 4; docs/on-disk/15-space.md, section 9).
//!
//! # What always holds
//! - Arithmetic here never wraps: sums and differences are clamped at 0 and at the largest number.

use crate::error::DslError;
use crate::mos;
use dmu::ObjSet;
use format::BlockPtr;
use format::names::directory;
use std::sync::Arc;
use zio::Zio;

/// Space of blocks, in bytes, counted three ways: on the vdevs, compressed, uncompressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Space {
    /// Bytes taken on the vdevs, deflated.
    pub used: u64,
    /// Bytes after compression, without parity and copies.
    pub compressed: u64,
    /// Logical bytes, before compression.
    pub uncompressed: u64,
}

impl Space {
    /// Sum of each count, clamped to 64 bits.
    pub fn plus(self, other: Space) -> Space {
        Space {
            used: self.used.saturating_add(other.used),
            compressed: self.compressed.saturating_add(other.compressed),
            uncompressed: self.uncompressed.saturating_add(other.uncompressed),
        }
    }

    /// Difference of each count, clamped at 0.
    pub(crate) fn minus(self, other: Space) -> Space {
        Space {
            used: self.used.saturating_sub(other.used),
            compressed: self.compressed.saturating_sub(other.compressed),
            uncompressed: self.uncompressed.saturating_sub(other.uncompressed),
        }
    }
}

/// A change of space, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Delta {
    /// Change of the bytes taken on the devices.
    pub used: i64,
    /// Bytes after compression, without parity and copies.
    pub compressed: i64,
    /// Logical bytes, before compression.
    pub uncompressed: i64,
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Difference `to - from`, clamped to 63 bits.
pub(crate) fn difference(to: u64, from: u64) -> i64 {
    if to >= from { signed(to - from) } else { -signed(from - to) }
}

impl From<Space> for Delta {
    fn from(space: Space) -> Delta {
        Delta {
            used: signed(space.used),
            compressed: signed(space.compressed),
            uncompressed: signed(space.uncompressed),
        }
    }
}

impl std::ops::Neg for Delta {
    type Output = Delta;

    fn neg(self) -> Delta {
        Delta { used: -self.used, compressed: -self.compressed, uncompressed: -self.uncompressed }
    }
}

impl std::ops::Add for Delta {
    type Output = Delta;

    fn add(self, other: Delta) -> Delta {
        Delta {
            used: self.used.saturating_add(other.used),
            compressed: self.compressed.saturating_add(other.compressed),
            uncompressed: self.uncompressed.saturating_add(other.uncompressed),
        }
    }
}

impl std::ops::Sub for Delta {
    type Output = Delta;

    fn sub(self, other: Delta) -> Delta {
        self + -other
    }
}

/// Whether the pool counts deflated bytes. All versions do, except the very first.
pub(crate) fn deflates(mos: &Arc<ObjSet>) -> Result<bool, DslError> {
    let zap = mos::zap(mos, directory::OBJECT)?;
    Ok(mos::lookup_number(&zap, directory::OBJECT, directory::DEFLATE)?.unwrap_or(0) != 0)
}

/// What a block is charged: bytes taken (deflated if the pool deflates), compressed, uncompressed.
pub fn of_pointer(zio: &Zio, deflate: bool, bp: &BlockPtr) -> Space {
    let taken = |dva: format::Dva| {
        let ratio = if deflate { zio.tree().deflate_ratio(dva.vdev) } else { 512 };
        (dva.asize.0 / 512).saturating_mul(ratio)
    };
    let used = bp.dvas().map(taken).fold(0_u64, u64::saturating_add);
    let metadata = bp.level().0 > 0 || bp.obj_type().is_metadata();
    let compressed = if bp.is_hole() || bp.is_embedded() { 0 } else { bp.psize().0 };
    let uncompressed = match (bp.is_hole(), metadata) {
        (true, _) => 0,
        (false, true) => compressed,
        (false, false) => bp.lsize().0,
    };
    Space { used, compressed, uncompressed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_have_a_sign() {
        assert_eq!((difference(3, 5), difference(5, 3), difference(u64::MAX, 0)), (-2, 2, i64::MAX));
    }
}
