//! Blocks changed as an attacker would change them: what is in them is wrong, and every checksum is right.
//!
//! # What always holds
//! - The same seed changes the same blocks of a pool in the same way.
//! - A seed aims at blocks of one kind mostly, and changes few of them, so that most pools can be read far. Over a
//!   number of seeds every kind of block is changed.

pub mod lists;
pub mod pointers;

use crate::image::Image;
use crate::walk::{Edit, Place, Walk};
use crate::{Result, labels};
use format::blkptr::Protection;
use format::dnode::{CORE_SIZE, SLOT_SIZE};
use format::{BlockPtr, Endian, Level, ObjType};

/// A kind of place to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aim {
    /// Name-value objects of the pool and of file systems.
    Zaps,
    /// The first 64 bytes of dnodes: type, sizes, levels, counts.
    Dnodes,
    /// Bonus areas of dnodes: directories, datasets, bpobjs, space maps, files.
    Bonuses,
    /// Block pointers in dnodes.
    Pointers,
    /// Indirect blocks.
    Indirect,
    /// Roots of datasets.
    ObjectSets,
    /// Packed lists.
    Lists,
    /// Space maps.
    SpaceMaps,
    /// Bpobjs, their lists of others, deadlists.
    FreedBlocks,
    /// Spill blocks with attributes.
    Attributes,
    /// Arrays of numbers: mappings of removed vdevs, logs of dedup tables, counts of clones.
    Words,
    /// The history.
    History,
    /// Intent logs.
    Logs,
    /// Fields of pointers, one at a time and with the checksum off: whatever they lead to is taken for right.
    Forged,
    /// Values of packed lists, each list whole: configurations of vdevs, FUIDs, spares.
    Configs,
    /// Compressed bytes, before they are decompressed.
    Streams,
    /// Encrypted and authenticated bytes.
    Ciphers,
    /// Headers of gang blocks.
    Gangs,
    /// Any of these, and what files contain.
    Anything,
}

impl Aim {
    /// Every kind.
    pub const ALL: [Aim; 19] = [
        Aim::Zaps,
        Aim::Dnodes,
        Aim::Bonuses,
        Aim::Pointers,
        Aim::Indirect,
        Aim::ObjectSets,
        Aim::Lists,
        Aim::SpaceMaps,
        Aim::FreedBlocks,
        Aim::Attributes,
        Aim::Words,
        Aim::History,
        Aim::Logs,
        Aim::Forged,
        Aim::Configs,
        Aim::Streams,
        Aim::Ciphers,
        Aim::Gangs,
        Aim::Anything,
    ];

    /// Of how many blocks of that kind one is changed: what a pool has few of, and does not need to
    /// open, more often than what it needs.
    fn rates(self) -> [u64; 3] {
        match self {
            Aim::Anything => [60, 20, 8],
            Aim::Streams => [40, 15, 5],
            Aim::Zaps | Aim::Dnodes | Aim::Forged => [24, 10, 4],
            Aim::Bonuses | Aim::Pointers => [12, 5, 2],
            Aim::Indirect | Aim::ObjectSets | Aim::Lists | Aim::Ciphers => [6, 3, 2],
            _ => [3, 2, 1],
        }
    }
}

/// The next number of a repeatable series.
pub fn next(state: &mut u64) -> u64 {
    // SplitMix64: every seed gives a different, repeatable series.
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// What a seed aims at, and how often it hits: every nineteen seeds in a row have every aim.
pub fn plan(seed: u64) -> (Aim, u64) {
    let count = Aim::ALL.len() as u64;
    let aim = Aim::ALL[(seed % count) as usize];
    (aim, aim.rates()[(seed / count % 3) as usize])
}

/// Whether a seed changes a block, and the state with which it does.
pub fn chosen(seed: u64, one_in: u64, bp: &BlockPtr) -> Option<u64> {
    let mut state = seed;
    for i in [0, 1, 10, 11] {
        state = next(&mut state) ^ bp.words()[i];
    }
    next(&mut state).is_multiple_of(one_in).then_some(state)
}

/// What was done to a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Blocks whose contents or stored bytes were changed.
    pub changed: u64,
    /// Blocks that were written: those, and all that lead to them.
    pub written: u64,
    /// Blocks that were left as they are since they would not have fit.
    pub unfit: u64,
}

/// Changes blocks of a pool, and seals everything again.
///
/// # Errors
/// If the pool is damaged already, or a device fails.
pub fn mutate(image: &Image, seed: u64, (aim, one_in): (Aim, u64)) -> Result<Outcome> {
    let mut edit = Spoil { seed, aim, one_in, changed: 0 };
    let mut walk = Walk::new(image, &mut edit);
    let root = walk.run()?;
    let (written, unfit) = (walk.written, walk.unfit);
    labels::reseal(image, &root, image.pool.uberblock().order, false)?;
    Ok(Outcome { changed: edit.changed, written, unfit })
}

/// The edit of [`mutate`].
struct Spoil {
    seed: u64,
    aim: Aim,
    one_in: u64,
    changed: u64,
}

impl Edit for Spoil {
    fn edit(&mut self, _: &Place, bp: &BlockPtr, contents: &mut Vec<u8>) -> Option<Endian> {
        let is_meant = self.aim == Aim::Anything || kinds(bp).contains(&self.aim);
        let mut state = chosen(self.seed, self.one_in, bp).filter(|_| is_meant)?;
        let before = contents.clone();
        change_as(self.aim, bp, contents, &mut state);
        let is_changed = *contents != before;
        self.changed += u64::from(is_changed);
        is_changed.then_some(bp.byte_order())
    }

