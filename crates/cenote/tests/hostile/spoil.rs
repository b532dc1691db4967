//! Changes blocks on their way up, after their checksums were verified.
//!
//! # What always holds
//! - A block is changed the same way each time it is read in a run, whichever thread reads it: as in a
//!   pool that was written that way.
//! - A run changes blocks of one kind mostly, and few of them, so that most runs get far. Over a
//!   number of runs every kind of block is changed.

use format::dnode::{CORE_SIZE, SLOT_SIZE};
use format::{BlockPtr, Level, ObjType};
use std::sync::atomic::{AtomicU64, Ordering};

/// A kind of place to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Aim {
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
    /// Any of these, and what files contain.
    Anything,
}

impl Aim {
    /// Every kind.
    pub(crate) const ALL: [Aim; 14] = [
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
        Aim::Anything,
    ];

    /// Of how many blocks of that kind one is changed: what a pool has few of, and does not need to
    /// open, more often than what it needs.
    fn rates(self) -> [u64; 3] {
        match self {
            Aim::Anything => [60, 20, 8],
            Aim::Zaps | Aim::Dnodes => [24, 10, 4],
            Aim::Bonuses | Aim::Pointers => [12, 5, 2],
            Aim::Indirect | Aim::ObjectSets | Aim::Lists => [6, 3, 2],
            _ => [3, 2, 1],
        }
    }
}

/// How often each kind was hit.
pub(crate) static HITS: [AtomicU64; Aim::ALL.len()] = [const { AtomicU64::new(0) }; Aim::ALL.len()];

pub(crate) fn next(state: &mut u64) -> u64 {
    // SplitMix64: every seed gives a different, repeatable series.
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// What a seed aims at, and how often it hits: every fourteen seeds in a row have every aim.
pub(crate) fn plan(seed: u64) -> (Aim, u64) {
    let count = Aim::ALL.len() as u64;
    let aim = Aim::ALL[(seed % count) as usize];
    (aim, aim.rates()[(seed / count % 3) as usize])
}

/// From now on blocks are changed as this seed says.
pub(crate) fn start(seed: u64, (aim, one_in): (Aim, u64)) {
    zio::testing::set_mutator(Some(Box::new(move |bp, bytes| {
        let mut state = seed;
        for i in [0, 1, 10, 11] {
            state = next(&mut state) ^ bp.words()[i];
        }
        let is_meant = aim == Aim::Anything || kinds(bp).contains(&aim);
        if is_meant && next(&mut state).is_multiple_of(one_in) {
            HITS[aim as usize].fetch_add(1, Ordering::Relaxed);
            change(aim, bytes, &mut state);
        }
    })));
}

/// Blocks are what they are again.
pub(crate) fn stop() {
    zio::testing::set_mutator(None);
}

/// What a block is for.
fn kinds(bp: &BlockPtr) -> &'static [Aim] {
    if bp.level() > Level(0) {
        return &[Aim::Indirect];
    }
    match bp.obj_type() {
        ObjType::DNODE => &[Aim::Dnodes, Aim::Bonuses, Aim::Pointers],
        ObjType::OBJSET => &[Aim::ObjectSets],
        ObjType::PACKED_NVLIST | ObjType::FUID => &[Aim::Lists],
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

fn change(aim: Aim, bytes: &mut [u8], state: &mut u64) {
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
fn hurt(part: &mut [u8], state: &mut u64) {
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
