//! The records by which block pointers and dnodes are authenticated: little-endian, and without the fields that may
//! change when the same contents are stored elsewhere.

use crate::crypt::{CryptError, KEY_VERSION};
use format::dnode::{CORE_SIZE, FLAG_SPILL, SLOT_SIZE};
use format::endian::with_bits;
use format::{BlockPtr, Endian};
use std::ops::Range;

const BP: usize = format::blkptr::BLKPTR_SIZE;

/// Appends the record of a block pointer: 32 bytes, 24 in key objects of version 0.
pub(super) fn push_pointer(version: u64, bp: &BlockPtr, out: &mut Vec<u8>) {
    out.extend_from_slice(&pointer_prop(version, bp).to_le_bytes());
    out.extend_from_slice(&bp.mac_bytes());
    if version >= KEY_VERSION {
        out.extend_from_slice(&[0; 8]);
    }
}

fn pointer_prop(version: u64, bp: &BlockPtr) -> u64 {
    const DEDUP: (u32, u32) = (62, 1);
    const CHECKSUM: (u32, u32) = (40, 8);
    const PSIZE: (u32, u32) = (16, 16);
    const COMPRESSION: (u32, u32) = (32, 7);
    const BYTE_ORDER: (u32, u32) = (63, 1);
    if bp.is_hole() && version >= KEY_VERSION {
        return 0;
    }
    let cleared: &[(u32, u32)] = if version < KEY_VERSION {
        &[DEDUP, CHECKSUM, PSIZE]
    } else if bp.level().0 != 0 {
        &[DEDUP, CHECKSUM, PSIZE, COMPRESSION, BYTE_ORDER]
    } else {
        &[DEDUP, CHECKSUM]
    };
    cleared.iter().fold(bp.prop(), |prop, (first, count)| with_bits(prop, *first, *count, 0))
}

/// Ranges of the parts of a dnode, determined from its size fields only.
pub(super) struct DnodeParts {
    /// Size of all slots of the dnode in bytes.
    pub(super) len: usize,
    pointers: Range<usize>,
    /// The bonus area, up to its capacity.
    pub(super) bonus: Range<usize>,
    spill: Option<Range<usize>>,
}

impl DnodeParts {
    /// The parts of the dnode at the start of `bytes`, which may be longer. `None`: its size fields are not
    /// consistent with each other or with the length of `bytes`.
    pub(super) fn of(bytes: &[u8]) -> Option<DnodeParts> {
        let &[_, _, _, nblkptr, _, _, _, flags, _, _, _, _, extra_slots, ..] =
            bytes.first_chunk::<CORE_SIZE>()?;
        let len = SLOT_SIZE * (usize::from(extra_slots) + 1);
        bytes.get(..len)?;
        let bonus_start = CORE_SIZE + BP * usize::from(nblkptr);
        let spill_len = if flags & FLAG_SPILL != 0 { BP } else { 0 };
        let bonus_end = len.checked_sub(spill_len).filter(|end| *end >= bonus_start)?;
        Some(DnodeParts {
            len,
            pointers: CORE_SIZE..bonus_start,
            bonus: bonus_start..bonus_end,
            spill: (spill_len > 0).then_some(bonus_end..len),
        })
    }

    /// Appends the record of the dnode: its core, then its pointers, the spill pointer last.
    pub(super) fn push_record(&self, version: u64, bytes: &[u8], order: Endian, out: &mut Vec<u8>) {
        if let Some(core) = bytes.first_chunk::<CORE_SIZE>() {
            out.extend_from_slice(&masked_core(core, order));
        }
        for range in [Some(&self.pointers), self.spill.as_ref()].into_iter().flatten() {
            for bp in BlockPtr::decode_all(bytes.get(range.clone()).unwrap_or(&[]), order) {
                push_pointer(version, &bp, out);
            }
        }
    }
}

/// The core with only the spill flag, without the space used, in little-endian order.
fn masked_core(core: &[u8; CORE_SIZE], order: Endian) -> [u8; CORE_SIZE] {
    let mut out = *core;
    out[7] &= FLAG_SPILL;
    if order == Endian::Big {
        // Block size, bonus length, highest block.
        out[8..10].reverse();
        out[10..12].reverse();
        out[16..24].reverse();
    }
    out[24..32].fill(0);
    out
}

/// The error for a dnode at byte `at` of a block.
pub(super) fn bad_dnode(what: &'static str, at: usize) -> CryptError {
    CryptError::Structure { what, why: "sizes of a dnode contradict each other", at }
}