    fn wants(&self, _: &Place, bp: &BlockPtr) -> bool {
        self.aim == Aim::Anything || kinds(bp).contains(&self.aim)
    }

    fn stored(&mut self, bp: &BlockPtr, bytes: &mut Vec<u8>) -> bool {
        let Some(mut state) = chosen(self.seed, self.one_in, bp) else { return false };
        match self.aim {
            Aim::Streams => change_stream(bytes, &mut state),
            aim => change(aim, bytes, &mut state),
        }
        self.changed += 1;
        true
    }

    fn wants_stored(&self, bp: &BlockPtr) -> bool {
        is_stored_aim(self.aim, bp) && chosen(self.seed, self.one_in, bp).is_some()
    }
}

/// The stored bytes of this block are meant, not its contents.
pub fn is_stored_aim(aim: Aim, bp: &BlockPtr) -> bool {
    match aim {
        Aim::Streams => !matches!(bp.compression_id(), 0 | 2),
        Aim::Ciphers => bp.protection() != Protection::None,
        _ => false,
    }
}

/// Changes the contents of a block in the way of an aim.
pub fn change_as(aim: Aim, bp: &BlockPtr, bytes: &mut [u8], state: &mut u64) {
    match aim {
        Aim::Forged => pointers::in_block(bp, bytes, state),
        Aim::Configs => lists::change_packed(bytes, state),
        _ => change(aim, bytes, state),
    }
}

/// Changes a compressed stream: where its lengths are half of the time.
pub fn change_stream(bytes: &mut [u8], state: &mut u64) {
    for _ in 0..=next(state) % 3 {
        let len = if next(state).is_multiple_of(2) { bytes.len().min(16) } else { bytes.len() };
        hurt(&mut bytes[..len], state);
    }
}

/// What a block is for.
pub fn kinds(bp: &BlockPtr) -> &'static [Aim] {
    if bp.level() > Level(0) {
        return &[Aim::Indirect, Aim::Forged];
    }
    match bp.obj_type() {
        ObjType::DNODE => &[Aim::Dnodes, Aim::Bonuses, Aim::Pointers, Aim::Forged],
        ObjType::OBJSET => &[Aim::ObjectSets, Aim::Forged],
        ObjType::PACKED_NVLIST | ObjType::FUID => &[Aim::Lists, Aim::Configs],
        ObjType::SPACE_MAP => &[Aim::SpaceMaps],
        ObjType::BPOBJ | ObjType::BPOBJ_SUBOBJ => &[Aim::FreedBlocks],
        ObjType::SA | ObjType::ACL | ObjType::OLD_ACL => &[Aim::Attributes],
        ObjType::U64_METADATA | ObjType::OBJECT_ARRAY => &[Aim::Words],
        ObjType::SPA_HISTORY => &[Aim::History],
        ObjType::INTENT_LOG => &[Aim::Logs],
        // The deadlist's own ZAP is where its bpobjs are.
        ObjType::DEADLIST => &[Aim::Zaps, Aim::FreedBlocks],
        kind if kind.is_zap() => &[Aim::Zaps],
        _ => &[],
    }
}

/// Changes the contents of a block in a few places.
pub fn change(aim: Aim, bytes: &mut [u8], state: &mut u64) {
    for _ in 0..=next(state) % 4 {
        let range = match aim {
            Aim::Dnodes | Aim::Bonuses | Aim::Pointers => slot_part(aim, bytes, state),
            _ => 0..bytes.len(),
        };
        if let Some(part) = bytes.get_mut(range) {
            hurt(part, state);
        }
    }
}

/// A part of one of the used slots of a block of dnodes.
fn slot_part(aim: Aim, bytes: &[u8], state: &mut u64) -> std::ops::Range<usize> {
    let used: Vec<usize> =
        (0..bytes.len() / SLOT_SIZE).map(|i| i * SLOT_SIZE).filter(|at| bytes[*at] != 0).collect();
    let Some(at) = used.get(next(state) as usize % used.len().max(1)) else { return 0..0 };
    let pointers = CORE_SIZE + 128 * usize::from(bytes[at + 3]).min(3);
    let end = at + (usize::from(bytes[at + 12]) + 1) * SLOT_SIZE;
    match aim {
        Aim::Dnodes => *at..at + 32,
        Aim::Pointers => at + CORE_SIZE..at + pointers,
        _ => (at + pointers).min(end)..end.min(bytes.len()),
    }
}

/// Changes some bytes or a word, where something is rather than where nothing is.
pub fn hurt(part: &mut [u8], state: &mut u64) {
    if part.len() < 8 {
        return;
    }
    let mut at = next(state) as usize % (part.len() - 7);
    for _ in 0..16 {
        if part[at..at + 8].iter().any(|byte| *byte != 0) {
            break;
        }
        at = next(state) as usize % (part.len() - 7);
    }
    let word = &mut part[at & !7..][..8];
    let random = next(state);
    match next(state) % 8 {
        0 | 1 => word[at % 8] ^= 1 << (random % 8),
        2 | 3 => word[at % 8] = random as u8,
        4 => word.copy_from_slice(&u64::MAX.to_le_bytes()),
        5 => word.copy_from_slice(&(random % 300).to_le_bytes()),
        6 => word.copy_from_slice(&(1u64 << (random % 64)).to_le_bytes()),
        _ => {
            let old = u64::from_le_bytes(word.try_into().unwrap_or_default());
            word.copy_from_slice(&old.wrapping_add(random % 5).wrapping_sub(2).to_le_bytes());
        }
    }
}
