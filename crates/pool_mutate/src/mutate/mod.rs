//! Blocks changed as an attacker would change them: the contents are wrong, and every checksum is right.
//!
//! # What always holds
//! - The same seed changes the same blocks of a pool in the same way.
//! - A seed targets one kind of structure and changes few blocks, so that much of most pools stays readable.
//!   Nineteen consecutive seeds target every kind.

pub mod lists;
pub mod pointers;

use crate::image::Image;
use crate::walk::{BlockPosition, Edit, Walk};
use crate::{Result, labels};
use format::blkptr::Protection;
use format::dnode::{CORE_SIZE, SLOT_SIZE};
use format::{BlockPtr, Endian, Level, ObjType};

/// A kind of structure to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// ZAP blocks of the MOS and of file systems.
    Zaps,
    /// The first 32 bytes of dnodes: type, sizes, levels, counts.
    Dnodes,
    /// Bonus areas of dnodes: directories, datasets, bpobjs, space maps, files.
    Bonuses,
    /// Block pointers inside dnodes.
    Pointers,
    /// Indirect blocks, their pointers as words.
    Indirect,
    /// Object set blocks.
    ObjectSets,
    /// Packed name-value lists, as bytes.
    Lists,
    /// Space map blocks.
    SpaceMaps,
    /// Bpobjs, their lists of sub-objects, deadlists.
    FreedBlocks,
    /// Spill blocks with system attributes and ACLs.
    Attributes,
    /// Arrays of numbers: mappings of removed vdevs, logs of dedup tables, reference counts of clones.
    Words,
    /// The pool history.
    History,
    /// Intent log blocks.
    Logs,
    /// Single fields of block pointers, with the checksum swapped off, so that the data they lead to passes
    /// verification.
    Forged,
    /// Values of packed name-value lists that stay well-formed: vdev configurations, FUIDs, spares.
    Configs,
    /// Compressed bytes, before decompression.
    Streams,
    /// Ciphertext and authenticated bytes.
    Ciphers,
    /// Headers of gang blocks.
    Gangs,
    /// Any of these structures, and file contents.
    Anything,
}

impl Target {
    /// All targets, in the order in which seeds use them.
    pub const ALL: [Target; 19] = [
        Target::Zaps,
        Target::Dnodes,
        Target::Bonuses,
        Target::Pointers,
        Target::Indirect,
        Target::ObjectSets,
        Target::Lists,
        Target::SpaceMaps,
        Target::FreedBlocks,
        Target::Attributes,
        Target::Words,
        Target::History,
        Target::Logs,
        Target::Forged,
        Target::Configs,
        Target::Streams,
        Target::Ciphers,
        Target::Gangs,
        Target::Anything,
    ];

    /// The rates at which seeds change blocks of this kind, each as one in so many. Rare structures, and
    /// those that opening a pool does not need, are changed more often.
    fn rates(self) -> [u64; 3] {
        match self {
            Target::Anything => [60, 20, 8],
            Target::Streams => [40, 15, 5],
            Target::Zaps | Target::Dnodes | Target::Forged => [24, 10, 4],
            Target::Bonuses | Target::Pointers => [12, 5, 2],
            Target::Indirect | Target::ObjectSets | Target::Lists | Target::Ciphers => [6, 3, 2],
            _ => [3, 2, 1],
        }
    }
}

/// The next number of a SplitMix64 series: each seed gives a different, repeatable one.
pub fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The target of a seed, and its rate: one block in so many is changed.
pub fn plan(seed: u64) -> (Target, u64) {
    let count = Target::ALL.len() as u64;
    let target = Target::ALL[(seed % count) as usize];
    (target, target.rates()[(seed / count % 3) as usize])
}

/// Whether a seed changes a block; if so, the state of its random series for that block.
pub fn choose(seed: u64, one_in: u64, bp: &BlockPtr) -> Option<u64> {
    let mut state = seed;
    for i in [0, 1, 10, 11] {
        state = next(&mut state) ^ bp.words()[i];
    }
    next(&mut state).is_multiple_of(one_in).then_some(state)
}

/// Counts of a [`mutate`] run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Blocks whose contents or stored bytes were changed.
    pub changed: u64,
    /// Blocks written: the changed ones, and all that lead to them.
    pub written: u64,
    /// Blocks left unchanged because the new contents do not fit.
    pub unfit: u64,
}

/// Changes blocks of a pool and reseals it.
///
/// # Errors
/// Fails if a block is damaged already, a device fails, or the pool has a structure that cannot be rewritten.
pub fn mutate(image: &Image, seed: u64, (target, one_in): (Target, u64)) -> Result<Outcome> {
    let mut edit = Mutation { seed, target, one_in, changed: 0 };
    let mut walk = Walk::new(image, &mut edit);
    let root = walk.run()?;
    let (written, unfit) = (walk.written, walk.unfit);
    labels::reseal(image, &root, image.pool.uberblock().order, false)?;
    Ok(Outcome { changed: edit.changed, written, unfit })
}

/// The edit of [`mutate`].
struct Mutation {
    seed: u64,
    target: Target,
    one_in: u64,
    changed: u64,
}

