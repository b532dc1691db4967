//! Uberblocks: the root of one synced transaction group, kept in a ring in every label
//! (docs/on-disk/11-labels-config.md, section 4).
//!
//! A slot is valid only if its trailer's checksum is right, which is verified before decoding
//! (`codec::checksum::verify_trailer`). [`Uberblock::rank`] determines the newest of many valid uberblocks, after
//! those of other pools were excluded by their guid sum.

use crate::blkptr::BLKPTR_SIZE;
use crate::endian::{bits, with_bits};
use crate::units::SECTOR_SHIFT;
use crate::{BlockPtr, DecodeError, Endian, Txg};

/// Magic number of an uberblock.
pub(crate) const UBERBLOCK_MAGIC: u64 = 0x00ba_b10c;
/// Magic number that shows that the multihost words are present.
pub const MMP_MAGIC: u64 = 0xa11c_ea11;
/// Number of 64-bit words of an uberblock.
pub const UBERBLOCK_WORDS: usize = 27;
/// Bytes of an uberblock; the rest of its slot is zero up to the trailer.
pub const UBERBLOCK_SIZE: usize = 8 * UBERBLOCK_WORDS;

const WHAT: &str = "uberblock";
const _: () = assert!(UBERBLOCK_WORDS == 5 + BLKPTR_SIZE / 8 + 6);

/// Multihost protection: parameters of the writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mmp {
    /// Mean interval between writes in nanoseconds; 0: multihost is off.
    pub delay_ns: u64,
    /// The parameters as stored, packed into bit fields.
    pub config: u64,
}

impl Mmp {
    /// Whether multihost protection is on.
    pub fn is_on(&self) -> bool {
        self.delay_ns != 0
    }

    /// Interval between writes to one leaf in milliseconds, if stored.
    pub fn interval_ms(&self) -> Option<u32> {
        (bits(self.config, 0, 1) == 1).then(|| bits(self.config, 8, 24) as u32)
    }

    /// Number of the write within its second, if stored.
    pub fn sequence(&self) -> Option<u16> {
        (bits(self.config, 1, 1) == 1).then(|| bits(self.config, 32, 16) as u16)
    }

    /// Number of intervals without a successful write after which the writer suspends, if stored; 0: never.
    pub fn fail_intervals(&self) -> Option<u16> {
        (bits(self.config, 2, 1) == 1).then(|| bits(self.config, 48, 16) as u16)
    }
}

/// Progress of a raidz expansion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReflowInfo {
    /// Offset in the raidz vdev below which sectors have been moved, in bytes.
    pub offset: u64,
    /// State of the scratch area: one of the constants of this type.
    pub state: u8,
}

impl ReflowInfo {
    /// The scratch area has the rows below `offset`, whose final locations may be half written.
    pub const SCRATCH_VALID: u8 = 1;
    /// The expansion has passed the scratch area.
    pub(crate) const SYNCED_BY_REFLOW: u8 = 4;

    fn from_word(word: u64) -> Result<ReflowInfo, DecodeError> {
        let state = bits(word, 55, 9);
        if state > u64::from(ReflowInfo::SYNCED_BY_REFLOW) {
            return Err(DecodeError::field(WHAT, "reflow state", state));
        }
        Ok(ReflowInfo { offset: bits(word, 0, 55) << SECTOR_SHIFT, state: state as u8 })
    }

    fn to_word(self) -> u64 {
        with_bits(self.offset >> SECTOR_SHIFT, 55, 9, u64::from(self.state))
    }
}

/// An uberblock, decoded: the root of one state of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uberblock {
    /// Format version of the pool: 5000, or 1 to 28.
    pub version: u64,
    /// The transaction group that the uberblock completes.
    pub txg: Txg,
    /// Sum of the guids of all vdevs, modulo 2^64.
    pub guid_sum: u64,
    /// Time of the write in seconds since 1970.
    pub timestamp: u64,
    /// Pointer to the meta object set.
    pub root: BlockPtr,
    /// Version of the software that wrote it.
    pub software_version: u64,
    /// Multihost protection; software before 0.7 did not write it.
    pub mmp: Option<Mmp>,
    /// Txg of the checkpoint, in the uberblock that a checkpoint keeps; 0 in others.
    pub checkpoint_txg: Txg,
    /// Progress of a raidz expansion.
    pub reflow: ReflowInfo,
    /// Byte order of the writer.
    pub order: Endian,
}

impl Uberblock {
    /// Decodes the uberblock at the start of `bytes`, in the byte order of its magic number.
    ///
    /// # Errors
    /// [`DecodeError::Short`], [`DecodeError::Magic`]; otherwise as [`Uberblock::from_words`].
    pub fn decode(bytes: &[u8]) -> Result<Uberblock, DecodeError> {
        let found = Endian::Little.u64(WHAT, bytes, 0)?;
        let order = if found.swap_bytes() == UBERBLOCK_MAGIC { Endian::Big } else { Endian::Little };
        Uberblock::from_words(&order.words(WHAT, bytes, 0)?, order)
    }

