//! Changes blocks on their way up, after their checksums were verified.
//!
//! # What always holds
//! - A block is changed the same way each time it is read in a run, whichever thread reads it: as in a
//!   pool that was written that way.
//! - A run changes blocks of one kind mostly, and few of them, so that most runs get far. Over a
//!   number of runs every kind of block is changed.

use crate::forge;
use format::blkptr::Protection;
use format::dnode::{CORE_SIZE, SLOT_SIZE};
use format::{BlockPtr, Level, NvList, ObjType};
use std::sync::atomic::{AtomicU64, Ordering};
use zio::testing::Stored;

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
    pub(crate) const ALL: [Aim; 19] = [
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

/// What a seed aims at, and how often it hits: every nineteen seeds in a row have every aim.
pub(crate) fn plan(seed: u64) -> (Aim, u64) {
    let count = Aim::ALL.len() as u64;
    let aim = Aim::ALL[(seed % count) as usize];
    (aim, aim.rates()[(seed / count % 3) as usize])
}

/// From now on blocks are changed as this seed says.
pub(crate) fn start(seed: u64, (aim, one_in): (Aim, u64)) {
    let chosen = move |bp: &BlockPtr| {
        let mut state = seed;
        for i in [0, 1, 10, 11] {
            state = next(&mut state) ^ bp.words()[i];
        }
        next(&mut state).is_multiple_of(one_in).then_some(state)
    };
    zio::testing::set_mutator(Some(Box::new(move |bp, bytes| {
        let is_meant = aim == Aim::Anything || kinds(bp).contains(&aim);
        if let (true, Some(mut state)) = (is_meant, chosen(bp)) {
            HITS[aim as usize].fetch_add(1, Ordering::Relaxed);
            match aim {
                Aim::Forged => forge::in_block(bp, bytes, &mut state),
                Aim::Configs => change_list(bytes, &mut state),
                _ => change(aim, bytes, &mut state),
            }
        }
    })));
    zio::testing::set_stored_mutator(Some(Box::new(move |bp, what, bytes| {
        let is_meant = match aim {
            Aim::Gangs => what == Stored::GangHeader,
            Aim::Streams => what == Stored::Block && !matches!(bp.compression_id(), 0 | 2),
            Aim::Ciphers => what == Stored::Block && bp.protection() != Protection::None,
            _ => false,
        };
        if let (true, Some(mut state)) = (is_meant, chosen(bp)) {
            HITS[aim as usize].fetch_add(1, Ordering::Relaxed);
            match aim {
                Aim::Gangs if next(&mut state).is_multiple_of(2) => forge::in_block(bp, bytes, &mut state),
                Aim::Streams => change_stream(bytes, &mut state),
                _ => change(aim, bytes, &mut state),
            }
        }
    })));
}

/// Blocks are what they are again.
pub(crate) fn stop() {
    zio::testing::set_mutator(None);
    zio::testing::set_stored_mutator(None);
}

/// Changes a value of a packed list, and packs it again if it is not longer then.
fn change_list(bytes: &mut [u8], state: &mut u64) {
    let Ok(list) = NvList::decode(bytes) else { return };
    for _ in 0..=next(state) % 2 {
        let mut left = next(state) as usize % crate::labels::count(&list).max(1);
        let packed = crate::labels::change(&list, state, &mut left).encode_xdr();
        if packed.len() <= bytes.len() {
            bytes[..packed.len()].copy_from_slice(&packed);
        }
    }
}

/// Changes a compressed stream: where its lengths are half of the time.
fn change_stream(bytes: &mut [u8], state: &mut u64) {
    for _ in 0..=next(state) % 3 {
        let len = if next(state).is_multiple_of(2) { bytes.len().min(16) } else { bytes.len() };
        hurt(&mut bytes[..len], state);
    }
}

/// What a block is for.
fn kinds(bp: &BlockPtr) -> &'static [Aim] {
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
pub(crate) fn hurt(part: &mut [u8], state: &mut u64) {
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