impl Edit for Mutation {
    fn edit(&mut self, _: &BlockPosition, bp: &BlockPtr, contents: &mut Vec<u8>) -> Option<Endian> {
        let is_target = self.target == Target::Anything || targets(bp).contains(&self.target);
        let mut state = choose(self.seed, self.one_in, bp).filter(|_| is_target)?;
        let before = contents.clone();
        mutate_contents(self.target, bp, contents, &mut state);
        let is_changed = *contents != before;
        self.changed += u64::from(is_changed);
        is_changed.then_some(bp.byte_order())
    }

    fn wants(&self, _: &BlockPosition, bp: &BlockPtr) -> bool {
        self.target == Target::Anything || targets(bp).contains(&self.target)
    }

    fn stored(&mut self, bp: &BlockPtr, bytes: &mut Vec<u8>) -> bool {
        let Some(mut state) = choose(self.seed, self.one_in, bp) else { return false };
        match self.target {
            Target::Streams => mutate_stream(bytes, &mut state),
            target => mutate_words(target, bytes, &mut state),
        }
        self.changed += 1;
        true
    }

    fn wants_stored(&self, bp: &BlockPtr) -> bool {
        targets_stored_bytes(self.target, bp) && choose(self.seed, self.one_in, bp).is_some()
    }
}

/// Whether the stored bytes of this block are the target, rather than its contents.
pub fn targets_stored_bytes(target: Target, bp: &BlockPtr) -> bool {
    match target {
        Target::Streams => !matches!(bp.compression_id(), 0 | 2),
        Target::Ciphers => bp.protection() != Protection::None,
        _ => false,
    }
}

/// Changes the contents of a block by the method of a target.
pub fn mutate_contents(target: Target, bp: &BlockPtr, bytes: &mut [u8], state: &mut u64) {
    match target {
        Target::Forged => pointers::in_block(bp, bytes, state),
        Target::Configs => lists::mutate_packed(bytes, state),
        _ => mutate_words(target, bytes, state),
    }
}

/// Changes a compressed stream; half of the changes hit its first 16 bytes, where length fields are.
pub fn mutate_stream(bytes: &mut [u8], state: &mut u64) {
    for _ in 0..=next(state) % 3 {
        let len = if next(state).is_multiple_of(2) { bytes.len().min(16) } else { bytes.len() };
        corrupt(&mut bytes[..len], state);
    }
}

/// The targets that a block belongs to.
pub fn targets(bp: &BlockPtr) -> &'static [Target] {
    if bp.level() > Level(0) {
        return &[Target::Indirect, Target::Forged];
    }
    match bp.obj_type() {
        ObjType::DNODE => &[Target::Dnodes, Target::Bonuses, Target::Pointers, Target::Forged],
        ObjType::OBJSET => &[Target::ObjectSets, Target::Forged],
        ObjType::PACKED_NVLIST | ObjType::FUID => &[Target::Lists, Target::Configs],
        ObjType::SPACE_MAP => &[Target::SpaceMaps],
        ObjType::BPOBJ | ObjType::BPOBJ_SUBOBJ => &[Target::FreedBlocks],
        ObjType::SA | ObjType::ACL | ObjType::OLD_ACL => &[Target::Attributes],
        ObjType::U64_METADATA | ObjType::OBJECT_ARRAY => &[Target::Words],
        ObjType::SPA_HISTORY => &[Target::History],
        ObjType::INTENT_LOG => &[Target::Logs],
        // The ZAP of a deadlist names its bpobjs.
        ObjType::DEADLIST => &[Target::Zaps, Target::FreedBlocks],
        kind if kind.is_zap() => &[Target::Zaps],
        _ => &[],
    }
}

/// Changes up to three words of a block.
pub fn mutate_words(target: Target, bytes: &mut [u8], state: &mut u64) {
    for _ in 0..=next(state) % 4 {
        let range = match target {
            Target::Dnodes | Target::Bonuses | Target::Pointers => slot_part(target, bytes, state),
            _ => 0..bytes.len(),
        };
        if let Some(part) = bytes.get_mut(range) {
            corrupt(part, state);
        }
    }
}

/// The byte range of a target in a random used slot of a block of dnodes.
fn slot_part(target: Target, bytes: &[u8], state: &mut u64) -> std::ops::Range<usize> {
    let used: Vec<usize> =
        (0..bytes.len() / SLOT_SIZE).map(|i| i * SLOT_SIZE).filter(|at| bytes[*at] != 0).collect();
    let Some(at) = used.get(next(state) as usize % used.len().max(1)) else { return 0..0 };
    let pointers = CORE_SIZE + 128 * usize::from(bytes[at + 3]).min(3);
    let end = at + (usize::from(bytes[at + 12]) + 1) * SLOT_SIZE;
    match target {
        Target::Dnodes => *at..at + 32,
        Target::Pointers => at + CORE_SIZE..at + pointers,
        _ => (at + pointers).min(end)..end.min(bytes.len()),
    }
}

/// Changes one word or byte, preferably where the old bytes are not zero. Does nothing to fewer than 8 bytes.
pub(crate) fn corrupt(part: &mut [u8], state: &mut u64) {
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