    /// Decodes the 27 words, as in the MOS entry of a checkpoint.
    ///
    /// # Errors
    /// [`DecodeError::Field`] if the state of an expansion is not possible.
    pub fn from_words(words: &[u64; UBERBLOCK_WORDS], order: Endian) -> Result<Uberblock, DecodeError> {
        let [magic, version, txg, guid_sum, timestamp, rest @ ..] = words;
        let [bp @ .., software_version, mmp_magic, delay_ns, config, checkpoint, reflow] = rest;
        if *magic != UBERBLOCK_MAGIC {
            return Err(DecodeError::Magic { what: WHAT, found: *magic, expected: UBERBLOCK_MAGIC });
        }
        let mmp = (*mmp_magic == MMP_MAGIC).then_some(Mmp { delay_ns: *delay_ns, config: *config });
        Ok(Uberblock {
            version: *version,
            txg: Txg(*txg),
            guid_sum: *guid_sum,
            timestamp: *timestamp,
            root: BlockPtr::from_words(*bp),
            software_version: *software_version,
            mmp,
            checkpoint_txg: Txg(*checkpoint),
            reflow: ReflowInfo::from_word(*reflow)?,
            order,
        })
    }

    /// The 27 words in host order.
    pub fn to_words(&self) -> [u64; UBERBLOCK_WORDS] {
        let mmp = self.mmp.map_or([0; 3], |m| [MMP_MAGIC, m.delay_ns, m.config]);
        let head = [UBERBLOCK_MAGIC, self.version, self.txg.0, self.guid_sum, self.timestamp];
        let tail = [self.checkpoint_txg.0, self.reflow.to_word()];
        let all =
            head.iter().chain(self.root.words()).chain([&self.software_version]).chain(&mmp).chain(&tail);
        let mut words = [0; UBERBLOCK_WORDS];
        for (word, value) in words.iter_mut().zip(all) {
            *word = *value;
        }
        words
    }

    /// The bytes in [`Uberblock::order`], without the rest of the slot.
    pub fn encode(&self) -> [u8; UBERBLOCK_SIZE] {
        let mut out = [0; UBERBLOCK_SIZE];
        for (chunk, word) in out.chunks_exact_mut(8).zip(self.to_words()) {
            chunk.copy_from_slice(&self.order.put_u64(word));
        }
        out
    }

    /// Sort key of the uberblocks of one pool; the greatest is the newest.
    pub fn rank(&self) -> (Txg, u64, u16) {
        let sequence = self.mmp.and_then(|m| m.sequence()).unwrap_or(0);
        (self.txg, self.timestamp, sequence)
    }

    /// The slot of the ring in which it is stored, given the number of slots.
    pub fn slot(&self, slots: usize) -> usize {
        let reserved = usize::from(self.mmp.is_some_and(|m| m.is_on()));
        let txg = if self.reflow.state == ReflowInfo::SCRATCH_VALID {
            self.txg.0.saturating_sub(1)
        } else {
            self.txg.0
        };
        (txg % slots.saturating_sub(reserved).max(1) as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slot of label 0 of an exported raidz1 pool of OpenZFS 2.3.2, without its trailer.
    const SLOT: &[u8] = include_bytes!("../testdata/uberblock-raidz1.bin");

    #[test]
    fn a_real_uberblock_reads_and_encodes_to_the_same_bytes() {
        let ub = Uberblock::decode(SLOT).unwrap();
        assert_eq!((ub.version, ub.order, ub.software_version), (5000, Endian::Little, 5000));
        assert_eq!(ub.mmp, Some(Mmp::default()));
        assert_eq!(ub.root.obj_type(), crate::ObjType::OBJSET);
        assert_eq!(ub.root.validate(), Ok(()));
        assert_eq!(ub.root.logical_birth(), ub.txg);
        assert_eq!(ub.encode()[..], SLOT[..UBERBLOCK_SIZE]);
        assert_eq!(SLOT[UBERBLOCK_SIZE..].iter().find(|b| **b != 0), None);
    }

    #[test]
    fn the_other_byte_order_is_found_by_the_magic() {
        let ub = Uberblock { order: Endian::Big, ..Uberblock::decode(SLOT).unwrap() };
        assert_eq!(Uberblock::decode(&ub.encode()), Ok(ub));
    }

    #[test]
    fn rank_prefers_txg_then_time_then_sequence() {
        let ub = Uberblock::decode(SLOT).unwrap();
        let later = Uberblock { timestamp: ub.timestamp + 1, ..ub };
        let newer = Uberblock { txg: Txg(ub.txg.0 + 1), timestamp: 0, ..ub };
        let config = with_bits(with_bits(0, 1, 1, 1), 32, 16, 3);
        let written = Uberblock { mmp: Some(Mmp { delay_ns: 1, config }), ..ub };
        assert!(ub.rank() < written.rank() && written.rank() < later.rank() && later.rank() < newer.rank());
        assert_eq!(newer.slot(32), (newer.txg.0 % 32) as usize);
        assert_eq!(Uberblock { txg: Txg(63), ..written }.slot(32), 63 % 31);
    }

    #[test]
    fn reflow_states_above_the_last_are_refused() {
        let mut words = Uberblock::decode(SLOT).unwrap().to_words();
        words[26] = with_bits(8, 55, 9, 4);
        let ub = Uberblock::from_words(&words, Endian::Little).unwrap();
        assert_eq!(ub.reflow, ReflowInfo { offset: 4096, state: ReflowInfo::SYNCED_BY_REFLOW });
        assert_eq!(ub.to_words(), words);
        words[26] = with_bits(8, 55, 9, 5);
        assert!(Uberblock::from_words(&words, Endian::Little).is_err());
    }

    #[test]
    fn other_magics_and_short_slots_are_refused() {
        assert!(matches!(Uberblock::decode(&[0; 1024]), Err(DecodeError::Magic { .. })));
        assert!(Uberblock::decode(&SLOT[..UBERBLOCK_SIZE - 1]).is_err());
    }
}
