//! Forged block pointers: one field has a value of the attacker's choice, and the checksum is off, so that
//! the data the pointer leads to passes verification.

use super::next;
use format::blkptr::BLKPTR_SIZE;
use format::dnode::{CORE_SIZE, SLOT_SIZE};
use format::{BlockPtr, ChecksumId, Level, ObjType};

/// Forges one of the pointers in a block. The positions of pointers follow from the type of the block.
pub fn in_block(bp: &BlockPtr, bytes: &mut [u8], state: &mut u64) {
    let is_pointer = |at: &usize| {
        let raw = bytes.get(*at..*at + BLKPTR_SIZE);
        raw.and_then(|raw| BlockPtr::decode(raw, bp.byte_order()).ok()).is_some_and(|bp| !bp.is_hole())
    };
    let all: Vec<usize> = match bp.obj_type() {
        ObjType::DNODE if bp.level() == Level(0) => (0..bytes.len())
            .step_by(SLOT_SIZE)
            .filter(|at| bytes[*at] != 0)
            .map(|at| at + CORE_SIZE)
            .collect(),
        ObjType::OBJSET if bp.level() == Level(0) => vec![CORE_SIZE, 512 + 16],
        // A gang header has three, before its trailer.
        _ => (0..bytes.len() / BLKPTR_SIZE).map(|i| i * BLKPTR_SIZE).collect(),
    };
    let all: Vec<usize> = all.into_iter().filter(is_pointer).collect();
    let Some(at) = all.get(next(state) as usize % all.len().max(1)) else { return };
    let raw = &mut bytes[*at..*at + BLKPTR_SIZE];
    let Ok(old) = BlockPtr::decode(raw, bp.byte_order()) else { return };
    raw.copy_from_slice(&forged(&old, bp, state).encode(bp.byte_order()));
}

/// Returns `old` with one field changed; `parent` is the pointer to the block that holds `old`.
fn forged(old: &BlockPtr, parent: &BlockPtr, state: &mut u64) -> BlockPtr {
    const SIZES: [u64; 8] = [0, 1, 7, 31, 255, 4095, 0x7fff, 0xffff];
    let off = old.with_prop_bits(40, 8, ChecksumId::Off.id().into());
    let pick = next(state);
    let size = SIZES[(pick >> 8) as usize % SIZES.len()];
    match pick % 16 {
        // Logical and physical size.
        0 => off.with_prop_bits(0, 16, size),
        1 => off.with_prop_bits(16, 16, size),
        2 => off.with_prop_bits(0, 16, size).with_prop_bits(16, 16, size).with_prop_bits(32, 7, 2),
        // Compression, checksum, type, level.
        3 => off.with_prop_bits(32, 7, (pick >> 8) % 20),
        4 => old.with_prop_bits(40, 8, (pick >> 8) % 20),
        5 => off.with_prop_bits(48, 8, pick >> 8 & 0xff),
        6 => off.with_prop_bits(56, 5, pick >> 8 & 0x1f),
        // The parent again: a cycle, if the reader believes the level.
        7 => BlockPtr::from_words(*parent.words()).with_prop_bits(56, 5, old.level().0.into()),
        // Addresses: elsewhere, on another vdev, as a gang, past the end.
        8 => off.with_word(1, (pick >> 8) % (1 << 18)),
        9 => off.with_word(0, off.words()[0] ^ ((pick >> 8 & 0xff) << 32)),
        10 => off.with_word(1, off.words()[1] | 1 << 63),
        11 => off.with_word(1, u64::MAX >> (pick >> 8 & 0x3f)),
        12 => off.with_word(0, off.words()[0] & !0xff_ffff | size),
        // Embedded data, another byte order, dedup, encryption.
        13 => off.with_prop_bits(39, 1, 1).with_prop_bits(25, 7, pick >> 8 & 0x7f).with_prop_bits(
            40,
            8,
            pick >> 16 & 3,
        ),
        14 => off.with_prop_bits(61, 3, off.prop() >> 61 ^ (1 + (pick >> 8) % 7)),
        // Birth transaction groups and fill count.
        _ => off.with_word(9 + (pick >> 8) as usize % 3, next(state) >> (pick >> 16 & 0x3f)),
    }
}
